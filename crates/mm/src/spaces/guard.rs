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
    /// See `Mm::guard`.
    pub(crate) fn guard(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        let mut change = self.change(space, span)?;
        self.may_lose(space, span)?;
        self.agree(space, span, |area| match area.flags.contains(AreaFlags::LOCKED) {
            true => Err(Error::Invalid),
            false => Ok(()),
        })?;
        change.prepare(span, 0)?;
        change.complete(|section| section.ready_to_guard(span))?;
        change.take(span, Taking::All, &|| PageSpan::new(span.start, span.start))?;
        change.guard(span);
        Ok(())
    }

    /// See `Mm::unguard`.
    pub(crate) fn unguard(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        let mut change = self.change(space, span)?;
        self.agree(space, span, |_| Ok(()))?;
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
        let mut pieces = self.base().view(space).tables().pieces(span);
        pieces.find(|seen| is_guard(seen.what)).map(|seen| seen.pages.start)
    }
}
