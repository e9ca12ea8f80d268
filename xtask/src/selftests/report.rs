//! The table of both kernels, and the checks that Quire's lacks.

use comfy_table::{CellAlignment, Table, presets};

use super::tap::{Outcome, Said};

/// The most names that are shown of checks that pass on Linux only.
const SHOWN: usize = 6;

/// A program, and its results on Linux and on Quire's kernel.
pub(super) struct Row {
    pub name: String,
    pub linux: Option<Said>,
    pub quire: Option<Said>,
}

impl Row {
    /// Whether Quire's kernel passes what Linux passes; where one of them alone ran, whether that
    /// one ended well.
    pub(super) fn is_good(&self) -> bool {
        match (&self.linux, &self.quire) {
            (Some(linux), Some(quire)) => quire.is_as_good_as(linux),
            (only, None) | (None, only) => only.as_ref().is_some_and(|said| said.status == 0),
        }
    }
}

impl Row {
    /// The word in the column "as on Linux": only where both ran is there an answer.
    fn verdict(&self) -> &'static str {
        match (&self.linux, &self.quire) {
            (Some(_), Some(_)) if self.is_good() => "yes",
            (Some(_), Some(_)) => "no",
            _ => "–",
        }
    }
}

/// Prints the table, in the form of docs/conformance.md, then the checks that each program lacks.
pub(super) fn print(rows: &[Row]) {
    println!("{}", table(rows));
    for row in rows.iter().filter(|row| !row.is_good()) {
        println!();
        for line in lacks(row) {
            println!("{line}");
        }
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let sides = ["Linux: passed", "failed", "skipped", "left", "exit"];
    let quire = ["Quire: passed", "failed", "skipped", "left", "exit"];
    let head = ["program"].into_iter().chain(sides).chain(quire).chain(["as on Linux"]);
    table.set_header(head);
    for row in rows {
        let mut cells = vec![row.name.clone()];
        for said in [&row.linux, &row.quire] {
            cells.extend(figures(said.as_ref()));
        }
        cells.push(row.verdict().to_owned());
        table.add_row(cells);
    }
    for column in 1..11 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn figures(said: Option<&Said>) -> Vec<String> {
    let Some(said) = said else { return vec!["–".to_owned(); 5] };
    let count = |outcome| said.count(outcome).to_string();
    vec![
        count(Outcome::Passed),
        count(Outcome::Failed),
        count(Outcome::Skipped),
        said.left().to_string(),
        said.status.to_string(),
    ]
}

/// The checks of a program that pass on Linux only, and the reason of an early end.
fn lacks(row: &Row) -> Vec<String> {
    let (Some(linux), Some(quire)) = (&row.linux, &row.quire) else { return Vec::new() };
    let lost = linux.lost_in(quire);
    let mut lines = vec![format!("{}: {} checks pass on Linux only", row.name, lost.len())];
    lines.extend(quire.reason.iter().map(|reason| format!("    it says: {reason}")));
    lines.extend(lost.iter().take(SHOWN).map(|name| format!("    {name}")));
    if lost.len() > SHOWN {
        lines.push(format!("    and {} more", lost.len() - SHOWN));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{Row, Said, lacks, table};

    fn said(text: &str, status: u8) -> Option<Said> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        Some(Said::read(&lines, status))
    }

    #[test]
    fn a_row_shows_both_kernels_and_what_is_lost() {
        let row = Row {
            name: "cow".to_owned(),
            linux: said("1..2\nok 1 a\nok 2 b\n", 0),
            quire: said("1..2\nnot ok 1 a\nBail out! no vmsplice\n", 1),
        };
        assert!(!row.is_good());
        assert_eq!(
            lacks(&row),
            ["cow: 2 checks pass on Linux only", "    it says: no vmsplice", "    a", "    b"]
        );
        let text = table(&[row]).to_string();
        let cells: Vec<&str> =
            text.lines().last().unwrap_or("").split('|').map(str::trim).collect();
        assert_eq!(cells, ["", "cow", "2", "0", "0", "0", "0", "0", "1", "0", "1", "1", "no", ""]);
    }

    #[test]
    fn a_side_that_was_not_run_is_a_dash_and_so_is_the_verdict() {
        let row = Row { name: "cow".to_owned(), linux: None, quire: said("1..1\nok 1 a\n", 0) };
        assert!(row.is_good());
        let text = table(&[row]).to_string();
        let cells: Vec<&str> =
            text.lines().last().unwrap_or("").split('|').map(str::trim).collect();
        assert_eq!(cells, ["", "cow", "–", "–", "–", "–", "–", "1", "0", "0", "0", "0", "–", ""]);
    }
}
