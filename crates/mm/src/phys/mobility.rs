//! Whether frames can move, and the groups of frames that can, or cannot.

use quire_units::{FrameSpan, Pfn};

use crate::limits::{GROUP_ORDER, POOLS_MAX};

/// Whether frames in use can move to others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mobility {
    /// They are mapped by page tables, or belong to a file: the library can move them.
    Movable,
    /// They stay until memory is reclaimed: the indices of files.
    Reclaimable,
    /// They stay until their owner frees them: page tables, area nodes, and all that the embedder
    /// takes.
    Unmovable,
    /// Their group is being emptied: what is free in it stays free.
    Isolated,
    /// Their group belongs to a pool of reserved folios: what is free in it is for that pool.
    Reserved(PoolId),
}

/// The number of a pool of reserved folios, below [`POOLS_MAX`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolId(pub(crate) u8);

/// How many bits name a mobility.
pub(super) const MOBILITY_BITS: u32 = 3;

/// How many mobilities there are,
pub(super) const MOBILITIES: usize = PLAIN + POOLS_MAX;
/// those of the pools not counted: the free frames of these are free for all.
pub(super) const PLAIN: usize = 4;

const _: () = assert!(MOBILITIES <= 1 << MOBILITY_BITS);

impl Mobility {
    /// All, in the order of their numbers.
    pub const ALL: [Mobility; MOBILITIES] = {
        let mut all = [Self::Movable; MOBILITIES];
        let mut at = 0;
        while at < MOBILITIES {
            all[at] = Self::of(at as u32);
            at += 1;
        }
        all
    };

    /// The mobility that the low bits of `word` name.
    #[inline]
    pub(super) const fn of(word: u32) -> Self {
        match word & ((1 << MOBILITY_BITS) - 1) {
            0 => Self::Movable,
            1 => Self::Reclaimable,
            2 => Self::Unmovable,
            3 => Self::Isolated,
            pool => Self::Reserved(PoolId((pool - PLAIN as u32) as u8)),
        }
    }

    #[inline]
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Movable => 0,
            Self::Reclaimable => 1,
            Self::Unmovable => 2,
            Self::Isolated => 3,
            Self::Reserved(pool) => PLAIN + pool.0 as usize,
        }
    }

    #[inline]
    pub(super) const fn is_reserved(self) -> bool {
        POOLS_MAX != 0 && matches!(self, Self::Reserved(_))
    }

    /// The groups that lend frames where those of this mobility have none, the best first.
    pub(super) const fn lenders(self) -> [Mobility; 2] {
        match self {
            Self::Movable => [Self::Reclaimable, Self::Unmovable],
            Self::Reclaimable => [Self::Unmovable, Self::Movable],
            Self::Unmovable | Self::Isolated | Self::Reserved(_) => {
                [Self::Reclaimable, Self::Movable]
            }
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
