//! Paging out: anonymous folios leave memory whole (rows D1 to D3).
//!
//! ```text
//!   for each folio                                              possible failure, and its effect
//!   1 take a reference: no mapping of it is lost
//!   2 take an aligned run of slots          cached, count 0     none: it stays; counted
//!   3 give it the slots' identity, and put it into their file   no memory: slots freed
//!   4 each space, each run of leaves:
//!       a pinned, locked, held by a change?                     the run stays as it is
//!         by a change, and the space pages out its own: wait, and visit it again
//!       b count the slots, by runs
//!       c leaves become swap entries; mappings go into the gather
//!   5 one flush for many folios; the mappings end
//!   6 dirty: ready to be written            slots without entries: identity and slots freed
//! ```
//!
//! The slots are counted before an entry is visible (I9), and all checks precede all changes (I8):
//! a pin takes the same lock, so no entry is ever restored. The folio is written only after the
//! flush (I6): no program can change it any more.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, PageSpan, Pfn, Vpn};

use super::Paging;
use crate::base::AllSpaces;
use crate::base::Error;
use crate::base::{Device, Keep};
use crate::cache::{FilePages, InsertLack, file_of, identity, page_of};
use crate::folio::{Folio, FolioFlags, Home};
use crate::limits::{EVICT_FLUSH_PAGES, PAGE_OUT_TRIES};
use crate::space::{AreaFlags, Ever, Seq, Space};
use crate::stats::{Event, FolioEvent};
use crate::swap::SwapEntry;
use crate::sync::spin_loop;
use crate::table::{Discard, Divided, Division, Eviction, Gather};

/// The folios that are paged out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Those that no other space maps (`MADV_PAGEOUT`).
    Own,
    /// Those of other spaces as well: all spaces are searched for their mappings.
    All,
}

/// The result of paging out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PagedOut {
    /// Folios that no space maps any more, and whose memory is free as soon as they are written.
    pub folios: u64,
    /// Their pages.
    pub pages: u64,
    /// Folios that stay: shared, pinned, locked in memory, or there are no slots.
    pub stay: u64,
    /// There was no frame for a device's index: what follows was not tried.
    pub starved: bool,
}

/// The limits of a page-out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) whose: Scope,
    /// Rounds of aging without an access to a folio.
    pub(crate) idle: u32,
    /// The most pages, or a folio more.
    pub(crate) pages: u64,
}

/// How many folios leave by one flush.
const BATCH: usize = 32;

/// A folio on its way out. The batch refers to it.
#[derive(Clone, Copy)]
struct Leaving {
    folio: Folio,
    device: u32,
    slots: FilePages,
    /// The slots do not hold the folio's contents.
    dirty: bool,
    /// How many pages of it were mapped.
    mapped: u64,
    /// Pages whose leaves are swap entries now.
    pages: u64,
    /// A change has kept some of it: it is visited once more.
    again: bool,
}

/// A folio with a reference of the caller.
pub(crate) struct Found {
    /// A page that maps it.
    pub(crate) page: Vpn,
    pub(crate) folio: Folio,
    /// The pages at which it is mapped, if it is mapped whole.
    pub(crate) here: PageSpan,
    /// Not all of them exist: the folio was mapped at another place once, and moved.
    pub(crate) cut: bool,
}

impl Found {
    /// A folio of which `page` maps `frame`. The caller has a reference.
    pub(crate) fn new(page: Vpn, frame: Pfn, folio: Folio) -> Self {
        let home = page.get().wrapping_sub(frame.offset_from(folio.head));
        let end = home.wrapping_add(folio.order.pages());
        let here = PageSpan::new(Vpn::new(home).min(page), Vpn::new(end));
        Self { page, folio, here, cut: home > page.get() }
    }
}

/// The reason why a folio does not leave.
enum Stop {
    /// It stays, at least as it is: continue at this page.
    Stays(Vpn),
    /// There is no memory for any folio.
    Starved,
}

/// The lack that keeps a folio from leaving.
enum Lack {
    /// It has another user or a pin.
    Hold,
    /// Only a part of it is to leave.
    Rest,
    /// A run of slots.
    Slots,
    /// A frame for the index of a device.
    Memory,
}

/// The folios of a batch.
struct Batch {
    leaving: [Option<Leaving>; BATCH],
    len: usize,
}

impl Batch {
    fn push(&mut self, leaving: Leaving) {
        self.leaving[self.len] = Some(leaving);
        self.len += 1;
    }

    /// Whether the last folio is to be visited once more, after it has left this batch.
    fn is_again(&self) -> bool {
        self.len > 0 && self.leaving[self.len - 1].is_some_and(|leaving| leaving.again)
    }
}

impl<A: Arch, H: Hardware> Paging<'_, A, H> {
    /// Pages the anonymous folios in `span` out. A folio that is only partly in the span is split,
    /// and so is one without a free run of slots; if that fails, it stays.
    /// [`next_write`](crate::Files::next_write) writes them, one device's file after the other;
    /// their memory is free with [`write_done`](crate::Files::write_done). Pages that were [freed
    /// lazily](crate::Spaces::free_lazily), and not written since, are lost instead, and free at
    /// once; without a swap device, no others leave.
    /// # Errors
    /// [`Error::Invalid`] for pages that programs may not map.
    pub fn page_out(
        &self,
        space: &Space<A>,
        span: PageSpan,
        whose: Scope,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<PagedOut, Error> {
        let demand = Demand { whose, idle: 0, pages: u64::MAX };
        self.page_out_if(space, span, demand, spaces).map(|(done, _)| done)
    }

    /// The same for folios without an access for some rounds of aging, up to a number of pages; and
    /// the page to continue at.
    pub(crate) fn page_out_if(
        &self,
        space: &Space<A>,
        span: PageSpan,
        demand: Demand,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<(PagedOut, Vpn), Error> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        let whose = demand.whose;
        let mut done = PagedOut::default();
        let mut batch = Batch { leaving: [None; BATCH], len: 0 };
        let mut gather = Gather::new();
        let _taking = space.taking();
        let (mut at, mut begun, mut tries) = (span.start, 0, PAGE_OUT_TRIES);
        while begun < demand.pages
            && let Some(found) =
                self.hold_next(space, PageSpan::new(at, span.end), demand, &mut done.stay)
        {
            if self.lose(space, &found, &mut gather) {
                begun += found.folio.order.pages();
                done.folios += 1;
                done.pages += found.folio.order.pages();
                at = found.here.end.min(span.end);
                continue;
            }
            at = match self.begin_out(space, span, &found, whose) {
                Ok(leaving) => {
                    begun += leaving.folio.order.pages();
                    let mut leaving = self.evict_found(space, (&found, leaving), &mut gather);
                    leaving.again &= whose == Scope::Own && tries > 0;
                    tries -= u32::from(leaving.again);
                    batch.push(leaving);
                    if leaving.again { found.page } else { found.here.end.min(span.end) }
                }
                Err(Stop::Stays(upto)) => {
                    done.stay += (upto > found.page) as u64;
                    upto
                }
                Err(Stop::Starved) => {
                    (done.starved, at) = (true, found.page);
                    break;
                }
            };
            if batch.len == BATCH || batch.is_again() {
                self.end_batch(space, &mut gather, &mut batch, (whose, spaces), &mut done);
            }
        }
        self.end_batch(space, &mut gather, &mut batch, (whose, spaces), &mut done);
        let upto = if begun < demand.pages && !done.starved { span.end } else { at };
        Ok((done, upto))
    }

    /// The first page of `span` that maps a folio which may leave: without an access for the
    /// demanded rounds, and not shared if the demand says so. It gets a reference. Others stay and
    /// are counted: they are many after a fork, so the search skips them under one lock of their
    /// table. A space that pages out its own memory waits for a change of it, such as a collapse,
    /// as a fault does.
    fn hold_next(
        &self,
        space: &Space<A>,
        span: PageSpan,
        demand: Demand,
        stay: &mut u64,
    ) -> Option<Found> {
        let folios = self.base().folios();
        let tables = self.base().view(space).tables();
        let has_swap = self.base().swaps.iter().any(|swap| swap.is_open());
        let changing = || demand.whose == Scope::Own && space.areas.is_held(span);
        let mut hold = |folio: Folio| {
            let is_old = has_swap && folios.idle(folio) >= demand.idle;
            if !is_old && !folios.is_lazy(folio) {
                return false;
            }
            let shared = u64::from(folios.counts(folio).mapped) > folio.order.pages();
            let stays = demand.whose == Scope::Own && shared;
            *stay += u64::from(stays);
            !stays && folios.hold(folio)
        };
        loop {
            while changing() {
                spin_loop();
            }
            match tables.first_folio(span, &mut hold) {
                Some((page, frame, folio)) => return Some(Found::new(page, frame, folio)),
                // A change that began meanwhile may hold the whole span.
                None if changing() => {}
                None => return None,
            }
        }
    }

    /// Evicts a folio on its way out from this space. A batch leaves the other spaces together.
    fn evict_found(
        &self,
        space: &Space<A>,
        (found, mut leaving): (&Found, Leaving),
        gather: &mut Gather,
    ) -> Leaving {
        // Mappings count until they are flushed, and this space is flushed before the others.
        leaving.mapped = self.base().folios().counts(found.folio).mapped.into();
        leaving.again = self.evict_in(space, found.here, &mut leaving, gather);
        leaving
    }

    /// Unmaps a lazily free folio, if it was not written; returns whether it is gone, with the
    /// caller's reference.
    pub(crate) fn lose(&self, space: &Space<A>, found: &Found, gather: &mut Gather) -> bool {
        let &Found { folio, here, cut, .. } = found;
        let folios = self.base().folios();
        if !folios.is_lazy(folio) {
            return false;
        }
        let done = match cut {
            true => Discard::Shared,
            false => self.base().view(space).tables().discard(here, folio, gather),
        };
        match done {
            Discard::Gone => self.base().count(Event::LazyFreed, folio.order.pages()),
            Discard::Written => folios.set_lazy(folio, false),
            Discard::Shared => {}
        }
        done == Discard::Gone
    }

    /// Gives a folio slots and their identity. If it has to stay, or to be visited anew, the
    /// caller's reference is released.
    fn begin_out(
        &self,
        space: &Space<A>,
        span: PageSpan,
        found: &Found,
        whose: Scope,
    ) -> Result<Leaving, Stop> {
        let &Found { page, folio, here, cut } = found;
        let folios = self.base().folios();
        let counts = folios.counts(folio);
        let shared = u64::from(counts.mapped) > folio.order.pages();
        let within = span.covers(here) && !cut;
        let entered = if counts.pins > 0 || whose == Scope::Own && shared {
            Err(Lack::Hold)
        } else if !within && folio.order > Order::ZERO {
            Err(Lack::Rest)
        } else {
            self.enter_out(folio)
        };
        let lack = match entered {
            Ok(leaving) => return Ok(leaving),
            Err(lack) => lack,
        };
        if let Some(run) = folios.put(folio) {
            self.base().free(run);
        }
        let division = match lack {
            Lack::Memory => return Err(Stop::Starved),
            Lack::Hold => None,
            Lack::Rest if here.start < span.start => {
                Some(Division::Around(span.start, Order::ZERO))
            }
            Lack::Rest => Some(Division::Around(span.end, Order::ZERO)),
            Lack::Slots => self.order_out(folio.order).map(Division::Uniform),
        };
        let divided = division.map(|how| self.spaces().divide(space, page, how));
        match divided {
            Some(Ok(Divided::Parts { .. })) => Err(Stop::Stays(page)),
            _ => Err(Stop::Stays(here.end.max(page.add(1)).min(span.end))),
        }
    }

    /// Evicts another space's mappings of a batch, and flushes once.
    fn evict_others(&self, space: &Space<A>, batch: &mut Batch) {
        let mut gather = Gather::new();
        let _taking = space.taking();
        for leaving in batch.leaving[..batch.len].iter_mut().flatten() {
            if leaving.pages < leaving.mapped {
                self.evict_at_home(space, leaving, &mut gather);
            }
        }
        self.base().settle(space, &mut gather);
    }

    /// Evicts another space's mappings of a folio.
    fn evict_at_home(&self, space: &Space<A>, leaving: &mut Leaving, gather: &mut Gather) {
        let folios = self.base().folios();
        let (home, before) = (folios.home(leaving.folio), leaving.pages);
        if home != Home::UNKNOWN {
            let end = home.page.get().saturating_add(leaving.folio.order.pages());
            let end = Vpn::new(end.min(A::USER_PAGES));
            self.evict_in(space, PageSpan::new(home.page.min(end), end), leaving, gather);
        }
        let left = leaving.mapped > leaving.pages;
        let elsewhere = home == Home::UNKNOWN || space.has(Ever::Moved);
        if left && leaving.pages == before && elsewhere {
            let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
            self.evict_in(space, all, leaving, gather);
        }
    }

    /// Replaces the leaves of a folio in `span` of a space by swap entries; returns whether a
    /// change under way has kept some.
    fn evict_in(
        &self,
        space: &Space<A>,
        span: PageSpan,
        leaving: &mut Leaving,
        gather: &mut Gather,
    ) -> bool {
        let areas = self.base().view(space).areas();
        let (mut left, mut changing) = (span, false);
        while let (Some(area), seq) = areas.next_at_or_after(left.start)
            && area.span.start < span.end
        {
            let within = area.span.intersect(left);
            left = PageSpan::new(within.end, span.end);
            if !area.flags.contains(AreaFlags::LOCKED) {
                let tracks = area.flags.contains(AreaFlags::TRACKED);
                changing |= self.evict_from_area(space, (within, seq, tracks), leaving, gather);
            }
            if left.is_empty() {
                break;
            }
        }
        self.base().count(Event::RmapWalks, 1);
        changing
    }

    /// The same for a part of one area, which was read at `seq`.
    fn evict_from_area(
        &self,
        space: &Space<A>,
        (span, seq, tracks): (PageSpan, Seq, bool),
        leaving: &mut Leaving,
        gather: &mut Gather,
    ) -> bool {
        let Some(device) = self.base().device(leaving.device) else { return false };
        let Leaving { folio, slots, .. } = *leaving;
        let folios = self.base().folios();
        let mut changing = false;
        let ask = |pages: PageSpan, frames: FrameSpan, attrs: Attrs| {
            // Locking in memory, moving or forking these pages changes the areas first.
            let changes = !space.areas.is_current(seq, pages);
            changing |= changes;
            if folios.counts(folio).pins > 0 || changes {
                return None;
            }
            let slot = slots.start + frames.start.offset_from(folio.head);
            device.slots.refer(FilePages::new(slot, slot + frames.count));
            let exclusive = !attrs.contains(Attrs::COW);
            let written = attrs.contains(Attrs::DIRTY);
            Some(SwapEntry { device: device.number, slot, exclusive, written }.payload())
        };
        let what = Eviction { folio, most: self.base().policy.evict_most(), tracks };
        let evicted = self.base().view(space).tables().evict(span, what, gather, ask);
        self.base().count(Event::EntriesSwapped, evicted.entries);
        leaving.pages += evicted.pages;
        leaving.dirty |= evicted.dirty;
        changing
    }

    /// The largest order below `order` that has a free run of slots.
    fn order_out(&self, order: Order) -> Option<Order> {
        let cpu = self.base().hw.cpu().index();
        (0..order.get()).rev().map(Order::new).find(|&order| {
            (0..self.base().swaps.len() as u32).filter_map(|number| self.base().device(number)).any(
                |device| {
                    let slot = device.slots.take(order, cpu);
                    if let Some(slot) = slot {
                        device.slots.uncache(FilePages::block(slot, order));
                    }
                    slot.is_some()
                },
            )
        })
    }

    /// Gives a folio slots, and their identity.
    fn enter_out(&self, folio: Folio) -> Result<Leaving, Lack> {
        let folios = self.base().folios();
        if let Some((cached, owner)) = folios.identified(folio) {
            let known = cached.known();
            let device = self.base().device_of(file_of(owner)).map_err(|_| Lack::Hold)?;
            let busy =
                known.intersects(FolioFlags::LEAVING | FolioFlags::WRITING | FolioFlags::POISONED);
            if busy || !known.contains(FolioFlags::UPTODATE) {
                return Err(Lack::Hold);
            }
            cached.learn(known | FolioFlags::LEAVING);
            let slots = FilePages::block(page_of(owner), folio.order);
            return Ok(Leaving {
                folio,
                device: device.number,
                slots,
                dirty: false,
                mapped: 0,
                pages: 0,
                again: false,
            });
        }
        let cpu = self.base().hw.cpu().index();
        let numbers = 0..self.base().swaps.len() as u32;
        let found = numbers.filter_map(|number| self.base().device(number)).find_map(|device| {
            let slot = device.slots.take(folio.order, cpu)?;
            Some((device, slot))
        });
        let Some((device, slot)) = found else {
            self.fallback_out(folio.order);
            return Err(Lack::Slots);
        };
        let slots = FilePages::block(slot, folio.order);
        if let Err(lack) = self.index_out(&device, folio, slots) {
            device.slots.uncache(slots);
            return Err(lack);
        }
        let device = device.number;
        Ok(Leaving { folio, device, slots, dirty: true, mapped: 0, pages: 0, again: false })
    }

    fn fallback_out(&self, order: Order) {
        if let Some(own) = self.base().counters.get(self.base().hw.cpu().index()) {
            own.add_folios(FolioEvent::SwpoutFallback, order, 1);
        }
    }

    /// Inserts a folio into the index of a device.
    fn index_out(
        &self,
        device: &Device<'_, A, H>,
        folio: Folio,
        slots: FilePages,
    ) -> Result<(), Lack> {
        let folios = self.base().folios();
        if !folios.identify(folio, identity(device.index.id, slots.start)) {
            return Err(Lack::Hold);
        }
        let (mut spare, mut pruned) = (None, false);
        let entered = loop {
            match device.index.insert(slots.start, folio, &mut spare) {
                Ok(()) => break Ok(()),
                Err(InsertLack::Room) if !pruned => {
                    device.index.prune(slots, &mut |run| self.base().free(run));
                    pruned = true;
                }
                Err(InsertLack::Room) => break Err(Lack::Hold),
                Err(InsertLack::Node) => match self.base().table_frame() {
                    Ok(run) => spare = Some(run),
                    Err(_) => break Err(Lack::Memory),
                },
            }
        };
        if let Some(run) = spare {
            self.base().free(run);
        }
        if entered.is_ok() {
            device.index.file.count_cached(slots.count() as i64);
        } else if let Some((cached, _)) = folios.identified(folio) {
            cached.disclaim();
            if let Some(run) = folios.put(folio) {
                self.base().free(run);
            }
        }
        entered
    }

    /// Flushes for a batch, evicts it from other spaces if the demand says so, and marks dirty
    /// folios for writing.
    fn end_batch(
        &self,
        space: &Space<A>,
        gather: &mut Gather,
        batch: &mut Batch,
        (whose, spaces): (Scope, &(impl AllSpaces<A> + ?Sized)),
        done: &mut PagedOut,
    ) {
        let pages = batch.leaving.iter().flatten().map(|leaving| leaving.pages);
        if pages.sum::<u64>() > EVICT_FLUSH_PAGES {
            gather.flush_space();
        }
        self.base().settle(space, gather);
        let mut left = batch.leaving.iter().flatten();
        if whose == Scope::All && left.any(|leaving| leaving.pages < leaving.mapped) {
            spaces.visit(&mut |other| self.evict_others(other, batch));
        }
        for leaving in batch.leaving[..batch.len].iter_mut().filter_map(Option::take) {
            self.end_out(&leaving, done);
        }
        batch.len = 0;
    }

    fn end_out(&self, leaving: &Leaving, done: &mut PagedOut) {
        let Leaving { folio, slots, dirty, pages, .. } = *leaving;
        let folios = self.base().folios();
        let Some(device) = self.base().device(leaving.device) else { return };
        if dirty {
            device.index.set_dirty(slots.start, folio, true);
        }
        if folios.counts(folio).mapped == 0 {
            done.folios += 1;
            done.pages += folio.order.pages();
            if let Some(own) = self.base().counters.get(self.base().hw.cpu().index()) {
                own.add_folios(FolioEvent::Swpout, folio.order, 1);
            }
        } else if !leaving.again {
            done.stay += 1;
        }
        self.base().count(Event::PagesSwapped, pages);
        if let Some((cached, _)) = folios.identified(folio) {
            cached.learn(cached.known() - FolioFlags::LEAVING);
        }
        // The folio is not marked as leaving any more, so another CPU may have taken it out of its
        // file.
        if let Some(run) = folios.put(folio) {
            self.base().free(run);
        }
        self.base().try_drop(&device, folio, slots, Keep::IfHeld);
    }
}
