//! Faults, and populating ahead of them.

use quire_arch::{Arch, Entry, Level};
use quire_hw::{FrameRun, Hardware};
use quire_units::{Access, Order, PageSpan, Pfn, Prot, Vpn};

use super::Spaces;
use super::outcome::{Fault, Lack, Populated, Resolved, Served};
use crate::base::{Error, Need, Stop};
use crate::fault::plan::Reach;
use crate::fault::{
    Cause, Decision, MarkedPage, Near, Plan, Refusal, Stale, Unshare, decide, near,
};
use crate::limits::{FAULT_TRIES, POPULATE_ORDER};
use crate::space::{Seq, Space, View};
use crate::stats::Event;
use crate::sync::spin_loop;
use crate::table::{MarkKind, Place};

/// Brings what the service lacks for a fault; `None` where the fault must be decided anew. One
/// instance of the decision serves all callers, so this is no type parameter.
type Serve<'a, A, H> = dyn Fn(&View<'_, A, H>, Lack, &mut Fault<'_>) -> Served + 'a;

/// An attempt at a fault, or what is left to do, which needs more stack.
enum Attempt {
    /// It was made.
    Made(Served),
    /// To make a page exclusive that others may map, too.
    Unshare(Unshare),
    /// To carry out a rarer decision.
    Other(Decision),
}

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Maps every page of `span` that is not mapped; `serve` brings pages that this service lacks.
    pub(crate) fn populate(
        &self,
        space: &Space<A>,
        span: PageSpan,
        access: Access,
        resched: &mut dyn FnMut(),
        serve: &Serve<'_, A, H>,
    ) -> Result<Populated, Stop> {
        if !span.is_empty() {
            Self::mappable(span)?;
        }
        let mut fault = Fault { access, reach: Reach::Upto(span.end), resched };
        let mut done = Populated::default();
        let mut at = span.start;
        while at < span.end {
            at = match self.base.view(space).ready_until(at, span.end, access) {
                Some(end) => end,
                None => match self.resolve(space, at, &mut fault, serve)? {
                    Resolved::Mapped(installed) => {
                        done.pages += installed.pages.count();
                        done.folios += installed.pages.count() >> installed.order.get();
                        installed.pages.end
                    }
                    #[cfg(feature = "files")]
                    Resolved::Paged { pages, .. } => {
                        done.pages += pages.count();
                        pages.end.max(at)
                    }
                    Resolved::Unshared { pages, .. } => pages.end.max(at),
                    Resolved::Noted => at.add(1),
                    Resolved::Again => at,
                },
            };
        }
        Ok(done)
    }

    /// Decides a fault and carries it out, step by step; `serve` brings pages that this service
    /// lacks, and returns `None` where the fault must be decided anew.
    pub(crate) fn resolve(
        &self,
        space: &Space<A>,
        page: Vpn,
        fault: &mut Fault<'_>,
        serve: &Serve<'_, A, H>,
    ) -> Result<Resolved, Stop> {
        if let Err(over) = self.base.groups.charge(space, 1) {
            return self.resolve_there(space, page, fault).ok_or(over.into());
        }
        let mut first = self.near(space, page, fault);
        if let Some(Attempt::Made(Ok(Some(done)))) = first {
            return Ok(done);
        }
        self.resolve_from(space, page, fault, serve, &mut first)
    }

    /// Resolves a fault on a page that is mapped, for which a group needs no room: a CPU may not
    /// know the leaf yet, and if room were made for it, that could take the page away again.
    #[cold]
    #[inline(never)]
    fn resolve_there(&self, space: &Space<A>, page: Vpn, fault: &Fault<'_>) -> Option<Resolved> {
        let view = &self.base.view(space);
        match decide(view, &self.base.policy, page, fault.access, fault.reach) {
            Decision::Touch(prot, seq) => self.touch(view, page, fault.access, prot, seq),
            _ => None,
        }
    }

    /// Resolves a fault of which `next` is left, or which must be decided. The attempts stay in
    /// their one place, and this is a part of its caller: a second copy, or a frame more, would
    /// deepen the stack of all that is called from here.
    #[inline(always)]
    fn resolve_from(
        &self,
        space: &Space<A>,
        page: Vpn,
        fault: &mut Fault<'_>,
        serve: &Serve<'_, A, H>,
        next: &mut Option<Attempt>,
    ) -> Result<Resolved, Stop> {
        let view = &self.base.view(space);
        let mut taken = None;
        let mut result = Ok(Resolved::Again);
        for _ in 0..FAULT_TRIES {
            let attempt = next.get_or_insert_with(|| self.attempt(view, page, fault, &mut taken));
            let step = match attempt {
                Attempt::Made(step) => core::mem::replace(step, Ok(None)),
                Attempt::Unshare(unshare) => self.unshare(view, unshare, fault.resched),
                Attempt::Other(decision) => self.advance(view, page, decision, fault, serve),
            };
            if let Some(ended) = step.transpose() {
                result = ended;
                break;
            }
            *next = None;
        }
        self.base.free(taken.map(|(run, _)| run));
        result
    }

    /// Carries out a fault near the last one of this CPU. `None` where it must be decided from the
    /// root of the tables on.
    // A part of the code that others of its kind also go through, with the level known: most
    // faults end here.
    #[inline(never)]
    fn near(&self, space: &Space<A>, page: Vpn, fault: &mut Fault<'_>) -> Option<Attempt> {
        let view = &self.base.view(space);
        let plan = match near(view, &self.base.policy, page, fault.access, fault.reach)? {
            Near::Fill(plan) => plan,
            Near::Unshare(unshare) => return Some(Attempt::Unshare(unshare)),
        };
        let (run, order) = match plan.choice.largest() {
            Order::ZERO => (self.take_one(view.space, Order::ZERO, plan.advice).ok()?, Order::ZERO),
            _ => match self.take_for(view, &plan, true) {
                Ok(taken) => taken,
                Err(stop) => return Some(Attempt::Made(Err(stop))),
            },
        };
        let start = plan.start(order);
        self.base.clear(&run, plan.page.get() - start.get(), fault.resched);
        let place = Place { level: Level::LAST, ..plan.place };
        match plan.install_in(view, place, run, order) {
            Ok(installed) => {
                self.base.groups.draw(view.space, installed.pages.count());
                self.tally(view.space, &plan.choice, &installed);
                Some(Attempt::Made(Ok(Some(Resolved::Mapped(installed)))))
            }
            Err(Stale(run)) => {
                self.base.free(run);
                self.base.count(Event::Stale, 1);
                None
            }
        }
    }

    /// Decides a fault, and carries the most common decision out: to fill an empty place. The rest
    /// needs more stack, and that of this call is free again by then.
    #[inline(never)]
    fn attempt(
        &self,
        view: &View<'_, A, H>,
        page: Vpn,
        fault: &mut Fault<'_>,
        taken: &mut Option<(FrameRun, Order)>,
    ) -> Attempt {
        Attempt::Made(match decide(view, &self.base.policy, page, fault.access, fault.reach) {
            Decision::Fill(plan) => self.fill(view, &plan, taken, fault.resched),
            Decision::Unshare(unshare) => return Attempt::Unshare(unshare),
            Decision::Below(place, seq) => {
                self.deepen(view, place, page, Some(seq)).map(|()| None).map_err(Stop::from)
            }
            Decision::Touch(prot, seq) => Ok(self.touch(view, page, fault.access, prot, seq)),
            other => return Attempt::Other(other),
        })
    }

    /// Carries out a rarer decision.
    #[inline(never)]
    fn advance(
        &self,
        view: &View<'_, A, H>,
        page: Vpn,
        decision: &Decision,
        fault: &mut Fault<'_>,
        serve: &Serve<'_, A, H>,
    ) -> Served {
        match *decision {
            Decision::Marked(marked) => {
                if marked.is_shielded() {
                    return self.fill_shielded(view.space, &marked, fault.access);
                }
                return match unmapped(&marked) {
                    Some(error) => Err(error.into()),
                    None => serve(view, Lack::Swap(marked), fault),
                };
            }
            Decision::File(page) => return serve(view, Lack::File(page), fault),
            Decision::Unshield => self.unshield_page(view.space, page)?,
            Decision::Watched(event) => return Err(Need::Watcher(event).into()),
            Decision::Grow(area) => self.grow(view.space, area, page)?,
            Decision::Refuse(why) => return Err(refused(why, page, fault.access).into()),
            // `attempt` has carried them out.
            Decision::Fill(_)
            | Decision::Unshare(_)
            | Decision::Below(..)
            | Decision::Touch(..) => {}
        }
        Ok(None)
    }

    /// Notes an access to a leaf that is present.
    #[inline(never)]
    fn touch(
        &self,
        view: &View<'_, A, H>,
        page: Vpn,
        access: Access,
        prot: Prot,
        seq: Seq,
    ) -> Option<Resolved> {
        let current = || is_still(view, page, Some(seq));
        let touched = view.tables().touch(page, access, prot, current);
        self.base.count(Event::Spurious, touched.is_some().into());
        self.noted(view, page, touched)
    }

    /// Allocates frames for `plan`, clears them, maps them. `None` when the plan went stale: the
    /// frames stay in `taken` for the next.
    fn fill(
        &self,
        view: &View<'_, A, H>,
        plan: &Plan,
        taken: &mut Option<(FrameRun, Order)>,
        resched: &mut dyn FnMut(),
    ) -> Served {
        let fits = |order: Order, run: &FrameRun| {
            plan.choice.orders.contains(order)
                && plan.start(order).add(run.count()) <= plan.wanted.end
        };
        let (run, order) = match taken.take() {
            Some((run, order)) if fits(order, &run) => (run, order),
            stale => {
                self.base.free(stale.map(|(run, _)| run));
                // Populating takes what there is: it wants many folios.
                let asks = plan.wanted.count() <= plan.choice.largest().pages();
                let (run, order) = self.take_for(view, plan, asks)?;
                let start = plan.start(order);
                self.base.clear(&run, plan.page.get().saturating_sub(start.get()), resched);
                (run, order)
            }
        };
        self.install(view, plan, run, order, taken)
    }

    /// Maps `run`, which has the plan's content. `None` when the plan went stale: the frames are in
    /// `taken` then.
    #[inline(never)]
    pub(super) fn install(
        &self,
        view: &View<'_, A, H>,
        plan: &Plan,
        run: FrameRun,
        order: Order,
        taken: &mut Option<(FrameRun, Order)>,
    ) -> Served {
        if !plan.is_at(A::leaf_level(order))
            && let Err(error) = self.deepen_to(view, plan.start(order), order, Some(plan.seq))
        {
            self.base.free(run);
            return Err(error.into());
        }
        match plan.install(view, run, order) {
            Ok(installed) => {
                self.base.groups.draw(view.space, installed.pages.count());
                self.tally(view.space, &plan.choice, &installed);
                Ok(Some(Resolved::Mapped(installed)))
            }
            Err(Stale(run)) => {
                self.base.count(Event::Stale, 1);
                while view.space.areas.is_held(plan.wanted) {
                    spin_loop();
                }
                *taken = Some((run, order));
                Ok(None)
            }
        }
    }

    /// The largest wanted run that is free, and the order of its folios. With `asks` the embedder
    /// may be asked to make room for a larger one.
    #[inline(never)]
    pub(super) fn take_for(
        &self,
        view: &View<'_, A, H>,
        plan: &Plan,
        asks: bool,
    ) -> Result<(FrameRun, Order), Stop> {
        let mut order = plan.choice.largest();
        loop {
            // A fault wants one folio, even if it must be a smaller one.
            if plan.wanted.count() > plan.choice.largest().pages()
                && let Some(run) = self.take_several(view.space, plan, order)
            {
                return Ok((run, order));
            }
            match self.take_one(view.space, order, plan.advice) {
                Ok(run) => return Ok((run, order)),
                Err(cause) => order = self.smaller(view.space, plan, (order, cause), asks)?,
            }
        }
    }

    /// The next smaller order, unless the embedder should make room for the one that `lacks`.
    #[cold]
    fn smaller(
        &self,
        space: &Space<A>,
        plan: &Plan,
        lacks: (Order, Cause),
        asks: bool,
    ) -> Result<Order, Stop> {
        let (order, cause) = lacks;
        #[cfg(feature = "reclaim")]
        if asks
            && cause == Cause::Memory
            && self.base.is_in_pieces(order)
            && self.base.demand.asks(&self.base.policy, order, plan.advice)
        {
            return Err(Need::Compact(order).into());
        }
        let below = plan.choice.below(order).ok_or(Error::NoMemory(order))?;
        self.fallback(space, order, cause);
        Ok(below)
    }

    /// Several folios of `order` at once, side by side, where the plan wants more than one: one
    /// block that is aligned as its pages are, so that it can be cleared and mapped as one run.
    #[inline(never)]
    fn take_several(&self, space: &Space<A>, plan: &Plan, order: Order) -> Option<FrameRun> {
        let start = plan.start(order);
        let aligned = start.get().trailing_zeros() as u8;
        let fitting = Order::fitting(plan.wanted.end.offset_from(start))?;
        let most = fitting.min(Order::new(aligned.min(63))).min(POPULATE_ORDER);
        let larger = (order.get() + 1..=most.get()).rev().map(Order::new);
        let mut larger = larger.filter(|block| self.base.groups.affords(space, *block));
        larger.find_map(|block| self.base.frames(block, false).ok())
    }

    /// Makes the missing tables for folios of `order` at `page`: a smaller folio than planned may
    /// need lower ones. If the areas no longer match `seq`, some may still be missing; the caller's
    /// install will fail as well.
    pub(crate) fn deepen_to(
        &self,
        view: &View<'_, A, H>,
        page: Vpn,
        order: Order,
        seq: Option<Seq>,
    ) -> Result<(), Error> {
        let level = A::leaf_level(order);
        loop {
            let place = view.tables().walk(page, level);
            if place.level == level || !is_still(view, page, seq) {
                return Ok(());
            }
            match A::decode(place.word, place.level) {
                Entry::Absent => self.deepen(view, place, page, seq)?,
                Entry::Marker(payload) if MarkKind::of(payload) == Some(MarkKind::Watched) => {
                    self.part_marker(view.space, PageSpan::block(page, A::order(level)))?;
                }
                _ => return Ok(()),
            }
        }
    }

    /// Makes the lower table that is missing at `place`, unless the areas have changed.
    pub(super) fn deepen(
        &self,
        view: &View<'_, A, H>,
        place: Place,
        page: Vpn,
        seq: Option<Seq>,
    ) -> Result<(), Error> {
        let run = self.base.table_frame()?;
        match view.tables().link_if(place, page, run, || is_still(view, page, seq)) {
            Ok(()) => self.base.count(Event::TableMade, 1),
            Err(run) => {
                self.base.free(run);
                self.wait(view, page);
            }
        }
        Ok(())
    }
}

/// Whether the areas still match `seq`, and no CPU is about to change them around `page`.
fn is_still<A: Arch, H: Hardware>(view: &View<'_, A, H>, page: Vpn, seq: Option<Seq>) -> bool {
    let one = PageSpan::block(page, Order::ZERO);
    seq.is_none_or(|seq| view.space.areas.is_current(seq, one))
}

fn refused(why: Refusal, page: Vpn, access: Access) -> Error {
    match why {
        Refusal::NoArea => Error::NoArea(page),
        Refusal::Denied(prot) => Error::Denied(page, access, prot),
        Refusal::Missing => Error::Missing(page),
    }
}

/// The error of an access to a marked page, unless it is on a swap device.
fn unmapped(marked: &MarkedPage) -> Option<Error> {
    match MarkKind::of(marked.payload) {
        Some(MarkKind::Guard) => Some(Error::Guarded(marked.page)),
        Some(MarkKind::Poison) => Some(Error::Poisoned(Pfn::new(MarkKind::rest(marked.payload)))),
        Some(MarkKind::Swap | MarkKind::Watched) | None => None,
    }
}
