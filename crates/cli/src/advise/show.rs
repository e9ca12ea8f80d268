//! The advice as people read it.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};

use super::advice::Advice;
use super::clones::{Copies, Stood};
use super::cost::{Constants, Time};
use super::lines::lines;
use super::measure::Measured;
use super::search::Tried;
use super::verify::{error, errors, moved, verdict};
use crate::stats::Summary;

/// All of it.
pub(super) fn page(advice: &Advice<'_>) -> String {
    let mut page = format!("Linux, predicted\n{}\n", predicted(advice));
    if !advice.own.is_empty() {
        let _ = writeln!(page, "\nQuire, on {}\n{}", advice.isa.name(), own(advice));
    }
    if !advice.proven.is_empty() {
        let _ = writeln!(page, "\nLinux, measured on this host\n{}", proven(advice));
        let _ = writeln!(page, "{}", verdict(&errors(&advice.search, &advice.proven)));
        let moved = moved(&advice.search, &advice.proven).filter(|_| advice.is_bounded());
        moved.iter().for_each(|sentence| {
            let _ = writeln!(page, "{sentence}");
        });
    }
    if !advice.copies.is_empty() {
        let _ = writeln!(page, "\nEach copy of the largest process\n{}", copies(advice));
    }
    if let Some(costs) = &advice.costs {
        let _ = writeln!(page, "\nTime, by constants of this host\n{}", times(advice, costs));
        let walk = spread(&costs.walk, 1.0);
        let _ = writeln!(page, "A walk of the tables takes {walk} ns here.");
    }
    page.push('\n');
    advice.reasons.iter().for_each(|sentence| {
        let _ = writeln!(page, "{sentence}");
    });
    if let Some(best) = advice.best.as_ref().filter(|_| !advice.is_now_best) {
        for way in lines(&best.setting, advice.tape.page) {
            let _ = writeln!(page, "\n{}:", way.way);
            way.lines.iter().for_each(|line| {
                let _ = writeln!(page, "  {line}");
            });
        }
    }
    if !advice.limits.is_empty() {
        page.push('\n');
    }
    advice.limits.iter().for_each(|limit| {
        let _ = writeln!(page, "{limit}");
    });
    page
}

fn mark(advice: &Advice<'_>, it: &Tried) -> String {
    let best = advice.best.as_ref().is_some_and(|best| best.setting == it.setting);
    let now = it.setting == advice.search.now;
    let marks = match (best, now) {
        (true, true) => " (now, best)",
        (true, false) => " (best)",
        (false, true) => " (now)",
        (false, false) => "",
    };
    format!("{}{marks}", it.setting)
}

fn predicted(advice: &Advice<'_>) -> Table {
    let page = advice.tape.page;
    let mut table = plain();
    let mut header = vec![
        "setting",
        "faults",
        "peak KiB",
        "waste KiB",
        "cleared KiB",
        "tables KiB",
        "TLB N1",
        "TLB Zen",
    ];
    header.extend(SCARCE.iter().filter(|_| advice.is_scarce()));
    header.extend(MOVED.iter().filter(|_| advice.is_bounded()));
    table.set_header(header);
    let kib = |pages: u64| (pages * page / 1024).to_string();
    for it in advice.search.kept() {
        let mut row = vec![
            mark(advice, it),
            it.faults.to_string(),
            (it.peak / 1024).to_string(),
            kib(it.out.waste),
            kib(it.out.counts.cleared),
            kib(it.out.tables),
            it.out.reach.entries[0].to_string(),
            it.out.reach.entries[1].to_string(),
        ];
        row.extend(advice.is_scarce().then(|| it.out.counts.fallbacks().to_string()));
        if advice.is_bounded() {
            row.extend([kib(it.out.counts.out), kib(it.out.counts.back)]);
        }
        table.add_row(row);
    }
    to_the_right(table)
}

/// The column of attempts to take a large folio for which there was no memory.
const SCARCE: [&str; 1] = ["fallbacks"];
/// The columns of pages that leave for the swap device, and that come back.
const MOVED: [&str; 2] = ["out KiB", "back KiB"];

/// The same settings through the library.
fn own(advice: &Advice<'_>) -> Table {
    let mut table = plain();
    let mut header = vec![
        "setting",
        "faults",
        "peak KiB",
        "cleared KiB",
        "copied KiB",
        "folded blocks",
        "collapsed",
    ];
    header.extend(SCARCE.iter().filter(|_| advice.is_scarce()));
    header.extend(MOVED.iter().filter(|_| advice.is_bounded()));
    table.set_header(header);
    let kib = |pages: u64| (pages * advice.tape.page / 1024).to_string();
    for (setting, own) in &advice.own {
        let Some(it) = advice.search.of(*setting) else { continue };
        let mut row = vec![
            mark(advice, it),
            own.faults.to_string(),
            kib(own.peak),
            kib(own.cleared),
            kib(own.copied),
            own.folded.to_string(),
            own.collapsed.to_string(),
        ];
        row.extend(advice.is_scarce().then(|| own.scarce.to_string()));
        if advice.is_bounded() {
            row.extend([kib(own.out), kib(own.back)]);
        }
        table.add_row(row);
    }
    to_the_right(table)
}

fn proven(advice: &Advice<'_>) -> Table {
    let mut table = plain();
    let mut header = vec![
        "setting",
        "faults",
        "predicted",
        "error",
        "peak KiB",
        "predicted",
        "error",
        "time",
        "in the kernel",
    ];
    if advice.is_bounded() {
        header.extend([MOVED[0], "predicted", MOVED[1], "predicted"]);
    }
    table.set_header(header);
    for (setting, measured) in &advice.proven {
        let Some(it) = advice.search.of(*setting) else { continue };
        let Measured { faults, peak, wall, kernel, out, back } = measured;
        let ms = |all: &Summary| format!("{} ms", spread(all, 1e6));
        let mut row = vec![
            mark(advice, it),
            spread(faults, 1.0),
            it.faults.to_string(),
            format!("{:+.1} %", error(it.faults as f64, faults.median)),
            spread(peak, 1024.0),
            (it.peak / 1024).to_string(),
            format!("{:+.1} %", error(it.peak as f64, peak.median)),
            ms(wall),
            ms(kernel),
        ];
        if advice.is_bounded() {
            let (page, counts) = (advice.tape.page, &it.out.counts);
            let both = [(out, counts.out), (back, counts.back)];
            for (measured, predicted) in both {
                row.extend([
                    spread(measured, 1024.0 / page as f64),
                    (predicted * page / 1024).to_string(),
                ]);
            }
        }
        table.add_row(row);
    }
    to_the_right(table)
}

fn times(advice: &Advice<'_>, costs: &Constants) -> Table {
    let mut table = plain();
    table.set_header(["setting", "faults ms", "walks of a second use µs"]);
    let with_bounds = |time: Time, unit: f64| {
        let [usual, least, most] = [time.usual, time.least, time.most].map(|ns| ns / unit);
        format!("{usual:.1} ({least:.1}–{most:.1})")
    };
    for it in advice.search.kept() {
        let faults = with_bounds(costs.faults(&it.out), 1e6);
        table.add_row([mark(advice, it), faults, with_bounds(costs.walks(&it.out), 1e3)]);
    }
    to_the_right(table)
}

fn copies(advice: &Advice<'_>) -> Table {
    let mut table = plain();
    table.set_header([
        "setting",
        "own KiB",
        "measured",
        "tables KiB",
        "measured",
        "faults",
        "fork µs",
        "measured",
    ]);
    let kib = |bytes: u64| (bytes / 1024).to_string();
    for Copies { setting, predicted, measured } in &advice.copies {
        let Some(it) = advice.search.of(*setting) else { continue };
        let found = |figure: fn(&Stood) -> &Summary, unit: f64| {
            measured.as_ref().map_or_else(|| "–".to_owned(), |it| spread(figure(it), unit))
        };
        table.add_row([
            mark(advice, it),
            kib(predicted.private),
            found(|it| &it.private, 1024.0),
            kib(predicted.tables),
            found(|it| &it.tables, 1024.0),
            predicted.faults.to_string(),
            predicted.fork.map_or_else(|| "–".to_owned(), |ns| format!("{:.0}", ns / 1e3)),
            found(|it| &it.fork, 1e3),
        ]);
    }
    to_the_right(table)
}

/// The median, and the least and the most where they differ, in `unit`s.
fn spread(all: &Summary, unit: f64) -> String {
    let [median, min, max] = [all.median, all.min, all.max].map(|value| value / unit);
    if max - min < 0.005 * median {
        return format!("{median:.0}");
    }
    format!("{median:.0} ({min:.0}–{max:.0})")
}

pub(super) fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table
}

pub(super) fn to_the_right(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
