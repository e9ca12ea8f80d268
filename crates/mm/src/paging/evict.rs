//! One space's part of paging out: folios leave its tables, by one flush.

use core::cell::Cell;
use core::slice::from_mut;

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, PageSpan, Pfn, Vpn};

use crate::base::{Base, Device};
use crate::cache::{FilePages, Row};
use crate::folio::Folio;
use crate::space::{Area, AreaFlags, Ever, Seq, Space, View};
use crate::stats::Event;
use crate::swap::SwapEntry;
use crate::table::{Discard, Eviction, Gather, WATCHED};

/// The beginning of the way out of a row.
pub(super) struct Begun {
    /// The number of the device that has its slots.
    pub(super) device: u32,
    /// The slots do not hold the folios' contents.
    pub(super) dirty: bool,
}

/// A folio on its way out, with a reference. A batch of them is on the stack, so they are small.
pub(super) struct Leaving {
    head: Pfn,
    slot: u64,
    /// How many pages of it were mapped.
    pub(super) mapped: u32,
    /// Pages whose leaves are swap entries now.
    pub(super) pages: Cell<u32>,
    /// The number of its device.
    pub(super) device: u32,
    order: Order,
    /// The slots do not hold the folio's contents.
    pub(super) dirty: bool,
    /// A change has kept some of it: it is visited once more.
    pub(super) again: bool,
    /// It has other frames now.
    pub(super) moved: bool,
}

impl Leaving {
    /// A folio that has the slots from `slot` on, on a device.
    pub(super) fn new(folio: Folio, slot: u64, begun: &Begun, mapped: u32) -> Self {
        let (Folio { head, order }, &Begun { device, dirty }) = (folio, begun);
        Self {
            head,
            order,
            device,
            slot,
            dirty,
            mapped,
            pages: Cell::new(0),
            again: false,
            moved: false,
        }
    }

    pub(super) fn folio(&self) -> Folio {
        Folio { head: self.head, order: self.order }
    }

    /// Its contents, slots and mappings are those of `copy` now.
    pub(super) fn becomes(&mut self, copy: Folio) {
        (self.head, self.order, self.moved) = (copy.head, copy.order, true);
    }

    pub(super) fn slots(&self) -> FilePages {
        FilePages::block(self.slot, self.order)
    }

    /// Whether it goes the same way as `first`, whose row it continues.
    pub(super) fn follows(&self, first: &Self, row: &Row) -> bool {
        (self.device, self.order, self.dirty) == (first.device, first.order, first.dirty)
            && self.slot == row.pages().end
    }

    /// Whether a space may still map pages of it.
    pub(super) fn is_mapped(&self) -> bool {
        self.pages.get() < self.mapped
    }
}

/// A folio with a reference of the caller.
pub(crate) struct Found {
    /// A page that maps it.
    pub(crate) page: Vpn,
    pub(crate) folio: Folio,
    /// The pages at which it is mapped, if it is mapped whole.
    pub(crate) here: PageSpan,
}

impl Found {
    /// A folio of which `page` maps `frame`. The caller has a reference.
    pub(crate) fn new((page, frame, folio): (Vpn, Pfn, Folio)) -> Self {
        let before = frame.offset_from(folio.head);
        let start = page.get().checked_sub(before).map_or(page, Vpn::new);
        let here = PageSpan::new(start, page.add(folio.order.pages() - before));
        Self { page, folio, here }
    }

    /// Whether some pages of it would lie below all others: it was mapped at another place once,
    /// and moved.
    pub(crate) fn is_cut(&self) -> bool {
        self.here.count() < self.folio.order.pages()
    }
}

/// The pages at which a folio's home says that it is mapped: none if its home is not known.
pub(super) fn place<A: Arch, H: Hardware>(base: &Base<'_, A, H>, folio: Folio) -> PageSpan {
    base.folios().home(folio).span(folio.order.pages(), Space::<A>::all())
}

/// Takes folios out of one space. The caller announces that, and settles in the end.
pub(super) struct Evictor<'a, A, H> {
    pub(super) base: &'a Base<'a, A, H>,
    space: &'a Space<A>,
    pub(super) gather: &'a mut Gather,
}

impl<'a, A: Arch, H: Hardware> Evictor<'a, A, H> {
    pub(super) fn new(
        base: &'a Base<'a, A, H>,
        space: &'a Space<A>,
        gather: &'a mut Gather,
    ) -> Self {
        Self { base, space, gather }
    }

    fn view(&self) -> View<'a, A, H> {
        self.base.view(self.space)
    }

    /// Flushes, and ends the mappings.
    pub(super) fn settle(&mut self) {
        self.base.settle(self.space, self.gather);
    }

    /// Unmaps a lazily free folio, if it was not written; returns whether it is gone, with the
    /// caller's reference.
    #[inline(never)]
    pub(super) fn lose(&mut self, &Found { folio, here, .. }: &Found) -> bool {
        let folios = self.base.folios();
        if !folios.is_lazy(folio) {
            return false;
        }
        let view = self.view();
        let Some(may) = view.areas_allow(here, |area| !area.flags.contains(AreaFlags::LOCKED))
        else {
            return false;
        };
        let done = view.tables().discard(here, folio, self.gather, may);
        match done {
            Discard::Gone => self.base.count(Event::LazyFreed, folio.order.pages()),
            Discard::Written => folios.set_lazy(folio, false),
            Discard::Shared => {}
        }
        done == Discard::Gone
    }

    /// Evicts a folio at the place where a space mapped it last; if it is not there, everywhere.
    /// Returns whether some of it was found.
    pub(super) fn evict_at_home(&mut self, leaving: &mut Leaving) -> bool {
        let (here, before) = (place(self.base, leaving.folio()), leaving.pages.get());
        if !here.is_empty() {
            self.evict(here, from_mut(leaving));
        }
        let elsewhere = here.is_empty() || self.space.has(Ever::Moved);
        if leaving.is_mapped() && leaving.pages.get() == before && elsewhere {
            self.evict(Space::<A>::all(), from_mut(leaving));
        }
        leaving.pages.get() > before
    }

    /// Replaces the leaves of folios in `span` by swap entries; returns whether a change under way
    /// has kept some. One folio may be mapped anywhere in the span. Several have consecutive slots,
    /// and the pages of the span one behind the other.
    pub(super) fn evict(&mut self, span: PageSpan, row: &mut [Leaving]) -> bool {
        let number = row.first().map(|first| first.device);
        let Some(device) = number.and_then(|number| self.base.device(number)) else { return false };
        let (areas, mut at, mut changing) = (self.view().areas(), span.start, false);
        while at < span.end
            && let (Some(area), seq) = areas.next_at_or_after(at)
            && area.span.start < span.end
        {
            let part = area.clipped(PageSpan::new(at, span.end));
            at = part.span.end;
            if !area.flags.contains(AreaFlags::LOCKED) {
                let places = Places::new(span, row);
                changing |= self.evict_from(&part, seq, &device, places, row);
            }
        }
        self.base.count(Event::RmapWalks, row.len() as u64);
        changing
    }

    /// The same for a part of one area, which was read at `seq`.
    fn evict_from(
        &mut self,
        area: &Area,
        seq: Seq,
        device: &Device<'_, A, H>,
        places: Places,
        row: &mut [Leaving],
    ) -> bool {
        let (folios, areas) = (self.base.folios(), &self.space.areas);
        let (mut changing, mut ahead) = (false, places.slots(area.span));
        let folio_at = |page| &row[places.number(page)];
        device.slots.refer(ahead);
        let ask = |pages: PageSpan, frames: FrameSpan, attrs: Attrs| {
            let leaving = folio_at(pages.start);
            let folio = leaving.folio();
            // Locking in memory, moving or forking these pages changes the areas first.
            let changes = !areas.is_current(seq, pages);
            changing |= changes;
            if folios.counts(folio).pins > 0 || changes {
                return None;
            }
            let slot = leaving.slot + frames.start.offset_from(folio.head);
            let slots = FilePages::new(slot, slot + frames.count);
            match ahead.covers(slots) {
                true => {
                    if ahead.start < slot {
                        device.slots.release(FilePages::new(ahead.start, slot));
                    }
                    ahead = FilePages::new(slots.end, ahead.end);
                }
                false => device.slots.refer(slots),
            }
            leaving.pages.set(leaving.pages.get() + pages.count() as u32);
            let exclusive = !attrs.contains(Attrs::COW);
            let written = attrs.contains(Attrs::DIRTY);
            let watched = attrs.contains(WATCHED);
            let device = device.number;
            Some(SwapEntry { device, slot, exclusive, written, watched }.payload())
        };
        let tracks = area.flags.contains(AreaFlags::TRACKED);
        let what = Eviction { most: self.base.policy.evict_most(), tracks };
        let which = |page| (folio_at(page).folio(), places.end(page));
        let tables = self.base.view(self.space).tables();
        let evicted = tables.evict(area.span, what, self.gather, which, ask);
        // The pages that stay, or were not there, have no entry that refers to their slots.
        device.slots.release(ahead);
        self.base.count(Event::EntriesSwapped, evicted.entries);
        row.iter_mut().for_each(|leaving| leaving.dirty |= evicted.dirty);
        changing
    }
}

/// The pages and slots of the folios of a row.
#[derive(Clone, Copy)]
struct Places {
    span: PageSpan,
    order: Order,
    /// The slot of the first page, if the pages of the span are those of the folios, in order.
    slot: Option<u64>,
    is_one: bool,
}

impl Places {
    fn new(span: PageSpan, row: &[Leaving]) -> Self {
        let order = row.first().map_or(Order::ZERO, |first| first.order);
        let fits = span.count() == (row.len() as u64) << order.get();
        let slot = row.first().filter(|_| fits).map(|first| first.slot);
        Self { span, order, slot, is_one: row.len() <= 1 }
    }

    /// The slots of the pages of `part`: the entries there will refer to them if all leave.
    fn slots(&self, part: PageSpan) -> FilePages {
        let Some(slot) = self.slot else { return FilePages::default() };
        let start = slot + part.start.offset_from(self.span.start);
        FilePages::new(start, start + part.count())
    }

    /// The number of the folio that page `page` should map.
    fn number(&self, page: Vpn) -> usize {
        match self.is_one {
            true => 0,
            false => (page.offset_from(self.span.start) >> self.order.get()) as usize,
        }
    }

    /// The page behind that folio.
    fn end(&self, page: Vpn) -> Vpn {
        match self.is_one {
            true => self.span.end,
            false => self.span.start.add((self.number(page) as u64 + 1) << self.order.get()),
        }
    }
}
