//! Faults on swap entries: the folio is read if it is not in memory, and mapped by runs.

use quire_arch::{Arch, Attrs, Level};
use quire_hw::Hardware;
use quire_units::{Access, Order, PageSpan, Prot, Vpn};

use super::Paging;
use crate::base::Error;
use crate::base::{Device, Keep};
use crate::cache::{Bounds, Entry, FilePages, Reads, Window, identity};
use crate::fault::{Installed, MarkedPage};
use crate::folio::{Folio, FolioFlags};
use crate::limits::{SWAP_AROUND_BYTES, SWAP_AROUND_SPARE};
use crate::space::{Advice, Area, AreaFlags, Ever, Space, View};
use crate::spaces::Resolved;
use crate::stats::{Event, FolioEvent};
use crate::swap::SwapEntry;
use crate::table::{Locked, Marks, What, unwritten};

/// A folio of a device, and the place of the faulting page in it.
struct Found {
    folio: Folio,
    slots: FilePages,
    entry: SwapEntry,
    /// The program accesses the page now; otherwise it is mapped ahead.
    touched: bool,
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
    ) -> Result<Option<Resolved>, Error> {
        let wrong = Error::Marked(marked.page, marked.payload);
        let entry = SwapEntry::of(marked.payload).ok_or(wrong)?;
        let device = self.base().device(entry.device).ok_or(wrong)?;
        let (Entry::Folio { folio, .. }, slots) = device.index.find(entry.slot) else {
            return self.lacking_swapped(view, &device, marked, entry);
        };
        let found = Found { folio, slots, entry, touched: true };
        match self.admit(view, &device, marked, &found)? {
            Admitted::Stale => {
                self.spaces().wait(view, marked.page);
                Ok(None)
            }
            Admitted::Split => {
                self.spaces().split_leaf(view.space, marked.page, A::block_order())?;
                Ok(None)
            }
            Admitted::Pages(pages, entries) => {
                self.admitted(view, &device, &found, (pages, entries));
                let (end, more) = self.swap_in_behind(view, &device, marked, pages.end);
                let (pages, entries) = (PageSpan::new(pages.start, end), entries + more);
                let installed = Installed { pages, order: folio.order, entries };
                // A shared page is copied before it is written.
                let more = access == Access::Write && !entry.exclusive;
                Ok((!more).then_some(Resolved::Mapped(installed)))
            }
        }
    }

    /// The bookkeeping after entries of a folio were replaced by leaves. The space counts for the
    /// rest of the folio as well.
    fn admitted(
        &self,
        view: &View<'_, A, H>,
        device: &Device<'_, A, H>,
        found: &Found,
        done: (PageSpan, u64),
    ) {
        self.base().groups.draw(view.space, done.0.count().max(found.folio.order.pages()));
        self.base().try_drop(device, found.folio, found.slots, Keep::IfReferred);
        self.base().count(Event::EntriesMade, done.1);
        self.base().count(Event::PagesSwappedIn, done.0.count());
        if let Some(own) = self.base().counters.get(self.base().hw.cpu().index()) {
            own.add_folios(FolioEvent::Swpin, found.folio.order, 1);
        }
    }

    /// Maps the pages behind a faulting page that were read with it, which saves a fault for each
    /// folio. Returns the page where it stopped, and the number of entries.
    fn swap_in_behind(
        &self,
        view: &View<'_, A, H>,
        device: &Device<'_, A, H>,
        marked: &MarkedPage,
        from: Vpn,
    ) -> (Vpn, u64) {
        let end = PageSpan::block(marked.page, around_order::<A>()).end.min(marked.area.span.end);
        let (mut at, mut all) = (from, 0);
        while at < end
            && let Some(payload) = self.marks_at(view, at)
            && let Some(entry) = SwapEntry::of(payload)
            && entry.device == device.number
            && let (Entry::Folio { folio, .. }, slots) = device.index.find(entry.slot)
            && self.base().groups.charge(view.space, folio.order.pages()).is_ok()
        {
            let found = Found { folio, slots, entry, touched: false };
            let next = MarkedPage { page: at, payload, ..*marked };
            // A page that fails here gets its own fault.
            let Ok(Admitted::Pages(pages, entries)) = self.admit(view, device, &next, &found)
            else {
                break;
            };
            self.admitted(view, device, &found, (pages, entries));
            (at, all) = (pages.end.max(at.add(1)), all + entries);
        }
        (at, all)
    }

    /// Brings a page back from a swap device, whatever rights its area has: before the device is
    /// removed. Without effect on a page in memory.
    ///
    /// # Errors
    /// As for [`fault`](crate::Mm::fault), but [`Error::Denied`].
    pub fn swap_in_page(&self, space: &Space<A>, page: Vpn) -> Result<(), Error> {
        let view = self.base().view(space);
        let (area, seq) = view.areas().next_at_or_after(page);
        let area = area.filter(|area| area.span.contains(page)).ok_or(Error::NoArea(page))?;
        let payload = self.marks_at(&view, page);
        let Some(payload) = payload.filter(|payload| SwapEntry::of(*payload).is_some()) else {
            return Ok(());
        };
        let marked = MarkedPage { page, payload, area, seq };
        self.swap_in(&view, &marked, Access::Read).map(|_| ())
    }

    /// The page is not in memory: returns the reads that it needs.
    fn lacking_swapped(
        &self,
        view: &View<'_, A, H>,
        device: &Device<'_, A, H>,
        marked: &MarkedPage,
        entry: SwapEntry,
    ) -> Result<Option<Resolved>, Error> {
        if self.marks_at(view, marked.page).is_none_or(|first| first != marked.payload) {
            return Ok(None);
        }
        let (found, _) = device.index.find(entry.slot);
        if let Entry::Folio { .. } = found {
            return Ok(None);
        }
        self.files().with(&device.index).take_read_error(found, entry.slot)?;
        let order = self.order_in(view, device, marked, entry);
        let sizes =
            self.base().policy.candidates(Advice::of(marked.area.flags), view.space.opt_out());
        let end = device.index.file.pages();
        let bounds = Bounds { end, window: 0, smallest: Order::ZERO, sizes: sizes | 1 };
        let folio = FilePages::block(entry.slot, order);
        let window = Window::exactly(folio, &bounds);
        let pages = self.swap_window(view, device, marked, (entry, folio));
        let window = Window { pages, ..window };
        Err(Error::Unread(Reads::new(device.index.id, window, Some(entry.slot))))
    }

    /// The largest wanted folio around the page that is whole on the device: its pages' entries are
    /// consecutive, and none of its slots is in memory.
    fn order_in(
        &self,
        view: &View<'_, A, H>,
        device: &Device<'_, A, H>,
        marked: &MarkedPage,
        entry: SwapEntry,
    ) -> Order {
        let sizes =
            self.base().policy.candidates(Advice::of(marked.area.flags), view.space.opt_out());
        let most = crate::swap::Slots::<A, H>::RUN_MAX.min(A::block_order());
        let wanted = sizes & ((2 << most.get()) - 1);
        let aligned = (marked.page.get() ^ entry.slot).trailing_zeros();
        let fits = |order: &Order| {
            let block = PageSpan::block(marked.page, *order);
            u32::from(order.get()) <= aligned
                && self.base().groups.affords(view.space, *order)
                && marked.area.span.covers(block)
                && self.is_run(view, block, entry, marked.page)
                && device.slots.is_intact(FilePages::block(entry.slot, *order))
        };
        let orders = (1..=wanted.checked_ilog2().unwrap_or(0) as u8).rev().map(Order::new);
        orders.filter(|order| wanted >> order.get() & 1 != 0).find(fits).unwrap_or_default()
    }

    /// The slots to read with `folio`, which has that of the page: also those of its neighbours
    /// that are consecutive and not in memory. Only the folio where memory is short, or the folio
    /// is large.
    fn swap_window(
        &self,
        view: &View<'_, A, H>,
        device: &Device<'_, A, H>,
        marked: &MarkedPage,
        (entry, folio): (SwapEntry, FilePages),
    ) -> FilePages {
        let block = PageSpan::block(marked.page, around_order::<A>());
        if folio.count() >= block.count() || !self.base().phys.has_free(SWAP_AROUND_SPARE) {
            return folio;
        }
        let mut pieces = view.tables().pieces(block.intersect(marked.area.span));
        let Some(run) = pieces.find(|seen| seen.pages.contains(marked.page)) else { return folio };
        let crate::table::Sight::Marker(Marks { ascending: true, .. }) = run.what else {
            return folio;
        };
        let first = entry.slot.saturating_sub(marked.page.offset_from(run.pages.start));
        let end = entry.slot + run.pages.end.offset_from(marked.page);
        let is_out = |slot: &u64| matches!(device.slots.counted(*slot), (1.., false));
        let below = (first..folio.start).rev().take_while(is_out).count() as u64;
        let behind = (folio.end..end).take_while(is_out).count() as u64;
        // Whole folios of that size: parts would be left for ever.
        let size = folio.count();
        FilePages::new(folio.start - below / size * size, folio.end + behind / size * size)
    }

    /// Whether the entries of `block` name consecutive slots around `entry` at `page`.
    fn is_run(&self, view: &View<'_, A, H>, block: PageSpan, entry: SwapEntry, page: Vpn) -> bool {
        let first = entry.payload() - page.offset_from(block.start);
        let mut upto = block.start;
        let pieces = view.tables().pieces(block);
        for seen in pieces {
            let crate::table::Sight::Marker(Marks { first: here, ascending }) = seen.what else {
                return false;
            };
            let whole = ascending || seen.pages.count() == seen.leaf.pages();
            let starts = seen.pages.start.align_down(seen.leaf.pages());
            let expected = first.wrapping_add(seen.pages.start.offset_from(block.start));
            let ahead = seen.pages.start.offset_from(starts);
            if !whole || seen.pages.start != upto || here + ahead != expected {
                return false;
            }
            upto = seen.pages.end;
        }
        upto == block.end
    }

    /// The payload of the marker at `page`.
    fn marks_at(&self, view: &View<'_, A, H>, page: Vpn) -> Option<u64> {
        let locked = view.tables().lock_lowest(page, Level::LAST);
        match locked.run(locked.index(page), locked.index(page) + 1).what {
            What::Marker(marks) => {
                Some(marks.first + page.offset_from(locked.page(locked.index(page))))
            }
            _ => None,
        }
    }

    /// Maps the entries in the page's table that belong to a folio in memory.
    fn admit(
        &self,
        view: &View<'_, A, H>,
        device: &Device<'_, A, H>,
        marked: &MarkedPage,
        found: &Found,
    ) -> Result<Admitted, Error> {
        let tables = view.tables();
        let locked = tables.lock_lowest(marked.page, Level::LAST);
        let block = PageSpan::block(marked.page, A::order(locked.level()));
        if !view.space.areas.is_current(marked.seq, PageSpan::block(marked.page, Order::ZERO)) {
            return Ok(Admitted::Stale);
        }
        let here = locked.run(locked.index(marked.page), locked.index(marked.page) + 1);
        let ahead = marked.page.offset_from(block.start);
        match here.what {
            What::Marker(marks) if marks.first + ahead == marked.payload => {}
            _ => return Ok(Admitted::Stale),
        }
        let folios = self.base().folios();
        let owner = identity(device.index.id, found.slots.start);
        let Some(cached) = folios.cached(found.folio.head, owner) else {
            return Ok(Admitted::Stale);
        };
        let known = cached.known();
        if known.contains(FolioFlags::POISONED) {
            let ahead = found.entry.slot - found.slots.start;
            return Err(Error::Poisoned(found.folio.head.add(ahead)));
        }
        if !known.contains(FolioFlags::UPTODATE) {
            return Err(Error::Busy(device.index.id));
        }
        if found.folio.order < A::order(locked.level()) || !marked.area.span.covers(block) {
            return Ok(Admitted::Split);
        }
        let before = found.entry.slot - found.slots.start;
        let home = Vpn::new(marked.page.get().wrapping_sub(before));
        // Where pages were moved, other spaces map this folio at another place.
        if found.entry.exclusive || !view.space.has(Ever::Moved) {
            folios.set_home(found.folio, tables.home(home));
        }
        let mapped = self.admit_runs(&locked, device, marked, found, |pages| cached.map(pages));
        Ok(mapped.map_or(Admitted::Stale, |(pages, entries)| Admitted::Pages(pages, entries)))
    }

    /// Maps every run of entries of a locked table that name the folio's slots, in step with the
    /// page that faulted. Returns the span from the first to the last page, and the number of
    /// entries.
    fn admit_runs(
        &self,
        locked: &Locked<'_, A, H>,
        device: &Device<'_, A, H>,
        marked: &MarkedPage,
        found: &Found,
        map: impl Fn(u32) -> bool,
    ) -> Option<(PageSpan, u64)> {
        let before = found.entry.slot - found.slots.start;
        let room = marked.area.span.intersect(locked.reach());
        let first = marked.page.get().saturating_sub(before).max(room.start.get());
        let end = marked.page.add(found.slots.end - found.entry.slot).min(room.end);
        let (mut at, mut all, mut entries) = (Vpn::new(first), None, 0);
        while at < end {
            let (run, upto) = locked.run_in(at, end);
            let step = found.slots.start + at.get() + before - marked.page.get();
            if let What::Marker(marks) = run.what
                && let Some(entry) = SwapEntry::of(marks.first)
                && (entry.device, entry.slot) == (device.number, step)
                && (marks.ascending || run.count == 1)
                && map((upto.offset_from(at)) as u32)
            {
                let frame = found.folio.head.add(step - found.slots.start);
                let attrs = attrs(&marked.area, entry, found.touched);
                locked.admit(run.index, run.count, frame, attrs, found.folio.order);
                device.slots.release(FilePages::new(step, step + upto.offset_from(at)));
                entries += run.count as u64;
                let start = all.map_or(at, |pages: PageSpan| pages.start);
                all = Some(PageSpan::new(start, upto));
            }
            at = upto;
        }
        all.map(|pages| (pages, entries))
    }
}

/// The order of the block around a fault that comes back together.
fn around_order<A: Arch>() -> Order {
    Order::fitting((SWAP_AROUND_BYTES >> A::PAGE_SHIFT).max(1)).unwrap_or_default()
}

/// The attributes of a leaf for a page that came back.
fn attrs(area: &Area, entry: SwapEntry, touched: bool) -> Attrs {
    let prot = if entry.exclusive { area.prot } else { unwritten(area.prot) };
    let mut attrs = Attrs::user(prot);
    attrs.set(Attrs::YOUNG, touched);
    attrs.set(Attrs::COW, !entry.exclusive);
    let at_once = entry.exclusive && prot.contains(Prot::WRITE);
    let tracked = area.flags.contains(AreaFlags::TRACKED);
    attrs.set(Attrs::DIRTY, entry.written || at_once && !tracked);
    attrs
}
