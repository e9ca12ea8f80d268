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
use crate::base::Error;
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
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        let mut tracked = false;
        self.base().change(space, |_| {
            self.may_lose(space, span)?;
            self.agree(space, span, |area| {
                tracked |= area.flags.contains(AreaFlags::TRACKED);
                let fits = area.is_private_anon() && !area.flags.contains(AreaFlags::LOCKED);
                if fits { Ok(()) } else { Err(Error::Invalid) }
            })
        })?;
        if tracked {
            return self.discard(space, span);
        }
        self.divide_at(space, span.start)?;
        self.divide_at(space, span.end)?;
        self.drop_swapped(space, span)?;
        self.base().change(space, |section| {
            self.base().complete(space, section, |section| section.prepare(span, 0))?;
            let mut pages = 0;
            let forgets = |folio, piece: FrameSpan, attrs| {
                let lazy = self.may_be_lazy(folio, piece, attrs);
                pages += if lazy { piece.count } else { 0 };
                lazy
            };
            section.forget(span, Attrs::YOUNG | Attrs::DIRTY, forgets, |marks| marks);
            self.base().count(Event::LazyFree, pages);
            Ok(())
        })
    }

    /// Frees pages without an access for `idle` rounds lazily, in the areas of `span` whose
    /// contents may be lost at any time (Linux: `MAP_DROPPABLE`): written or not, they leave like
    /// lazily freed pages unless they are written once more.
    ///
    /// # Errors
    /// [`Error::NoMemory`] when a large leaf must be split and there is no frame for that: its
    /// pages stay.
    pub(crate) fn let_go_droppable(
        &self,
        space: &Space<A>,
        span: PageSpan,
        idle: u32,
    ) -> Result<(), Error> {
        let folios = self.base().folios();
        let droppable = |area: &Area| area.flags.contains(AreaFlags::DROPPABLE);
        if !space.has(Ever::Droppable) || !self.areas(space, span).any(|area| droppable(&area)) {
            return Ok(());
        }
        self.base().change(space, |section| {
            let mut pages = 0;
            for area in self.base().view(space).areas().overlapping(span).filter(droppable) {
                let part = area.span.intersect(span);
                self.base().complete(space, section, |section| section.prepare(part, 0))?;
                let forgets = |folio: Folio, piece: FrameSpan, attrs| {
                    let is_new = !folios.is_lazy(folio) && folios.idle(folio) >= idle;
                    let lazy = is_new && self.may_be_lazy(folio, piece, attrs);
                    pages += if lazy { piece.count } else { 0 };
                    lazy
                };
                section.forget(part, Attrs::DIRTY, forgets, |marks| marks);
            }
            self.base().count(Event::LazyFree, pages);
            Ok(())
        })
    }

    /// Makes a folio lazily free, if `piece`, mapped with these attributes, is all of it and no
    /// other space has it. Its table is locked.
    fn may_be_lazy(&self, folio: Folio, piece: FrameSpan, attrs: Attrs) -> bool {
        let folios = self.base().folios();
        let whole = piece == folio.span();
        let own = !attrs.contains(Attrs::COW) && folios.is_sole(folio, piece.count as u32);
        if whole && own {
            folios.set_lazy(folio, true);
        }
        whole && own
    }

    /// Splits the folio that lies across the boundary before `page`, if possible.
    fn divide_at(&self, space: &Space<A>, page: Vpn) -> Result<(), Error> {
        if page.get() >= A::USER_PAGES {
            return Ok(());
        }
        let seen = self.base().view(space).tables().look(PageSpan::block(page, Order::ZERO));
        let Some(Sight::Leaf { frame, .. }) = seen.map(|seen| seen.what) else { return Ok(()) };
        let folios = self.base().folios();
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
            let mut pieces = self.base().view(space).tables().pieces(PageSpan::new(at, span.end));
            let there =
                pieces.find(|seen| matches!(seen.what, Sight::Marker(marks) if is_lost(marks)));
            let Some(there) = there else { return Ok(()) };
            self.discard(space, there.pages)?;
            at = there.pages.end;
        }
    }

    /// How many pages of `span` may be lost unless a program writes them again.
    pub fn lazily_free(&self, space: &Space<A>, span: PageSpan) -> u64 {
        let folios = self.base().folios();
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
