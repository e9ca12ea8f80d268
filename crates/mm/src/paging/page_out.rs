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

use arrayvec::ArrayVec;
use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Vpn};

use super::Paging;
use super::evict::{Evictor, Found, Leaving};
use crate::base::{AllSpaces, Device, Error, Keep};
use crate::cache::{FilePages, file_of, identity, page_of};
use crate::folio::cached::Cached;
use crate::folio::{Folio, FolioFlags};
use crate::limits::{EVICT_FLUSH_PAGES, LEAVE_MOST, PAGE_OUT_TRIES};
use crate::space::Space;
use crate::stats::{Event, FolioEvent};
use crate::sync::spin_loop;
use crate::table::{Divided, Division, Gather};

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
    /// The reason for which the folios leave.
    pub(crate) purpose: Purpose,
}

/// The use of swap entries that replace the mappings of a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The folio leaves memory.
    Write,
    /// Other frames get its contents, and its pages are mapped again.
    Move,
}

/// The reason why a folio does not leave.
enum Obstacle {
    /// It has another user or a pin, or there are no slots.
    Stays,
    /// Parts of it may leave.
    Divide(Division),
    /// There is no frame for the index of a device.
    Starved,
}

/// Paging out of a span under way.
struct PageOut<'a, A, H> {
    paging: &'a Paging<'a, A, H>,
    span: PageSpan,
    demand: Demand,
    spaces: &'a dyn AllSpaces<A>,
    /// The folios that wait for their flush.
    batch: ArrayVec<Leaving, LEAVE_MOST>,
    own: Evictor<'a, A, H>,
    done: PagedOut,
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
        let demand = Demand { whose, idle: 0, pages: u64::MAX, purpose: Purpose::Write };
        self.page_out_if(space, span, demand, &spaces).map(|(done, _)| done)
    }

    /// The same for folios without an access for some rounds of aging, up to a number of pages; and
    /// the page to continue at.
    pub(crate) fn page_out_if(
        &self,
        space: &Space<A>,
        span: PageSpan,
        demand: Demand,
        spaces: &dyn AllSpaces<A>,
    ) -> Result<(PagedOut, Vpn), Error> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        let (batch, done) = Default::default();
        let mut gather = Gather::new();
        let own = Evictor::new(self.base(), self.base().view(space), &mut gather);
        let mut out = PageOut { paging: self, span, demand, spaces, batch, own, done };
        let upto = out.run();
        Ok((out.done, upto))
    }

    /// Slots for a folio of `order`, on the first device that has a free run of them.
    fn take_slots(&self, order: Order) -> Option<(Device<'_, A, H>, FilePages)> {
        let (base, cpu) = (self.base(), self.base().hw.cpu().index());
        (0..base.swaps.len() as u32).find_map(|number| {
            let device = base.device(number)?;
            let slot = device.slots.take(order, cpu)?;
            Some((device, FilePages::block(slot, order)))
        })
    }

    /// The largest order below `order` that has a free run of slots.
    fn smaller_order(&self, order: Order) -> Option<Order> {
        (0..order.get()).rev().map(Order::new).find(|&order| {
            let taken = self.take_slots(order);
            taken.map(|(device, slots)| device.slots.uncache(slots)).is_some()
        })
    }

    /// Takes a folio out that has slots.
    fn leave_again(&self, cached: Cached<'_>, owner: u64) -> Result<Leaving, Obstacle> {
        let known = cached.known();
        let device = self.base().device_of(file_of(owner)).map_err(|_| Obstacle::Stays)?;
        let busy =
            known.intersects(FolioFlags::LEAVING | FolioFlags::WRITING | FolioFlags::POISONED);
        if busy || !known.contains(FolioFlags::UPTODATE) {
            return Err(Obstacle::Stays);
        }
        cached.learn(known | FolioFlags::LEAVING);
        Ok(Leaving::new(cached.folio, device.number, page_of(owner), false))
    }

    /// Takes a folio out: gives it slots, and their identity.
    fn enter_out(&self, folio: Folio) -> Result<Leaving, Obstacle> {
        let (base, folios, order) = (self.base(), self.base().folios(), folio.order);
        let Some((device, slots)) = self.take_slots(order) else {
            base.count_folios(FolioEvent::SwpoutFallback, order, 1);
            let smaller = self.smaller_order(order).map(Division::Uniform);
            return Err(smaller.map_or(Obstacle::Stays, Obstacle::Divide));
        };
        let is_its = folios.identify(folio, identity(device.index.id, slots.start));
        let entered = match is_its {
            true => self.files().with(&device.index).insert(slots.start, folio),
            false => Ok(false),
        };
        if entered == Ok(true) {
            return Ok(Leaving::new(folio, device.number, slots.start, true));
        }
        if is_its && let Some((cached, _)) = folios.identified(folio) {
            cached.disclaim();
            base.put(folio);
        }
        device.slots.uncache(slots);
        Err(if entered.is_ok() { Obstacle::Stays } else { Obstacle::Starved })
    }

    /// Ends the way of a folio out: it may be written or dropped from now on.
    fn end_out(&self, leaving: &Leaving, device: &Device<'_, A, H>, done: &mut PagedOut) {
        let (folio, slots) = (leaving.folio(), leaving.slots());
        let folios = self.base().folios();
        if leaving.dirty {
            device.index.set_dirty(slots.start, folio, true);
        }
        if folios.counts(folio).mapped == 0 {
            done.folios += 1;
            done.pages += folio.order.pages();
            self.base().count_folios(FolioEvent::Swpout, folio.order, 1);
        } else if !leaving.again {
            done.stay += 1;
        }
        self.base().count(Event::PagesSwapped, leaving.pages.into());
        if let Some((cached, _)) = folios.identified(folio) {
            cached.learn(cached.known() - FolioFlags::LEAVING);
        }
        // The folio is not marked as leaving any more, so another CPU may have taken it out of its
        // file.
        self.base().put(folio);
        self.base().try_drop(device, folio, slots, Keep::IfHeld);
    }
}

impl<A: Arch, H: Hardware> PageOut<'_, A, H> {
    /// Pages out; returns the page to continue at.
    fn run(&mut self) -> Vpn {
        let _taking = self.own.view.space.taking();
        let (mut at, mut begun, mut tries) = (self.span.start, 0, PAGE_OUT_TRIES);
        let upto = loop {
            if begun >= self.demand.pages {
                break at;
            }
            let Some(found) = self.hold_next(at) else { break self.span.end };
            let pages = found.folio.order.pages();
            at = found.here.end.min(self.span.end);
            if self.own.lose(&found) {
                begun += pages;
                self.done.folios += 1;
                self.done.pages += pages;
                continue;
            }
            match self.begin(&found) {
                Ok(mut leaving) => {
                    begun += pages;
                    let changing = self.own.evict(found.here, &mut leaving);
                    if changing && self.demand.whose == Scope::Own && tries > 0 {
                        (leaving.again, at) = (true, found.page);
                        tries -= 1;
                    }
                    self.push(leaving);
                }
                Err(Obstacle::Starved) => {
                    self.done.starved = true;
                    break found.page;
                }
                Err(Obstacle::Divide(how))
                    if self.demand.purpose == Purpose::Write && self.divides(found.page, how) =>
                {
                    at = found.page;
                }
                Err(_) => self.done.stay += 1,
            }
        };
        self.end_batch();
        upto
    }

    /// The first folio from page `at` on that may leave: without an access for the demanded rounds,
    /// and not shared if the demand says so. It gets a reference. Others stay and are counted: they
    /// are many after a fork, so the search skips them under one lock of their table. A space that
    /// pages out its own memory waits for a change of it, such as a collapse, as a fault does.
    #[inline(never)]
    fn hold_next(&mut self, at: Vpn) -> Option<Found> {
        let (base, demand) = (self.own.base, self.demand);
        let (folios, tables) = (base.folios(), self.own.view.tables());
        let span = PageSpan::new(at, self.span.end);
        let is_own = demand.whose == Scope::Own;
        let has_swap = base.swaps.iter().any(|swap| swap.is_open());
        let mut hold = |folio: Folio| {
            let is_old = has_swap && folios.idle(folio) >= demand.idle;
            if !is_old && !folios.is_lazy(folio) {
                return false;
            }
            let stays = is_own && folios.is_shared(folio);
            self.done.stay += u64::from(stays);
            !stays && folios.hold(folio)
        };
        let changing = || is_own && self.own.view.space.areas.is_held(span);
        loop {
            while changing() {
                spin_loop();
            }
            match tables.first_folio(span, &mut hold) {
                Some(found) => return Some(Found::new(found)),
                // A change that began meanwhile may hold the whole span.
                None if changing() => {}
                None => return None,
            }
        }
    }

    /// Begins to take a folio out. If it does not leave, the reference to it is released.
    #[inline(never)]
    fn begin(&self, found: &Found) -> Result<Leaving, Obstacle> {
        let (folio, folios) = (found.folio, self.own.base.folios());
        let begun = self.may_leave(found).and_then(|()| match folios.identified(folio) {
            Some((cached, owner)) => self.paging.leave_again(cached, owner),
            None => self.paging.enter_out(folio),
        });
        match begun {
            Ok(mut leaving) => {
                // Mappings count until they are flushed, and this space is flushed before the
                // others.
                leaving.mapped = folios.counts(folio).mapped;
                Ok(leaving)
            }
            Err(stop) => {
                self.own.base.put(folio);
                Err(stop)
            }
        }
    }

    /// Whether a folio may leave, and leaves whole.
    fn may_leave(&self, found: &Found) -> Result<(), Obstacle> {
        let &Found { folio, here, .. } = found;
        let counts = self.own.base.folios().counts(folio);
        let is_shared = u64::from(counts.mapped) > folio.order.pages();
        if counts.pins > 0 || self.demand.whose == Scope::Own && is_shared {
            return Err(Obstacle::Stays);
        }
        let within = self.span.covers(here) && !found.is_cut();
        if within || folio.order == Order::ZERO {
            return Ok(());
        }
        if self.demand.purpose == Purpose::Move {
            return Err(Obstacle::Stays);
        }
        let edge = if here.start < self.span.start { self.span.start } else { self.span.end };
        Err(Obstacle::Divide(Division::Around(edge, Order::ZERO)))
    }

    /// Splits the folio at `page`; returns whether it could.
    fn divides(&self, page: Vpn, how: Division) -> bool {
        let divided = self.paging.spaces().divide(self.own.view.space, page, how);
        matches!(divided, Ok(Divided::Parts { .. }))
    }

    /// Adds a folio to the batch. A batch ends when it is full, and before its last folio is
    /// visited once more.
    fn push(&mut self, leaving: Leaving) {
        let again = leaving.again;
        self.batch.push(leaving);
        if again || self.batch.is_full() {
            self.end_batch();
        }
    }

    /// Flushes for a batch, evicts it from other spaces if the demand says so, and marks dirty
    /// folios for writing.
    #[inline(never)]
    fn end_batch(&mut self) {
        if self.batch.iter().map(|leaving| u64::from(leaving.pages)).sum::<u64>()
            > EVICT_FLUSH_PAGES
        {
            self.own.gather.flush_space();
        }
        self.own.settle();
        if self.demand.whose == Scope::All && self.batch.iter().any(Leaving::is_mapped) {
            self.spaces.visit(&mut |other| {
                let _taking = other.taking();
                // Of this space's own there is nothing left in the gather.
                let (base, gather) = (self.own.base, &mut *self.own.gather);
                let mut evictor = Evictor::new(base, base.view(other), gather);
                let mapped = self.batch.iter_mut().filter(|leaving| leaving.is_mapped());
                mapped.for_each(|leaving| evictor.evict_at_home(leaving));
                evictor.settle();
            });
        }
        // One by one, and in place: a batch is a large part of the stack.
        while let Some(leaving) = self.batch.pop() {
            let Some(device) = self.own.base.device(leaving.device) else { continue };
            match self.demand.purpose {
                Purpose::Write => self.paging.end_out(&leaving, &device, &mut self.done),
                Purpose::Move => self.end_move(leaving, &device),
            }
        }
    }

    /// Lets a folio move, and counts it.
    fn end_move(&mut self, leaving: Leaving, device: &Device<'_, A, H>) {
        let pages = leaving.folio().order.pages();
        let moved = self.paging.end_move(leaving, device, self.spaces);
        self.done.folios += u64::from(moved);
        self.done.pages += if moved { pages } else { 0 };
        self.done.stay += u64::from(!moved);
    }
}
