//! The tree itself: its root, its sequence number, and the views of it.

use quire_units::{PageSpan, Pfn};

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// How many entries a node has room for: header, keys and records fill 509 of 512 words.
pub const NODE_ENTRIES: usize = 127;

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

/// The areas of one address space. Its nodes belong to it: remove all areas and
/// [`unstock`](super::TreeWriter::unstock) before dropping it, or the frames are lost.
///
/// `CAP` is the capacity of a node, 3 to `NODE_ENTRIES`; other values than the default serve
/// tests that want deep trees of few areas.
#[derive(Debug, Default)]
pub struct AreaTree<const CAP: usize = NODE_ENTRIES> {
    /// Odd while the tree is being changed; see the module's drawing.
    pub(super) seq: AtomicU64,
    /// [`Root`], in one word so that frame and depth always fit together.
    pub(super) root: AtomicU64,
    /// How many areas.
    pub(super) count: AtomicU64,
    /// 1 while a writer exists; the fields below are the writer's.
    pub(super) writing: AtomicU32,
    /// Start and end of the pages that a writer holds: no reading of them is current.
    pub(super) held: [AtomicU64; 2],
    /// 1 since pages of an area that shows something by number were taken out, until
    /// [`Space::take_hidden`](crate::Space::take_hidden) asks.
    pub(super) hid: AtomicU32,
    /// The first spare node: its index in the metadata plus one, 0 for none. Spares are linked
    /// through `links[0]` of their slots, in the same way.
    pub(super) spare: AtomicU32,
    /// How many spares.
    pub(super) spares: AtomicU64,
}

crate::sync::names!([const CAP: usize] AreaTree<CAP>, "space.areas" {
    seq, root, count, writing, held, hid, spare, spares
});

/// A moment in the life of a tree: two readings with the same number saw the same tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seq(pub(super) u64);

impl Seq {
    /// Its number, which is even.
    #[inline]
    pub(in crate::space) fn number(self) -> u64 {
        self.0
    }
}

impl<const CAP: usize> AreaTree<CAP> {
    /// The fewest entries of a node other than the root. A quarter, not half: a node that overflows
    /// at its end is cut three to one, so areas that are mapped in order leave full nodes behind.
    pub(super) const MIN: usize = if CAP / 4 > 2 { CAP / 4 } else { 2 };

    /// The tree without areas, which has no frames.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many areas there are.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether the tree is unchanged since the reading that gave `seq`, and no writer
    /// [holds](super::TreeWriter::hold) a page of `pages`, on which the reader is about to act.
    ///
    /// To act on a reading, take a lock that every change of the tree takes afterwards, and ask
    /// then: a fault locks the page table it is about to write, asks, writes and unlocks; an unmap
    /// changes the tree first and locks that table afterwards. If the fault was first, the unmap
    /// finds its entry. If the unmap was first, the fault sees the new number through the lock.
    #[inline]
    pub fn is_current(&self, seq: Seq, pages: PageSpan) -> bool {
        !self.is_held(pages) && self.seq.load(Ordering::Acquire) == seq.0
    }

    /// The moment with this number, if no change has begun since.
    #[inline(always)]
    pub(in crate::space) fn at_moment(&self, number: u64) -> Option<Seq> {
        (self.seq.load(Ordering::Acquire) == number).then_some(Seq(number))
    }

    /// Whether a writer holds a page of `pages`; see [`TreeWriter::hold`](super::TreeWriter::hold).
    #[inline]
    pub fn is_held(&self, pages: PageSpan) -> bool {
        let [start, end] = &self.held;
        end.load(Ordering::Acquire) > pages.start.get()
            && start.load(Ordering::Acquire) < pages.end.get()
    }

    /// See [`Space::take_hidden`](crate::Space::take_hidden).
    #[inline]
    pub(in crate::space) fn take_hid(&self) -> bool {
        // Acquire: the answer comes after the change that it tells of has begun, so a reading that
        // follows waits for its end.
        self.hid.load(Ordering::Relaxed) != 0 && self.hid.swap(0, Ordering::Acquire) != 0
    }

    #[inline]
    pub(super) fn root(&self) -> Root {
        Root::of_word(self.root.load(Ordering::Acquire))
    }

    #[inline]
    pub(super) fn set_root(&self, root: Root) {
        self.root.store(root.word(), Ordering::Release);
    }
}
