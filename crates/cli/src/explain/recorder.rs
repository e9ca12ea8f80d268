//! A hardware that writes down every effect the memory manager asks for, and passes it on.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use quire_hw::{Flush, FrameRun, Hardware, Memory, Poisoned, Profile, Reuse, TableFrame};
use quire_machine::Machine;
use quire_units::{CpuId, FrameSpan, Pfn};

/// One effect, in the order in which it happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// A word was read.
    Load { frame: Pfn, index: usize, word: u64 },
    /// Words were written.
    Fill { frame: Pfn, index: usize, count: usize, first: u64, step: u64 },
    /// A word was exchanged.
    Exchange { frame: Pfn, index: usize, new: u64 },
    /// Frames were zeroed: which of which run.
    Clear { run: FrameSpan, pages: Range<u64>, reuse: Reuse },
    /// Translations were dropped.
    Flush,
    /// Frames left use.
    Freed,
}

/// The machine, with a list of what was asked of it while it listens.
pub(super) struct Recorder<'m, 'r> {
    machine: &'m Machine<'r>,
    heard: Mutex<Option<Vec<Effect>>>,
}

impl<'m, 'r> Recorder<'m, 'r> {
    /// Passes on to `machine`; listens not yet.
    pub(super) fn new(machine: &'m Machine<'r>) -> Self {
        Self { machine, heard: Mutex::new(None) }
    }

    /// Listens while `work` runs; what it came to, and the effects in order.
    pub(super) fn listen<T>(&self, work: impl FnOnce() -> T) -> (T, Vec<Effect>) {
        *self.list() = Some(Vec::new());
        let result = work();
        (result, self.list().take().unwrap_or_default())
    }

    fn list(&self) -> std::sync::MutexGuard<'_, Option<Vec<Effect>>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, effect: Effect) {
        if let Some(heard) = self.list().as_mut() {
            heard.push(effect);
        }
    }
}

impl Memory for Recorder<'_, '_> {
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        let word = self.machine.load(frame, index);
        self.note(Effect::Load { frame, index, word });
        word
    }

    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        self.machine.fill(table, index, count, first, step);
        self.note(Effect::Fill { frame: table.frame(), index, count, first, step });
    }

    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        let result = self.machine.compare_exchange(table, index, current, new);
        if result.is_ok() {
            self.note(Effect::Exchange { frame: table.frame(), index, new });
        }
        result
    }

    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse) {
        self.machine.clear(frames, pages.clone(), reuse);
        self.note(Effect::Clear { run: frames.span(), pages, reuse });
    }

    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        self.machine.copy(to, at, from)
    }
}

impl Hardware for Recorder<'_, '_> {
    fn flush(&self, flush: &Flush<'_>) {
        self.machine.flush(flush);
        self.note(Effect::Flush);
    }

    fn publish_code(&self, frames: FrameSpan) {
        self.machine.publish_code(frames);
    }

    fn freed(&self, frames: FrameSpan) {
        self.machine.freed(frames);
        self.note(Effect::Freed);
    }

    fn cpu(&self) -> CpuId {
        Hardware::cpu(self.machine)
    }

    fn profile(&self) -> Profile {
        self.machine.profile()
    }
}
