//! The few rows that sum up all benches on one screen.

use comfy_table::{CellAlignment, Table, presets};

use crate::record::{Record, Run};
use crate::table::value;

/// A bound that a figure shall keep.
#[derive(Clone, Copy)]
enum Goal {
    AtLeast(&'static str, f64),
    AtMost(&'static str, f64),
}
use Goal::{AtLeast, AtMost};

/// A row: which figures of which bench stand in it.
struct Row {
    bench: &'static str,
    what: &'static str,
    /// The case and the metric that the figures have in common.
    case: &'static str,
    metric: &'static str,
    /// The variants that are Quire and page-at-a-time.
    quire: &'static str,
    pages: &'static str,
    /// How the case of the host's kernel begins; its settings follow.
    linux: &'static str,
    /// The metric of Quire's variant that the goal is about, and the bound.
    goal: Option<Goal>,
}

const fn row(
    [bench, what, case, metric]: [&'static str; 4],
    [quire, pages, linux]: [&'static str; 3],
    goal: Goal,
) -> Row {
    Row { bench, what, case, metric, quire, pages, linux, goal: Some(goal) }
}

const PAGES: &str = "page-at-a-time";
const RUNS: [&str; 2] = ["by-runs", PAGES];

const fn entries(words: [&'static str; 4], linux: &'static str, goal: Goal) -> Row {
    row(words, [RUNS[0], RUNS[1], linux], goal)
}

/// All rows, in their order.
const ROWS: [Row; 14] = [
    row(
        ["clear", "clear 2M, GB/s", "cold 2M", "rate"],
        ["chosen", PAGES, ""],
        AtLeast("of-best", 0.95),
    ),
    row(
        ["fault", "fault in 4K", "demand 4K", "cost"],
        ["chosen", PAGES, "demand 4K ("],
        AtMost("rest", 150.0),
    ),
    row(
        ["fault", "fault in 64K", "demand 64K", "cost"],
        ["chosen", PAGES, "demand 64K ("],
        AtMost("rest", 250.0),
    ),
    row(
        ["fault", "fault in 2M", "demand 2M", "cost"],
        ["chosen", PAGES, "demand 2M ("],
        AtLeast("of-raw", 0.95),
    ),
    entries(
        ["fork", "fork, 4K folios, per entry", "first fork 4K (x86_64)", "per-entry"],
        "first fork 4K (this host",
        AtMost("per-entry", 20.0),
    ),
    entries(
        ["fork", "fork, 64K folios, per entry", "first fork 64K (x86_64)", "per-entry"],
        "first fork 64K (this host",
        AtMost("per-entry", 4.0),
    ),
    entries(
        ["fork", "fork, 64K folios, arm64 tables", "first fork 64K (arm64_4k)", "per-entry"],
        "",
        AtLeast("over-pages", 2.0),
    ),
    entries(
        ["fork", "the child's exit, 64K folios", "child exit 64K (x86_64)", "per-entry"],
        "child exit 64K (this host",
        AtLeast("over-pages", 3.0),
    ),
    entries(
        ["zap", "unmap 4K folios, per entry", "unmap 4K (x86_64)", "per-entry"],
        "unmap 4K (this host",
        AtMost("per-entry", 30.0),
    ),
    entries(
        ["zap", "unmap 64K folios, per entry", "unmap 64K (x86_64)", "per-entry"],
        "unmap 64K (this host",
        AtLeast("over-pages", 3.0),
    ),
    entries(
        ["protect", "protect 64K folios, per entry", "to read-only 64K (x86_64)", "per-entry"],
        "to read-only 64K (this host",
        AtMost("per-entry", 4.0),
    ),
    row(
        ["read", "read a cached file, GB/s", "in memory 64K (folios as read ahead)", "rate"],
        ["cache", "bare-copy", ""],
        AtLeast("of-bare", 0.9),
    ),
    entries(
        ["pageout", "page out 64K folios", "out 64K (x86_64, idle device)", "per-page"],
        "",
        AtLeast("over-pages", 1.5),
    ),
    entries(
        ["pageout", "the same, arm64 tables", "out 64K (arm64_4k, idle device)", "per-page"],
        "",
        AtLeast("over-pages", 2.5),
    ),
];

/// The table of all rows for which there are figures.
pub(crate) fn table(runs: &[Run]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["", "Quire", PAGES, "this host's Linux", "ratio", "goal", "met"]);
    for row in &ROWS {
        let of_bench = runs.iter().find(|run| run.bench == row.bench);
        if let Some(cells) = of_bench.and_then(|run| row.cells(&run.records)) {
            table.add_row(cells);
        }
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

impl Row {
    fn cells(&self, records: &[Record]) -> Option<[String; 7]> {
        let find = |is_case: &dyn Fn(&str) -> bool, variant: &str, metric: &str| {
            let is = |r: &&Record| r.variant == variant && r.metric == metric && is_case(&r.case);
            records.iter().find(is)
        };
        let own = |variant, metric| find(&|case| case == self.case, variant, metric);
        let quire = own(self.quire, self.metric)?;
        let pages = own(self.pages, self.metric);
        let linux = match self.linux {
            "" => None,
            prefix => find(&|case| case.starts_with(prefix), "linux", self.metric),
        };
        let ratio = pages.map(|pages| match quire.unit.as_str() {
            "GB/s" => quire.median / pages.median,
            _ => pages.median / quire.median,
        });
        let judged = self.goal.and_then(|goal| {
            let (AtLeast(metric, bound) | AtMost(metric, bound)) = goal;
            let value = own(self.quire, metric)?.median;
            let (sign, met) = match goal {
                AtLeast(..) => ("≥", value >= bound),
                AtMost(..) => ("≤", value <= bound),
            };
            let unit = if metric.contains('-') && metric != "per-entry" { "" } else { " ns" };
            Some((format!("{} {sign} {bound}{unit}", words(metric)), met))
        });
        let dash = || "–".to_owned();
        let (goal, met) = judged.map_or((dash(), dash()), |(goal, met)| {
            (goal, if met { "yes" } else { "NO" }.to_owned())
        });
        Some([
            self.what.to_owned(),
            value(quire),
            pages.map_or_else(dash, value),
            linux.map_or_else(dash, value),
            ratio.map_or_else(dash, |ratio| format!("{ratio:.2}")),
            goal,
            met,
        ])
    }
}

/// What a goal's metric is called on the screen.
fn words(metric: &str) -> &str {
    match metric {
        "of-best" => "of the best way",
        "rest" => "without the clear",
        "of-raw" => "of the bare clear",
        "of-bare" => "of the bare copy",
        "over-pages" => "times",
        _ => "",
    }
}
