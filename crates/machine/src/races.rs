//! Accesses of other CPUs at the worst moments, played on the thread that is at work.
//!
//! On one thread nothing happens by chance. A test can plan races: accesses of other CPUs between
//! two stores into page tables (a torn walk), or after a flush was requested and before any CPU has
//! obeyed it (a late acknowledgement). The machine keeps the result of each for the test to judge.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use quire_units::VirtAddr;

use crate::lock;
use crate::machine::Machine;

/// An access of another CPU.
#[derive(Clone, Copy, Debug)]
pub struct Race {
    /// At which moment, counted from 0: before a store into a table, in the middle of a run of
    /// stores, before a copy, and before a flush is obeyed.
    pub at: u32,
    /// On which CPU.
    pub cpu: usize,
    /// The process and the page by which the test knows the access; the machine ignores them.
    pub place: (usize, u32),
    /// The word's address.
    pub addr: VirtAddr,
    /// The word to store; `None` for a load.
    pub store: Option<u64>,
}

/// A race and its result: the word that was loaded or stored, unless the CPU trapped.
pub type Raced = (Race, Option<u64>);

/// The races of a machine that is [watched](crate::Examine). There are none at first.
#[derive(Debug, Default)]
pub struct Races {
    armed: AtomicBool,
    plan: Mutex<Plan>,
}

#[derive(Debug, Default)]
struct Plan {
    moments: u32,
    races: Vec<Race>,
    done: Vec<Raced>,
}

impl Races {
    /// Plans `races` from now on, in place of all others; moments are counted from 0 again.
    pub fn arm(&self, races: Vec<Race>) {
        self.armed.store(!races.is_empty(), Ordering::Relaxed);
        *lock(&self.plan) = Plan { moments: 0, races, done: Vec::new() };
    }

    /// Whether races are planned.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }

    /// Takes the results since the last call.
    pub fn done(&self) -> Vec<Raced> {
        std::mem::take(&mut lock(&self.plan).done)
    }
}

impl Machine<'_> {
    /// The races that a test has planned.
    pub fn races(&self) -> &Races {
        &self.races
    }

    /// A moment at which other CPUs may act.
    #[inline]
    pub(crate) fn moment(&self) {
        if self.races.is_armed() {
            self.race();
        }
    }

    #[cold]
    fn race(&self) {
        let mut plan = lock(&self.races.plan);
        let now = plan.moments;
        plan.moments += 1;
        let due: Vec<Race> = plan.races.iter().copied().filter(|race| race.at == now).collect();
        for race in due {
            let cpu = self.cpu(race.cpu);
            let found = match race.store {
                Some(word) => cpu.write(race.addr, word).map(|()| word),
                None => cpu.read(race.addr),
            };
            plan.done.push((race, found.ok()));
        }
    }
}
