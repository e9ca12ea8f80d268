//! Steps that all kinds of faults share: a block of frames, the counts, and what this CPU or
//! another change still has to do.

use quire_arch::Arch;
use quire_hw::{Flush, FrameRun, Hardware, Pieces};
use quire_units::{CpuSet, Order, PageSpan, Vpn};

use super::Spaces;
use super::outcome::Resolved;
use crate::fault::{Cause, Choice, Installed};
use crate::space::{Advice, Space, View};
use crate::stats::{Event, FolioEvent};
use crate::sync::spin_loop;
use crate::table::Touched;

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// A block of `order` for a fault in an area with `advice`, as far as the space's group has
    /// room for it. A caller that takes a smaller one instead counts that.
    #[inline(always)]
    pub(crate) fn take_one(
        &self,
        space: &Space<A>,
        order: Order,
        advice: Advice,
    ) -> Result<FrameRun, Cause> {
        if !self.base.groups.affords(space, order) {
            return Err(Cause::Charge);
        }
        let hard = order == Order::ZERO || self.base.policy.tries_hard(advice);
        self.base.frames(order, hard).map_err(|_| Cause::Memory)
    }

    /// Flushes this CPU's translation of `page`, whose leaf grants more now, or granted it before.
    #[inline(never)]
    pub(crate) fn forget(&self, view: &View<'_, A, H>, page: Vpn, touched: Touched) {
        let own = CpuSet::new();
        own.insert(self.base.hw.cpu());
        self.base.hw.flush(&Flush {
            asid: view.space.asid(),
            root: view.space.root(),
            pages: Some(Pieces::page(page)),
            tables: touched == Touched::Before,
            cpus: &own,
        });
    }

    /// Counts the size of a fault's folio, and the reasons against larger ones.
    #[inline(always)]
    pub(crate) fn tally(&self, space: &Space<A>, choice: &Choice, installed: &Installed) {
        let cpu = self.base.hw.cpu().index();
        let order = installed.order;
        let folios = installed.pages.count() >> order.get();
        if let Some(own) = self.base.counters.get(cpu) {
            own.add_folios(FolioEvent::Alloc, order, folios);
            own.add(Event::EntriesMade, installed.entries);
            if let Some(order) = choice.policy {
                own.fallback(order, Cause::Policy as usize);
            }
        }
        space.counters.alloc(cpu, order, folios);
        if !(choice.geometry | choice.occupied).is_empty() {
            self.fallbacks(space, choice);
        }
    }

    #[inline(never)]
    fn fallbacks(&self, space: &Space<A>, choice: &Choice) {
        for order in (choice.geometry | choice.occupied).descending(Order::ZERO) {
            let fits = !choice.geometry.contains(order);
            self.fallback(space, order, if fits { Cause::Occupied } else { Cause::Geometry });
        }
    }

    #[inline(never)]
    pub(crate) fn fallback(&self, space: &Space<A>, order: Order, cause: Cause) {
        let cpu = self.base.hw.cpu().index();
        if let Some(own) = self.base.counters.get(cpu) {
            own.fallback(order, cause as usize);
        }
        space.counters.fallback(cpu, order);
    }

    /// Counts a copy of `pages` into folios of `order`.
    pub(crate) fn copied(&self, view: &View<'_, A, H>, pages: PageSpan, order: Order) -> Resolved {
        self.base.groups.draw(view.space, pages.count());
        self.base.count(Event::CowCopy, pages.count());
        self.base.count_folios(FolioEvent::Copy, order, pages.count() >> order.get());
        Resolved::Unshared { pages, copied: Some(order) }
    }

    /// Waits for the end of a change under way at `page`.
    #[cold]
    pub(crate) fn wait(&self, view: &View<'_, A, H>, page: Vpn) {
        self.base.count(Event::Stale, 1);
        while view.space.areas.is_held(PageSpan::new(page, page.add(1))) {
            spin_loop();
        }
    }

    /// Ends a fault that found a leaf, if the access is noted in it by now. The leaf only ever
    /// grants more by that, so other CPUs need no flush; this CPU's TLB may still hold the entry
    /// that made it fault.
    pub(crate) fn noted(
        &self,
        view: &View<'_, A, H>,
        page: Vpn,
        touched: Option<Touched>,
    ) -> Option<Resolved> {
        let Some(touched) = touched else {
            self.wait(view, page);
            return None;
        };
        self.forget(view, page, touched);
        Some(Resolved::Noted)
    }
}
