//! Compressed memory as the device: what whole folios gain over pages, by kind of data.
//!
//! *By runs* hands the device a folio as it is, and it compresses 64 KiB as one; *page at a time*
//! hands it one page after the other, each compressed by itself, as without large folios. All else
//! is the circle of the other devices.

use anyhow::{Context, Result, ensure};
use quire_arch::Arch;
use quire_machine::Ram;
use quire_units::{FrameSpan, Order, PhysAddr};
use quire_zpool::{Config, Lender, PageId, Pool, Scratch, Table};

use super::cycle::{Cycle, Way};
use super::data::Data;
use super::measure::{BACK, BACKINGS, NAME, OUT, WRITE, case};
use super::scene::{Scene, Work, with_scene};
use crate::bench::entries::Backing;
use crate::bench::fault::verdict;
use crate::bench::rounds;
use crate::isa::Isa;
use crate::record::{Record, Run};
use crate::size::Size;
use crate::stats::Summary;

/// How the notes of such cases begin; the kind of data follows.
pub(super) const NOTE: &str = "compressed ";
/// The format: the device is the same in any.
const ISA: Isa = Isa::X86_64;
/// The most memory that goes out, and the most rounds: LZ4 takes thousands of ns for a page.
const MOST: u64 = 64 << 20;
const LOOPS: u32 = 5;
/// Of the unit of pages' rate whole folios shall have so much, at an equal or better ratio.
const GOAL: f64 = 1.2;
const PAGE: usize = 4096;
const UNIT: usize = 64 << 10;

/// What was measured of one kind of data: for each way, round by round.
struct Kind {
    data: Data,
    cycles: Vec<Vec<Cycle>>,
    /// How many times smaller it became, for each way.
    smaller: Vec<f64>,
}

impl Kind {
    fn of(&self, way: Way, part: impl Fn(&Cycle) -> f64) -> Vec<f64> {
        let at = Way::ALL.iter().position(|known| *known == way);
        let cycles = at.and_then(|at| self.cycles.get(at));
        cycles.map_or(Vec::new(), |cycles| cycles.iter().map(part).collect())
    }

    /// How many times as long as by runs a part takes page at a time, round by round.
    fn times(&self, part: impl Fn(&Cycle) -> f64 + Copy) -> Option<Summary> {
        let both = self.of(Way::Pages, part).into_iter().zip(self.of(Way::Runs, part));
        Summary::of(&both.map(|(pages, runs)| pages / runs).collect::<Vec<_>>())
    }
}

/// Measures all kinds of data in all sizes of folios, and says what was found.
///
/// # Errors
/// What came back was not what went out; memory does not suffice.
pub(super) fn measure(run: &mut Run, ram: &mut Ram, bytes: u64, loops: u32) -> Result<()> {
    let (bytes, loops) = (bytes.min(MOST), loops.min(LOOPS));
    for backing in BACKINGS.into_iter().filter(|backing| !backing.block) {
        let kinds = with_scene(ram, (ISA, backing, bytes), Compress { loops })?;
        for kind in &kinds {
            push(run, backing, kind);
            run.findings.extend(sentence(backing, kind));
        }
    }
    run.settings.push(format!(
        "Compressed memory: {} of the same memory, {loops} rounds; by runs the device is handed \
         each folio at once and compresses {} as one, page at a time it is handed and compresses \
         pages of 4K. Its own copy of what it compresses is in both.",
        Size(bytes),
        Size(UNIT as u64)
    ));
    Ok(())
}

struct Compress {
    loops: u32,
}

impl Work for Compress {
    type Out = Vec<Kind>;

    fn run<A: Arch>(self, scene: &Scene<'_, '_, '_, A>) -> Result<Vec<Kind>> {
        let mut tables = Way::ALL.map(|_| Table::new());
        let mut scratch = Way::ALL.map(|_| vec![0; 2 * UNIT + UNIT / 8]);
        let slots = scene.span.count();
        let devices = tables.iter_mut().zip(&mut scratch).zip(Way::ALL);
        let mut devices: Vec<Device<'_>> = devices
            .map(|((table, bytes), way)| Device::new(way, slots, Scratch { table, bytes }))
            .collect::<Result<_>>()?;
        Data::ALL.into_iter().map(|data| self.kind(scene, &mut devices, data)).collect()
    }
}

impl Compress {
    fn kind<A: Arch>(
        &self,
        scene: &Scene<'_, '_, '_, A>,
        devices: &mut [Device<'_>],
        data: Data,
    ) -> Result<Kind> {
        let sample = data.sample();
        scene.pour(&sample, data.is_stamped())?;
        let mut smaller = Vec::new();
        for device in &mut *devices {
            device.cycle(scene, true)?;
            scene.compare(&sample, data.is_stamped())?;
            smaller.push(device.smaller);
        }
        let ways: Vec<usize> = (0..devices.len()).collect();
        let cycles = rounds("compressing", &ways, self.loops, |&at| {
            let device = devices.get_mut(at).context("there is a device for each way")?;
            device.cycle(scene, false)
        })?;
        scene.compare(&sample, data.is_stamped())?;
        Ok(Kind { data, cycles, smaller })
    }
}

/// A device of compressed memory, used in one way.
struct Device<'s> {
    way: Way,
    pool: Pool<'s, Pages>,
    /// A copy of what goes to the pool or comes from it.
    copy: Vec<u8>,
    /// How many times smaller the memory was when it was last there.
    smaller: f64,
}

impl<'s> Device<'s> {
    fn new(way: Way, slots: u64, scratch: Scratch<'s>) -> Result<Self> {
        let unit = match way {
            Way::Runs => UNIT,
            Way::Pages => PAGE,
        };
        let wrong = |error| anyhow::anyhow!("no such pool: {error:?}");
        let config = Config::new(PAGE.trailing_zeros(), unit, 0, slots).map_err(wrong)?;
        let pool = Pool::new(config, Pages::default(), scratch).map_err(wrong)?;
        Ok(Self { way, pool, copy: Vec::new(), smaller: 1.0 })
    }

    /// All of the memory goes out to it and comes back; free memory may be wiped meanwhile.
    fn cycle<A: Arch>(&mut self, scene: &Scene<'_, '_, '_, A>, wipes: bool) -> Result<Cycle> {
        let out = scene.timed(|| scene.out(self.way))?;
        let write = scene.timed(|| {
            scene.write_to(&mut |write| {
                let count = write.frames().count;
                scene.read_into(write.frames(), &mut self.copy)?;
                self.each(write.pages().start, count, |pool, slot, order, copy| {
                    pool.store(slot, order, copy).map(drop)
                })
            })
        })?;
        let lent = self.pool.counters().lent_pages().max(1);
        self.smaller = scene.span.count() as f64 / lent as f64;
        if wipes {
            scene.wipe_free();
        }
        let back = scene.timed(|| {
            scene.back_from(&mut |read| {
                let count = read.frames().count();
                self.copy.resize(count as usize * PAGE, 0);
                self.each(read.pages().start, count, |pool, slot, order, copy| {
                    pool.load(slot, order.pages(), copy)
                })?;
                scene.write_from(FrameSpan::new(read.frames().start(), count), &self.copy)
            })
        })?;
        self.pool.clear();
        Ok(Cycle { out, write, back })
    }

    /// Calls `act` with what is handed over as one of the `count` slots from `first` on, which are
    /// a folio, and with its bytes in the copy.
    fn each(
        &mut self,
        first: u64,
        count: u64,
        mut act: impl FnMut(
            &mut Pool<'s, Pages>,
            u64,
            Order,
            &mut [u8],
        ) -> Result<(), quire_zpool::Error>,
    ) -> Result<()> {
        let order = match self.way {
            Way::Runs => Order::fitting(count).unwrap_or_default(),
            Way::Pages => Order::ZERO,
        };
        let slots = (first..).step_by(order.pages() as usize);
        for (slot, copy) in slots.zip(self.copy.chunks_exact_mut(PAGE << order.get())) {
            let done = act(&mut self.pool, slot, order, copy);
            done.map_err(|error| anyhow::anyhow!("slot {slot}: {error:?}"))?;
        }
        Ok(())
    }
}

/// Pages of the host that a pool is lent: as many as it asks for, since its bound is its slots.
#[derive(Default)]
struct Pages {
    all: Vec<Box<[u8; PAGE]>>,
    free: Vec<u32>,
}

impl Lender for Pages {
    fn take(&mut self) -> Option<PageId> {
        if self.free.is_empty() {
            self.all.push(Box::new([0; PAGE]));
            self.free.push(u32::try_from(self.all.len()).ok()?);
        }
        PageId::new(self.free.pop()?)
    }

    fn give(&mut self, page: PageId) {
        self.free.push(page.number());
    }

    fn bytes(&self, page: PageId) -> &[u8] {
        &self.all[page.number() as usize - 1][..]
    }

    fn bytes_mut(&mut self, page: PageId) -> &mut [u8] {
        &mut self.all[page.number() as usize - 1][..]
    }
}

impl<A: Arch> Scene<'_, '_, '_, A> {
    /// Fills the memory with `sample` again and again; with its number in each page, if stamped.
    fn pour(&self, sample: &[u8], stamped: bool) -> Result<()> {
        for (at, (_, frame)) in self.frames()?.into_iter().enumerate() {
            self.write_from(FrameSpan::new(frame, 1), &page_of(sample, stamped, at))?;
        }
        Ok(())
    }

    /// Looks at every byte of the memory.
    fn compare(&self, sample: &[u8], stamped: bool) -> Result<()> {
        let mut found = Vec::new();
        for (at, (page, frame)) in self.frames()?.into_iter().enumerate() {
            self.read_into(FrameSpan::new(frame, 1), &mut found)?;
            ensure!(found == page_of(sample, stamped, at), "page {page} came back as another");
        }
        Ok(())
    }

    fn read_into(&self, frames: FrameSpan, into: &mut Vec<u8>) -> Result<()> {
        into.clear();
        let base = frames.start.addr(A::PAGE_SHIFT).get();
        for at in (0..frames.count << A::PAGE_SHIFT).step_by(8) {
            let word = self.machine.ram().read_word(PhysAddr::new(base + at));
            into.extend(word.context("there is RAM")?.to_le_bytes());
        }
        Ok(())
    }

    fn write_from(&self, frames: FrameSpan, from: &[u8]) -> Result<()> {
        let base = frames.start.addr(A::PAGE_SHIFT).get();
        let (words, _) = from.as_chunks::<8>();
        for (word, at) in words.iter().zip((0..).step_by(8)) {
            let word = u64::from_le_bytes(*word);
            self.machine
                .ram()
                .write_word(PhysAddr::new(base + at), word)
                .context("there is RAM")?;
        }
        Ok(())
    }
}

/// What page `at` of the memory holds.
fn page_of(sample: &[u8], stamped: bool, at: usize) -> Vec<u8> {
    let mut page = sample[at * PAGE % sample.len()..][..PAGE].to_vec();
    if stamped {
        page[..8].copy_from_slice(&(at as u64).to_le_bytes());
    }
    page
}

fn push(run: &mut Run, backing: Backing, kind: &Kind) {
    let note = format!("{NOTE}{}", kind.data.name());
    let mut put = |name, part: fn(&Cycle) -> f64| {
        let case = case(ISA, backing, name).with(&note);
        for way in Way::ALL {
            let record = |all| Record::new(NAME, &case, way.name(), ("per-page", "ns/page"), all);
            run.records.extend(Summary::of(&kind.of(way, part)).map(record));
        }
        let metric = ("over-pages", "ratio");
        let record = |times| Record::new(NAME, &case, Way::Runs.name(), metric, times);
        run.records.extend(kind.times(part).map(record));
    };
    put(OUT, |cycle| cycle.out);
    put(WRITE, |cycle| cycle.write);
    put(BACK, |cycle| cycle.back);
    let case = case(ISA, backing, WRITE).with(&note);
    for (way, smaller) in Way::ALL.into_iter().zip(&kind.smaller) {
        let summary = Summary { median: *smaller, min: *smaller, max: *smaller, n: 1 };
        run.records.push(Record::new(NAME, &case, way.name(), ("smaller", "times"), summary));
    }
}

/// Storing is judged where a folio is more than a page, and not one word that repeats: that is read
/// at the speed of memory in either way, and nothing is compressed.
fn sentence(backing: Backing, kind: &Kind) -> Option<String> {
    let store = kind.times(|cycle| cycle.write)?;
    let load = kind.times(|cycle| cycle.back)?;
    let rate = |way| {
        let all = Summary::of(&kind.of(way, |cycle| cycle.write))?;
        Some(PAGE as f64 / all.median * 1e3)
    };
    let (runs, pages) = (rate(Way::Runs)?, rate(Way::Pages)?);
    let [whole, single] = kind.smaller[..] else { return None };
    let goal = match backing.size.bytes() > PAGE as u64 && !kind.data.repeats() {
        true => {
            let met = verdict(store.median >= GOAL && whole >= single);
            format!("; goal: at least {GOAL} at an equal or better ratio; {met}")
        }
        false => String::new(),
    };
    Some(format!(
        "Compressed memory, {} data in folios of {}: stored at {runs:.0} MB/s {}, {pages:.0} MB/s \
         {}: {:.2} times as fast ({:.2} to {:.2}{goal}), loaded {:.2} times as fast; {whole:.2} \
         times smaller, {single:.2} by pages.",
        kind.data.name(),
        backing.size,
        Way::Runs.name(),
        Way::Pages.name(),
        store.median,
        store.min,
        store.max,
        load.median,
    ))
}

#[cfg(test)]
mod tests {
    use super::super::scene::ram;
    use super::*;
    use crate::bench::empty_run;
    use crate::host::Host;

    #[test]
    fn d7_every_kind_of_data_comes_back_from_compressed_memory() {
        const BYTES: u64 = 4 << 20;
        let mut ram = ram(BYTES).unwrap();
        let mut run = empty_run(NAME, &Host::new(std::path::Path::new("/nonexistent")));
        measure(&mut run, &mut ram, BYTES, 1).unwrap();
        // Three sizes, four kinds of data.
        assert_eq!(run.findings.len(), 12);
        let smaller = |kind: &str, least: f64, most: f64| {
            let of = run.records.iter().filter(|record| record.metric == "smaller");
            let of: Vec<f64> =
                of.filter(|r| r.case.contains(kind)).map(|record| record.median).collect();
            assert_eq!(of.len(), 6, "{kind}");
            assert!(of.iter().all(|times| (least..=most).contains(times)), "{kind}: {of:?}");
        };
        smaller("compressed random", 0.9, 1.0);
        smaller("compressed text", 1.5, 10.0);
        smaller("compressed zero", 100.0, f64::MAX);
        smaller("compressed same", 100.0, f64::MAX);
    }

    fn kind(data: Data, runs: f64, smaller: Vec<f64>) -> String {
        let cycles = |write| vec![Cycle { out: 1.0, write, back: 1.0 }; 3];
        let kind = Kind { data, cycles: vec![cycles(runs), cycles(1200.0)], smaller };
        sentence(BACKINGS[1], &kind).unwrap()
    }

    #[test]
    fn d7_whole_folios_are_to_be_faster_and_no_larger() {
        let met = kind(Data::Text, 1000.0, vec![2.0, 2.0]);
        assert!(met.contains("1.20 times as fast (1.20 to 1.20; goal: at least 1.2 at"), "{met}");
        assert!(met.contains("ratio; met)"), "{met}");
        assert!(kind(Data::Random, 1001.0, vec![2.0, 2.0]).contains("MISSED"));
        assert!(kind(Data::Text, 1000.0, vec![1.9, 2.0]).contains("MISSED"));
        assert!(!kind(Data::Same, 1001.0, vec![2.0, 2.0]).contains("goal"));
    }
}
