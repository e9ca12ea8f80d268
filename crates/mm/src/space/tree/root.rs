//! Where a tree begins.

use quire_units::Pfn;

/// The most levels a tree can have. Nodes other than the root have two entries at least, and those
/// of programs' trees 31, so this is out of reach; it bounds the path that a writer keeps on its
/// stack, and clears for each search.
pub(super) const DEPTH_MAX: usize = 12;

/// The frame of the topmost node and the number of levels, 0 for the empty tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Root {
    pub(super) frame: Pfn,
    pub(super) depth: usize,
}

impl Root {
    pub(super) const EMPTY: Root = Root { frame: Pfn::new(0), depth: 0 };
    const DEPTH_AT: u32 = 56;

    #[inline]
    pub(super) fn of_word(word: u64) -> Self {
        let frame = Pfn::new(word & ((1 << Self::DEPTH_AT) - 1));
        Self { frame, depth: ((word >> Self::DEPTH_AT) as usize).min(DEPTH_MAX) }
    }

    #[inline]
    pub(super) fn word(self) -> u64 {
        self.frame.get() | (self.depth as u64) << Self::DEPTH_AT
    }
}
