//! Swap: anonymous folios and those of files in memory leave whole, and come back by runs.
//!
//! ```text
//!   page_out:  hold ─► slots ─► swap entries ─► one flush ─► to be written
//!   swap_in:   fault on an entry ─► in memory: map the folio's run; else Need::Read
//!   migrate:   as page_out; then a copy takes the folio's slots, and is mapped in its place
//!   vacate:    the same for all folios of some frames
//! ```
//!
//! **Owns** no state beside `files` and `swap`: a device is a file and its slots. **Key type**:
//! [`Paging`].
//!
//! **Never** chooses the pages that leave. **Next room**: `reclaim`.

mod batch;
mod evict;
mod leave;
mod migrate;
mod mover;
mod page_out;
mod pass;
mod shared;
mod swap;
#[cfg(feature = "reclaim")]
mod vacate;
mod swap_in;

pub(crate) use evict::Found;
pub(crate) use leave::{Demand, Purpose};
pub use leave::{PagedOut, Scope};
pub use migrate::Migrated;
#[cfg(feature = "reclaim")]
pub(crate) use vacate::Load;

use quire_arch::Arch;

use crate::base::Base;
use crate::files::Files;
use crate::spaces::Spaces;

/// Swap devices, and paging to them.
pub struct Paging<'m, A, H> {
    files: Files<'m, A, H>,
}

crate::sync::names!([A, H] Paging<'_, A, H>, "paging" {} + files);

impl<'m, A: Arch, H> Paging<'m, A, H> {
    pub(crate) fn new(files: Files<'m, A, H>) -> Self {
        Self { files }
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> &Base<'m, A, H> {
        self.files.base()
    }

    #[inline(always)]
    pub(crate) fn spaces(&self) -> &Spaces<'m, A, H> {
        self.files.spaces()
    }

    #[inline(always)]
    pub(crate) fn files(&self) -> &Files<'m, A, H> {
        &self.files
    }

    #[cfg(not(feature = "reclaim"))]
    #[inline(always)]
    pub(crate) fn paging(&self) -> &Self {
        self
    }
}
