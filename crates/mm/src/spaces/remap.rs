//! Resizing and moving areas (`mremap`).

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{PageSpan, Vpn};

use super::Spaces;
use crate::base::{Change, Error};
use crate::space::{Area, AreaFlags, At, Ever, Request, Section, Space};
use crate::stats::Event;
use crate::table::Taking;

/// Whether an area may be moved to be resized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// It stays in place.
    Never,
    /// It moves if it has no room here (`MREMAP_MAYMOVE`).
    Allowed,
    /// It moves to this page; the target is unmapped first (`MREMAP_FIXED`).
    To(Vpn),
    /// Its pages move there, and the old area stays, empty: it reads as zero, or as its file, again
    /// (`MREMAP_DONTUNMAP`). With [`At::Fixed`] the target is unmapped first.
    Keep(At),
}

/// The fate of the place that pages move away from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Old {
    /// It is free.
    Goes,
    /// Its area stays, no longer locked in memory.
    Stays,
}

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Makes the pages `old`, which lie in one area, `pages` pages long, moves them if that is
    /// necessary and allowed, and returns their place. Contents move with them: entries are moved,
    /// memory is not copied.
    ///
    /// # Errors
    /// [`Error::Invalid`]: no pages, or the new place overlaps the old; with [`Move::Keep`] also
    /// another number of pages. [`Error::NoArea`]: `old` is not in one area. [`Error::NoRoom`]: it
    /// may not move and has no room. [`Error::Exists`]: with
    /// [`At::FixedNoReplace`](crate::space::At::FixedNoReplace), the target is taken.
    /// [`Error::NoMemory`]. Nothing has changed then, but that with a target that replaces, that
    /// may be unmapped, and what `pages` cuts off as well, as on Linux.
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
        match how {
            Move::To(page) => return self.remap_to(space, old, pages, page),
            Move::Keep(at) if pages == old.count() => return self.remap_away(space, old, at),
            Move::Keep(_) => return Err(Error::Invalid),
            Move::Never | Move::Allowed => {}
        }
        if pages <= old.count() {
            if pages < old.count() {
                self.unmap(space, PageSpan::new(new.end, old.end))?;
            }
            return Ok(new);
        }
        match self.extend(space, old, new.end) {
            Err(Error::NoRoom(_)) if how == Move::Allowed => {
                self.relocate(space, old, pages, At::Anywhere, Old::Goes)
            }
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
        let target = Self::target(old, page, pages)?;
        let kept = pages.min(old.count());
        if kept < old.count() {
            self.unmap(space, PageSpan::new(old.start.add(kept), old.end))?;
        }
        let old = PageSpan::new(old.start, old.start.add(kept));
        self.relocate(space, old, target.count(), At::Fixed(target.start), Old::Goes)
    }

    /// Moves the pages of `old`, whose area stays.
    fn remap_away(&self, space: &Space<A>, old: PageSpan, at: At) -> Result<PageSpan, Error> {
        if let At::Fixed(page) = at {
            Self::target(old, page, old.count())?;
        }
        self.relocate(space, old, old.count(), at, Old::Stays)
    }

    /// The `pages` pages from `page` on, the target for `old`.
    fn target(old: PageSpan, page: Vpn, pages: u64) -> Result<PageSpan, Error> {
        let target = PageSpan::at(page, pages).ok_or(Error::Invalid)?;
        match Space::<A>::may_map(target) && !target.overlaps(old) {
            true => Ok(target),
            false => Err(Error::Invalid),
        }
    }

    /// The area that holds all of `span`, if it may change.
    fn single_area(&self, space: &Space<A>, span: PageSpan) -> Result<Area, Error> {
        let area = self.base().view(space).areas().lookup(span.start).0;
        let area = area.ok_or(Error::NoArea(span.start))?;
        if !area.span.covers(span) {
            return Err(Error::NoArea(area.span.end));
        }
        if area.flags.contains(AreaFlags::SEALED) {
            return Err(Error::Sealed(span.start));
        }
        Ok(area)
    }

    /// Extends the area that ends with `old` up to `end`, if there is room.
    fn extend(&self, space: &Space<A>, old: PageSpan, end: Vpn) -> Result<(), Error> {
        let mut change = self.base().change(space);
        change.stock()?;
        let area = self.single_area(space, old)?;
        let more = PageSpan::new(old.end, end);
        let no_room = Error::NoRoom(more.count());
        if area.span.end != old.end {
            return Err(no_room);
        }
        let backing = area.backing.advanced(area.span.count());
        change.writer().set(Area { span: more, backing, ..area }).map_err(|_| no_room)
    }

    /// Moves the pages of `old` to the place that `at` requests and that is free, as an area of
    /// `pages`. A fixed place is unmapped in the same change, so no other mapping gets it
    /// meanwhile.
    fn relocate(
        &self,
        space: &Space<A>,
        old: PageSpan,
        pages: u64,
        at: At,
        left: Old,
    ) -> Result<PageSpan, Error> {
        let mut change = self.base().change(space);
        let area = self.single_area(space, old)?;
        let request = Request::anon(pages).at(at).flags(area.flags);
        let span = self.base().view(space).place(&request, self.align(space, &request))?;
        // The new place is held as well: no page may be mapped there before the pages have moved.
        change.complete(|section| section.prepare_move(old, span, 4))?;
        if matches!(at, At::Fixed(_)) {
            self.clear_out(space, &mut change, span)?;
        }
        change.complete(|section| section.prepare_tables(old, span.start))?;
        space.note(Ever::Moved);
        let backing = area.clipped(old).backing;
        leave(&change, old, left);
        // At the new place, no call has asked yet which pages were written.
        let flags = area.flags - AreaFlags::TRACKED;
        let set = change.writer().set(Area { span, flags, backing, ..area });
        debug_assert!(set.is_ok(), "the tree was stocked and the place is free");
        let nothing = PageSpan::new(old.start, old.start);
        let hole = if left == Old::Goes { self.hole(space, old) } else { nothing };
        change.move_entries(old, span.start, hole);
        if left == Old::Goes {
            // Faults wait until an area that stays is flushed; see `Section::hold`.
            change.open();
        }
        change.count(Event::EntriesMoved);
        Ok(span)
    }

    /// Takes areas and pages out of `span`, which is held and isolated, and flushes.
    fn clear_out(
        &self,
        space: &Space<A>,
        change: &mut Change<'_, A, H>,
        span: PageSpan,
    ) -> Result<(), Error> {
        self.unsealed(space, span)?;
        let cut = change.writer().cut(span, |_| {});
        debug_assert!(cut.is_ok(), "the tree was stocked");
        change.take(span, Taking::All, &|| self.hole(space, span))?;
        change.settle();
        Ok(())
    }
}

/// Cuts or unlocks the area at `old`, whose pages move away.
fn leave<A: Arch, H: Hardware>(section: &Section<'_, A, H>, old: PageSpan, left: Old) {
    let locks = AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
    let done = match left {
        Old::Goes => section.writer().cut(old, |_| {}),
        Old::Stays => {
            let unlocked = |area: Area| Area { flags: area.flags - locks, ..area };
            section.writer().update(old, unlocked)
        }
    };
    debug_assert!(done.is_ok(), "the tree was stocked");
}
