//! `bench clear --sweep`: does a small unit lose to the checks between units or to the extent
//! that the CPU no longer sees (row A8)?
//!
//! A kernel that cannot be preempted clears a large folio in units and asks between them whether
//! another task should run. When that is slower than one extent, either the check costs, or the
//! CPU does: told only a unit at a time, it may go on allocating cache lines that it would skip
//! for the whole. So both vary, each without the other: the unit (whole extent, 32M, 8M) and the
//! check after each unit (none, a test of a flag, `sched_yield`).

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use quire_hw::Reuse;
use quire_hw::extent::Backend;

use super::clear::{CHOSEN, ClearArgs, page_backend, raw_name};
use super::driver::Bench;
use super::lanes::Lanes;
use super::options::Filter;
use super::sheet::{Key, Place, Sheet};
use crate::host::Host;
use crate::record::Case;
use crate::size::Size;

const SIZES: [u64; 3] = [64 << 20, 256 << 20, 1 << 30];
const UNITS: [Option<Size>; 3] = [None, Some(Size(32 << 20)), Some(Size(8 << 20))];
const LOOPS: u32 = 15;
/// A smaller share of the rate is noise.
const NOTHING: f64 = 0.05;

/// The check after each unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Check {
    Nothing,
    Flag,
    Yield,
}

impl Check {
    const ALL: [Check; 3] = [Check::Nothing, Check::Flag, Check::Yield];

    fn name(self) -> &'static str {
        match self {
            Check::Nothing => "no check",
            Check::Flag => "flag check",
            Check::Yield => "sched_yield",
        }
    }

    #[inline]
    fn run(self) {
        /// Stands for the scheduler's wish; never set, as it almost never is.
        static WANTED: AtomicBool = AtomicBool::new(false);
        match self {
            Check::Nothing => {}
            Check::Flag if black_box(&WANTED).load(Ordering::Relaxed) => std::thread::yield_now(),
            Check::Flag => {}
            Check::Yield => std::thread::yield_now(),
        }
    }
}

/// One thing to measure.
#[derive(Clone, Debug)]
struct Cell {
    variant: String,
    backend: Backend,
    extent: Size,
    unit: Option<Size>,
    check: Check,
}

impl Cell {
    fn clear(&self, extent: &mut [u8]) {
        let unit = self.unit.map_or(extent.len(), Size::len);
        for unit in extent.chunks_mut(unit) {
            self.backend.clear(unit);
            self.check.run();
        }
    }

    fn unit_name(&self) -> String {
        self.unit.map_or("one extent".to_owned(), |unit| format!("units of {unit}"))
    }
}

pub(crate) struct Sweep {
    threads: u32,
    loops: u32,
    cells: Vec<Cell>,
    lanes: Lanes,
}

impl Sweep {
    fn key(&self, cell: &Cell) -> Key {
        let case = Case::new("cold", Some(cell.extent)).with(&cell.unit_name());
        let case = case.with(cell.check.name()).on_threads(self.threads);
        Key::new(&case, &cell.variant, ("rate", "GB/s"))
    }
}

impl Bench for Sweep {
    type Args = ClearArgs;

    fn titles(_: &ClearArgs) -> [&'static str; 3] {
        [
            "sweep",
            "Units and checks",
            "A large folio may be cleared as one extent or in units with a \
             check for waiting tasks after each. Which of the two costs, the check or the smaller \
             extent?",
        ]
    }

    fn new(args: &ClearArgs, host: &Host, sheet: &mut Sheet) -> Result<Self> {
        let shared = &args.shared;
        let mut known = vec![CHOSEN.to_owned()];
        known.extend(Backend::available().map(raw_name));
        let filter = Filter::new(&shared.variants, &known)?;
        let extents = shared.sizes(&SIZES);
        let largest = extents.last().copied().unwrap_or(Size(SIZES[0]));
        let mut lanes = Lanes::new(host, &sheet.run.machine, largest, shared.threads)?;
        let chosen = lanes.calibrated();
        let mut cells = Vec::new();
        for &extent in &extents {
            let pick = chosen.backend(extent.bytes(), Reuse::Later);
            sheet.setting(format!("Chosen for {extent}: {pick}."));
            let all_are_named = !shared.variants.is_empty();
            let raw = Backend::available().filter(|b| all_are_named || *b == page_backend());
            let all = raw.map(|b| (raw_name(b), b)).chain([(CHOSEN.to_owned(), pick)]);
            for (variant, backend) in all.filter(|(variant, _)| filter.has(variant)) {
                cells.extend(crossed(variant, backend, extent));
            }
        }
        let loops = shared.common.loops.unwrap_or(LOOPS);
        Ok(Sweep { threads: shared.threads, loops, cells, lanes })
    }

    fn measure(&mut self, _: &Host, sheet: &mut Sheet) -> Result<()> {
        let cells: Vec<(Vec<Key>, Cell)> =
            self.cells.iter().map(|cell| (vec![self.key(cell)], cell.clone())).collect();
        sheet.rounds("sweeping", self.loops, &cells, |cell| {
            let work = |extent: &mut [u8]| {
                cell.clear(extent);
                Ok(())
            };
            Ok(vec![self.lanes.rate(cell.extent, work)?])
        })?;
        sheet.setting(self.lanes.sentence());
        Ok(())
    }

    fn goals(&self, sheet: &mut Sheet) {
        let rate = |cell: &Cell| Some((cell.clone(), sheet.median(&self.key(cell))?));
        let rates: Vec<(Cell, f64)> = self.cells.iter().filter_map(rate).collect();
        answers(&rates).into_iter().for_each(|answer| sheet.finding(answer));
    }

    fn words(&self, sheet: &mut Sheet) {
        sheet.limit(
            "The flag is never set and no other task waits: the cost of the check itself, not of \
             the work that it may lead to.",
        );
    }

    fn place(&self, key: &Key) -> Place {
        let row = format!("{}, {}", key.variant, key.case.notes.join(", "));
        Place::by_size(key, "sweep cold: GB/s, more is better (medians)", row)
    }
}

/// All units that cut `extent`, and all checks.
fn crossed(variant: String, backend: Backend, extent: Size) -> Vec<Cell> {
    let cuts = UNITS.into_iter().filter(|unit| unit.is_none_or(|unit| unit < extent));
    let with_checks = cuts.flat_map(|unit| Check::ALL.map(|check| (unit, check)));
    with_checks
        .map(|(unit, check)| Cell { variant: variant.clone(), backend, extent, unit, check })
        .collect()
}

/// One sentence for each variant: the cost of the smallest unit for the largest extent, the cost of
/// the checks, and which of the two it is.
fn answers(rates: &[(Cell, f64)]) -> Vec<String> {
    let mut variants: Vec<&str> = rates.iter().map(|(cell, _)| cell.variant.as_str()).collect();
    variants.sort_unstable();
    variants.dedup();
    variants.iter().filter_map(|variant| answer(rates, variant)).collect()
}

fn answer(rates: &[(Cell, f64)], variant: &str) -> Option<String> {
    let own = || rates.iter().filter(|(cell, _)| cell.variant == variant);
    let extent = own().map(|(cell, _)| cell.extent).max()?;
    let unit = own().filter(|(c, _)| c.extent == extent).filter_map(|(c, _)| c.unit).min()?;
    let rate = |unit, check| {
        let found = own().find(|(c, _)| (c.extent, c.unit, c.check) == (extent, unit, check));
        found.map(|(_, rate)| *rate)
    };
    let whole = rate(None, Check::Nothing)?;
    let cut = rate(Some(unit), Check::Nothing)?;
    let lost_to_unit = 1.0 - cut / whole;
    let lost_to_checks = [Check::Flag, Check::Yield]
        .into_iter()
        .filter_map(|check| Some(1.0 - rate(Some(unit), check)? / cut))
        .fold(0.0, f64::max);
    let verdict = match (lost_to_unit > NOTHING, lost_to_checks > NOTHING) {
        (true, false) => "it is the lost extent, not the checks",
        (false, true) => "it is the checks, not the lost extent",
        (true, true) => "both cost",
        (false, false) => "neither costs more than noise",
    };
    Some(format!(
        "{variant}, {extent}: units of {unit} without any check cost {:.1} % of the rate of one \
         extent ({whole:.1} to {cut:.1} GB/s), and checks after each unit at most another {:.1} %: \
         {verdict}.",
        lost_to_unit.max(0.0) * 100.0,
        lost_to_checks * 100.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(rate: impl Fn(Option<Size>, Check) -> f64) -> Vec<(Cell, f64)> {
        let cells = crossed("raw-x".to_owned(), Backend::PORTABLE, Size(1 << 30));
        cells.into_iter().map(|c| (c.clone(), rate(c.unit, c.check))).collect()
    }

    #[test]
    fn a8_the_answer_follows_the_figures() {
        let units = |unit: Option<Size>, _| if unit.is_some() { 45.0 } else { 90.0 };
        let checks = |_, check| if check == Check::Nothing { 90.0 } else { 45.0 };
        let said = |rates: &[(Cell, f64)]| answers(rates).concat();
        assert!(said(&rates(units)).contains("cost 50.0 %"), "{}", said(&rates(units)));
        assert!(said(&rates(units)).ends_with("it is the lost extent, not the checks."));
        assert!(said(&rates(checks)).ends_with("it is the checks, not the lost extent."));
        assert!(said(&rates(|u, c| units(u, c) * checks(u, c))).ends_with("both cost."));
        assert!(said(&rates(|_, _| 1.0)).ends_with("neither costs more than noise."));
    }

    #[test]
    fn a8_units_that_do_not_cut_the_extent_are_left_out() {
        let cells = crossed(String::new(), Backend::PORTABLE, Size(16 << 20));
        assert!(cells.iter().all(|c| c.unit != Some(Size(32 << 20))));
        assert_eq!(cells.len(), 2 * Check::ALL.len());
    }

    #[test]
    fn a8_every_unit_of_the_extent_is_cleared() {
        for mut cell in crossed(String::new(), Backend::PORTABLE, Size(1 << 16)) {
            cell.unit = Some(Size(12 << 10));
            let mut extent = vec![1; 1 << 16];
            cell.clear(&mut extent);
            assert!(extent.iter().all(|b| *b == 0));
        }
    }
}
