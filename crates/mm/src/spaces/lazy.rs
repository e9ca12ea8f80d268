//! Memory whose contents may be lost unless a program writes it again (`MADV_FREE`; row D4, I14).
//!
//! ```text
//!   freed lazily          written again           memory is short
//!   leaves clean, ──────► the hardware notes ───► dirty: an ordinary folio again
//!   folio marked   └────────────────────────────► clean: gone, and reads as zero
//! ```
//!
//! The dirty bits record later writes, and no other state does: before reclaim reads the leaves for
//! the last time, it write-protects them. So a program that goes on using memory that it freed pays
//! nothing for that where the hardware sets dirty bits by itself.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, PageSpan, Vpn};

use super::Spaces;
use crate::base::{Change, Error};
use crate::folio::Folio;
use crate::space::{Area, AreaFlags, Ever, Space};
use crate::stats::Event;
use crate::table::{Division, MarkKind, Marks, Sight};

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Lets reclaim take the memory of `span` ([`reclaim`](crate::Reclaim::reclaim),
    /// [`page_out`](crate::Paging::page_out)): until then, or until a page is written, reads return
    /// the old contents, and then zeroes (`MADV_FREE`). Pages on a swap device are lost at once,
    /// and a page whose memory failed is a new one. Shared folios stay as they are; a folio that is
    /// only partly in the span is split there if possible.
    ///
    /// In areas in which writes are [tracked](Self::track) the content is lost at once.
    ///
    /// # Errors
    /// [`Error::NoArea`] with the first page that no area holds; [`Error::Invalid`] for pages that
    /// programs may not map, and where an area is not private and anonymous, or locked in memory;
    /// nothing has changed then. [`Error::NoMemory`] when a large leaf must be split and there is
    /// no frame for that: memory before it is freed lazily then.
    pub fn free_lazily(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        Self::mappable(span)?;
        if self.tracks(space, span)? {
            return self.discard(space, span);
        }
        self.divide_at(space, span.start)?;
        self.divide_at(space, span.end)?;
        self.drop_swapped(space, span)?;
        let mut change = self.base.change(space);
        change.prepare(span, 0)?;
        self.free_leaves(&mut change, span, Attrs::YOUNG | Attrs::DIRTY, |_| true);
        Ok(())
    }

    /// Whether writes are tracked in a part of `span`, all of which may be freed lazily.
    #[inline(never)]
    fn tracks(&self, space: &Space<A>, span: PageSpan) -> Result<bool, Error> {
        let _change = self.base.change(space);
        self.may_lose(space, span)?;
        let mut tracked = false;
        Self::agree(self.areas(space, span), span, |area| {
            tracked |= area.flags.contains(AreaFlags::TRACKED);
            let fits = area.is_private_anon() && !area.flags.contains(AreaFlags::LOCKED);
            if fits { Ok(()) } else { Err(Error::Invalid) }
        })?;
        Ok(tracked)
    }

    /// Makes the folios in `span` that are `wanted`, whole and exclusive lazily free, and clears
    /// `noted` in their leaves.
    fn free_leaves(
        &self,
        change: &mut Change<'_, A, H>,
        span: PageSpan,
        noted: Attrs,
        wanted: impl Fn(Folio) -> bool,
    ) {
        let folios = self.base.folios();
        let mut pages = 0;
        let forgets = |folio: Folio, piece: FrameSpan, attrs: Attrs| {
            let whole = piece == folio.span();
            let own = !attrs.contains(Attrs::COW) && folios.is_sole(folio, piece.count as u32);
            let lazy = whole && own && wanted(folio);
            if lazy {
                folios.set_lazy(folio, true);
                pages += piece.count;
            }
            lazy
        };
        change.forget(span, noted, forgets, |marks| marks);
        self.base.count(Event::LazyFree, pages);
    }

    /// Frees pages without an access for `idle` rounds lazily, in the areas of `span` whose
    /// contents may be lost at any time (Linux: `MAP_DROPPABLE`): written or not, they leave like
    /// lazily freed pages unless they are written once more.
    ///
    /// # Errors
    /// [`Error::NoMemory`] when a large leaf must be split and there is no frame for that: its
    /// pages stay.
    #[inline(never)]
    pub(crate) fn let_go_droppable(
        &self,
        space: &Space<A>,
        span: PageSpan,
        idle: u32,
    ) -> Result<(), Error> {
        let folios = self.base.folios();
        let droppable = |area: &Area| area.flags.contains(AreaFlags::DROPPABLE);
        if !space.has(Ever::Droppable) || !self.areas(space, span).any(|area| droppable(&area)) {
            return Ok(());
        }
        let mut change = self.base.change(space);
        for area in self.areas(space, span).filter(droppable) {
            let part = area.span.intersect(span);
            change.prepare(part, 0)?;
            let is_old = |folio| !folios.is_lazy(folio) && folios.idle(folio) >= idle;
            self.free_leaves(&mut change, part, Attrs::DIRTY, is_old);
        }
        Ok(())
    }

    /// Splits the folio that lies across the boundary before `page`, if possible.
    fn divide_at(&self, space: &Space<A>, page: Vpn) -> Result<(), Error> {
        if page.get() >= A::USER_PAGES {
            return Ok(());
        }
        let seen = self.tables(space).look(PageSpan::block(page, Order::ZERO));
        let Some(Sight::Leaf { frame, .. }) = seen.map(|seen| seen.what) else { return Ok(()) };
        let folios = self.base.folios();
        match folios.of(frame) {
            Some(folio) if folio.head < frame => {
                self.divide(space, page, Division::Around(page, Order::ZERO)).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    /// Removes the swap entries of `span`, and the marks of pages whose memory failed.
    fn drop_swapped(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        let mut at = span.start;
        let is_lost =
            |marks: Marks| matches!(marks.kind(), Some(MarkKind::Swap | MarkKind::Poison));
        loop {
            let mut pieces = self.tables(space).pieces(PageSpan::new(at, span.end));
            let there =
                pieces.find(|seen| matches!(seen.what, Sight::Marker(marks) if is_lost(marks)));
            let Some(there) = there else { return Ok(()) };
            self.discard(space, there.pages)?;
            at = there.pages.end;
        }
    }

    /// How many pages of `span` may be lost unless a program writes them again.
    pub fn lazily_free(&self, space: &Space<A>, span: PageSpan) -> u64 {
        let folios = self.base.folios();
        let mut pages = 0;
        self.runs(space, span, &mut |seen| {
            let Sight::Leaf { frame, attrs, .. } = seen.what else { return };
            if !attrs.intersects(Attrs::DIRTY | Attrs::COW) {
                folios.each(FrameSpan::new(frame, seen.pages.count()), |folio, piece| {
                    pages += if folios.is_lazy(folio) { piece.count } else { 0 };
                    true
                });
            }
        });
        pages
    }
}
