//! Searching for free pages.

use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Pfn, Vpn};

use super::node::{Node, Nodes};
use super::root::{DEPTH_MAX, Root};

/// Which of the fitting places to take.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Placement {
    /// The highest: the usual one of `mmap`.
    #[default]
    TopDown,
    /// The lowest.
    #[cfg_attr(not(feature = "inject"), allow(dead_code, reason = "for comparisons"))]
    BottomUp,
}

/// How many gaps are tried that may have no aligned place.
const TRIES: usize = 32;

/// A search for a gap: at least `pages` of it must lie in `low..high`.
#[derive(Clone, Copy, Debug)]
struct Search {
    pages: u64,
    low: u64,
    high: u64,
    placement: Placement,
}

impl Search {
    /// The part of the gap `from..to` that counts, if it is long enough.
    #[inline]
    fn fit(&self, from: u64, to: u64) -> Option<(u64, u64)> {
        let (from, to) = (from.max(self.low), to.min(self.high));
        (to.saturating_sub(from) >= self.pages).then_some((from, to))
    }

    /// The aligned place in a gap, if there is one.
    fn place(&self, (from, to): (u64, u64), align: Order) -> Option<PageSpan> {
        let start = match self.placement {
            Placement::TopDown => Vpn::new(to - self.pages).align_down(align.pages()),
            Placement::BottomUp => Vpn::new(from).align_up(align.pages())?,
        };
        let place = PageSpan::at(start, self.pages)?;
        (start.get() >= from && place.end.get() <= to).then_some(place)
    }

    /// The rest of the search after a gap was tried.
    fn beyond(self, (from, to): (u64, u64)) -> Self {
        match self.placement {
            Placement::TopDown => Self { high: from, ..self },
            Placement::BottomUp => Self { low: to, ..self },
        }
    }
}

/// How many more nodes a descent may enter. In a sound tree only the two children of a level that
/// hold an end of `low..high` can have no fitting gap in spite of their summary.
struct Budget(usize);

impl<H: Hardware, const CAP: usize> Nodes<'_, H, CAP> {
    /// See [`TreeReader::find_gap`](super::TreeReader::find_gap).
    pub(super) fn find_gap(
        &self,
        root: Root,
        pages: u64,
        align: Order,
        within: PageSpan,
        placement: Placement,
    ) -> Option<PageSpan> {
        if pages == 0 {
            return None;
        }
        let (low, high) = (within.start.get(), within.end.get());
        let all = Search { pages, low, high, placement };
        let mut left = all;
        for _ in 0..TRIES {
            let gap = self.gap(root, &left)?;
            if let Some(place) = left.place(gap, align) {
                return Some(place);
            }
            left = left.beyond(gap);
        }
        let sure = Search { pages: pages.checked_add(align.pages() - 1)?, ..left };
        all.place(self.gap(root, &sure)?, align)
    }

    /// The first gap, in the order of the placement, that fits.
    fn gap(&self, root: Root, search: &Search) -> Option<(u64, u64)> {
        if root.depth == 0 {
            return search.fit(0, u64::MAX);
        }
        let top = self.node(root.frame)?;
        let last = top.count.checked_sub(1)?;
        let below = || search.fit(0, top.key(0));
        let above = || search.fit(top.end(last), u64::MAX);
        let mut budget = Budget(3 * DEPTH_MAX);
        let mut inside = || self.gap_inside(root.frame, root.depth - 1, search, &mut budget);
        match search.placement {
            Placement::TopDown => above().or_else(&mut inside).or_else(below),
            Placement::BottomUp => below().or_else(&mut inside).or_else(above),
        }
    }

    /// The same between the first and the last area below a node of `level`. Calls itself once a
    /// level.
    fn gap_inside(
        &self,
        frame: Pfn,
        level: usize,
        search: &Search,
        budget: &mut Budget,
    ) -> Option<(u64, u64)> {
        budget.0 = budget.0.checked_sub(1)?;
        let node = self.node(frame)?;
        match search.placement {
            Placement::TopDown => {
                let (mut at, mut next) = (node.rank(search.high), None);
                // The last gap that counts lies behind an area that begins at `low` or before.
                while at > 0 && next.is_none_or(|next| next > search.low) {
                    at -= 1;
                    let found = self
                        .gap_after(&node, (at, next), search)
                        .or_else(|| self.gap_below(&node, at, level, search, budget));
                    if found.is_some() {
                        return found;
                    }
                    next = Some(node.key(at));
                }
                None
            }
            Placement::BottomUp => {
                let (first, last) =
                    (node.rank(search.low).saturating_sub(1), node.rank(search.high));
                (first..last).find_map(|at| {
                    self.gap_below(&node, at, level, search, budget)
                        .or_else(|| self.gap_after(&node, (at, None), search))
                })
            }
        }
    }

    /// The same below entry `at` of a node of `level`.
    #[inline]
    fn gap_below(
        &self,
        node: &Node<'_, H, CAP>,
        at: usize,
        level: usize,
        search: &Search,
        budget: &mut Budget,
    ) -> Option<(u64, u64)> {
        let deep = level > 0 && node.gap(at) >= search.pages;
        deep.then(|| self.gap_inside(node.child(at), level - 1, search, budget))?
    }

    /// The gap between entry `at` and the next of the node, which begins at `next` if that is
    /// known, if there is a next and the gap fits.
    #[inline]
    fn gap_after(
        &self,
        node: &Node<'_, H, CAP>,
        (at, next): (usize, Option<u64>),
        search: &Search,
    ) -> Option<(u64, u64)> {
        if at + 1 == node.count {
            return None;
        }
        search.fit(node.end(at), next.unwrap_or_else(|| node.key(at + 1)))
    }
}
