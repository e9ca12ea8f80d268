//! The host's own kernel: the cost of writing memory to swap and bringing it back.
//!
//! A process of its own, a small C program (`child.c`: `MADV_PAGEOUT` has no safe interface), maps
//! memory in folios of one size, fills it, and asks for it to go out; then it touches one byte of
//! each page, and compares every byte. It swaps to
//!
//! * a loop device over a file on a disk, never on tmpfs: Linux could swap the swap file out to
//!   itself and wait for ever;
//! * zram: compressed memory.
//!
//! ```text
//!   run ──► swap area ──► for each size (THP guard) and kind of data: child ──► rounds ──► rows
//!            │  └ each step first tells `keeper` how it is undone
//!            └ loop only: a memory group, so that written pages leave the swap cache as well
//! ```
//!
//! The area is given back when the run ends, fails, is interrupted or killed: `keeper` is a process
//! that undoes all steps when the pipe from us is closed. The huge-page settings have their guard.
//!
//! `child` starts the process; `measure` puts it all together with the swap areas and memory groups
//! of [`host`](crate::host).

mod child;
mod measure;
#[cfg(test)]
mod tests;

pub(crate) use measure::{Plan, Row, run};
#[cfg(test)]
pub(crate) use {crate::host::swap::Device, measure::Counts};
