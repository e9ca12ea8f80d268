//! The figures of a bench, round by round, and the sentences about them.
//!
//! Every figure is a median over rounds. Within a round each cell is measured once, in an order
//! shuffled anew for each round, so that a slow second of the machine hits all cells alike, and
//! the caches are not always left by the same cell. The first round warms and does not count.
//! Ratios are taken within each round.

use std::fmt;
use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use crate::host::Host;
use crate::host::cpu::Machine;
use crate::record::{self, Case, Headline, Record, Run, Table};
use crate::size::Size;
use crate::stats::Summary;
use crate::table::value;

/// Page-at-a-time: the way of working that Quire replaces.
pub(crate) const PAGES: &str = "page-at-a-time";
/// The metric of a figure's ratio to page-at-a-time, taken round by round.
pub(crate) const OVER_PAGES: &str = "over-pages";
/// The host's kernel.
pub(crate) const LINUX: &str = "linux";

/// The name of a figure: the case, the variant that did the work, the metric and its unit.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Key {
    pub(crate) case: Case,
    pub(crate) variant: String,
    pub(crate) metric: String,
    pub(crate) unit: &'static str,
}

impl Key {
    pub(crate) fn new(case: &Case, variant: &str, (metric, unit): (&str, &'static str)) -> Key {
        let (variant, metric) = (variant.to_owned(), metric.to_owned());
        Key { case: case.clone(), variant, metric, unit }
    }
}

/// Counts by name.
pub(crate) type Tally = Vec<(&'static str, u64)>;

/// The count called `name`; without one it is zero.
pub(crate) fn count_of(tally: &Tally, name: &str) -> u64 {
    tally.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
}

/// Where a figure stands.
pub(crate) struct Place {
    pub(crate) table: String,
    pub(crate) row: String,
    /// The column's name, behind the number by which columns are sorted.
    pub(crate) column: (u64, String),
}

impl Place {
    /// In the column of the case's size.
    pub(crate) fn by_size(key: &Key, table: impl Into<String>, row: impl Into<String>) -> Place {
        let name = key.case.size.map_or_else(|| "time".to_owned(), |size| size.to_string());
        let column = (key.case.size.map_or(0, Size::bytes), name);
        Place { table: table.into(), row: row.into(), column }
    }
}

/// A bound that a figure shall keep.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    pub(crate) fn is_kept(self, value: f64) -> bool {
        match self {
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
        }
    }

    /// `goal: at least 3; met`.
    pub(crate) fn judge(self, value: f64) -> String {
        format!("goal: {self}; {}", verdict(self.is_kept(value)))
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtLeast(least) => write!(f, "at least {least}"),
            Bound::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}

/// The word at the end of a judged goal.
pub(crate) fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

/// A row of the table that sums up all benches. Its figures share form, size, note and metric.
pub(crate) struct Row {
    pub(crate) what: &'static str,
    pub(crate) form: &'static str,
    pub(crate) size: u64,
    /// A note that Quire's cases have; empty: none.
    pub(crate) note: &'static str,
    pub(crate) metric: &'static str,
    /// The variants that stand for Quire and for page-at-a-time.
    pub(crate) variants: [&'static str; 2],
    /// The goal: the metric of Quire's variant, its name on the screen, and the bound.
    pub(crate) goal: (&'static str, &'static str, Bound),
}

impl Row {
    fn headline(&self, sheet: &Sheet) -> Option<Headline> {
        let [quire, pages] = self.variants;
        let is = |key: &Key, variant: &str, metric: &str| {
            let same = key.case.form == self.form && key.case.size == Some(Size(self.size));
            same && key.variant == variant && key.metric == metric && !key.case.has("block")
        };
        let own = |variant: &str, metric: &str| {
            let is = |key: &Key| is(key, variant, metric) && self.is_noted(&key.case);
            sheet.find(is)
        };
        let text = |(key, summary): (&Key, Summary)| value(key.unit, summary.median);
        let found = own(quire, self.metric)?;
        let slow = own(pages, self.metric);
        // The ratio that a goal judges, where a bench has it: the median of the rounds' own.
        let by_rounds = own(quire, OVER_PAGES).map(|(_, of)| of.median);
        let ratio = by_rounds.or_else(|| {
            let (_, slow) = slow?;
            Some(match found.0.unit {
                "GB/s" => found.1.median / slow.median,
                _ => slow.median / found.1.median,
            })
        });
        let (metric, name, bound) = self.goal;
        let goal = own(quire, metric).map(|(_, of)| (bound, bound.is_kept(of.median)));
        let shown = |bound| match bound {
            Bound::AtLeast(least) => format!("≥ {least} {name}"),
            Bound::AtMost(most) => format!("≤ {most} {name}"),
        };
        Some(Headline {
            what: self.what.to_owned(),
            quire: text(found),
            pages: slow.map(text),
            linux: sheet.find(|key| is(key, LINUX, self.metric)).map(text),
            ratio: ratio.map(|ratio| format!("{ratio:.2}")),
            goal: goal.map(|(bound, met)| (shown(bound), met)),
        })
    }

    fn is_noted(&self, case: &Case) -> bool {
        if self.note.is_empty() { case.notes.is_empty() } else { case.has(self.note) }
    }
}

/// The figures and sentences of a bench that is running.
pub(crate) struct Sheet {
    pub(crate) run: Run,
    figures: Vec<(Key, Vec<f64>)>,
}

impl Sheet {
    pub(crate) fn new(bench: &str, host: &Host) -> Sheet {
        Sheet { run: Run::new(bench, Machine::read(host)), figures: Vec::new() }
    }

    /// A setting that the figures were taken under.
    pub(crate) fn setting(&mut self, sentence: impl Into<String>) {
        self.run.settings.push(sentence.into());
    }

    /// Something that the figures leave out.
    pub(crate) fn limit(&mut self, sentence: impl Into<String>) {
        self.run.limits.push(sentence.into());
    }

    /// The settings and limits of `text`: paragraphs whose first line is `setting` or `limit`, with
    /// names in braces that stand for values.
    pub(crate) fn words(&mut self, text: &str, values: &[(&str, String)]) {
        for paragraph in text.trim_end().split("\n\n") {
            let (kind, sentence) = paragraph.split_once('\n').unwrap_or(("", paragraph));
            let mut sentence = sentence.replace('\n', " ");
            for (name, value) in values {
                sentence = sentence.replace(&format!("{{{name}}}"), value);
            }
            debug_assert!(!sentence.contains('{'), "a value is missing: {sentence}");
            match kind {
                "limit" => self.limit(sentence),
                _ => self.setting(sentence),
            }
        }
    }

    /// Something that was not measured, and why.
    pub(crate) fn skip(&mut self, sentence: impl Into<String>) {
        let sentence = sentence.into();
        if !self.run.skipped.contains(&sentence) {
            self.run.skipped.push(sentence);
        }
    }

    /// Something that the figures say.
    pub(crate) fn finding(&mut self, sentence: impl Into<String>) {
        self.run.findings.push(sentence.into());
    }

    /// Measures each cell once per round. A sample has a value for each of the cell's keys; it is
    /// empty where the host did not do what was to be measured.
    pub(crate) fn rounds<C>(
        &mut self,
        what: &str,
        loops: u32,
        cells: &[(Vec<Key>, C)],
        mut sample: impl FnMut(&C) -> Result<Vec<f64>>,
    ) -> Result<()> {
        let mut values: Vec<Vec<Vec<f64>>> =
            cells.iter().map(|(keys, _)| vec![Vec::new(); keys.len()]).collect();
        let mut order: Vec<usize> = (0..cells.len()).collect();
        let mut random = fastrand::Rng::with_seed(1);
        let bar = progress(what, cells.len() as u64 * u64::from(loops + 1));
        for round in 0..=loops {
            random.shuffle(&mut order);
            for &at in &order {
                let parts = sample(&cells[at].1)?;
                if round > 0 {
                    values[at].iter_mut().zip(parts).for_each(|(all, value)| all.push(value));
                }
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        for ((keys, _), values) in cells.iter().zip(values) {
            for (key, values) in keys.iter().zip(values) {
                self.put(key.clone(), values);
            }
        }
        Ok(())
    }

    /// Adds a figure; one without values is left out with a sentence.
    pub(crate) fn put(&mut self, key: Key, values: Vec<f64>) {
        if values.is_empty() {
            let (variant, case) = (&key.variant, &key.case);
            self.skip(format!(
                "{variant} {case}: the kernel did not back the memory as asked for; left out."
            ));
        } else {
            self.figures.push((key, values));
        }
    }

    /// Adds what was counted once.
    pub(crate) fn count(&mut self, case: &Case, variant: &str, metric: &str, count: u64) {
        self.put(Key::new(case, variant, (metric, "count")), vec![count as f64]);
    }

    /// Adds all of `tally`.
    pub(crate) fn counts(&mut self, case: &Case, variant: &str, tally: &Tally) {
        tally.iter().for_each(|(name, count)| self.count(case, variant, name, *count));
    }

    /// Adds what `f` makes of each value of `of`, which may not be there.
    pub(crate) fn derive(&mut self, of: &Key, to: Key, f: impl Fn(f64) -> f64) {
        if let Some(values) = self.of(of) {
            let values = values.iter().map(|value| f(*value)).collect();
            self.figures.push((to, values));
        }
    }

    /// Adds the ratio of two figures, round by round, and returns it.
    pub(crate) fn ratio(&mut self, over: &Key, under: &Key, to: Key) -> Option<Summary> {
        let values: Vec<f64> =
            self.of(over)?.iter().zip(self.of(under)?).map(|(a, b)| a / b).collect();
        let summary = Summary::of(&values);
        self.figures.push((to, values));
        summary
    }

    /// The values of a figure, round by round.
    pub(crate) fn of(&self, key: &Key) -> Option<&[f64]> {
        self.figures.iter().find(|(known, _)| known == key).map(|(_, values)| &values[..])
    }

    pub(crate) fn summary(&self, key: &Key) -> Option<Summary> {
        Summary::of(self.of(key)?)
    }

    pub(crate) fn median(&self, key: &Key) -> Option<f64> {
        Some(self.summary(key)?.median)
    }

    /// The first figure whose key `is` so.
    pub(crate) fn find(&self, is: impl Fn(&Key) -> bool) -> Option<(&Key, Summary)> {
        self.figures().find(|(key, _)| is(key))
    }

    /// All figures, in the order in which they were added.
    pub(crate) fn figures(&self) -> impl Iterator<Item = (&Key, Summary)> {
        self.figures.iter().filter_map(|(key, values)| Some((key, Summary::of(values)?)))
    }

    /// The run, with its tables and headlines.
    pub(crate) fn finish(mut self, place: impl Fn(&Key) -> Place, rows: &[Row]) -> Run {
        self.run.headlines = rows.iter().filter_map(|row| row.headline(&self)).collect();
        self.run.tables = tables(self.figures.iter().map(|(key, values)| {
            // Of all that is counted only what happened somewhere is worth a row.
            let idle = key.unit == "count" && values.iter().all(|value| *value == 0.0);
            (place(key), idle)
        }));
        let bench = self.run.bench.clone();
        let record = |(key, values): &(Key, Vec<f64>)| {
            let Summary { median, min, max, n } = Summary::of(values)?;
            let (bench, case) = (bench.clone(), key.case.to_string());
            let Key { variant, metric, unit, .. } = key.clone();
            Some(Record {
                bench,
                case,
                variant,
                metric,
                unit: unit.to_owned(),
                median,
                min,
                max,
                n,
            })
        };
        self.run.records = self.figures.iter().filter_map(record).collect();
        self.run.date = record::now_utc();
        self.run
    }
}

/// Puts figures in their places: tables and rows in the order of their first figure.
fn tables(places: impl Iterator<Item = (Place, bool)>) -> Vec<Table> {
    /// Place, number and whether it is idle.
    type Member = (Place, usize, bool);
    let mut all: Vec<(String, Vec<Member>)> = Vec::new();
    for (at, (place, idle)) in places.enumerate() {
        match all.iter_mut().find(|(title, _)| *title == place.table) {
            Some((_, members)) => members.push((place, at, idle)),
            None => all.push((place.table.clone(), vec![(place, at, idle)])),
        }
    }
    let table = |(title, members): (String, Vec<Member>)| {
        let mut columns: Vec<&(u64, String)> = members.iter().map(|m| &m.0.column).collect();
        columns.sort();
        columns.dedup();
        let mut rows: Vec<(String, Vec<Option<usize>>, bool)> = Vec::new();
        for (place, record, idle) in &members {
            let known = rows.iter().position(|(name, ..)| *name == place.row);
            let row = known.unwrap_or_else(|| {
                rows.push((place.row.clone(), vec![None; columns.len()], true));
                rows.len() - 1
            });
            if let Some(column) = columns.iter().position(|column| **column == place.column) {
                rows[row].1[column] = Some(*record);
            }
            rows[row].2 &= idle;
        }
        rows.retain(|(.., idle)| !idle);
        let columns = columns.into_iter().map(|(_, name)| name.clone()).collect();
        Table { title, columns, rows: rows.into_iter().map(|(name, row, _)| (name, row)).collect() }
    };
    all.into_iter().map(table).collect()
}

/// A progress bar on stderr; a hidden one where that is no terminal.
fn progress(what: &str, steps: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {eta} left");
    let bar = ProgressBar::new(steps).with_message(what.to_owned());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::path::Path;

    /// A sheet of a machine about which nothing is known.
    pub(crate) fn empty() -> Sheet {
        Sheet::new("clear", &Host::new(Path::new("/nonexistent")))
    }

    fn key(form: &str, size: u64, variant: &str, metric: (&str, &'static str)) -> Key {
        Key::new(&Case::new(form, Some(Size(size))), variant, metric)
    }

    #[test]
    fn every_cell_is_measured_once_per_round_and_the_first_round_does_not_count() {
        let (mut sheet, mut calls) = (empty(), [0.0; 3]);
        let cells: Vec<(Vec<Key>, usize)> =
            (0..3).map(|at| (vec![key("cold", at, "a", ("rate", "GB/s"))], at as usize)).collect();
        let sample = |cell: &usize| {
            calls[*cell] += 1.0;
            Ok(if *cell == 1 { Vec::new() } else { vec![calls[*cell]] })
        };
        sheet.rounds("", 4, &cells, sample).unwrap();
        assert_eq!(calls, [5.0; 3]);
        assert_eq!(sheet.of(&cells[0].0[0]), Some(&[2.0, 3.0, 4.0, 5.0][..]));
        assert_eq!(sheet.of(&cells[1].0[0]), None);
        assert!(sheet.run.skipped[0].ends_with("left out."), "{:?}", sheet.run.skipped);
    }

    #[test]
    fn tables_have_sizes_across_and_gaps_where_nothing_was_measured() {
        let (mut sheet, rate) = (empty(), ("rate", "GB/s"));
        sheet.put(key("cold", 2 << 20, "chosen", rate), vec![88.0]);
        sheet.put(key("cold", 4096, "chosen", rate), vec![27.0]);
        sheet.put(key("cold", 4096, "raw", rate), vec![26.0]);
        sheet.count(&Case::new("read", None), "chosen", "idle", 0);
        sheet.count(&Case::new("read", None), "chosen", "busy", 7);
        let place = |key: &Key| Place::by_size(key, key.case.form.clone(), key.metric.clone());
        let by_variant = |key: &Key| match key.unit {
            "count" => place(key),
            _ => Place { row: key.variant.clone(), ..place(key) },
        };
        let [cold, read] = &sheet.finish(by_variant, &[]).tables[..] else { panic!("two") };
        assert_eq!(
            (cold.title.as_str(), &cold.columns[..]),
            ("cold", &["4K", "2M"].map(str::to_owned)[..])
        );
        assert_eq!(cold.rows[0], ("chosen".to_owned(), vec![Some(1), Some(0)]));
        assert_eq!(cold.rows[1], ("raw".to_owned(), vec![Some(2), None]));
        assert_eq!(read.rows, [("busy".to_owned(), vec![Some(4)])]);
    }

    #[test]
    fn a_headline_has_both_variants_the_host_and_the_goal() {
        let (mut sheet, ns) = (empty(), ("cost", "ns"));
        sheet.put(key("demand", 4096, "chosen", ns), vec![100.0]);
        sheet.put(key("demand", 4096, PAGES, ns), vec![150.0]);
        let linux = Case::new("demand", Some(Size(4096))).with("thp");
        sheet.put(Key::new(&linux, LINUX, ns), vec![900.0]);
        let mut row = Row {
            what: "it",
            form: "demand",
            size: 4096,
            note: "",
            metric: "cost",
            variants: ["chosen", PAGES],
            goal: ("cost", "ns", Bound::AtMost(99.0)),
        };
        let found = row.headline(&sheet).unwrap();
        assert_eq!((found.quire.as_str(), found.ratio.as_deref()), ("100 ns", Some("1.50")));
        assert_eq!(found.linux.as_deref(), Some("900 ns"));
        assert_eq!(found.goal, Some(("≤ 99 ns".to_owned(), false)));
        sheet.put(key("demand", 4096, "chosen", (OVER_PAGES, "ratio")), vec![1.4]);
        assert_eq!(row.headline(&sheet).unwrap().ratio.as_deref(), Some("1.40"));
        row.size = 8192;
        assert!(row.headline(&sheet).is_none());
    }
}
