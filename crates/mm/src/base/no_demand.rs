//! Without the feature `reclaim` no fault asks for compaction.

use quire_units::Order;

use crate::fault::Policy;
use crate::space::Advice;

/// No demand.
#[derive(Default)]
pub(crate) struct Demand {}

impl Demand {
    #[inline(always)]
    pub(crate) fn asks(&self, _: &Policy, _: Order, _: Advice) -> bool {
        false
    }
}
