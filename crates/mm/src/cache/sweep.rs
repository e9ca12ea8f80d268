//! Going through many places of an index at once.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::Pfn;

use super::FilePages;
use super::index::Index;
use super::word::{Entry, Note};
use crate::folio::Folio;
use crate::sync::Ordering;

impl<A: Arch, H: Hardware> Index<'_, A, H> {
    /// The first dirty folio that has a page in `pages`, and which pages of the file it has.
    pub(crate) fn next_dirty(&self, pages: FilePages) -> Option<(Folio, FilePages)> {
        self.steady(|| self.next_dirty_once(pages), |_| false)
    }

    fn next_dirty_once(&self, pages: FilePages) -> Option<(Folio, FilePages)> {
        let mut left = pages;
        while let Some((folio, at)) = self.next_marked(left) {
            // Its own word is exact.
            if let (Entry::Folio { folio: here, dirty: true }, pages) = self.find(at.start)
                && here == folio
            {
                return Some((folio, pages));
            }
            left = FilePages::new(at.end, left.end);
        }
        None
    }

    /// The first folio in `pages` whose word, and all nodes above, say that it may be dirty.
    fn next_marked(&self, pages: FilePages) -> Option<(Folio, FilePages)> {
        if let (Entry::Folio { folio, dirty: true }, at) = self.find(pages.start) {
            return Some((folio, at)).filter(|_| !pages.is_empty());
        }
        let mut at = pages.start;
        while at < pages.end {
            let Entry::Node { frame, level, .. } = self.root() else { return None };
            if at >> (Self::BITS * (level as u32 + 1)) != 0 {
                return None;
            }
            match self.marked_from(at, frame, level) {
                Ok((folio, found)) => {
                    return Some((folio, found)).filter(|_| found.start < pages.end);
                }
                Err(next) => at = next,
            }
        }
        None
    }

    /// The first marked folio at `at` or behind it, as far as one lowest node tells; otherwise the
    /// page to go on at.
    fn marked_from(&self, at: u64, top: Pfn, level: u8) -> Result<(Folio, FilePages), u64> {
        let (mut at, mut frame, mut level) = (at, top, level);
        loop {
            let shift = Self::BITS * level as u32;
            let first = Self::place(at, level);
            let marked = (first..1 << Self::BITS)
                .map(|place| (place, Entry::of(self.hw.load(frame, place))))
                .find(|(_, entry)| entry.is_dirty());
            let node = at >> (shift + Self::BITS) << (shift + Self::BITS);
            let Some((place, entry)) = marked else {
                self.unmark_above(node, level);
                return Err(node + (1 << (shift + Self::BITS)));
            };
            if place != first {
                at = node + ((place as u64) << shift);
            }
            match entry {
                Entry::Folio { folio, .. } => {
                    return Ok((folio, FilePages::block(at, folio.order)));
                }
                Entry::Node { frame: lower, .. } if level > 0 => {
                    (frame, level) = (lower, level - 1)
                }
                _ => return Err(at + (1 << shift)),
            }
        }
    }

    /// Whether there may be something: folios, notes, or nodes that hold nothing any more.
    pub(crate) fn has_entries(&self) -> bool {
        self.root() != Entry::Empty
    }

    /// Takes the mark off the word above the node of `level` at `page`, if nothing in it is marked.
    fn unmark_above(&self, page: u64, level: u8) {
        let Some(place) = self.walk(page, level + 1) else { return };
        if place.level != level + 1 {
            return;
        }
        let Some(upper) = self.lock(place.frame, place.level, page) else { return };
        let now = Entry::of(self.hw.load(upper.frame(), place.at));
        let Entry::Node { frame, dirty: true, .. } = now else { return };
        let Some(lower) = self.lock(frame, level, page) else { return };
        let is_marked = |at| Entry::of(self.hw.load(lower.frame(), at)).is_dirty();
        if !(0..1 << Self::BITS).any(is_marked) {
            self.hw.fill(upper.words(), place.at, 1, now.with_dirty(false).word(), 0);
        }
    }

    /// Forgets all notes of `pages`, and calls `free` with the frames of nodes that hold nothing.
    pub(crate) fn prune(&self, pages: FilePages, free: &mut impl FnMut(FrameRun)) {
        self.prune_such(pages, &|_| true, free);
    }

    /// The same, but forgets only `such` notes.
    pub(crate) fn prune_such(
        &self,
        pages: FilePages,
        such: &impl Fn(Note) -> bool,
        free: &mut impl FnMut(FrameRun),
    ) {
        let Entry::Node { frame, level, .. } = self.root() else {
            let _changing = self.file.changing.lock();
            if let Entry::Note { note, .. } = self.root()
                && pages.contains(0)
                && such(note)
            {
                self.file.root.store(0, Ordering::Release);
            }
            return;
        };
        self.prune_node(frame, level, 0, (pages, such), free);
        let _changing = self.file.changing.lock();
        let Entry::Node { frame, level, .. } = self.root() else { return };
        let Some(node) = self.lock(frame, level, 0) else { return };
        if node.slot().counts.load(Ordering::Relaxed) == 0 {
            self.file.root.store(0, Ordering::Release);
            free(self.meta.disown(node));
        }
    }

    /// Prunes one node and all below it. Calls itself once a level.
    fn prune_node(
        &self,
        frame: Pfn,
        level: u8,
        base: u64,
        (pages, such): (FilePages, &impl Fn(Note) -> bool),
        free: &mut impl FnMut(FrameRun),
    ) {
        let shift = Self::BITS * level as u32;
        for at in 0..1 << Self::BITS {
            let start = base + ((at as u64) << shift);
            let below = FilePages::new(start, start + (1 << shift));
            if below.intersect(pages).is_empty() {
                continue;
            }
            match Entry::of(self.hw.load(frame, at)) {
                Entry::Node { frame: lower, .. } if level > 0 => {
                    self.prune_node(lower, level - 1, start, (pages, such), free);
                    if let Some(run) = self.unlink(frame, level, at, start) {
                        free(run);
                    }
                }
                Entry::Note { note, .. } if pages.contains(start) && such(note) => {
                    self.erase(frame, level, at, start);
                }
                _ => {}
            }
        }
    }

    /// Takes the node below place `at` of a node out, if it holds nothing; its frame.
    fn unlink(&self, frame: Pfn, level: u8, at: usize, page: u64) -> Option<FrameRun> {
        let upper = self.lock(frame, level, page)?;
        let Entry::Node { frame, .. } = Entry::of(self.hw.load(upper.frame(), at)) else {
            return None;
        };
        let lower = self.lock(frame, level - 1, page)?;
        if lower.slot().counts.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.hw.fill(upper.words(), at, 1, 0, 0);
        self.add(&upper, -1);
        Some(self.meta.disown(lower))
    }

    fn erase(&self, frame: Pfn, level: u8, at: usize, page: u64) {
        let Some(node) = self.lock(frame, level, page) else { return };
        if matches!(Entry::of(self.hw.load(node.frame(), at)), Entry::Note { .. }) {
            self.hw.fill(node.words(), at, 1, 0, 0);
            self.add(&node, -1);
        }
    }
}
