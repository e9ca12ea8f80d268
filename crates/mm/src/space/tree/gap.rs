//! Searching for free pages.

use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Pfn, Vpn};

use super::areas::DEPTH_MAX;
use super::node::TreeReader;

/// How many gaps are tried that may have no aligned place.
const TRIES: usize = 32;

/// A search for the highest gap that has at least `pages` pages within `within`.
struct Search {
    pages: u64,
    within: PageSpan,
    /// How many more nodes it may enter. In a sound tree only the two children of a level that
    /// hold an end of `within` can have no fitting gap in spite of their summary.
    budget: usize,
}

impl Search {
    /// The part of the gap `from..to` that counts, if it is long enough.
    #[inline]
    fn fit(&self, from: u64, to: u64) -> Option<PageSpan> {
        let gap = PageSpan::new(Vpn::new(from), Vpn::new(to.max(from))).intersect(self.within);
        (gap.count() >= self.pages).then_some(gap)
    }
}

impl<H: Hardware, const CAP: usize> TreeReader<'_, H, CAP> {
    /// See [`find_gap`](Self::find_gap); the tree may be changing.
    pub(super) fn highest_gap(
        &self,
        pages: u64,
        align: Order,
        within: PageSpan,
    ) -> Option<PageSpan> {
        if pages == 0 {
            return None;
        }
        let place = |gap: PageSpan| {
            let start = Vpn::new(gap.end.get() - pages).align_down(align.pages());
            (start >= gap.start).then(|| PageSpan::at(start, pages))?
        };
        let mut left = within;
        for _ in 0..TRIES {
            let gap = self.gap(pages, left)?;
            if let Some(place) = place(gap) {
                return Some(place);
            }
            left.end = gap.start;
        }
        place(self.gap(pages.checked_add(align.pages() - 1)?, left)?)
    }

    /// The part within `within` of the highest gap that has at least `pages` pages there.
    fn gap(&self, pages: u64, within: PageSpan) -> Option<PageSpan> {
        let root = self.tree.root();
        let mut search = Search { pages, within, budget: 3 * DEPTH_MAX };
        if root.depth == 0 {
            return search.fit(0, u64::MAX);
        }
        let top = self.node(root.frame)?;
        let last = top.count.checked_sub(1)?;
        search
            .fit(top.end(last), u64::MAX)
            .or_else(|| self.gap_inside(root.frame, root.depth - 1, &mut search))
            .or_else(|| search.fit(0, top.key(0)))
    }

    /// The same between the first and the last area below a node of `level`. Calls itself once a
    /// level.
    fn gap_inside(&self, frame: Pfn, level: usize, search: &mut Search) -> Option<PageSpan> {
        search.budget = search.budget.checked_sub(1)?;
        let node = self.node(frame)?;
        let mut next = None;
        for at in (0..node.rank(search.within.end.get())).rev() {
            let behind = next.or_else(|| (at + 1 < node.count).then(|| node.key(at + 1)));
            let mut found = behind.and_then(|behind| search.fit(node.end(at), behind));
            if found.is_none() && level > 0 && node.gap(at) >= search.pages {
                found = self.gap_inside(node.child(at), level - 1, search);
            }
            if found.is_some() {
                return found;
            }
            // The last gap that counts lies behind an area that begins at `within.start` or before.
            let key = node.key(at);
            if key <= search.within.start.get() {
                return None;
            }
            next = Some(key);
        }
        None
    }
}
