//! Cache lines that CPUs write in common, counted on simulated CPUs (row E12, feature `lines`).
//!
//! After the scalable commutativity rule (Clements et al., SOSP 2013): operations whose order makes
//! no difference can be built so that no CPU writes a line that another accesses. Here up to 256
//! CPUs take turns on one thread, each with an operation that commutes with the others'. A line is
//! *shared* when one of them writes it and another writes or reads it. No big machine is needed:
//! whether the CPUs run at once makes no difference to which lines they touch.

mod recorder;
mod watched;
mod scene;
mod plays;
mod stated;

use std::collections::BTreeMap;

use quire::fault::SizePolicy;
use quire_units::Order;

pub use recorder::{Places, Shared};
pub use stated::{table, unstated};

use self::plays::{PLAYS, Play, Step};
use self::recorder::{Did, Name, record, shared};
use self::scene::{Scene, with_scene};

/// Rounds before the counted ones: caches are filled, and tables exist.
const WARM: usize = 3;
/// Rounds that are counted.
const ROUNDS: usize = 4;

/// The lines that one kind of operation shares with the same operation of other CPUs.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The operation.
    pub name: &'static str,
    /// Lines of all fields together.
    pub all: Shared,
    /// Lines by field.
    pub fields: BTreeMap<String, Shared>,
    /// Other CPUs that a flush interrupts, for each operation.
    pub interrupts: f64,
}

/// Counts all operations on `cpus` CPUs.
///
/// # Panics
/// When the host has not enough memory, or an operation fails.
#[must_use]
pub fn count(cpus: usize) -> Vec<Outcome> {
    with_scene(cpus, |scene| PLAYS.iter().map(|play| scene.count(play, cpus)).collect())
}

impl Scene<'_, '_, '_> {
    fn count(&self, play: &Play, cpus: usize) -> Outcome {
        for order in [4, 9].map(Order::new) {
            let wanted = play.sizes.contains(&order.get());
            let size = if wanted { SizePolicy::Always } else { SizePolicy::Never };
            self.mm.policy().set_size(order, size).expect("the size has a choice");
        }
        let step = |step: Step, cpu: usize| {
            self.mm.hardware().bind(cpu);
            step(self, cpu).unwrap_or_else(|stop| panic!("{}: {stop:?}", play.name));
        };
        let first = self.mm.phys().span().start;
        let name = |part: Name| match part {
            Name::Field(field) => field.to_owned(),
            Name::Slot(at, field) => format!("{field} of a {}", self.use_of(first.add(at as u64))),
            Name::Elsewhere => "elsewhere".to_owned(),
            Name::Words(frame) => format!("words of a {}", self.use_of(frame)),
        };
        let mut all = Vec::new();
        for round in 0..WARM + ROUNDS {
            (0..cpus).for_each(|cpu| step(play.before, cpu));
            let did = (0..cpus).map(|cpu| record(cpu, || step(play.act, cpu), name));
            let did: Vec<Did> = did.collect();
            (0..cpus).for_each(|cpu| step(play.after, cpu));
            if round >= WARM {
                all.extend(did);
            }
        }
        let (total, fields) = shared(&all);
        let interrupts = all.iter().map(|did| did.interrupts).sum::<u64>() as f64;
        Outcome { name: play.name, all: total, fields, interrupts: interrupts / all.len() as f64 }
    }
}
