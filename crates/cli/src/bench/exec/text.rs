//! How text lies in memory when a program has touched it.

use std::collections::BTreeMap;

use quire::FrameUse;
use quire::space::Space;
use quire::table::{Seen, Sight};
use quire_arch::Arch;
use quire_linux::text::{Folding, Folios, Grain, Piece};
use quire_sim::system::HostedMm;
use quire_units::{Order, PageSpan};

use crate::tlb::{self, Block, Misses, Tlb};

/// Pages of 64 KiB.
const CONT: u8 = 4;

/// The layout of text.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Look {
    /// Pages of text that the program touched.
    pub(super) touched: u64,
    /// The touched pages in blocks of 64 KiB that could be one translation, or are part of one.
    pub(super) foldable: u64,
    /// The touched pages that the tables hold as contiguous blocks or larger leaves.
    pub(super) folded: u64,
    /// All text that is mapped, by the sizes of its folios.
    pub(super) folios: Folios,
    /// For each geometry: misses at the first touches, and when all pages are fetched from once
    /// more in the same order.
    pub(super) misses: Vec<[Misses; 2]>,
}

/// A page that is mapped.
#[derive(Clone, Copy)]
struct Page {
    frame: u64,
    /// First frame and order of its folio.
    head: u64,
    order: u8,
    /// The leaf's order.
    leaf: u8,
    folded: bool,
}

/// All text that is mapped.
pub(super) struct Text {
    pages: BTreeMap<u64, Page>,
    folios: Folios,
}

impl Text {
    /// Looks at the areas `spans`, which hold text.
    pub(super) fn new<A: Arch>(
        mm: &HostedMm<'_, '_, A>,
        space: &Space<A>,
        spans: impl Iterator<Item = PageSpan>,
    ) -> Text {
        let mut text = Text { pages: BTreeMap::new(), folios: Folios::default() };
        let page = 1 << A::PAGE_SHIFT;
        for span in spans {
            let mut folding = Folding::new(Grain { page, cont: page << CONT });
            mm.spaces().runs(space, span, &mut |seen| text.add(mm, seen, &mut folding));
            text.folios.add(&folding.done());
        }
        text
    }

    fn add<A: Arch>(&mut self, mm: &HostedMm<'_, '_, A>, seen: &Seen, folding: &mut Folding) {
        let Sight::Leaf { frame, folded, .. } = seen.what else { return };
        for at in 0..seen.pages.count() {
            let (page, frame) = (seen.pages.start.add(at).get(), frame.add(at));
            let (head, order) = match mm.frame_info(frame) {
                Some(info) if matches!(info.used, FrameUse::Folio(_)) => (info.head, info.order),
                _ => (frame, Order::ZERO),
            };
            let (frame, head, order) = (frame.get(), head.get(), order.get());
            let leaf = seen.leaf.get();
            self.pages.insert(page, Page { frame, head, order, leaf, folded });
            let block = leaf > 0;
            folding.add(Piece { page, frame, count: 1, head, order, anon: false, block, folded });
        }
    }

    /// Whether the aligned block of `order` that holds `page` could be one translation: all of it
    /// is there, in one folio, and its frames are aligned as its pages are.
    fn is_block(&self, page: u64, order: u8) -> bool {
        let pages = 1_u64 << order;
        let start = page & !(pages - 1);
        let Some(first) = self.pages.get(&start) else { return false };
        first.order >= order
            && first.frame.is_multiple_of(pages)
            && (1..pages).all(|at| {
                let next = self.pages.get(&(start + at));
                next.is_some_and(|next| (next.frame, next.head) == (first.frame + at, first.head))
            })
    }

    /// The block that an entry of a TLB translates at `page`, where it joins these orders.
    fn unit(&self, page: u64, joins: &[u8]) -> Block {
        let leaf = self.pages.get(&page).map_or(0, |page| page.leaf);
        let joined = joins.iter().find(|order| self.is_block(page, **order));
        Block::of(page, leaf.max(joined.copied().unwrap_or(0)))
    }

    /// The layout for a program that fetched from these pages first in this order.
    pub(super) fn look(&self, fetched: &[u64]) -> Look {
        let count =
            |is: &dyn Fn(u64) -> bool| fetched.iter().filter(|page| is(**page)).count() as u64;
        let page = |page: u64| self.pages.get(&page);
        Look {
            touched: fetched.len() as u64,
            foldable: count(&|at| self.is_block(at, CONT)),
            folded: count(&|at| page(at).is_some_and(|page| page.folded || page.leaf > 0)),
            folios: self.folios,
            misses: tlb::ALL.iter().map(|geometry| self.misses(geometry, fetched)).collect(),
        }
    }

    fn misses(&self, geometry: &tlb::Geometry, fetched: &[u64]) -> [Misses; 2] {
        let mut tlb = Tlb::new(geometry);
        let blocks: Vec<Block> =
            fetched.iter().map(|page| self.unit(*page, geometry.joins)).collect();
        blocks.iter().for_each(|block| tlb.fetch(*block));
        let first = std::mem::take(&mut tlb.misses);
        blocks.iter().for_each(|block| tlb.fetch(*block));
        [first, tlb.misses]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages 32 to 47 show a folio of 16, pages 49 to 64 another one whose frames lie as well, and
    /// pages 80 to 95 sixteen folios of one page beside each other.
    fn text() -> Text {
        let mut pages = BTreeMap::new();
        for at in 0..16 {
            let page = |head, order, frame| Page { frame, head, order, leaf: 0, folded: false };
            pages.insert(32 + at, page(160, 4, 160 + at));
            pages.insert(49 + at, page(176, 4, 176 + at));
            pages.insert(80 + at, page(208 + at, 0, 208 + at));
        }
        Text { pages, folios: Folios::default() }
    }

    #[test]
    fn b6_foldable_is_what_is_whole_aligned_and_one_folio() {
        let mut text = text();
        assert_eq!(text.look(&[32, 47, 49, 64, 80, 200]).foldable, 2);
        // A larger folio whose frames are not aligned where the pages are.
        for at in 0..16 {
            let page = Page { frame: 257 + at, head: 256, order: 5, leaf: 0, folded: false };
            text.pages.insert(112 + at, page);
        }
        assert_eq!(text.look(&[112, 127]).foldable, 0);
        text.pages.remove(&40);
        assert_eq!(text.look(&[32, 47]).foldable, 0, "a page is missing");
    }

    #[test]
    fn b6_an_entry_translates_the_largest_block_that_the_cpu_joins() {
        let mut text = text();
        assert_eq!(text.unit(33, &[4]), Block::of(33, 4));
        assert_eq!(text.unit(33, &[3, 2, 1]), Block::of(33, 3));
        assert_eq!(text.unit(50, &[4]), Block::of(50, 0));
        text.pages.get_mut(&33).unwrap().leaf = 9;
        assert_eq!(text.unit(33, &[3, 2, 1]), Block::of(33, 9));
        let [first, again] = self::text().look(&(32..48).collect::<Vec<_>>()).misses[0];
        assert_eq!((first.walks, again.walks), (1, 0));
    }
}
