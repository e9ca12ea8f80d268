//! The tables' current contents, read without a trace: no flag is set, nothing is cached.

use quire_hw::DirectMap;
use quire_units::{Order, Pfn, Prot, Vpn};

use super::{Isa, Meaning};

/// The translation of one page as the tables have it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Fresh {
    /// The tables on the way, from the root, with their levels.
    pub(crate) tables: Vec<(u8, Pfn)>,
    /// The memory at the end of the way, if any.
    pub(crate) memory: Option<FreshLeaf>,
}

/// The end of the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FreshLeaf {
    /// The frame of the page itself.
    pub(crate) frame: Pfn,
    /// The entry's order.
    pub(crate) order: Order,
    /// It is part of a contiguous block.
    pub(crate) joined: bool,
    /// The rights that all levels together grant.
    pub(crate) prot: Prot,
    /// Stores need no record.
    pub(crate) dirty: bool,
}

/// Walks from `root` to `page`.
pub(crate) fn fresh(isa: Isa, ram: &DirectMap<'_>, root: Pfn, page: Vpn) -> Fresh {
    let geometry = isa.geometry();
    let mut seen = Fresh::default();
    let (mut table, mut prot) = (root, Prot::all());
    for level in (0..geometry.levels).rev() {
        seen.tables.push((level, table));
        let index = geometry.index(page, level);
        match isa.decode(ram.load(table, index), level, index) {
            Meaning::Table(lower) => {
                table = lower.frame;
                prot &= lower.limits;
            }
            Meaning::Leaf(leaf) => {
                let within = page.get() & (leaf.order.pages() - 1);
                seen.memory = Some(FreshLeaf {
                    frame: leaf.frame.add(within),
                    order: leaf.order,
                    joined: leaf.is_contiguous(),
                    prot: prot & leaf.prot,
                    dirty: leaf.dirty,
                });
                break;
            }
            Meaning::Absent | Meaning::Malformed(_) => break,
        }
    }
    seen
}
