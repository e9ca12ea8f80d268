//! `bench clear`: GB/s of clearing against the size of the extent (rows A1, A6, A8).
//!
//! *Cold* walks through memory much larger than the caches and clears extent after extent: the cost
//! of a populated region. *Then-read* reads each extent right after it is cleared: the cost that a
//! faulting task sees that uses its memory; its rate is the cleared bytes over the time of both.
//!
//! The variants are each backend alone (`raw-…`, whose best is the limit of this CPU), Quire's
//! calibrated choice (`chosen`), and the page-at-a-time clearing of Linux up to 6.18: the same
//! memory, in calls of 4 KiB. Up to 4 MiB that kernel clears the page that faulted last and the
//! farthest first; for a fault on the first page that is the last page first, measured as a row of
//! its own, because some CPUs are slower at it.
//!
//! A kernel that cannot be preempted cuts a long clear into units, between which another task may
//! run. The unit follows from a latency budget and the measured bandwidth; the time of each unit
//! is measured as well (row A6).

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use quire::inject::units;
use quire_hw::extent::{Backend, GRAIN};
use quire_hw::{Chosen, Reuse, read_through};

use super::driver::Bench;
use super::lanes::Lanes;
use super::options::{Filter, Shared};
use super::sheet::{Bound, Key, OVER_PAGES, PAGES, Place, Row, Sheet};
use crate::host::Host;
use crate::plot::{Line, Plot, Weight};
use crate::record::Case;
use crate::size::Size;
use crate::stats::Summary;

/// Quire's own choice.
pub(crate) const CHOSEN: &str = "chosen";
/// The note of a clearing that goes from the last page to the first.
const LAST_FIRST: &str = "last page first";
const FORMS: [(&str, Reuse); 2] = [("cold", Reuse::Later), ("then-read", Reuse::Soon)];
const RATE: (&str, &str) = ("rate", "GB/s");
const SIZES: [u64; 8] =
    [4 << 10, 16 << 10, 64 << 10, 512 << 10, 2 << 20, 32 << 20, 128 << 20, 1 << 30];
const LOOPS: u32 = 5;
/// The share of the best backend's rate that the choice shall reach.
const OF_BEST: Bound = Bound::AtLeast(0.95);
/// Up to this size, in bytes, Linux clears the pages of a folio from the far ends to the one that
/// faulted; larger folios from the first to the last.
pub(crate) const LINUX_TURNS: u64 = 4 << 20;
/// The longest that another task may have to wait, in nanoseconds.
const BUDGET_NS: u64 = 1_000_000;
/// The unit where calibration gives none, and the least number of units that are timed.
const USUAL_UNIT: u64 = 32 << 20;
const UNITS_LEAST: usize = 200;

/// Options of `bench clear`.
#[derive(Args, Debug)]
pub(crate) struct ClearArgs {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// Cross {one extent, units of 32M and 8M} with {no check, flag check, sched_yield} and say
    /// which of the two costs the bandwidth
    #[arg(long)]
    pub(crate) sweep: bool,
}

/// One way to clear an extent.
#[derive(Clone, Copy, PartialEq, Debug)]
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

    /// Whether extents of `size` are measured this way.
    fn is_for(self, reuse: Reuse, size: Size) -> bool {
        let turned = reuse == Reuse::Later && (1 << 13..=LINUX_TURNS).contains(&size.bytes());
        !matches!(self, Way::PagesBack(_)) || turned
    }
}

/// The variant that is `backend` alone.
pub(crate) fn raw_name(backend: Backend) -> String {
    format!("raw-{backend}")
}

/// The backend with which Linux clears one page: the first of these that the CPU has.
pub(crate) fn page_backend() -> Backend {
    let usual = ["rep-stosb", "rep-stosq", "zva", "zicboz"];
    usual.iter().find_map(|name| Backend::by_name(name)).unwrap_or(Backend::PORTABLE)
}

/// One thing to measure.
#[derive(Clone, Copy)]
struct Cell {
    form: &'static str,
    reuse: Reuse,
    extent: Size,
    way: Way,
}

pub(crate) struct Clear {
    threads: u32,
    loops: u32,
    extents: Vec<Size>,
    cells: Vec<Cell>,
    lanes: Lanes,
    chosen: Chosen,
}

impl Clear {
    fn key(&self, cell: &Cell, metric: (&str, &'static str)) -> Key {
        let turned = matches!(cell.way, Way::PagesBack(_));
        let case = Case::new(cell.form, Some(cell.extent));
        let case = case.with(if turned { LAST_FIRST } else { "" }).on_threads(self.threads);
        Key::new(&case, &cell.way.name(), metric)
    }

    /// The rate of the same extents cleared in `way`, round by round.
    fn rates<'s>(&self, sheet: &'s Sheet, cell: &Cell, way: Way) -> Option<&'s [f64]> {
        sheet.of(&self.key(&Cell { way, ..*cell }, RATE))
    }

    /// Clears with resched points between the units of the budget, and says how far apart they are.
    fn pace(&mut self, sheet: &mut Sheet) {
        let scratch = self.lanes.scratch();
        let unit = self.chosen.unit_bytes(BUDGET_NS).unwrap_or(USUAL_UNIT);
        let unit = unit.min(scratch.len() as u64 / 4);
        let times = unit_times(scratch, unit / GRAIN as u64, &self.chosen);
        let (Some(all), Some(late)) = (Summary::of(&times), percentile(&times, 99)) else { return };
        let case = Case::new("unit", Some(Size(unit)));
        sheet.put(Key::new(&case, CHOSEN, ("between-resched", "us")), times);
        sheet.put(Key::new(&case, CHOSEN, ("between-resched-p99", "us")), vec![late]);
        sheet.finding(format!(
            "With units of {}, made for a budget of {} us, other tasks wait {:.0} us at the \
             median, {late:.0} us at the 99th percentile, {:.0} us at the longest (wall clock of a \
             busy host included).",
            Size(unit),
            BUDGET_NS / 1000,
            all.median,
            all.max
        ));
    }
}

impl Bench for Clear {
    type Args = ClearArgs;

    fn titles(_: &ClearArgs) -> [&'static str; 3] {
        [
            "clear",
            "Clearing",
            "The speed at which memory becomes zero, against the extent that \
             the CPU is told at once. <em>Chosen</em> is the backend that Quire's calibration \
             picked for each size, <em>page-at-a-time</em> the clearing that it replaces.",
        ]
    }

    fn headlines(&self) -> Vec<Row> {
        vec![Row {
            what: "clear 2M, GB/s",
            form: "cold",
            size: 2 << 20,
            note: "",
            metric: "rate",
            variants: [CHOSEN, PAGES],
            goal: ("of-best", "of the best backend", OF_BEST),
        }]
    }

    fn new(args: &ClearArgs, host: &Host, sheet: &mut Sheet) -> Result<Self> {
        let shared = &args.shared;
        let page = page_backend();
        let ways = [Way::Chosen, Way::Pages(page), Way::PagesBack(page)].into_iter();
        let ways: Vec<Way> = ways.chain(Backend::available().map(Way::Raw)).collect();
        let known: Vec<String> = ways.iter().map(|way| way.name()).collect();
        let filter = Filter::new(&shared.variants, &known)?;
        let machine = sheet.run.machine.clone();
        let fits = |size: &Size| Lanes::check(host, &machine, *size, shared.threads);
        let mut extents = shared.sizes(&SIZES);
        if shared.sizes.is_empty() {
            // Of the usual extents those that memory suffices for; named ones must fit.
            extents.retain(|size| *size == Size(SIZES[0]) || fits(size).is_ok());
            if extents.len() < SIZES.len() {
                sheet.skip("Memory does not suffice for the larger extents.");
            }
        }
        extents.last().map_or(Ok(()), fits)?;
        let largest = extents.last().copied().unwrap_or(Size(GRAIN as u64));
        let mut lanes = Lanes::new(host, &machine, largest, shared.threads)?;
        let chosen = lanes.calibrated();
        let mut cells = Vec::new();
        for (form, reuse) in FORMS {
            for &extent in &extents {
                let ways = ways.iter().filter(|way| way.is_for(reuse, extent));
                let ways = ways.filter(|way| filter.has(&way.name()));
                cells.extend(ways.map(|&way| Cell { form, reuse, extent, way }));
            }
        }
        let loops = shared.common.loops.unwrap_or(LOOPS);
        Ok(Clear { threads: shared.threads, loops, extents, cells, lanes, chosen })
    }

    fn measure(&mut self, _: &Host, sheet: &mut Sheet) -> Result<()> {
        let cells: Vec<(Vec<Key>, Cell)> =
            self.cells.iter().map(|cell| (vec![self.key(cell, RATE)], *cell)).collect();
        sheet.rounds("clearing", self.loops, &cells, |cell| {
            let clear = |extent: &mut [u8]| clear_one(cell, &self.chosen, extent);
            Ok(vec![self.lanes.rate(cell.extent, clear)?])
        })?;
        sheet.setting(self.lanes.sentence());
        if self.cells.iter().any(|cell| cell.way == Way::Chosen) {
            self.pace(sheet);
        }
        Ok(())
    }

    /// The share of the best backend's rate that the choice reaches, and its ratio to
    /// page-at-a-time; the worst of each is told.
    fn goals(&self, sheet: &mut Sheet) {
        let mut worst: [Option<(f64, &Cell)>; 2] = [None, None];
        for cell in self.cells.iter().filter(|cell| cell.way == Way::Chosen) {
            let own = self.rates(sheet, cell, Way::Chosen).unwrap_or_default();
            let raw: Vec<(Backend, &[f64])> = Backend::available()
                .filter_map(|raw| Some((raw, self.rates(sheet, cell, Way::Raw(raw))?)))
                .collect();
            let backend = self.chosen.backend(cell.extent.bytes(), cell.reuse);
            let at = raw.iter().position(|(raw, _)| *raw == backend);
            let raw: Vec<&[f64]> = raw.into_iter().map(|(_, rates)| rates).collect();
            let best = of_best(&raw, at.map_or(own, |at| raw[at]));
            let pages = self.rates(sheet, cell, Way::Pages(page_backend())).unwrap_or_default();
            let pages: Vec<f64> = own.iter().zip(pages).map(|(own, pages)| own / pages).collect();
            for (slot, (metric, ratios)) in
                [("of-best", best), (OVER_PAGES, pages)].into_iter().enumerate()
            {
                let Some(ratio) = Summary::of(&ratios).map(|s| s.median) else { continue };
                sheet.put(self.key(cell, (metric, "ratio")), ratios);
                if worst[slot].is_none_or(|(least, _)| ratio < least) {
                    worst[slot] = Some((ratio, cell));
                }
            }
        }
        let [best, pages] = worst;
        if let Some((ratio, Cell { form, extent, .. })) = best {
            let goal = OF_BEST.judge(ratio);
            sheet.finding(format!(
                "The choice reaches at least {ratio:.2} of the best backend (at {form} {extent}; \
                 {goal})."
            ));
        }
        if let Some((ratio, Cell { form, extent, .. })) = pages {
            sheet.finding(format!(
                "It clears at least {ratio:.2} times as fast as {PAGES} (at {form} {extent})."
            ));
        }
    }

    fn words(&self, sheet: &mut Sheet) {
        for (form, reuse) in FORMS {
            let pick = |extent: &Size| self.chosen.backend(extent.bytes(), reuse);
            let mut picks: Vec<(Backend, Size)> =
                self.extents.iter().map(|extent| (pick(extent), *extent)).collect();
            picks.dedup_by_key(|(backend, _)| *backend);
            let picks: Vec<String> =
                picks.iter().map(|(b, from)| format!("{b} from {from}")).collect();
            sheet.setting(format!("Chosen for {form}: {}.", picks.join(", ")));
        }
        if let Some(bytes) = self.chosen.allocation_stops() {
            sheet.setting(format!(
                "The string instruction stops allocating cache lines at extents of {}.",
                Size(bytes)
            ));
        }
        sheet.setting(format!(
            "{PAGES} is {} in calls of 4K over the same extent; the raw limit is the best raw \
             backend.",
            page_backend()
        ));
        sheet.limit(
            "Memory is mapped and touched before: faults, tables and allocation are not in these \
             figures; `bench fault` has them.",
        );
    }

    fn place(&self, key: &Key) -> Place {
        let what = match key.metric.as_str() {
            "rate" => "GB/s, more is better",
            "of-best" => "ratio of the rate to the best backend's",
            OVER_PAGES => "ratio of the rate to page-at-a-time",
            other => other,
        };
        let table = format!("clear {}: {what} (medians)", key.case.form);
        let row: Vec<&str> = [key.variant.as_str()]
            .into_iter()
            .chain(key.case.notes.iter().map(String::as_str))
            .collect();
        Place::by_size(key, table, row.join(", "))
    }

    fn plots(&self, sheet: &Sheet) -> Vec<Plot> {
        let captions = [
            "Cold: memory that is in no cache, extent after extent",
            "Then-read: each extent is read right after; cleared bytes over the time of both",
        ];
        let plot = |((form, _), caption)| Plot::lines(caption, "GB/s", lines(sheet, form));
        FORMS.into_iter().zip(captions).map(plot).collect()
    }
}

fn clear_one(cell: &Cell, chosen: &Chosen, extent: &mut [u8]) -> Result<()> {
    cell.way.clear(chosen, cell.reuse, extent);
    if cell.reuse == Reuse::Soon && read_through(extent) != 0 {
        bail!("{} left bytes of an extent of {} uncleared", cell.way.name(), cell.extent);
    }
    Ok(())
}

/// The ratio of `own` to the best of `raw`, round by round. The best is the one with the best
/// median of all *other* rounds: of several equal backends one is always ahead by luck, and that
/// luck must not count against the others. Where the best is `own` itself, the ratio is one.
fn of_best(raw: &[&[f64]], own: &[f64]) -> Vec<f64> {
    let others = |rates: &[f64], round: usize| {
        let kept = rates.iter().enumerate().filter(|(r, _)| own.len() == 1 || *r != round);
        Summary::of(&kept.map(|(_, value)| *value).collect::<Vec<_>>()).map_or(0.0, |s| s.median)
    };
    let ratio = |round: usize| {
        let best = raw.iter().max_by(|a, b| others(a, round).total_cmp(&others(b, round)))?;
        Some(if *best == own { 1.0 } else { own.get(round)? / best.get(round)? })
    };
    (0..own.len()).filter_map(ratio).collect()
}

/// The variants as lines, and the best raw one at each size as their limit.
fn lines(sheet: &Sheet, form: &str) -> Vec<Line> {
    let rates: Vec<(&Key, f64)> = sheet
        .figures()
        .filter(|(key, _)| key.metric == "rate" && key.case.form == form)
        .map(|(key, summary)| (key, summary.median))
        .collect();
    let points = |is: &dyn Fn(&Key) -> bool| {
        let of = rates.iter().filter(|(key, _)| is(key));
        let mut points: Vec<(Size, f64)> =
            of.filter_map(|(key, rate)| Some((key.case.size?, *rate))).collect();
        points.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.total_cmp(&a.1)));
        points
    };
    let mut variants: Vec<&str> = Vec::new();
    for (key, _) in &rates {
        if !variants.contains(&key.variant.as_str()) {
            variants.push(&key.variant);
        }
    }
    let line = |variant: &&str| {
        let weight = match *variant {
            CHOSEN => Weight::Marked,
            PAGES => Weight::Baseline,
            _ => Weight::Thin,
        };
        let own = |key: &Key| key.variant == **variant && !key.case.has(LAST_FIRST);
        Line { name: (*variant).to_owned(), weight, points: points(&own) }
    };
    let mut lines: Vec<Line> = variants.iter().map(line).collect();
    let mut limit = points(&|key| key.variant.starts_with("raw-"));
    limit.dedup_by_key(|point| point.0);
    let turned = points(&|key| key.case.has(LAST_FIRST));
    for (name, weight, points) in [
        (format!("{PAGES}, {LAST_FIRST}"), Weight::Second, turned),
        ("raw limit".to_owned(), Weight::Limit, limit),
    ] {
        if !points.is_empty() {
            lines.push(Line { name, weight, points });
        }
    }
    lines
}

/// The wall-clock times of clearing unit after unit, in microseconds.
fn unit_times(scratch: &mut [u8], unit_pages: u64, chosen: &Chosen) -> Vec<f64> {
    let mut times = Vec::new();
    let pages = (scratch.len() / GRAIN) as u64;
    while times.len() < UNITS_LEAST && pages > 0 {
        for unit in units(0..pages, unit_pages) {
            let bytes = unit.start as usize * GRAIN..unit.end as usize * GRAIN;
            let backend = chosen.backend(bytes.len() as u64, Reuse::Later);
            let start = Instant::now();
            backend.clear(&mut scratch[bytes]);
            times.push(start.elapsed().as_nanos() as f64 / 1000.0);
        }
    }
    times
}

/// The value that `percent` of the values do not exceed; `None` if there are none.
fn percentile(values: &[f64], percent: usize) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sheet::tests::empty;

    #[test]
    fn a6_luck_of_one_round_is_no_loss_of_the_choice() {
        // Two equal backends; each is lucky in one round.
        let values = [&[10.0, 10.0, 20.0, 10.0][..], &[20.0, 10.0, 10.0, 10.0]];
        let median = |own| Summary::of(&of_best(&values, own)).unwrap().median;
        assert_eq!((median(values[0]), median(values[1])), (1.0, 1.0));
    }

    #[test]
    fn a6_a_worse_choice_shows_and_a_slow_round_of_both_does_not() {
        let values = [&[9.0, 4.5, 9.0][..], &[10.0, 5.0, 10.0], &[1.0, 1.0, 1.0]];
        assert_eq!(of_best(&values, values[0]), [0.9, 0.9, 0.9]);
        assert_eq!(of_best(&values, values[1]), [1.0, 1.0, 1.0]);
        assert_eq!(of_best(&[], values[0]), [0.0; 0]);
        assert_eq!(of_best(&[&[2.0], &[4.0]], &[2.0]), [0.5], "one round is a round");
    }

    #[test]
    fn the_raw_limit_is_the_best_raw_backend_at_each_size() {
        let mut sheet = empty();
        for (size, variant, rate) in [
            (4096, "raw-a", 25.0),
            (8192, "raw-a", 44.0),
            (4096, "raw-b", 27.0),
            (8192, "raw-b", 40.0),
            (4096, "chosen", 99.0),
        ] {
            let case = Case::new("cold", Some(Size(size)));
            sheet.put(Key::new(&case, variant, RATE), vec![rate]);
        }
        let lines = lines(&sheet, "cold");
        let limit = lines.iter().find(|l| l.weight == Weight::Limit).unwrap();
        assert_eq!(limit.points, [(Size(4096), 27.0), (Size(8192), 44.0)]);
        let marked = lines.iter().find(|l| l.weight == Weight::Marked).unwrap();
        assert_eq!((marked.name.as_str(), marked.points.len()), ("chosen", 1));
    }

    #[test]
    fn a6_a_percentile_is_a_value_that_this_share_does_not_exceed() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!([99, 50].map(|of| percentile(&values, of)), [Some(198.0), Some(100.0)]);
        assert_eq!([percentile(&[7.0], 99), percentile(&[], 99)], [Some(7.0), None]);
    }

    #[test]
    fn a6_every_unit_is_timed_and_all_is_cleared() {
        let mut scratch = vec![1; 10 * GRAIN];
        let times = unit_times(&mut scratch, 4, &Chosen::default_for_cpu());
        assert!(times.len() >= UNITS_LEAST && times.len().is_multiple_of(3), "4 + 4 + 2 pages");
        assert!(scratch.iter().all(|byte| *byte == 0));
    }
}
