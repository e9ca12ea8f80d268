//! Walkers that verify the whole state.
//!
//! **Owns** nothing and changes nothing; every other room works without it. **Key functions**:
//! [`space`] (one address space: areas, tables, leaves), [`file()`] (one file's index), [`system`]
//! (all spaces, all files and all of RAM against each other), [`leaves`] (every leaf, one by one),
//! [`extents`] (the ranges in which a folio is cleared).
//!
//! ```text
//!   areas ◄── every leaf lies in one, and grants no more ──┐
//!                                                          │
//!   root ─► table ─► table ─► leaf ────────────────────────┤
//!    right slot? entries counted right?                     │
//!                                                          ▼
//!   slots: free | cached | folio | table | node | held    folio: as many mappings as it counts
//!          each frame is exactly one of these
//! ```
//!
//! They go entry by entry and frame by frame, share no loop with the code that they check, and need
//! no memory. They are for tests, for fuzzing, and for an embedder that suspects damage. While they
//! run, no other CPU may use the memory manager.
//!
//! | invariant | checked by |
//! |---|---|
//! | I1: clearing covers each page once, the neighbourhood last | [`extents`] |
//! | I4: contiguous blocks are whole, and every block that can be folded is | [`space`] |
//! | I7: a leaf lies in one area, grants no more, and maps one folio | [`space`] |
//! | I9: no leaf that is COW can be written | [`space`] |
//! | I11, I13: an exclusive page is mapped once | [`system`] |
//! | I12: mapped pages counted = entries found | [`system`] |
//! | I10: a swap slot counts the entries that refer to it; an exclusive one is alone | [`system`] |
//! | a file's folios are at their index places, and carry their identities | [`file()`] |
//! | I20: a pool has the folios that it promised | [`system`] |
//! | no frame lost, none owned twice | [`system`] |

mod extents;
#[cfg(feature = "files")]
mod file;
mod space;
#[cfg(feature = "swap")]
mod swap;
mod system;
mod violation;

#[cfg(all(test, not(loom), feature = "files"))]
mod block_tests;
#[cfg(all(test, not(loom), feature = "files"))]
mod tests;

pub use extents::{ExtentViolation, extents};
#[cfg(feature = "files")]
pub use file::{FileReport, file};
pub use space::{Leaf, SpaceReport, leaves, space};
pub use system::{Totals, system};
pub use violation::Violation;

pub use crate::space::tree::Miscount;
