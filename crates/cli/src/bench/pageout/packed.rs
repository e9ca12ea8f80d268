//! Compressed memory as the device: the gain of whole folios over pages, by kind of data.
//!
//! *By runs* the device takes a folio as it is, and compresses 64 KiB as one; *page-at-a-time* it
//! takes one page after the other, each compressed by itself, as without large folios. All else is
//! the cycle of the other devices.

use anyhow::{Context, Result, ensure};
use quire_arch::{Arch, X86_64};
use quire_machine::Ram;
use quire_units::{FrameSpan, Order, PhysAddr};
use quire_zpool::{Config, Lender, PageId, Pool, Scratch, Table};

use super::cycle::Way;
use super::data::Data;
use super::scene::{Scene, with_scene};
use crate::bench::scene::Backing;
use crate::bench::sheet::{Key, OVER_PAGES, Sheet, verdict};
use crate::isa::Isa;
use crate::record::Case;
use crate::size::Size;

/// The start of the notes of such cases; the kind of data follows.
pub(super) const NOTE: &str = "compressed ";
/// The format: the device is the same in any.
const ISA: Isa = Isa::X86_64;
/// The most memory that goes out, and the most rounds: LZ4 takes thousands of ns for a page.
const MOST: u64 = 64 << 20;
const LOOPS: u32 = 5;
/// Whole folios shall be stored this many times as fast as pages, at an equal or better ratio.
const GOAL: f64 = 1.2;
const PAGE: usize = 4096;
const UNIT: usize = 64 << 10;
/// The parts of a cycle.
const PARTS: [&str; 3] = ["out", "write", "back"];
const PER_PAGE: (&str, &str) = ("per-page", "ns");
const OVER: (&str, &str) = (OVER_PAGES, "ratio");

/// The case of a part of the cycle.
fn case(backing: Backing, data: Data, part: &str) -> Case {
    let case = Case::new(part, Some(backing.size)).with(&ISA.name()).with(backing.note());
    case.with(&format!("{NOTE}{}", data.name()))
}

fn keys(backing: Backing, data: Data, way: Way) -> Vec<Key> {
    PARTS.map(|part| Key::new(&case(backing, data, part), way.name(), PER_PAGE)).into()
}

/// Measures all kinds of data in folios of all sizes that `backings` have, and tells the results.
pub(super) fn measure(
    sheet: &mut Sheet,
    ram: &mut Ram,
    backings: &[Backing],
    (bytes, loops): (u64, u32),
) -> Result<()> {
    let (bytes, loops) = (bytes.min(MOST), loops.min(LOOPS));
    for &backing in backings.iter().filter(|backing| !backing.block) {
        with_scene(ram, (ISA, backing, bytes), |scene: &Scene<'_, '_, '_, '_, X86_64>| {
            Compress { sheet, backing, loops }.all(scene)
        })?;
    }
    sheet.setting(format!(
        "Compressed memory: {} of the same memory, {loops} rounds; by runs the device takes each \
         folio at once and compresses {} as one, page-at-a-time it takes and compresses pages of \
         4K. Its own copy of the data that it compresses is in both.",
        Size(bytes),
        Size(UNIT as u64)
    ));
    Ok(())
}

struct Compress<'a> {
    sheet: &'a mut Sheet,
    backing: Backing,
    loops: u32,
}

impl Compress<'_> {
    fn all<A: Arch>(&mut self, scene: &Scene<'_, '_, '_, '_, A>) -> Result<()> {
        let mut tables = Way::ALL.map(|_| Table::new());
        let mut scratch = Way::ALL.map(|_| vec![0; 2 * UNIT + UNIT / 8]);
        let slots = scene.span.count();
        let devices = tables.iter_mut().zip(&mut scratch).zip(Way::ALL);
        let mut devices: Vec<Device<'_>> = devices
            .map(|((table, bytes), way)| Device::new(way, slots, Scratch { table, bytes }))
            .collect::<Result<_>>()?;
        Data::ALL.into_iter().try_for_each(|data| self.kind(scene, &mut devices, data))
    }

    fn kind<A: Arch>(
        &mut self,
        scene: &Scene<'_, '_, '_, '_, A>,
        devices: &mut [Device<'_>],
        data: Data,
    ) -> Result<()> {
        let (sheet, backing) = (&mut *self.sheet, self.backing);
        let sample = data.sample();
        scene.pour(&sample, data.is_stamped())?;
        for device in &mut *devices {
            device.cycle(scene, true)?;
            scene.compare(&sample, data.is_stamped())?;
            let smaller =
                Key::new(&case(backing, data, PARTS[1]), device.way.name(), ("smaller", "times"));
            sheet.put(smaller, vec![device.smaller]);
        }
        let cells: Vec<(Vec<Key>, usize)> =
            (0..).zip(Way::ALL).map(|(at, way)| (keys(backing, data, way), at)).collect();
        sheet.rounds("compressing", self.loops, &cells, |&at| {
            let device = devices.get_mut(at).context("there is a device for each way")?;
            device.cycle(scene, false)
        })?;
        scene.compare(&sample, data.is_stamped())?;
        let runs = keys(backing, data, Way::Runs).into_iter();
        for (runs, pages) in runs.zip(keys(backing, data, Way::Pages)) {
            let to = Key::new(&runs.case, Way::Runs.name(), OVER);
            sheet.ratio(&pages, &runs, to);
        }
        let told = sentence(sheet, backing, data);
        told.into_iter().for_each(|told| sheet.finding(told));
        Ok(())
    }
}

/// A device of compressed memory, used in one way.
struct Device<'s> {
    way: Way,
    pool: Pool<'s, Pages>,
    /// A copy of the data that goes to the pool or comes from it.
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
    fn cycle<A: Arch>(
        &mut self,
        scene: &Scene<'_, '_, '_, '_, A>,
        wipes: bool,
    ) -> Result<Vec<f64>> {
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
        Ok(vec![out, write, back])
    }

    /// Calls `act` for each piece of the `count` slots from `first` on, which are a folio: with its
    /// slot, its order and its bytes in the copy.
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

/// Pages of the host that a pool borrows: its slots bound their number.
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

impl<A: Arch> Scene<'_, '_, '_, '_, A> {
    /// Fills the memory with `sample` again and again; with its number in each page, if stamped.
    fn pour(&self, sample: &[u8], stamped: bool) -> Result<()> {
        for (at, (_, frame)) in self.frames()?.into_iter().enumerate() {
            self.write_from(FrameSpan::new(frame, 1), &page_of(sample, stamped, at))?;
        }
        Ok(())
    }

    /// Compares every byte of the memory.
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

/// The content of page `at` of the memory.
fn page_of(sample: &[u8], stamped: bool, at: usize) -> Vec<u8> {
    let mut page = sample[at * PAGE % sample.len()..][..PAGE].to_vec();
    if stamped {
        page[..8].copy_from_slice(&(at as u64).to_le_bytes());
    }
    page
}

/// Storing is judged where a folio is more than a page, and not one word that repeats: such data is
/// read at the speed of memory in either way, and not compressed.
fn sentence(sheet: &Sheet, backing: Backing, data: Data) -> Option<String> {
    let times = |part| sheet.summary(&Key::new(&case(backing, data, part), Way::Runs.name(), OVER));
    let of = |way: Way, metric| {
        sheet.median(&Key::new(&case(backing, data, PARTS[1]), way.name(), metric))
    };
    let (store, load) = (times(PARTS[1])?, times(PARTS[2])?);
    let rate = |way| Some(PAGE as f64 / of(way, PER_PAGE)? * 1e3);
    let (runs, pages) = (rate(Way::Runs)?, rate(Way::Pages)?);
    let smaller = ("smaller", "times");
    let (whole, single) = (of(Way::Runs, smaller)?, of(Way::Pages, smaller)?);
    let goal = match backing.size.bytes() > PAGE as u64 && !data.repeats() {
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
        data.name(),
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
    use super::super::bench::BACKINGS;
    use super::super::scene::ram;
    use super::*;
    use crate::bench::sheet::tests::empty;

    #[test]
    fn d7_every_kind_of_data_comes_back_from_compressed_memory() {
        const BYTES: u64 = 4 << 20;
        let (mut ram, mut sheet) = (ram(BYTES).unwrap(), empty());
        measure(&mut sheet, &mut ram, &BACKINGS, (BYTES, 1)).unwrap();
        // Three sizes, four kinds of data.
        assert_eq!(sheet.run.findings.len(), 12);
        let smaller = |kind: &str, least: f64, most: f64| {
            let of = sheet.figures().filter(|(key, _)| key.metric == "smaller");
            let of = of.filter(|(key, _)| key.case.has(kind));
            let of: Vec<f64> = of.map(|(_, times)| times.median).collect();
            assert_eq!(of.len(), 6, "{kind}");
            assert!(of.iter().all(|times| (least..=most).contains(times)), "{kind}: {of:?}");
        };
        smaller("compressed random", 0.9, 1.0);
        smaller("compressed text", 1.5, 10.0);
        smaller("compressed zero", 100.0, f64::MAX);
        smaller("compressed same", 100.0, f64::MAX);
    }

    fn told(data: Data, runs: f64, smaller: [f64; 2]) -> String {
        let (mut sheet, backing) = (empty(), BACKINGS[1]);
        let write = case(backing, data, PARTS[1]);
        for ((way, ns), smaller) in Way::ALL.into_iter().zip([runs, 1200.0]).zip(smaller) {
            sheet.put(Key::new(&write, way.name(), PER_PAGE), vec![ns; 3]);
            sheet.put(Key::new(&write, way.name(), ("smaller", "times")), vec![smaller]);
        }
        for (part, times) in [(PARTS[1], 1200.0 / runs), (PARTS[2], 1.0)] {
            sheet.put(Key::new(&case(backing, data, part), Way::Runs.name(), OVER), vec![times]);
        }
        sentence(&sheet, backing, data).unwrap()
    }

    #[test]
    fn d7_whole_folios_are_to_be_faster_and_no_larger() {
        let met = told(Data::Text, 1000.0, [2.0, 2.0]);
        assert!(met.contains("1.20 times as fast (1.20 to 1.20; goal: at least 1.2 at"), "{met}");
        assert!(met.contains("ratio; met)"), "{met}");
        assert!(told(Data::Random, 1001.0, [2.0, 2.0]).contains("MISSED"));
        assert!(told(Data::Text, 1000.0, [1.9, 2.0]).contains("MISSED"));
        assert!(!told(Data::Same, 1001.0, [2.0, 2.0]).contains("goal"));
    }
}
