//! The simulator of a whole system: seeded scripts of what many processes do on many CPUs, beside a
//! model that knows pages only, with faults at every boundary.
//!
//! **Owns** the world of one run. **Key types**: [`Script`], [`Step`], [`Setup`], [`Generator`],
//! [`Violation`]; [`run()`], [`shrink()`].
//!
//! ```text
//!   seed ─► Setup, Generator ─► steps ─► World::step ──► Report: steps, hash of the trace
//!                                          │  │  │
//!             Naive: what each page is ◄───┘  │  └──► Machine: MMU, TLBs, examiner
//!                                             ▼
//!                          Mm ─► Machine:  allocations, copies, stores, flushes, disks fail,
//!                                          are slow, or are seen half done by another CPU
//! ```
//!
//! **One thread.** CPUs take turns at step boundaries, and what each has in its TLB stays there
//! meanwhile. Within a step the others act where the step says so ([`Fault::Race`]). So the same
//! seed gives the same trace to the byte, and a script that fails once fails always.
//!
//! **Checked** means, for each step: the answer of each call, errors with their evidence, is that
//! which the model expects, or one that a fault of this step or real shortage explains; each word
//! that a program, a device or `read(2)` finds is the one that the model has; and the examiner has
//! looked at every store into a page table, every flush and every walk. After each
//! [`every`](Setup::every) steps and at the end: all walkers of `quire::check`; each area, page by
//! page; what is in memory of each page of each process; and that no frame is lost.
//!
//! **Progress**: then a process that the script knows nothing of asks whether things happen at all
//! (`progress`): pages leave where there are slots, folios are made where they are wanted, scarce
//! memory is spared, counters move. In the end all runs of slots and frames are whole again.
//!
//! **Exact worlds** are small ones of private and shared memory alone: no files, no swap, no
//! reclaim, one CPU, no fault but allocations that fail. There the model foretells each answer, and
//! which pages are in memory, in which frames, what their leaves remember and who shares them
//! (`exact`); all is compared after each step.
//!
//! **Not seen** are real races within the library (the stress tests and the model checker run
//! threads), weak memory, and words of a page other than its first and last.
//!
//! **Never** draws a random number that is not the script's. **Next room**: none.

mod setup;
mod script;
mod violation;
mod device;
mod packed;
mod everyone;
mod world;
mod judge;
mod act;
mod act_pages;
mod act_files;
mod act_frames;
mod act_policy;
mod act_lost;
mod act_moves;
mod act_reserved;
mod act_watched;
mod act_groups;
mod progress;
mod exact;
mod run;
mod shrink;

pub use quire_script::{ARGS, Arg, Fault, Generator, Step, Theme, Verb};
pub use run::{Failure, Moves, Options, Report, run, run_steps};
pub use script::Script;
pub use setup::{Format, Setup};
pub use shrink::{Found, shrink};
pub use violation::{Kind, Violation};
