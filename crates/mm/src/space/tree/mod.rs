//! The area tree: the areas of one address space, in order, none overlapping another (row E3).
//!
//! A B+-tree whose nodes are frames. Leaves hold areas, inner nodes hold a summary of each child:
//! where its first area begins, where its last one ends, and the largest gap between two areas
//! inside it. So one descent answers *which area holds this page*, *which is the next*, and *where
//! are N free pages*. Both kinds of node have one layout, in the first 4 KiB of a frame:
//!
//! ```text
//! word 0      how many entries
//! 1..128      keys        first page of entry 0, 1, 2, …           compact: searching touches few lines
//! 128..509    records     3 words each
//!             leaf        end       rights, flags, object id       object page      (see `area`)
//!             inner       end       frame of the child             largest gap inside
//! ```
//!
//! Gaps *between* two children follow from the end of one and the key of the next, and are nowhere
//! stored; a change of an area therefore touches the path to it and nothing beside it.
//!
//! # Reading without a lock
//! Faults read while at most one writer writes. `seq` is odd while the tree is being changed, and
//! a reader that finds another number after reading than before throws its answer away:
//!
//! ```text
//! writer                                  reader
//! W1  seq ← odd, then a release fence     R1  seq → s, acquire; again if odd
//! W2  write words (release)               R2  read root and words (acquire)
//! W3  seq ← even (release)                R3  seq → t; the answer stands if t = s
//! ```
//!
//! * If R2 reads anything that W2 wrote, that acquire load saw a release store, so R3 sees W1 or
//!   something newer: `t ≠ s`. Hence a standing answer has read nothing of a change that began
//!   after R1.
//! * If R1 reads what W3 wrote, it sees all of W2. Hence a standing answer has read the whole of
//!   each change that ended before R1. Together: the tree as it was at one moment.
//! * R3 stays behind R2 because the loads of R2 acquire.
//! * A node that a change gives up may leave the tree's hands and be anything, a cleared folio
//!   even, while a reader still reads it. Its new owner got it from the writer, after W1, and the
//!   fence orders W1 before every later store, plain ones included: whoever reads such a store
//!   fails at R3. W1 is an exchange, which on x86-64 also orders it before non-temporal stores.
//!   So nodes are freed at once, and nobody waits for readers.
//! * Until R3 a reader holds garbage. It bounds every index, follows only frames that exist, and
//!   goes down a fixed number of levels; the words mean no memory (see `area`).
//!
//! # Writing
//! The tree allocates nothing. A writer asks what it [`lacks`](TreeWriter::lacks),
//! [`stock`](TreeWriter::stock)s that many frames, and then no change can fail; each high-level
//! operation checks first and changes either all or nothing. Nodes that fall free go to the same
//! stock, from which [`unstock`](TreeWriter::unstock) hands them back.

mod node;
mod read;
mod gap;
mod write;
mod insert;
mod remove;
mod edit;
mod check;

pub use check::{TreeStats, TreeViolation};
pub use edit::EditError;
pub use gap::Placement;
pub use read::{Overlapping, TreeReader};
pub use write::TreeWriter;

use quire_hw::Hardware;
use quire_units::Pfn;

use crate::phys::Meta;
use crate::sync::{AtomicU32, AtomicU64, Ordering, spin_loop};

/// How many entries a node has room for: header, keys and records fill 509 of 512 words.
pub const NODE_ENTRIES: usize = 127;

/// The most levels a tree can have. Nodes other than the root have two entries at least, and full
/// ones many, so this is out of reach; it bounds the path that a writer keeps on its stack.
const DEPTH_MAX: usize = 24;

/// The areas of one address space. Its nodes belong to it: remove all areas and
/// [`unstock`](TreeWriter::unstock) before dropping it, or the frames are lost.
///
/// `CAP` is the capacity of a node, 3 to [`NODE_ENTRIES`]; other values than the default serve
/// tests that want deep trees of few areas.
#[derive(Debug)]
pub struct AreaTree<const CAP: usize = NODE_ENTRIES> {
    /// Odd while the tree is being changed; see the module's drawing.
    seq: AtomicU64,
    /// [`Root`], in one word so that frame and depth always fit together.
    root: AtomicU64,
    /// How many areas.
    count: AtomicU64,
    /// 1 while a writer exists; all below is the writer's.
    writing: AtomicU32,
    /// 1 while a writer holds all readings for out of date.
    held: AtomicU32,
    /// The first spare node: its index in the metadata plus one, 0 for none. Spares are linked
    /// through `links[0]` of their slots, in the same way.
    spare: AtomicU32,
    /// How many spares.
    spares: AtomicU64,
}

/// A moment in the life of a tree: two readings with the same number saw the same tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seq(u64);

/// The frame of the topmost node and the number of levels, 0 for the empty tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Root {
    frame: Pfn,
    depth: usize,
}

impl Root {
    const EMPTY: Root = Root { frame: Pfn::new(0), depth: 0 };
    const DEPTH_AT: u32 = 56;

    #[inline]
    fn of_word(word: u64) -> Self {
        let frame = Pfn::new(word & ((1 << Self::DEPTH_AT) - 1));
        Self { frame, depth: ((word >> Self::DEPTH_AT) as usize).min(DEPTH_MAX) }
    }

    #[inline]
    fn word(self) -> u64 {
        self.frame.get() | (self.depth as u64) << Self::DEPTH_AT
    }
}

impl<const CAP: usize> AreaTree<CAP> {
    /// The fewest entries of a node other than the root. A quarter, not half: a node that overflows
    /// at its end is cut three to one, so that areas mapped in order leave full nodes behind.
    const MIN: usize = if CAP / 4 > 2 { CAP / 4 } else { 2 };

    const FITS: () = assert!(CAP >= 3 && CAP <= NODE_ENTRIES);

    /// The tree without areas, which has no frames.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        const { Self::FITS };
        Self {
            seq: AtomicU64::new(0),
            root: AtomicU64::new(0),
            count: AtomicU64::new(0),
            writing: AtomicU32::new(0),
            held: AtomicU32::new(0),
            spare: AtomicU32::new(0),
            spares: AtomicU64::new(0),
        }
    }

    /// The tree without areas, which has no frames.
    #[cfg(loom)]
    pub fn new() -> Self {
        const { Self::FITS };
        Self {
            seq: AtomicU64::new(0),
            root: AtomicU64::new(0),
            count: AtomicU64::new(0),
            writing: AtomicU32::new(0),
            held: AtomicU32::new(0),
            spare: AtomicU32::new(0),
            spares: AtomicU64::new(0),
        }
    }

    /// How many areas there are.
    #[inline]
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether nothing has changed since the reading that gave `seq`.
    ///
    /// To act on what was read, take the lock under which the act is seen by those who change the
    /// tree, and ask then: a fault locks the page table it is about to write, asks, writes and
    /// unlocks; an unmap changes the tree first and locks that table afterwards. If the fault was
    /// first, the unmap finds its entry; if the unmap was, the lock carries the new number over.
    #[inline]
    pub fn is_current(&self, seq: Seq) -> bool {
        !self.is_held() && self.seq.load(Ordering::Acquire) == seq.0
    }

    /// Whether a writer holds all readings for out of date; see [`TreeWriter::hold`].
    #[inline]
    pub fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire) != 0
    }

    /// The reading view, with the memory that the nodes lie in: the same for the whole life of the
    /// tree. Cheap to make; takes no lock.
    #[inline]
    pub fn reader<'a, H: Hardware>(&'a self, hw: &'a H, meta: Meta<'a>) -> TreeReader<'a, H, CAP> {
        TreeReader::new(self, node::Nodes::new(hw, meta))
    }

    /// The writing view, one at a time: waits for another to be dropped. Who writes usually holds
    /// the lock of the address space, so that there is none.
    #[inline]
    pub fn writer<'a, H: Hardware>(&'a self, hw: &'a H, meta: Meta<'a>) -> TreeWriter<'a, H, CAP> {
        while self
            .writing
            .compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            spin_loop();
        }
        TreeWriter::new(self, node::Nodes::new(hw, meta))
    }

    #[inline]
    fn root(&self) -> Root {
        Root::of_word(self.root.load(Ordering::Acquire))
    }

    #[inline]
    fn set_root(&self, root: Root) {
        self.root.store(root.word(), Ordering::Release);
    }
}

/// For tests that put areas in without the checks of [`TreeWriter::set`].
#[cfg(test)]
pub(super) fn entry_of(area: super::area::Area) -> node::Entry {
    node::Entry(area.pack())
}

impl<const CAP: usize> Default for AreaTree<CAP> {
    fn default() -> Self {
        Self::new()
    }
}
