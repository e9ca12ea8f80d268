//! The memory management unit: the meaning of page-table words, read straight from the manuals.
//!
//! One file for each ISA turns a raw word into a [`Meaning`]; [`Isa`] picks the file and knows the
//! [`Geometry`] of the tables. Nothing here has an effect: the walk itself, with its accessed and
//! dirty updates, is in `walk.rs` beside this module, and is the same for all ISAs.
//!
//! This is deliberately a second reading of the manuals. The library encodes entries by tables of
//! its own; if they were decoded by the same tables, an error would agree with itself.
//!
//! Levels count up from the last: level 0 maps base pages, whatever the manual calls it.

mod entry;
mod isa;
mod x86_64;
mod arm64;
mod riscv64;
mod block;
mod fresh;

#[cfg(test)]
mod tests;

pub(crate) use block::{Block, survey};
pub use entry::{Flaw, Leaf, Meaning, Table};
pub(crate) use fresh::fresh;
pub use isa::{Geometry, Granule, Isa, Sv};
