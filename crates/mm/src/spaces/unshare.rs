//! Writes to shared pages; and pins, which need the same.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, OrderSet, PageSpan, Vpn};

use super::Spaces;
use super::outcome::{Resolved, Served};
use crate::base::{Error, Stop};
use crate::fault::{BlockSource, Cause, Claim, Part, Policy, Source, Unshare};
use crate::folio::copy::{copy, copy_pieces};
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
    // Not inlined: its stack is free again where a folio is copied.
    #[inline(never)]
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
                return done;
            }
        }
        if let Some(done) = self.own_ahead(view, unshare, source, resched) {
            return done;
        }
        let fits = |order: &Order| {
            source.pages.covers(PageSpan::block(unshare.page, *order))
                && self.base.groups.affords(view.space, Policy::room_for_copy(*order))
        };
        for order in allowed.descending(source.leaf).filter(fits) {
            match self.take_copy(view, order, unshare) {
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
        let parts = [source.part(pages)];
        self.copy_parts(view, unshare, (&parts, source.leaf), (pages, order), run, resched)
    }

    /// Copies `parts`, which `pages` map by leaves of order `leaf`, into `run`, and maps it there
    /// as folios of order `each`. `None` when a change interfered.
    #[inline(never)]
    fn copy_parts(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        (parts, leaf): (&[Part], Order),
        (pages, each): (PageSpan, Order),
        run: FrameRun,
        resched: &mut dyn FnMut(),
    ) -> Served {
        let (hw, pace) = (self.base.hw, self.base.pace);
        let (run, wanted) = (run.dirtied(), unshare.page.offset_from(pages.start));
        let copied = match parts {
            [part] => copy(hw, &run, part.frames(), wanted, pace, resched),
            _ => copy_pieces(hw, &run, parts.iter().map(|part| part.frames()), pace, resched),
        };
        let (done, freed) = match copied {
            Err(poisoned) => (Err(poisoned.into()), Some(run)),
            Ok(()) => match unshare.replace(view, parts, leaf, (pages, each), run) {
                Ok(last) => (Ok(Some(self.copied(view, pages, each))), last),
                Err(run) => (Ok(None), Some(run)),
            },
        };
        self.base.free(freed);
        if matches!(done, Ok(None)) {
            self.wait(view, unshare.page);
        }
        done
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
    ) -> Option<Served> {
        for order in allowed.descending(Order::new(1)) {
            let pages = PageSpan::block(unshare.page, order);
            if source.pages.covers(pages) {
                return None;
            }
            let done = self.own_pieces(view, unshare, (pages.start, order), order, resched);
            if done.is_some() {
                return done;
            }
        }
        None
    }

    /// For a program that writes page after page: copies the next pages as well, each into a folio
    /// of its own, as many as the exclusive leaves before the page tell, and at most
    /// [`Policy::copy_most`]. A page that was copied ahead counts as written, though it may not be:
    /// that limit alone bounds the pages that one write copies in vain. `None`, and nothing has
    /// changed, where the program does not write so, larger folios are wanted, or the next pages
    /// are not shared.
    fn own_ahead(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        source: &Source,
        resched: &mut dyn FnMut(),
    ) -> Option<Served> {
        if !unshare.is_plain() {
            return None;
        }
        let start = unshare.page;
        let affords =
            |order: &Order| self.base.groups.affords(view.space, Policy::room_for_copy(*order));
        OrderSet::up_to(source.ahead)
            .descending(Order::new(1))
            .filter(affords)
            .find_map(|order| self.own_pieces(view, unshare, (start, order), Order::ZERO, resched))
    }

    /// Copies as many pages from `start` on as `order` has, out of all folios that are mapped
    /// there, into folios of order `each`: one, or one for each page. `None`, and nothing has
    /// changed, where not all of them can be copied.
    fn own_pieces(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        (start, order): (Vpn, Order),
        each: Order,
        resched: &mut dyn FnMut(),
    ) -> Option<Served> {
        // Frames are taken first: the pieces below take as much stack as an allocation does.
        match self.take_copy(view, order, unshare) {
            Ok(run) => {
                let pages = PageSpan::new(start, start.add(order.pages()));
                self.own_held(view, unshare, (pages, each), run, resched)
            }
            Err(cause) => {
                // Else no block was wanted but pages, which are still to come.
                if cfg!(feature = "files") && each > Order::ZERO {
                    self.fallback(view.space, order, cause);
                }
                None
            }
        }
    }

    #[inline(never)]
    fn own_held(
        &self,
        view: &View<'_, A, H>,
        unshare: &Unshare,
        (pages, each): (PageSpan, Order),
        run: FrameRun,
        resched: &mut dyn FnMut(),
    ) -> Option<Served> {
        let mut pieces = BlockSource::new();
        let done = if pieces.hold(view, unshare, pages, each > Order::ZERO) {
            let from = (pieces.parts(), Order::ZERO);
            let done = self.copy_parts(view, unshare, from, (pages, each), run, resched);
            // Where memory has failed, a smaller block may still be sound.
            Some(done).filter(Result::is_ok)
        } else {
            self.base.free(run);
            None
        };
        pieces.release(view, &mut |run| self.base.free(run));
        done
    }

    /// Takes a block for a copy.
    #[inline(never)]
    fn take_copy(
        &self,
        view: &View<'_, A, H>,
        order: Order,
        unshare: &Unshare,
    ) -> Result<FrameRun, Cause> {
        self.take_one(view.space, order, unshare.advice())
    }
}
