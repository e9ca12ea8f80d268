//! The writing view: the right to change the tree, the stock of spare nodes, paths.

use core::cell::Cell;
use core::marker::PhantomData;

use quire_hw::{FrameRun, Hardware};
use quire_units::{PageSpan, Pfn, Vpn};

use super::node::Nodes;
use super::root::DEPTH_MAX;
use super::{AreaTree, NODE_ENTRIES, TreeReader};
use crate::phys::{Kind, Meta};
use crate::space::area::Area;
use crate::sync::{Ordering, fence, spin_loop};

impl<const CAP: usize> AreaTree<CAP> {
    /// The writing view, one at a time: waits for another to be dropped. A caller usually holds the
    /// lock of the address space, so that there is no wait.
    #[inline]
    pub fn writer<'a, H: Hardware>(&'a self, hw: &'a H, meta: Meta<'a>) -> TreeWriter<'a, H, CAP> {
        while self
            .writing
            .compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            spin_loop();
        }
        TreeWriter { tree: self, nodes: Nodes::new(hw, meta), unshared: PhantomData }
    }
}

/// The writing view of a tree. There is one at a time; dropping it lets the next in.
pub struct TreeWriter<'a, H: Hardware, const CAP: usize = NODE_ENTRIES> {
    pub(super) tree: &'a AreaTree<CAP>,
    pub(super) nodes: Nodes<'a, H, CAP>,
    /// Not `Sync`: one writer is one thread.
    unshared: PhantomData<Cell<()>>,
}

/// The way from the root to an entry of a leaf: for each level, from the leaf at 0 up, the node
/// and the entry taken there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) depth: usize,
    pub(super) steps: [Step; DEPTH_MAX],
}

/// One level of a [`Path`]: a node and one of its entries, in one word, since paths are made and
/// copied for each search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step(u64);

/// Bits of the entry's number.
const AT_BITS: u32 = 8;

const _: () = assert!(NODE_ENTRIES < 1 << AT_BITS);

impl Step {
    #[inline]
    pub(super) fn new(frame: Pfn, at: usize) -> Self {
        Self(frame.get() << AT_BITS | at as u64)
    }

    #[inline]
    pub(super) fn frame(self) -> Pfn {
        Pfn::new(self.0 >> AT_BITS)
    }

    #[inline]
    pub(super) fn at(self) -> usize {
        (self.0 & ((1 << AT_BITS) - 1)) as usize
    }
}

impl Path {
    #[inline]
    pub(super) fn new() -> Self {
        Self { depth: 0, steps: [Step(0); DEPTH_MAX] }
    }
}

/// A change in progress: `seq` is odd while it lives.
struct Change<'a, const CAP: usize>(&'a AreaTree<CAP>);

impl<'a, const CAP: usize> Change<'a, CAP> {
    /// W1 of the module's drawing.
    fn begin(tree: &'a AreaTree<CAP>) -> Self {
        let seq = tree.seq.load(Ordering::Relaxed);
        tree.seq.swap(seq.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        Self(tree)
    }
}

impl<const CAP: usize> Drop for Change<'_, CAP> {
    /// W3 of the module's drawing.
    fn drop(&mut self) {
        let seq = self.0.seq.load(Ordering::Relaxed);
        self.0.seq.store(seq.wrapping_add(1), Ordering::Release);
    }
}

impl<'a, H: Hardware, const CAP: usize> TreeWriter<'a, H, CAP> {
    /// The reading view. Its answers stay true until this writer changes something.
    #[inline]
    pub fn reader(&self) -> TreeReader<'a, H, CAP> {
        TreeReader { tree: self.tree, nodes: self.nodes }
    }

    /// From now on no reading [is current](AreaTree::is_current) for a page of `pages`, whatever
    /// its number, until [`release`](Self::release) or the end of the writer: faults wait, so that
    /// the page tables can be prepared before the areas change. A second hold takes the place of
    /// the first and covers all of it.
    pub fn hold(&self, pages: PageSpan) {
        let [start, end] = &self.tree.held;
        start.store(pages.start.get(), Ordering::Release);
        end.store(pages.end.get(), Ordering::Release);
    }

    /// Ends a [`hold`](Self::hold). A CPU that sees the end sees the changes made before it.
    pub fn release(&self) {
        self.tree.held[1].store(0, Ordering::Release);
    }

    /// How many frames to [`stock`](Self::stock) so that `changes` insertions of one area each
    /// cannot lack any. Each high-level operation documents its maximum of insertions.
    ///
    /// An insertion may split one node on each level; a chain of insertions also grows the tree
    /// upwards, by one node until the new root is full.
    pub fn lacks(&self, changes: usize) -> usize {
        if changes == 0 {
            return 0;
        }
        let upwards = if changes + 1 < CAP { 1 } else { 1 + changes };
        let most = changes * self.tree.root().depth + upwards;
        most.saturating_sub(self.spares())
    }

    /// How many spare nodes there are.
    #[inline]
    pub fn spares(&self) -> usize {
        self.tree.spares.load(Ordering::Relaxed) as usize
    }

    /// Adds the frames of `run` to the spare nodes.
    ///
    /// # Errors
    /// The run, if its frames are not on record in the metadata; nothing is stocked then.
    pub fn stock(&self, run: FrameRun) -> Result<(), FrameRun> {
        if !self.nodes.meta().span().covers(run.span()) {
            return Err(run);
        }
        let mut left = run;
        while left.count() > 0 {
            let (one, rest) = left.split_at(1);
            left = rest;
            self.give(self.nodes.meta().adopt(one, Kind::Node, 0));
        }
        Ok(())
    }

    /// Takes one frame out of the spare nodes, for good. A reader may still be reading it; that
    /// harms neither the reader, which notices, nor the frame's next owner, since the reader only
    /// reads.
    pub fn unstock(&self) -> Option<FrameRun> {
        let meta = self.nodes.meta();
        let node = meta.lock(self.take()?)?.words()?;
        Some(meta.disown(node))
    }

    /// Makes `frame`, a node that the tree does not use, a spare.
    pub(in crate::space) fn give(&self, frame: Pfn) {
        let meta = self.nodes.meta();
        let Some(slot) = meta.slot(frame) else { return };
        slot.links[0].store(self.tree.spare.load(Ordering::Relaxed), Ordering::Relaxed);
        self.tree.spare.store(meta.index(frame) + 1, Ordering::Relaxed);
        self.tree.spares.store(self.spares() as u64 + 1, Ordering::Relaxed);
    }

    /// Takes a spare.
    pub(in crate::space) fn take(&self) -> Option<Pfn> {
        let meta = self.nodes.meta();
        let frame = meta.frame(self.tree.spare.load(Ordering::Relaxed).checked_sub(1)?);
        let next = meta.slot(frame)?.links[0].load(Ordering::Relaxed);
        self.tree.spare.store(next, Ordering::Relaxed);
        self.tree.spares.store(self.spares() as u64 - 1, Ordering::Relaxed);
        Some(frame)
    }

    /// Runs `change` so that readers see all of it or nothing.
    pub(in crate::space) fn change<T>(&self, change: impl FnOnce() -> T) -> T {
        let _change = Change::begin(self.tree);
        change()
    }

    /// The first area that ends after `page`; `path` becomes the way to it.
    #[inline]
    pub(super) fn seek(&self, page: Vpn, path: &mut Path) -> Option<Area> {
        let root = self.tree.root();
        path.depth = root.depth;
        self.nodes.descend(root, |level, node| {
            let at = node.seek(page.get())?;
            path.steps[level] = Step::new(node.frame, at);
            Some(at)
        })
    }

    /// Writes another area at the end of `path`; the order of areas stays as it is.
    pub(super) fn put(&self, path: &Path, area: Area) {
        self.nodes.put(path.steps[0].frame(), path.steps[0].at(), area.pack());
        self.refresh(path, 0);
    }

    /// Updates the summaries in the parents, from that of `level` upwards, as far as they change.
    pub(super) fn refresh(&self, path: &Path, level: usize) {
        for (level, pair) in path.steps[..path.depth].windows(2).enumerate().skip(level) {
            let [child, parent] = [pair[0], pair[1]];
            let Some(node) = self.nodes.node(child.frame()) else { return };
            let summary = node.summary(level == 0);
            let known = self.nodes.node(parent.frame()).map(|node| node.entry(parent.at()));
            if known == Some(summary) {
                return;
            }
            self.nodes.put(parent.frame(), parent.at(), summary);
        }
    }

    /// Counts areas that were added (or, negative, removed).
    pub(in crate::space) fn counted(&self, change: i64) {
        let count = self.tree.count.load(Ordering::Relaxed);
        self.tree.count.store(count.wrapping_add_signed(change), Ordering::Relaxed);
    }
}

impl<H: Hardware, const CAP: usize> Drop for TreeWriter<'_, H, CAP> {
    #[inline]
    fn drop(&mut self) {
        self.release();
        self.tree.writing.store(0, Ordering::Release);
    }
}
