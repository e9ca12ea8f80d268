//! Paging out: the folios of files in memory, which are shared memory (row D9).
//!
//! ```text
//!   for a window of a file                                    possible failure, and its effect
//!   1 seclude its folios that may leave
//!   2 where an area is locked or tracked: they stay
//!   3 each space: take the leaves out; one flush
//!   for each folio without another reference
//!   4 take slots, enter the device's index, dirty             none: it stays, or is split; counted
//!   5 in one step, with the entry's node locked:
//!       the folio is the device's; the file's entry is its slots
//!                                                             another reference: as before 4
//!   6 to be written, as any folio of the device
//! ```
//!
//! A page of a file has no entries in page tables while it is away: the one reference to its slot
//! is the file's entry. So forks, moves and unmaps of areas need not know of it.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{PageSpan, Vpn};

use super::Paging;
use super::leave::{Demand, PagedOut, Purpose, Scope};
use crate::base::{AllSpaces, Device, Stop, folios_in, folios_within};
use crate::cache::{Entry, FILE_PAGES_MAX, FileId, FilePages, Index, Store, identity};
use crate::files::OpenFile;
use crate::folio::{Folio, FolioFlags};
use crate::limits::{EVICT_FLUSH_PAGES, POPULATE_ORDER};
use crate::space::{Area, AreaFlags, Backing, Space};
use crate::stats::{Event, FolioEvent};
use crate::swap::{Slots, SwapEntry};
use crate::table::Gather;

/// Folios of one file on their way out.
struct Leaving<'a, A, H> {
    paging: &'a Paging<'a, A, H>,
    file: OpenFile<'a, A, H>,
    spaces: &'a dyn AllSpaces<A>,
    demand: Demand,
    done: PagedOut,
}

/// The fate of a secluded folio.
enum Sent {
    Gone,
    Stays,
    /// It is several folios now, which may leave.
    Split,
    /// There is no frame for the index of a device.
    Starved,
}

impl<A: Arch, H: Hardware> Paging<'_, A, H> {
    /// Pages out the folios of files in memory that areas of a space show in `span`.
    #[inline(never)]
    pub(crate) fn page_out_shown(
        &self,
        space: &Space<A>,
        span: PageSpan,
        demand: Demand,
        spaces: &dyn AllSpaces<A>,
    ) -> PagedOut {
        let own: &[&Space<A>] = &[space];
        let spaces = if demand.whose == Scope::Own { &own } else { spaces };
        let mut done = PagedOut::default();
        for area in self.spaces().areas(space, span) {
            let Area { span: part, backing: Backing::File { id, page }, .. } = area.clipped(span)
            else {
                continue;
            };
            if let Ok(index) = self.base().index(id) {
                let pages = FilePages::new(page, page + part.count());
                let left = Demand { pages: demand.pages.saturating_sub(done.pages), ..demand };
                done.add(self.page_out_file(&index, pages, left, spaces).0);
            }
        }
        done
    }

    /// Pages out the folios of a file in memory that lie wholly in `pages`, as far as `demand`
    /// says. Returns also the page to go on at. Files that demand larger folios than pages stay in
    /// memory.
    #[inline(never)]
    pub(crate) fn page_out_file(
        &self,
        index: &Index<'_, A, H>,
        pages: FilePages,
        demand: Demand,
        spaces: &dyn AllSpaces<A>,
    ) -> (PagedOut, u64) {
        let (file, done) = (self.files().with(index), PagedOut::default());
        if file.store() != Some(Store::Memory) || file.smallest().pages() > 1 {
            return (done, pages.end);
        }
        let mut leaving = Leaving { paging: self, file, spaces, demand, done };
        let mut at = pages.start;
        while leaving.done.pages < demand.pages && !leaving.done.starved {
            let left = FilePages::new(at, pages.end);
            let Some((_, first)) = leaving.file.index.next(left) else {
                return (leaving.done, pages.end);
            };
            let end = FilePages::block(first.start, POPULATE_ORDER).end.max(first.end);
            let window = FilePages::new(first.start.max(at), end).intersect(pages);
            at = leaving.window(window).max(at);
        }
        (leaving.done, at)
    }

    /// The first page from `from` on of a file in memory that is on the swap device `id`.
    pub fn next_away(&self, file: FileId, id: FileId, from: u64) -> Option<u64> {
        let number = self.base().device_of(id).ok()?.number;
        let index = self.base().index(file).ok()?;
        let mut all = blocks_away(&index, FilePages::new(from, FILE_PAGES_MAX));
        all.find(|(entry, _)| entry.device == number).map(|(_, at)| at.start.max(from))
    }

    /// How many of `pages` of a file in memory are on swap devices. The walk visits each folio and
    /// each block that has left.
    pub fn away(&self, file: FileId, pages: FilePages) -> u64 {
        let Ok(index) = self.base().index(file) else { return 0 };
        blocks_away(&index, pages).map(|(_, at)| at.intersect(pages).count()).sum()
    }

    /// Brings a page of a file in memory back from a swap device, with its folio: before the device
    /// is removed. Without effect on other pages.
    ///
    /// # Errors
    /// As for [`fault`](crate::Mm::fault) in an area that shows the file; and
    /// [`Error::NoFile`](crate::Error::NoFile).
    pub fn bring_back(&self, file: FileId, page: u64) -> Result<(), Stop> {
        self.files().opened(file)?.come_back(page)
    }
}

impl<A: Arch, H: Hardware> Leaving<'_, A, H> {
    /// Pages out the folios of a window; returns the page to go on at.
    fn window(&mut self, pages: FilePages) -> u64 {
        let file = self.file;
        let _reshaping = file.reshaping();
        let (hidden, upto) = self.hide(pages);
        if hidden == 0 {
            return upto;
        }
        let pages = FilePages::new(pages.start, upto);
        self.spaces.visit(&mut |space| self.keep_bound(space, pages));
        self.spaces.visit(&mut |space| self.detach(space, pages, hidden));
        for (folio, at) in folios_within(&file.index, pages) {
            if !self.paging.base().folios().is_secluded(folio) {
                continue;
            }
            match self.send(folio, at) {
                Sent::Gone => {}
                Sent::Stays => self.done.stay += 1,
                Sent::Starved => self.done.starved = true,
                Sent::Split => {
                    self.readmit(FilePages::new(at.end, pages.end));
                    return at.start;
                }
            }
        }
        upto
    }

    /// Hides those folios of `pages` that may leave from lookups. Returns how many pages they have,
    /// and the page to go on at.
    fn hide(&mut self, pages: FilePages) -> (u64, u64) {
        let Demand { idle, whose, pages: most, .. } = self.demand;
        let folios = self.paging.base().folios();
        let (mut hidden, left) = (0, most.saturating_sub(self.done.pages));
        for (folio, at) in folios_in(&self.file.index, pages) {
            let Some(cached) = self.file.cached(at.start, folio) else { continue };
            let (known, counts) = (cached.known(), folios.counts(folio));
            let busy = FolioFlags::WRITING | FolioFlags::POISONED | FolioFlags::LEAVING;
            let stays = counts.refs > 1
                || counts.pins > 0
                || !pages.covers(at)
                || folio.order > Slots::<A, H>::RUN_MAX
                || whose == Scope::Own && folios.is_shared(folio);
            let may = known.contains(FolioFlags::UPTODATE) && !known.intersects(busy) && !stays;
            if may && folios.idle(folio) >= idle {
                cached.learn(known | FolioFlags::SECLUDED);
                hidden += at.count();
            }
            if hidden >= left {
                return (hidden, at.end);
            }
        }
        (hidden, pages.end)
    }

    /// Shows the folios of `pages` again that a space has locked in memory, or whose leaves there
    /// record writes.
    fn keep_bound(&self, space: &Space<A>, pages: FilePages) {
        for (area, span) in self.file.showing(space, pages).filter(|(area, _)| is_bound(area)) {
            if let Backing::File { page, .. } = area.backing_of(span.start) {
                self.readmit(FilePages::new(page, page + span.count()));
            }
        }
    }

    /// Shows the secluded folios again that have a page in `pages`.
    fn readmit(&self, pages: FilePages) {
        let folios = self.paging.base().folios();
        let hidden =
            folios_in(&self.file.index, pages).filter(|(folio, _)| folios.is_secluded(*folio));
        hidden.for_each(|(folio, _)| folios.readmit(folio));
    }

    /// Takes the leaves of the secluded folios of `pages` out of a space. A change under way keeps
    /// some, and their folios stay.
    fn detach(&self, space: &Space<A>, pages: FilePages, hidden: u64) {
        let base = self.paging.base();
        let (_, seq) = base.view(space).areas().lookup(Vpn::new(0));
        let mut gather = Gather::new();
        let _taking = space.taking();
        for (_, span) in self.file.showing(space, pages).filter(|(area, _)| !is_bound(area)) {
            // Locking pages in memory, and tracking them, changes the areas first.
            let such = |folio: Folio| {
                self.file.is_secluded(folio, pages) && space.areas.is_current(seq, span)
            };
            self.paging.spaces().detach(space, span, &mut gather, &such);
        }
        if hidden > EVICT_FLUSH_PAGES && !gather.is_empty() {
            gather.flush_space();
        }
        base.settle(space, &mut gather);
    }

    /// Sends a secluded folio, which no space maps any more, to a swap device.
    fn send(&mut self, folio: Folio, at: FilePages) -> Sent {
        let (base, order) = (self.paging.base(), folio.order);
        if !base.folios().is_indexed_only(folio) {
            base.folios().readmit(folio);
            return Sent::Stays;
        }
        let Some((device, slots)) = self.paging.take_slots(order, 1, Purpose::Write) else {
            return self.split(folio, at);
        };
        let entered = self.paging.files().with(&device.index).insert(slots.start, folio);
        if entered != Ok(true) {
            device.slots.uncache(slots);
            base.folios().readmit(folio);
            return if entered.is_ok() { Sent::Stays } else { Sent::Starved };
        }
        device.index.set_dirty(slots.start, folio, true);
        device.slots.refer(slots);
        if self.give_up(folio, at, &device, slots) {
            return Sent::Gone;
        }
        base.take_out(&device.index, slots.start, folio, None);
        device.slots.release(slots);
        device.slots.uncache(slots);
        base.folios().readmit(folio);
        Sent::Stays
    }

    /// Makes a folio that has entered a device's index the device's, and the file's entry its
    /// slots; whether it did.
    fn give_up(
        &mut self,
        folio: Folio,
        at: FilePages,
        device: &Device<'_, A, H>,
        slots: FilePages,
    ) -> bool {
        let (base, index, order) = (self.paging.base(), &self.file.index, folio.order);
        let owners = (identity(index.id, at.start), identity(device.index.id, slots.start));
        let kept = FolioFlags::CACHED | FolioFlags::UPTODATE | FolioFlags::PUBLISHED;
        let judge = |known: FolioFlags, alone: bool| {
            let may = known.contains(FolioFlags::UPTODATE | FolioFlags::SECLUDED)
                && !known.contains(FolioFlags::POISONED)
                && alone;
            may.then_some(known & kept)
        };
        let (device, slot) = (device.number, slots.start);
        let entry = SwapEntry { device, slot, exclusive: false, written: false, watched: false };
        let away = Entry::Away { place: entry.place(), order };
        let is_it = |now: Entry| matches!(now, Entry::Folio { folio: there, .. } if there == folio);
        let agree = || base.folios().reidentify(folio, owners, judge);
        if index.exchange(at.start, order, is_it, away, agree).is_none() {
            return false;
        }
        let pages = at.count();
        index.file.count_cached(-(pages as i64));
        base.count(Event::PagesSwapped, pages);
        base.count_folios(FolioEvent::Swpout, order, 1);
        self.done.folios += 1;
        self.done.pages += pages;
        true
    }

    /// Splits a secluded folio without a free run of slots into the largest that have some.
    fn split(&self, folio: Folio, at: FilePages) -> Sent {
        let base = self.paging.base();
        base.count_folios(FolioEvent::SwpoutFallback, folio.order, 1);
        let gone = self.file.beyond_end(at);
        let split = self.paging.smaller_order(folio.order);
        match split.is_some_and(|order| self.file.part(folio, at, gone, order)) {
            true => {
                base.count(Event::FolioSplit, 1);
                Sent::Split
            }
            false => {
                base.folios().readmit(folio);
                Sent::Stays
            }
        }
    }
}

/// The blocks of a file that have left and have a page in `pages`: the place of the first page of
/// each, and its pages.
fn blocks_away<A: Arch, H: Hardware>(
    index: &Index<'_, A, H>,
    pages: FilePages,
) -> impl Iterator<Item = (SwapEntry, FilePages)> {
    let mut left = pages;
    let all = core::iter::from_fn(move || {
        let (entry, at) = index.next_content(left)?;
        left = FilePages::new(at.end, left.end);
        Some((entry, at))
    });
    all.filter_map(|(entry, at)| match entry {
        Entry::Away { place, .. } => Some((SwapEntry::at(place), at)),
        _ => None,
    })
}

/// Whether the pages that an area shows stay in memory: they are locked there, or their leaves
/// record writes. Protected pages may leave: markers in their places say that they are protected.
fn is_bound(area: &Area) -> bool {
    area.flags.contains(AreaFlags::LOCKED)
        || area.flags.contains(AreaFlags::TRACKED | AreaFlags::SHARED)
}

impl PagedOut {
    /// Adds the result of another part.
    pub(super) fn add(&mut self, other: Self) {
        self.folios += other.folios;
        self.pages += other.pages;
        self.stay += other.stay;
        self.starved |= other.starved;
    }
}
