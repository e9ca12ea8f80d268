//! The writing view: the right to change the tree, the stock of spare nodes, paths.

use core::cell::Cell;
use core::marker::PhantomData;

use arrayvec::ArrayVec;
use quire_hw::{FrameRun, Hardware};
use quire_units::{PageSpan, Pfn};

use super::areas::DEPTH_MAX;
use super::entry::Entry;
use super::node::{Node, Page};
use super::{AreaTree, NODE_ENTRIES, TreeReader};
use crate::phys::{FrameLock, Kind, Meta};
use crate::space::area::Area;
use crate::sync::{Ordering, fence, spin_loop};

impl<const CAP: usize> AreaTree<CAP> {
    /// The writing view, one at a time: waits for another to be dropped. A caller usually holds the
    /// lock of the address space, so that there is no wait.
    #[inline]
    pub fn writer<'a, H: Hardware>(&'a self, hw: &'a H, meta: Meta<'a>) -> TreeWriter<'a, H, CAP> {
        if !self.try_lock() {
            self.wait();
        }
        TreeWriter { reader: self.reader(hw, meta), unshared: PhantomData }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let (taken, missed) = (Ordering::Acquire, Ordering::Relaxed);
        self.writing.compare_exchange_weak(0, 1, taken, missed).is_ok()
    }

    /// Waits until this writer is the one.
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        while !self.try_lock() {
            spin_loop();
        }
    }
}

/// The writing view of a tree. There is one at a time; dropping it lets the next in.
pub struct TreeWriter<'a, H: Hardware, const CAP: usize = NODE_ENTRIES> {
    pub(super) reader: TreeReader<'a, H, CAP>,
    /// Not `Sync`: one writer is one thread.
    unshared: PhantomData<Cell<()>>,
}

/// The way to an entry of a leaf: the steps from the root down.
pub(super) type Path = ArrayVec<Step, DEPTH_MAX>;

/// The place of a span's areas in a tree: a search that a change of them need not repeat.
pub struct Located {
    pub(super) span: PageSpan,
    /// The way to the first area that ends behind the span's start; none if there is none.
    pub(super) path: Path,
}

/// A node and one of its entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) frame: Pfn,
    pub(super) at: usize,
}

impl<'a, H: Hardware, const CAP: usize> TreeWriter<'a, H, CAP> {
    /// The reading view. Its answers stay true until this writer changes something.
    #[inline]
    pub fn reader(&self) -> TreeReader<'a, H, CAP> {
        self.reader
    }

    /// From now on no reading [is current](AreaTree::is_current) for a page of `pages`, whatever
    /// its number, until [`release`](Self::release) or the end of the writer: faults wait, so that
    /// the page tables can be prepared before the areas change. A second hold takes the place of
    /// the first and covers all of it.
    pub fn hold(&self, pages: PageSpan) {
        let [start, end] = &self.reader.tree.held;
        start.store(pages.start.get(), Ordering::Release);
        end.store(pages.end.get(), Ordering::Release);
    }

    /// Ends a [`hold`](Self::hold). A CPU that sees the end sees the changes made before it.
    pub fn release(&self) {
        self.reader.tree.held[1].store(0, Ordering::Release);
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
        let most = changes * self.reader.tree.root().depth + upwards;
        most.saturating_sub(self.spares())
    }

    /// How many spare nodes there are.
    #[inline]
    pub fn spares(&self) -> usize {
        self.reader.tree.spares.load(Ordering::Relaxed) as usize
    }

    /// Adds the frames of `run` to the spare nodes.
    ///
    /// # Errors
    /// The run, if its frames are not on record in the metadata; nothing is stocked then.
    pub fn stock(&self, run: FrameRun) -> Result<(), FrameRun> {
        if !self.reader.meta.span().covers(run.span()) {
            return Err(run);
        }
        let mut left = run;
        while left.count() > 0 {
            let (one, rest) = left.split_at(1);
            left = rest;
            self.give(self.reader.meta.adopt(one, Kind::Node, 0));
        }
        Ok(())
    }

    /// Takes one frame out of the spare nodes, for good. A reader may still be reading it; that
    /// harms neither the reader, which notices, nor the frame's next owner, since the reader only
    /// reads.
    pub fn unstock(&self) -> Option<FrameRun> {
        let meta = self.reader.meta;
        let node = meta.lock(self.take()?)?.words()?;
        Some(meta.disown(node))
    }

    /// Makes `frame`, a node that the tree does not use, a spare.
    pub(in crate::space) fn give(&self, frame: Pfn) {
        let TreeReader { tree, meta, .. } = self.reader;
        let Some(slot) = meta.slot(frame) else { return };
        slot.links[0].store(tree.spare.load(Ordering::Relaxed), Ordering::Relaxed);
        tree.spare.store(meta.index(frame) + 1, Ordering::Relaxed);
        tree.spares.store(self.spares() as u64 + 1, Ordering::Relaxed);
    }

    /// Takes a spare.
    pub(in crate::space) fn take(&self) -> Option<Pfn> {
        let TreeReader { tree, meta, .. } = self.reader;
        let frame = meta.frame(tree.spare.load(Ordering::Relaxed).checked_sub(1)?);
        let next = meta.slot(frame)?.links[0].load(Ordering::Relaxed);
        tree.spare.store(next, Ordering::Relaxed);
        tree.spares.store(self.spares() as u64 - 1, Ordering::Relaxed);
        Some(frame)
    }

    /// Runs `change` so that readers see all of it or nothing.
    pub(in crate::space) fn change<T>(&self, change: impl FnOnce() -> T) -> T {
        let seq = &self.reader.tree.seq;
        // W1 and W3 of the module's drawing.
        let before = seq.load(Ordering::Relaxed);
        seq.swap(before.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        let done = change();
        seq.store(before.wrapping_add(2), Ordering::Release);
        done
    }

    /// Finds the first area that ends after `page`: `path` becomes the way to it, and its leaf is
    /// returned. Without such an area there is no way.
    #[inline]
    pub(super) fn find(&self, page: u64, path: &mut Path) -> Option<Node<'a, H, CAP>> {
        path.clear();
        // The root knows the last page: a way that begins has an end.
        Some(self.reader.leaf(page, |frame, at| path.push(Step { frame, at }))?.0)
    }

    /// Finds the areas of `span`. The answer is true until this writer changes something.
    #[inline]
    pub fn locate(&self, span: PageSpan) -> Located {
        let mut located = Located { span, path: Path::new() };
        self.find(span.start.get(), &mut located.path);
        located
    }

    /// The areas that have a page in the span that `located` is for, ascending, whole: with one
    /// search more for each further leaf.
    #[inline]
    pub fn areas(&self, located: &Located) -> impl Iterator<Item = Area> + use<'a, H, CAP> {
        let (reader, end) = (self.reader, located.span.end.get());
        let first = located.path.last();
        let mut next = first.and_then(|step| Some((reader.node(step.frame)?, step.at)));
        core::iter::from_fn(move || {
            let (node, at) = next.take()?;
            let area = node.entry(at).area().filter(|area| area.span.start.get() < end)?;
            next = match area.span.end.get() {
                page if page >= end => None,
                _ if at + 1 < node.count => Some((node, at + 1)),
                page => reader.leaf(page, |_, _| {}),
            };
            Some(area)
        })
    }

    /// Puts `new` in place of `old` entries from entry `at` on, in the node at the end of `path`, a
    /// `leaf` or not, which has room for them. The order of areas stays as it is.
    pub(super) fn swap(&self, path: &[Step], at: usize, leaf: bool, old: usize, new: &[Entry]) {
        if let Some(node) = path.last().and_then(|step| self.reader.node(step.frame)) {
            self.swap_in(path, &node, at, leaf, old, new);
        }
    }

    /// The same, where `node` is that node.
    // `always`: it is most of what a small change does, for which a call is a tenth.
    #[inline(always)]
    pub(super) fn swap_in(
        &self,
        path: &[Step],
        node: &Node<'_, H, CAP>,
        at: usize,
        leaf: bool,
        old: usize,
        new: &[Entry],
    ) {
        let frame = node.frame;
        // Only a summary needs to know gaps, and a root has none.
        let is_summed = path.len() > 1;
        let gap = |node: &Node<'_, H, CAP>, entries: usize| {
            node.largest_gap(at.saturating_sub(1), node.count.min(at + entries + 1), leaf)
        };
        let was = if is_summed { gap(node, old) } else { 0 };
        let lock = self.reader.meta.lock(frame);
        let Some(page) = self.page(lock.as_ref()) else { return };
        if old != new.len() {
            page.copy(frame, at + old..node.count, at + new.len());
            page.set_count(node.count - old + new.len());
        }
        new.iter().enumerate().for_each(|(ahead, entry)| page.put(at + ahead, *entry));
        drop(lock);
        if is_summed && let Some(node) = self.reader.node(frame) {
            self.refresh(path, leaf, Some([was, gap(&node, new.len())]));
        }
    }

    /// Writes entry `at` of the node in `frame`.
    pub(super) fn put_entry(&self, frame: Pfn, at: usize, entry: Entry) {
        self.write(frame, |page| page.put(at, entry));
    }

    /// Makes room for `entry` before entry `at` of a node that is not full.
    pub(super) fn insert_entry(&self, frame: Pfn, at: usize, entry: Entry) {
        let count = self.reader.count(frame);
        self.write(frame, |page| {
            page.copy(frame, at..count, at + 1);
            page.put(at, entry);
            page.set_count(count + 1);
        });
    }

    /// Takes entries `from` up to but not including `to` out of a node.
    pub(super) fn erase_entries(&self, frame: Pfn, from: usize, to: usize) {
        let count = self.reader.count(frame);
        self.write(frame, |page| {
            page.copy(frame, to..count, from);
            page.set_count(count - (to - from));
        });
    }

    /// Calls `write` with the right to write a node, under the frame's lock.
    #[inline]
    pub(super) fn write(&self, frame: Pfn, write: impl FnOnce(&Page<'_, H, CAP>)) {
        let lock = self.reader.meta.lock(frame);
        if let Some(page) = self.page(lock.as_ref()) {
            write(&page);
        }
    }

    /// The right to write the node that is locked. Only frames on record as nodes can be written: a
    /// damaged tree cannot lead a write elsewhere.
    #[inline(always)]
    fn page<'l>(&'l self, lock: Option<&'l FrameLock<'_>>) -> Option<Page<'l, H, CAP>> {
        let table = lock.and_then(|lock| lock.table());
        debug_assert!(table.is_some(), "the frame is no node");
        Some(Page { hw: self.reader.hw, table: table? })
    }

    /// Updates the summaries in the nodes above the last one of `path`, a `leaf` or not, as far as
    /// they change. `gaps` are the largest of some gaps before a change of these and after it, so
    /// that the node is read again only where its largest gap may have gone; `None` after others.
    pub(super) fn refresh(&self, path: &[Step], mut leaf: bool, mut gaps: Option<[u64; 2]>) {
        for pair in path.windows(2).rev() {
            let [parent, child] = [pair[0], pair[1]];
            let (Some(node), Some(above)) =
                (self.reader.node(child.frame), self.reader.node(parent.frame))
            else {
                return;
            };
            let known = above.entry(parent.at);
            let summary = match (gaps, known.0[3]) {
                (Some([_, now]), gap) if now >= gap => node.summary_with(now),
                (Some([was, _]), gap) if was < gap => node.summary_with(gap),
                _ => node.summary(leaf),
            };
            if known == summary {
                return;
            }
            leaf = false;
            let gap = || {
                let (from, to) = (parent.at.saturating_sub(1), above.count.min(parent.at + 2));
                above.largest_gap(from, to, leaf)
            };
            let was = gap();
            self.put_entry(parent.frame, parent.at, summary);
            gaps = Some([was, gap()]);
        }
    }

    /// Counts areas that were added (or, negative, removed).
    pub(in crate::space) fn counted(&self, change: i64) {
        let count = self.reader.tree.count.load(Ordering::Relaxed);
        self.reader.tree.count.store(count.wrapping_add_signed(change), Ordering::Relaxed);
    }
}

impl<H: Hardware, const CAP: usize> Drop for TreeWriter<'_, H, CAP> {
    #[inline]
    fn drop(&mut self) {
        self.release();
        self.reader.tree.writing.store(0, Ordering::Release);
    }
}
