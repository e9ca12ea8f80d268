//! One space's part of paging out: folios leave its tables, by one flush.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, PageSpan, Pfn, Vpn};

use crate::base::{Base, Device};
use crate::cache::FilePages;
use crate::folio::Folio;
use crate::space::{Area, AreaFlags, Ever, Seq, Space, View};
use crate::stats::Event;
use crate::swap::SwapEntry;
use crate::table::{Discard, Eviction, Gather, WATCHED};

/// A folio on its way out, with a reference. A batch of them is on the stack, so they are small.
pub(super) struct Leaving {
    head: Pfn,
    slot: u64,
    /// How many pages of it were mapped.
    pub(super) mapped: u32,
    /// Pages whose leaves are swap entries now.
    pub(super) pages: u32,
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
    pub(super) fn new(folio: Folio, device: u32, slot: u64, dirty: bool) -> Self {
        let Folio { head, order } = folio;
        Self { head, order, device, slot, dirty, mapped: 0, pages: 0, again: false, moved: false }
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

    /// Whether a space may still map pages of it.
    pub(super) fn is_mapped(&self) -> bool {
        self.pages < self.mapped
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
        let (here, before) = (place(self.base, leaving.folio()), leaving.pages);
        if !here.is_empty() {
            self.evict(here, leaving);
        }
        let elsewhere = here.is_empty() || self.space.has(Ever::Moved);
        if leaving.is_mapped() && leaving.pages == before && elsewhere {
            self.evict(Space::<A>::all(), leaving);
        }
        leaving.pages > before
    }

    /// Replaces the leaves of a folio in `span` by swap entries; returns whether a change under way
    /// has kept some.
    pub(super) fn evict(&mut self, span: PageSpan, leaving: &mut Leaving) -> bool {
        let Some(device) = self.base.device(leaving.device) else { return false };
        let (areas, mut at, mut changing) = (self.view().areas(), span.start, false);
        while at < span.end
            && let (Some(area), seq) = areas.next_at_or_after(at)
            && area.span.start < span.end
        {
            let part = area.clipped(PageSpan::new(at, span.end));
            at = part.span.end;
            if !area.flags.contains(AreaFlags::LOCKED) {
                changing |= self.evict_from(&part, seq, &device, leaving);
            }
        }
        self.base.count(Event::RmapWalks, 1);
        changing
    }

    /// The same for a part of one area, which was read at `seq`.
    fn evict_from(
        &mut self,
        area: &Area,
        seq: Seq,
        device: &Device<'_, A, H>,
        leaving: &mut Leaving,
    ) -> bool {
        let (folio, slots) = (leaving.folio(), leaving.slots());
        let (folios, areas) = (self.base.folios(), &self.space.areas);
        let mut changing = false;
        let ask = |pages: PageSpan, frames: FrameSpan, attrs: Attrs| {
            // Locking in memory, moving or forking these pages changes the areas first.
            let changes = !areas.is_current(seq, pages);
            changing |= changes;
            if folios.counts(folio).pins > 0 || changes {
                return None;
            }
            let slot = slots.start + frames.start.offset_from(folio.head);
            device.slots.refer(FilePages::new(slot, slot + frames.count));
            let exclusive = !attrs.contains(Attrs::COW);
            let written = attrs.contains(Attrs::DIRTY);
            let watched = attrs.contains(WATCHED);
            let device = device.number;
            Some(SwapEntry { device, slot, exclusive, written, watched }.payload())
        };
        let tracks = area.flags.contains(AreaFlags::TRACKED);
        let what = Eviction { folio, most: self.base.policy.evict_most(), tracks };
        let evicted = self.view().tables().evict(area.span, what, self.gather, ask);
        self.base.count(Event::EntriesSwapped, evicted.entries);
        leaving.pages += evicted.pages as u32;
        leaving.dirty |= evicted.dirty;
        changing
    }
}
