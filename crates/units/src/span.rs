//! Half-open spans of pages and of frames, and their cut into naturally aligned blocks.

use core::fmt;

use crate::{Order, Pfn, VirtAddr, Vpn};

/// Consecutive virtual pages: `start` inclusive, `end` exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PageSpan {
    /// The first page.
    pub start: Vpn,
    /// The page after the last.
    pub end: Vpn,
}

impl PageSpan {
    /// The span from `start` up to but not including `end`.
    ///
    /// # Panics
    /// In debug builds when `end` lies before `start`.
    #[inline]
    pub const fn new(start: Vpn, end: Vpn) -> Self {
        debug_assert!(start.get() <= end.get());
        Self { start, end }
    }

    /// `count` pages from `start`; `None` when they would leave the number space.
    #[inline]
    pub const fn at(start: Vpn, count: u64) -> Option<Self> {
        match start.checked_add(count) {
            Some(end) => Some(Self { start, end }),
            None => None,
        }
    }

    /// The naturally aligned block of `order` that holds `page`.
    #[inline]
    pub const fn block(page: Vpn, order: Order) -> Self {
        let start = page.align_down(order.pages());
        Self { start, end: start.add(order.pages()) }
    }

    /// How many pages the span has.
    #[inline]
    pub const fn count(self) -> u64 {
        self.end.get() - self.start.get()
    }

    /// Whether it has no page.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.start.get() >= self.end.get()
    }

    /// Whether `page` lies within.
    #[inline]
    pub const fn contains(self, page: Vpn) -> bool {
        self.start.get() <= page.get() && page.get() < self.end.get()
    }

    /// Whether all of `inner` lies within.
    #[inline]
    pub const fn covers(self, inner: Self) -> bool {
        self.start.get() <= inner.start.get() && inner.end.get() <= self.end.get()
    }

    /// The pages in both; empty when there are none.
    #[inline]
    pub fn intersect(self, other: Self) -> Self {
        let start = self.start.max(other.start);
        let end = self.end.min(other.end).max(start);
        Self { start, end }
    }

    /// Whether the two share a page.
    #[inline]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.get() < other.end.get() && other.start.get() < self.end.get()
    }

    /// The address of the first byte.
    #[inline]
    pub const fn addr(self, page_shift: u32) -> VirtAddr {
        self.start.addr(page_shift)
    }
}

impl fmt::Debug for PageSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pages {:#x}..{:#x}", self.start.get(), self.end.get())
    }
}

/// Consecutive physical frames, as plain numbers: naming them gives no right to touch them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FrameSpan {
    /// The first frame.
    pub start: Pfn,
    /// How many.
    pub count: u64,
}

impl FrameSpan {
    /// `count` frames from `start`.
    #[inline]
    pub const fn new(start: Pfn, count: u64) -> Self {
        Self { start, count }
    }

    /// The frame after the last.
    #[inline]
    pub const fn end(self) -> Pfn {
        self.start.add(self.count)
    }

    /// Whether `frame` lies within.
    #[inline]
    pub const fn contains(self, frame: Pfn) -> bool {
        self.start.get() <= frame.get() && frame.get() < self.start.get() + self.count
    }

    /// Whether all of `inner` lies within.
    #[inline]
    pub const fn covers(self, inner: Self) -> bool {
        self.start.get() <= inner.start.get()
            && inner.start.get() + inner.count <= self.start.get() + self.count
    }

    /// The span cut into the fewest naturally aligned power-of-two blocks, none larger than
    /// `most`, in ascending order.
    #[inline]
    pub const fn blocks(self, most: Order) -> Blocks {
        Blocks { next: self.start, left: self.count, most }
    }
}

impl fmt::Debug for FrameSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frames {:#x}+{:#x}", self.start.get(), self.count)
    }
}

/// The naturally aligned blocks of a span; see [`FrameSpan::blocks`].
#[derive(Clone, Debug)]
pub struct Blocks {
    next: Pfn,
    left: u64,
    most: Order,
}

impl Iterator for Blocks {
    type Item = (Pfn, Order);

    #[inline]
    fn next(&mut self) -> Option<(Pfn, Order)> {
        let fits = Order::fitting(self.left)?;
        let aligned = self.next.get().trailing_zeros().min(63) as u8;
        let order = Order::new(aligned.min(fits.get()).min(self.most.get()));
        let block = (self.next, order);
        self.next = self.next.add(order.pages());
        self.left -= order.pages();
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fewest blocks: none is above the bound, and no two neighbours could be one.
    #[test]
    fn a_span_is_cut_into_the_fewest_aligned_blocks() {
        let all: [u64; 8] = [0, 1, 5, 63, 64, 1 << 62, 1 << 63, (1 << 63) - 3];
        for (start, count) in all.into_iter().flat_map(|start| all.map(|count| (start, count))) {
            for most in [0, 3, 62, 63].map(Order::new) {
                if start.checked_add(count).is_none() || count >> most.get() > 1 << 10 {
                    continue;
                }
                let (mut at, mut before) = (start, None);
                for (head, order) in FrameSpan::new(Pfn::new(start), count).blocks(most) {
                    assert!(head.get() == at && at.is_multiple_of(order.pages()) && order <= most);
                    let is_one = |(first, of): (u64, Order)| {
                        of == order && of < most && first.is_multiple_of(2 * of.pages())
                    };
                    assert!(
                        !before.is_some_and(is_one),
                        "{start}+{count} up to {most:?}: {head:?}"
                    );
                    before = Some((at, order));
                    at += order.pages();
                }
                assert_eq!(at - start, count, "{start}+{count} up to {most:?}");
            }
        }
    }
}
