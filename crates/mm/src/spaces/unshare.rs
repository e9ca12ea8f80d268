//! Writes to shared pages; and pins, which need the same.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, OrderSet, PageSpan, Vpn};

use super::Spaces;
use super::outcome::{Resolved, Served};
use crate::base::{Error, Stop};
#[cfg(feature = "files")]
use crate::fault::BlockSource;
use crate::fault::{Claim, Policy, Source, Unshare};
use crate::folio::copy::copy;
#[cfg(feature = "files")]
use crate::folio::copy::copy_pieces;
use crate::space::{Space, View};
use crate::stats::Event;
use crate::table::Touched;

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Makes a COW page exclusive. `None` when a change interfered, or when a leaf was split for
    /// it.
    pub(crate) fn unshare(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        resched: &mut dyn FnMut(),
    ) -> Served {
        match self.keep(view, unshare) {
            Ok(done) => Ok(done),
            Err(source) => self.copy_from(view, unshare, source, resched),
        }
    }

    /// Makes a COW page exclusive, if no other space maps it any more. `None` when a change
    /// interfered.
    ///
    /// # Errors
    /// The folio that must be copied.
    #[inline]
    pub(crate) fn keep(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
    ) -> Result<Option<Resolved>, Source> {
        match unshare.claim(view, &self.base.policy, self.base.whole(unshare.backing())) {
            Claim::Stale => {
                self.wait(view, unshare.page);
                Ok(None)
            }
            Claim::Kept(pages) => {
                self.forget(view, unshare.page, Touched::Now);
                self.base.count(Event::CowReuse, pages.count());
                Ok(Some(Resolved::Unshared { pages, copied: None }))
            }
            Claim::Copy(source) => Err(source),
        }
    }

    /// Copies from a folio, and releases it.
    #[inline(never)]
    pub(crate) fn copy_from(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        source: Source,
        resched: &mut dyn FnMut(),
    ) -> Served {
        let done = self.copy_largest(view, unshare, &source, resched);
        self.base.free(source.release(view));
        done
    }

    /// Copies the largest block around the page that is allowed and free.
    fn copy_largest(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        source: &Source,
        resched: &mut dyn FnMut(),
    ) -> Served {
        if let Some(order) = self.base.whole(unshare.backing()) {
            return self.copy_whole(view, unshare, source, order, resched);
        }
        let allowed = source.orders;
        #[cfg(feature = "files")]
        if unshare.is_of_file() {
            let policy = &self.base.policy;
            let sizes = policy.copies_of_files(unshare.advice(), view.space.opt_out());
            if let Some(done) = self.own_block(view, unshare, source, sizes, resched) {
                return Ok(Some(done));
            }
        }
        let fits = |order: &Order| {
            source.pages.covers(PageSpan::block(unshare.page, *order))
                && self.base.groups.affords(view.space, Policy::room_for_copy(*order))
        };
        for order in allowed.descending(source.leaf).filter(fits) {
            match self.take_one(view.space, order, unshare.advice()) {
                Ok(run) => return self.copy_into(view, unshare, source, run, order, resched),
                Err(_) if order == Order::ZERO => return Err(Error::NoMemory(order).into()),
                Err(cause) => self.fallback(view.space, order, cause),
            }
        }
        // A large leaf, of which only a part is to be copied.
        self.split_leaf(view.space, unshare.page, source.leaf)?;
        Ok(None)
    }

    /// Copies a reserved folio, out of its pool. A folio of which only a part can be replaced, as
    /// another change cut its area, is not copied.
    fn copy_whole(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        source: &Source,
        order: Order,
        resched: &mut dyn FnMut(),
    ) -> Served {
        if !source.pages.covers(PageSpan::block(unshare.page, order)) {
            return Err(Error::Missing(unshare.page).into());
        }
        let run = self.base.take_reserved(order, false)?;
        self.copy_into(view, unshare, source, run, order, resched)
    }

    fn copy_into(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        source: &Source,
        run: FrameRun,
        order: Order,
        resched: &mut dyn FnMut(),
    ) -> Served {
        let pages = PageSpan::block(unshare.page, order);
        let run = run.dirtied();
        let (part, wanted) = (source.part(pages), unshare.page.offset_from(pages.start));
        if let Err(poisoned) =
            copy(self.base.hw, &run, part.frames(), wanted, self.base.pace, resched)
        {
            self.base.free(run);
            return Err(poisoned.into());
        }
        match unshare.replace(view, &[part], source.leaf, pages, run) {
            Ok(last) => {
                self.base.free(last);
                Ok(Some(self.copied(view, pages, order)))
            }
            Err(run) => {
                self.base.free(run);
                self.wait(view, unshare.page);
                Ok(None)
            }
        }
    }

    /// Copies the folio that `page` of a space maps into one of its own, where
    /// [`divide`](Self::divide) cannot split it: other spaces map it as well, or other tables map
    /// other parts. Programs see no change. Exclusive and pinned pages stay where they are.
    ///
    /// # Errors
    /// As for [`fault`](crate::Mm::fault).
    pub fn unshare_page(&self, space: &Space<A>, page: Vpn) -> Result<(), Stop> {
        let pages = PageSpan::new(page, page.add(1));
        Self::mappable(pages)?;
        let mut change = self.base.change(space);
        change.prepare(pages, 0)?;
        change.lend(pages);
        change.count(Event::EntriesChanged);
        drop(change);
        let view = self.base.view(space);
        match Unshare::of(&view, page) {
            Some(unshare) => self.unshare(&view, &unshare, &mut || {}).map(drop),
            None => Err(Error::NoArea(page).into()),
        }
    }

    /// For a write to a private page of a file: copies the largest possible block of the `allowed`
    /// orders around the page, out of several folios of the file, as far as it maps the area's file
    /// (rows B5, C4, E4). `None`, and nothing has changed, where that is no more than `source` has.
    #[cfg(feature = "files")]
    #[inline(never)]
    fn own_block(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        source: &Source,
        allowed: OrderSet,
        resched: &mut dyn FnMut(),
    ) -> Option<Resolved> {
        let mut pieces = BlockSource::new();
        for order in allowed.descending(Order::new(1)) {
            let pages = PageSpan::block(unshare.page, order);
            if source.pages.covers(pages) {
                return None;
            }
            if !pieces.hold(view, unshare, pages) {
                continue;
            }
            let done = self.own_pieces(view, unshare, &pieces, (pages, order), resched);
            pieces.release(view, &mut |run| self.base.free(run));
            if done.is_some() {
                return done;
            }
        }
        None
    }

    /// Copies the pieces found for a block, and replaces them.
    #[cfg(feature = "files")]
    fn own_pieces(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        pieces: &BlockSource,
        (pages, order): (PageSpan, Order),
        resched: &mut dyn FnMut(),
    ) -> Option<Resolved> {
        let run = self.take_one(view.space, order, unshare.advice());
        let run = run.map_err(|cause| self.fallback(view.space, order, cause)).ok()?.dirtied();
        let copied = copy_pieces(self.base.hw, &run, pieces.frames(), self.base.pace, resched);
        // Where memory has failed, a smaller block may still be sound.
        let placed = match copied {
            Ok(()) => pieces.replace(view, unshare, pages, run),
            Err(_) => Err(run),
        };
        match placed {
            Ok(()) => Some(self.copied(view, pages, order)),
            Err(run) => {
                self.base.free(run);
                None
            }
        }
    }
}
