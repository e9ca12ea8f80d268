//! One run of 2^order frames as one object.
//!
//! **Owns** the folio and the holds on it: its state, its references and mapped pages, and its
//! life from a [`FrameRun`](quire_hw::FrameRun) to a `FrameRun` again. And how its bytes come to
//! be: [`clear`] zeroes it around the page that faulted.
//!
//! **Key types**: [`Folio`] (a name: first frame and order), [`Folios`] (the operations).
//!
//! ```text
//!             adopt                 map / get ─► counts > 0 ─► unmap / put
//! FrameRun ───────────► Folio(0,0) ────────────────────────────────────┐
//!    ▲                                                                 │ last one
//!    └──────────────────────── FrameRun ◄──────────────────────────────┘
//! ```
//!
//! A folio's two counts share one word: *references* (a CPU looks at it) and *mapped pages*
//! (page-table entries point at it, counted in base pages). It lives while either is above zero.
//! Mapping a run of `n` pages is one addition, whatever `n` is. There is no count for each page:
//! how often one page is mapped can be derived from the tables (invariant I12 does).
//!
//! **Never** knows addresses or files. **Next room**: `table`.

pub(crate) mod cached;
pub(crate) mod clear;
pub(crate) mod copy;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod state;

#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use cached::{Home, Known};
pub use state::Counts;
pub(crate) use state::{Folio, Folios};
