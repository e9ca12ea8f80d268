//! `check=scripts`: the library's scripts on this machine, before there are programs.
//!
//! **Owns** the world of a script: processes without programs, a file, a swap device. **Key
//! types**: [`World`](world::World), [`Turns`](turns::Turns). **Never** compiled without the
//! feature `checks`. **Next room**: `main`.
//!
//! The scripts and the naive model are those of the simulator (`quire-script`). Here the tables are
//! walked by the machine's own MMU, accesses are a program's, TLB entries stay until they are
//! flushed, and a fetch enters user mode. No test on the hosted machine can tell whether the
//! formats, the flushes and the traps are those of *this* machine: they are right if each page
//! shows the model's content, and each access succeeds or fails as in the model.
//!
//! ```text
//!   seed ─► Generator ─► step ─► the CPU it names ─┬─► Mm, and the model: same answer?
//!      ▲                                           └─► loads, stores, fetches: same words?
//!      └── every 250 steps, and at the end: all walkers of `quire::check`
//! ```
//!
//! **CPUs take turns**: one at a time carries a step out, the others sleep in their spaces, and
//! hear of flushes. So nothing races, the walkers may look, and a seed gives the same run again.
//! Where anything is wrong the machine ends, with the seed and the step.
//!
//! `check=scripts,SEED,SCRIPTS,STEPS` chooses; each has a usual value.

mod act;
mod shown;
mod swap;
mod turns;
mod world;

pub(crate) use turns::{help, init, run};
