//! From a file's pages to its folios: a [radix tree](crate::radix).
//!
//! ```text
//!   File::root ──► [ node, level 1 ] ──► [ node, level 0 ]      a word: see `word`
//! ```
//!
//! A folio of order 4 at page 32 is one word at place 32 of a node of level 0; one of order 9 is
//! one word of a node of level 1, or, where there is a node of level 0 for its pages already, the
//! first and only one of that. A file whose only folio begins at page 0 has no node: that word is
//! the root itself.
//!
//! A lookup takes no lock. The folio that it finds is a guess, until the folio's locked slot says
//! that it is that page of that file. No slot can prove absence: while pages move to other folios,
//! `shape` tells a lookup that found nothing to look again (see `reshape`).

use core::ops::DerefMut;

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::Order;

use super::word::{Entry, Note};
use super::{File, FileId, FilePages};
use crate::folio::Folio;
use crate::phys::{Kind, Meta, WordsLock};
use crate::radix::{Node, Spot, Tree};
use crate::sync::{Ordering, fence, spin_loop};

/// How many pages a file may have at most: 64 PiB of 4 KiB pages.
pub const FILE_PAGES_MAX: u64 = 1 << PAGE_BITS;
/// How many files there may be at once.
pub const FILES_MAX: usize = 1 << (64 - PAGE_BITS);

const PAGE_BITS: u32 = 44;

/// The identity of a folio or a node of the index: its file, and its first page there.
#[inline]
pub(crate) const fn identity(file: FileId, page: u64) -> u64 {
    (file.0 as u64) << PAGE_BITS | page
}

/// The file of an identity, which [`known`](crate::folio::Folios::known) returns with a folio.
#[inline]
pub const fn file_of(identity: u64) -> FileId {
    FileId((identity >> PAGE_BITS) as u32)
}

/// The page of its file that an identity begins with.
#[inline]
pub const fn page_of(identity: u64) -> u64 {
    identity & ((1 << PAGE_BITS) - 1)
}

/// The index of one file: a view that is cheap to copy.
pub(crate) struct Index<'a, A, H> {
    pub(super) tree: Tree<'a, A, H>,
    pub(crate) file: &'a File,
    pub(crate) id: FileId,
}

impl<A, H> Clone for Index<'_, A, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, H> Copy for Index<'_, A, H> {}

/// An insertion lacks this. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InsertLack {
    /// One zeroed frame, to become a node.
    Node,
    /// An empty place: some page of the block is in memory, or empty nodes, which
    /// [`prune`](Index::prune) removes, are in the way of a larger folio.
    Room,
}

impl<'a, A: Arch, H: Hardware> Index<'a, A, H> {
    /// The result of `look`, if it is `sure`; otherwise the result while no pages change folios.
    #[inline]
    pub(super) fn steady<T>(&self, look: impl Fn() -> T, sure: impl Fn(&T) -> bool) -> T {
        loop {
            let before = self.file.shape.load(Ordering::Acquire);
            let found = look();
            if sure(&found) {
                return found;
            }
            fence(Ordering::Acquire);
            if before & 1 == 0 && self.file.shape.load(Ordering::Relaxed) == before {
                return found;
            }
            spin_loop();
        }
    }

    /// The number of places in a node, as a power of two.
    pub(super) const BITS: u32 = Tree::<'a, A, H>::BITS;

    #[inline]
    pub(crate) fn new(hw: &'a H, meta: Meta<'a>, file: &'a File, id: FileId) -> Self {
        let tree = Tree::new(hw, meta, &file.root, Kind::Index, identity(id, 0));
        Self { tree, file, id }
    }

    /// The entry that covers `page`, and all pages that it covers; just the page for none.
    #[inline]
    pub(crate) fn find(&self, page: u64) -> (Entry, FilePages) {
        self.steady(|| self.find_once(page), |(entry, _)| *entry != Entry::Empty)
    }

    #[inline]
    pub(super) fn find_once(&self, page: u64) -> (Entry, FilePages) {
        let root = self.tree.root();
        let place = self.tree.walk_from(root, page, 0);
        let entry = place.map_or_else(|| Entry::of(root), |place| self.covering(&place));
        let pages = FilePages::block(page, entry.order());
        match entry {
            // The root itself is only for the block at page 0.
            Entry::Empty | Entry::Node { .. } => (Entry::Empty, FilePages::new(page, page + 1)),
            _ if place.is_some() || pages.start == 0 => (entry, pages),
            _ => (Entry::Empty, FilePages::new(page, page + 1)),
        }
    }

    /// Whether `folio` is at `page`, and is clean. A caller that drops the content of a folio needs
    /// this; that no dirty folio was found there is not enough.
    pub(crate) fn is_clean(&self, page: u64, folio: Folio) -> bool {
        self.find(page).0 == Entry::Folio { folio, dirty: false }
    }

    /// The first folio that has a page in `pages`, and which pages of the file it has.
    pub(crate) fn next(&self, pages: FilePages) -> Option<(Folio, FilePages)> {
        match self.next_such(pages, |entry| matches!(entry, Entry::Folio { .. }))? {
            (Entry::Folio { folio, .. }, at) => Some((folio, at)),
            _ => None,
        }
    }

    /// The first entry with content of a page in `pages`, in memory or elsewhere, and its pages.
    pub(crate) fn next_content(&self, pages: FilePages) -> Option<(Entry, FilePages)> {
        self.next_such(pages, Entry::has_content)
    }

    fn next_such(&self, pages: FilePages, such: fn(Entry) -> bool) -> Option<(Entry, FilePages)> {
        self.steady(|| self.next_once(pages, such), |_| false)
    }

    fn next_once(&self, pages: FilePages, such: fn(Entry) -> bool) -> Option<(Entry, FilePages)> {
        let found = |found: (Entry, FilePages)| such(found.0).then_some(found);
        if pages.is_empty() {
            return None;
        }
        if let Some(covers) = found(self.find_once(pages.start)) {
            return Some(covers);
        }
        let mut at = pages.start;
        while at < pages.end {
            let place = self.tree.walk(at, 0)?;
            let unit = 1_u64 << Tree::<A, H>::shift(place.node.level);
            let here = at & !(unit - 1);
            // A search beyond the pages could go on for long.
            let wanted = (pages.end - here).div_ceil(unit);
            let limit = wanted.min((1 << Self::BITS) - place.at as u64) as usize;
            let skip = match Entry::of(place.word) {
                Entry::Empty => {
                    self.tree.hw.count_run(place.node.frame, place.at, limit, 0, 0).max(1) as u64
                }
                entry if such(entry) && here >= pages.start => {
                    return found(self.find_once(here))
                        .filter(|(_, found)| found.start < pages.end);
                }
                _ => 1,
            };
            at = here + skip * unit;
        }
        None
    }

    /// The largest order, `most` at most, whose block from `page` on has no content in it. `page`
    /// has none, and is aligned to that order.
    pub(crate) fn empty_order(&self, page: u64, most: Order) -> Order {
        let most = Order::new(most.get().min(page.trailing_zeros().min(63) as u8));
        let block = FilePages::block(page, most);
        let Some((_, found)) = self.next_content(block) else { return most };
        Order::fitting(found.start.saturating_sub(page)).unwrap_or_default().min(most)
    }

    /// Puts `folio` at `page`, to which it is aligned. Notes make room. A node that is needed is
    /// made of the frame in `spare`.
    pub(crate) fn insert(
        &self,
        page: u64,
        folio: Folio,
        spare: &mut Option<FrameRun>,
    ) -> Result<(), InsertLack> {
        self.put(page, Entry::Folio { folio, dirty: false }, spare)
    }

    /// Remembers `note` of the block of `order` at `page`, if there is room and no node is needed
    /// for it: notes are hints.
    pub(crate) fn note(&self, page: u64, order: Order, note: Note) {
        let _ = self.put(page, Entry::Note { note, order }, &mut None);
    }

    /// The same for any entry of a block.
    pub(crate) fn put(
        &self,
        page: u64,
        entry: Entry,
        spare: &mut Option<FrameRun>,
    ) -> Result<(), InsertLack> {
        let order = entry.order();
        debug_assert!(page.is_multiple_of(order.pages()) && page < FILE_PAGES_MAX);
        let level = Self::level_of(order);
        loop {
            if page == 0 && self.put_root(entry) {
                return Ok(());
            }
            match self.locked(page, order) {
                Err(changing) => {
                    drop(changing);
                    self.raise(page, level, spare)?;
                }
                Ok((place, lock)) if place.node.level > level => {
                    // Another CPU may have put a node there.
                    if !matches!(self.entry(place.node, place.at), Entry::Node { .. }) {
                        self.notes(&place, 1)?;
                        self.tree.link(&place, &lock, page, spare).ok_or(InsertLack::Node)?;
                    }
                }
                Ok((place, lock)) => return self.put_at(&lock, &place, entry),
            }
        }
    }

    /// Puts `note` of blocks of `order` at the first of `pages`, which has nothing, and at as many
    /// behind it as one node has one place each for, and nothing there. Returns where that ends.
    pub(crate) fn put_notes(
        &self,
        pages: FilePages,
        (note, order): (Note, Order),
        spare: &mut Option<FrameRun>,
    ) -> Result<u64, InsertLack> {
        let entry = Entry::Note { note, order };
        self.put(pages.start, entry, spare)?;
        let next = pages.start + order.pages();
        let Ok((place, lock)) = self.locked(pages.start, order) else { return Ok(next) };
        if Tree::<A, H>::shift(place.node.level) != order.get().into() {
            return Ok(next);
        }
        let wanted = (pages.end - next) >> order.get();
        let limit = wanted.min((1 << Self::BITS) - place.at as u64 - 1) as usize;
        let count = match limit {
            0 => 0,
            _ => self.tree.hw.count_run(place.node.frame, place.at + 1, limit, 0, 0),
        };
        self.tree.write(&lock, place.at + 1, count, entry.word());
        self.tree.add_used(&lock, count as i64);
        Ok(next + ((count as u64) << order.get()))
    }

    /// Whether it has nothing at all.
    pub(crate) fn is_bare(&self) -> bool {
        self.root() == Entry::Empty
    }

    /// Puts `entry` into its places of a locked node, from `place` on.
    fn put_at(&self, lock: &WordsLock<'_>, place: &Spot, entry: Entry) -> Result<(), InsertLack> {
        let count = Self::places(entry.order(), place.node.level);
        let notes = self.notes(place, count)?;
        if count > 1 && notes > 0 {
            self.tree.write(lock, place.at + 1, count - 1, 0);
        }
        self.tree.write(lock, place.at, 1, entry.word());
        self.tree.add_used(lock, 1 - notes);
        Ok(())
    }

    /// How many notes are in `count` places from `place` on, if there is room in them.
    fn notes(&self, place: &Spot, count: usize) -> Result<i64, InsertLack> {
        let mut notes = 0;
        for at in place.at..place.at + count {
            match self.entry(place.node, at) {
                Entry::Empty => {}
                Entry::Note { .. } => notes += 1,
                Entry::Folio { .. } | Entry::Away { .. } | Entry::Node { .. } => {
                    return Err(InsertLack::Room);
                }
            }
        }
        match self.covering_in(place.node, place.at).has_content() {
            true => Err(InsertLack::Room),
            false => Ok(notes),
        }
    }

    /// Makes the folio at `page` the whole tree, if that is empty.
    fn put_root(&self, entry: Entry) -> bool {
        let _changing = self.file.changing.lock();
        let free = matches!(self.root(), Entry::Empty | Entry::Note { .. });
        if free {
            self.tree.set_root(entry.word());
        }
        free
    }

    /// Takes `folio` out, which is at `page`, and leaves `note` if there is one. Returns whether
    /// the folio was there.
    pub(crate) fn remove(&self, page: u64, folio: Folio, note: Option<Note>) -> bool {
        let left = note.map_or(Entry::Empty, |note| Entry::Note { note, order: folio.order });
        self.replace(page, folio, left).is_some()
    }

    /// Notes that the folio at `page` is dirty, or clean; returns whether it is there. All links
    /// above a dirty folio are marked by then; the next scan takes needless marks away.
    pub(crate) fn set_dirty(&self, page: u64, folio: Folio, dirty: bool) -> bool {
        let Some(level) = self.replace(page, folio, Entry::Folio { folio, dirty }) else {
            return false;
        };
        if dirty {
            self.mark_all_above(page, level);
        }
        true
    }

    /// Marks the links above the node of `level` at `page` as dirty, the lowest first: a sweep
    /// takes a mark away where the node below has none.
    pub(super) fn mark_all_above(&self, page: u64, level: u8) {
        let top = Node::of(self.tree.root()).map_or(0, |node| node.level);
        for level in level + 1..=top {
            while let Some(Spot { node, at, word }) = self.tree.walk(page, level)
                && node.level == level
                && let Entry::Node { dirty: false, .. } = Entry::of(word)
            {
                if let Some(lock) = self.tree.lock(node, page) {
                    let now = self.entry(node, at);
                    self.tree.write(&lock, at, 1, now.with_dirty(true).word());
                }
            }
        }
    }

    /// Writes `new` over the word of `folio`, which is at `page`; the level of its node.
    fn replace(&self, page: u64, folio: Folio, new: Entry) -> Option<u8> {
        let is = |entry| matches!(entry, Entry::Folio { folio: here, .. } if here == folio);
        self.exchange(page, folio.order, is, new, || true)
    }

    /// Writes `new` over the entry for a block of `order` at `page`, if it is `such`, and then
    /// `agree` returns true: it runs with the node locked, or the right to change the root. Returns
    /// the level of the node.
    pub(crate) fn exchange(
        &self,
        page: u64,
        order: Order,
        such: impl Fn(Entry) -> bool,
        new: Entry,
        agree: impl FnOnce() -> bool,
    ) -> Option<u8> {
        let (place, lock) = match self.locked(page, order) {
            Ok(found) => found,
            Err(_changing) => {
                let fits = page == 0 && such(self.root()) && agree();
                return fits.then(|| {
                    self.tree.set_root(new.word());
                    Self::level_of(order)
                });
            }
        };
        let is_there = such(self.entry(place.node, place.at));
        if place.node.level > Self::level_of(order) || !is_there || !agree() {
            return None;
        }
        self.tree.write(&lock, place.at, 1, new.word());
        self.tree.add_used(&lock, if new == Entry::Empty { -1 } else { 0 });
        Some(place.node.level)
    }

    /// The place for a folio of `order` at `page` with its node locked, or else the right to change
    /// the root.
    pub(super) fn locked(
        &self,
        page: u64,
        order: Order,
    ) -> Result<(Spot, WordsLock<'a>), impl DerefMut<Target = ()> + use<'a, A, H>> {
        loop {
            if let Some(place) = self.place_of(page, order) {
                if let Some(lock) = self.tree.lock(place.node, page) {
                    return Ok((place, lock));
                }
                continue;
            }
            let changing = self.file.changing.lock();
            if self.place_of(page, order).is_none() {
                return Err(changing);
            }
        }
    }

    /// The level of the nodes that have one word, or several places, for folios of `order`.
    pub(super) const fn level_of(order: Order) -> u8 {
        (order.get() as u32 / Self::BITS) as u8
    }

    /// How many places of a node of `level` a folio of `order` has, which is at least one.
    pub(super) const fn places(order: Order, level: u8) -> usize {
        match order.pages() >> Tree::<A, H>::shift(level) {
            0 => 1,
            count => count as usize,
        }
    }

    /// The place for a folio of `order` at `page`: in a node of its level; one lower, where a node
    /// is for just its pages; otherwise in the lowest there is. `None` as for [`walk`](Tree::walk).
    pub(super) fn place_of(&self, page: u64, order: Order) -> Option<Spot> {
        let level = Self::level_of(order);
        let root = self.tree.root();
        let place = self.tree.walk_from(root, page, level);
        let is_whole = (order.get() as u32).is_multiple_of(Self::BITS);
        let is_there = place.is_none_or(|place| place.node.level == level);
        // Its whole node, if there is one below the place.
        let below = Node::of(place.map_or(root, |place| place.word))
            .filter(|node| is_whole && is_there && node.level + 1 == level);
        let Some(node) = below else { return place };
        let is_its = place.is_some() || page == 0;
        is_its.then(|| Spot { node, at: 0, word: self.tree.hw.load(node.frame, 0) })
    }

    #[inline]
    pub(super) fn root(&self) -> Entry {
        Entry::of(self.tree.root())
    }

    /// The entry at place `at` of a node.
    #[inline]
    pub(super) fn entry(&self, node: Node, at: usize) -> Entry {
        Entry::of(self.tree.hw.load(node.frame, at))
    }

    /// The entry that covers the place: its own, or that of an aligned ancestor in the node.
    #[inline]
    fn covering(&self, place: &Spot) -> Entry {
        match Entry::of(place.word) {
            Entry::Empty => self.covering_in(place.node, place.at),
            entry => entry,
        }
    }

    /// The entry at an aligned ancestor that covers place `at` of a node. One that is too short
    /// ends the search: another further left would overlap it.
    pub(super) fn covering_in(&self, node: Node, at: usize) -> Entry {
        let mut left = at;
        while left != 0 {
            left &= left - 1;
            let entry = self.entry(node, left);
            if entry != Entry::Empty {
                let covers = at < left + Self::places(entry.order(), node.level);
                return if covers { entry } else { Entry::Empty };
            }
        }
        Entry::Empty
    }

    /// Puts a node above the root, towards one that reaches `page` and `level`.
    pub(super) fn raise(
        &self,
        page: u64,
        level: u8,
        spare: &mut Option<FrameRun>,
    ) -> Result<(), InsertLack> {
        let _changing = self.file.changing.lock();
        if self.tree.top(page, level).is_some() {
            return Ok(());
        }
        let root = self.root();
        let (height, below) = match root {
            // The root's word has no dirty mark to copy: assume dirty, and let a scan find out.
            Entry::Node { node, .. } => (node.level + 1, root.with_dirty(true)),
            Entry::Folio { .. } | Entry::Away { .. } => (Self::level_of(root.order()), root),
            Entry::Note { note, .. } if !note.is_hint() => (Self::level_of(root.order()), root),
            Entry::Empty | Entry::Note { .. } => {
                (level.max(Tree::<A, H>::height(page)), Entry::Empty)
            }
        };
        self.tree.raise(spare, height, below.word()).ok_or(InsertLack::Node)
    }
}
