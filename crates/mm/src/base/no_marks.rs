//! Without the feature `swap` no file is a swap device's, and no marker is a swap entry.

use quire_arch::Arch;
use quire_hw::Hardware;
#[cfg(feature = "files")]
use quire_units::Order;

use super::Base;
#[cfg(feature = "files")]
use crate::cache::{FileId, FilePages, Row};
use crate::folio::Folio;
use crate::table::Marks;

impl<A: Arch, H: Hardware> Base<'_, A, H> {
    #[inline(always)]
    pub(crate) fn is_swapped(&self, _: Folio) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn lend_marks(&self, marks: Marks, _: u64) -> Marks {
        marks
    }

    #[inline(always)]
    pub(crate) fn release_marks(&self, _: u64, _: u64) {}
}

#[cfg(feature = "files")]
impl<A: Arch, H: Hardware> Base<'_, A, H> {
    #[inline(always)]
    pub(crate) fn claim_slots(&self, _: FileId, _: FilePages, _: Order) -> usize {
        0
    }

    #[inline(always)]
    pub(crate) fn unclaim_slots(&self, _: FileId, _: FilePages) {}

    #[inline(always)]
    pub(crate) fn read_ended(&self, _: FileId, _: &Row) {}

    #[inline(always)]
    pub(crate) fn write_ended(&self, _: FileId, _: &Row) {}

    #[inline(always)]
    pub(crate) fn drop_idle_swapped(&self, _: FileId, _: Folio, _: FilePages) -> Option<bool> {
        None
    }
}
