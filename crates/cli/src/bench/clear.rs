//! `bench clear`: GB/s of clearing against the size of the extent (rows A1, A6, A8).
//!
//! Two forms. *Cold* walks through memory much larger than the caches and clears extent after
//! extent: what a populated region costs. *Then-read* reads each extent right after it is cleared:
//! what a faulting task feels that uses what it gets; its rate is the cleared bytes over the time
//! of both. The variants are each backend as it is (`raw-…`, whose best is the limit of this CPU),
//! Quire's calibrated choice (`chosen`), and the page-at-a-time clearing that Linux up to 6.18
//! does (`page-at-a-time`): the same memory, but told to the CPU 4 KiB at a time. Up to 4 MiB that
//! kernel also clears the page that faulted last and the farthest first; for a fault on the first
//! page that is the last page first, measured as a row of its own, because some CPUs mind.

use anyhow::{Result, bail};
use quire_hw::extent::{Backend, GRAIN};
use quire_hw::{Calibration, Chosen, Reuse, calibrate, read_through};

use super::lanes::Lanes;
use super::pace;
use super::{Filter, empty_run, measured, rounds, sizes, thread_ns};
use crate::Refused;
use crate::args::Shared;
use crate::host::Host;
use crate::record::{Case, Record, Run};
use crate::size::Size;
use crate::stats::Summary;

/// The bench's name in records.
pub(crate) const NAME: &str = "clear";
/// Quire's own choice.
pub(crate) const CHOSEN: &str = "chosen";
/// The clearing of one base page after the other.
pub(crate) const PAGES: &str = "page-at-a-time";
/// The circumstance of a clearing that goes from the last page to the first.
pub(crate) const LAST_FIRST: &str = "last page first";
/// The two forms, and what each tells [`Chosen`].
pub(crate) const FORMS: [(&str, Reuse); 2] = [("cold", Reuse::Later), ("then-read", Reuse::Soon)];

const SIZES: [u64; 8] =
    [4 << 10, 16 << 10, 64 << 10, 512 << 10, 2 << 20, 32 << 20, 128 << 20, 1 << 30];
const LOOPS: u32 = 5;
/// Of the best backend's rate so much shall the choice reach.
const OF_BEST: f64 = 0.95;
/// Up to this size, in bytes, Linux clears the pages of a folio from the far ends to the one that
/// faulted; larger folios from the first to the last.
pub(crate) const LINUX_TURNS: u64 = 4 << 20;

/// One way to clear an extent.
#[derive(Clone, Copy, Debug)]
enum Way {
    Chosen,
    Pages(Backend),
    /// As `Pages`, the last page first.
    PagesBack(Backend),
    Raw(Backend),
}

impl Way {
    fn name(self) -> String {
        match self {
            Way::Chosen => CHOSEN.to_owned(),
            Way::Pages(_) | Way::PagesBack(_) => PAGES.to_owned(),
            Way::Raw(backend) => raw_name(backend),
        }
    }

    fn clear(self, chosen: &Chosen, reuse: Reuse, extent: &mut [u8]) {
        match self {
            Way::Chosen => chosen.backend(extent.len() as u64, reuse).clear(extent),
            Way::Pages(backend) => extent.chunks_mut(GRAIN).for_each(|page| backend.clear(page)),
            Way::PagesBack(backend) => {
                extent.rchunks_mut(GRAIN).for_each(|page| backend.clear(page))
            }
            Way::Raw(backend) => backend.clear(extent),
        }
    }

    /// Whether extents of `size` are measured this way in `form`.
    fn is_for(self, reuse: Reuse, size: Size) -> bool {
        let turned = reuse == Reuse::Later && (1 << 13..=LINUX_TURNS).contains(&size.bytes());
        !matches!(self, Way::PagesBack(_)) || turned
    }
}

/// The variant that is `backend` as it is.
pub(crate) fn raw_name(backend: Backend) -> String {
    format!("raw-{backend}")
}

/// The backend with which Linux clears one page: the first of these that the CPU has.
pub(crate) fn page_backend() -> Backend {
    let usual = ["rep-stosb", "rep-stosq", "zva", "zicboz"];
    usual.iter().find_map(|name| Backend::by_name(name)).unwrap_or(Backend::PORTABLE)
}

/// Calibrates all backends of this CPU in the lanes' memory, by the CPU time of this thread, so
/// that what else the host runs does not count against whoever was being measured.
pub(crate) fn calibrated(lanes: &mut Lanes) -> Chosen {
    let clock = || thread_ns() as u64;
    let all: Vec<Backend> = Backend::available().collect();
    calibrate(lanes.scratch(), clock, &all, Calibration::THOROUGH, |_| ())
}

/// One thing to measure.
struct Cell {
    form: &'static str,
    reuse: Reuse,
    extent: Size,
    way: Way,
}

/// Measures.
///
/// # Errors
/// [`Refused`] for unknown variants and more memory than there is.
pub(crate) fn run(shared: &Shared, host: &Host) -> Result<Run> {
    let ways: Vec<Way> = [Way::Chosen, Way::Pages(page_backend()), Way::PagesBack(page_backend())]
        .into_iter()
        .chain(Backend::available().map(Way::Raw))
        .collect();
    let filter = Filter::new(&shared.variants, &ways.iter().map(|w| w.name()).collect::<Vec<_>>())?;
    let mut run = empty_run(NAME, host);
    let extents = extents_that_fit(shared, host, &mut run)?;
    let largest = *extents.last().unwrap_or(&Size(GRAIN as u64));
    let mut lanes = Lanes::new(host, &run.machine, largest, shared.threads)?;
    let chosen = calibrated(&mut lanes);
    let cells = cells(&extents, &ways, &filter);
    let values = rounds("clearing", &cells, shared.loops.unwrap_or(LOOPS), |cell| {
        lanes.rate(cell.extent, |extent| clear_one(cell, &chosen, extent)).map(Some)
    })?;
    settings(&mut run, &mut lanes, &chosen, &extents);
    let values: Vec<Vec<f64>> = values.iter().map(|v| measured(v)).collect();
    for (cell, values) in cells.iter().zip(&values) {
        push(&mut run, cell, shared.threads, ("rate", "GB/s"), values);
    }
    compare(&mut run, &cells, &values, (&chosen, shared.threads));
    if filter.has(CHOSEN) {
        pace::measure(&mut run, &mut lanes, &chosen);
    }
    Ok(run)
}

/// The extents to measure. Of the usual ones those that memory suffices for; named ones must fit.
fn extents_that_fit(shared: &Shared, host: &Host, run: &mut Run) -> Result<Vec<Size>, Refused> {
    let mut extents = sizes(shared, &SIZES);
    let fits = |size: &Size| Lanes::check(host, &run.machine, *size, shared.threads);
    if shared.sizes.is_empty() && extents.len() > 1 {
        let all = extents.len();
        extents.retain(|size| *size == Size(SIZES[0]) || fits(size).is_ok());
        if extents.len() < all {
            run.limits.push("Memory does not suffice for the larger extents.".to_owned());
        }
    }
    extents.last().map_or(Ok(()), fits)?;
    Ok(extents)
}

fn cells(extents: &[Size], ways: &[Way], filter: &Filter) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (form, reuse) in FORMS {
        for &extent in extents {
            let ways =
                ways.iter().filter(|way| way.is_for(reuse, extent) && filter.has(&way.name()));
            cells.extend(ways.map(|&way| Cell { form, reuse, extent, way }));
        }
    }
    cells
}

fn clear_one(cell: &Cell, chosen: &Chosen, extent: &mut [u8]) -> Result<()> {
    cell.way.clear(chosen, cell.reuse, extent);
    if cell.reuse == Reuse::Soon && read_through(extent) != 0 {
        bail!("{} left bytes of an extent of {} uncleared", cell.way.name(), cell.extent);
    }
    Ok(())
}

fn push(run: &mut Run, cell: &Cell, threads: u32, metric: (&str, &str), values: &[f64]) {
    let case = Case::new(cell.form, Some(cell.extent));
    let turned = matches!(cell.way, Way::PagesBack(_));
    let case = case.with(if turned { LAST_FIRST } else { "" }).on_threads(threads);
    if let Some(summary) = Summary::of(values) {
        run.records.push(Record::new(NAME, &case, &cell.way.name(), metric, summary));
    }
}

/// Adds what the choice reaches of the best backend, and how often the page-at-a-time clearing
/// fits into it: medians of the ratios within each round.
fn compare(run: &mut Run, cells: &[Cell], values: &[Vec<f64>], (chosen, threads): (&Chosen, u32)) {
    let mut worst: [Option<(f64, &Cell)>; 2] = [None, None];
    for (at, cell) in cells.iter().enumerate().filter(|(_, c)| matches!(c.way, Way::Chosen)) {
        let same = |other: &Cell| (other.form, other.extent) == (cell.form, cell.extent);
        let peers = |is: &dyn Fn(Way) -> bool| -> Vec<usize> {
            (0..cells.len()).filter(|i| same(&cells[*i]) && is(cells[*i].way)).collect()
        };
        let backend = chosen.backend(cell.extent.bytes(), cell.reuse);
        let raw = peers(&|way| matches!(way, Way::Raw(_)));
        let own = peers(&|way| matches!(way, Way::Raw(raw) if raw == backend));
        let of_best = of_best(values, &raw, own.first().copied().unwrap_or(at));
        let pages = peers(&|way| matches!(way, Way::Pages(_)));
        let over = |pages: &usize| {
            values[at].iter().zip(&values[*pages]).map(|(a, b)| a / b).collect::<Vec<f64>>()
        };
        let over_pages = pages.first().map(over).unwrap_or_default();
        for (slot, (metric, ratios)) in
            [("of-best", of_best), ("over-pages", over_pages)].into_iter().enumerate()
        {
            push(run, cell, threads, (metric, "ratio"), &ratios);
            let Some(ratio) = Summary::of(&ratios).map(|s| s.median) else { continue };
            if worst[slot].is_none_or(|(least, _)| ratio < least) {
                worst[slot] = Some((ratio, cell));
            }
        }
    }
    say_worst(run, worst);
}

/// What `own` reaches of the best of `raw`, round by round. The best is the one with the best
/// median of all *other* rounds: of several that are equal, one is always ahead by luck, and that
/// luck must not count against the others. Where the best is `own` itself, the ratio is one.
fn of_best(values: &[Vec<f64>], raw: &[usize], own: usize) -> Vec<f64> {
    let rounds = values[own].len();
    let others = |at: usize, round: usize| {
        let kept = values[at].iter().enumerate().filter(|(r, _)| rounds == 1 || *r != round);
        Summary::of(&kept.map(|(_, value)| *value).collect::<Vec<_>>()).map_or(0.0, |s| s.median)
    };
    let ratio = |round: usize| {
        let best = raw.iter().max_by(|a, b| others(**a, round).total_cmp(&others(**b, round)))?;
        Some(if *best == own { 1.0 } else { values[own].get(round)? / values[*best].get(round)? })
    };
    (0..rounds).filter_map(ratio).collect()
}

fn say_worst(run: &mut Run, worst: [Option<(f64, &Cell)>; 2]) {
    let [best, pages] = worst;
    if let Some((ratio, cell)) = best {
        run.findings.push(format!(
            "The choice reaches at least {ratio:.2} of the best backend (at {} {}; goal: at least \
             {OF_BEST}; {}).",
            cell.form,
            cell.extent,
            if ratio >= OF_BEST { "met" } else { "MISSED" }
        ));
    }
    if let Some((ratio, cell)) = pages {
        run.findings.push(format!(
            "It clears at least {ratio:.2} times as fast as page after page (at {} {}).",
            cell.form, cell.extent
        ));
    }
}

fn settings(run: &mut Run, lanes: &mut Lanes, chosen: &Chosen, extents: &[Size]) {
    run.settings.push(lanes.sentence());
    for (form, reuse) in FORMS {
        let mut picks: Vec<String> = Vec::new();
        let mut last = None;
        for extent in extents {
            let backend = chosen.backend(extent.bytes(), reuse);
            if last != Some(backend) {
                picks.push(format!("{backend} from {extent}"));
            }
            last = Some(backend);
        }
        run.settings.push(format!("Chosen for {form}: {}.", picks.join(", ")));
    }
    if let Some(bytes) = chosen.allocation_stops() {
        run.settings.push(format!(
            "The string instruction stops allocating cache lines at extents of {}.",
            Size(bytes)
        ));
    }
    run.settings.push(format!(
        "{PAGES} is {} of 4K after 4K over the same extent; raw limit is the best raw backend.",
        page_backend()
    ));
    run.limits.push(
        "Memory is mapped and touched before: faults, tables and allocation are not in these \
         figures; `bench fault` has them."
            .to_owned(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a6_luck_of_one_round_is_no_loss_of_the_choice() {
        // Two equal backends; each is lucky in one round.
        let values = [vec![10.0, 10.0, 20.0, 10.0], vec![20.0, 10.0, 10.0, 10.0]];
        let median = |own| Summary::of(&of_best(&values, &[0, 1], own)).unwrap().median;
        assert_eq!((median(0), median(1)), (1.0, 1.0));
    }

    #[test]
    fn a6_a_worse_choice_shows_and_a_slow_round_of_both_does_not() {
        let values = [vec![9.0, 4.5, 9.0], vec![10.0, 5.0, 10.0], vec![1.0, 1.0, 1.0]];
        assert_eq!(of_best(&values, &[0, 1, 2], 0), [0.9, 0.9, 0.9]);
        assert_eq!(of_best(&values, &[0, 1, 2], 1), [1.0, 1.0, 1.0]);
        assert_eq!(of_best(&values[..1], &[], 0), [0.0; 0]);
        assert_eq!(of_best(&[vec![2.0], vec![4.0]], &[0, 1], 0), [0.5], "one round is a round");
    }
}
