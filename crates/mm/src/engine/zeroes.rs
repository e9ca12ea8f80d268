//! Giving back pages that hold nothing but zeroes: of anonymous memory, a page that is not there
//! reads the same (Linux: the shared zero page, where a folio is split).
//!
//! ```text
//!   looks zero ──► clean, flushed ──► still zero ──► not written since ──► gone
//!     (no lock)    (the areas' lock)    (no lock)     (its table's lock; the right to write first)
//! ```
//!
//! A write that comes in between makes the leaf dirty, or the look fail: the page stays.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Pfn, Vpn};

use super::error::Error;
use super::mm::Mm;
use crate::folio::{Folio, Folios, Known};
use crate::space::{Area, AreaFlags, Space};
use crate::stats::Event;
use crate::table::{Discard, Gather, Sight};

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// Frees the single pages of `span` that hold nothing but zeroes; how many. Those of larger
    /// folios stay, those that others have as well or have pinned, and all in areas that show
    /// files, are locked in memory, or in which writes are [tracked](Self::track).
    ///
    /// # Errors
    /// [`Error::Invalid`] for pages that are not the program's to map; [`Error::NoMemory`] when an
    /// end of the span lies within a large leaf and there is no frame to split it.
    pub fn drop_zeroes(&self, space: &Space<A>, span: PageSpan) -> Result<u64, Error> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        let mut dropped = 0;
        let mut at = span.start;
        while let Some(area) = self.areas(space, PageSpan::new(at, span.end)).next() {
            // As much as one table maps, so that no flush is for long.
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

    /// The first page of `span` that looks like a single one that holds zeroes, and is clean if
    /// that is wanted; and its folio. Nothing keeps it from changing.
    fn next_zero(&self, space: &Space<A>, span: PageSpan, clean: bool) -> Option<(Vpn, Folio)> {
        let folios = Folios::new(self.phys.meta());
        let mut pieces = self.view(space).tables().pieces(span);
        pieces.find_map(|seen| {
            let Sight::Leaf { frame, attrs, .. } = seen.what else { return None };
            if clean && attrs.contains(Attrs::DIRTY) {
                return None;
            }
            (0..seen.pages.count()).find_map(|ahead| {
                let folio = folios.of(frame.add(ahead))?;
                let found = self.is_own_zero(folio, attrs);
                found.then(|| (seen.pages.start.add(ahead), folio))
            })
        })
    }

    /// Whether a folio, mapped with these attributes, is a single page that is nobody else's, that
    /// no device has, and that holds zeroes just now.
    fn is_own_zero(&self, folio: Folio, attrs: Attrs) -> bool {
        let folios = Folios::new(self.phys.meta());
        let single = folio.order == Order::ZERO && !attrs.contains(Attrs::COW);
        // What a device has as well is told from it by being dirty.
        let kept = || folios.known(folio).0.contains(Known::CACHED);
        single && folios.is_sole(folio, 1) && !kept() && self.is_zero(folio.head)
    }

    /// Whether a frame holds nothing but zeroes just now.
    fn is_zero(&self, frame: Pfn) -> bool {
        let words = 1 << (A::PAGE_SHIFT - 3);
        (0..words).all(|at| self.hw.load(frame, at) == 0)
    }

    /// Makes the leaves of single pages that hold zeroes clean, and flushes.
    fn clean_zeroes(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        self.change(space, |section| {
            self.complete(space, section, |section| section.prepare(span, 0))?;
            let forgets = |folio, _, attrs| self.is_own_zero(folio, attrs);
            section.forget(span, Attrs::DIRTY, forgets, |marks| marks);
            Ok(())
        })
    }

    /// Frees the clean pages of `span` that hold zeroes; how many.
    fn drop_clean_zeroes(&self, space: &Space<A>, span: PageSpan) -> u64 {
        let folios = Folios::new(self.phys.meta());
        let (mut gather, mut at, mut dropped) = (Gather::new(), span.start, 0);
        let tables = self.view(space).tables();
        while let Some((page, folio)) = self.next_zero(space, PageSpan::new(at, span.end), true) {
            at = page.add(1);
            let here = PageSpan::new(page, at);
            if tables.first_folio(here, |now| now == folio && folios.hold(now)).is_none() {
                continue;
            }
            match tables.discard(here, folio, &mut gather) {
                Discard::Gone => dropped += 1,
                Discard::Written | Discard::Shared => {
                    if let Some(run) = folios.put(folio) {
                        self.free(run);
                    }
                }
            }
        }
        self.settle(space, &mut gather);
        self.count(Event::ZeroesDropped, dropped);
        dropped
    }
}

/// Whether a page of an area may be taken out if it holds zeroes.
fn may_drop(area: &Area) -> bool {
    area.is_private_anon() && !area.flags.intersects(AreaFlags::LOCKED | AreaFlags::TRACKED)
}
