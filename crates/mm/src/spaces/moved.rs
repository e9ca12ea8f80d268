//! Moving pages into a watched area (row D8; Linux: `UFFDIO_MOVE`): the content of this answer is
//! memory that the space has elsewhere.
//!
//! ```text
//!   from   | A | A+1 |   | B |           A move ends before the first page that is missing at the
//!            │    │                      source, or present at the target. Entries move; memory
//!   to     | A | A+1 |   |   |           does not.
//! ```

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{PageSpan, Prot, Vpn};

use super::Spaces;
use super::outcome::Answered;
use crate::base::{Error, Stop};
use crate::space::{Area, AreaFlags, Backing, Ever, Space};
use crate::stats::Event;
use crate::table::Seen;

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Moves what is mapped at the pages of `from` to the pages from `to` on, in the same space,
    /// and leaves the source absent: an answer of a watcher that copies nothing. Runs of entries
    /// move, and whole tables where both places are aligned alike; a folio that moves in part
    /// stays one folio. With `holes`, pages that are missing at the source stay missing at the
    /// target, and count as moved. The target's pages are not protected for a watcher then, and
    /// count as [written](crate::is_written).
    ///
    /// Each place must lie in one area, private, anonymous and writable; both areas with the same
    /// rights and locks, and the target's watched.
    ///
    /// [`Answered::end`] has the reason why not all pages were moved: [`Error::Present`] with a
    /// page of the target that is there, [`Error::Missing`] with a page of the source that is not;
    /// [`Error::NoArea`] with a page that has no area; [`Error::Sealed`]; [`Error::Invalid`] for
    /// other areas, for places that overlap, and for pages that programs may not map;
    /// [`Error::NoMemory`] when a leaf must be split or a table made: then nothing has moved, but
    /// absent pages of the target may no longer be protected.
    pub fn move_pages(&self, space: &Space<A>, from: PageSpan, to: Vpn, holes: bool) -> Answered {
        let mut pages = 0;
        let end = self.move_part(space, from, to, holes, &mut pages);
        Answered { pages, end: end.map_err(Stop::from) }
    }

    fn move_part(
        &self,
        space: &Space<A>,
        from: PageSpan,
        to: Vpn,
        holes: bool,
        pages: &mut u64,
    ) -> Result<(), Error> {
        let there = PageSpan::at(to, from.count()).ok_or(Error::Invalid)?;
        Self::mappable(from)?;
        Self::mappable(there)?;
        let mut change = self.base.change(space);
        let (area, target) = self.movable(space, from, there)?;
        change.complete(|section| section.prepare_move(from, there, 0))?;
        // Faults wait from here on.
        let (count, end) = self.free_way(space, from, there, holes);
        if count == 0 {
            return end;
        }
        let part = |span: PageSpan| PageSpan::new(span.start, span.start.add(count));
        let (from, there) = (part(from), part(there));
        // A leaf may reach across the new end.
        change.complete(|section| section.prepare_move(from, there, 2))?;
        let mut left = from;
        #[cfg(feature = "watch")]
        change.unmark_watched(there);
        change.complete(|section| section.prepare_tables(&mut left, from.start, to))?;
        space.note(Ever::Moved);
        if target.flags.contains(AreaFlags::TRACKED) {
            // No call has asked yet which of the pages were written.
            let asked = |area: Area| Area { flags: area.flags - AreaFlags::TRACKED, ..area };
            let updated = change.writer().update(there, asked);
            debug_assert!(updated.is_ok(), "the tree was stocked");
        }
        change.move_entries(from, to, PageSpan::new(from.start, from.start));
        if area.flags.contains(AreaFlags::WATCH_WRITE) {
            Self::unshield_moved(&mut change, there, area.prot);
        }
        change.count(Event::EntriesMoved);
        *pages = count;
        end
    }

    /// The areas of `from` and `to`, if pages may move from one to the other.
    fn movable(
        &self,
        space: &Space<A>,
        from: PageSpan,
        to: PageSpan,
    ) -> Result<(Area, Area), Error> {
        let (source, target) = (self.single_area(space, from)?, self.single_area(space, to)?);
        let locks = AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT;
        let fits = |area: &Area| {
            area.backing == Backing::Anon
                && !area.flags.contains(AreaFlags::SHARED)
                && area.prot.contains(Prot::WRITE)
        };
        let alike = source.prot == target.prot
            && source.flags.intersection(locks) == target.flags.intersection(locks);
        match fits(&source) && fits(&target) && alike && !from.overlaps(to) {
            true if target.flags.intersects(AreaFlags::WATCH) => Ok((source, target)),
            true => Err(Error::NoArea(to.start)),
            false => Err(Error::Invalid),
        }
    }

    /// How many pages of `from` can move to `to`, from the first on, and why no more.
    fn free_way(
        &self,
        space: &Space<A>,
        from: PageSpan,
        to: PageSpan,
        holes: bool,
    ) -> (u64, Result<(), Error>) {
        let tables = self.tables(space);
        // A page that only a watcher's marker stands for is absent.
        let there = |seen: &Seen| !seen.is_shielded();
        let present = tables.pieces(to).find(there).map_or(to.end, |seen| seen.pages.start);
        let mut whole = from.start;
        for seen in tables.pieces(from).filter(there) {
            if seen.pages.start > whole {
                break;
            }
            whole = seen.pages.end;
        }
        let (free, full) = (present.offset_from(to.start), whole.offset_from(from.start));
        match full < free.min(from.count()) && !holes {
            true => (full, Err(Error::Missing(whole))),
            false if present < to.end => (free, Err(Error::Present(present))),
            false => (from.count(), Ok(())),
        }
    }
}
