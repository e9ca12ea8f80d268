//! `bench fork`, `bench zap`, `bench protect`: what it costs to change all entries of a populated
//! area at once (row C5).
//!
//! 1 GiB is populated in folios of one size ([`backing`], [`scene`]). Then a space is copied and
//! the copy ends, or the area is unmapped, or it loses the right to write and gets it back. Three
//! do the same work: the library *by runs* ([`own`]); a loop *page-at-a-time* over the same folios
//! ([`pages`]), which is what the library replaces; and the host's kernel
//! ([`crate::host::helper`]), which does more, and is another thing.
//!
//! What the library did is counted in a run of its own, on a machine that counts: words written,
//! flushes, contiguous blocks taken apart. Beside it stands what page-at-a-time does to contiguous
//! blocks ([`folded`]).

mod backing;
mod scene;
mod pages;
mod folded;
mod own;
mod plan;
mod measure;
mod say;
mod goals;
mod show;

pub(crate) use backing::{BLOCK, Backing};
pub(crate) use measure::run;
pub(crate) use own::Task;
pub(crate) use show::plots;
