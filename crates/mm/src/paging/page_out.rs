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

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Vpn};

use super::Paging;
use super::batch::Batch;
use super::evict::{Found, Leaving};
use super::leave::{Demand, Obstacle, PagedOut, Purpose, Scope};
use crate::base::{AllSpaces, Error};
use crate::folio::Folio;
use crate::limits::PAGE_OUT_TRIES;
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
            match self.begin(&found) {
                Ok(mut leaving) => {
                    begun += pages;
                    let changing = self.batch.evictor(space).evict(found.here, &mut leaving);
                    if changing && self.demand.whose == Scope::Own && tries > 0 {
                        (leaving.again, at) = (true, found.page);
                        tries -= 1;
                    }
                    // A batch ends before its last folio is visited once more.
                    let again = leaving.again;
                    if self.batch.push(leaving) || again {
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

    /// Begins to take a folio out. If it does not leave, the reference to it is released.
    #[inline(never)]
    fn begin(&self, found: &Found) -> Result<Leaving, Obstacle> {
        if let Err(stop) = self.may_leave(found) {
            self.paging.base().put(found.folio);
            return Err(stop);
        }
        self.paging.begin(found.folio, self.demand.purpose)
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
