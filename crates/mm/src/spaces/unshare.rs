//! Writes to shared pages; and pins, which need the same.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, PageSpan, Vpn};

use super::Spaces;
use super::outcome::Resolved;
use crate::base::Error;
use crate::fault::{Cause, Claim, Source, Unshare};
use crate::folio::copy::copy;
use crate::space::View;
use crate::stats::Event;
use crate::table::Gather;

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Makes a COW page exclusive. `None` when a change interfered, or when a leaf was split for
    /// it.
    pub(crate) fn unshare(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        resched: &mut dyn FnMut(),
    ) -> Result<Option<Resolved>, Error> {
        match unshare.claim(view, self.base().policy.copy_most()) {
            Claim::Stale => {
                self.wait(view, unshare.page);
                Ok(None)
            }
            Claim::Kept(pages) => {
                self.forget(view, unshare.page);
                self.base().count(Event::CowReuse, pages.count());
                Ok(Some(Resolved::Unshared { pages, copied: None }))
            }
            Claim::Copy(source) => {
                let done = self.copy_from(view, unshare, &source, resched);
                self.base().free(source.release(view));
                done
            }
        }
    }

    /// Copies the largest block around the page that is allowed and free.
    fn copy_from(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        source: &Source,
        resched: &mut dyn FnMut(),
    ) -> Result<Option<Resolved>, Error> {
        let wanted = self.base().policy.candidates(unshare.advice(), view.space.opt_out()) | 1;
        let allowed = wanted & ((2 << self.base().policy.copy_most().get()) - 1);
        #[cfg(feature = "files")]
        if let Some(done) = self.own_block(view, unshare, source, allowed, resched) {
            return Ok(Some(done));
        }
        let fits = |order: &Order| source.pages.covers(PageSpan::block(unshare.page, *order));
        let orders = (source.leaf.get()..=allowed.ilog2() as u8).rev().map(Order::new);
        for order in orders.filter(|order| allowed >> order.get() & 1 != 0).filter(fits) {
            if !self.base().groups.affords(view.space, order) {
                self.fallback(view.space, order, Cause::Charge);
                continue;
            }
            let hard = order == Order::ZERO || self.base().policy.tries_hard(unshare.advice());
            match self.base().frames(order, hard) {
                Ok(run) => {
                    return self.copy_into(view, unshare, source, (run, order), resched);
                }
                Err(error) if order == Order::ZERO => return Err(error),
                Err(_) => self.fallback(view.space, order, Cause::Memory),
            }
        }
        // A large leaf, of which only a part is to be copied.
        self.split_around(view, unshare.page, source.leaf)
    }

    fn copy_into(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        source: &Source,
        (run, order): (FrameRun, Order),
        resched: &mut dyn FnMut(),
    ) -> Result<Option<Resolved>, Error> {
        let pages = PageSpan::block(unshare.page, order);
        let run = run.dirtied();
        let (from, wanted) = (source.frames(pages), unshare.page.offset_from(pages.start));
        if let Err(poisoned) = copy(self.base().hw, &run, from, wanted, self.base().pace, resched) {
            self.base().free(run);
            return Err(poisoned.into());
        }
        match unshare.replace(view, source, pages, run) {
            Ok(last) => {
                self.base().free(last);
                Ok(Some(self.copied(view, pages, order)))
            }
            Err(run) => {
                self.base().free(run);
                self.wait(view, unshare.page);
                Ok(None)
            }
        }
    }

    /// Splits the leaf of order `leaf` that maps `page` into smaller ones.
    fn split_around(
        &self,
        view: &View<'_, A, H>,
        page: Vpn,
        leaf: Order,
    ) -> Result<Option<Resolved>, Error> {
        let mut spare = Some(self.base().table_frame()?);
        let mut gather = Gather::new();
        let block = PageSpan::block(page, leaf);
        // One boundary within the leaf is enough: a split there splits all of it.
        let inside = block.start.add(1);
        let split = view.tables().isolate(inside, &mut spare, &mut gather);
        self.base().free(spare);
        self.base().settle(view.space, &mut gather);
        // Where the split needs a table of the next level as well, the next try brings it.
        let splits = split.map_or(1, |(splits, _)| splits);
        self.base().count(Event::LeafSplit, splits);
        Ok(None)
    }
}
