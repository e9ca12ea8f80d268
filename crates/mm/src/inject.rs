//! Internals, for the tests and benches of this repository. **Not for shipped code.**
//!
//! Behind the feature `inject`: allocations that fail, memory in pieces, and the types that each
//! room keeps to itself elsewhere. There is no stability here, and no soundness either: with
//! [`Folios`] or [`Tables`] in hand safe code can make two rights to one frame. The crate's front
//! door offers none of this.

use quire_arch::Arch;
use quire_hw::Hardware;

#[cfg(feature = "files")]
pub use crate::cache::index::{file_of, page_of};
pub use crate::folio::clear::{NEIGHBOURHOOD, Pace, extents, plan, units, zero};
pub use crate::folio::copy::copy;
pub use crate::folio::flags::FolioFlags;
pub use crate::folio::state::{Folio, Folios};
pub use crate::phys::alloc::Phys;
pub use crate::phys::fail::FailPlan;
pub use crate::phys::fragment::{Fragment, Fragmented, fragment};
pub use crate::phys::meta::Meta;
pub use crate::space::tree::{AreaTree, EditError, TreeWriter};
pub use crate::table::gather::{Gather, Target};
pub use crate::table::map::Lack;
pub use crate::table::run::What;
pub use crate::table::walk::Tables;

use crate::mm::Mm;

impl<'m, A: Arch, H: Hardware> Mm<'m, A, H> {
    /// The allocator itself.
    pub fn bare_phys(&self) -> &Phys<'m> {
        self.allocator()
    }
}
