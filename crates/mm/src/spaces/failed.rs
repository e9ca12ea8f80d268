//! Memory that fails in anonymous folios: a marker takes the place of the page (row D4).

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Pfn, Vpn};

use super::Spaces;
use crate::base::Error;
use crate::folio::FolioFlags;
use crate::space::Space;
use crate::table::{Division, Eviction, Gather, MarkKind, Seen, Sight};

/// The effect of failed memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The file's store has the same contents: a later access reads them again.
    Nothing,
    /// It held the only copy. An access to its page returns
    /// [`Error::Poisoned`](crate::base::Error::Poisoned).
    Content,
    /// No space maps it, and no file has it: it is free, a table, or the embedder's. Nothing has
    /// changed, and the frame stays in use.
    Elsewhere,
}

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Puts markers where a space maps `frame` as anonymous memory.
    pub(crate) fn fail_in_space(
        &self,
        space: &Space<A>,
        frame: Pfn,
        keeps: &mut bool,
    ) -> Result<(), Error> {
        let mut at = Vpn::new(0);
        while let Some((page, leaf)) = self.next_of(space, at, frame) {
            // Whether it was split or other spaces share it: it is mapped by leaves of one page
            // then.
            if leaf > Order::ZERO || self.base.folios().of(frame).is_some() {
                self.divide(space, page, Division::Around(page, Order::ZERO))?;
            }
            if self.next_of(space, page, frame).is_some_and(|(_, leaf)| leaf > Order::ZERO) {
                self.split_leaf(space, page, A::block_order())?;
                continue;
            }
            self.mark_failed(space, page, frame, keeps);
            at = page.add(1);
        }
        Ok(())
    }

    /// The first page from `at` on that maps `frame`, and the size of its leaf.
    fn next_of(&self, space: &Space<A>, at: Vpn, frame: Pfn) -> Option<(Vpn, Order)> {
        let ahead = |seen: &Seen| match seen.what {
            Sight::Leaf { frame: first, .. } if !seen.is_foreign() => {
                frame.get().checked_sub(first.get()).filter(|ahead| *ahead < seen.pages.count())
            }
            _ => None,
        };
        let all = PageSpan::new(at, Vpn::new(A::USER_PAGES));
        let mut pieces = self.tables(space).pieces(all);
        pieces.find_map(|seen| ahead(&seen).map(|ahead| (seen.pages.start.add(ahead), seen.leaf)))
    }

    fn mark_failed(&self, space: &Space<A>, page: Vpn, frame: Pfn, keeps: &mut bool) {
        let folios = self.base.folios();
        let Some(folio) = folios.of(frame) else { return };
        let mut gather = Gather::new();
        let _taking = space.taking();
        let what = Eviction { most: Order::ZERO, tracks: false };
        let here = PageSpan::block(page, Order::ZERO);
        let which = |_| (folio, here.end);
        let _ = self.tables(space).evict(here, what, &mut gather, which, |_, frames, _| {
            if frames.start != frame || frames.count != 1 {
                return None;
            }
            // A folio with another failed frame, or one from an interrupted call, is held already.
            if !*keeps {
                *keeps = folios.known(folio).0.contains(FolioFlags::POISONED) || folios.hold(folio);
                folios.poison(folio);
            }
            keeps.then(|| MarkKind::Poison.payload(frame.get()))
        });
        self.base.settle(space, &mut gather);
    }
}
