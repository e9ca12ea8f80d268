//! Freeing folios that hold nothing but zeroes: an absent page of anonymous memory reads the same
//! (Linux: the shared zero page, where a folio is split).
//!
//! ```text
//!   looks zero ──► clean, flushed ──► still zero ──► not written since ──► gone
//!     (no lock)    (the areas' lock)    (no lock)     (its table's lock; the right to write first)
//! ```
//!
//! A write in between makes the leaf dirty, or the check fail: the page stays.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{FrameSpan, PageSpan};

use super::Reclaim;
use crate::base::Error;
use crate::folio::{Folio, FolioFlags};
use crate::space::{Area, AreaFlags, Space};
use crate::stats::Event;
use crate::table::{Discard, Gather, Sight};

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// Frees the folios in `span` that hold nothing but zeroes; returns how many pages. Shared and
    /// pinned ones stay, and all in areas that map files, are locked in memory, or in which writes
    /// are [tracked](crate::Spaces::track).
    ///
    /// # Errors
    /// [`Error::Invalid`] for pages that programs may not map; [`Error::NoMemory`] when an end of
    /// the span lies within a large leaf and there is no frame to split it.
    pub fn drop_zeroes(&self, space: &Space<A>, span: PageSpan) -> Result<u64, Error> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        let mut dropped = 0;
        let mut at = span.start;
        while let Some(area) = self.spaces().areas(space, PageSpan::new(at, span.end)).next() {
            // At most the span of one table, so that no flush takes long.
            let start = area.span.start.max(at);
            let block = PageSpan::block(start, A::block_order());
            let part = PageSpan::new(start, block.end.min(area.span.end).min(span.end));
            if may_drop(&area) && self.next_zero(space, part, false).is_some() {
                self.clean_zeroes(space, part)?;
                dropped += self.drop_clean_zeroes(space, part);
            }
            at = part.end;
        }
        Ok(dropped)
    }

    /// The first folio in `span` that seems to hold zeroes, and is clean if `clean` says so; and
    /// its pages. It may change at any time.
    fn next_zero(
        &self,
        space: &Space<A>,
        span: PageSpan,
        clean: bool,
    ) -> Option<(PageSpan, Folio)> {
        let folios = self.base().folios();
        let mut pieces = self.base().view(space).tables().pieces(span);
        pieces.find_map(|seen| {
            let Sight::Leaf { frame, attrs, .. } = seen.what else { return None };
            if clean && attrs.contains(Attrs::DIRTY) {
                return None;
            }
            let (mut at, mut found) = (seen.pages.start, None);
            folios.each(FrameSpan::new(frame, seen.pages.count()), |folio, piece| {
                let pages = PageSpan::new(at, at.add(piece.count));
                at = pages.end;
                found = self.is_own_zero(folio, piece, attrs).then_some((pages, folio));
                found.is_none()
            });
            found
        })
    }

    /// Whether a folio, of which `piece` is mapped with these attributes, is exclusive and on no
    /// device, and holds zeroes just now.
    fn is_own_zero(&self, folio: Folio, piece: FrameSpan, attrs: Attrs) -> bool {
        let folios = self.base().folios();
        let whole = piece == folio.span() && !attrs.contains(Attrs::COW);
        // A folio that a device has as well differs from it if it is dirty.
        let kept = || folios.known(folio).0.contains(FolioFlags::CACHED);
        whole && folios.is_sole(folio, piece.count as u32) && !kept() && self.is_zero(piece)
    }

    /// Whether frames hold nothing but zeroes just now.
    pub(super) fn is_zero(&self, frames: FrameSpan) -> bool {
        let words = 1 << (A::PAGE_SHIFT - 3);
        let is_zero = |at| self.base().hw.count_run(frames.start.add(at), 0, words, 0, 0) == words;
        (0..frames.count).all(is_zero)
    }

    /// Cleans the leaves of folios that hold zeroes, and flushes.
    fn clean_zeroes(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        let folios = self.base().folios();
        let mut change = self.base().change(space);
        change.prepare(span, 0)?;
        // Tracking may have begun since the caller looked.
        if !self.spaces().areas(space, span).all(|area| may_drop(&area)) {
            return Ok(());
        }
        let forgets = |folio, piece, attrs| {
            let is_zero = self.is_own_zero(folio, piece, attrs);
            // A cleared dirty bit would no longer show whether it was written since it was freed.
            if is_zero && folios.is_lazy(folio) {
                folios.set_lazy(folio, false);
            }
            is_zero
        };
        change.forget(span, Attrs::DIRTY, forgets, |marks| marks);
        Ok(())
    }

    /// Frees the clean folios in `span` that hold zeroes; returns how many pages.
    fn drop_clean_zeroes(&self, space: &Space<A>, span: PageSpan) -> u64 {
        let folios = self.base().folios();
        let (mut gather, mut at, mut dropped) = (Gather::new(), span.start, 0);
        let view = self.base().view(space);
        let tables = view.tables();
        // A discard flushes under its table's lock: no change finds a leaf gone before its flush.
        while let Some((here, folio)) = self.next_zero(space, PageSpan::new(at, span.end), true) {
            at = here.end;
            if tables.find(here, folio, || folios.hold(folio)).is_none() {
                continue;
            }
            // The look above may have come between another CPU's clear of the dirty bits and its
            // flush: a store meanwhile set none. With the table locked, and no change there, each
            // store since this look does.
            let may = view.areas_allow(here, may_drop);
            let may = may.map(|may| || may() && self.is_zero(folio.span()));
            let gone = may.map(|may| tables.discard(here, folio, &mut gather, may));
            match gone.unwrap_or(Discard::Shared) {
                Discard::Gone => dropped += here.count(),
                Discard::Written | Discard::Shared => self.base().put(folio),
            }
        }
        self.base().settle(space, &mut gather);
        self.base().count(Event::ZeroesDropped, dropped);
        dropped
    }
}

/// The flags of areas that show whether a page is there.
const SHOWN: AreaFlags = AreaFlags::LOCKED.union(AreaFlags::TRACKED).union(AreaFlags::WATCH);

/// Whether folios of zeroes may be taken out of an area.
pub(super) fn may_drop(area: &Area) -> bool {
    area.is_private_anon() && !area.flags.intersects(SHOWN)
}
