//! The folio sizes that are possible at a page (row E4).
//!
//! A size is a candidate if the policy allows it. It is possible if the naturally aligned block of
//! that size around the page lies in the area and is empty. A candidate that is not possible is
//! reported with its cause, so that the counters can say *why* a program gets small folios.

use quire_units::{Order, OrderSet, PageSpan, Vpn};

use crate::limits::ORDER_MAX;

/// The reason why a fault got less than the largest size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// The block around the page reaches beyond the area.
    Geometry,
    /// A page of the block is mapped already.
    Occupied,
    /// No free block of that order.
    Memory,
    /// The size would fit the area, but the policy does not allow it.
    Policy,
    /// The limit of the space's group leaves no room for it.
    Charge,
}

impl Cause {
    /// All causes, in the order of their counters.
    pub const ALL: [Cause; 5] =
        [Cause::Geometry, Cause::Occupied, Cause::Memory, Cause::Policy, Cause::Charge];

    /// The name of its counter.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Geometry => "area_geometry",
            Cause::Occupied => "occupied",
            Cause::Memory => "allocation_failed",
            Cause::Policy => "policy",
            Cause::Charge => "charge",
        }
    }
}

/// The sizes that are possible at a page, and the candidates that are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Possible orders; order 0 always is.
    pub orders: OrderSet,
    /// Candidates whose block reaches beyond the area.
    pub geometry: OrderSet,
    /// Candidates whose block is not empty.
    pub occupied: OrderSet,
    /// The largest order, up to the block of one table, for which the area has room but which the
    /// policy does not allow.
    pub policy: Option<Order>,
}

impl Choice {
    /// The largest possible order.
    #[inline]
    pub fn largest(&self) -> Order {
        highest(self.orders)
    }

    /// The largest possible order below `order`; `None` below order 0.
    #[inline]
    pub fn below(&self, order: Order) -> Option<Order> {
        self.orders.below(order).largest()
    }
}

/// The highest order of a set; 0 of none.
#[inline]
pub(crate) fn highest(set: OrderSet) -> Order {
    set.largest().unwrap_or_default()
}

/// The largest order whose aligned block around `page` lies in `area`, which holds `page`.
///
/// The blocks around a page are nested, and the block of order `n` holds all pages that agree with
/// it in the bits from `n` up. So the largest block without the page before the area is the one
/// whose order is the highest bit in which the two differ; likewise at the other end.
#[inline]
pub fn fitting(area: PageSpan, page: Vpn) -> Order {
    let difference = |other: u64| page.get() ^ other;
    let left = area.start.get().checked_sub(1).map_or(u64::MAX, difference);
    // The smaller of two numbers has the lower highest bit.
    let highest = left.min(difference(area.end.get())).ilog2() as u8;
    Order::new(highest.min(ORDER_MAX.get()))
}

/// The sizes that are possible at a page: `fits` is the largest whose block lies in the area,
/// `candidates` are the orders that the policy allows, `empty` is the largest of them whose block
/// around the page is empty, and `block` is the order of a table's block (2 MiB with 4 KiB pages).
#[inline(always)]
pub fn choose(fits: Order, candidates: OrderSet, empty: Order, block: Order) -> Choice {
    let geometry = candidates - OrderSet::up_to(fits);
    let occupied = candidates - geometry - OrderSet::up_to(empty);
    let orders = (candidates - geometry - occupied) | OrderSet::of(Order::ZERO);
    let roomy = fits.min(block);
    let refused = roomy > highest(orders) && !candidates.contains(roomy);
    Choice { orders, geometry, occupied, policy: refused.then_some(roomy) }
}
