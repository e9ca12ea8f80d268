//! Radix trees from numbers to words, whose nodes are frames: of a file's pages, and of the slots
//! of a swap device.
//!
//! ```text
//!   root ──► [ node, level 1 ] ──► [ node, level 0 ]      a word: the owner's, or a link
//!              one place for         one place for
//!              512 numbers           each number
//!
//!    63            12        7      6..2     1..0
//!   | frame          |  0   | owner | level  |  1   |      a link to a lower node
//! ```
//!
//! The room **owns** the walk, the growth and the locks of a tree. The owner of the tree defines
//! all other words, and keeps the root and the right to change it. **Key types**: [`Tree`] (a view
//! of one tree), [`Node`], [`Spot`].
//!
//! Readers take no lock: they may end in a frame that is no node any more, so the word that they
//! find is a guess. Writers lock the one node that they change, and ask its slot whether it is that
//! node: *lock, then ask*, as in page tables. Nodes are locked from the root down.
//!
//! **Never** knows folios or slots. **Next room**: `folio`.

use core::marker::PhantomData;

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::Pfn;

use crate::phys::{FrameLock, Kind, Meta, WordsLock};
use crate::sync::{AtomicU64, Ordering};

const LINK: u64 = 1;
/// The bits of a word that tell a link from the words of the tree's owner.
pub(crate) const TAG: u64 = 3;
const LEVEL_AT: u32 = 2;
const FRAME_AT: u32 = 12;

/// A node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    pub(crate) frame: Pfn,
    /// How far it stands above the nodes whose places are single numbers.
    pub(crate) level: u8,
}

impl Node {
    /// The node that `word` links to, if it is a link.
    #[inline]
    pub(crate) const fn of(word: u64) -> Option<Self> {
        if word & TAG != LINK {
            return None;
        }
        Some(Self { frame: Pfn::new(word >> FRAME_AT), level: (word >> LEVEL_AT & 31) as u8 })
    }

    /// The node below this one that `word` links to. The level that the word itself says may be
    /// garbage, if this is no node any more.
    #[inline]
    pub(crate) fn below(self, word: u64) -> Option<Self> {
        Some(Self { frame: Self::of(word)?.frame, level: self.level.checked_sub(1)? })
    }

    /// The word that links to it.
    #[inline]
    pub(crate) const fn word(self) -> u64 {
        LINK | (self.level as u64) << LEVEL_AT | self.frame.get() << FRAME_AT
    }
}

/// One place of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(crate) node: Node,
    pub(crate) at: usize,
    /// The word there, as it was read.
    pub(crate) word: u64,
}

/// A tree.
pub(crate) struct Tree<'a, A, H> {
    pub(crate) hw: &'a H,
    pub(crate) meta: Meta<'a>,
    root: &'a AtomicU64,
    /// The kind of its nodes.
    kind: Kind,
    /// Added to a node's first number in its slot, so that nodes of two trees of a kind differ.
    name: u64,
    arch: PhantomData<A>,
}

impl<A, H> Clone for Tree<'_, A, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, H> Copy for Tree<'_, A, H> {}

impl<'a, A: Arch, H: Hardware> Tree<'a, A, H> {
    /// The number of places in a node, as a power of two.
    pub(crate) const BITS: u32 = A::PAGE_SHIFT - 3;
    /// The number of places in a node.
    pub(crate) const PLACES: usize = 1 << Self::BITS;

    /// The tree under `root`, whose nodes are of `kind` and have `name` in their slots.
    #[inline]
    pub(crate) fn new(
        hw: &'a H,
        meta: Meta<'a>,
        root: &'a AtomicU64,
        kind: Kind,
        name: u64,
    ) -> Self {
        Self { hw, meta, root, kind, name, arch: PhantomData }
    }

    #[inline]
    pub(crate) fn root(&self) -> u64 {
        self.root.load(Ordering::Acquire)
    }

    /// Makes `word` the root. The caller holds the right to change it.
    #[inline]
    pub(crate) fn set_root(&self, word: u64) {
        self.root.store(word, Ordering::Release);
    }

    /// The number of bits by which a place of `level` is numbered.
    #[inline]
    pub(crate) const fn shift(level: u8) -> u32 {
        Self::BITS * level as u32
    }

    /// The place of `number` in a node of `level`.
    #[inline]
    pub(crate) const fn place(number: u64, level: u8) -> usize {
        (number >> Self::shift(level)) as usize & (Self::PLACES - 1)
    }

    /// The first number of the node of `level` that holds `number`.
    #[inline]
    pub(crate) const fn base(number: u64, level: u8) -> u64 {
        let reach = Self::shift(level + 1);
        number >> reach << reach
    }

    /// The highest node, if it has a place for `number` at `level`.
    #[inline]
    pub(crate) fn top(&self, number: u64, level: u8) -> Option<Node> {
        Self::top_of(self.root(), number, level)
    }

    #[inline]
    fn top_of(root: u64, number: u64, level: u8) -> Option<Node> {
        let top = Node::of(root)?;
        (number >> Self::shift(top.level + 1) == 0 && top.level >= level).then_some(top)
    }

    /// The place of `number` in the lowest node there is, `level` or above; `None` where the root
    /// is no node, or none that reaches so far.
    #[inline]
    pub(crate) fn walk(&self, number: u64, level: u8) -> Option<Spot> {
        self.walk_from(self.root(), number, level)
    }

    /// The same from a root that was read before: a caller that looks at the root, too, must look
    /// at the one that the walk saw, as another CPU may put a node in its place.
    #[inline]
    pub(crate) fn walk_from(&self, root: u64, number: u64, level: u8) -> Option<Spot> {
        let mut node = Self::top_of(root, number, level)?;
        loop {
            let at = Self::place(number, node.level);
            let word = self.hw.load(node.frame, at);
            match node.below(word) {
                Some(lower) if node.level > level => node = lower,
                _ => return Some(Spot { node, at, word }),
            }
        }
    }

    /// The frame of the lowest node for `number`, in a tree that has all of them.
    #[inline]
    pub(crate) fn lowest(&self, number: u64) -> Option<Pfn> {
        let mut node = Node::of(self.root())?;
        while node.level > 0 {
            node = Node::of(self.hw.load(node.frame, Self::place(number, node.level)))?;
        }
        Some(node.frame)
    }

    /// Locks the node that holds `number`, if its frame is that node.
    #[inline]
    pub(crate) fn lock(&self, node: Node, number: u64) -> Option<WordsLock<'a>> {
        let lock = self.meta.lock(node.frame)?.words()?;
        self.is_node(node, number).then_some(lock)
    }

    /// Whether the frame of `node` is the node that holds `number`, at this moment.
    #[inline]
    pub(crate) fn is_node(&self, node: Node, number: u64) -> bool {
        let Some(slot) = self.meta.slot(node.frame) else { return false };
        let (state, name) = (slot.state(), slot.owner.load(Ordering::Relaxed));
        state.kind() == self.kind
            && state.order() == node.level
            && name.wrapping_sub(self.name) == Self::base(number, node.level)
    }

    /// The first number of a locked node of this tree.
    #[inline]
    pub(crate) fn first(&self, lock: &WordsLock<'_>) -> u64 {
        lock.slot().owner.load(Ordering::Relaxed).wrapping_sub(self.name)
    }

    /// How many words of a locked node are used.
    #[inline]
    pub(crate) fn used(&self, lock: &WordsLock<'_>) -> u64 {
        lock.slot().counts.load(Ordering::Relaxed)
    }

    /// Notes that `more` words of a locked node are used, or fewer.
    #[inline]
    pub(crate) fn add_used(&self, lock: &WordsLock<'_>, more: i64) {
        let now = self.used(lock).wrapping_add_signed(more);
        debug_assert!(now <= Self::PLACES as u64);
        lock.slot().counts.store(now, Ordering::Relaxed);
    }

    /// Writes `word` into `count` places of a locked node, from `at` on.
    #[inline]
    pub(crate) fn write(&self, lock: &WordsLock<'_>, at: usize, count: usize, word: u64) {
        self.hw.fill(lock.words(), at, count, word, 0);
    }

    /// Makes a node of `level` for the numbers around `number`, of the frame in `spare`; `None`
    /// where there is none.
    pub(crate) fn adopt(
        &self,
        spare: &mut Option<FrameRun>,
        number: u64,
        level: u8,
    ) -> Option<Node> {
        let run = spare.take()?;
        let name = self.name.wrapping_add(Self::base(number, level));
        self.meta.at(run.start()).owner.store(name, Ordering::Relaxed);
        Some(Node { frame: self.meta.adopt(run, self.kind, level), level })
    }

    /// Makes a new node of `level`, with `first` as its first word, the root; `None` where there is
    /// no frame for it. The caller holds the right to change the root.
    pub(crate) fn raise(&self, spare: &mut Option<FrameRun>, level: u8, first: u64) -> Option<()> {
        let node = self.adopt(spare, 0, level)?;
        let lock = self.lock(node, 0)?;
        self.write(&lock, 0, 1, first);
        self.add_used(&lock, (first != 0).into());
        self.set_root(node.word());
        Some(())
    }

    /// The level of the lowest root that has a place for `number`.
    pub(crate) const fn height(number: u64) -> u8 {
        ((number | 1).ilog2() / Self::BITS) as u8
    }

    /// Links a new node below `place`, whose node is locked, for the numbers around `number`;
    /// `None` where there is no frame for it.
    pub(crate) fn link(
        &self,
        place: &Spot,
        lock: &WordsLock<'_>,
        number: u64,
        spare: &mut Option<FrameRun>,
    ) -> Option<()> {
        let was = self.hw.load(lock.frame(), place.at);
        let lower = self.adopt(spare, number, place.node.level - 1)?;
        self.write(lock, place.at, 1, lower.word());
        self.add_used(lock, (was == 0).into());
        Some(())
    }

    /// Takes the node below place `at` of `upper` out, if no word of it is used; its frame.
    /// `number` is one of that node's.
    pub(crate) fn unlink(&self, upper: Node, at: usize, number: u64) -> Option<FrameRun> {
        let lock = self.lock(upper, number)?;
        let below = self.lock(upper.below(self.hw.load(lock.frame(), at))?, number)?;
        if self.used(&below) != 0 {
            return None;
        }
        self.write(&lock, at, 1, 0);
        self.add_used(&lock, -1);
        Some(self.meta.disown(below))
    }

    /// Takes the root out, if no word of it is used; its frame. The caller holds the right to
    /// change the root.
    pub(crate) fn unroot(&self) -> Option<FrameRun> {
        let lock = self.lock(Node::of(self.root())?, 0)?;
        if self.used(&lock) != 0 {
            return None;
        }
        self.set_root(0);
        Some(self.meta.disown(lock))
    }

    /// Makes all nodes for the numbers below `end`, of the frames that `frame` gives; `None` when
    /// it gives none. No other CPU knows the tree yet.
    pub(crate) fn plant(
        &self,
        end: u64,
        mut frame: impl FnMut() -> Option<FrameRun>,
    ) -> Option<()> {
        self.raise(&mut frame(), Self::height(end.saturating_sub(1)), 0)?;
        for number in (0..end).step_by(Self::PLACES) {
            while let Some(place) = self.walk(number, 0)
                && place.node.level > 0
            {
                let lock = self.lock(place.node, number)?;
                self.link(&place, &lock, number, &mut frame())?;
            }
        }
        Some(())
    }

    /// Takes the tree of the node that `word` links to apart, from the root's word on; each frame
    /// goes to `free`. No other CPU knows it any more. Calls itself once a level.
    pub(crate) fn fell(&self, word: u64, free: &mut impl FnMut(FrameRun)) {
        let Some(node) = Node::of(word) else { return };
        let below = if node.level > 0 { Self::PLACES } else { 0 };
        (0..below).for_each(|at| self.fell(self.hw.load(node.frame, at), free));
        if let Some(lock) = self.meta.lock(node.frame).and_then(FrameLock::words) {
            free(self.meta.disown(lock));
        }
    }
}
