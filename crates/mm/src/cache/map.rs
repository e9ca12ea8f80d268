//! Mapping the cached pages around a fault (row B5): whole folios, by runs, under one table lock.

use quire_arch::{Arch, Attrs, Level};
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Pfn, Prot, Vpn};

use super::{Entry, FilePages, Index, identity};
use crate::fault::FilePage;
use crate::folio::{Folio, FolioFlags, Folios, Home};
use crate::space::{AreaFlags, View};
use crate::table::{Locked, MarkKind, Regrant, What, is_cow, shielded, unwritten};

/// The pages that were mapped for a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown {
    /// From the first to the last page that was mapped, with others between.
    pub(crate) pages: PageSpan,
    /// How many were mapped.
    pub(crate) count: u64,
    /// The entries that were written.
    pub(crate) entries: u64,
    /// Whether the page that faulted is among them, or was there.
    pub(crate) hit: bool,
    /// The folio of the page that faulted, if it had the mark, which it has no more.
    pub(crate) marked: Option<FilePages>,
}

/// Maps the page that faulted, and the pages of `around` that are in memory and not mapped; of
/// folios that are partly in `around`, all that the area and the table have room for. Maps a whole
/// block by one leaf of order `leaf`, if that is larger than a page; then the folios behind it that
/// have pages in `around`, as many as are mapped side by side before it. `None` when the areas have
/// changed, or the table has left the tree.
///
/// A truncation takes a page out of its file before the tables. So either this does not find the
/// page, or the truncation finds the leaf.
pub(crate) fn map_around<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    index: &Index<'_, A, H>,
    fault: &FilePage,
    leaf: Order,
    around: PageSpan,
) -> Option<Shown> {
    let level = A::leaf_level(leaf);
    let tables = view.tables();
    let place = tables.walk(fault.page, level);
    if place.level != level {
        return None;
    }
    let locked = tables.lock(place.frame, level, fault.page)?;
    let pages = PageSpan::block(fault.page, Order::ZERO);
    if !view.space.areas.is_current(fault.seq, pages) {
        return None;
    }
    let none = PageSpan::new(fault.page, fault.page);
    let shown = Shown { pages: none, count: 0, entries: 0, hit: false, marked: None };
    let home = tables.home(Vpn::new(fault.page.get().wrapping_sub(fault.at)));
    let mut work = Work { index, fault, home, locked, attrs: attrs(index, fault), shown };
    match leaf {
        Order::ZERO => work.map_pages(around),
        order => work.map_block(order, around),
    }
    Some(work.shown)
}

/// The attributes of the leaves: COW, so that the first write faults, except where a shared file
/// lives in memory alone and has no dirty pages to write back.
fn attrs<A: Arch, H: Hardware>(index: &Index<'_, A, H>, fault: &FilePage) -> Attrs {
    let free = fault.area.flags.contains(AreaFlags::SHARED) && index.file.is_memory();
    let attrs = Attrs::user(fault.area.prot) | Attrs::YOUNG;
    if fault.shields {
        return shielded(attrs);
    }
    if !free {
        return attrs.with_prot(unwritten(fault.area.prot)) | Attrs::COW;
    }
    // As for anonymous memory: in a tracked area the dirty bit must tell the written pages.
    let tracked = fault.area.flags.contains(AreaFlags::TRACKED);
    let written = fault.area.prot.contains(Prot::WRITE) && !tracked;
    attrs | if written { Attrs::DIRTY } else { Attrs::empty() }
}

/// The order of the leaf for the page that faulted; `None` where it is not in memory. One leaf maps
/// a whole block where the folio has it, page and file page agree in it, and all of it is the
/// area's and the file's.
pub(crate) fn leaf_order<A: Arch, H: Hardware>(
    index: &Index<'_, A, H>,
    fault: &FilePage,
) -> Option<Order> {
    let order = A::block_order();
    let (Entry::Folio { folio, .. }, _) = index.find(fault.at) else { return None };
    let agrees = (fault.page.get() ^ fault.at) & (order.pages() - 1) == 0;
    let fits = folio.order >= order
        && agrees
        // A leaf cannot take the place of a table.
        && fault.place_order >= order
        && fault.area.span.covers(PageSpan::block(fault.page, order))
        && FilePages::block(fault.at, order).end <= index.file.pages();
    Some(if fits { order } else { Order::ZERO })
}

/// A fault's table, locked, and the pages that were mapped in it so far.
struct Work<'w, 'a, A, H> {
    index: &'w Index<'a, A, H>,
    fault: &'w FilePage,
    /// Where the area would map the file's first page, which may be below all pages.
    home: Home,
    locked: Locked<'a, A, H>,
    attrs: Attrs,
    shown: Shown,
}

impl<A: Arch, H: Hardware> Work<'_, '_, A, H> {
    /// Maps the folio of the page that faulted by leaves of `order`, as far as the area, the table
    /// and the file have whole blocks.
    fn map_block(&mut self, order: Order, around: PageSpan) {
        let (Entry::Folio { folio, .. }, all) = self.index.find(self.fault.at) else { return };
        let room = self.fault.area.span.intersect(self.locked.reach());
        let end = self.fault.page_of(self.index.file.pages(), room).align_down(order.pages());
        let start = room.start.align_up(order.pages()).unwrap_or(end);
        let room = PageSpan::new(start, end.max(start));
        self.map_folio(folio, all, room);
        let start = self.fault.page_of(all.end, room);
        let behind = PageSpan::new(start, around.end.min(room.end).max(start));
        if !behind.is_empty() {
            self.map_behind(all, behind, room);
        }
    }

    /// Maps folios of `behind`, the pages behind the folio at `all` that faulted: about as many as
    /// are mapped side by side before it. So a program that goes through them in order faults less
    /// and less, and one that does not gets no other.
    fn map_behind(&mut self, all: FilePages, behind: PageSpan, room: PageSpan) {
        let (first, size) = (self.fault.page_of(all.start, room), all.count());
        let is_there = |folios: &u64| {
            let page = first.get().checked_sub(folios * size).map(Vpn::new);
            let page = page.filter(|page| *page >= room.start);
            page.is_some_and(|page| self.locked.leaf_at(self.locked.index(page)).is_some())
        };
        let steps = core::iter::successors(Some(1), |folios| Some(folios * 2));
        let before = steps.take_while(is_there).last().unwrap_or(0);
        let end = behind.end.min(behind.start.add(before * size));
        let mut left = FilePages::new(all.end, all.end + end.offset_from(behind.start));
        while let Some((folio, pages)) = self.index.next(left)
            && pages.start == left.start
        {
            self.map_folio(folio, pages, room);
            // All that lies between the first and the last page of an answer is mapped.
            if self.shown.pages.end < self.fault.page_of(pages.end, room) {
                return;
            }
            left = FilePages::new(pages.end.min(left.end), left.end);
        }
    }

    fn map_pages(&mut self, around: PageSpan) {
        let room = self.fault.area.span.intersect(self.locked.reach());
        let end = self.fault.page_of(self.index.file.pages(), room);
        let room = PageSpan::new(room.start, end);
        let around = around.intersect(room);
        if around.is_empty() {
            // The file was truncated meanwhile.
            return;
        }
        let mut left =
            FilePages::new(self.fault.file_page(around.start), self.fault.file_page(around.end));
        while let Some((folio, pages)) = self.index.next(left) {
            self.map_folio(folio, pages, room);
            left = FilePages::new(pages.end, left.end);
        }
    }

    /// Maps the pages of a folio, found at `pages`, that lie in `room` and are not mapped.
    fn map_folio(&mut self, folio: Folio, pages: FilePages, room: PageSpan) {
        let (mut at, end) =
            (self.fault.page_of(pages.start, room), self.fault.page_of(pages.end, room));
        while at < end {
            let (run, upto) = self.locked.run_in(at, end);
            let wanted = FilePages::new(self.fault.file_page(at), self.fault.file_page(upto));
            let is_shielded = matches!(run.what, What::Marker(marks)
                if marks.kind() == Some(MarkKind::Watched));
            if run.what != What::Absent && !is_shielded {
                self.shown.hit |= PageSpan::new(at, upto).contains(self.fault.page);
            } else if let Some(frame) = self.take(folio, pages, wanted) {
                let attrs = if is_shielded { shielded(self.attrs) } else { self.attrs };
                self.locked.clear_marks(&run);
                self.put(PageSpan::new(at, upto), frame, folio, attrs);
            }
            at = upto;
        }
    }

    /// Counts `pages` of `folio`, which was found at `all` under the table's lock, as mapped, if
    /// they may be and its slot says that it is still the file's; the frame of the first.
    fn take(&mut self, folio: Folio, all: FilePages, pages: FilePages) -> Option<Pfn> {
        if !all.covers(pages) {
            return None;
        }
        let owner = identity(self.index.id, all.start);
        let cached = Folios::new(self.index.tree.meta).cached(folio.head, owner)?;
        let known = cached.known();
        let usable = known.contains(FolioFlags::UPTODATE) && !known.contains(FolioFlags::POISONED);
        if cached.folio != folio || !usable || !cached.map(pages.count() as u32) {
            return None;
        }
        if known.contains(FolioFlags::READAHEAD) && all.contains(self.fault.at) {
            cached.learn(known - FolioFlags::READAHEAD);
            self.shown.marked = Some(all);
        }
        Folios::new(self.index.tree.meta).set_home(folio, self.home.ahead(all.start));
        Some(folio.head.add(pages.start - all.start))
    }

    fn put(&mut self, pages: PageSpan, frame: Pfn, folio: Folio, attrs: Attrs) {
        let unit = A::order(self.locked.level());
        let entries = (pages.count() >> unit.get()) as usize;
        self.locked.put_alike(self.locked.index(pages.start), entries, frame, attrs, folio.order);
        let shown = &mut self.shown;
        shown.pages = match shown.count {
            0 => pages,
            _ => PageSpan::new(shown.pages.start.min(pages.start), shown.pages.end.max(pages.end)),
        };
        shown.count += pages.count();
        shown.entries += entries as u64;
        shown.hit |= pages.contains(self.fault.page);
    }
}

/// Makes a page of a shared area writable, with all the pages of its folio that this table maps,
/// and marks the folio dirty. Returns how many pages; `None` when the areas or the leaf have
/// changed.
///
/// The folio is dirty before the first entry can be written: writeback clears the mark first and
/// write-protects the leaves then, under the same lock.
pub(crate) fn grant_write<A: Arch, H: Hardware>(
    view: &View<'_, A, H>,
    index: &Index<'_, A, H>,
    fault: &FilePage,
) -> Option<u64> {
    let tables = view.tables();
    let locked = tables.lock_lowest(fault.page, Level::LAST);
    let (_, attrs) = locked.leaf_at(locked.index(fault.page))?;
    let pages = PageSpan::block(fault.page, Order::ZERO);
    if !is_cow(attrs) || !view.space.areas.is_current(fault.seq, pages) {
        return None;
    }
    let (Entry::Folio { folio, .. }, all) = index.find(fault.at) else { return None };
    if !index.set_dirty(all.start, folio, true) {
        return None;
    }
    let room = fault.area.span.intersect(locked.reach());
    let (mut at, end) = (fault.page_of(all.start, room), fault.page_of(all.end, room));
    let mut granted = 0;
    while at < end {
        let (run, upto) = locked.run_in(at, end);
        if let What::Leaf { attrs, .. } = run.what
            && is_cow(attrs)
        {
            let own = Regrant::rights(fault.area.prot).without(Attrs::COW);
            locked.grant(run, folio.order, own.with(Attrs::YOUNG | Attrs::DIRTY));
            granted += upto.offset_from(at);
        }
        at = upto;
    }
    Some(granted)
}
