//! The hardware as Quire sees it.

use core::ops::Range;

use quire::hw::{
    Chosen, DirectMap, Flush, FrameRun, Hardware, Poisoned, Profile, Reuse, TableFrame,
};
use quire::units::{CpuId, FrameSpan, Pfn};

use super::{PAGE, PAGE_SHIFT};
use crate::isa;

/// All RAM through the direct map, and this ISA's flushes.
pub(crate) struct Board {
    ram: DirectMap<'static>,
    clears: Chosen,
    profile: Profile,
}

/// The board, and the right to all of `span`.
pub(super) fn take(span: FrameSpan) -> (Board, FrameRun) {
    let address = isa::DIRECT + (span.start.get() << PAGE_SHIFT);
    let bytes = (span.count * PAGE) as usize;
    // SAFETY: the direct map shows all of the span, and stays. What of it the kernel's image, its
    // early memory and the initramfs occupy is never given to the library (see `give`), so that
    // only words that nobody else refers to are ever written; others are at most loaded, by
    // walkers who validate, as atomic words.
    let memory = unsafe { core::slice::from_raw_parts_mut(address as *mut u8, bytes) };
    let (ram, all) = DirectMap::new(memory, span.start, PAGE_SHIFT)
        .unwrap_or_else(|error| panic!("the direct map: {error}"));
    (Board { ram, clears: Chosen::default_for_cpu(), profile: isa::profile() }, all)
}

impl Board {
    /// All of RAM, for reading and writing frames that are pinned.
    pub(crate) fn ram(&self) -> &DirectMap<'static> {
        &self.ram
    }

    /// Where `frame` is visible.
    pub(crate) fn address(&self, frame: Pfn) -> *mut u8 {
        (isa::DIRECT + (frame.get() << PAGE_SHIFT)) as *mut u8
    }
}

impl Hardware for Board {
    #[inline]
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.ram.load(frame, index)
    }

    #[inline]
    fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        self.ram.count_run(frame, index, most, first, step)
    }

    #[inline]
    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        self.ram.fill(table, index, count, first, step);
        isa::publish();
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
        isa::publish();
        Ok(())
    }

    #[inline]
    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse) {
        self.ram.clear(frames, pages, &self.clears, reuse);
    }

    #[inline]
    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        self.ram.copy(to, at, from, &self.clears, Reuse::Soon)
    }

    #[inline]
    fn flush(&self, flush: &Flush<'_>) {
        isa::flush(flush);
    }

    #[inline]
    fn cpu(&self) -> CpuId {
        isa::cpu()
    }

    #[inline]
    fn profile(&self) -> Profile {
        self.profile
    }
}
