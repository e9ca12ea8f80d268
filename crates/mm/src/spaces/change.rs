//! Map, unmap, protect, advise, grow: changes of the areas.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, OrderSet, PageSpan, Prot, Vpn};

use super::Spaces;
use crate::base::Error;
use crate::limits::STACK_GUARD_PAGES;
use crate::space::{Advice, Area, AreaFlags, At, Backing, Ever, Request, Space};
use crate::stats::Event;
use crate::table::Taking;

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Maps an area and returns its pages. None is resident yet.
    pub(crate) fn map(&self, space: &Space<A>, request: &Request) -> Result<PageSpan, Error> {
        if let Backing::Frames { .. } = request.backing {
            // A number gives no right to a frame: see `map_frames`.
            return Err(Error::Invalid);
        }
        let mut change = self.base.change(space);
        let align = self.align(space, request);
        let span = self.base.view(space).place(request, align)?;
        if let Some(whole) = self.base.whole(request.backing) {
            is_of_blocks(span, whole)?;
            let first = matches!(request.backing, Backing::File { page, .. }
                if page.is_multiple_of(whole.pages()));
            if !first {
                return Err(Error::Invalid);
            }
            space.note(Ever::Reserved);
        }
        let area = Area {
            span,
            prot: request.prot,
            max_prot: request.max_prot,
            flags: request.flags,
            backing: request.backing,
        };
        #[cfg(feature = "files")]
        self.note_code(area.prot, area.backing);
        if area.flags.contains(AreaFlags::DROPPABLE) {
            space.note(Ever::Droppable);
        }
        if matches!(request.at, At::Fixed(_)) {
            self.unsealed(space, span)?;
            self.cuts_no_folio(space, span)?;
            change.prepare(span, 2)?;
            change.writer().replace(area).map_err(|_| Error::Invalid)?;
            // Faults wait until the replaced memory is flushed; see `Section::hold`.
            change.take(span, Taking::All, &|| span)?;
        } else {
            change.stock()?;
            change.writer().set(area).map_err(|_| Error::Invalid)?;
        }
        Ok(span)
    }

    /// See `Mm::unmap`.
    pub(crate) fn unmap(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        Self::mappable(span)?;
        let mut change = self.base.change(space);
        self.unsealed(space, span)?;
        self.cuts_no_folio(space, span)?;
        change.prepare(span, 1)?;
        change.writer().cut(span).map_err(|_| Error::Invalid)?;
        change.open();
        change.take(span, Taking::All, &|| self.hole(space, span))
    }

    /// Refuses pages that programs may not map.
    pub(crate) fn mappable(span: PageSpan) -> Result<(), Error> {
        if Space::<A>::may_map(span) { Ok(()) } else { Err(Error::Invalid) }
    }

    /// See `Mm::protect`.
    pub(crate) fn protect(
        &self,
        space: &Space<A>,
        span: PageSpan,
        prot: Prot,
    ) -> Result<(), Error> {
        self.alter(space, span, Some(prot), |area| {
            if area.flags.contains(AreaFlags::SEALED) {
                Err(Error::Sealed(area.span.start))
            } else if area.max_prot.contains(prot) {
                #[cfg(feature = "files")]
                self.note_code(prot, area.backing);
                Ok((prot, area.flags))
            } else {
                Err(Error::Forbidden(area.span.start, prot))
            }
        })
    }

    /// Tells the file behind an area with these rights when the area holds code: all of the file is
    /// then read as code.
    #[cfg(feature = "files")]
    fn note_code(&self, prot: Prot, backing: Backing) {
        if prot.contains(Prot::EXEC)
            && let Backing::File { id, .. } = backing
            && let Some(file) = self.base.file(id)
        {
            file.note_code();
        }
    }

    /// See `Mm::advise`.
    pub(crate) fn advise(
        &self,
        space: &Space<A>,
        span: PageSpan,
        advice: Advice,
    ) -> Result<(), Error> {
        self.alter(space, span, None, |area| Ok((area.prot, advice.put(area.flags))))
    }

    /// Sets the order of the folios in which files are read for the areas of `span`: in aligned
    /// blocks of it around the accessed page, as code is, where they fit the area and are free, and
    /// else in smaller ones. `None`: as the [policy](crate::Files::policy) says. Areas remember it,
    /// and children inherit it. All of the span must be mapped.
    ///
    /// # Errors
    /// As for [`protect`](crate::Mm::protect), never [`Error::Forbidden`]. [`Error::Invalid`] also
    /// for an order of 0 or above [`Arch::block_order`], and where an area shows no file.
    pub fn set_read_order(
        &self,
        space: &Space<A>,
        span: PageSpan,
        order: Option<Order>,
    ) -> Result<(), Error> {
        if order.is_some_and(|order| order == Order::ZERO || order > A::block_order()) {
            return Err(Error::Invalid);
        }
        self.alter(space, span, None, |area| match area.backing {
            Backing::Anon | Backing::Frames { .. } => Err(Error::Invalid),
            Backing::File { .. } => Ok((area.prot, area.flags.with_read_order(order))),
        })
    }

    /// Clears the flags `clear` of the areas of `span`, and sets `set`: all advice that areas
    /// remember (`MADV_DONTFORK`, `MADV_WIPEONFORK`, `MADV_SEQUENTIAL`, `MADV_DONTDUMP` and their
    /// opposites). All of the span must be mapped.
    ///
    /// # Errors
    /// As for [`protect`](crate::Mm::protect), never [`Error::Forbidden`]. [`Error::Invalid`] also
    /// for flags beyond [`AreaFlags::ADVICE`], for one both set and cleared, and for
    /// [`WIPEONFORK`](AreaFlags::WIPEONFORK) where an area is not private and anonymous.
    pub fn set_flags(
        &self,
        space: &Space<A>,
        span: PageSpan,
        set: AreaFlags,
        clear: AreaFlags,
    ) -> Result<(), Error> {
        if !AreaFlags::ADVICE.contains(set | clear) || set.intersects(clear) {
            return Err(Error::Invalid);
        }
        let wipes = set.contains(AreaFlags::WIPEONFORK);
        let loses = set.intersects(AreaFlags::WIPEONFORK | AreaFlags::DONTFORK);
        self.alter(space, span, None, |area| match wipes && !area.is_private_anon() {
            true => Err(Error::Invalid),
            false if loses && area.keeps_content() => Err(Error::Sealed(area.span.start)),
            false => Ok((area.prot, (area.flags - clear) | set)),
        })
    }

    /// Locks the pages of `span` in memory from their first access on (`MLOCK_ONFAULT`).
    ///
    /// # Errors
    /// As for [`protect`](crate::Mm::protect).
    pub fn mlock_on_fault(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        self.reflag(space, span, AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT, AreaFlags::empty())
    }

    /// Locks the pages of `span` that are in memory, and others when they come.
    pub(crate) fn lock(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        self.reflag(space, span, AreaFlags::LOCKED, AreaFlags::LOCK_ON_FAULT)
    }

    /// Unlocks the pages of `span`, so that reclaim may take them (`munlock`).
    ///
    /// # Errors
    /// As for [`protect`](crate::Mm::protect).
    pub fn munlock(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        let locks = AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
        self.reflag(space, span, AreaFlags::empty(), locks)
    }

    /// Seals the areas of `span`, all of which must be mapped (`mseal`): they keep place, rights,
    /// and contents that could not be written back, until the space ends. So an attacker who
    /// controls a program's calls cannot replace them. Children inherit seals.
    ///
    /// # Errors
    /// As for [`protect`](crate::Mm::protect), never [`Error::Forbidden`] or [`Error::Sealed`].
    pub fn seal(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        space.note(Ever::Sealed);
        self.reflag(space, span, AreaFlags::SEALED, AreaFlags::empty())
    }

    /// Sets and clears flags of the areas of `span`.
    fn reflag(
        &self,
        space: &Space<A>,
        span: PageSpan,
        set: AreaFlags,
        clear: AreaFlags,
    ) -> Result<(), Error> {
        self.alter(space, span, None, |area| Ok((area.prot, (area.flags - clear) | set)))
    }

    /// See `Mm::discard`.
    pub(crate) fn discard(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        Self::mappable(span)?;
        let mut change = self.base.change(space);
        self.may_lose(space, span)?;
        self.may_unmap_pages(space, span)?;
        self.cuts_no_folio(space, span)?;
        change.hold(span);
        change.take(span, Taking::Content, &|| PageSpan::new(span.start, span.start))?;
        // A folio that a swap device has as well looks like a file's: its pages' marks stayed.
        #[cfg(feature = "watch")]
        if space.has(Ever::Watched) {
            let own = |area: &Area| area.backing == Backing::Anon;
            for area in self.areas(space, span).filter(own) {
                change.unmark_watched(area.span.intersect(span));
            }
        }
        Ok(())
    }

    /// Lets the stack `area` grow down to `page`, if there is room above the area below.
    ///
    /// # Errors
    /// [`Error::NoArea`] without room, or when the area has changed; [`Error::NoMemory`].
    #[inline(never)]
    pub(crate) fn grow(&self, space: &Space<A>, area: Area, page: Vpn) -> Result<(), Error> {
        // No pages leave: a writer of the areas is enough, and a change needs much stack.
        let view = self.base.view(space);
        let writer = space.areas.writer(view.hw, view.meta);
        while writer.lacks(1) > 0 {
            self.base.free(writer.stock(self.base.frames(Order::ZERO, true)?).err());
        }
        let guard = Vpn::new(page.get().saturating_sub(STACK_GUARD_PAGES));
        let below = PageSpan::new(guard, area.span.start);
        let areas = writer.reader();
        let free = areas.overlapping(below).next().is_none();
        let same = areas.lookup(area.span.start).0.is_some_and(|now| now == area);
        let more = Area { span: PageSpan::new(page, area.span.start), ..area };
        let grown = free && same && writer.set(more).is_ok();
        if grown { Ok(()) } else { Err(Error::NoArea(page)) }
    }

    /// Gives every area in `span` other flags, or the rights `prot`, and the leaves with them, as
    /// `alter` says; changes nothing unless `alter` agrees for all of them and there is no hole.
    pub(super) fn alter(
        &self,
        space: &Space<A>,
        span: PageSpan,
        prot: Option<Prot>,
        alter: impl Fn(&Area) -> Result<(Prot, AreaFlags), Error>,
    ) -> Result<(), Error> {
        Self::mappable(span)?;
        let mut change = self.base.change(space);
        self.cuts_no_folio(space, span)?;
        let mut located = change.writer().locate(span);
        let (mut differs, mut rights) = (false, false);
        Self::agree(change.writer().areas(&located), span, |area| {
            let (prot, flags) = alter(&area)?;
            rights |= prot != area.prot;
            differs |= flags != area.flags;
            Ok(())
        })?;
        if !differs && !rights {
            return Ok(());
        }
        // The areas are prepared also where only advice changes: no leaf may lie in two areas
        // afterwards.
        change.prepare(span, 2)?;
        let updated = change.writer().update_at(&mut located, |area| match alter(&area) {
            Ok((prot, flags)) => Area { prot, flags, ..area },
            Err(_) => area,
        });
        updated.map_err(|_| Error::Invalid)?;
        change.open();
        if let Some(prot) = prot.filter(|_| rights && !change.is_vacant(span)) {
            change.protect(span, prot);
        }
        change.count(Event::EntriesChanged);
        Ok(())
    }

    /// Whether every page of `span` has one of `areas`, and `each` agrees to all of them.
    pub(crate) fn agree(
        areas: impl Iterator<Item = Area>,
        span: PageSpan,
        mut each: impl FnMut(Area) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut next = span.start;
        for area in areas {
            if area.span.start > next {
                return Err(Error::NoArea(next));
            }
            each(area.clipped(span))?;
            next = area.span.end;
        }
        if next < span.end { Err(Error::NoArea(next)) } else { Ok(()) }
    }

    /// Refuses if a part of `span` is sealed.
    pub(crate) fn unsealed(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        self.refuse(space, span, |area| area.flags.contains(AreaFlags::SEALED))
    }

    /// Refuses if a part of `span` must not lose its contents.
    pub(crate) fn may_lose(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        self.refuse(space, span, Area::keeps_content)
    }

    /// Refuses if an area in `span` shows frames: it must not lose single pages.
    pub(crate) fn may_unmap_pages(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        let shows = || self.areas(space, span).any(|area| area.is_of_frames());
        if space.may_show_frames(span) && shows() { Err(Error::Invalid) } else { Ok(()) }
    }

    /// Refuses if an end of `span` lies within a reserved folio: its area may not be cut there.
    pub(super) fn cuts_no_folio(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        let cuts = |page: Vpn| {
            let mut at = self.areas(space, PageSpan::new(page, page.add(1)));
            at.any(|area| {
                let whole = self.base.whole(area.backing);
                whole.is_some_and(|order| !page.is_aligned(order.pages()))
            })
        };
        let is_cut = space.has(Ever::Reserved) && (cuts(span.start) || cuts(span.end));
        if is_cut { Err(Error::Invalid) } else { Ok(()) }
    }

    /// Refuses if a part of `span` is `such` that its seal forbids the change under way.
    fn refuse(
        &self,
        space: &Space<A>,
        span: PageSpan,
        such: impl Fn(&Area) -> bool,
    ) -> Result<(), Error> {
        if !space.has(Ever::Sealed) {
            return Ok(());
        }
        match self.areas(space, span).find(such) {
            Some(area) => Err(Error::Sealed(area.span.start.max(span.start))),
            None => Ok(()),
        }
    }

    /// The unmapped pages around `span`, which is unmapped: tables that translate nothing else may
    /// go.
    pub(crate) fn hole(&self, space: &Space<A>, span: PageSpan) -> PageSpan {
        let areas = self.base.view(space).areas();
        let first = Vpn::new(0);
        let last = Vpn::new(A::USER_PAGES);
        let end = areas.next_at_or_after(span.end).0.map_or(last, |area| area.span.start);
        let start = areas.last_before(span.start).0.map_or(first, |area| area.span.end);
        PageSpan::new(start.min(span.start), end.max(span.end))
    }

    /// The order to which a new area's place is aligned: the largest folio that the policy wants in
    /// it and that fits.
    pub(crate) fn align(&self, space: &Space<A>, request: &Request) -> Order {
        let wanted = match request.backing {
            Backing::Anon => {
                self.base.policy.candidates(Advice::of(request.flags), space.opt_out())
            }
            #[cfg(feature = "files")]
            Backing::File { .. } => match self.base.whole(request.backing) {
                Some(order) => OrderSet::of(order),
                None => self.base.file_policy.alignments(),
            },
            #[cfg(not(feature = "files"))]
            Backing::File { .. } => OrderSet::EMPTY,
            Backing::Frames { .. } => OrderSet::up_to(A::block_order()),
        };
        let fits = Order::fitting(request.pages).unwrap_or_default();
        (wanted & OrderSet::up_to(fits)).largest().unwrap_or_default()
    }
}

/// Refuses unless `span` consists of aligned blocks of `order`.
pub(super) fn is_of_blocks(span: PageSpan, order: Order) -> Result<(), Error> {
    let fits = span.start.is_aligned(order.pages()) && span.end.is_aligned(order.pages());
    if fits { Ok(()) } else { Err(Error::Invalid) }
}
