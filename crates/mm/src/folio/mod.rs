//! One run of 2^order frames as one object.
//!
//! **Owns** the state of a folio and its holds: its references and mapped pages, and its life from
//! a [`FrameRun`](quire_hw::FrameRun) to a `FrameRun` again. It also writes the bytes of a new
//! folio: `clear` zeroes it around the page that faulted.
//!
//! **Key types**: `Folio` (a name: first frame and order), `Folios` (the operations).
//!
//! ```text
//!             adopt                 map / get ─► counts > 0 ─► unmap / put
//! FrameRun ───────────► Folio(0,0) ────────────────────────────────────┐
//!    ▲                                                                 │ last one
//!    └──────────────────────── FrameRun ◄──────────────────────────────┘
//! ```
//!
//! The counts of a folio share one word: *references* (a caller uses it for a while), *pins* (a
//! device does) and *mapped pages* (page-table entries point at it, counted in base pages). It
//! lives while any of them is above zero. Mapping a run of `n` pages is one addition for every `n`.
//! There is no count for each page: the tables show how often one page is mapped (invariant I12
//! counts it there).
//!
//! **Never** knows addresses or files. **Next room**: `table`.

pub(crate) mod cached;
pub(crate) mod clear;
pub(crate) mod copy;
pub(crate) mod flags;
mod home;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod state;

#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use flags::FolioFlags;
pub(crate) use home::Home;
pub use state::Counts;
pub(crate) use state::{Folio, Folios};
