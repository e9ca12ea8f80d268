//! The hosted machine, with a turn for another thread before each call.
//!
//! The scheduler of the models plays all threads by turns on one host thread, and changes between
//! them where it is asked: at the library's own locks and atomics, and here. The machine behind
//! knows nothing of it. Work of several steps is several calls: words of a table, pages of a copy,
//! the CPUs that obey a flush.

use std::cell::Cell;
use std::ops::Range;

use quire_hw::{Flush, FrameRun, Hardware, Memory, Poisoned, Profile, Reuse, TableFrame};
use quire_machine::{Cpu, Machine};
use quire_units::{CpuId, CpuSet, FrameSpan, Pfn};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU64, Ordering};

shuttle::thread_local! {
    /// The CPU that the thread runs as.
    static CPU: Cell<usize> = const { Cell::new(0) };
}

/// A machine, and what is asked for a turn.
pub(crate) struct Turns<'m, 'r> {
    machine: &'m Machine<'r>,
    turn: AtomicU64,
    /// To be done once, between two CPUs of a flush.
    midway: Mutex<Option<Act>>,
}

type Act = Box<dyn FnOnce() + Send>;

impl<'m, 'r> Turns<'m, 'r> {
    pub(crate) fn new(machine: &'m Machine<'r>) -> Self {
        Self { machine, turn: AtomicU64::new(0), midway: Mutex::new(None) }
    }

    /// The next flush of several CPUs does `act` when the first of them has obeyed.
    pub(crate) fn midway(&self, act: impl FnOnce() + Send + 'static) {
        *self.midway.lock().expect("a model that panics is over") = Some(Box::new(act));
    }

    /// The machine, with the calling thread as one of its CPUs; the others have had their turns.
    pub(crate) fn machine(&self) -> &'m Machine<'r> {
        self.turn.load(Ordering::SeqCst);
        self.machine.bind(CPU.with(|cpu| CpuId::new(cpu.get())));
        self.machine
    }

    /// CPU `number`, as which the calling thread runs from now on.
    pub(crate) fn run_as(&self, number: usize) -> Cpu<'m, 'r> {
        CPU.with(|cpu| cpu.set(number));
        self.machine.cpu(number)
    }
}

impl Memory for Turns<'_, '_> {
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.machine().load(frame, index)
    }

    fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        self.machine().count_run(frame, index, most, first, step)
    }

    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        for at in 0..count {
            let word = first.wrapping_add(step.wrapping_mul(at as u64));
            self.machine().fill(table, index + at, 1, word, 0);
        }
    }

    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        self.machine().compare_exchange(table, index, current, new)
    }

    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse) {
        self.machine().clear(frames, pages, reuse);
    }

    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        (0..from.count).try_for_each(|page| {
            let one = FrameSpan::new(from.start.add(page), 1);
            self.machine().copy(to, at + page, one)
        })
    }
}

impl Hardware for Turns<'_, '_> {
    fn flush(&self, flush: &Flush<'_>) {
        for (at, cpu) in flush.cpus.iter().enumerate() {
            let act =
                if at == 1 { self.midway.lock().ok().and_then(|mut act| act.take()) } else { None };
            act.into_iter().for_each(|act| act());
            let one = CpuSet::new();
            one.insert(cpu);
            self.machine().flush(&Flush { cpus: &one, ..*flush });
        }
    }

    fn publish_code(&self, frames: FrameSpan) {
        self.machine().publish_code(frames);
    }

    fn freed(&self, frames: FrameSpan) {
        self.machine().freed(frames);
    }

    fn cpu(&self) -> CpuId {
        CPU.with(|cpu| CpuId::new(cpu.get()))
    }

    fn profile(&self) -> Profile {
        self.machine.profile()
    }
}
