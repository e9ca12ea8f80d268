//! Sets of orders.

use core::fmt;
use core::ops::{BitAnd, BitOr, Sub};

use crate::Order;

/// A set of orders from 0 to 31. As bits, bit `n` is order `n`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct OrderSet(u32);

impl OrderSet {
    /// No order.
    pub const EMPTY: Self = Self(0);

    /// The orders whose bits are set.
    #[inline]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The set as bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// This order alone; the empty set of an order above 31.
    #[inline]
    pub const fn of(order: Order) -> Self {
        match 1_u32.checked_shl(order.get() as u32) {
            Some(bit) => Self(bit),
            None => Self::EMPTY,
        }
    }

    /// All orders up to and including `order`.
    #[inline]
    pub const fn up_to(order: Order) -> Self {
        Self(u32::MAX >> 31_u8.saturating_sub(order.get()))
    }

    /// Whether it has no order.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `order` belongs to it.
    #[inline]
    pub const fn contains(self, order: Order) -> bool {
        self.0 & Self::of(order).0 != 0
    }

    /// The largest order.
    #[inline]
    pub const fn largest(self) -> Option<Order> {
        match self.0.checked_ilog2() {
            Some(order) => Some(Order::new(order as u8)),
            None => None,
        }
    }

    /// The smallest order.
    #[inline]
    pub const fn smallest(self) -> Option<Order> {
        if self.is_empty() { None } else { Some(Order::new(self.0.trailing_zeros() as u8)) }
    }

    /// Those below `order`.
    #[inline]
    #[must_use]
    pub const fn below(self, order: Order) -> Self {
        match order.down() {
            Some(most) => Self(self.0 & Self::up_to(most).0),
            None => Self::EMPTY,
        }
    }

    /// From the largest down to and including `least`.
    #[inline]
    pub fn descending(self, least: Order) -> impl Iterator<Item = Order> {
        let mut left = self - self.below(least);
        core::iter::from_fn(move || {
            let order = left.largest()?;
            left = left - Self::of(order);
            Some(order)
        })
    }
}

impl BitOr for OrderSet {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for OrderSet {
    type Output = Self;

    #[inline]
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The orders of the first set that the second does not have.
impl Sub for OrderSet {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl fmt::Debug for OrderSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries((0..32).map(Order::new).filter(|order| self.contains(*order)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_orders_whose_bits_are_set() {
        let set = OrderSet::of(Order::new(4)) | OrderSet::of(Order::new(9));
        assert_eq!(
            (set.bits(), set.largest(), set.smallest()),
            (0x210, Some(Order::new(9)), Some(Order::new(4)))
        );
        assert!(set.contains(Order::new(9)) && !set.contains(Order::new(5)));
        assert_eq!(set.below(Order::new(9)), OrderSet::of(Order::new(4)));
        assert_eq!(set.below(Order::ZERO), OrderSet::EMPTY);
        assert!(set.descending(Order::new(5)).eq([Order::new(9)]));
        assert_eq!(set - set, OrderSet::EMPTY);
        assert_eq!(OrderSet::EMPTY.largest(), None);
    }

    #[test]
    fn orders_above_31_belong_to_no_set() {
        let all = OrderSet::up_to(Order::new(31));
        assert_eq!((all.bits(), OrderSet::up_to(Order::new(40))), (u32::MAX, all));
        assert!(!all.contains(Order::new(32)) && OrderSet::of(Order::new(63)).is_empty());
    }
}
