//! Paging out: anonymous folios leave memory whole (rows D1 to D3).
//!
//! ```text
//!   for each row of folios                                        possible failure, and its effect
//!   1 take references: no mapping of them is lost
//!   2 take a run of slots for each, one behind the other
//!                                         cached, count 0     none: they stay; counted
//!   3 give them the slots' identity, and put them into their file
//!                                                             no memory: slots freed
//!   4 each space, each run of leaves:
//!       a count the slots, by rows
//!       b pinned, locked, held by a change?                   the run stays, its slots uncounted
//!         by a change, and the space pages out its own: wait, and visit it again
//!       c leaves become swap entries; mappings go into the gather
//!   5 one flush for many rows; the mappings end
//!   6 dirty: ready to be written            slots without entries: identity and slots freed
//! ```
//!
//! A row is folios of one size that are mapped side by side. Where a step fails for one of them,
//! the row ends before it: the steps before are undone for it and those behind it, which are
//! visited next. The slots are counted before an entry is visible (I9), and all checks precede all
//! changes of entries (I8): a pin takes the same lock, so no entry is ever restored. The folios are
//! written only after the flush (I6): no program can change them any more.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Vpn};

use super::Paging;
use super::batch::Batch;
use super::evict::{Begun, Found, Leaving};
use super::leave::{Demand, Obstacle, PagedOut, Purpose, Scope};
use crate::base::{AllSpaces, Error};
use crate::cache::Row;
use crate::folio::{Folio, FolioFlags};
use crate::limits::{PAGE_OUT_TRIES, ROW_MOST};
use crate::space::Space;
use crate::swap::{Admits, Swap};
use crate::sync::spin_loop;
use crate::table::{Divided, Division, Gather};

/// Paging out of a span under way.
struct PageOut<'a, A, H> {
    paging: &'a Paging<'a, A, H>,
    space: &'a Space<A>,
    span: PageSpan,
    demand: Demand,
    batch: Batch<'a, A, H>,
}

impl<A: Arch, H: Hardware> Paging<'_, A, H> {
    /// Pages the anonymous folios in `span` out, and those of files in memory. A folio that is only
    /// partly in the span is split, and so is one without a free run of slots; if that fails, and
    /// where a folio of a file is partly in the span, it stays.
    /// [`next_write`](crate::Files::next_write) writes them, one device's file after the other;
    /// their memory is free with [`write_done`](crate::Files::write_done). Pages that were [freed
    /// lazily](crate::Spaces::free_lazily), and not written since, are lost instead, and free at
    /// once; without a swap device, no others leave.
    ///
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
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        // Those that stay are counted by the second.
        let shown = self.page_out_shown(space, span, demand, &spaces);
        let (mut done, _) = self.page_out_if(space, span, demand, &spaces)?;
        done.add(shown);
        Ok(done)
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
        let mut gather = Gather::new();
        let batch = Batch::new(self, spaces, demand.purpose, &mut gather);
        let mut out = PageOut { paging: self, space, span, demand, batch };
        let upto = out.run();
        Ok((out.batch.done, upto))
    }
}

impl<A: Arch, H: Hardware> PageOut<'_, A, H> {
    /// Pages out; returns the page to continue at.
    fn run(&mut self) -> Vpn {
        let space = self.space;
        let _taking = space.taking();
        let (mut at, mut begun, mut tries) = (self.span.start, 0, PAGE_OUT_TRIES);
        let upto = loop {
            if begun >= self.demand.pages {
                break at;
            }
            let Some(found) = self.hold_next(at) else { break self.span.end };
            let pages = found.folio.order.pages();
            at = found.here.end.min(self.span.end);
            if self.batch.evictor(space).lose(&found) {
                begun += pages;
                self.batch.done.folios += 1;
                self.batch.done.pages += pages;
                continue;
            }
            let most = (self.demand.pages - begun).div_ceil(pages);
            match self.enter_batch(&found, most) {
                Ok(count) => {
                    let changing = self.batch.evict_last(count, space, found.here.start);
                    let taken = count as u64 * pages;
                    begun += taken;
                    at = found.here.start.add(taken).min(self.span.end);
                    let kept = changing || self.has_lost(count);
                    let again = kept && self.demand.whose == Scope::Own && tries > 0;
                    if again {
                        tries -= 1;
                        at = self.visit_again(&found, count).max(found.page);
                    }
                    // A batch ends before its last folios are visited once more.
                    if again || self.batch.room() == 0 {
                        self.end_batch();
                    }
                }
                Err(Obstacle::Starved) => {
                    self.batch.done.starved = true;
                    break found.page;
                }
                Err(Obstacle::NoSlots) if !self.batch.is_empty() => {
                    self.end_batch();
                    at = found.page;
                }
                Err(Obstacle::Divide(how)) if self.divides(found.page, how) => at = found.page,
                Err(_) => self.batch.done.stay += 1,
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
        let (base, demand) = (self.paging.base(), self.demand);
        let (folios, tables) = (base.folios(), base.view(self.space).tables());
        let span = PageSpan::new(at, self.span.end);
        let is_own = demand.whose == Scope::Own;
        let moves = demand.purpose != Purpose::Write;
        let takes = |swap: &Swap| match swap.admits() {
            Admits::All => true,
            Admits::Moves => moves,
            Admits::Nothing => false,
        };
        let has_swap = base.swaps.iter().any(takes);
        let mut stayed = 0;
        let mut hold = |folio: Folio| {
            let is_old = has_swap && folios.idle(folio) >= demand.idle;
            if !is_old && !folios.is_lazy(folio) {
                return false;
            }
            let stays = is_own && folios.is_shared(folio);
            stayed += u64::from(stays);
            !stays && folios.hold(folio)
        };
        let changing = || is_own && self.space.areas.is_held(span);
        let found = loop {
            while changing() {
                spin_loop();
            }
            match tables.first_folio(span, &mut hold) {
                // A change that began meanwhile may hold the whole span.
                None if changing() => {}
                found => break found,
            }
        };
        self.batch.done.stay += stayed;
        found.map(Found::new)
    }

    /// Puts the folio that was found into the batch, and up to `most` with those right behind it;
    /// returns how many.
    // Its row is not on the stack any more while they are evicted.
    #[inline(never)]
    fn enter_batch(&mut self, found: &Found, most: u64) -> Result<usize, Obstacle> {
        let mut row = Row::of(0, found.folio);
        let begun = self.begin(found, &mut row, most)?;
        self.batch.push(&row, &begun);
        Ok(row.len())
    }

    /// Whether one of the last `count` folios of the batch was not found, or stayed: a change, such
    /// as a collapse, puts another in its place.
    fn has_lost(&mut self, count: usize) -> bool {
        let is_lost = |leaving: &Leaving| leaving.pages.get() == 0;
        self.batch.last(count).iter().any(is_lost)
    }

    /// Marks the last folios of the batch, `count` of them, from `found` on, of which a change has
    /// kept pages. Returns the page to go on at.
    fn visit_again(&mut self, found: &Found, count: usize) -> Vpn {
        let each = found.folio.order.pages();
        let (mut at, mut first) = (found.here.start, None);
        for leaving in self.batch.last(count) {
            leaving.again = leaving.is_mapped() || leaving.pages.get() == 0;
            first = first.or(leaving.again.then_some(at));
            at = at.add(each);
        }
        first.unwrap_or(at)
    }

    /// Begins to take the folio of a row out, and up to `most` with those right behind it. If none
    /// leaves, the references to them are released.
    #[inline(never)]
    fn begin(&self, found: &Found, row: &mut Row, most: u64) -> Result<Begun, Obstacle> {
        if let Err(stop) = self.may_leave(found) {
            self.paging.base().put(found.folio);
            return Err(stop);
        }
        let most = (most.min(ROW_MOST as u64) as usize).min(self.batch.room());
        self.hold_behind(found, row, most);
        self.paging.begin(row, self.demand.purpose)
    }

    /// Adds the folios right behind `found` to the row, up to `most` with it: those of its size
    /// that leave as it does, which have no slots yet. They get a reference.
    fn hold_behind(&self, found: &Found, row: &mut Row, most: usize) {
        let (base, order) = (self.paging.base(), found.folio.order);
        let folios = base.folios();
        let Demand { idle, whose, .. } = self.demand;
        let end = found.here.start.add((most as u64) << order.get()).min(self.span.end);
        let known = FolioFlags::CACHED | FolioFlags::LAZY | FolioFlags::POISONED;
        if found.is_cut() || found.here.end >= end || folios.known(found.folio).0.intersects(known)
        {
            return;
        }
        let behind = PageSpan::new(found.here.end, end);
        base.view(self.space).tables().neighbours(behind, order, |folio| {
            let (facts, counts) = (folios.known(folio).0, folios.counts(folio));
            let is_shared = u64::from(counts.mapped) > order.pages();
            let stays = facts.intersects(known)
                || facts.idle() < idle
                || counts.pins > 0
                || is_shared && whose == Scope::Own
                || base.phys.is_of_pool(folio.head, order);
            let holds = !stays && folios.hold(folio);
            if holds {
                row.push(folio.head);
            }
            holds
        });
    }

    /// Whether a folio may leave, and leaves whole.
    fn may_leave(&self, found: &Found) -> Result<(), Obstacle> {
        let &Found { folio, here, .. } = found;
        let counts = self.paging.base().folios().counts(folio);
        let is_shared = u64::from(counts.mapped) > folio.order.pages();
        let is_reserved = self.paging.base().phys.is_of_pool(folio.head, folio.order);
        if counts.pins > 0 || is_reserved || self.demand.whose == Scope::Own && is_shared {
            return Err(Obstacle::Stays);
        }
        let within = self.span.covers(here) && !found.is_cut();
        if within || folio.order == Order::ZERO {
            return Ok(());
        }
        if self.demand.purpose != Purpose::Write {
            return Err(Obstacle::Stays);
        }
        let edge = if here.start < self.span.start { self.span.start } else { self.span.end };
        Err(Obstacle::Divide(Division::Around(edge, Order::ZERO)))
    }

    /// Splits the folio at `page`; returns whether it could.
    fn divides(&self, page: Vpn, how: Division) -> bool {
        let divided = self.paging.spaces().divide(self.space, page, how);
        matches!(divided, Ok(Divided::Parts { .. }))
    }

    /// Flushes for a batch, and evicts it from other spaces if the demand says so.
    fn end_batch(&mut self) {
        let others = self.demand.whose == Scope::All;
        self.batch.end(Some(self.space), others);
    }
}
