//! The hosted machine, with a record of the words of tables and nodes that the library touches, and
//! of the CPUs that a flush interrupts.

use std::ops::Range;

use quire_hw::{Flush, FrameRun, Hardware, Memory, Poisoned, Profile, Reuse, TableFrame};
use quire_machine::Machine;
use quire_units::{CpuId, FrameSpan, Pfn};

use super::recorder::{interrupts, words};

/// A machine whose accesses are recorded. The contents of folios are their programs' own: clears
/// and copies are not.
pub(super) struct Watched<'m, 'r>(pub(super) &'m Machine<'r>);

impl Watched<'_, '_> {
    /// Lets the thread run as CPU `number`.
    pub(super) fn bind(&self, number: usize) {
        self.0.bind(CpuId::new(number));
    }
}

impl Memory for Watched<'_, '_> {
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        words(frame, index, 1, false);
        self.0.load(frame, index)
    }

    fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        let count = self.0.count_run(frame, index, most, first, step);
        words(frame, index, (count + 1).min(most), false);
        count
    }

    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        words(table.frame(), index, count, true);
        self.0.fill(table, index, count, first, step);
    }

    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        words(table.frame(), index, 1, true);
        self.0.compare_exchange(table, index, current, new)
    }

    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse) {
        self.0.clear(frames, pages, reuse);
    }

    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        self.0.copy(to, at, from)
    }
}

impl Hardware for Watched<'_, '_> {
    fn flush(&self, flush: &Flush<'_>) {
        let own = self.cpu();
        interrupts(flush.cpus.iter().filter(|cpu| *cpu != own).count() as u64);
        self.0.flush(flush);
    }

    fn publish_code(&self, frames: FrameSpan) {
        self.0.publish_code(frames);
    }

    fn freed(&self, frames: FrameSpan) {
        self.0.freed(frames);
    }

    fn cpu(&self) -> CpuId {
        Hardware::cpu(self.0)
    }

    fn profile(&self) -> Profile {
        self.0.profile()
    }
}
