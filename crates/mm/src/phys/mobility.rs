//! Whether frames can move, and the groups of frames that can, or cannot.

use quire_units::{FrameSpan, Pfn};

use crate::limits::GROUP_ORDER;

/// Whether frames in use can move to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Mobility {
    /// They are mapped by page tables, or belong to a file: the library can move them.
    Movable = 0,
    /// They stay until memory is reclaimed: the indices of files.
    Reclaimable = 1,
    /// They stay until their owner frees them: page tables, area nodes, and all that the embedder
    /// takes.
    Unmovable = 2,
    /// Their group is being emptied: what is free in it stays free.
    Isolated = 3,
}

/// How many mobilities there are.
pub(super) const MOBILITIES: usize = 4;

impl Mobility {
    /// All, in the order of their numbers.
    pub const ALL: [Mobility; MOBILITIES] =
        [Self::Movable, Self::Reclaimable, Self::Unmovable, Self::Isolated];

    /// The mobility that the low bits of `word` name.
    #[inline]
    pub(super) fn of(word: u32) -> Self {
        match word & 3 {
            0 => Self::Movable,
            1 => Self::Reclaimable,
            2 => Self::Unmovable,
            _ => Self::Isolated,
        }
    }

    #[inline]
    pub(super) const fn index(self) -> usize {
        self as usize
    }

    /// The groups that lend frames where those of this mobility have none, the best first.
    pub(super) const fn lenders(self) -> [Mobility; 2] {
        match self {
            Self::Movable => [Self::Reclaimable, Self::Unmovable],
            Self::Reclaimable => [Self::Unmovable, Self::Movable],
            Self::Unmovable | Self::Isolated => [Self::Reclaimable, Self::Movable],
        }
    }
}

/// How often frames came from a group of another mobility, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Borrowed {
    /// Blocks taken from a group of another mobility.
    pub blocks: u64,
    /// Groups that changed their mobility by that.
    pub groups: u64,
}

/// The groups that lie wholly in `zone`.
pub(super) const fn groups_of(zone: FrameSpan) -> FrameSpan {
    let size = GROUP_ORDER.pages();
    let start = zone.start.get().div_ceil(size).saturating_mul(size);
    // A span that no memory has is refused later: see `Phys::new`.
    let end = zone.start.get().saturating_add(zone.count) / size * size;
    FrameSpan::new(Pfn::new(start), end.saturating_sub(start))
}
