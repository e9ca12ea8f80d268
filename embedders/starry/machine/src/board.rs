//! RAM that the kernel's allocator lends, and the hardware.
#![allow(unsafe_code)]

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use quire::arch::aarch64::Arm64;
use quire::arch::memory_slots;
use quire::cache::{File, Read};
use quire::hw::{
    Banks, Chosen, Early, Flush, FrameRun, Hardware, Memory, MemoryTypes, Poisoned, Profile, Ram,
    Reuse, SetupError, TableFrame, count_words, fill_words, load_words, store_words,
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
/// Words of a page.
const WORDS: usize = PAGE / 8;

/// The words of the tables: this kernel's `MAIR_EL1` has devices in slot 0, usual memory in slot 1,
/// and Normal non-cacheable memory in slot 2.
pub type Format = Arm64<PAGE_SHIFT, { memory_slots(1, 2, 0) }>;

/// The memory manager of this system.
pub type System = Mm<'static, Format, Board>;

/// As many pieces of RAM may be lent.
pub const PIECES_MOST: usize = 8;
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
    let mut early = unsafe { Early::<PIECES_MOST>::new(lent.direct, u64::MAX, PAGE_SHIFT) };
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
    let longest = lent.pieces.iter().max_by_key(|piece| piece.end - piece.start);
    let (first, end) = longest.map_or((0, 0), |p| (p.start >> PAGE_SHIFT, p.end >> PAGE_SHIFT));
    let board = Board { ram, direct: lent.direct, first, frames: end - first, cpu: lent.cpu };
    let board = BOARD.call_once(|| board);
    let parts = Parts::new(span.start, slots, caches, counters, zones).files(files).swaps(swaps);
    let Ok(system) = Mm::new(board, parts) else {
        return Err(SetupError::Banks { most: PIECES_MOST });
    };
    let system = MM.call_once(|| system);
    for right in rights.into_iter().flatten() {
        // The zone has all banks: a right cannot come back.
        let _ = system.add(right);
    }
    Ok(())
}

/// The machine.
///
/// Words of frames in the longest piece are found without a search for their bank: a walk of tables
/// does little else. The others, and whatever is larger than a table, go through the banks.
pub struct Board {
    ram: Ram<Banks<'static, PIECES_MOST>>,
    direct: usize,
    /// The longest piece: its first frame, and how many there are.
    first: u64,
    frames: u64,
    cpu: fn() -> usize,
}

impl Board {
    /// Where `frame`, if it is lent RAM or any other that the kernel sees, is visible.
    #[inline(always)]
    pub fn address(&self, frame: Pfn) -> *mut u8 {
        (self.direct + (frame.get() << PAGE_SHIFT) as usize) as *mut u8
    }

    /// Words `index..index + count` of a frame of the longest piece; `None` elsewhere.
    #[inline(always)]
    fn words(&self, frame: Pfn, index: usize, count: usize) -> Option<&[AtomicU64]> {
        let is_inside = frame.get().wrapping_sub(self.first) < self.frames;
        if !is_inside || index > WORDS || count > WORDS - index {
            return None;
        }
        let words = self.address(frame).cast::<AtomicU64>();
        // SAFETY: the caller of `start` has lent the piece, visible for good; the words lie within
        // one frame of it, and to the library all of it is atomic words.
        Some(unsafe { core::slice::from_raw_parts(words.add(index), count) })
    }
}

/// The bytes of frames. The borrow shows that no other code writes them meanwhile.
pub(crate) fn bytes(frames: &FrameRun) -> &[u8] {
    let Some(mm) = mm() else { return &[] };
    let room = (frames.count() << PAGE_SHIFT) as usize;
    // SAFETY: the kernel sees the frames, which are ours for as long as they are borrowed. Any
    // bytes are good ones.
    unsafe { core::slice::from_raw_parts(mm.hardware().address(frames.start()), room) }
}

/// The bytes of frames, to write them.
pub(crate) fn bytes_mut(frames: &mut FrameRun) -> &mut [u8] {
    let Some(mm) = mm() else { return &mut [] };
    let room = (frames.count() << PAGE_SHIFT) as usize;
    // SAFETY: as in `bytes`, and they are ours alone, being borrowed so.
    unsafe { core::slice::from_raw_parts_mut(mm.hardware().address(frames.start()), room) }
}

/// The bytes of frames that are to be read.
pub(crate) fn bytes_of_read(read: &mut Read) -> &mut [u8] {
    let Some(mm) = mm() else { return &mut [] };
    let (start, room) = (read.frames().start(), (read.frames().count() << PAGE_SHIFT) as usize);
    // SAFETY: as in `bytes`; the read is the right to its frames, and is borrowed for ourselves.
    unsafe { core::slice::from_raw_parts_mut(mm.hardware().address(start), room) }
}

/// Not inlined: each is larger than the rest of its caller.
#[inline(never)]
fn count(words: &[AtomicU64], first: u64, step: u64) -> usize {
    count_words(words, first, step)
}

#[inline(never)]
fn fill(words: &[AtomicU64], first: u64, step: u64) {
    fill_words(words, first, step);
}

/// Walkers of arm64 see a store after a barrier.
impl Memory for Board {
    #[inline(always)]
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        match self.words(frame, index, 1) {
            Some(words) => words[0].load(Ordering::Acquire),
            None => self.ram.load(frame, index),
        }
    }

    #[inline(always)]
    fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        match self.words(frame, index, most) {
            Some(words) => count(words, first, step),
            None => self.ram.count_run(frame, index, most, first, step),
        }
    }

    #[inline(always)]
    fn load_words(&self, frame: Pfn, index: usize, into: &mut [u64]) {
        match self.words(frame, index, into.len()) {
            Some(words) => load_words(words, into),
            None => self.ram.load_words(frame, index, into),
        }
    }

    #[inline(always)]
    fn store_words(&self, table: &TableFrame, index: usize, from: &[u64]) {
        match self.words(table.frame(), index, from.len()) {
            Some(words) => store_words(words, from),
            None => self.ram.store_words(table, index, from),
        }
        flush::publish();
    }

    #[inline(always)]
    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        match self.words(table.frame(), index, count) {
            Some([word]) => word.store(first, Ordering::Release),
            Some(words) => fill(words, first, step),
            None => self.ram.fill(table, index, count, first, step),
        }
        flush::publish();
    }

    #[inline(always)]
    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        match self.words(table.frame(), index, 1) {
            Some(words) => words[0]
                .compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
                .map(drop)?,
            None => self.ram.compare_exchange(table, index, current, new)?,
        }
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
