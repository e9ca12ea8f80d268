//! RAM that the kernel's allocator lends, and the hardware.
#![allow(unsafe_code)]

use core::ops::Range;

use quire::arch::aarch64::Arm64;
use quire::arch::memory_slots;
use quire::cache::File;
use quire::hw::{
    Banks, Chosen, Early, Flush, FrameRun, Hardware, Memory, MemoryTypes, Poisoned, Profile, Ram,
    Reuse, SetupError, TableFrame,
};
use quire::phys::{CpuCache, Slot, Zone};
use quire::stats::Counters;
use quire::swap::{SWAPS_MAX, Swap};
use quire::units::{CpuId, FrameSpan, Pfn};
use quire::{Mm, Parts};
use spin::Once;

use crate::flush;

/// Base-two logarithm of the base page in bytes.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes of a base page.
pub const PAGE: usize = 1 << PAGE_SHIFT;

/// The words of the tables: this kernel's `MAIR_EL1` has devices in slot 0, usual memory in slot 1,
/// and Normal non-cacheable memory in slot 2.
pub type Format = Arm64<PAGE_SHIFT, { memory_slots(1, 2, 0) }>;

/// The memory manager of this system.
pub type System = Mm<'static, Format, Board>;

/// As many pieces of RAM may be lent.
const PIECES: usize = 8;
/// As many files, and objects of shared memory, may be mapped at once.
const FILES: usize = 8192;

static BOARD: Once<Board> = Once::new();
static MM: Once<System> = Once::new();

/// RAM that the kernel lends, and how it is to be used.
pub struct Lent<'a> {
    /// Physical addresses, whole pages.
    pub pieces: &'a [Range<u64>],
    /// Physical address 0 is visible here, and so is all that is lent.
    pub direct: usize,
    /// How many CPUs there are.
    pub cpus: usize,
    /// The number of the CPU that asks.
    pub cpu: fn() -> usize,
}

/// The memory manager, if it was started.
#[inline]
pub fn mm() -> Option<&'static System> {
    MM.get()
}

/// Makes the memory manager of what is lent. A second call changes nothing.
///
/// # Safety
/// The pieces are RAM that no other code uses, from now until the system ends, and visible for
/// reads and writes from `direct` on.
///
/// # Errors
/// The pieces are too many, or too small for the library's records.
pub unsafe fn start(lent: &Lent<'_>) -> Result<(), SetupError> {
    // SAFETY: the caller's promise; all is visible at once.
    let mut early = unsafe { Early::<PIECES>::new(lent.direct, u64::MAX, PAGE_SHIFT) };
    for piece in lent.pieces {
        early.add(piece.clone())?;
    }
    let span = early.span();
    let slots = early.array((0..span.count as usize).map(|_| Slot::empty()))?;
    let caches = early.array((0..lent.cpus).map(|_| CpuCache::new()))?;
    let counters = early.array((0..lent.cpus).map(|_| Counters::new()))?;
    let zones = early.array([Zone::new(span)])?;
    let files = early.array((0..FILES).map(|_| File::new()))?;
    let swaps = early.array((0..SWAPS_MAX).map(|_| Swap::new()))?;
    let (banks, rights) = early.banks()?;
    let ram = Ram::new(banks, Chosen::default_for_cpu());
    let board = BOARD.call_once(|| Board { ram, direct: lent.direct, cpu: lent.cpu });
    let parts = Parts::new(span.start, slots, caches, counters, zones).files(files).swaps(swaps);
    let Ok(system) = Mm::new(board, parts) else {
        return Err(SetupError::Banks { most: PIECES });
    };
    let system = MM.call_once(|| system);
    for right in rights.into_iter().flatten() {
        // The zone has all banks: a right cannot come back.
        let _ = system.add(right);
    }
    Ok(())
}

/// The machine.
pub struct Board {
    ram: Ram<Banks<'static, PIECES>>,
    direct: usize,
    cpu: fn() -> usize,
}

impl Board {
    /// Where `frame`, if it is lent RAM or any other that the kernel sees, is visible.
    #[inline]
    pub fn address(&self, frame: Pfn) -> *mut u8 {
        (self.direct + (frame.get() << PAGE_SHIFT) as usize) as *mut u8
    }
}

/// Walkers of arm64 see a store after a barrier.
impl Memory for Board {
    #[inline]
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.ram.load(frame, index)
    }

    #[inline]
    fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        self.ram.count_run(frame, index, most, first, step)
    }

    #[inline]
    fn load_words(&self, frame: Pfn, index: usize, words: &mut [u64]) {
        self.ram.load_words(frame, index, words);
    }

    #[inline]
    fn store_words(&self, table: &TableFrame, index: usize, words: &[u64]) {
        self.ram.store_words(table, index, words);
        flush::publish();
    }

    #[inline]
    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        self.ram.fill(table, index, count, first, step);
        flush::publish();
    }

    #[inline]
    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        self.ram.compare_exchange(table, index, current, new)?;
        flush::publish();
        Ok(())
    }

    #[inline]
    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse) {
        self.ram.clear(frames, pages, reuse);
    }

    #[inline]
    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        self.ram.copy(to, at, from)
    }
}

impl Hardware for Board {
    fn flush(&self, flush: &Flush<'_>) {
        flush::flush(flush);
    }

    fn publish_code(&self, frames: FrameSpan) {
        flush::publish_code(self.direct, frames);
    }

    #[inline]
    fn cpu(&self) -> CpuId {
        CpuId::new((self.cpu)())
    }

    fn profile(&self) -> Profile {
        Profile { contiguous: true, memory_types: MemoryTypes::ENTRIES, ..Profile::BASE }
    }
}
