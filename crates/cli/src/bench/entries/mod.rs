//! `bench fork`, `bench zap`, `bench protect`: the cost of changing all entries of a populated area
//! at once (row C5).
//!
//! 1 GiB is populated in folios of one size. Then a space is copied and the copy ends, or the area
//! is unmapped, or it loses the right to write and gets it back. Three variants do the same work:
//! the library *by runs* ([`own`]); a loop *page-at-a-time* over the same folios ([`pages`]), which
//! the library replaces; and the host's kernel ([`linux`]), which does more.
//!
//! The library's work is counted in a run of its own, on a machine that counts: words written,
//! flushes, contiguous blocks taken apart. Beside it stand the counts of page-at-a-time over
//! contiguous blocks ([`folded`]).

mod task;
mod pages;
mod folded;
mod own;
mod linux;
mod plan;
mod bench;

pub(crate) use bench::{Entries, EntriesArgs};
pub(crate) use linux::{HelperArgs, run as run_helper};
pub(crate) use task::Task;
