//! Map, unmap, protect, advise, grow: changes of the areas.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Prot, Vpn};

use super::Spaces;
use crate::base::Error;
use crate::limits::STACK_GUARD_PAGES;
use crate::space::{Advice, Area, AreaFlags, At, Backing, Ever, Request, Section, Space};
use crate::stats::Event;
use crate::table::Taking;

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Maps an area and returns its pages. None is resident yet.
    pub(crate) fn map(&self, space: &Space<A>, request: &Request) -> Result<PageSpan, Error> {
        self.base().change(space, |section| self.map_in(space, section, request))
    }

    fn map_in(
        &self,
        space: &Space<A>,
        section: &mut Section<'_, A, H>,
        request: &Request,
    ) -> Result<PageSpan, Error> {
        let span = self.base().view(space).place(request, self.align(space, request))?;
        let area = Area {
            span,
            prot: request.prot,
            max_prot: request.max_prot,
            flags: request.flags,
            backing: request.backing,
        };
        #[cfg(feature = "files")]
        self.note_code(&area);
        if area.flags.contains(AreaFlags::DROPPABLE) {
            space.note(Ever::Droppable);
        }
        let replaces = matches!(request.at, At::Fixed(_));
        if !replaces {
            self.base().complete(space, section, |section| section.stocked(1))?;
            section.writer().set(area).map_err(|_| Error::Invalid)?;
            return Ok(span);
        }
        self.unsealed(space, span)?;
        self.base().complete(space, section, |section| section.prepare(span, 2))?;
        section.writer().replace(area).map_err(|_| Error::Invalid)?;
        // Faults wait until the replaced memory is flushed; see `Section::hold`.
        self.take(space, section, span, &|| span)?;
        Ok(span)
    }

    /// See `Mm::unmap`.
    pub(crate) fn unmap(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        self.base().change(space, |section| {
            self.unsealed(space, span)?;
            self.base().complete(space, section, |section| section.prepare(span, 1))?;
            section.writer().cut(span).map_err(|_| Error::Invalid)?;
            section.open();
            self.take(space, section, span, &|| self.hole(space, span))
        })
    }

    /// See `Mm::protect`.
    pub(crate) fn protect(
        &self,
        space: &Space<A>,
        span: PageSpan,
        prot: Prot,
    ) -> Result<(), Error> {
        self.alter(space, span, |area| {
            if area.flags.contains(AreaFlags::SEALED) {
                Err(Error::Sealed(area.span.start))
            } else if area.max_prot.contains(prot) {
                let area = Area { prot, ..area };
                #[cfg(feature = "files")]
                self.note_code(&area);
                Ok(area)
            } else {
                Err(Error::Forbidden(area.span.start, prot))
            }
        })
    }

    /// Tells the file that `area` maps when the area holds code: all of the file is then read as
    /// code.
    #[cfg(feature = "files")]
    fn note_code(&self, area: &Area) {
        if area.prot.contains(Prot::EXEC)
            && let Backing::File { id, .. } = area.backing
            && let Some(file) = self.base().file(id)
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
        self.alter(space, span, |area| Ok(Area { flags: advice.put(area.flags), ..area }))
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
        self.alter(space, span, |area| match area.backing {
            Backing::Anon => Err(Error::Invalid),
            Backing::File { .. } => Ok(Area { flags: area.flags.with_read_order(order), ..area }),
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
        self.alter(space, span, |area| match wipes && !area.is_private_anon() {
            true => Err(Error::Invalid),
            false if loses && area.keeps_content() => Err(Error::Sealed(area.span.start)),
            false => Ok(Area { flags: (area.flags - clear) | set, ..area }),
        })
    }

    /// Locks the pages of `span` in memory from their first access on (`MLOCK_ONFAULT`).
    ///
    /// # Errors
    /// As for [`protect`](crate::Mm::protect).
    pub fn mlock_on_fault(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        self.lock_as(space, span, AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT)
    }

    pub(crate) fn lock_as(
        &self,
        space: &Space<A>,
        span: PageSpan,
        locks: AreaFlags,
    ) -> Result<(), Error> {
        self.alter(space, span, |area| {
            Ok(Area { flags: (area.flags - AreaFlags::LOCK_ON_FAULT) | locks, ..area })
        })
    }

    /// Unlocks the pages of `span`, so that reclaim may take them (`munlock`).
    ///
    /// # Errors
    /// As for [`protect`](crate::Mm::protect).
    pub fn munlock(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        let locks = AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
        self.alter(space, span, |area| Ok(Area { flags: area.flags - locks, ..area }))
    }

    /// Seals the areas of `span`, all of which must be mapped. Those that are sealed stay so.
    ///
    /// # Errors
    /// As for [`protect`](crate::Mm::protect), never [`Error::Forbidden`] or [`Error::Sealed`].
    pub fn seal(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        space.note(Ever::Sealed);
        self.alter(space, span, |area| Ok(Area { flags: area.flags | AreaFlags::SEALED, ..area }))
    }

    /// See `Mm::discard`.
    pub(crate) fn discard(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        self.base().change(space, |section| {
            self.may_lose(space, span)?;
            section.hold(span);
            let none = PageSpan::new(span.start, span.start);
            self.take_some(space, section, span, Taking::Content, &|| none)
        })
    }

    /// Lets the stack `area` grow down to `page`, if there is room above the area below.
    ///
    /// # Errors
    /// [`Error::NoArea`] without room, or when the area has changed; [`Error::NoMemory`].
    pub(crate) fn grow(&self, space: &Space<A>, area: Area, page: Vpn) -> Result<(), Error> {
        self.base().change(space, |section| self.grow_in(space, section, area, page))
    }

    fn grow_in(
        &self,
        space: &Space<A>,
        section: &mut Section<'_, A, H>,
        area: Area,
        page: Vpn,
    ) -> Result<(), Error> {
        self.base().complete(space, section, |section| section.stocked(1))?;
        let guard = Vpn::new(page.get().saturating_sub(STACK_GUARD_PAGES));
        let below = PageSpan::new(guard, area.span.start);
        let areas = self.base().view(space).areas();
        let free = areas.overlapping(below).next().is_none();
        let same = areas.lookup(area.span.start).0.is_some_and(|now| now == area);
        let more = Area { span: PageSpan::new(page, area.span.start), ..area };
        let grown = free && same && section.writer().set(more).is_ok();
        if grown { Ok(()) } else { Err(Error::NoArea(page)) }
    }

    /// Changes rights and flags of every area in `span`, and the leaves with them; changes nothing
    /// unless `change` agrees for all of them and there is no hole.
    pub(crate) fn alter(
        &self,
        space: &Space<A>,
        span: PageSpan,
        change: impl Fn(Area) -> Result<Area, Error>,
    ) -> Result<(), Error> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        self.base().change(space, |section| self.alter_in(space, section, span, change))
    }

    fn alter_in(
        &self,
        space: &Space<A>,
        section: &mut Section<'_, A, H>,
        span: PageSpan,
        change: impl Fn(Area) -> Result<Area, Error>,
    ) -> Result<(), Error> {
        let (mut differs, mut rights) = (false, false);
        self.agree(space, span, |area| {
            let new = change(area)?;
            differs |= new != area;
            rights |= new.prot != area.prot;
            Ok(())
        })?;
        if !differs {
            return Ok(());
        }
        // The areas are prepared also where only advice changes: no leaf may lie in two areas
        // afterwards.
        self.base().complete(space, section, |section| section.prepare(span, 2))?;
        let updated = section.writer().update(span, |area| change(area).unwrap_or(area));
        updated.map_err(|_| Error::Invalid)?;
        section.open();
        if rights {
            for area in self.base().view(space).areas().overlapping(span) {
                section.protect(&area.clipped(span));
            }
        }
        self.base().count(Event::EntriesChanged, section.entries());
        Ok(())
    }

    /// Whether every page of `span` has an area, and `each` agrees to all of them.
    pub(crate) fn agree(
        &self,
        space: &Space<A>,
        span: PageSpan,
        mut each: impl FnMut(Area) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut next = span.start;
        for area in self.base().view(space).areas().overlapping(span) {
            if area.span.start > next {
                return Err(Error::NoArea(next));
            }
            each(area.clipped(span))?;
            next = area.span.end;
        }
        if next < span.end { Err(Error::NoArea(next)) } else { Ok(()) }
    }

    /// Takes all pages of `span` out of the tables, and tables within `hole` that became empty.
    pub(crate) fn take(
        &self,
        space: &Space<A>,
        section: &mut Section<'_, A, H>,
        span: PageSpan,
        hole: &dyn Fn() -> PageSpan,
    ) -> Result<(), Error> {
        self.take_some(space, section, span, Taking::All, hole)
    }

    /// The same for a part of the entries.
    pub(crate) fn take_some(
        &self,
        space: &Space<A>,
        section: &mut Section<'_, A, H>,
        span: PageSpan,
        what: Taking,
        hole: &dyn Fn() -> PageSpan,
    ) -> Result<(), Error> {
        let mut left = span;
        let before = section.entries();
        let done =
            self.base().complete(space, section, |section| section.take(&mut left, what, hole));
        self.base().count(Event::EntriesCleared, section.entries() - before);
        done
    }

    /// The unmapped pages around `span`, which is unmapped: tables that translate nothing else may
    /// go.
    pub(crate) fn hole(&self, space: &Space<A>, span: PageSpan) -> PageSpan {
        let areas = self.base().view(space).areas();
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
                self.base().policy.candidates(Advice::of(request.flags), space.opt_out())
            }
            #[cfg(feature = "files")]
            Backing::File { .. } => self.base().file_policy.alignments(),
            #[cfg(not(feature = "files"))]
            Backing::File { .. } => 0,
        };
        let fits = Order::fitting(request.pages).unwrap_or_default();
        let below = wanted as u64 & ((2_u64 << fits.get().min(62)) - 1);
        Order::new(below.checked_ilog2().unwrap_or(0) as u8)
    }
}
