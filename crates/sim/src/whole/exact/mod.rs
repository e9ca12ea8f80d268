//! Exact worlds: each answer is foretold, and all that is in memory is compared after each step.
//!
//! **Owns** the model of what is in memory. **Key types**: [`Model`], a process with its resident
//! pages; [`Found`](compare::Found), a page as the tables have it.
//!
//! ```text
//!   Step ─► act_exactly ─► probe: trap what must trap, have what must be had
//!                        ─► call ─► Model foretells the answer; settle takes over what is judged
//!                        ─► probe, then agree: areas, pages, frames, marks, sharing, walkers
//! ```
//!
//! The model does not foretell three things, but judges them and takes them over: the frame of a
//! page, the folio size that a fault chose where memory was short, and whether a write reused or
//! copied a shared page.

mod access;
mod act;
mod collapse;
mod compare;
mod judge;
mod model;
mod share;

use std::collections::BTreeMap;

use model::{Model, Resident};
use quire::space::{Advice, AreaFlags};
use quire_arch::Arch;

use super::violation::Wrong;
use super::world::World;

/// The model of what is in memory.
pub(super) struct Exact {
    /// The resident pages of each process, by their place in the window.
    pub(super) resident: Vec<BTreeMap<usize, Resident>>,
    marks: u64,
}

impl Exact {
    pub(super) fn new(processes: usize) -> Self {
        Self { resident: vec![BTreeMap::new(); processes], marks: 0 }
    }
}

impl<A: Arch> World<'_, '_, '_, A> {
    fn exact(&self) -> &Exact {
        match &self.exact {
            Some(exact) => exact,
            None => unreachable!("only an exact world is judged so"),
        }
    }

    fn exact_mut(&mut self) -> &mut Exact {
        match &mut self.exact {
            Some(exact) => exact,
            None => unreachable!("only an exact world is judged so"),
        }
    }

    /// A process and its memory, by the model.
    fn model(&self, process: usize) -> Result<Model, Wrong> {
        Ok(Model {
            window: self.window(),
            stack: self.space(process)?.stack_pages(),
            process: self.naive[process].clone(),
            resident: self.exact().resident[process].clone(),
        })
    }

    /// That is what it is and has from now on.
    fn adopt(&mut self, process: usize, model: Model) {
        self.naive[process] = model.process;
        self.exact_mut().resident[process] = model.resident;
    }

    /// The orders that the policy wants for an area of a process with these flags.
    fn wants(&self, process: usize) -> Result<impl Fn(AreaFlags) -> u32, Wrong> {
        let opt_out = self.space(process)?.opt_out();
        Ok(move |flags| self.mm.policy().candidates(Advice::of(flags), opt_out).bits())
    }
}
