//! The table of a recording: figures down, policies across.

use crate::record::Record;
use crate::table::Grid;

/// Records of one recording, in their places.
pub(crate) fn grid<'a>(records: &[&'a Record]) -> Grid<'a> {
    let mut columns: Vec<String> = Vec::new();
    let mut metrics: Vec<&str> = Vec::new();
    for record in records {
        if !columns.contains(&record.variant) {
            columns.push(record.variant.clone());
        }
        if !metrics.contains(&record.metric.as_str()) {
            metrics.push(&record.metric);
        }
    }
    // Sizes that only one policy gives come where all sizes are.
    metrics.sort_by_key(|metric| is_label(metric).then(|| label_key(metric)));
    let find = |metric: &str, variant: &String| {
        let mut records = records.iter().copied();
        records.find(|record| record.metric == metric && record.variant == *variant)
    };
    let row = |metric: &str| columns.iter().map(|variant| find(metric, variant)).collect();
    let rows = metrics.iter().map(|metric| ((*metric).to_owned(), row(metric))).collect();
    Grid { columns, rows }
}

fn is_label(metric: &str) -> bool {
    metric.starts_with("text file")
}

/// Where a label stands: kind by kind, and by size.
fn label_key(metric: &str) -> (usize, u64) {
    const KINDS: [&str; 6] =
        ["text file", "-aligned-", "-unaligned-", "-partial", "-cont-", "-by-blocks"];
    let kind = KINDS.iter().rposition(|kind| metric.contains(kind)).unwrap_or(0);
    let digits: String = metric.chars().filter(char::is_ascii_digit).collect();
    (kind, digits.parse().unwrap_or(0))
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
            record("a", ("part", "share"), 0.806),
            record("b", ("text file-thp-aligned-16kB", "bytes"), 16384.0),
            record("b", ("text file", "bytes"), 3145728.0),
            record("b", ("reads", "count"), 1200.0),
        ];
        let text = crate::table::matrix(&records.iter().collect::<Vec<_>>(), false).to_string();
        let rows: Vec<Vec<String>> = text
            .lines()
            .map(|line| line.replace(['│', '┆'], " "))
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .collect();
        let at = |word: &str| rows.iter().position(|row| row.iter().any(|w| w == word)).unwrap();
        assert_eq!(rows[at("part")], ["part", "81", "%", "-"]);
        assert_eq!(rows[at("reads")], ["reads", "-", "1200"]);
        assert_eq!(rows[at("3M")], ["text", "file", "-", "3M"]);
        let labels =
            ["part", "reads", "3M", "16K", "file-thp-aligned-64kB", "file-cont-aligned-64kB"];
        assert!(labels.is_sorted_by_key(|label| at(label)), "{text}");
    }
}
