//! Faults on swap entries: the folio is read if it is not in memory, and mapped by runs.

use quire_arch::{Arch, Attrs, Level};
use quire_hw::Hardware;
use quire_units::{Access, Order, OrderSet, PageSpan, Prot, Vpn};

use super::Paging;
use crate::base::{Device, Error, Keep, Need, Stop};
use crate::cache::{Bounds, Entry, FilePages, Reads, Row, Window};
use crate::fault::{Installed, MarkedPage};
use crate::files::usable;
use crate::folio::Folio;
use crate::folio::cached::Cached;
use crate::limits::{SWAP_AROUND_BYTES, SWAP_AROUND_SPARE};
use crate::space::{Advice, Area, AreaFlags, Ever, Seq, Space, View};
use crate::spaces::Resolved;
use crate::stats::{Event, FolioEvent};
use crate::swap::{Slots, SwapEntry};
use crate::table::{Locked, Marks, Sight, WATCHED, What, unwritten};

/// A fault on a swap entry.
struct SwapFault<'a, A, H> {
    paging: &'a Paging<'a, A, H>,
    view: &'a View<'a, A, H>,
    device: &'a Device<'a, A, H>,
    marked: &'a MarkedPage,
    entry: SwapEntry,
    /// The program accesses the page now; otherwise it is mapped ahead.
    touched: bool,
    /// The library maps what it has moved: no page comes back from the device.
    is_restored: bool,
}

/// The folio of the device that has the faulting page.
#[derive(Clone, Copy)]
struct Found {
    folio: Folio,
    slots: FilePages,
    /// How many of the slots come before the page's own.
    before: u64,
}

/// The result of mapping it.
enum Admitted {
    /// These pages, by this many entries.
    Pages(PageSpan, u64),
    /// Something changed: decide anew.
    Stale,
    /// The entry covers more pages than the folio has: split it first.
    Split,
}

impl<A: Arch, H: Hardware> Paging<'_, A, H> {
    /// Maps a page that is on a swap device, with all pages of its folio that belong there. `None`
    /// when a change interfered, or when an entry was split.
    pub(crate) fn swap_in(
        &self,
        view: &View<'_, A, H>,
        marked: &MarkedPage,
        access: Access,
    ) -> Result<Option<Resolved>, Stop> {
        let wrong = Error::Marked(marked.page, marked.payload);
        let entry = SwapEntry::of(marked.payload).ok_or(wrong)?;
        let device = &self.base().device(entry.device).ok_or(wrong)?;
        let fault = SwapFault {
            paging: self,
            view,
            device,
            marked,
            entry,
            touched: true,
            is_restored: false,
        };
        let Some(found) = fault.find() else { return fault.lacking().map(|()| None) };
        match fault.admit(found, fault.around().end)? {
            Admitted::Stale => self.spaces().wait(view, marked.page),
            Admitted::Split => {
                self.spaces().split_leaf(view.space, marked.page, A::block_order())?;
            }
            Admitted::Pages(pages, entries) => {
                let (end, more) = fault.map_behind(pages.end);
                let (pages, entries) = (PageSpan::new(pages.start, end), entries + more);
                // A shared page is copied before it is written.
                if access != Access::Write || entry.exclusive {
                    let order = found.folio.order;
                    return Ok(Some(Resolved::Mapped(Installed { pages, order, entries })));
                }
            }
        }
        Ok(None)
    }

    /// Brings a page back from a swap device, whatever rights its area has: before the device is
    /// removed. Without effect on a page in memory.
    ///
    /// # Errors
    /// As for [`fault`](crate::Mm::fault), but [`Error::Denied`].
    pub fn swap_in_page(&self, space: &Space<A>, page: Vpn) -> Result<(), Stop> {
        let view = self.base().view(space);
        let (area, seq) = view.areas().next_at_or_after(page);
        let area = area.filter(|area| area.span.contains(page)).ok_or(Error::NoArea(page))?;
        let payload = payload_at(&view, page);
        let Some(payload) = payload.filter(|payload| SwapEntry::of(*payload).is_some()) else {
            return Ok(());
        };
        let marked = MarkedPage { page, payload, area, seq };
        self.swap_in(&view, &marked, Access::Read).map(drop)
    }
}

impl<A: Arch, H: Hardware> Paging<'_, A, H> {
    /// Maps the pages of `span` whose entries name `slots`, where their folio is in memory and no
    /// change is under way. Others are mapped at their next access.
    pub(super) fn restore(
        &self,
        space: &Space<A>,
        span: PageSpan,
        device: &Device<'_, A, H>,
        slots: FilePages,
    ) {
        let view = &self.base().view(space);
        for (pages, first) in self.entries(space, span) {
            let named = FilePages::new(first.slot, first.slot + pages.count()).intersect(slots);
            if first.device != device.number || named.is_empty() {
                continue;
            }
            let mut at = pages.start.add(named.start - first.slot);
            let end = at.add(named.count());
            while at < end {
                let entry = SwapEntry { slot: first.slot + at.offset_from(pages.start), ..first };
                at = self.restore_at(view, at, entry, device).max(at.add(1));
            }
        }
    }

    /// Maps the run of entries from `page` on, which has `entry` if it is still there, in its
    /// area; returns the page to go on at.
    fn restore_at(
        &self,
        view: &View<'_, A, H>,
        page: Vpn,
        entry: SwapEntry,
        device: &Device<'_, A, H>,
    ) -> Vpn {
        let (Some(area), seq) = view.areas().next_at_or_after(page) else { return page };
        let end = area.span.end;
        if !area.span.contains(page) {
            return page;
        }
        let marked = &MarkedPage { page, payload: entry.payload(), area, seq };
        let fault = SwapFault {
            paging: self,
            view,
            device,
            marked,
            entry,
            touched: false,
            is_restored: true,
        };
        match fault.find().map(|found| fault.admit(found, page)) {
            Some(Ok(Admitted::Pages(pages, _))) => pages.end,
            // A fault does what fails here.
            _ => end,
        }
    }
}

impl<A: Arch, H: Hardware> SwapFault<'_, A, H> {
    /// The folio in memory that has the page.
    fn find(&self) -> Option<Found> {
        let (entry, slots) = self.device.index.find(self.entry.slot);
        let Entry::Folio { folio, .. } = entry else { return None };
        Some(Found { folio, slots, before: self.entry.slot - slots.start })
    }

    /// Maps the pages behind the faulting page that were read with it, which saves a fault for each
    /// folio. Returns the page where it stopped, and the number of entries.
    #[inline(never)]
    fn map_behind(&self, from: Vpn) -> (Vpn, u64) {
        let (space, groups) = (self.view.space, &self.paging.base().groups);
        let (mut at, mut all, end) = (from, 0, self.around().end);
        while at < end
            && let Some(payload) = payload_at(self.view, at)
            && let Some(entry) = SwapEntry::of(payload)
            && entry.device == self.device.number
        {
            let marked = &MarkedPage { page: at, payload, ..*self.marked };
            let next = SwapFault { marked, entry, touched: false, ..*self };
            // A page that fails here gets its own fault.
            let Some(found) = next.find() else { break };
            if groups.charge(space, found.folio.order.pages()).is_err() {
                break;
            }
            let Ok(Admitted::Pages(pages, entries)) = next.admit(found, end) else { break };
            (at, all) = (pages.end.max(at.add(1)), all + entries);
        }
        (at, all)
    }

    /// The page is not in memory: returns the reads that it needs, unless that has changed.
    #[inline(never)]
    fn lacking(&self) -> Result<(), Stop> {
        let Self { paging, view, device, marked, entry, .. } = self;
        if payload_at(view, marked.page) != Some(marked.payload) {
            return Ok(());
        }
        let (found, _) = device.index.find(entry.slot);
        if let Entry::Folio { .. } = found {
            return Ok(());
        }
        paging.files().with(&device.index).take_read_error(found, entry.slot)?;
        let advice = Advice::of(marked.area.flags);
        let sizes = paging.base().policy.candidates(advice, view.space.opt_out());
        let folio = FilePages::block(entry.slot, self.order(sizes));
        let end = device.index.file.pages();
        let bounds = Bounds { end, window: 0, smallest: Order::ZERO, sizes };
        let window = Window { pages: self.window(folio), ..Window::exactly(folio, &bounds) };
        Err(Need::Read(Reads::new(device.index.id, window, Some(entry.slot))).into())
    }

    /// The largest order of `sizes` whose folio around the page is whole on the device: its pages'
    /// entries are consecutive, and none of its slots is in memory.
    fn order(&self, sizes: OrderSet) -> Order {
        let Self { paging, view, device, marked, entry, .. } = self;
        let aligned = (marked.page.get() ^ entry.slot).trailing_zeros();
        let fits = |order: &Order| {
            let block = PageSpan::block(marked.page, *order);
            u32::from(order.get()) <= aligned
                && paging.base().groups.affords(view.space, *order)
                && marked.area.span.covers(block)
                && self.is_run(block)
                && device.slots.is_intact(FilePages::block(entry.slot, *order))
        };
        let most = OrderSet::up_to(Slots::<A, H>::RUN_MAX.min(A::block_order()));
        (sizes & most).descending(Order::new(1)).find(fits).unwrap_or_default()
    }

    /// The slots to read with `folio`, which has that of the page: also those of its neighbours
    /// that are consecutive and not in memory. Only the folio where memory is short, or the folio
    /// is large.
    fn window(&self, folio: FilePages) -> FilePages {
        let (page, entry) = (self.marked.page, self.entry);
        let is_large = folio.count() >= around_order::<A>().pages();
        if is_large || !self.paging.base().phys.has_free(SWAP_AROUND_SPARE) {
            return folio;
        }
        let mut pieces = self.view.tables().pieces(self.around());
        let Some(run) = pieces.find(|seen| seen.pages.contains(page)) else { return folio };
        let Sight::Marker(Marks { ascending: true, .. }) = run.what else { return folio };
        let first = entry.slot.saturating_sub(page.offset_from(run.pages.start));
        let end = entry.slot + run.pages.end.offset_from(page);
        let is_out = |slot: &u64| matches!(self.device.slots.counted(*slot), (1.., false));
        let below = (first..folio.start).rev().take_while(is_out).count() as u64;
        let behind = (folio.end..end).take_while(is_out).count() as u64;
        // Whole folios of that size: parts would be left for ever.
        let size = folio.count();
        FilePages::new(folio.start - below / size * size, folio.end + behind / size * size)
    }

    /// The pages of the area that come back together.
    fn around(&self) -> PageSpan {
        PageSpan::block(self.marked.page, around_order::<A>()).intersect(self.marked.area.span)
    }

    /// Whether the entries of `block`, which one table has, name consecutive slots around the
    /// page's: then they are one run.
    fn is_run(&self, block: PageSpan) -> bool {
        let Some(seen) = self.view.tables().look(block) else { return false };
        let Sight::Marker(Marks { first, ascending }) = seen.what else { return false };
        let start = block.start.align_down(seen.leaf.pages());
        let is_its = first + self.marked.page.offset_from(start) == self.entry.payload();
        is_its && seen.pages == block && (ascending || block.count() == seen.leaf.pages())
    }

    /// Maps the entries in the page's table that belong to a folio in memory, and the folios of its
    /// size behind it, up to `end`, whose slots follow its own. The space counts for the rest of
    /// the folio as well.
    #[inline(never)]
    fn admit(&self, found: Found, end: Vpn) -> Result<Admitted, Stop> {
        let mut row = Row::of(found.slots.start, found.folio);
        let done = self.admit_locked(found, end, &mut row)?;
        if let Admitted::Pages(pages, entries) = done {
            let base = self.paging.base();
            let pages_left = pages.count().max(row.pages().count());
            base.groups.draw(self.view.space, pages_left);
            base.try_drop(self.device, &row, Keep::IfReferred);
            if !self.is_restored {
                base.count(Event::EntriesMade, entries);
                base.count(Event::PagesSwappedIn, pages.count());
                base.count_folios(FolioEvent::Swpin, row.order(), row.len() as u64);
            }
        }
        Ok(done)
    }

    /// The part of it under the table's lock.
    #[inline(never)]
    fn admit_locked(&self, found: Found, end: Vpn, row: &mut Row) -> Result<Admitted, Stop> {
        let Found { folio, slots, before } = found;
        let &MarkedPage { page, payload, ref area, seq } = self.marked;
        let (space, tables) = (self.view.space, self.view.tables());
        let locked = tables.lock_lowest(page, Level::LAST);
        let is_current = space.areas.is_current(seq, PageSpan::block(page, Order::ZERO));
        if !is_current || payload_in(&locked, page) != Some(payload) {
            return Ok(Admitted::Stale);
        }
        let id = self.device.index.id;
        let Some(cached) = self.paging.base().cached(id, slots.start, folio) else {
            return Ok(Admitted::Stale);
        };
        usable(cached.known(), id, folio.head.add(before))?;
        let leaf = A::order(locked.level());
        if folio.order < leaf || !area.span.covers(PageSpan::block(page, leaf)) {
            return Ok(Admitted::Split);
        }
        self.show(&cached, Vpn::new(page.get().wrapping_sub(before)));
        let mapped = self.admit_runs(&locked, found, |pages| cached.map(pages));
        drop(cached);
        let Some((pages, mut entries)) = mapped else { return Ok(Admitted::Stale) };
        let end = end.min(locked.reach().end).max(pages.end);
        let (mut all, behind) = (pages, PageSpan::new(pages.end, end));
        let whole = pages.end == page.add(slots.count() - before);
        if whole && !behind.is_empty() && self.may_admit(behind, seq) {
            let more = self.admit_behind(&locked, row, behind);
            entries += more >> leaf.get();
            all = PageSpan::new(pages.start, pages.end.add(more));
        }
        Ok(Admitted::Pages(all, entries))
    }

    /// Whether pages behind the page may be mapped with it: no change holds them, and the space's
    /// group has room for them.
    fn may_admit(&self, behind: PageSpan, seq: Seq) -> bool {
        let space = self.view.space;
        let has_room = || self.paging.base().groups.charge(space, behind.count()).is_ok();
        space.areas.is_current(seq, behind) && has_room()
    }

    /// Prepares a folio that is about to be mapped from `home` on.
    fn show(&self, cached: &Cached<'_>, home: Vpn) {
        // Its slot is locked, so the table could not do this when it shows the folio.
        if self.marked.area.prot.contains(Prot::EXEC) {
            cached.publish(self.paging.base().hw);
        }
        // Where pages were moved, other spaces map this folio at another place.
        if self.entry.exclusive || !self.view.space.has(Ever::Moved) {
            self.view.folios().set_home(cached.folio, self.view.tables().home(home));
        }
    }

    /// Maps the folios of the row's size behind its last one, as far as the entries of `pages`, in
    /// a locked table, name their slots; the row gets them. Returns how many pages.
    ///
    /// A folio's count keeps it from going away once it is out of its lock: its leaf is written
    /// before that of the table is open.
    fn admit_behind(&self, locked: &Locked<'_, A, H>, row: &mut Row, pages: PageSpan) -> u64 {
        let (index, order) = (&self.device.index, row.order());
        let (run, upto) = locked.run_in(pages.start, pages.end);
        let (What::Marker(marks), slot) = (run.what, row.pages().end) else { return 0 };
        let Some(entry) = SwapEntry::of(marks.first) else { return 0 };
        let is_next = (entry.device, entry.slot) == (self.device.number, slot);
        let is_whole = locked.page(run.index) == pages.start;
        if !is_next || !is_whole || !(marks.ascending || run.count == 1) {
            return 0;
        }
        let (from, most) = (row.len(), (upto.offset_from(pages.start) >> order.get()) as usize);
        let next = SwapFault { entry, touched: false, ..*self };
        index.follow_row(row, from + most, |folio, at| {
            let Some(cached) = self.paging.base().cached(index.id, at, folio) else { return false };
            let is_usable = usable(cached.known(), index.id, folio.head).is_ok();
            if is_usable {
                next.show(&cached, pages.start.add(at - slot));
            }
            is_usable && cached.map(order.pages() as u32)
        });
        let (attrs, count) =
            (attrs(&self.marked.area, entry, false), order.pages() >> locked.unit().get());
        let whole = row.part(from, row.len());
        for (number, (folio, _)) in row.iter().skip(from).enumerate() {
            let first = run.index + number * count as usize;
            locked.admit(first, count as usize, folio.head, attrs, order);
        }
        if !whole.is_empty() {
            self.device.slots.release(whole);
        }
        whole.count()
    }

    /// Maps every run of entries of a locked table that name the folio's slots, in step with the
    /// page that faulted. Returns the span from the first to the last page, and the number of
    /// entries.
    fn admit_runs(
        &self,
        locked: &Locked<'_, A, H>,
        Found { folio, slots, before }: Found,
        map: impl Fn(u32) -> bool,
    ) -> Option<(PageSpan, u64)> {
        let &MarkedPage { page, ref area, .. } = self.marked;
        let room = area.span.intersect(locked.reach());
        let first = page.get().saturating_sub(before).max(room.start.get());
        let end = page.add(slots.count() - before).min(room.end);
        let (mut at, mut all, mut entries) = (Vpn::new(first), None, 0);
        while at < end {
            let (run, upto) = locked.run_in(at, end);
            let ahead = at.get() + before - page.get();
            let part =
                FilePages::new(slots.start + ahead, slots.start + ahead + upto.offset_from(at));
            if let What::Marker(marks) = run.what
                && let Some(entry) = SwapEntry::of(marks.first)
                && (entry.device, entry.slot) == (self.device.number, part.start)
                && (marks.ascending || run.count == 1)
                && map(part.count() as u32)
            {
                let (frame, attrs) = (folio.head.add(ahead), attrs(area, entry, self.touched));
                locked.admit(run.index, run.count, frame, attrs, folio.order);
                self.device.slots.release(part);
                entries += run.count as u64;
                let start = all.map_or(at, |pages: PageSpan| pages.start);
                all = Some(PageSpan::new(start, upto));
            }
            at = upto;
        }
        all.map(|pages| (pages, entries))
    }
}

/// The payload of the marker at `page`.
fn payload_at<A: Arch, H: Hardware>(view: &View<'_, A, H>, page: Vpn) -> Option<u64> {
    payload_in(&view.tables().lock_lowest(page, Level::LAST), page)
}

/// The same in its table.
fn payload_in<A: Arch, H: Hardware>(locked: &Locked<'_, A, H>, page: Vpn) -> Option<u64> {
    let index = locked.index(page);
    let What::Marker(marks) = locked.run(index, index + 1).what else { return None };
    Some(marks.first + page.offset_from(locked.page(index)))
}

/// The order of the block around a fault that comes back together.
fn around_order<A: Arch>() -> Order {
    Order::fitting((SWAP_AROUND_BYTES >> A::PAGE_SHIFT).max(1)).unwrap_or_default()
}

/// The attributes of a leaf for a page that came back.
fn attrs(area: &Area, entry: SwapEntry, touched: bool) -> Attrs {
    let is_own = entry.exclusive && !entry.watched;
    let prot = if is_own { area.prot } else { unwritten(area.prot) };
    let mut attrs = Attrs::user(prot);
    attrs.set(Attrs::YOUNG, touched);
    attrs.set(Attrs::COW, !entry.exclusive);
    attrs |= if entry.watched { WATCHED } else { Attrs::empty() };
    let at_once = is_own && prot.contains(Prot::WRITE);
    let tracked = area.flags.contains(AreaFlags::TRACKED);
    attrs.set(Attrs::DIRTY, entry.written || at_once && !tracked);
    attrs
}
