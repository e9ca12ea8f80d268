//! Resizing and moving areas (`mremap`).

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{PageSpan, Vpn};

use super::Spaces;
use super::change::is_of_blocks;
use crate::base::{Change, Error};
use crate::space::{Area, AreaFlags, At, Ever, Request, Space};
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

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// See `Mm::remap`.
    pub(crate) fn remap(
        &self,
        space: &Space<A>,
        old: PageSpan,
        pages: u64,
        how: Move,
    ) -> Result<PageSpan, Error> {
        let new = PageSpan::at(old.start, pages).ok_or(Error::Invalid)?;
        Self::mappable(old)?;
        Self::mappable(new)?;
        let area = self.single_area(space, old)?;
        let whole = self.base.whole(area.backing);
        if let Some(order) = whole {
            is_of_blocks(old, order).and_then(|()| is_of_blocks(new, order))?;
        }
        let is_fixed = area.is_of_frames() || whole.is_some();
        if is_fixed && (pages > old.count() || matches!(how, Move::Keep(_))) {
            return Err(Error::Invalid);
        }
        let target = match how {
            Move::To(page) => Some(At::Fixed(page)),
            Move::Keep(at) if pages == old.count() => Some(at),
            Move::Keep(_) => return Err(Error::Invalid),
            Move::Never | Move::Allowed => None,
        };
        if let Some(At::Fixed(page)) = target {
            let target = PageSpan::at(page, pages).ok_or(Error::Invalid)?;
            if !Space::<A>::may_map(target) || target.overlaps(old) {
                return Err(Error::Invalid);
            }
            whole.map_or(Ok(()), |order| is_of_blocks(target, order))?;
            self.cuts_no_folio(space, target)?;
        }
        let kept = old.intersect(new);
        if kept != old {
            self.unmap(space, PageSpan::new(kept.end, old.end))?;
        }
        if let Some(at) = target {
            return self.relocate(space, kept, pages, at, matches!(how, Move::Keep(_)));
        }
        if kept == new {
            return Ok(new);
        }
        match self.extend(space, old, new.end) {
            Err(Error::NoRoom(_)) if how == Move::Allowed => {
                self.relocate(space, old, pages, At::Anywhere, false)
            }
            extended => extended.map(|()| new),
        }
    }

    /// The area that holds all of `span`, if it may change.
    pub(super) fn single_area(&self, space: &Space<A>, span: PageSpan) -> Result<Area, Error> {
        let area = self.base.view(space).areas().lookup(span.start).0;
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
        let mut change = self.base.change(space);
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
    /// meanwhile. With `stays` the area at `old` stays, no longer locked in memory.
    fn relocate(
        &self,
        space: &Space<A>,
        old: PageSpan,
        pages: u64,
        at: At,
        stays: bool,
    ) -> Result<PageSpan, Error> {
        let mut change = self.base.change(space);
        let area = self.single_area(space, old)?;
        let request = Request::anon(pages).at(at).flags(area.flags);
        let request = match area.is_of_frames() {
            true => Request { backing: area.clipped(old).backing, ..request },
            false => request,
        };
        let span = self.base.view(space).place(&request, self.align(space, &request))?;
        // The new place is held as well: no page may be mapped there before the pages have moved.
        change.complete(|section| section.prepare_move(old, span, 4))?;
        if matches!(at, At::Fixed(_)) {
            self.clear_out(space, &mut change, span)?;
        }
        let mut left = old;
        change.complete(|section| section.prepare_tables(&mut left, old.start, span.start))?;
        space.note(Ever::Moved);
        if area.is_of_frames() {
            space.note_frames(span.start);
        }
        let backing = area.clipped(old).backing;
        let locks = AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
        let unlocked = |area: Area| Area { flags: area.flags - locks, ..area };
        let left = match stays {
            true => change.writer().update(old, unlocked),
            false => change.writer().cut(old),
        };
        // At the new place, no call has asked yet which pages were written.
        let keeps = area.flags.contains(AreaFlags::WATCH_MOVED);
        let watch = if keeps { AreaFlags::empty() } else { AreaFlags::WATCH };
        let flags = area.flags - AreaFlags::TRACKED - watch;
        let set = change.writer().set(Area { span, flags, backing, ..area });
        debug_assert!(left.and(set).is_ok(), "the tree was stocked and the place is free");
        let hole = if stays { PageSpan::new(old.start, old.start) } else { self.hole(space, old) };
        // Both places are held until the end, which flushes: the frames live on at the new place,
        // and a CPU that took them out there would flush that place only.
        change.move_entries(old, span.start, hole);
        if !keeps && area.flags.contains(AreaFlags::WATCH_WRITE) {
            Self::unshield_moved(&mut change, span, area.prot);
        }
        change.count(Event::EntriesMoved);
        Ok(span)
    }

    /// Takes areas and pages out of `span`, which is held and isolated, and flushes.
    pub(super) fn clear_out(
        &self,
        space: &Space<A>,
        change: &mut Change<'_, A, H>,
        span: PageSpan,
    ) -> Result<(), Error> {
        self.unsealed(space, span)?;
        self.cuts_no_folio(space, span)?;
        let cut = change.writer().cut(span);
        debug_assert!(cut.is_ok(), "the tree was stocked");
        change.take(span, Taking::All, &|| self.hole(space, span))?;
        change.settle();
        Ok(())
    }
}
