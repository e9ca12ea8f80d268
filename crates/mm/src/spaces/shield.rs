//! Write-protection for watchers (row D8; Linux: `UFFDIO_WRITEPROTECT`).
//!
//! ```text
//!   write_protect(span, Present) ──► leaves and swap entries wait for the watcher, by runs
//!   write ──► fault ──► Need::Watcher(page, WRITE)        the embedder tells the watcher
//!                              │
//!   again ◄── writable ◄── write_protect(span, Off)
//! ```
//!
//! A protected page is [COW](quire_arch::Attrs::COW) with a mark: all that keeps a program from
//! writing a shared page keeps it from writing this one. Contiguous blocks and large leaves stay
//! whole until one of their pages is released.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{Access, Order, PageSpan, Prot, Vpn};

use super::Spaces;
use super::outcome::{Answered, Served, Shield};
use crate::base::{Change, Error, Need, Stop};
use crate::fault::MarkedPage;
use crate::space::{Advice, Area, AreaFlags, Backing, Space, WatchFor};
use crate::stats::Event;
#[cfg(feature = "swap")]
use crate::swap::SwapEntry;
use crate::table::{Marks, Seen, WATCHED, unwritten};

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Protects the pages of `span` from writes, or ends that: a program's write to a protected
    /// page returns [`Need::Watcher`] with [`WatchFor::WRITE`], or ends the page's protection
    /// where the area has [`WatchFor::ASYNC`]. All of the span must be watched for
    /// [`WatchFor::WRITE`]. When this returns, no CPU can write a protected page. Protection stays
    /// through changed rights, paging out and migration; it ends with the page's content, the
    /// watch, and a move; children do not inherit it; but [`WatchFor::MOVED`] and
    /// [`WatchFor::FORKED`] keep it. It costs one step for each run of pages. In areas of files,
    /// [`Shield::Present`] is [`Shield::All`].
    ///
    /// # Errors
    /// [`Error::NoArea`] with the first page that is not watched so; [`Error::Invalid`] for pages
    /// that programs may not map, and where the span ends within a reserved folio;
    /// [`Error::NoMemory`] when a large leaf must be split, or a table for markers is missing, and
    /// there is no frame for that. Nothing has changed then.
    pub fn write_protect(
        &self,
        space: &Space<A>,
        span: PageSpan,
        shield: Shield,
    ) -> Result<(), Error> {
        Self::mappable(span)?;
        let mut change = self.base.change(space);
        self.cuts_no_folio(space, span)?;
        Self::agree(self.areas(space, span), span, |area| {
            match area.flags.contains(AreaFlags::WATCH_WRITE) {
                true => Ok(()),
                false => Err(Error::NoArea(area.span.start)),
            }
        })?;
        change.prepare(span, 0)?;
        if shield != Shield::Off {
            change.complete(|section| section.ready_to_guard(span))?;
        }
        for area in self.areas(space, span) {
            let part = area.span.intersect(span);
            let absent: Option<fn(Vpn) -> Marks> = match (shield, area.backing) {
                (Shield::Off, _) => {
                    change.unshield(part, area.prot, unwatched);
                    continue;
                }
                (Shield::Present, Backing::Anon) => None,
                (Shield::All, Backing::Anon) => Some(|page| Marks::watched(page, false)),
                // Other spaces may give the file the page.
                _ => Some(|page| Marks::watched(page, true)),
            };
            change.shield(part, absent, watched);
        }
        change.count(Event::EntriesChanged);
        Ok(())
    }

    /// Makes absent pages of a watched span fail, up to one that is there; makes missing tables.
    pub(super) fn poison(&self, space: &Space<A>, span: PageSpan) -> Answered {
        let mut at = span.start;
        let end = Self::mappable(span).and_then(|()| {
            let mut change = self.base.change(space);
            self.cuts_no_folio(space, span)?;
            let watched = |area: Area| match area.flags.intersects(AreaFlags::WATCH) {
                true => Ok(()),
                false => Err(Error::NoArea(area.span.start)),
            };
            Self::agree(self.areas(space, span), span, watched)?;
            change.prepare(span, 0)?;
            change.unmark_watched(span);
            let free = self.tables(space).look(span).map_or(span.end, |seen| seen.pages.start);
            change.complete(|section| section.poison(&mut at, free))?;
            if free < span.end { Err(Error::Present(free)) } else { Ok(()) }
        });
        Answered { pages: at.offset_from(span.start), end: end.map_err(Stop::from) }
    }

    /// Ends the protection of a page that a program writes. A change needs much stack: this is no
    /// part of its caller.
    #[cold]
    #[inline(never)]
    pub(super) fn unshield_page(&self, space: &Space<A>, page: Vpn) -> Result<(), Error> {
        self.write_protect(space, self.shielded_with(space, page), Shield::Off)
    }

    /// Ends the protection of `span`, to which pages with the rights `prot` have moved.
    pub(super) fn unshield_moved(change: &mut Change<'_, A, H>, span: PageSpan, prot: Prot) {
        change.unshield(span, prot, unwatched);
    }

    /// Ends the protection of `spans`, which no area's watcher answers any more. No leaf reaches
    /// across an end of them.
    pub(super) fn unshield_all(&self, space: &Space<A>, spans: impl Iterator<Item = PageSpan>) {
        let mut change = self.base.change(space);
        for span in spans {
            for area in self.areas(space, span) {
                change.unshield(area.span.intersect(span), area.prot, unwatched);
            }
        }
        change.count(Event::EntriesChanged);
    }

    /// Makes pages that only markers protect absent: their watcher fills them.
    pub(super) fn unmark(&self, space: &Space<A>, pages: PageSpan) -> Result<(), Error> {
        let mut change = self.base.change(space);
        change.prepare(pages, 0)?;
        change.unmark_watched(pages);
        Ok(())
    }

    /// Fills an absent page that is protected, with a folio of zeroes that is protected as well:
    /// the largest that is wanted and has such pages alone.
    #[cold]
    #[inline(never)]
    pub(super) fn fill_shielded(
        &self,
        space: &Space<A>,
        marked: &MarkedPage,
        access: Access,
    ) -> Served {
        if let Some(event) = marked.area.watched(marked.page, WatchFor::MISSING, access) {
            return Err(Need::Watcher(event).into());
        }
        let advice = Advice::of(marked.area.flags);
        let sizes = self.base.policy.candidates(advice, space.opt_out());
        let below = Order::new(A::block_order().get().saturating_sub(1));
        let smaller = sizes.descending(Order::new(1)).filter(|order| *order <= below);
        for order in smaller.chain([Order::ZERO]) {
            if self.fill_block(space, marked, order)? {
                break;
            }
        }
        Ok(None)
    }

    /// Divides a marker that stands for more than `block`. A change needs much stack: this is no
    /// part of its caller.
    #[cold]
    #[inline(never)]
    pub(super) fn part_marker(&self, space: &Space<A>, block: PageSpan) -> Result<(), Error> {
        self.base.change(space).prepare(block, 0)
    }

    /// The pages whose protection is one: those of a reserved folio, or `page` alone.
    fn shielded_with(&self, space: &Space<A>, page: Vpn) -> PageSpan {
        let area = self.areas(space, PageSpan::block(page, Order::ZERO)).next();
        let whole = area.and_then(|area| self.base.whole(area.backing));
        PageSpan::block(page, whole.unwrap_or_default())
    }

    /// The same with a folio of this order. False where it does not fit, or is not to be had.
    #[inline(never)]
    fn fill_block(
        &self,
        space: &Space<A>,
        marked: &MarkedPage,
        order: Order,
    ) -> Result<bool, Error> {
        let block = PageSpan::block(marked.page, order);
        let tables = self.tables(space);
        let fits = || {
            let pieces = tables.pieces(block).filter(Seen::is_shielded);
            let area = self.areas(space, block).next();
            let holds =
                |area: Area| area.span.covers(block) && area.flags.contains(AreaFlags::WATCH_WRITE);
            let shielded: u64 = pieces.map(|seen| seen.pages.count()).sum();
            area.filter(|area| holds(*area) && shielded == order.pages())
        };
        if fits().is_none() {
            return Ok(false);
        }
        let Ok(run) = self.take_one(space, order, Advice::of(marked.area.flags)) else {
            return if order == Order::ZERO { Err(Error::NoMemory(order)) } else { Ok(false) };
        };
        self.base.clear(&run, marked.page.offset_from(block.start), &mut || {});
        let mut change = self.base.change(space);
        if let Err(error) = change.prepare(block, 0) {
            self.base.free(run);
            return Err(error);
        }
        // Faults wait from here on.
        let Some(area) = fits() else {
            self.base.free(run);
            return Ok(false);
        };
        change.unmark_watched(block);
        let attrs = Attrs::user(unwritten(area.prot)) | Attrs::YOUNG | WATCHED;
        let left = tables.put_folio(block, run, order, attrs).err();
        debug_assert!(left.is_none(), "the table of its markers is there");
        self.base.free(left);
        self.base.groups.draw(space, order.pages());
        self.base.count(Event::EntriesMade, order.pages());
        Ok(true)
    }
}

/// The markers of pages that are protected.
fn watched(marks: Marks) -> Marks {
    remarked(marks, true)
}

/// The markers of pages that are not.
fn unwatched(marks: Marks) -> Marks {
    remarked(marks, false)
}

#[cfg_attr(not(feature = "swap"), expect(unused_variables))]
fn remarked(marks: Marks, watched: bool) -> Marks {
    #[cfg(feature = "swap")]
    if let Some(entry) = SwapEntry::of(marks.first) {
        return Marks { first: SwapEntry { watched, ..entry }.payload(), ..marks };
    }
    marks
}
