//! Address spaces: which pages a program may touch, how, and which backing they have.
//!
//! **Owns** the areas of each space and every change of them. **Key types**: [`Space`], [`Area`],
//! `View` (a space, its frames and its hardware), `Section` (the right to change it).
//!
//! ```text
//!   Request ──► place ──► Section: prepare ─► change the areas ─► take, protect ─► settle ─► end
//!                                                │
//!   fault ──► View::areas (no lock) ◄──────── AreaTree: Area, Area, ..     (tree)
//! ```
//!
//! Faults read the areas without a lock and validate the reading by a sequence number; so faults in
//! different areas, and in different parts of one, do not meet. Changes take turns.
//!
//! | concurrent pair | resolved by |
//! |---|---|
//! | fault – fault, other tables | nothing shared |
//! | fault – fault, same table | the table's lock; the second finds the place taken |
//! | fault – change of areas | the fault checks, with the table locked, that the areas are unchanged; a change alters the areas *before* it locks the table |
//! | change – change | the tree's writer lock |
//! | fault – pages that a change prepares, or has not flushed | the change *holds* the pages: no reading of them is current |
//!
//! **Never** takes frames itself: steps return what they lack. **Next room**: `fault`.

mod advice;
mod area;
mod place;
mod recent;
mod section;
pub(crate) mod tree;
mod view;
mod watch;

#[cfg(test)]
mod tree_tests;
#[cfg(test)]
mod words_tests;

pub use advice::{Advice, OptOut};
pub use area::{Area, AreaFlags, Backing, FileId};
pub use place::{At, MapError, Request};
pub(crate) use recent::Recent;
pub(crate) use section::{Section, SectionLack};
pub(crate) use tree::Seq;
pub(crate) use view::{Ever, View};
pub use view::{GroupId, Space};
pub use watch::{Watch, WatchFor, Watched, Watcher};
