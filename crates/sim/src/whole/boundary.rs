//! The hardware as the library sees it, with other CPUs that act at the worst moments.
//!
//! On one thread nothing happens by chance. So a step may be given *races*: accesses of other CPUs
//! that are carried out between two stores into page tables (a torn walk), or when a flush has been
//! asked for and no CPU has heard of it yet (a late acknowledgement). What they find is kept for
//! the world to judge.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quire_hw::{Flush, FrameRun, Hardware, Poisoned, Profile, Reuse, TableFrame};
use quire_machine::Machine;
use quire_units::{CpuId, FrameSpan, Pfn, VirtAddr};

/// An access of another CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Race {
    /// At which store or flush, counted from 0.
    pub(super) at: u32,
    /// On which CPU.
    pub(super) cpu: usize,
    /// By which process, and to which page of the window.
    pub(super) place: (usize, u32),
    /// To which word.
    pub(super) addr: VirtAddr,
    /// What is stored there; a load if nothing is.
    pub(super) store: Option<u64>,
}

/// What became of a race: the word that was loaded or stored, unless the CPU trapped.
pub(super) type Raced = (Race, Option<u64>);

#[derive(Default)]
struct Plan {
    events: u32,
    races: Vec<Race>,
    done: Vec<Raced>,
}

/// A machine with races.
pub(super) struct Boundary<'m, 'r> {
    machine: &'m Machine<'r>,
    armed: AtomicBool,
    plan: Mutex<Plan>,
}

impl<'m, 'r> Boundary<'m, 'r> {
    pub(super) fn new(machine: &'m Machine<'r>) -> Self {
        Self { machine, armed: AtomicBool::new(false), plan: Mutex::default() }
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on these races happen.
    pub(super) fn arm(&self, races: Vec<Race>) {
        self.armed.store(!races.is_empty(), Ordering::Relaxed);
        *self.plan() = Plan { events: 0, races, done: Vec::new() };
    }

    /// Whether there are races.
    pub(super) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// What has become of races since it was asked last.
    pub(super) fn done(&self) -> Vec<Raced> {
        std::mem::take(&mut self.plan().done)
    }

    /// A moment at which other CPUs may act.
    #[inline]
    fn moment(&self) {
        if self.is_armed() {
            self.race();
        }
    }

    #[cold]
    fn race(&self) {
        let mut plan = self.plan();
        let now = plan.events;
        plan.events += 1;
        let due: Vec<Race> = plan.races.iter().copied().filter(|race| race.at == now).collect();
        for race in due {
            let cpu = self.machine.cpu(race.cpu);
            let found = match race.store {
                Some(word) => cpu.write(race.addr, word).map(|()| word),
                None => cpu.read(race.addr),
            };
            plan.done.push((race, found.ok()));
        }
    }
}

impl Hardware for Boundary<'_, '_> {
    #[inline]
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.machine.load(frame, index)
    }

    #[inline]
    fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        self.machine.count_run(frame, index, most, first, step)
    }

    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        self.moment();
        let head = if self.is_armed() { count / 2 } else { 0 };
        if head > 0 {
            self.machine.fill(table, index, head, first, step);
            self.moment();
        }
        let next = first.wrapping_add(step.wrapping_mul(head as u64));
        self.machine.fill(table, index + head, count - head, next, step);
    }

    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        self.moment();
        self.machine.compare_exchange(table, index, current, new)
    }

    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse) {
        self.machine.clear(frames, pages, reuse);
    }

    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        self.moment();
        self.machine.copy(to, at, from)
    }

    fn flush(&self, flush: &Flush<'_>) {
        self.moment();
        self.machine.flush(flush);
    }

    fn freed(&self, frames: FrameSpan) {
        self.machine.freed(frames);
    }

    #[inline]
    fn cpu(&self) -> CpuId {
        Hardware::cpu(self.machine)
    }

    fn profile(&self) -> Profile {
        self.machine.profile()
    }
}
