//! Guards: pages that fault on access, without an area of their own (row D4).
//!
//! ```text
//!   one area     | stack of a thread ...        | g | stack of the next ...        | g |
//!   its tables   | leaves | absent | leaf block | marker | ...
//! ```
//!
//! An area for each guard would cost four words and a place in the tree; a guard is a marker, as a
//! swap entry is, and costs one entry. Where no table exists yet, one marker guards a whole block.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{PageSpan, Vpn};

use super::Spaces;
use crate::base::Error;
use crate::space::{AreaFlags, Space};
use crate::stats::Event;
use crate::table::{MarkKind, Sight, Taking};

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Makes every page of `span` a guard (`MADV_GUARD_INSTALL`): its contents are lost, and each
    /// access to it fails with [`Error::Guarded`], until [`unguard`](Self::unguard), or until its
    /// area is unmapped. Guards are inherited, they move with their pages, and neither discarding
    /// nor other rights remove them. All of the span must be mapped.
    ///
    /// # Errors
    /// [`Error::NoArea`] with the first page that no area holds; [`Error::Invalid`] for pages that
    /// programs may not map, that are locked in memory, or that show
    /// [frames](Self::map_frames); [`Error::NoMemory`] when a large leaf
    /// must be split, or a table is missing at an end of the span, and there is no frame for that.
    /// Nothing has changed then.
    pub fn guard(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        Self::mappable(span)?;
        let mut change = self.base.change(space);
        self.may_lose(space, span)?;
        Self::agree(self.areas(space, span), span, |area| {
            match area.flags.contains(AreaFlags::LOCKED) {
                true => Err(Error::Invalid),
                false => Ok(()),
            }
        })?;
        self.may_unmap_pages(space, span)?;
        self.cuts_no_folio(space, span)?;
        change.prepare(span, 0)?;
        change.complete(|section| section.ready_to_guard(span))?;
        change.take(span, Taking::All, &|| PageSpan::new(span.start, span.start))?;
        change.guard(span);
        Ok(())
    }

    /// Removes the guards of `span`: their pages read as zero again. Other pages stay as they are
    /// (`MADV_GUARD_REMOVE`).
    ///
    /// # Errors
    /// As for [`guard`](Self::guard), but that pages may be locked.
    pub fn unguard(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        Self::mappable(span)?;
        let mut change = self.base.change(space);
        Self::agree(self.areas(space, span), span, |_| Ok(()))?;
        self.cuts_no_folio(space, span)?;
        change.prepare(span, 0)?;
        change.unguard(span);
        change.count(Event::EntriesCleared);
        Ok(())
    }

    /// The first page of `span` that is a guard.
    pub fn next_guard(&self, space: &Space<A>, span: PageSpan) -> Option<Vpn> {
        let is_guard = |sight| match sight {
            Sight::Marker(marks) => marks.kind() == Some(MarkKind::Guard),
            Sight::Leaf { .. } => false,
        };
        let mut pieces = self.tables(space).pieces(span);
        pieces.find(|seen| is_guard(seen.what)).map(|seen| seen.pages.start)
    }
}
