//! From a file's pages to its folios: a radix tree whose nodes are frames.
//!
//! ```text
//!   File::root ──► [ node, level 1 ] ──► [ node, level 0 ]      a word: see `word`
//!                    one place for           one place for
//!                    512 pages               each page
//! ```
//!
//! A folio of order 4 at page 32 is one word at place 32 of a node of level 0; one of order 9 is
//! one word of a node of level 1, or, where there is a node of level 0 for its pages already, the
//! first and only one of that. A file whose only folio begins at page 0 has no node: that word is
//! the root itself.
//!
//! Readers take no lock: they load words, and may end in a frame that is no node any more. What
//! they find is a guess, until the folio's slot, locked, says that it is that page of that file.
//! That there is nothing no slot can say: of what is there all the time, but in other folios,
//! `shape` tells (see `reshape`).
//! Writers lock the one node that they change, and ask its slot who it is: *lock, then ask*, as in
//! page tables. Locks are taken from the root down; under them at most a folio's is taken.

use core::marker::PhantomData;

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, Pfn};

use super::file::root_of;
use super::word::{Entry, Note};
use super::{File, FileId, FilePages};
use crate::folio::Folio;
use crate::phys::{Kind, Meta, WordsLock};
use crate::sync::Ordering;

/// How many pages a file may have at most: 64 PiB of 4 KiB pages.
pub const FILE_PAGES_MAX: u64 = 1 << PAGE_BITS;
/// How many files there may be at once.
pub const FILES_MAX: usize = 1 << (64 - PAGE_BITS);

const PAGE_BITS: u32 = 44;

/// Who a folio or a node of the index is: which file's, from which page on.
#[inline]
pub(crate) const fn identity(file: FileId, page: u64) -> u64 {
    (file.0 as u64) << PAGE_BITS | page
}

/// Which file's an identity is: what [`known`](crate::folio::Folios::known) tells with a folio.
#[inline]
pub const fn file_of(identity: u64) -> FileId {
    FileId((identity >> PAGE_BITS) as u32)
}

/// The page of its file that an identity begins with.
#[inline]
pub const fn page_of(identity: u64) -> u64 {
    identity & ((1 << PAGE_BITS) - 1)
}

/// The index of one file: a view that is cheap to make and to copy.
pub(crate) struct Index<'a, A, H> {
    pub(super) hw: &'a H,
    pub(super) meta: Meta<'a>,
    pub(crate) file: &'a File,
    pub(crate) id: FileId,
    arch: PhantomData<A>,
}

impl<A, H> Clone for Index<'_, A, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, H> Copy for Index<'_, A, H> {}

/// What stopped an insertion. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InsertLack {
    /// One zeroed frame, to become a node.
    Node,
    /// An empty place: some page of the block is in memory, or lower nodes are in the way of a
    /// folio that is larger than one, which hold nothing any more, and which
    /// [`prune`](Index::prune) removes.
    Room,
}

/// One place of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) frame: Pfn,
    pub(super) level: u8,
    pub(super) at: usize,
    /// What was read there.
    pub(super) entry: Entry,
}

impl<'a, A: Arch, H: Hardware> Index<'a, A, H> {
    /// The number of places in a node, as a power of two.
    pub(super) const BITS: u32 = A::PAGE_SHIFT - 3;

    pub(crate) fn new(hw: &'a H, meta: Meta<'a>, file: &'a File, id: FileId) -> Self {
        Self { hw, meta, file, id, arch: PhantomData }
    }

    /// What covers `page`, and which pages that covers; just the page where nothing does.
    #[inline]
    pub(crate) fn find(&self, page: u64) -> (Entry, FilePages) {
        self.steady(|| self.find_once(page), |(entry, _)| *entry != Entry::Empty)
    }

    #[inline]
    fn find_once(&self, page: u64) -> (Entry, FilePages) {
        let nothing = (Entry::Empty, FilePages::new(page, page + 1));
        let Some(place) = self.walk(page, 0) else {
            return match self.root() {
                entry @ (Entry::Folio { .. } | Entry::Note { .. }) => {
                    let pages = FilePages::block(0, entry.order().unwrap_or_default());
                    if pages.contains(page) { (entry, pages) } else { nothing }
                }
                _ => nothing,
            };
        };
        match self.covering(&place) {
            (_, entry @ (Entry::Folio { .. } | Entry::Note { .. })) => {
                (entry, FilePages::block(page, entry.order().unwrap_or_default()))
            }
            _ => nothing,
        }
    }

    /// The first folio that has a page in `pages`, and which pages of the file it has.
    pub(crate) fn next(&self, pages: FilePages) -> Option<(Folio, FilePages)> {
        self.steady(|| self.next_once(pages), |_| false)
    }

    fn next_once(&self, pages: FilePages) -> Option<(Folio, FilePages)> {
        let found = |(entry, pages)| match entry {
            Entry::Folio { folio, .. } => Some((folio, pages)),
            _ => None,
        };
        if pages.is_empty() {
            return None;
        }
        if let Some(covers) = found(self.find_once(pages.start)) {
            return Some(covers);
        }
        let mut at = pages.start;
        while at < pages.end {
            let place = self.walk(at, 0)?;
            let unit = 1_u64 << (Self::BITS * place.level as u32);
            let here = at & !(unit - 1);
            // What lies behind the pages was not asked for, and may be empty far and wide.
            let wanted = (pages.end - here).div_ceil(unit);
            let most = wanted.min((1 << Self::BITS) - place.at as u64) as usize;
            let skip = match place.entry {
                Entry::Empty => self.hw.count_run(place.frame, place.at, most, 0, 0).max(1) as u64,
                Entry::Folio { .. } if here >= pages.start => {
                    return found(self.find_once(here))
                        .filter(|(_, found)| found.start < pages.end);
                }
                _ => 1,
            };
            at = here + skip * unit;
        }
        None
    }

    /// The largest order, `most` at most, whose block from `page` on has no folio in it. `page` has
    /// none, and is aligned to that order.
    pub(crate) fn empty_order(&self, page: u64, most: Order) -> Order {
        let most = Order::new(most.get().min(page.trailing_zeros().min(63) as u8));
        match self.next(FilePages::block(page, most)) {
            None => most,
            Some((_, found)) => Order::fitting(found.start.saturating_sub(page).max(1))
                .unwrap_or_default()
                .min(most),
        }
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

    fn put(&self, page: u64, entry: Entry, spare: &mut Option<FrameRun>) -> Result<(), InsertLack> {
        let order = entry.order().unwrap_or_default();
        debug_assert!(page.is_multiple_of(order.pages()) && page < FILE_PAGES_MAX);
        let level = Self::level_of(order);
        loop {
            if page == 0 && self.put_root(entry) {
                return Ok(());
            }
            if !self.reaches(page, level) {
                self.raise(page, level, spare)?;
                continue;
            }
            let Some(place) = self.place_of(page, order) else { continue };
            if place.level > level {
                self.link(&place, page, spare)?;
                continue;
            }
            if let Some(node) = self.lock(place.frame, place.level, page) {
                let count = (order.pages() >> (Self::BITS * place.level as u32)) as usize;
                return self.put_at(&node, place, count.max(1), entry);
            }
        }
    }

    /// Puts `entry` into `count` places of a node, from `place` on.
    fn put_at(
        &self,
        node: &WordsLock<'_>,
        Place { level, at, .. }: Place,
        count: usize,
        entry: Entry,
    ) -> Result<(), InsertLack> {
        let mut used = 0;
        for index in at..at + count {
            match Entry::of(self.hw.load(node.frame(), index)) {
                Entry::Empty => {}
                Entry::Note { .. } => used += 1,
                Entry::Folio { .. } | Entry::Node { .. } => return Err(InsertLack::Room),
            }
        }
        if let (_, Entry::Folio { .. }) = self.covering_in(node.frame(), level, at) {
            return Err(InsertLack::Room);
        }
        if count > 1 && used > 0 {
            self.hw.fill(node.words(), at + 1, count - 1, 0, 0);
        }
        self.hw.fill(node.words(), at, 1, entry.word(), 0);
        self.add(node, 1 - used);
        Ok(())
    }

    /// Makes the folio at `page` the whole tree, if that is empty.
    fn put_root(&self, entry: Entry) -> bool {
        let _changing = self.file.changing.lock();
        let free = matches!(self.root(), Entry::Empty | Entry::Note { .. });
        if free {
            self.file.root.store(entry.word(), Ordering::Release);
        }
        free
    }

    /// Takes `folio` out, which is at `page`, and leaves `note` if there is one. Whether it was
    /// there.
    pub(crate) fn remove(&self, page: u64, folio: Folio, note: Option<Note>) -> bool {
        let left = note.map_or(Entry::Empty, |note| Entry::Note { note, order: folio.order });
        self.replace(page, folio, left).is_some()
    }

    /// Notes that the folio at `page` is dirty, or clean. Whether it is there. Nodes above a dirty
    /// folio say so when this returns; above a clean one, the scan for dirty ones finds out.
    pub(crate) fn set_dirty(&self, page: u64, folio: Folio, dirty: bool) -> bool {
        let Some(level) = self.replace(page, folio, Entry::Folio { folio, dirty }) else {
            return false;
        };
        if dirty {
            self.mark_all_above(page, level);
        }
        true
    }

    /// Notes in all nodes above the one of `level` at `page` that something below is dirty.
    pub(super) fn mark_all_above(&self, page: u64, level: u8) {
        let top = match self.root() {
            Entry::Node { level, .. } => level,
            _ => 0,
        };
        for level in (level + 1..=top).rev() {
            self.mark_above(page, level);
        }
    }

    /// Notes in the node of `level` that something below is dirty.
    fn mark_above(&self, page: u64, level: u8) {
        loop {
            let Some(place) = self.walk(page, level) else { return };
            if place.level != level || !matches!(place.entry, Entry::Node { dirty: false, .. }) {
                return;
            }
            let Some(node) = self.lock(place.frame, level, page) else { continue };
            let now = Entry::of(self.hw.load(node.frame(), place.at));
            self.hw.fill(node.words(), place.at, 1, now.with_dirty(true).word(), 0);
        }
    }

    /// Writes `new` over the word of `folio`, which is at `page`; the level of its node.
    fn replace(&self, page: u64, folio: Folio, new: Entry) -> Option<u8> {
        let is = |entry| matches!(entry, Entry::Folio { folio: here, .. } if here == folio);
        let level = Self::level_of(folio.order);
        loop {
            let Some(place) = self.place_of(page, folio.order) else {
                let _changing = self.file.changing.lock();
                if self.reaches(page, level) {
                    continue;
                }
                if page != 0 || !is(self.root()) {
                    return None;
                }
                self.file.root.store(new.word(), Ordering::Release);
                return Some(level);
            };
            let Some(node) = self.lock(place.frame, place.level, page) else { continue };
            if place.level > level || !is(Entry::of(self.hw.load(node.frame(), place.at))) {
                return None;
            }
            self.hw.fill(node.words(), place.at, 1, new.word(), 0);
            self.add(&node, if new == Entry::Empty { -1 } else { 0 });
            return Some(place.level);
        }
    }

    /// The level of the nodes that have one word, or several places, for folios of `order`.
    pub(super) const fn level_of(order: Order) -> u8 {
        (order.get() as u32 / Self::BITS) as u8
    }

    /// The place for a folio of `order` at `page`: in a node of its level; one lower, where a node
    /// is for just its pages; or, where there is none so low, in the lowest there is. `None` as for
    /// [`walk`](Self::walk).
    pub(super) fn place_of(&self, page: u64, order: Order) -> Option<Place> {
        let level = Self::level_of(order);
        let (above, place) = match self.walk(page, level) {
            Some(place) => (place.level, Some(place)),
            None => (level, None),
        };
        // Its whole node, if there is one below the place.
        let below = match place.map_or(self.root(), |place| place.entry) {
            Entry::Node { frame, level: lower, .. } if lower + 1 == level && above == level => {
                Some((frame, lower))
            }
            _ => None,
        };
        match below {
            Some((frame, lower)) if (order.get() as u32).is_multiple_of(Self::BITS) => {
                let is_its = place.is_some() || page == 0;
                let entry = Entry::of(self.hw.load(frame, 0));
                is_its.then_some(Place { frame, level: lower, at: 0, entry })
            }
            _ => place,
        }
    }

    #[inline]
    pub(super) fn root(&self) -> Entry {
        root_of(self.file)
    }

    /// The place of `page` in the lowest node there is, `level` or above; `None` where the root is
    /// no node, or none that reaches so far.
    #[inline]
    pub(super) fn walk(&self, page: u64, level: u8) -> Option<Place> {
        let Entry::Node { frame, level: mut height, .. } = self.root() else { return None };
        if page >> (Self::BITS * (height as u32 + 1)) != 0 || height < level {
            return None;
        }
        let mut frame = frame;
        loop {
            let at = Self::place(page, height);
            let entry = Entry::of(self.hw.load(frame, at));
            match entry {
                Entry::Node { frame: lower, .. } if height > level => {
                    (frame, height) = (lower, height - 1);
                }
                _ => return Some(Place { frame, level: height, at, entry }),
            }
        }
    }

    #[inline]
    pub(super) fn place(page: u64, level: u8) -> usize {
        (page >> (Self::BITS * level as u32)) as usize & ((1 << Self::BITS) - 1)
    }

    /// What covers the place: what is there, or at an aligned ancestor in the node.
    #[inline]
    fn covering(&self, place: &Place) -> (usize, Entry) {
        match place.entry {
            Entry::Empty => self.covering_in(place.frame, place.level, place.at),
            entry => (place.at, entry),
        }
    }

    /// What covers place `at` of a node of `level` from an aligned ancestor of it. An entry there
    /// that is too short ends the search: one further left would overlap it.
    fn covering_in(&self, frame: Pfn, level: u8, at: usize) -> (usize, Entry) {
        let mut left = at;
        while left != 0 {
            left &= left - 1;
            let entry = Entry::of(self.hw.load(frame, left));
            if entry == Entry::Empty {
                continue;
            }
            // In units of this node's places: the level's bits do not count.
            let order = entry.order().unwrap_or_default().get() as u32;
            let width = order.saturating_sub(Self::BITS * level as u32);
            let covers = at >> width == left >> width;
            return if covers { (left, entry) } else { (at, Entry::Empty) };
        }
        (at, Entry::Empty)
    }

    /// Locks the node of `level` that holds `page`, if that is what the frame is.
    pub(super) fn lock(&self, frame: Pfn, level: u8, page: u64) -> Option<WordsLock<'a>> {
        let reach = Self::BITS * (level as u32 + 1);
        let owner = identity(self.id, page >> reach << reach);
        let node = self.meta.lock(frame)?.words()?;
        let state = node.slot().state();
        let is_it = state.kind() == Kind::Index
            && state.order() == level
            && node.slot().owner.load(Ordering::Relaxed) == owner;
        is_it.then_some(node)
    }

    /// Whether the root is a node with a place for `page` at `level`.
    pub(super) fn reaches(&self, page: u64, level: u8) -> bool {
        match self.root() {
            Entry::Node { level: height, .. } => {
                height >= level && page >> (Self::BITS * (height as u32 + 1)) == 0
            }
            _ => false,
        }
    }

    /// Puts a node above the root, towards one that reaches `page` and `level`.
    pub(super) fn raise(
        &self,
        page: u64,
        level: u8,
        spare: &mut Option<FrameRun>,
    ) -> Result<(), InsertLack> {
        let _changing = self.file.changing.lock();
        if self.reaches(page, level) {
            return Ok(());
        }
        let root = self.root();
        let height = match root {
            Entry::Node { level, .. } => level + 1,
            Entry::Folio { folio, .. } => (folio.order.get() as u32 / Self::BITS) as u8,
            Entry::Empty | Entry::Note { .. } => {
                let needed = page.checked_ilog2().unwrap_or(0) / Self::BITS;
                level.max(needed as u8)
            }
        };
        let run = spare.take().ok_or(InsertLack::Node)?;
        let frame = self.adopt(run, height, 0);
        if matches!(root, Entry::Node { .. } | Entry::Folio { .. }) {
            let node = self.lock(frame, height, 0).ok_or(InsertLack::Node)?;
            // Of a root nothing says whether something below is dirty: whoever looks finds out.
            let dirty = root.is_dirty() || matches!(root, Entry::Node { .. });
            self.hw.fill(node.words(), 0, 1, root.with_dirty(dirty).word(), 0);
            self.add(&node, 1);
        }
        let node = Entry::Node { frame, level: height, dirty: false };
        self.file.root.store(node.word(), Ordering::Release);
        Ok(())
    }

    /// Puts a node below `place`, which has none, for `page`.
    fn link(
        &self,
        place: &Place,
        page: u64,
        spare: &mut Option<FrameRun>,
    ) -> Result<(), InsertLack> {
        let Some(node) = self.lock(place.frame, place.level, page) else { return Ok(()) };
        let now = Entry::of(self.hw.load(node.frame(), place.at));
        match now {
            Entry::Node { .. } => return Ok(()),
            Entry::Folio { .. } => return Err(InsertLack::Room),
            Entry::Empty | Entry::Note { .. } => {}
        }
        if let (_, Entry::Folio { .. }) = self.covering_in(node.frame(), place.level, place.at) {
            return Err(InsertLack::Room);
        }
        let run = spare.take().ok_or(InsertLack::Node)?;
        let level = place.level - 1;
        let reach = Self::BITS * place.level as u32;
        let frame = self.adopt(run, level, page >> reach << reach);
        let lower = Entry::Node { frame, level, dirty: false };
        self.hw.fill(node.words(), place.at, 1, lower.word(), 0);
        self.add(&node, if now == Entry::Empty { 1 } else { 0 });
        Ok(())
    }

    pub(super) fn adopt(&self, run: FrameRun, level: u8, base: u64) -> Pfn {
        self.meta.at(run.start()).owner.store(identity(self.id, base), Ordering::Relaxed);
        self.meta.adopt(run, Kind::Index, level)
    }

    /// Notes that a node has so many more, or fewer, words that are not zero.
    pub(super) fn add(&self, node: &WordsLock<'_>, more: i64) {
        let counts = &node.slot().counts;
        let now = counts.load(Ordering::Relaxed);
        counts.store(now.wrapping_add_signed(more), Ordering::Relaxed);
    }
}
