//! Seeded scripts of what processes do with their memory, and the naive model of what each page of
//! them must be.
//!
//! **Owns** nothing of a system: it says what is to be done, and what must come of it. **Key
//! types**: [`Generator`] (steps out of a seed), [`Step`] and [`Verb`] (one step, as data and as a
//! line of text), [`Process`] and [`Page`] (the model).
//!
//! ```text
//!   seed ─► Dice ─► Generator ─► Step ─┬─► a system: the simulator's, or a kernel that has booted
//!                                      └─► Process, Page: what it must show then
//! ```
//!
//! Two systems carry scripts out: the simulator in `quire-sim`, on the hosted machine, where faults
//! strike and races are played out; and the kernel in `os/kernel/`, where the MMU is a real one. So
//! this crate is `no_std`, and asks for a heap only.
#![no_std]

extern crate alloc;

mod act;
mod dice;
mod naive;
mod request;
mod step;
mod swarm;
mod verb;

pub use act::{Action, Call, Part, Window};
pub use dice::Dice;
pub use naive::{File, Lost, Page, Process, Shielded, Source, UNOWNED, Why, tail};
pub use request::{
    Shown, ShownWhole, exact_request, frames_request, opt_out, request, reserved_request,
    size_policy, wish,
};
pub use step::{Fault, Step};
pub use swarm::{Bounds, Generator, Theme};
pub use verb::{ARGS, Arg, Verb};
