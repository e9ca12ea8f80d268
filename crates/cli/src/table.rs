//! Runs as tables for people.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};

use crate::host::cpu::rounded;
use crate::record::{self, Run};

/// The whole of `run`: its figures, what they say, under which settings, and what they leave out.
pub(crate) fn page(run: &Run) -> String {
    let mut page = String::new();
    for table in &run.tables {
        let _ = write!(page, "{}\n{}\n\n", table.title, matrix(run, table));
    }
    for (head, sentences) in run.sentences() {
        if !sentences.is_empty() {
            let _ = writeln!(page, "{head}");
        }
        for sentence in sentences {
            let _ = writeln!(page, "  {sentence}");
        }
    }
    page
}

fn matrix(run: &Run, of: &record::Table) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header([""].into_iter().chain(of.columns.iter().map(String::as_str)));
    for (name, cells) in &of.rows {
        let figure = |at: &Option<usize>| {
            let record = run.records.get((*at)?)?;
            Some(value(&record.unit, record.median))
        };
        let cells = cells.iter().map(|at| figure(at).unwrap_or_else(|| "-".to_owned()));
        table.add_row([name.clone()].into_iter().chain(cells));
    }
    numbers_to_the_right(&mut table);
    table
}

/// The rows that sum up all of `runs`.
pub(crate) fn headlines(runs: &[Run]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["", "Quire", "page-at-a-time", "this host's Linux", "ratio", "goal", "met"]);
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".to_owned());
    for row in runs.iter().flat_map(|run| &run.headlines) {
        let (goal, met) = match &row.goal {
            Some((goal, met)) => (goal.as_str(), if *met { "yes" } else { "NO" }),
            None => ("–", "–"),
        };
        let [pages, linux, ratio] = [&row.pages, &row.linux, &row.ratio].map(or_dash);
        let (goal, met) = (goal.to_owned(), met.to_owned());
        table.add_row([row.what.clone(), row.quire.clone(), pages, linux, ratio, goal, met]);
    }
    numbers_to_the_right(&mut table);
    table
}

fn numbers_to_the_right(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

/// A median in its unit, three digits long; counts whole.
pub(crate) fn value(unit: &str, median: f64) -> String {
    match unit {
        "ns" => duration(median),
        "count" => format!("{median:.0}"),
        "share" => format!("{:.0} %", 100.0 * median),
        "bytes" => rounded(median as u64),
        "ratio" => format!("{median:.2}"),
        _ => digits(median),
    }
}

/// Nanoseconds as people say them.
pub(crate) fn duration(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{} ns", digits(ns)),
        1e3..1e6 => format!("{} µs", digits(ns / 1e3)),
        _ => format!("{} ms", digits(ns / 1e6)),
    }
}

fn digits(value: f64) -> String {
    let decimals = match value {
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits() {
        assert_eq!([1.234, 9.999, 44.12, 123.4].map(digits), ["1.23", "10.0", "44.1", "123"]);
        assert_eq!([163.4, 4626.0, 42_700_000.0].map(duration), ["163 ns", "4.63 µs", "42.7 ms"]);
        assert_eq!([value("share", 0.806), value("count", 1200.0)], ["81 %", "1200"]);
    }
}
