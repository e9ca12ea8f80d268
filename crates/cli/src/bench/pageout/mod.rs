//! `bench pageout`: what it costs to page anonymous memory out and to bring it back (row D7).
//!
//! ```text
//!   page_out ──► next_write, device, write_done ──► fault, next_read, device, read_done
//!     "out"                "write"                                "back"
//! ```
//!
//! Memory in folios of one size goes through this circle on the hosted machine ([`scene`]), again
//! and again. Paging out takes its steps *by runs*, or *page at a time*: same code, same batches,
//! same flush at the end of each, and only the step is another ([`cycle`]). In a round of its own,
//! which is not timed, every word that comes back is looked at ([`content`]), and what the library
//! did is counted ([`count`]).
//!
//! Compressed memory as the device, whole folios against pages and by kind of data, is measured
//! for itself ([`packed`]): it takes so long that of all else nothing would be seen.

mod args;
mod data;
mod scene;
mod content;
mod cycle;
mod count;
mod measure;
mod packed;
mod goals;
mod say;
mod host;
mod linux;

pub(crate) use args::PageoutArgs;
pub(crate) use measure::{NAME, run};
pub(crate) use say::{label, title};
