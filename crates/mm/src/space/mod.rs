//! Address spaces: the pages that a program may access, its rights, and their backing.
//!
//! **Owns** the areas of each space and every change of them. **Key types**: [`Space`], [`Area`],
//! [`View`] (a space with its context), [`Section`] (the right to change it).
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
//! | fault – preparations or unflushed entries of a change | the change *holds* the pages: no reading of them is current |
//!
//! **Never** takes frames itself: steps return what they lack. **Next room**: `fault`.

mod advice;
mod area;
mod fork;
mod group;
mod place;
mod section;
pub(crate) mod tree;
mod view;

#[cfg(test)]
mod tree_tests;

pub use advice::{Advice, OptOut};
pub use area::{Area, AreaFlags, Backing};
pub(crate) use fork::ForkNeed;
pub use group::GroupId;
pub use place::{At, MapError, Request};
pub(crate) use section::{Need, Section};
pub(crate) use tree::Seq;
pub use view::Space;
pub(crate) use view::{Ever, View};
