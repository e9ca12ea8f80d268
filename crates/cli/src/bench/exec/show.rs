//! The table of a recording: figures down, policies across.

use comfy_table::{CellAlignment, Table, presets};

use crate::host::cpu::rounded;
use crate::record::Record;

/// A table of records of one recording.
pub(crate) fn matrix(records: &[&Record]) -> Table {
    let mut variants: Vec<&str> = Vec::new();
    let mut metrics: Vec<&str> = Vec::new();
    for record in records {
        if !variants.contains(&record.variant.as_str()) {
            variants.push(&record.variant);
        }
        if !metrics.contains(&record.metric.as_str()) {
            metrics.push(&record.metric);
        }
    }
    // Sizes that only one policy gives come where all sizes are.
    metrics.sort_by_key(|metric| is_label(metric).then(|| label_key(metric)));
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header([""].into_iter().chain(variants.iter().copied()));
    for metric in metrics {
        let find = |variant: &&str| {
            records.iter().find(|record| record.metric == metric && record.variant == **variant)
        };
        let cells =
            variants.iter().map(|variant| find(variant).map_or("-".to_owned(), |r| value(r)));
        table.add_row([metric.to_owned()].into_iter().chain(cells));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn is_label(metric: &str) -> bool {
    metric.starts_with("text file")
}

/// Where a label stands: kind by kind, and by size.
fn label_key(metric: &str) -> (usize, u64) {
    const KINDS: [&str; 5] = ["text file", "-aligned-", "-unaligned-", "-partial", "-cont-"];
    let kind = KINDS.iter().rposition(|kind| metric.contains(kind)).unwrap_or(0);
    let digits: String = metric.chars().filter(char::is_ascii_digit).collect();
    (kind, digits.parse().unwrap_or(0))
}

fn value(record: &Record) -> String {
    match record.unit.as_str() {
        "ratio" => format!("{:.0} %", 100.0 * record.median),
        "bytes" => rounded(record.median as u64),
        _ => format!("{:.0}", record.median),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Case;
    use crate::stats::Summary;

    #[test]
    fn b6_policies_stand_across_and_labels_in_the_order_of_their_sizes() {
        let case = Case::new("cc1", None);
        let record = |variant: &str, metric: (&str, &str), value: f64| {
            Record::new("exec", &case, variant, metric, Summary::of(&[value]).unwrap())
        };
        let records = [
            record("a", ("text file-thp-aligned-64kB", "bytes"), 65536.0),
            record("a", ("text file-cont-aligned-64kB", "bytes"), 65536.0),
            record("a", ("share", "ratio"), 0.806),
            record("b", ("text file-thp-aligned-16kB", "bytes"), 16384.0),
            record("b", ("text file", "bytes"), 3145728.0),
            record("b", ("reads", "count"), 1200.0),
        ];
        let text = matrix(&records.iter().collect::<Vec<_>>()).to_string();
        let rows: Vec<Vec<String>> = text
            .lines()
            .map(|line| line.replace(['│', '┆'], " "))
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect();
        let at = |word: &str| rows.iter().position(|row| row.iter().any(|w| w == word)).unwrap();
        assert_eq!(rows[at("share")], ["share", "81", "%", "-"]);
        assert_eq!(rows[at("reads")], ["reads", "-", "1200"]);
        assert_eq!(rows[at("3M")], ["text", "file", "-", "3M"]);
        let labels =
            ["share", "reads", "3M", "16K", "file-thp-aligned-64kB", "file-cont-aligned-64kB"];
        assert!(labels.is_sorted_by_key(|label| at(label)), "{text}");
    }
}
