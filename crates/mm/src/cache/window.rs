//! The pages of one read, and the folios that they are cut into (row B3).
//!
//! Sets of orders are bit masks: bit `n` is order `n`. The highest order of a window's set is
//! *preferred*, the lowest is the file's hard minimum, and those between are tried in turn when
//! memory is short:
//!
//! ```text
//!   at = start
//!   while at < end:
//!     a folio is there already?   at = its end                      (no reason to stay small)
//!     order = order_at(at, ..)    aligned, within the window, free
//!     while there is no memory:   order = below(order)              (an error only below the last)
//!     put it in;                  at += order
//! ```
//!
//! Each place starts from the preferred order again. So neither a page that is cached already nor
//! a failed allocation makes the rest of the window small, as it does in Linux.

use quire_units::{Order, OrderSet};

use super::FilePages;
use crate::fault::highest;

/// The bounds of reads in a file. Page numbers are below 2^52: a file's bytes are counted in 63
/// bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// How many pages the file has, the last one perhaps in part.
    pub end: u64,
    /// How many pages are read ahead at most; 0 for none. A program may ask for more.
    pub window: u64,
    /// No folio is smaller, and each begins at a multiple of it: the file system's block where that
    /// is larger than a page. This is a hard minimum; where there is no memory for it, reading
    /// fails.
    pub smallest: Order,
    /// The orders that folios may have. `smallest` always belongs to it, and no lower
    /// order.
    pub sizes: OrderSet,
}

impl Bounds {
    /// The orders that folios may have, from the smallest on.
    #[inline]
    fn orders(&self) -> OrderSet {
        (self.sizes - OrderSet::up_to(self.smallest)) | OrderSet::of(self.smallest)
    }

    /// The largest order that folios may have.
    #[inline]
    pub fn largest(&self) -> Order {
        highest(self.orders())
    }

    /// The largest order that folios may have and that is at most `order`; the smallest where
    /// there is none.
    #[inline]
    pub fn at_most(&self, order: Order) -> Order {
        highest(self.orders() & OrderSet::up_to(order)).max(self.smallest)
    }

    /// `pages` up to the file's end, rounded to folios of the smallest order; at least the one that
    /// holds the first page.
    fn clip(&self, pages: FilePages) -> FilePages {
        let unit = self.smallest.pages();
        let start = pages.start & !(unit - 1);
        let end = pages.end.min(self.end).max(pages.start + 1);
        FilePages::new(start, end.next_multiple_of(unit))
    }
}

/// The pages of one read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The pages: within the file, but that the ends are rounded to folios of the smallest order.
    /// Never empty.
    pub pages: FilePages,
    /// The orders that folios may have here. Never empty.
    pub sizes: OrderSet,
    /// The page at which the next window is asked for: the folio that holds it gets the mark.
    pub mark: Option<u64>,
}

impl Window {
    /// `pages` within `bounds`, in folios of up to `order`. A window at the file's end has no mark.
    pub(super) fn new(pages: FilePages, order: Order, mark: Option<u64>, bounds: &Bounds) -> Self {
        let pages = bounds.clip(pages);
        let sizes = (bounds.orders() & OrderSet::up_to(order)) | OrderSet::of(bounds.smallest);
        let mark = mark.filter(|&mark| pages.contains(mark) && pages.end < bounds.end);
        Self { pages, sizes, mark }
    }

    /// Just `wanted`, in the largest folios that fit: pages that are certain to be used, of random
    /// reads or those that a program asks for (`readahead`, `MADV_WILLNEED`), need not begin small.
    pub fn exactly(wanted: FilePages, bounds: &Bounds) -> Self {
        let order = Order::fitting(wanted.count()).unwrap_or_default();
        Self::new(wanted, order, None, bounds)
    }

    /// The same with `sizes` allowed besides.
    #[must_use]
    pub(super) fn with(self, sizes: OrderSet) -> Self {
        let smallest = self.sizes.smallest().unwrap_or_default();
        Self { sizes: self.sizes | (sizes - OrderSet::up_to(smallest)), ..self }
    }

    /// The order that folios should have.
    #[inline]
    pub fn preferred(&self) -> Order {
        highest(self.sizes)
    }

    /// The order of the folio that begins at `at`, a page of the window that is not cached. It is
    /// aligned, ends within the window, and is below none of its sizes. `empty` is the largest
    /// order without a cached page from `at` on.
    #[inline]
    pub fn order_at(&self, at: u64, empty: Order) -> Order {
        let room = Order::fitting(self.pages.end.saturating_sub(at)).unwrap_or_default();
        let aligned = Order::new(at.trailing_zeros().min(31) as u8);
        let fits = self.sizes & OrderSet::up_to(room.min(aligned).min(empty));
        fits.largest().or(self.sizes.smallest()).unwrap_or_default()
    }

    /// The next order to try where there is no memory for one of `order`; `None` below the
    /// smallest: then reading fails.
    #[inline]
    pub fn below(&self, order: Order) -> Option<Order> {
        self.sizes.below(order).largest()
    }
}
