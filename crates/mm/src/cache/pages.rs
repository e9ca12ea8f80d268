//! Consecutive pages of a file.

use quire_units::Order;

/// Consecutive pages of a file, half-open. Page `n` holds the file's bytes from `n` times the size
/// of a base page on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FilePages {
    /// The first page.
    pub start: u64,
    /// The page after the last.
    pub end: u64,
}

impl FilePages {
    /// The pages from `start` up to but not including `end`; none if `end` is not above `start`.
    #[inline]
    pub const fn new(start: u64, end: u64) -> Self {
        Self { start, end: if end < start { start } else { end } }
    }

    /// The aligned block of `order` that holds `page`.
    #[inline]
    pub const fn block(page: u64, order: Order) -> Self {
        let start = page & !(order.pages() - 1);
        Self { start, end: start + order.pages() }
    }

    /// How many.
    #[inline]
    pub const fn count(self) -> u64 {
        self.end - self.start
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether `page` is one of them.
    #[inline]
    pub const fn contains(self, page: u64) -> bool {
        self.start <= page && page < self.end
    }

    /// Whether all of `other` are among them.
    #[inline]
    pub const fn covers(self, other: Self) -> bool {
        other.is_empty() || self.start <= other.start && other.end <= self.end
    }

    /// Those that are in both.
    #[inline]
    #[must_use]
    pub fn intersect(self, other: Self) -> Self {
        Self::new(self.start.max(other.start), self.end.min(other.end))
    }
}
