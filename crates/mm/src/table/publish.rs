//! Code: before a leaf lets programs execute frames, instruction fetches must see what the library
//! and devices wrote to them.
//!
//! All leaves are shown by [`put`](Locked::put), [`regrant`](Locked::regrant) or
//! [`note`](Locked::note), and each of them comes here first. So no path can forget it. The folio's
//! slot remembers it ([`FolioFlags::PUBLISHED`](crate::folio::FolioFlags::PUBLISHED)): it is done
//! once for each folio, however often that is mapped.
//!
//! Cost: leaves that cannot be executed pay a test of their attributes, once for a run of entries.
//! A run of code pays one load of each folio's state, which the fault has read before. The first
//! one pays the lock of the folio's slot, and what the CPU needs.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::Pfn;

use super::Locked;
use crate::folio::Folios;

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// `count` leaves, from `frame` on, are about to go from the attributes `was` to `now`. Where
    /// they become executable, publishes the folios they map that are not published yet. Frames
    /// that belong to no folio are the embedder's care.
    #[inline(always)]
    pub(super) fn publish(&self, frame: Pfn, count: usize, was: Attrs, now: Attrs) {
        if now.difference(was).contains(Attrs::EXEC) {
            self.publish_folios(frame, count);
        }
    }

    #[inline(never)]
    fn publish_folios(&self, frame: Pfn, count: usize) {
        let (folios, frames) = (Folios::new(self.tables.meta), self.frames(frame, count));
        // Mostly one folio has them all, which the walk over many is slow for.
        if let Some(folio) = folios.of(frame).filter(|folio| folio.span().covers(frames)) {
            return folios.publish(self.tables.hw, folio);
        }
        folios.each(frames, |folio, _| {
            folios.publish(self.tables.hw, folio);
            true
        });
    }
}
