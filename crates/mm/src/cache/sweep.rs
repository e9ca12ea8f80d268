//! Going through many places of an index at once.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};

use super::FilePages;
use super::index::Index;
use super::word::{Entry, Note};
use crate::folio::Folio;
use crate::radix::{Node, Tree};

impl<A: Arch, H: Hardware> Index<'_, A, H> {
    /// The first dirty folio that has a page in `pages`, and which pages of the file it has.
    pub(crate) fn next_dirty(&self, pages: FilePages) -> Option<(Folio, FilePages)> {
        self.steady(|| self.next_dirty_once(pages), |_| false)
    }

    fn next_dirty_once(&self, pages: FilePages) -> Option<(Folio, FilePages)> {
        let mut at = pages.start;
        while at < pages.end {
            let (entry, found) = self.find_once(at);
            // The mark of a folio's own word is exact.
            if let Entry::Folio { folio, dirty: true } = entry {
                return Some((folio, found));
            }
            at = self.marked_from(at + 1)?;
        }
        None
    }

    /// The page of the first marked folio at `at` or behind it, as far as one lowest node tells;
    /// otherwise the page to go on at.
    fn marked_from(&self, mut at: u64) -> Option<u64> {
        let mut node = self.tree.top(at, 0)?;
        loop {
            let shift = Tree::<A, H>::shift(node.level);
            let first = Tree::<A, H>::place(at, node.level);
            let marked = (first..1 << Self::BITS)
                .map(|place| (place, self.entry(node, place)))
                .find(|(_, entry)| entry.is_dirty());
            let base = Tree::<A, H>::base(at, node.level);
            let Some((place, entry)) = marked else {
                self.unmark_above(base, node.level);
                return Some(base + (1 << (shift + Self::BITS)));
            };
            if place != first {
                at = base + ((place as u64) << shift);
            }
            match entry {
                Entry::Node { node: lower, .. } if node.level > 0 => {
                    node = Node { level: node.level - 1, ..lower };
                }
                Entry::Folio { .. } => return Some(at),
                _ => return Some(at + (1 << shift)),
            }
        }
    }

    /// Whether the index may have folios, notes, or empty nodes.
    pub(crate) fn has_entries(&self) -> bool {
        self.root() != Entry::Empty
    }

    /// Takes the mark off the link to the node of `level` at `page`, if no word of it is marked.
    fn unmark_above(&self, page: u64, level: u8) {
        let Some(place) = self.tree.walk(page, level + 1) else { return };
        if place.node.level != level + 1 {
            return;
        }
        let Some(upper) = self.tree.lock(place.node, page) else { return };
        let now = self.entry(place.node, place.at);
        let Entry::Node { node, dirty: true } = now else { return };
        let Some(_lower) = self.tree.lock(Node { level, ..node }, page) else { return };
        if !(0..1 << Self::BITS).any(|at| self.entry(node, at).is_dirty()) {
            self.tree.write(&upper, place.at, 1, now.with_dirty(false).word());
        }
    }

    /// Forgets all notes of `pages`, and calls `free` with the frames of empty nodes.
    pub(crate) fn prune(&self, pages: FilePages, free: &mut impl FnMut(FrameRun)) {
        self.prune_such(pages, &Note::is_hint, free);
    }

    /// The same, but forgets only `such` notes.
    pub(crate) fn prune_such(
        &self,
        pages: FilePages,
        such: &impl Fn(Note) -> bool,
        free: &mut impl FnMut(FrameRun),
    ) {
        let Some(top) = Node::of(self.tree.root()) else {
            let _changing = self.file.changing.lock();
            if let Entry::Note { note, .. } = self.root()
                && pages.contains(0)
                && such(note)
            {
                self.tree.set_root(0);
            }
            return;
        };
        self.prune_node(top, 0, pages, such, free);
        let _changing = self.file.changing.lock();
        if let Some(run) = self.tree.unroot() {
            free(run);
        }
    }

    /// Prunes the node from page `base` on and all below it. Calls itself once a level.
    fn prune_node(
        &self,
        node: Node,
        base: u64,
        pages: FilePages,
        such: &impl Fn(Note) -> bool,
        free: &mut impl FnMut(FrameRun),
    ) {
        let shift = Tree::<A, H>::shift(node.level);
        let places = 1 << Self::BITS;
        let mut at = (pages.start.saturating_sub(base) >> shift).min(places) as usize;
        let end = pages.end.saturating_sub(base).div_ceil(1 << shift).min(places) as usize;
        while at < end {
            let start = base + ((at as u64) << shift);
            match self.entry(node, at) {
                Entry::Empty => {
                    let empty = self.tree.hw.count_run(node.frame, at, end - at, 0, 0);
                    // Another CPU may have put something there by now.
                    at += empty.max(1);
                    continue;
                }
                Entry::Node { node: lower, .. } if node.level > 0 => {
                    let lower = Node { level: node.level - 1, ..lower };
                    self.prune_node(lower, start, pages, such, free);
                    if let Some(run) = self.tree.unlink(node, at, start) {
                        free(run);
                    }
                }
                Entry::Note { note, .. } if pages.contains(start) && such(note) => {
                    if let Some(lock) = self.tree.lock(node, start)
                        && let Entry::Note { .. } = self.entry(node, at)
                    {
                        self.tree.write(&lock, at, 1, 0);
                        self.tree.add_used(&lock, -1);
                    }
                }
                _ => {}
            }
            at += 1;
        }
    }
}
