//! Address spaces at work: faults, changes of areas, fork, guards, pins' copies.
//!
//! ```text
//!   fault ──► step ──► Done                      mapped, noted, or unshared
//!                  ├─► Again                     something changed meanwhile: decide anew
//!                  ├─► Need(File | Swap)         another service has the page
//!                  └─► an error                  the program may not, or there is no memory
//!
//!   map, unmap, protect, advise, discard ─┐
//!   fork, remap, guard, seal, track ──────┴─► one change of a space: prepare, change, settle
//! ```
//!
//! **Owns** no state beside the [`Base`]; the state of a space is in `space` and `table`. **Key
//! type**: [`Spaces`].
//!
//! **Never** reads a file or a swap device: a step returns what it lacks. **Next room**: `files`.

mod change;
mod divide;
mod failed;
mod faults;
mod fork;
mod frames;
mod guard;
mod lazy;
mod moved;
mod outcome;
mod remap;
mod report;
#[cfg(not(feature = "watch"))]
#[path = "no_shield.rs"]
mod shield;
#[cfg(feature = "watch")]
mod shield;
mod tally;
mod track;
mod unshare;
mod watch;

pub use failed::Loss;
pub use frames::{FrameSource, LentFrames};
pub use outcome::{Answered, Populated, Resolved, Shield};
pub(crate) use outcome::{Fault, Lack, Served};
pub use remap::Move;
pub use report::{FolioMap, SizeOf, is_protected};
pub use track::is_written;
pub use watch::Answer;

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::PageSpan;

use crate::base::Base;
use crate::space::{Area, Space};
use crate::table::Tables;

/// The operations on address spaces.
pub struct Spaces<'m, A, H> {
    base: Base<'m, A, H>,
}

crate::sync::names!([A, H] Spaces<'_, A, H>, "spaces" {} + base);

impl<'m, A, H> Spaces<'m, A, H> {
    pub(crate) fn new(base: Base<'m, A, H>) -> Self {
        Self { base }
    }

    #[cfg(not(feature = "files"))]
    #[inline(always)]
    pub(crate) fn spaces(&self) -> &Self {
        self
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> &Base<'m, A, H> {
        &self.base
    }
}

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// The areas that have a page in `span`, ascending and whole. Takes no lock, also not between
    /// two of them: each is in a state that the space had at some moment.
    pub fn areas<'a>(
        &'a self,
        space: &'a Space<A>,
        span: PageSpan,
    ) -> impl Iterator<Item = Area> + 'a {
        self.base.view(space).areas().overlapping(span)
    }

    /// The page tables of a space.
    pub(crate) fn tables<'a>(&'a self, space: &'a Space<A>) -> Tables<'a, A, H> {
        self.base.view(space).tables()
    }
}
