//! Resizing and moving areas (`mremap`).

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{PageSpan, Vpn};

use super::error::Error;
use super::mm::Mm;
use crate::space::{Area, At, Request, Section, Space};
use crate::stats::Event;

/// Whether an area may be moved to be resized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// It stays where it is.
    Never,
    /// It goes elsewhere if it has no room here (`MREMAP_MAYMOVE`).
    Allowed,
    /// It goes to this page; what is there is unmapped (`MREMAP_FIXED`).
    To(Vpn),
}

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// Makes the pages `old`, which lie in one area, `pages` pages long, and moves them if that is
    /// needed and allowed; where they are now. Contents move with them: entries are moved, memory
    /// is not.
    ///
    /// # Errors
    /// [`Error::Invalid`]: no pages, or the new place overlaps the old. [`Error::NoArea`]: `old` is
    /// not in one area. [`Error::NoRoom`]: it may not move and has no room. [`Error::NoMemory`].
    /// Nothing has changed then, but that with [`Move::To`] the target may be unmapped, and what
    /// `pages` cuts off as well, as on Linux.
    pub fn remap(
        &self,
        space: &Space<A>,
        old: PageSpan,
        pages: u64,
        how: Move,
    ) -> Result<PageSpan, Error> {
        let new = PageSpan::at(old.start, pages).ok_or(Error::Invalid)?;
        if !Space::<A>::may_map(old) || !Space::<A>::may_map(new) {
            return Err(Error::Invalid);
        }
        self.single_area(space, old)?;
        if let Move::To(page) = how {
            return self.remap_to(space, old, pages, page);
        }
        if pages <= old.count() {
            if pages < old.count() {
                self.unmap(space, PageSpan::new(new.end, old.end))?;
            }
            return Ok(new);
        }
        match self.extend(space, old, new.end) {
            Err(Error::NoRoom(_)) if how == Move::Allowed => self.relocate(space, old, pages, None),
            extended => extended.map(|()| new),
        }
    }

    fn remap_to(
        &self,
        space: &Space<A>,
        old: PageSpan,
        pages: u64,
        page: Vpn,
    ) -> Result<PageSpan, Error> {
        let target = PageSpan::at(page, pages).ok_or(Error::Invalid)?;
        if !Space::<A>::may_map(target) || target.overlaps(old) {
            return Err(Error::Invalid);
        }
        self.unmap(space, target)?;
        let kept = pages.min(old.count());
        if kept < old.count() {
            self.unmap(space, PageSpan::new(old.start.add(kept), old.end))?;
        }
        let old = PageSpan::new(old.start, old.start.add(kept));
        self.relocate(space, old, pages, Some(page))
    }

    /// The area that all of `span` lies in.
    fn single_area(&self, space: &Space<A>, span: PageSpan) -> Result<Area, Error> {
        let area = self.view(space).areas().lookup(span.start).0;
        let area = area.ok_or(Error::NoArea(span.start))?;
        if area.span.covers(span) { Ok(area) } else { Err(Error::NoArea(area.span.end)) }
    }

    /// Lets the area that `old` ends go on up to `end`, if there is room.
    fn extend(&self, space: &Space<A>, old: PageSpan, end: Vpn) -> Result<(), Error> {
        let mut section = Section::begin(self.view(space));
        let ready = self.complete(space, &mut section, |section| section.stocked(1));
        let set = ready.and_then(|()| {
            let area = self.single_area(space, old)?;
            let more = PageSpan::new(old.end, end);
            let no_room = Error::NoRoom(more.count());
            if area.span.end != old.end {
                return Err(no_room);
            }
            let backing = area.backing.advanced(area.span.count());
            section.writer().set(Area { span: more, backing, ..area }).map_err(|_| no_room)
        });
        self.finish(space, section);
        set
    }

    /// Moves `old` to `page`, which is free, or to wherever there is room, as an area of `pages`.
    fn relocate(
        &self,
        space: &Space<A>,
        old: PageSpan,
        pages: u64,
        page: Option<Vpn>,
    ) -> Result<PageSpan, Error> {
        let view = self.view(space);
        let mut section = Section::begin(view);
        let placed = self.single_area(space, old).and_then(|area| {
            let at = page.map_or(At::Anywhere, At::FixedNoReplace);
            let request = Request::anon(pages).at(at).flags(area.flags);
            let span = view.place(&request, self.align(space, &request))?;
            Ok((area, span))
        });
        let (area, span) = match placed {
            Ok(placed) => placed,
            Err(error) => return self.give_up(space, section, error),
        };
        let ready = self.complete(space, &mut section, |section| {
            section.prepare(old, 2)?;
            // The new place as well: nothing may be mapped there before the pages have moved.
            let (first, last) = (old.start.min(span.start), old.end.max(span.end));
            section.hold(PageSpan::new(first, last));
            section.pave(old, span.start)
        });
        if let Err(error) = ready {
            return self.give_up(space, section, error);
        }
        let backing = area.clipped(old).backing;
        let cut = section.writer().cut(old, |_| {});
        let set = section.writer().set(Area { span, backing, ..area });
        debug_assert!(cut.is_ok() && set.is_ok(), "the tree was stocked and the place is free");
        section.shift(old, span.start, self.hole(space, old));
        section.open();
        let entries = section.entries();
        self.finish(space, section);
        self.count(Event::EntriesMoved, entries);
        Ok(span)
    }
}
