//! No pools of reserved folios: they need files.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::Order;

use super::{Base, Error};
use crate::space::Backing;

impl<A: Arch, H: Hardware> Base<'_, A, H> {
    #[inline(always)]
    pub(crate) fn whole(&self, _: Backing) -> Option<Order> {
        None
    }

    #[inline(always)]
    pub(crate) fn take_reserved(&self, order: Order, _: bool) -> Result<FrameRun, Error> {
        Err(Error::NoMemory(order))
    }
}
