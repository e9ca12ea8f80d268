//! Runs as tables for people.

use std::fmt::Write;

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};

use crate::bench::clear::LAST_FIRST;
use crate::bench::entries::{BLOCK, Task};
use crate::bench::exec;
use crate::bench::fault::ONE_AREA;
use crate::bench::{pageout, read};
use crate::host::cpu::rounded;
use crate::record::{Record, Run};
use crate::size::Size;

/// The whole of `run`: its figures, what they say, under which settings, and what they leave out.
pub(crate) fn page(run: &Run) -> String {
    let mut page = String::new();
    for (title, records) in groups(&run.records) {
        let _ = write!(page, "{title}\n{}\n\n", matrix(&records, run.bench == "sweep"));
    }
    for (head, sentences) in [
        ("Findings", &run.findings),
        ("Machine", &run.machine.lines()),
        ("Settings", &run.settings),
        ("Not in these figures, or to be known", &run.limits),
    ] {
        if !sentences.is_empty() {
            let _ = writeln!(page, "{head}");
            for sentence in sentences {
                let _ = writeln!(page, "  {sentence}");
            }
        }
    }
    page
}

/// Records that belong into one table, with its title; in the order of their first.
pub(crate) fn groups(records: &[Record]) -> Vec<(String, Vec<&Record>)> {
    let mut groups: Vec<(String, Vec<&Record>)> = Vec::new();
    for record in records {
        let title = title(record);
        match groups.iter_mut().find(|(t, _)| *t == title) {
            Some((_, members)) => members.push(record),
            None => groups.push((title, vec![record])),
        }
    }
    groups
}

/// Whether the record is of a bench that changes all entries of an area.
fn is_of_entries(record: &Record) -> bool {
    Task::value_variants().iter().any(|task| task.name() == record.bench)
}

/// The table such a record belongs to: one for each format and kind of figure.
fn entries_title(record: &Record) -> String {
    let case = record.case();
    let format = case.notes.split(", ").next().unwrap_or("");
    let what = match (record.metric.as_str(), record.unit.as_str()) {
        ("time", _) => "time of one call, less is better (medians)",
        ("per-entry", _) => "time for each entry, less is better (medians)",
        (_, "ratio") => "by-runs against page-at-a-time, times as fast, more is better (medians)",
        _ => "what was done, counted in a run of its own",
    };
    format!("{} {format}: {what}", record.bench)
}

fn title(record: &Record) -> String {
    if is_of_entries(record) {
        return entries_title(record);
    }
    if record.bench == exec::NAME {
        return format!("exec {}", record.case);
    }
    if record.bench == read::NAME {
        return read::title(record);
    }
    if record.bench == pageout::NAME {
        return pageout::title(record);
    }
    let form = record.case().form;
    let (form, what) = match (form.as_str(), record.metric.as_str()) {
        (trap, _) if trap.starts_with("trap ") => {
            ("trap", "time to enter the host's kernel and return")
        }
        (form, "rate") => (form, "GB/s, more is better"),
        (form, "cost") => (form, "time per folio or extent, less is better"),
        (form, "clear") => (form, "time per folio, of it clearing (estimate for linux)"),
        (form, "rest") => (form, "time per folio, of it all but clearing"),
        (form, "rest-cpu") => (form, "CPU time per folio, of it all but clearing"),
        (form, "speed-up") => (form, "how many times as fast as one thread, by the clock"),
        (form, "speed-up-cpu") => (form, "how many times as fast as one thread, by CPU time"),
        (form, "of-best") => (form, "ratio of the rate to the best backend's"),
        (form, "of-raw") => (form, "ratio of the rate to the bare clear's"),
        (form, "over-pages") => (form, "ratio of the rate to page-at-a-time"),
        (form, other) => (form, other),
    };
    format!("{} {form}: {what} (medians)", record.bench)
}

/// Variants down, sizes across; of `bench exec` figures down, variants across.
pub(crate) struct Grid<'a> {
    /// What stands across.
    pub(crate) columns: Vec<String>,
    /// Names and figures; `None` where nothing was measured.
    pub(crate) rows: Vec<(String, Vec<Option<&'a Record>>)>,
}

impl<'a> Grid<'a> {
    /// Puts `records` in their places. Where `notes_matter`, records of one variant under
    /// different circumstances have rows of their own.
    pub(crate) fn new(records: &[&'a Record], notes_matter: bool) -> Grid<'a> {
        if records.iter().any(|record| record.bench == exec::NAME) {
            return exec::grid(records);
        }
        let place = |record: &Record| {
            let case = record.case();
            (case.size, case.notes.split(", ").any(|note| note == BLOCK))
        };
        let mut sizes: Vec<(Option<Size>, bool)> = records.iter().map(|r| place(r)).collect();
        sizes.sort();
        sizes.dedup();
        let mut rows: Vec<(String, Vec<Option<&Record>>)> = Vec::new();
        for record in records {
            let label = label(record, notes_matter);
            let known = rows.iter().position(|(name, _)| *name == label);
            let row = known.unwrap_or_else(|| {
                rows.push((label, vec![None; sizes.len()]));
                rows.len() - 1
            });
            let column = sizes.iter().position(|column| *column == place(record));
            if let Some(cell) = column.and_then(|at| rows[row].1.get_mut(at)) {
                *cell = Some(record);
            }
        }
        // Of all that is counted only what happened somewhere is worth a line.
        let idle = |r: &&Record| r.unit == "count" && r.max == 0.0;
        rows.retain(|(_, cells)| !cells.iter().flatten().all(idle));
        let name = |(size, block): &(Option<Size>, bool)| match size {
            Some(size) if *block => format!("{size} {BLOCK}"),
            Some(size) => size.to_string(),
            None => "time".to_owned(),
        };
        Grid { columns: sizes.iter().map(name).collect(), rows }
    }
}

pub(crate) fn matrix(records: &[&Record], notes_matter: bool) -> Table {
    let grid = Grid::new(records, notes_matter);
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header([String::new()].into_iter().chain(grid.columns));
    for (name, cells) in grid.rows {
        let cells = cells.into_iter().map(|cell| cell.map_or("-".to_owned(), value));
        table.add_row([name].into_iter().chain(cells));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// What a row is called: the variant, and its circumstances where they tell rows apart.
fn label(record: &Record, notes_matter: bool) -> String {
    let case = record.case();
    if is_of_entries(record) {
        return entries_label(record);
    }
    if record.bench == read::NAME {
        return read::label(record);
    }
    if record.bench == pageout::NAME {
        return pageout::label(record);
    }
    if let Some(trap) = case.form.strip_prefix("trap ") {
        return trap.to_owned();
    }
    let tells = |note: &&str| {
        notes_matter || *note == LAST_FIRST || *note == ONE_AREA || note.ends_with(" threads")
    };
    let notes = case.notes.split(", ").filter(tells);
    [record.variant.as_str()].into_iter().chain(notes).collect::<Vec<_>>().join(", ")
}

/// What a row of such a record is called: the part and who did it, or what was counted in it.
fn entries_label(record: &Record) -> String {
    let part = record.case().form;
    match (record.metric.as_str(), record.unit.as_str()) {
        ("over-pages", _) => part,
        (_, "ratio") => format!("{part}, folio remembered"),
        (what, "count") => format!("{part}, {}: {what}", record.variant),
        _ => format!("{part}, {}", record.variant),
    }
}

/// A median with its unit, three digits long; counts whole.
pub(crate) fn value(record: &Record) -> String {
    match record.unit.as_str() {
        "ns" if record.metric == "per-entry" && record.median < 1e3 => {
            format!("{} ns", digits(record.median))
        }
        "ns" => duration(record.median),
        "count" => format!("{:.0}", record.median),
        "share" => format!("{:.0} %", 100.0 * record.median),
        "bytes" => rounded(record.median as u64),
        "ratio" => format!("{:.2}", record.median),
        _ => digits(record.median),
    }
}

/// Nanoseconds as people say them.
pub(crate) fn duration(ns: f64) -> String {
    match ns {
        0.0..1e3 => format!("{ns:.0} ns"),
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
    use crate::record::Case;
    use crate::stats::Summary;

    fn record(form: &str, size: u64, variant: &str, metric: (&str, &str), value: f64) -> Record {
        let case = Case::new(form, Some(Size(size)));
        Record::new("clear", &case, variant, metric, Summary::of(&[value]).unwrap())
    }

    #[test]
    fn figures_keep_three_digits() {
        assert_eq!([1.234, 9.999, 44.12, 123.4].map(digits), ["1.23", "10.0", "44.1", "123"]);
        assert_eq!(duration(163.4), "163 ns");
        assert_eq!(duration(4626.0), "4.63 µs");
        assert_eq!(duration(42_700_000.0), "42.7 ms");
    }

    #[test]
    fn a_table_has_variants_down_and_sizes_across_and_gaps_where_nothing_was_measured() {
        let rate = ("rate", "GB/s");
        let records = [
            record("cold", 2 << 20, "chosen", rate, 88.0),
            record("cold", 4096, "chosen", rate, 27.0),
            record("cold", 4096, "raw-portable", rate, 26.0),
            record("then-read", 4096, "chosen", rate, 29.0),
        ];
        let groups = groups(&records);
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].0, "clear cold: GB/s, more is better (medians)");
        let text = matrix(&groups[0].1, false).to_string();
        let line = |name: &str| text.lines().find(|l| l.contains(name)).unwrap().to_owned();
        let words = |name: &str| {
            let line = line(name).replace(['│', '┆'], " ");
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(words("4K"), ["4K", "2M"]);
        assert_eq!(words("chosen"), ["chosen", "27.0", "88.0"]);
        assert_eq!(words("raw-portable"), ["raw-portable", "26.0", "-"]);
    }
}
