//! The hardware of a program that sees all RAM at one place, and whose CPU has no translations.

use core::hint::black_box;
use core::ops::Range;

use quire::hw::{
    Chosen, DirectMap, Flush, FrameRun, Hardware, Poisoned, Profile, Reuse, TableFrame,
};
use quire::units::{CpuId, FrameSpan, Pfn};

/// The hardware of a kernel that maps all RAM at one place.
pub struct Board<'r> {
    /// All RAM.
    pub ram: DirectMap<'r>,
    /// The ways to clear and to copy.
    pub clears: Chosen,
    /// The abilities of its CPU.
    pub profile: Profile,
}

impl Hardware for Board<'_> {
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.ram.load(frame, index)
    }

    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        self.ram.fill(table, index, count, first, step);
    }

    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        self.ram.compare_exchange(table, index, current, new)
    }

    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse) {
        self.ram.clear(frames, pages, &self.clears, reuse);
    }

    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        self.ram.copy(to, at, from, &self.clears, Reuse::Soon)
    }

    fn flush(&self, flush: &Flush<'_>) {
        black_box(flush.pages);
    }

    fn publish_code(&self, frames: FrameSpan) {
        black_box(frames);
    }

    fn cpu(&self) -> CpuId {
        black_box(CpuId::new(0))
    }

    fn profile(&self) -> Profile {
        self.profile
    }
}
