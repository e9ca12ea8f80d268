//! Map, unmap, protect, advise, grow: changes of the areas.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Prot, Vpn};

use super::error::Error;
use super::mm::Mm;
use crate::limits::STACK_GUARD_PAGES;
use crate::space::{Advice, Area, AreaFlags, At, Backing, Ever, Need, Request, Section, Space};
use crate::stats::Event;
use crate::table::Taking;

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// Maps an area; which pages it got. Nothing is resident yet, unless the area is locked in
    /// memory: then all of it is, as far as there is memory.
    ///
    /// # Errors
    /// [`Error::Invalid`], [`Error::Exists`], [`Error::NoRoom`], [`Error::NoMemory`]. Nothing has
    /// changed then.
    pub fn map(&self, space: &Space<A>, request: &Request) -> Result<PageSpan, Error> {
        let span = self.change(space, |section| self.map_in(space, section, request))?;
        if request.flags.contains(AreaFlags::LOCKED)
            && !request.flags.contains(AreaFlags::LOCK_ON_FAULT)
        {
            let _ = self.populate(space, span);
        }
        Ok(span)
    }

    fn map_in(
        &self,
        space: &Space<A>,
        section: &mut Section<'_, A, H>,
        request: &Request,
    ) -> Result<PageSpan, Error> {
        let span = self.view(space).place(request, self.align(space, request))?;
        let area = Area {
            span,
            prot: request.prot,
            max_prot: request.max_prot,
            flags: request.flags,
            backing: request.backing,
        };
        self.note_code(&area);
        if area.flags.contains(AreaFlags::DROPPABLE) {
            space.note(Ever::Droppable);
        }
        let replaces = matches!(request.at, At::Fixed(_));
        if !replaces {
            self.complete(space, section, |section| section.stocked(1))?;
            section.writer().set(area).map_err(|_| Error::Invalid)?;
            return Ok(span);
        }
        self.unsealed(space, span)?;
        self.complete(space, section, |section| section.prepare(span, 2))?;
        section.writer().replace(area, |_| {}).map_err(|_| Error::Invalid)?;
        // What is replaced makes faults wait until it is flushed; see `Section::hold`.
        self.take(space, section, span, &|| span)?;
        Ok(span)
    }

    /// Unmaps `span`: every page of it that is mapped is not afterwards, and its memory is free.
    /// Free pages in it are no error.
    ///
    /// # Errors
    /// [`Error::Invalid`]; [`Error::NoMemory`] when a large leaf or an area must be split and there
    /// is no frame for that. Nothing has changed then.
    pub fn unmap(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        self.change(space, |section| {
            self.unsealed(space, span)?;
            self.complete(space, section, |section| section.prepare(span, 1))?;
            section.writer().cut(span, |_| {}).map_err(|_| Error::Invalid)?;
            section.open();
            self.take(space, section, span, &|| self.hole(space, span))
        })
    }

    /// Gives the areas of `span` other rights. All of it must be mapped, as on Linux.
    ///
    /// # Errors
    /// [`Error::Invalid`]; [`Error::NoArea`] with the first page that no area holds;
    /// [`Error::Forbidden`]; [`Error::NoMemory`] as for [`unmap`](Self::unmap). Nothing has changed
    /// then.
    pub fn protect(&self, space: &Space<A>, span: PageSpan, prot: Prot) -> Result<(), Error> {
        self.alter(space, span, |area| {
            if area.flags.contains(AreaFlags::SEALED) {
                Err(Error::Sealed(area.span.start))
            } else if area.max_prot.contains(prot) {
                let area = Area { prot, ..area };
                self.note_code(&area);
                Ok(area)
            } else {
                Err(Error::Forbidden(area.span.start, prot))
            }
        })
    }

    /// Lets the file that `area` shows know if it holds code: all of it is read as code is then.
    fn note_code(&self, area: &Area) {
        if area.prot.contains(Prot::EXEC)
            && let Backing::File { id, .. } = area.backing
            && let Some(file) = self.file(id)
        {
            file.note_code();
        }
    }

    /// Advises the areas of `span` about large folios. All of it must be mapped.
    ///
    /// # Errors
    /// As for [`protect`](Self::protect).
    pub fn advise(&self, space: &Space<A>, span: PageSpan, advice: Advice) -> Result<(), Error> {
        self.alter(space, span, |area| Ok(Area { flags: advice.put(area.flags), ..area }))
    }

    /// Says in folios of which order the files that areas show in `span` are best read: in aligned
    /// blocks of it around what is touched, as code is, where they lie in the area and are to be
    /// had, and else in smaller ones. `None`: as the [policy](Self::file_policy) says. Areas
    /// remember it, and children inherit it. All of it must be mapped.
    ///
    /// # Errors
    /// As for [`protect`](Self::protect), never [`Error::Forbidden`]. [`Error::Invalid`] also for
    /// an order of 0 or above [`Arch::block_order`], and where an area shows no file.
    pub fn prefer(
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

    /// Takes the flags `clear` from the areas of `span`, and gives them `set`: all that advice is
    /// remembered for (`MADV_DONTFORK`, `MADV_WIPEONFORK`, `MADV_SEQUENTIAL`, `MADV_DONTDUMP` and
    /// what takes each back). All of it must be mapped.
    ///
    /// # Errors
    /// As for [`protect`](Self::protect), never [`Error::Forbidden`]. [`Error::Invalid`] also for
    /// flags beyond [`AreaFlags::ADVICE`], for one both set and cleared, and for
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

    /// Keeps the pages of `span` in memory, and brings those in that are not (`mlock`).
    ///
    /// # Errors
    /// As for [`protect`](Self::protect); and [`Error::NoMemory`] when not all could be brought
    /// in, with those that could be resident and all of the span locked.
    pub fn lock(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        self.lock_as(space, span, AreaFlags::LOCKED)?;
        self.populate(space, span).map(|_| ())
    }

    /// Keeps the pages of `span` in memory from when they are touched on (`MLOCK_ONFAULT`).
    ///
    /// # Errors
    /// As for [`protect`](Self::protect).
    pub fn lock_on_fault(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        self.lock_as(space, span, AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT)
    }

    fn lock_as(&self, space: &Space<A>, span: PageSpan, locks: AreaFlags) -> Result<(), Error> {
        self.alter(space, span, |area| {
            Ok(Area { flags: (area.flags - AreaFlags::LOCK_ON_FAULT) | locks, ..area })
        })
    }

    /// Lets the pages of `span` go again when memory is short (`munlock`).
    ///
    /// # Errors
    /// As for [`protect`](Self::protect).
    pub fn unlock(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        let locks = AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
        self.alter(space, span, |area| Ok(Area { flags: area.flags - locks, ..area }))
    }

    /// Frees the memory of `span`; the areas stay, and read as zero again (`MADV_DONTNEED`). Guards
    /// stay as well.
    ///
    /// # Errors
    /// [`Error::Invalid`]; [`Error::NoMemory`] when a large leaf must be split and there is no
    /// frame for that: memory before it is free then.
    pub fn discard(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        self.change(space, |section| {
            self.may_lose(space, span)?;
            section.hold(span);
            let none = PageSpan::new(span.start, span.start);
            self.take_some(space, section, span, Taking::Content, &|| none)
        })
    }

    /// Lets the stack `area` grow down to `page`, if there is room above what lies below.
    ///
    /// # Errors
    /// [`Error::NoArea`] when there is not, or the area is not what it was; [`Error::NoMemory`].
    pub(super) fn grow(&self, space: &Space<A>, area: Area, page: Vpn) -> Result<(), Error> {
        self.change(space, |section| self.grow_in(space, section, area, page))
    }

    fn grow_in(
        &self,
        space: &Space<A>,
        section: &mut Section<'_, A, H>,
        area: Area,
        page: Vpn,
    ) -> Result<(), Error> {
        self.complete(space, section, |section| section.stocked(1))?;
        let guard = Vpn::new(page.get().saturating_sub(STACK_GUARD_PAGES));
        let below = PageSpan::new(guard, area.span.start);
        let areas = self.view(space).areas();
        let free = areas.overlapping(below).next().is_none();
        let same = areas.lookup(area.span.start).0.is_some_and(|now| now == area);
        let more = Area { span: PageSpan::new(page, area.span.start), ..area };
        let grown = free && same && section.writer().set(more).is_ok();
        if grown { Ok(()) } else { Err(Error::NoArea(page)) }
    }

    /// Changes rights and flags of every area in `span`, and the leaves with them; nothing unless
    /// `change` agrees for all of them and there is no hole.
    pub(super) fn alter(
        &self,
        space: &Space<A>,
        span: PageSpan,
        change: impl Fn(Area) -> Result<Area, Error>,
    ) -> Result<(), Error> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        self.change(space, |section| self.alter_in(space, section, span, change))
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
        // Also where only advice changes: no leaf may lie in two areas afterwards.
        self.complete(space, section, |section| section.prepare(span, 2))?;
        let updated = section.writer().update(span, |area| change(area).unwrap_or(area));
        updated.map_err(|_| Error::Invalid)?;
        section.open();
        if rights {
            for area in self.view(space).areas().overlapping(span) {
                section.protect(&area.clipped(span));
            }
        }
        self.count(Event::EntriesChanged, section.entries());
        Ok(())
    }

    /// Whether every page of `span` has an area, and `each` agrees to all of them.
    pub(super) fn agree(
        &self,
        space: &Space<A>,
        span: PageSpan,
        mut each: impl FnMut(Area) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut next = span.start;
        for area in self.view(space).areas().overlapping(span) {
            if area.span.start > next {
                return Err(Error::NoArea(next));
            }
            each(area.clipped(span))?;
            next = area.span.end;
        }
        if next < span.end { Err(Error::NoArea(next)) } else { Ok(()) }
    }

    /// Takes all pages of `span` out of the tables, and tables within `hole` that became empty.
    pub(super) fn take(
        &self,
        space: &Space<A>,
        section: &mut Section<'_, A, H>,
        span: PageSpan,
        hole: &dyn Fn() -> PageSpan,
    ) -> Result<(), Error> {
        self.take_some(space, section, span, Taking::All, hole)
    }

    /// The same for a part of what is there.
    pub(super) fn take_some(
        &self,
        space: &Space<A>,
        section: &mut Section<'_, A, H>,
        span: PageSpan,
        what: Taking,
        hole: &dyn Fn() -> PageSpan,
    ) -> Result<(), Error> {
        let mut left = span;
        let before = section.entries();
        let done = self.complete(space, section, |section| section.take(&mut left, what, hole));
        self.count(Event::EntriesCleared, section.entries() - before);
        done
    }

    /// The free pages around `span`, which is free: tables that translate nothing else may go.
    pub(super) fn hole(&self, space: &Space<A>, span: PageSpan) -> PageSpan {
        let areas = self.view(space).areas();
        let first = Vpn::new(0);
        let last = Vpn::new(A::USER_PAGES);
        let end = areas.next_at_or_after(span.end).0.map_or(last, |area| area.span.start);
        let start = areas.last_before(span.start).0.map_or(first, |area| area.span.end);
        PageSpan::new(start.min(span.start), end.max(span.end))
    }

    /// The order for which a new area's place is aligned: the largest folio that is wanted in it
    /// and fits.
    pub(super) fn align(&self, space: &Space<A>, request: &Request) -> Order {
        let wanted = match request.backing {
            Backing::Anon => self.policy.candidates(Advice::of(request.flags), space.opt_out()),
            Backing::File { .. } => self.file_policy.alignments(),
        };
        let fits = Order::fitting(request.pages).unwrap_or_default();
        let below = wanted as u64 & ((2_u64 << fits.get().min(62)) - 1);
        Order::new(below.checked_ilog2().unwrap_or(0) as u8)
    }
}

impl<A: Arch, H: Hardware> Section<'_, A, H> {
    /// Whether the tree has frames for `insertions` more areas.
    pub(super) fn stocked(&self, insertions: usize) -> Result<(), Need> {
        if self.writer().lacks(insertions) > 0 { Err(Need::Node) } else { Ok(()) }
    }
}
