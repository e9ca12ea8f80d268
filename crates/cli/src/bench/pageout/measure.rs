//! The rounds, and the records they become.

use anyhow::Result;
use quire_arch::Arch;

use super::args::{PageoutArgs, bytes};
use super::count::{Did, Tally};
use super::cycle::{Cycle, Device, Way};
use super::scene::{Scene, Work, ram, with_scene};
use super::{goals, linux, packed, say};
use crate::bench::entries::Backing;
use crate::bench::{empty_run, rounds};
use crate::host::Host;
use crate::isa::Isa;
use crate::record::{Case, Record, Run};
use crate::size::Size;
use crate::stats::Summary;

/// The bench's name in records.
pub(crate) const NAME: &str = "pageout";
/// The part that unmaps.
pub(super) const OUT: &str = "out";
/// The part that writes.
pub(super) const WRITE: &str = "write";
/// The part that brings back.
pub(super) const BACK: &str = "back";
/// The page-table formats.
pub(super) const ISAS: [Isa; 2] = [Isa::Arm4k, Isa::X86_64];
/// How the memory is backed.
pub(super) const BACKINGS: [Backing; 4] = [
    Backing { size: Size(4 << 10), block: false },
    Backing { size: Size(64 << 10), block: false },
    Backing { size: Size(2 << 20), block: false },
    Backing { size: Size(2 << 20), block: true },
];
const LOOPS: u32 = 9;

/// What was measured of memory in one format and backing.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) isa: Isa,
    pub(super) backing: Backing,
    /// For each of [`cells`], round by round.
    pub(super) cycles: Vec<Vec<Cycle>>,
    /// For each way.
    pub(super) did: Vec<Did>,
}

/// What is measured once in each round.
pub(super) fn cells() -> Vec<(Way, Device)> {
    Device::ALL.into_iter().flat_map(|device| Way::ALL.map(|way| (way, device))).collect()
}

impl Found {
    /// The circles of `way` over `device`, round by round.
    pub(super) fn of(&self, way: Way, device: Device) -> &[Cycle] {
        let at = cells().iter().position(|cell| *cell == (way, device));
        at.and_then(|at| self.cycles.get(at)).map_or(&[], Vec::as_slice)
    }

    /// How many times as long as by runs paging out takes page at a time, round by round.
    pub(super) fn times(&self, device: Device) -> Option<Summary> {
        let both = self.of(Way::Pages, device).iter().zip(self.of(Way::Runs, device));
        Summary::of(&both.map(|(pages, runs)| pages.out / runs.out).collect::<Vec<_>>())
    }

    fn case(&self, part: &str) -> Case {
        case(self.isa, self.backing, part)
    }
}

/// What a part of the circle is called, of memory in one format and backing.
pub(super) fn case(isa: Isa, backing: Backing, part: &str) -> Case {
    Case::new(part, Some(backing.size)).with(&isa.name()).with(backing.note())
}

/// Measures.
///
/// # Errors
/// [`Refused`](crate::Refused) for what cannot be measured; else whatever failed on the way.
pub(crate) fn run(args: &PageoutArgs, host: &Host) -> Result<Run> {
    let mut run = empty_run(NAME, host);
    let bytes = bytes(args.size, host)?;
    let loops = args.loops.unwrap_or(LOOPS);
    let mut ram = ram(bytes)?;
    let mut all = Vec::new();
    for isa in ISAS {
        for backing in BACKINGS {
            let found =
                with_scene(&mut ram, (isa, backing, bytes), Measure { isa, backing, loops })?;
            push(&mut run, &found);
            all.push(found);
        }
    }
    goals::judge(&mut run, &all);
    packed::measure(&mut run, &mut ram, bytes, loops)?;
    say::say(&mut run, Size(bytes));
    if args.kernel {
        linux::tell(&mut run, host, bytes, loops)?;
    }
    Ok(run)
}

struct Measure {
    isa: Isa,
    backing: Backing,
    loops: u32,
}

impl Work for Measure {
    type Out = Found;

    fn run<A: Arch>(self, scene: &Scene<'_, '_, '_, A>) -> Result<Found> {
        let Measure { isa, backing, loops } = self;
        let did = Way::ALL.into_iter().map(|way| scene.verified(way)).collect::<Result<_>>()?;
        let cycles =
            rounds("paging out", &cells(), loops, |(way, device)| scene.cycle(*way, *device))?;
        scene.verify_backing()?;
        Ok(Found { isa, backing, cycles, did })
    }
}

fn push(run: &mut Run, found: &Found) {
    for device in Device::ALL {
        for way in Way::ALL {
            let cycles = found.of(way, device);
            let mut put = |part, of: fn(&Cycle) -> f64| {
                let case = found.case(part).with(device.note());
                let values: Vec<f64> = cycles.iter().map(of).collect();
                let metric = ("per-page", "ns/page");
                let record = |summary| Record::new(NAME, &case, way.name(), metric, summary);
                run.records.extend(Summary::of(&values).map(record));
            };
            put(OUT, |cycle| cycle.out);
            put(WRITE, |cycle| cycle.write);
            put(BACK, |cycle| cycle.back);
        }
        let case = found.case(OUT).with(device.note());
        let metric = ("over-pages", "ratio");
        let record = |times| Record::new(NAME, &case, Way::Runs.name(), metric, times);
        run.records.extend(found.times(device).map(record));
    }
    for (way, did) in Way::ALL.into_iter().zip(&found.did) {
        push_counts(run, (&found.case(OUT), way), &did.out);
        push_counts(run, (&found.case(BACK), way), &did.back);
    }
}

fn push_counts(run: &mut Run, (case, way): (&Case, Way), tally: &Tally) {
    for (name, count) in tally {
        let count = *count as f64;
        let summary = Summary { median: count, min: count, max: count, n: 1 };
        run.records.push(Record::new(NAME, case, way.name(), (name, "count"), summary));
    }
}
