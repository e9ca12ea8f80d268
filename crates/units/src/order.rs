//! The order of a folio or block: the base-two logarithm of its size in base pages.

use core::fmt;

/// The base-two logarithm of a size in base pages: order 0 is one page, order 9 is 512 pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Order(u8);

impl Order {
    /// One base page.
    pub const ZERO: Order = Order(0);

    /// The order `log2`.
    ///
    /// # Panics
    /// When `log2` is 64 or more: such a block has no page count.
    #[inline]
    pub const fn new(log2: u8) -> Self {
        assert!(log2 < 64);
        Self(log2)
    }

    /// The order as a number.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The order as an index into a per-order table.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// How many base pages a block of this order has.
    #[inline]
    pub const fn pages(self) -> u64 {
        1 << self.0
    }

    /// How many bytes a block of this order has.
    #[inline]
    pub const fn bytes(self, page_shift: u32) -> u64 {
        1 << (self.0 as u32 + page_shift)
    }

    /// The largest order whose block has at most `pages` pages; `None` for zero pages.
    #[inline]
    pub const fn fitting(pages: u64) -> Option<Self> {
        match pages.checked_ilog2() {
            Some(log2) => Some(Self(log2 as u8)),
            None => None,
        }
    }

    /// The order whose block has exactly `bytes` bytes; `None` where there is none.
    pub const fn of_bytes(bytes: u64, page_shift: u32) -> Option<Self> {
        if bytes.is_power_of_two() && bytes.trailing_zeros() >= page_shift {
            Some(Self((bytes.trailing_zeros() - page_shift) as u8))
        } else {
            None
        }
    }

    /// The next larger order.
    #[inline]
    pub const fn up(self) -> Self {
        Self(self.0 + 1)
    }

    /// The next smaller order; `None` below one page.
    #[inline]
    pub const fn down(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}", self.0)
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
