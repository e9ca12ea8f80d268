//! Progress and preference: after each burst of a script, a process that the script knows nothing
//! of asks whether things happen at all. All other checks compare contents.
//!
//! ```text
//!   room? ─► map, write ─► scan, collapse ─► page out ─► come back ─► discard ─► reclaim ─► end
//!              │             │                 │           │            │          │
//!              the zones     large folios,     all leave   as written   the slots  pages enough
//!              in order      and all move                               are free
//! ```
//!
//! It is asked only where nothing stands in the way: there is memory, there are slots, and no fault
//! strikes. At the end of a run all blocks of memory and all runs of slots are whole again.

use quire::cache::{FileId, FilePages, Store};
use quire::limits::GROUP_ORDER;
use quire::phys::Zones;
use quire::space::{
    Advice, AreaFlags, At, Backing, OptOut, Request, Space, Watch, WatchFor, Watcher,
};
use quire::stats::{Event, Totals};
use quire::table::Sight;
use quire::{Need, PoolCounts, ScanCursor, ScanLimits, Scope, Stop};
use quire_arch::Arch;
use quire_units::{Access, Asid, Order, OrderSet, PageSpan, Vpn};

use super::violation::{Kind, Wrong};
use super::world::{STORES, World};

/// Pages of the process.
const PAGES: u64 = 32;

/// It asks only where this many frames are free: its pages, a copy of them, its tables, and the
/// blocks that CPUs keep.
const ROOM: u64 = 320;

/// Its tag: processes of scripts have smaller ones.
const TAG: Asid = Asid(15);

/// How often one of its accesses may trap.
const TRIES: usize = 20;

/// No limits for a scan.
const ANY: ScanLimits =
    ScanLimits { none: u64::MAX - 1, swapped: u64::MAX, shared: u64::MAX, hard: true };

/// A finding unless `holds`.
fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err(Wrong::new(Kind::Progress, what())) }
}

/// How often `event` happened since `before`.
fn since(now: &Totals, before: &Totals, event: Event) -> u64 {
    now.event(event) - before.event(event)
}

impl<A: Arch> World<'_, '_, '_, A> {
    /// Asks for progress, if nothing stands in its way.
    pub(super) fn progress(&mut self) -> Result<(), Wrong> {
        let few = u64::from(self.setup.frames) / 8 + ROOM;
        if self.exact.is_some() || !self.mm.phys().has_free(few) {
            return Ok(());
        }
        self.complete(u64::MAX);
        self.asks_for_zones()?;
        let start = Vpn::new(self.window().base.get().next_multiple_of(PAGES));
        let span = PageSpan::new(start, start.add(PAGES));
        self.beside(span, |world, space| world.asks(space, span))?;
        self.beside(span, |world, space| world.asks_for_shift(space, span))?;
        self.asks_for_pool()
    }

    /// Lets a process act that is not one of the script's.
    fn beside<R>(
        &mut self,
        span: PageSpan,
        act: impl FnOnce(&mut Self, &Space<A>) -> Result<R, Wrong>,
    ) -> Result<R, Wrong> {
        let space = self.mm.space(TAG, span).map_err(Wrong::unexpected)?;
        let cpu = self.cpu().number();
        self.running[cpu.index()] = None;
        space.enter(cpu);
        self.cpu().switch(space.root(), space.asid());
        let done = act(self, &space);
        self.cpu().leave();
        let _operation = self.machine.operation("destroy");
        self.mm.destroy(space);
        done
    }

    /// The scarce zone gives only what no other can.
    fn asks_for_zones(&self) -> Result<(), Wrong> {
        let (phys, low) = (self.mm.phys(), u64::from(self.setup.low));
        for order in [0, 2, 4, 5].map(Order::new).into_iter().filter(|_| low > 0) {
            phys.drain();
            let Some(high) = phys.alloc_in(order, Zones::only(1)) else { continue };
            phys.free(high);
            phys.drain();
            let run = phys.alloc(order);
            let boundary = phys.span().start.add(low);
            let spared = run.as_ref().is_some_and(|run| run.start() >= boundary);
            let told = format!("{run:?} of {order} was taken, and low memory ends at {boundary}");
            run.into_iter().for_each(|run| phys.free(run));
            ensure(spared, || told)?;
        }
        Ok(())
    }

    /// Whether memory has blocks for `PAGES` pages in folios of `order`, and some more.
    fn has_blocks(&self, order: Order) -> bool {
        self.mm.phys().drain();
        let blocks = self.mm.phys().free_by_order();
        let larger = blocks.iter().enumerate().skip(order.index());
        let fits: u64 = larger.map(|(at, blocks)| blocks << (at - order.index())).sum();
        fits > 2 * (PAGES >> order.get()) + 1
    }

    /// How many slots of all devices are free, and how many are used.
    fn slots(&self) -> (u64, u64) {
        let each = self.mm.paging().devices();
        each.fold((0, 0), |(free, used), (_, slots, own)| (free + slots - own, used + own))
    }

    fn asks(&mut self, space: &Space<A>, span: PageSpan) -> Result<(), Wrong> {
        let request = Request::anon(PAGES).at(At::Fixed(span.start));
        self.mm.map(space, &request).map_err(Wrong::unexpected)?;
        self.mm.advise(space, span, Advice::Huge).map_err(Wrong::unexpected)?;
        self.stores(space, span)?;
        self.asks_for_folios(space, span)?;
        self.asks_for_moves(space, span)?;
        self.loads(space, span)?;
        // A folio that no process has any more leaves its slots when it is written.
        self.write_swap()?;
        let (free, used) = self.slots();
        if free < 2 * PAGES {
            return Ok(());
        }
        self.asks_for_slots(space, span)?;
        self.mm.discard(space, span).map_err(Wrong::unexpected)?;
        let now = self.slots().1;
        ensure(now == used, || format!("{now} slots are used, and {used} were before"))?;
        self.stores(space, span)?;
        let out = {
            let _operation = self.reclaiming("reclaim");
            self.mm.reclaim().reclaim(PAGES / 2, &self.all().and(space))
        };
        self.write_swap()?;
        ensure(out.pages() >= PAGES / 2, || format!("of {} pages {out:?} was reclaimed", PAGES / 2))
    }

    /// A scan makes the folios that the policy wants, and a collapse any.
    fn asks_for_folios(&mut self, space: &Space<A>, span: PageSpan) -> Result<(), Wrong> {
        let most = OrderSet::up_to(Order::new(5).min(A::block_order()));
        let wanted = self.mm.policy().candidates(Advice::Huge, OptOut::No) & most;
        if let Some(order) = wanted.largest().filter(|order| self.has_blocks(*order)) {
            let before = self.mm.totals();
            let scanned = {
                let _operation = self.machine.operation("scan");
                let mut cursor = ScanCursor::default();
                self.mm.reclaim().scan(&mut cursor, u64::MAX, &ANY, &[space][..])
            };
            let made = since(&self.mm.totals(), &before, Event::CollapseAlloc);
            ensure(scanned.is_round && made == scanned.made, || {
                format!("a scan came to {scanned:?}, and {made} folios were counted")
            })?;
            self.has_folios(space, order, "a scan")?;
        }
        let order = Order::new(3).min(A::block_order());
        if !self.has_blocks(order) {
            return Ok(());
        }
        let done = {
            let _operation = self.machine.operation("collapse");
            self.mm.reclaim().collapse(space, span, order).map_err(Wrong::unexpected)?
        };
        ensure(done.made + done.already == PAGES >> order.get(), || {
            format!("a collapse to {order} came to {done:?}")
        })?;
        self.has_folios(space, order, "a collapse")
    }

    /// All pages move to other frames where there are slots and frames for that.
    fn asks_for_moves(&mut self, space: &Space<A>, span: PageSpan) -> Result<(), Wrong> {
        let few = u64::from(self.setup.frames) / 16 + ROOM;
        let largest = Order::new(5).min(A::block_order());
        if self.moves.is_none() || !self.mm.phys().has_free(few) || !self.has_blocks(largest) {
            return Ok(());
        }
        let frames = |world: &Self| {
            let mut all = Vec::new();
            world.mm.spaces().runs(space, span, &mut |seen| {
                if let Sight::Leaf { frame, .. } = seen.what {
                    all.extend((0..seen.pages.count()).map(|page| frame.add(page)));
                }
            });
            all
        };
        let (before, counted) = (frames(self), self.mm.totals());
        let done = {
            let _operation = self.machine.operation("migrate");
            let all = self.all().and(space);
            self.mm.paging().migrate(space, span, &all).map_err(Wrong::unexpected)?
        };
        let after = frames(self);
        let same = before.iter().zip(&after).filter(|(old, new)| old == new).count();
        let moved = since(&self.mm.totals(), &counted, Event::MigratedPages);
        ensure((done.pages, done.stay, moved) == (PAGES, 0, PAGES), || {
            format!("{done:?}: {moved} pages are counted as moved, and {PAGES} should be")
        })?;
        ensure(after.len() as u64 == PAGES && same == 0, || {
            format!("{same} of {} pages that moved are where they were", after.len())
        })
    }

    /// A watcher's move takes pages from one place to the other; no memory is copied.
    fn asks_for_shift(&mut self, space: &Space<A>, span: PageSpan) -> Result<(), Wrong> {
        let half = PAGES / 2;
        let (from, to) = (PageSpan::new(span.start, span.start.add(half)), span.start.add(half));
        let target = PageSpan::new(to, span.end);
        for part in [from, target] {
            let request = Request::anon(half).at(At::Fixed(part.start));
            self.mm.map(space, &request).map_err(Wrong::unexpected)?;
        }
        let events = WatchFor::WRITE | WatchFor::ASYNC;
        let watch = Watcher::new(1).map(|watcher| Watch { watcher, events });
        self.mm.spaces().watch(space, target, watch).map_err(Wrong::unexpected)?;
        self.stores(space, from)?;
        let (before, there) = (self.mm.totals(), self.mm.resident(space));
        let done = {
            let _operation = self.machine.operation("move pages");
            self.mm.spaces().move_pages(space, from, to, false)
        };
        let moved = since(&self.mm.totals(), &before, Event::EntriesMoved);
        ensure((done.pages, done.end) == (half, Ok(())) && (1..=half).contains(&moved), || {
            format!("{done:?}: {moved} entries of {half} pages are counted")
        })?;
        let now = self.mm.resident(space);
        ensure(now == there, || format!("{there} pages were there, and {now} are after a move"))?;
        for ahead in 0..half {
            let (old, new) = (from.start.add(ahead), to.add(ahead));
            let words = (
                self.use_page(space, new, Access::Read)?,
                self.use_page(space, old, Access::Read)?,
            );
            ensure(words == (old.get(), 0), || format!("{old} moved to {new}: {words:x?}"))?;
        }
        Ok(())
    }

    /// A folio that was promised is there, and goes back to its pool; a pool grows where there is
    /// a group for it.
    fn asks_for_pool(&mut self) -> Result<(), Wrong> {
        let order = Order::new(self.setup.whole as u8);
        let Some(before) = self.mm.files().pool(order) else { return Ok(()) };
        self.mm.phys().drain();
        let group = GROUP_ORDER.max(order).index();
        let has_group = self.mm.phys().free_by_order()[group..].iter().any(|free| *free > 0);
        // A pool that lacks a folio gets one.
        if before.surplus == 0 && has_group {
            let asked = before.size + 1;
            let now = self.mm.files().resize_pool(order, asked);
            self.mm.files().resize_pool(order, before.size);
            ensure(now.is_some_and(|now| now.size == asked), || {
                format!("a pool of {before:?} is to have {asked} folios: {now:?}")
            })?;
        }
        if before.free == before.promised {
            return Ok(());
        }
        let store = Store::Reserved;
        let id = self.mm.files().open(store, order.pages(), order).map_err(Wrong::unexpected)?;
        let done = self.asks_for_promise(id, order);
        self.mm.files().close(id).map_err(Wrong::unexpected)?;
        done?;
        let now = self.mm.files().pool(order);
        let same =
            now.is_some_and(|now| (now.free, now.promised) == (before.free, before.promised));
        ensure(same, || format!("a pool had {before:?}, and has {now:?}"))
    }

    fn asks_for_promise(&mut self, id: FileId, order: Order) -> Result<(), Wrong> {
        let first = |now: PoolCounts| (now.free, now.promised);
        let counts = |world: &Self| world.mm.files().pool(order).map(first);
        let before = counts(self);
        let all = FilePages::new(0, order.pages());
        self.mm.files().promise(id, all).map_err(Wrong::unexpected)?;
        let start = Vpn::new(self.window().base.get().next_multiple_of(order.pages()));
        let span = PageSpan::new(start, start.add(order.pages()));
        let word = self.beside(span, |world, space| {
            let (backing, flags) = (Backing::File { id, page: 0 }, AreaFlags::SHARED);
            let request = Request { backing, flags, ..Request::anon(order.pages()) };
            world.mm.map(space, &request.at(At::Fixed(start))).map_err(Wrong::unexpected)?;
            let promised = counts(world);
            let word = world.use_page(space, start.add(1), Access::Read)?;
            let there = (promised, counts(world), world.mm.resident(space));
            let due = before.map(|(free, promised)| (free, promised + 1));
            let taken = before.map(|(free, promised)| (free - 1, promised));
            ensure(there == (due, taken, order.pages()), || {
                format!("a promised folio was {there:?}, and {before:?} was before")
            })?;
            Ok(word)
        })?;
        ensure(word == 0, || format!("a new folio of {order} holds {word:#x}"))
    }

    /// All pages are in folios of this order at least.
    fn has_folios(&self, space: &Space<A>, order: Order, by: &str) -> Result<(), Wrong> {
        let mut pages = 0;
        self.mm.spaces().folio_map(space, |map| {
            let large = map.sizes.iter().skip(order.index());
            pages += large.map(|size| size.aligned + size.partial).sum::<u64>();
        });
        ensure(pages == PAGES, || format!("after {by}, {pages} pages are in folios of {order}"))
    }

    /// All pages leave, to slots that are counted, and come back as they were.
    fn asks_for_slots(&mut self, space: &Space<A>, span: PageSpan) -> Result<(), Wrong> {
        let before = self.mm.totals();
        let out = {
            let _operation = self.machine.operation("page out");
            let all = self.all().and(space);
            self.mm.paging().page_out(space, span, Scope::Own, &all).map_err(Wrong::unexpected)?
        };
        let (swapped, left) = (self.mm.paging().swapped(space), self.mm.resident(space));
        let counted = since(&self.mm.totals(), &before, Event::PagesSwapped);
        ensure((swapped, left, out.stay, counted) == (PAGES, 0, 0, PAGES), || {
            format!("{out:?}: {swapped} pages are out, {left} stay, {counted} are counted")
        })?;
        self.write_swap()?;
        self.loads(space, span)?;
        let left = self.mm.paging().swapped(space);
        let counted = since(&self.mm.totals(), &before, Event::PagesSwappedIn);
        ensure((left, counted) == (0, PAGES), || {
            format!("{left} pages are still out when all were read, and {counted} counted as back")
        })
    }

    fn stores(&mut self, space: &Space<A>, span: PageSpan) -> Result<(), Wrong> {
        let pages = span.start.get()..span.end.get();
        pages.map(Vpn::new).try_for_each(|page| self.use_page(space, page, Access::Write).map(drop))
    }

    fn loads(&mut self, space: &Space<A>, span: PageSpan) -> Result<(), Wrong> {
        for page in (span.start.get()..span.end.get()).map(Vpn::new) {
            let word = self.use_page(space, page, Access::Read)?;
            ensure(word == page.get(), || format!("{page} of its own holds {word:#x}"))?;
        }
        Ok(())
    }

    /// Loads the word of a page, or stores its number there.
    fn use_page(&mut self, space: &Space<A>, page: Vpn, access: Access) -> Result<u64, Wrong> {
        let addr = page.addr(A::PAGE_SHIFT);
        for _ in 0..TRIES {
            let done = match access {
                Access::Write => self.cpu().write(addr, page.get()).map(|()| page.get()),
                _ => self.cpu().read(addr),
            };
            if let Ok(word) = done {
                return Ok(word);
            }
            let fault = {
                let _operation = self.machine.operation("fault");
                self.mm.fault(space, page, access)
            };
            match fault {
                Ok(_) => {}
                Err(Stop::Need(Need::Read(reads))) => {
                    self.carry(reads)?.map_err(Wrong::unexpected)?;
                }
                Err(Stop::Need(Need::Wait(file))) => self.wait(file)?,
                Err(Stop::Need(Need::Compact(order))) => self.compact_beside(order, space)?,
                Err(error) => {
                    return Err(Wrong::new(
                        Kind::Progress,
                        format!("{access:?} at {page}: {error}"),
                    ));
                }
            }
        }
        Err(Wrong::new(Kind::Progress, format!("{access:?} at {page} never ends")))
    }

    /// All processes have ended: the largest folio that a device has slots for leaves whole.
    pub(super) fn asks_for_whole_runs(&mut self) -> Result<(), Wrong> {
        // Shared memory outlives processes, and may be out.
        self.truncate(STORES.len() - 1, 0)?;
        let (_, used) = self.slots();
        ensure(used == 0, || format!("{used} slots are used when all processes have ended"))?;
        let most = self.mm.paging().devices().map(|(_, slots, _)| slots).max().unwrap_or(0);
        let slots = Order::fitting(most).unwrap_or_default().min(A::block_order());
        self.mm.phys().drain();
        let blocks = self.mm.phys().free_by_order();
        // One block for the folio, and another for the tables and the pages that it is made of.
        let enough = |order: &Order| blocks[order.index()..].iter().skip(1).any(|many| *many > 0);
        let Some(order) = (1..=slots.get()).rev().map(Order::new).find(enough) else {
            return Ok(());
        };
        let start = Vpn::new(self.window().base.get().next_multiple_of(order.pages()));
        let span = PageSpan::new(start, start.add(order.pages()));
        self.beside(span, |world, space| {
            let request = Request::anon(order.pages()).at(At::Fixed(start));
            world.mm.map(space, &request).map_err(Wrong::unexpected)?;
            world.use_page(space, start, Access::Write)?;
            let done =
                world.mm.reclaim().collapse(space, span, order).map_err(Wrong::unexpected)?;
            ensure(done.made + done.already == 1, || format!("{order} came to {done:?}"))?;
            let before = world.mm.totals();
            let all = [space];
            let out = world.mm.paging().page_out(space, span, Scope::Own, &all[..]);
            let now = world.mm.totals();
            let whole = now.swpout[order.index()] - before.swpout[order.index()];
            ensure(whole == 1, || format!("a folio of {order} did not leave whole: {out:?}"))?;
            world.write_swap().map(drop)
        })
    }
}
