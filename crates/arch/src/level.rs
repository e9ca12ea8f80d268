//! Levels of a page table.

use core::fmt;

/// A level of a page table, counted up from the last: its entries map base pages.
///
/// It is a type and not a number, since manuals disagree about the direction in which levels count.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Level(u8);

impl Level {
    /// The level whose entries map base pages.
    pub const LAST: Level = Level(0);

    /// The level `height` above the last.
    #[inline]
    pub const fn new(height: u8) -> Self {
        Self(height)
    }

    /// How far above the last level, as an index into [`Arch::LEVELS`](crate::Arch::LEVELS).
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The level below, whose tables this one's entries point at; `None` at the last.
    #[inline]
    pub const fn child(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// The level above. The caller knows that this is not the root.
    #[inline]
    pub const fn parent(self) -> Self {
        Self(self.0 + 1)
    }

    /// Whether entries of this level map base pages.
    #[inline]
    pub const fn is_last(self) -> bool {
        self.0 == 0
    }

    /// Whether this level lies above `other`.
    #[inline]
    pub const fn is_above(self, other: Self) -> bool {
        self.0 > other.0
    }
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "level +{}", self.0)
    }
}

/// The shape of one level of a page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LevelShape {
    /// The base-two logarithm of the number of entries in a table.
    pub index_bits: u8,
    /// Whether an entry may map memory.
    pub leaf: bool,
    /// The base-two logarithm of how many neighbouring leaves the hardware may take as one
    /// translation when told so (arm64's contiguous hint, riscv64's Svnapot); 0 for none.
    pub contiguous: u8,
}
