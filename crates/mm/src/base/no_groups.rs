//! Without the feature `reclaim` no space counts for a group.

use core::marker::PhantomData;

use quire_units::Order;

use super::Error;
use crate::space::Space;

/// No groups.
pub(crate) struct Groups<'m>(PhantomData<&'m ()>);

impl Groups<'_> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }

    #[inline(always)]
    pub(crate) fn affords<A>(&self, _: &Space<A>, _: Order) -> bool {
        true
    }

    #[inline(always)]
    pub(crate) fn charge<A>(&self, _: &Space<A>, _: u64) -> Result<(), Error> {
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn draw<A>(&self, _: &Space<A>, _: u64) {}
}
