//! Contiguous blocks: whether neighbouring entries that claim to be one translation really are.
//!
//! Sources: Arm ARM (DDI 0487) D8.7.1 "The Contiguous bit"; RISC-V Privileged Architecture,
//! "Svnapot". Accessed and dirty flags are no part of the comparison: hardware sets them in any
//! entry of a block, and they stand for all of it.

use quire_hw::DirectMap;
use quire_units::Pfn;

use super::{Flaw, Isa, Leaf, Meaning};

/// Findings about the entries of a contiguous block. All `false` is a whole block, which may be
/// cached as one translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Block {
    /// The memory does not begin at a multiple of the block's size.
    pub(crate) misaligned: bool,
    /// An entry leads to other memory than the block implies, to memory of another type, or to a
    /// table.
    pub(crate) torn: bool,
    /// An entry is absent.
    pub(crate) partial: bool,
    /// An entry grants other rights.
    pub(crate) uneven: bool,
    /// An entry is not marked contiguous.
    pub(crate) mixed: bool,
}

impl Block {
    pub(crate) fn is_whole(self) -> bool {
        self == Self::default()
    }

    /// The gravest flaw.
    pub(crate) fn flaw(self) -> Option<Flaw> {
        if self.misaligned {
            Some(Flaw::BlockMisaligned)
        } else if self.torn {
            Some(Flaw::BlockTorn)
        } else if self.mixed {
            Some(Flaw::BlockMixed)
        } else if self.partial {
            Some(Flaw::BlockPartial)
        } else {
            self.uneven.then_some(Flaw::BlockUneven)
        }
    }

    /// The gravest flaw that is forbidden even in the middle of an operation: on arm64 the
    /// contiguous mark of a valid entry, and its memory, change by break-before-make. FEAT_BBM
    /// level 2 (`relaxed`) exempts the mark alone. On riscv64 old and new words may stand side by
    /// side until the flush.
    pub(crate) fn flaw_on_the_way(self, isa: Isa, relaxed: bool) -> Option<Flaw> {
        if !isa.breaks_before_make() {
            return None;
        }
        let mixed = self.mixed && !relaxed;
        Self { partial: false, uneven: false, mixed, ..self }.flaw()
    }

    /// The gravest flaw at a flush by the operation that changes the block. Translations cached
    /// after the flush must be right for good, so only the mark itself may still be changing.
    pub(crate) fn flaw_at_flush(self, isa: Isa, relaxed: bool) -> Option<Flaw> {
        let mixed = self.mixed && isa.breaks_before_make() && !relaxed;
        Self { mixed, ..self }.flaw()
    }

    /// Compares a neighbour with the entry that `claim`, at its place, implies.
    pub(crate) fn compare(claim: &Leaf, frame: Pfn, neighbour: Meaning) -> Self {
        match neighbour {
            Meaning::Leaf(other) => {
                let same = (other.frame, other.order, other.memory, other.global)
                    == (frame, claim.order, claim.memory, claim.global);
                Self {
                    torn: !same,
                    uneven: (other.prot, other.rest) != (claim.prot, claim.rest),
                    mixed: other.block != claim.block,
                    ..Self::default()
                }
            }
            Meaning::Absent => Self { partial: true, ..Self::default() },
            Meaning::Table(_) | Meaning::Malformed(_) => Self { torn: true, ..Self::default() },
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            misaligned: self.misaligned | other.misaligned,
            torn: self.torn | other.torn,
            partial: self.partial | other.partial,
            uneven: self.uneven | other.uneven,
            mixed: self.mixed | other.mixed,
        }
    }
}

/// Looks at the block around entry `index` of a table of `level`. The entry holds `leaf`, which is
/// marked contiguous.
pub(crate) fn survey(
    isa: Isa,
    ram: &DirectMap<'_>,
    (table, index, level): (Pfn, usize, u8),
    leaf: &Leaf,
) -> Block {
    let entries = 1usize << (leaf.block.get() - leaf.order.get());
    let first = index & !(entries - 1);
    let before = (index - first) as u64 * leaf.order.pages();
    let misaligned = Block { misaligned: true, ..Block::default() };
    let Some(base) = leaf.frame.get().checked_sub(before) else { return misaligned };
    let start =
        if Pfn::new(base).is_aligned(leaf.block.pages()) { Block::default() } else { misaligned };
    (0..entries).fold(start, |block, at| {
        let frame = Pfn::new(base).add(at as u64 * leaf.order.pages());
        let meaning = isa.decode(ram.load(table, first + at), level, first + at);
        block.and(Block::compare(leaf, frame, meaning))
    })
}
