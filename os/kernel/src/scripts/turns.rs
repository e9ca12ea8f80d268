//! Turns: which CPU carries the next step out, and which scripts are left.

use core::sync::atomic::{AtomicUsize, Ordering};

use quire::units::CpuId;
use spin::mutex::SpinMutex;

use super::shown;
use super::world::World;
use crate::{isa, memory};

/// The word on the command line.
const WORD: &str = "check=scripts";

/// The seed, how many scripts there are, and how many steps each has.
const USUAL: [u64; 3] = [1, 8, 2500];

/// No CPU's turn: there are no scripts, or no more.
const NO_CPU: usize = usize::MAX;

/// The CPU whose turn it is. The last CPU releases it, the next one acquires it.
static TURN: AtomicUsize = AtomicUsize::new(NO_CPU);

static TURNS: SpinMutex<Option<Turns>> = SpinMutex::new(None);

/// The work that is left.
pub(super) struct Turns {
    world: World,
    /// Scripts that are left, besides this one.
    scripts: u64,
    steps: u64,
    /// Steps of all scripts.
    done: u64,
}

impl Turns {
    /// Carries out the step of `cpu`; returns the CPU of the next step.
    fn take(&mut self, cpu: usize) -> usize {
        if !self.world.is_over(self.steps) {
            self.world.step();
            return self.next();
        }
        // Each CPU lets go of the space it is in, the last one of them has them all end.
        memory::switch(None);
        if cpu + 1 < isa::cpu_count() {
            return cpu + 1;
        }
        self.done += self.world.finish();
        if self.scripts == 0 {
            return NO_CPU;
        }
        self.scripts -= 1;
        self.world = World::new(self.world.seed() + 1);
        self.next()
    }

    fn next(&self) -> usize {
        if self.world.is_over(self.steps) { 0 } else { self.world.next_cpu() }
    }
}

/// The word of the command line: seed, scripts, steps of each.
fn wanted(line: &str) -> Option<[u64; 3]> {
    let mut words = line.split_ascii_whitespace().take_while(|word| *word != "--");
    let numbers = words.find_map(|word| word.strip_prefix(WORD))?;
    let mut wanted = USUAL;
    let told = numbers.split(',').skip(1).map(str::parse);
    for (value, number) in wanted.iter_mut().zip(told) {
        *value = number.unwrap_or(*value);
    }
    Some(wanted)
}

/// Sees whether there are scripts to carry out. Before other CPUs begin.
pub(crate) fn init(line: &str) {
    if wanted(line).is_some_and(|[_, scripts, _]| scripts > 0) {
        TURN.store(0, Ordering::Release);
    }
}

/// Carries all scripts out, with the help of the other CPUs.
pub(crate) fn run(line: &str) {
    let Some([seed, scripts, steps]) = wanted(line).filter(|[_, scripts, _]| *scripts > 0) else {
        return;
    };
    log!("{WORD}: seed {seed}, {scripts} scripts of {steps} steps");
    shown::check();
    let world = World::new(seed);
    let turns = Turns { world, scripts: scripts - 1, steps, done: 0 };
    *TURNS.lock() = Some(turns);
    let start = isa::now();
    help(isa::cpu());
    let took = (isa::now() - start) / 1_000_000;
    let done = TURNS.lock().take().map_or(0, |turns| turns.done);
    log!(
        "{WORD}: {done} steps on {} CPUs, {took} ms, and all is as it should be",
        isa::cpu_count()
    );
}

/// Takes this CPU's turns until there are no more.
pub(crate) fn help(cpu: CpuId) {
    let own = cpu.index();
    let turn = || TURN.load(Ordering::Acquire);
    loop {
        // Interrupts are on meanwhile and afterwards, and it stays in its space.
        isa::idle(&|| [own, NO_CPU].contains(&turn()));
        if turn() == NO_CPU {
            return;
        }
        while turn() == own {
            let next = TURNS.lock().as_mut().map_or(NO_CPU, |turns| turns.take(own));
            TURN.store(next, Ordering::Release);
            let woken = (0..isa::cpu_count()).filter(|cpu| [*cpu, NO_CPU].contains(&next));
            woken.filter(|cpu| *cpu != own).for_each(|cpu| isa::interrupt(CpuId::new(cpu)));
        }
    }
}
