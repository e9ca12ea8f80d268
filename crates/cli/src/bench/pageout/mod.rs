//! `bench pageout`: the cost of paging anonymous memory out and bringing it back (row D7).
//!
//! ```text
//!   page_out ──► next_write, device, write_done ──► fault, next_read, device, read_done
//!     "out"                "write"                                "back"
//! ```
//!
//! Memory in folios of one size goes through this cycle on the hosted machine ([`scene`]), again
//! and again. Paging out takes its steps *by runs*, or *page-at-a-time*: same code, same batches,
//! same flush at the end of each, and only the step differs ([`cycle`]). In a round of its own,
//! which is not timed, every word that comes back is compared ([`content`]), and the library's work
//! is counted ([`count`]).
//!
//! Compressed memory as the device, whole folios against pages and by kind of data, has rounds of
//! its own ([`packed`]): it takes so long that the rest would not be visible beside it.

mod data;
mod scene;
mod content;
mod cycle;
mod count;
mod packed;
mod host;
mod linux;
mod bench;

pub(crate) use bench::{Pageout, PageoutArgs};
