//! Swap devices that are compressed memory: whole pages go to a pool of `quire-zpool`, and come
//! back.
//!
//! Other disks keep two words of each page. A pool keeps every byte, in pages that the host lends.
//! A transfer that ends half way is a lender that has no page left.

use quire_hw::DirectMap;
use quire_units::{FrameSpan, Order, Pfn, PhysAddr};
use quire_zpool::{Config, Error, Lender, PageId, Pool, Scratch, Table};

/// The most bytes that are compressed as one.
const UNIT: usize = 64 << 10;
/// Slots of a pool: as many as a swap device has at most.
const SLOTS: u64 = 1 << 17;
/// A pool is compacted after this many stores.
const COMPACT_EVERY: u64 = 32;

/// The memory that pools work in.
#[derive(Default)]
pub(super) struct Work(Vec<(Table, Vec<u8>)>);

impl Work {
    /// Pools for as many devices, with base pages of 2^`shift` bytes.
    pub(super) fn pools(&mut self, devices: usize, shift: u32) -> Vec<Packed<'_>> {
        let config = Config::new(shift, UNIT, 0, SLOTS);
        let Ok(config) = config else { unreachable!("the shape suits every format: {config:?}") };
        let bytes = || (Table::new(), vec![0; config.scratch_bytes()]);
        self.0 = (0..devices).map(|_| bytes()).collect();
        let scratches = self.0.iter_mut().map(|(table, bytes)| Scratch { table, bytes });
        let pools = scratches.map(|scratch| Pool::new(config, Pages::new(shift), scratch));
        pools.flatten().map(|pool| Packed { pool, copy: Vec::new(), stores: 0 }).collect()
    }
}

/// A device.
pub(super) struct Packed<'s> {
    pool: Pool<'s, Pages>,
    /// The bytes that go to the pool, or come from it.
    copy: Vec<u8>,
    stores: u64,
}

impl Packed<'_> {
    /// Takes the pages of a run to the slots from `first` on, `whole` of them; without memory for
    /// the others.
    pub(super) fn store(&mut self, ram: &DirectMap<'_>, first: u64, from: FrameSpan, whole: u64) {
        let shift = self.pool.config().page_bytes().trailing_zeros();
        for (slot, order) in FrameSpan::new(Pfn::new(first), from.count).blocks(Order::new(9)) {
            let ahead = slot.get() - first;
            read(ram, shift, FrameSpan::new(from.start.add(ahead), order.pages()), &mut self.copy);
            self.pool.lender_mut().refuses = ahead >= whole;
            match self.pool.store(slot.get(), order, &self.copy) {
                Ok(_) => {}
                Err(Error::NoMemory { .. }) if ahead >= whole => {}
                Err(error) => panic!("{order} at slot {slot} is not stored: {error:?}"),
            }
            self.stores += 1;
        }
        self.pool.lender_mut().refuses = false;
        if self.stores.is_multiple_of(COMPACT_EVERY) {
            self.pool.compact(u64::MAX);
        }
    }

    /// Brings the slots from `first` on to a run. Slots that were never stored are zero.
    pub(super) fn load(&mut self, ram: &DirectMap<'_>, first: u64, to: FrameSpan) {
        if to.count == 0 {
            return;
        }
        let bytes = self.pool.config().page_bytes();
        self.copy.resize(bytes * to.count as usize, 0);
        match self.pool.load(first, to.count, &mut self.copy) {
            Ok(()) => {}
            Err(Error::Absent { .. }) => self.copy.fill(0),
            Err(error) => panic!("slots from {first} on do not come back: {error:?}"),
        }
        let base = to.start.addr(bytes.trailing_zeros()).get();
        for (word, at) in self.copy.chunks_exact(8).zip((base..).step_by(8)) {
            let word = word.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
            ram.write_word(PhysAddr::new(at), word);
        }
    }

    /// The device is empty, and has given all its pages back.
    pub(super) fn clear(&mut self) {
        self.pool.clear();
        assert_eq!(self.pool.lender().lent(), 0, "an empty pool has no page");
    }

    /// Walks over the pool; what is wrong, if anything.
    pub(super) fn check(&mut self) -> Option<String> {
        let broken = self.pool.check().err().map(|broken| format!("{broken:?}"));
        let (told, lent) = (self.pool.counters().lent_pages(), self.pool.lender().lent());
        let differs = (told != lent).then(|| format!("{told} pages are counted, {lent} are lent"));
        broken.or(differs)
    }
}

/// The bytes of some frames.
fn read(ram: &DirectMap<'_>, shift: u32, frames: FrameSpan, into: &mut Vec<u8>) {
    into.clear();
    let base = frames.start.addr(shift).get();
    for at in (base..base + (frames.count << shift)).step_by(8) {
        into.extend(ram.read_word(PhysAddr::new(at)).unwrap_or_default().to_le_bytes());
    }
}

/// Pages of the host that a pool borrows.
struct Pages {
    bytes: usize,
    all: Vec<Box<[u8]>>,
    free: Vec<u32>,
    refuses: bool,
}

impl Pages {
    fn new(shift: u32) -> Self {
        Self { bytes: 1 << shift, all: Vec::new(), free: Vec::new(), refuses: false }
    }

    fn lent(&self) -> u64 {
        (self.all.len() - self.free.len()) as u64
    }
}

impl Lender for Pages {
    fn take(&mut self) -> Option<PageId> {
        if self.refuses {
            return None;
        }
        if self.free.is_empty() {
            self.all.push(vec![0; self.bytes].into_boxed_slice());
            self.free.push(u32::try_from(self.all.len()).ok()?);
        }
        PageId::new(self.free.pop()?)
    }

    fn give(&mut self, page: PageId) {
        // A page that was given back holds nothing to rely on.
        self.all[page.number() as usize - 1].fill(0xee);
        self.free.push(page.number());
    }

    fn bytes(&self, page: PageId) -> &[u8] {
        &self.all[page.number() as usize - 1]
    }

    fn bytes_mut(&mut self, page: PageId) -> &mut [u8] {
        &mut self.all[page.number() as usize - 1]
    }
}
