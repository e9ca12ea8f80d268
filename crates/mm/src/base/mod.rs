//! The base of every service: frames, changes of a space, flushes, counts, swap slots.
//!
//! ```text
//!   frames, free, clear          an order in, a run out; a run back
//!   change ─ complete            one change of a space: what a step lacks is brought
//!   settle                       one flush, then frees frames and swap slots
//!   demand                       which folio sizes faults lack
//!   groups                       how many frames a group of spaces may still map
//!   pools                        folios that are kept for one use
//!   stores                       files and swap devices by number
//! ```
//!
//! **Owns** the hardware, the allocator, the policy, the groups' credit and the tables of files and
//! swap devices. **Key type**: [`Base`]. A service holds it, directly or through the service to its
//! left.
//!
//! **Never** decides which pages are mapped, read, or paged out. **Next room**: `spaces`.

mod change;
#[cfg(feature = "reclaim")]
mod demand;
#[cfg(not(feature = "reclaim"))]
#[path = "no_demand.rs"]
mod demand;
mod error;
mod stop;
#[cfg(feature = "reclaim")]
mod groups;
#[cfg(not(feature = "reclaim"))]
#[path = "no_groups.rs"]
mod groups;
mod memory;
#[cfg(feature = "files")]
mod pools;
#[cfg(not(feature = "files"))]
#[path = "no_pools.rs"]
mod reserve;
#[cfg(feature = "files")]
mod reserve;
#[cfg(feature = "files")]
mod stores;
#[cfg(not(feature = "swap"))]
#[path = "no_marks.rs"]
mod marks;
#[cfg(feature = "swap")]
mod marks;

pub(crate) use change::Change;
pub(crate) use demand::Demand;
pub use error::{Errno, Error};
#[cfg(not(feature = "reclaim"))]
pub(crate) use groups::Groups;
#[cfg(feature = "reclaim")]
pub(crate) use groups::Hand;
#[cfg(feature = "reclaim")]
pub use groups::{Group, Groups};
#[cfg(feature = "swap")]
pub(crate) use marks::{Device, Keep};
pub(crate) use memory::Base;
#[cfg(feature = "files")]
pub use pools::PoolCounts;
#[cfg(feature = "files")]
pub(crate) use pools::Pools;
pub use stop::{Need, Stop};
#[cfg(feature = "swap")]
pub(crate) use stores::folios_in;
#[cfg(feature = "files")]
pub(crate) use stores::folios_within;

use crate::space::Space;

/// All address spaces of a system, which the embedder keeps.
pub trait AllSpaces<A> {
    /// Calls `see` with each of them. No space is forked meanwhile, or the child is visited, too.
    fn visit(&self, see: &mut dyn FnMut(&Space<A>));

    /// Calls `see` with at least those whose [number](Space::number) is one of `numbers`, in any
    /// order; the numbers differ, and the likeliest is the first. The library looks here first for
    /// the pages that map a folio, and [visits](Self::visit) all spaces only for what it did not
    /// find. So nothing is lost if a space is left out, but time. As it is, this visits all
    /// spaces: an embedder with many has an index by number.
    fn visit_some(&self, numbers: &[u32], see: &mut dyn FnMut(&Space<A>)) {
        let _ = numbers;
        self.visit(see);
    }
}

impl<A> AllSpaces<A> for [&Space<A>] {
    fn visit(&self, see: &mut dyn FnMut(&Space<A>)) {
        self.iter().for_each(|space| see(space));
    }
}

impl<A, T: AllSpaces<A> + ?Sized> AllSpaces<A> for &T {
    fn visit(&self, see: &mut dyn FnMut(&Space<A>)) {
        (**self).visit(see);
    }

    fn visit_some(&self, numbers: &[u32], see: &mut dyn FnMut(&Space<A>)) {
        (**self).visit_some(numbers, see);
    }
}
