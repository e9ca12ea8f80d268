//! From slots to entries: a radix tree in lent pages.
//!
//! ```text
//!   inner node   a number of a page for each child, 4 bytes, zero for none
//!   leaf         an entry for each slot, 16 bytes, zero for none
//! ```
//!
//! With pages of 4 KiB a leaf has 256 entries and an inner node 1024 children; with larger pages
//! more. The height follows from the number of slots. A node without entries is given back, so an
//! empty tree has no page. Slots are counted from the pool's first one here.

use crate::entry::{ENTRY_BYTES, Entry};
use crate::words::{get32, is_zero, put32};
use crate::{Config, Lender, PageId};

/// Levels above the leaves that 2^44 slots can need, with some to spare.
const LEVELS_MAX: usize = 6;

/// Bytes of a child's number.
const CHILD_BYTES: usize = 4;

/// The tree of one pool.
#[derive(Debug)]
pub(crate) struct Tree {
    root: Option<PageId>,
    /// Levels of inner nodes.
    levels: u32,
    /// The base-two logarithm of a leaf's entries.
    leaf_shift: u32,
    /// The base-two logarithm of an inner node's children.
    fan_shift: u32,
    slots: u64,
    /// How many pages it has.
    pub(crate) pages: u64,
}

impl Tree {
    /// An empty tree.
    pub(crate) fn new(config: &Config) -> Self {
        let leaf_shift = config.page_shift - ENTRY_BYTES.ilog2();
        let fan_shift = config.page_shift - CHILD_BYTES.ilog2();
        let bits = u64::BITS - (config.slots - 1).leading_zeros();
        let levels = bits.saturating_sub(leaf_shift).div_ceil(fan_shift);
        Self { root: None, levels, leaf_shift, fan_shift, slots: config.slots, pages: 0 }
    }

    /// How many pages `count` slots need at most, beginning anywhere.
    pub(crate) fn pages_max(&self, count: u64) -> u64 {
        let mut nodes = count;
        let mut total = 0;
        for level in 0..=self.levels {
            let shift = if level == 0 { self.leaf_shift } else { self.fan_shift };
            nodes = (nodes >> shift) + 2;
            total += if level == self.levels { 1 } else { nodes };
        }
        total
    }

    /// The first slot behind the leaf that has `slot`.
    pub(crate) fn leaf_end(&self, slot: u64) -> u64 {
        ((slot >> self.leaf_shift) + 1) << self.leaf_shift
    }

    /// The entry of a slot.
    #[inline]
    pub(crate) fn get(&self, lender: &impl Lender, slot: u64) -> Entry {
        match self.leaf(lender, slot) {
            Some(leaf) => Entry::read(lender.bytes(leaf), self.entry_at(slot)),
            None => Entry::Empty,
        }
    }

    /// Changes the entries of the slots from `first` to `end`, exclusive, where it has leaves.
    pub(crate) fn fill(&self, lender: &mut impl Lender, first: u64, end: u64, entry: Entry) {
        let mut slot = first;
        while slot < end {
            let stop = self.leaf_end(slot).min(end);
            if let Some(leaf) = self.leaf(lender, slot) {
                let leaf = lender.bytes_mut(leaf);
                (slot..stop).for_each(|slot| entry.write(leaf, self.entry_at(slot)));
            }
            slot = stop;
        }
    }

    /// Makes the leaves of the slots from `first` to `end`, exclusive; `None` when the lender has
    /// no page. Some may have been made then; [`prune`](Self::prune) takes them away.
    pub(crate) fn grow(&mut self, lender: &mut impl Lender, first: u64, end: u64) -> Option<()> {
        let mut slot = first;
        while slot < end {
            self.grow_path(lender, slot)?;
            slot = self.leaf_end(slot);
        }
        Some(())
    }

    fn grow_path(&mut self, lender: &mut impl Lender, slot: u64) -> Option<()> {
        let mut node = match self.root {
            Some(root) => root,
            None => *self.root.insert(new_node(lender, &mut self.pages)?),
        };
        for level in (0..self.levels).rev() {
            let at = self.child_at(slot, level);
            node = match PageId::new(get32(lender.bytes(node), at)) {
                Some(child) => child,
                None => {
                    let child = new_node(lender, &mut self.pages)?;
                    put32(lender.bytes_mut(node), at, child.number());
                    child
                }
            };
        }
        Some(())
    }

    /// Gives back the empty nodes among those of the slots from `first` to `end`, exclusive.
    pub(crate) fn prune(&mut self, lender: &mut impl Lender, first: u64, end: u64) {
        let mut slot = first;
        while let Some(leaf) = self.next_leaf(lender, slot).filter(|&leaf| leaf < end) {
            self.prune_path(lender, leaf);
            slot = self.leaf_end(leaf);
        }
        // A failed `grow` may leave inner nodes without a leaf.
        self.prune_path(lender, first);
        self.prune_path(lender, end - 1);
    }

    fn prune_path(&mut self, lender: &mut impl Lender, slot: u64) {
        let mut path = [None; LEVELS_MAX + 1];
        path[self.levels as usize] = self.root;
        for level in (0..self.levels).rev() {
            let Some(node) = path[level as usize + 1] else { continue };
            path[level as usize] =
                PageId::new(get32(lender.bytes(node), self.child_at(slot, level)));
        }
        for level in 0..=self.levels {
            let Some(node) = path[level as usize] else { continue };
            let bytes = lender.bytes(node);
            if bytes.is_empty() || !is_zero(bytes) {
                return;
            }
            match path.get(level as usize + 1).copied().flatten() {
                Some(parent) => put32(lender.bytes_mut(parent), self.child_at(slot, level), 0),
                None => self.root = None,
            }
            lender.give(node);
            self.pages -= 1;
        }
    }

    /// The first slot from `slot` on that has a leaf; `None` when there is none.
    pub(crate) fn next_leaf(&self, lender: &impl Lender, slot: u64) -> Option<u64> {
        let mut slot = slot;
        while slot < self.slots {
            match self.descend(lender, slot) {
                Ok(_) => return Some(slot),
                Err(next) => slot = next,
            }
        }
        None
    }

    fn leaf(&self, lender: &impl Lender, slot: u64) -> Option<PageId> {
        self.descend(lender, slot).ok()
    }

    /// The leaf of a slot, or else the first slot behind the missing subtree.
    #[inline]
    fn descend(&self, lender: &impl Lender, slot: u64) -> Result<PageId, u64> {
        let root = self.root.filter(|_| slot < self.slots);
        let mut node = root.ok_or(u64::MAX)?;
        for level in (0..self.levels).rev() {
            let child = PageId::new(get32(lender.bytes(node), self.child_at(slot, level)));
            let shift = self.leaf_shift + level * self.fan_shift;
            node = child.ok_or(((slot >> shift) + 1) << shift)?;
        }
        Ok(node)
    }

    fn entry_at(&self, slot: u64) -> usize {
        (slot & ((1 << self.leaf_shift) - 1)) as usize * ENTRY_BYTES
    }

    /// The place in a node one above `level` of the child at `level` that leads to `slot`.
    fn child_at(&self, slot: u64, level: u32) -> usize {
        let index = slot >> (self.leaf_shift + level * self.fan_shift);
        (index & ((1 << self.fan_shift) - 1)) as usize * CHILD_BYTES
    }
}

fn new_node(lender: &mut impl Lender, pages: &mut u64) -> Option<PageId> {
    let page = lender.take()?;
    lender.bytes_mut(page).fill(0);
    *pages += 1;
    Some(page)
}
