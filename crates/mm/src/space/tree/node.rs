//! Nodes: their layout, searching them, and moving entries about.

use core::hint::select_unpredictable;
use core::ops::Range;

use quire_hw::{Hardware, TableFrame};
use quire_units::{Pfn, Vpn};

use super::areas::{AreaTree, NODE_ENTRIES, Root};
use super::entry::Entry;
use crate::phys::Meta;
use crate::space::area::{Area, SHOWS, TERMS};

/// The reading view of a tree. Each answer is that of one moment, which its
/// [`Seq`](super::Seq) names.
pub struct TreeReader<'a, H, const CAP: usize = NODE_ENTRIES> {
    pub(super) tree: &'a AreaTree<CAP>,
    pub(super) hw: &'a H,
    pub(super) meta: Meta<'a>,
}

impl<H, const CAP: usize> Clone for TreeReader<'_, H, CAP> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<H, const CAP: usize> Copy for TreeReader<'_, H, CAP> {}

/// One node as a reader sees it. Every number in it may be garbage, but `count` is in bounds.
pub(super) struct Node<'a, H, const CAP: usize> {
    hw: &'a H,
    pub(super) frame: Pfn,
    pub(super) count: usize,
}

const KEYS: usize = 1;
const RECORD: usize = 3;

impl<H: Hardware, const CAP: usize> Node<'_, H, CAP> {
    #[inline]
    pub(super) fn key(&self, at: usize) -> u64 {
        self.hw.load(self.frame, KEYS + at)
    }

    /// Word 1 to 3 of entry `at`.
    #[inline]
    fn word(&self, at: usize, word: usize) -> u64 {
        self.hw.load(self.frame, KEYS + CAP + RECORD * at + word - 1)
    }

    #[inline]
    pub(super) fn end(&self, at: usize) -> u64 {
        self.word(at, 1)
    }

    #[inline]
    pub(super) fn child(&self, at: usize) -> Pfn {
        Pfn::new(self.word(at, 2))
    }

    /// Whether area `at` shows a file or frames, by number.
    #[inline]
    pub(super) fn shows(&self, at: usize) -> bool {
        self.word(at, TERMS) & SHOWS != 0
    }

    /// The largest gap inside child `at` of an inner node.
    #[inline]
    pub(super) fn gap(&self, at: usize) -> u64 {
        self.word(at, 3)
    }

    #[inline]
    pub(super) fn entry(&self, at: usize) -> Entry {
        let mut record = [0; RECORD];
        self.hw.load_words(self.frame, KEYS + CAP + RECORD * at, &mut record);
        let [end, terms, shown] = record;
        Entry([self.key(at), end, terms, shown])
    }

    /// How many entries begin at `page` or before. No branch depends on a key, since none would be
    /// predicted: each step is a load and a conditional move.
    #[inline]
    pub(super) fn rank(&self, page: u64) -> usize {
        if self.count == 0 {
            return 0;
        }
        let mut base = 0;
        let mut size = self.count;
        while size > 1 {
            let half = size / 2;
            base = select_unpredictable(self.key(base + half) <= page, base + half, base);
            size -= half;
        }
        base + usize::from(self.key(base) <= page)
    }

    /// The first entry that ends after `page`.
    #[inline]
    pub(super) fn seek(&self, page: u64) -> Option<usize> {
        let rank = self.rank(page);
        let at = if rank > 0 && self.end(rank - 1) > page { rank - 1 } else { rank };
        (at < self.count).then_some(at)
    }

    /// The summary of a node with entries. The entries of a `leaf` have no gaps inside.
    pub(super) fn summary(&self, leaf: bool) -> Entry {
        self.summary_with(self.largest_gap(0, self.count, leaf))
    }

    /// The same, where the largest gap is known.
    pub(super) fn summary_with(&self, gap: u64) -> Entry {
        Entry([self.key(0), self.end(self.count - 1), self.frame.get(), gap])
    }

    /// The largest gap in and between the entries `from` up to but not including `to`.
    pub(super) fn largest_gap(&self, from: usize, to: usize, leaf: bool) -> u64 {
        let inside = |at| if leaf { 0 } else { self.gap(at) };
        let mut gap = inside(from);
        let mut end = self.end(from);
        for at in from + 1..to {
            gap = gap.max(self.key(at).saturating_sub(end)).max(inside(at));
            end = self.end(at);
        }
        gap
    }
}

impl<'a, H: Hardware, const CAP: usize> TreeReader<'a, H, CAP> {
    /// The node in `frame`; `None` if there is no such frame.
    #[inline]
    pub(super) fn node(&self, frame: Pfn) -> Option<Node<'a, H, CAP>> {
        self.meta.slot(frame)?;
        let count = (self.hw.load(frame, 0) as usize).min(CAP);
        Some(Node { hw: self.hw, frame, count })
    }

    /// Goes down to a leaf by the entries that `pick` chooses, which gets each level and its node;
    /// returns the area there.
    #[inline]
    pub(super) fn descend(
        &self,
        mut pick: impl FnMut(usize, &Node<'a, H, CAP>) -> Option<usize>,
    ) -> Option<Area> {
        let Root { mut frame, depth: mut level } = self.tree.root();
        while level > 0 {
            level -= 1;
            let node = self.node(frame)?;
            let at = pick(level, &node)?;
            if level == 0 {
                return node.entry(at).area();
            }
            frame = node.child(at);
        }
        None
    }

    /// The first area that ends after `page`.
    #[inline(never)]
    pub(super) fn seek(&self, page: Vpn) -> Option<Area> {
        let (node, at) = self.leaf(page.get(), |_, _| {})?;
        node.entry(at).area()
    }

    /// The leaf and place of the first area that ends after `page`; `tell` gets the way there.
    #[inline(always)]
    pub(super) fn leaf(
        &self,
        page: u64,
        mut tell: impl FnMut(Pfn, usize),
    ) -> Option<(Node<'a, H, CAP>, usize)> {
        let Root { mut frame, depth } = self.tree.root();
        let mut leaf = None;
        for _ in 0..depth {
            let node = self.node(frame)?;
            let at = node.seek(page)?;
            tell(frame, at);
            frame = node.child(at);
            leaf = Some((node, at));
        }
        leaf
    }

    /// How many entries the node in `frame` has.
    #[inline]
    pub(super) fn count(&self, frame: Pfn) -> usize {
        self.node(frame).map_or(0, |node| node.count)
    }

    /// The same as stored, without a bound.
    pub(super) fn raw_count(&self, frame: Pfn) -> u64 {
        self.hw.load(frame, 0)
    }
}

/// The right to write one node.
pub(super) struct Page<'a, H, const CAP: usize> {
    pub(super) hw: &'a H,
    pub(super) table: &'a TableFrame,
}

impl<H: Hardware, const CAP: usize> Page<'_, H, CAP> {
    #[inline]
    pub(super) fn put(&self, at: usize, entry: Entry) {
        debug_assert!(at < CAP);
        let [key, record @ ..] = entry.0;
        self.hw.fill(self.table, KEYS + at, 1, key, 0);
        self.hw.store_words(self.table, KEYS + CAP + RECORD * at, &record);
    }

    #[inline]
    pub(super) fn set_count(&self, count: usize) {
        debug_assert!(count <= CAP);
        self.hw.fill(self.table, 0, 1, count as u64, 0);
    }

    /// Copies the entries `from` of `node`, which may be this one, to entry `to` and the next ones.
    #[inline]
    pub(super) fn copy(&self, node: Pfn, from: Range<usize>, to: usize) {
        let old = Node::<H, CAP> { hw: self.hw, frame: node, count: CAP };
        let copy = |at| self.put(to + at, old.entry(from.start + at));
        // The last entry first, where the places may overlap.
        if node == self.table.frame() && to > from.start {
            (0..from.len()).rev().for_each(copy);
        } else {
            (0..from.len()).for_each(copy);
        }
    }
}
