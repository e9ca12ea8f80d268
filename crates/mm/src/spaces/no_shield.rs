//! Without the feature `watch` no page is protected from writes, or made to fail.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Access, PageSpan, Prot, Vpn};

use super::Spaces;
use super::outcome::{Answered, Served};
use crate::base::{Change, Error};
use crate::fault::MarkedPage;
use crate::space::Space;

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    #[inline(always)]
    pub(super) fn poison(&self, _: &Space<A>, _: PageSpan) -> Answered {
        Answered { pages: 0, end: Err(Error::Invalid.into()) }
    }

    #[inline(always)]
    pub(super) fn unshield_page(&self, _: &Space<A>, _: Vpn) -> Result<(), Error> {
        Ok(())
    }

    #[inline(always)]
    pub(super) fn part_marker(&self, _: &Space<A>, _: PageSpan) -> Result<(), Error> {
        Ok(())
    }

    #[inline(always)]
    pub(super) fn unshield_moved(_: &mut Change<'_, A, H>, _: PageSpan, _: Prot) {}

    #[inline(always)]
    pub(super) fn unshield_all(&self, _: &Space<A>, _: impl Iterator<Item = PageSpan>) {}

    #[inline(always)]
    pub(super) fn unmark(&self, _: &Space<A>, _: PageSpan) -> Result<(), Error> {
        Ok(())
    }

    #[inline(always)]
    pub(super) fn fill_shielded(&self, _: &Space<A>, _: &MarkedPage, _: Access) -> Served {
        Ok(None)
    }
}
