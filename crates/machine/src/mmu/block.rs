//! Contiguous blocks: whether neighbouring entries that claim to be one translation are.

use quire_hw::DirectMap;
use quire_units::Pfn;

use super::{Isa, Leaf, Meaning};

/// What the entries of a contiguous block look like together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Block {
    /// All say the same and may be cached as one translation.
    Whole,
    /// Some are absent, or grant something else: on the way to or from a whole block.
    Partial,
    /// They contradict each other about memory or size.
    Torn,
}

/// Looks at the block around entry `index` of a table of `level`, which holds `leaf`.
pub(crate) fn survey(
    isa: Isa,
    ram: &DirectMap<'_>,
    (table, index, level): (Pfn, usize, u8),
    leaf: &Leaf,
) -> Block {
    let entries = 1usize << (leaf.block.get() - leaf.order.get());
    let first = index & !(entries - 1);
    let before = (index - first) as u64 * leaf.order.pages();
    let Some(base) = leaf.frame.get().checked_sub(before) else { return Block::Torn };
    if !Pfn::new(base).is_aligned(leaf.block.pages()) {
        return Block::Torn;
    }
    let mut block = Block::Whole;
    for at in 0..entries {
        let frame = Pfn::new(base).add(at as u64 * leaf.order.pages());
        match isa.decode(ram.load(table, first + at), level, first + at) {
            Meaning::Leaf(other) => {
                let same = (other.frame, other.block, other.memory, other.global)
                    == (frame, leaf.block, leaf.memory, leaf.global);
                if !same {
                    return Block::Torn;
                }
                if other.prot != leaf.prot {
                    block = Block::Partial;
                }
            }
            Meaning::Absent => block = Block::Partial,
            Meaning::Table(_) | Meaning::Malformed(_) => return Block::Torn,
        }
    }
    block
}
