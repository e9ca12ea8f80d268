//! Guards: pages that must not be touched, without an area of their own (row D4).
//!
//! ```text
//!   one area     | stack of a thread ...        | g | stack of the next ...        | g |
//!   its tables   | leaves | absent | leaf block | marker | ...
//! ```
//!
//! An area for each guard would cost four words and a place in the tree; a guard is a marker, as a
//! swap entry is, and costs what a page's entry costs. Where no table is yet, one marker does for
//! a whole block.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{PageSpan, Vpn};

use super::error::Error;
use super::mm::Mm;
use crate::space::{AreaFlags, Space};
use crate::stats::Event;
use crate::table::{MarkKind, Sight};

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// Makes every page of `span` a guard (`MADV_GUARD_INSTALL`): what is in it is lost, and each
    /// access to it fails with [`Error::Guarded`], until [`unguard`](Self::unguard), or until its
    /// area goes. Guards are inherited, they move with their pages, and neither discarding nor
    /// other rights take them away. All of the span must be mapped.
    ///
    /// # Errors
    /// [`Error::NoArea`] with the first page that no area holds; [`Error::Invalid`] for pages that
    /// are not the program's to map, or locked in memory; [`Error::NoMemory`] when a large leaf
    /// must be split, or a table is missing at an end of the span, and there is no frame for that.
    /// Nothing has changed then.
    pub fn guard(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        self.change(space, |section| {
            self.may_lose(space, span)?;
            self.agree(space, span, |area| match area.flags.contains(AreaFlags::LOCKED) {
                true => Err(Error::Invalid),
                false => Ok(()),
            })?;
            self.complete(space, section, |section| section.prepare(span, 0))?;
            self.complete(space, section, |section| section.ready_to_guard(span))?;
            self.take(space, section, span, &|| PageSpan::new(span.start, span.start))?;
            section.guard(span);
            Ok(())
        })
    }

    /// Takes the guards of `span` away: their pages read as zero again. Other pages stay as they
    /// are (`MADV_GUARD_REMOVE`).
    ///
    /// # Errors
    /// As for [`guard`](Self::guard), but that pages may be locked.
    pub fn unguard(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        self.change(space, |section| {
            self.agree(space, span, |_| Ok(()))?;
            self.complete(space, section, |section| section.prepare(span, 0))?;
            let before = section.entries();
            section.unguard(span);
            self.count(Event::EntriesCleared, section.entries() - before);
            Ok(())
        })
    }

    /// The first page of `span` that is a guard.
    pub fn next_guard(&self, space: &Space<A>, span: PageSpan) -> Option<Vpn> {
        let is_guard = |sight| match sight {
            Sight::Marker(marks) => marks.kind() == Some(MarkKind::Guard),
            Sight::Leaf { .. } => false,
        };
        let mut pieces = self.view(space).tables().pieces(span);
        pieces.find(|seen| is_guard(seen.what)).map(|seen| seen.pages.start)
    }
}
