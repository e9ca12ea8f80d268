//! Reading a tree while it may be changing.

use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Vpn};

use super::node::TreeReader;
use super::{AreaTree, NODE_ENTRIES, Seq};
use crate::phys::Meta;
use crate::space::area::Area;
use crate::sync::{Ordering, spin_loop};

impl<const CAP: usize> AreaTree<CAP> {
    /// The reading view, with the memory that the nodes lie in: the same for the whole life of the
    /// tree. Cheap to make; takes no lock.
    #[inline]
    pub fn reader<'a, H: Hardware>(&'a self, hw: &'a H, meta: Meta<'a>) -> TreeReader<'a, H, CAP> {
        const { assert!(CAP >= 3 && CAP <= NODE_ENTRIES) };
        TreeReader { tree: self, hw, meta }
    }
}

impl<'a, H: Hardware, const CAP: usize> TreeReader<'a, H, CAP> {
    /// The area that holds `page`.
    #[inline]
    pub fn lookup(&self, page: Vpn) -> (Option<Area>, Seq) {
        self.validated(|| self.seek(page).filter(|area| area.span.contains(page)))
    }

    /// The first area that ends after `page`: the one that holds it, or else the next.
    #[inline]
    pub fn next_at_or_after(&self, page: Vpn) -> (Option<Area>, Seq) {
        self.validated(|| self.seek(page))
    }

    /// The last area that begins before `page`.
    #[inline]
    pub fn last_before(&self, page: Vpn) -> (Option<Area>, Seq) {
        self.validated(|| {
            let last = page.get().checked_sub(1)?;
            self.descend(|_, node| node.rank(last).checked_sub(1))
        })
    }

    /// The areas that have a page in `span`, ascending, whole. Each is a lookup of its own: if the
    /// tree changes meanwhile, each is in a state that the tree had at some moment, and a page that
    /// was covered all the time is not left out.
    #[inline]
    pub fn overlapping(&self, span: PageSpan) -> impl Iterator<Item = Area> + use<'a, H, CAP> {
        let (reader, mut left) = (*self, span);
        core::iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let area = reader.next_at_or_after(left.start).0?;
            if area.span.end <= left.start {
                return None; // Only a damaged tree answers so; going on would not end.
            }
            left.start = area.span.end;
            (area.span.start < left.end).then_some(area)
        })
    }

    /// The highest `pages` free pages within `within` that begin at a multiple of `align`.
    ///
    /// With `align` 0 this is exact and costs O(log n). With alignment, a gap as long as `pages`
    /// may have no aligned place, and one as long as `pages` plus all but one page of `align`
    /// surely has. The first 32 gaps of the former kind are tried, then the first of the latter
    /// kind is taken; so the cost stays bounded, and `None` means that there is no gap of the
    /// latter kind. A caller that would rather have a worse place asks again for less alignment.
    pub fn find_gap(&self, pages: u64, align: Order, within: PageSpan) -> (Option<PageSpan>, Seq) {
        self.validated(|| self.highest_gap(pages, align, within))
    }

    /// Reads until no change interfered; the module's comment has the argument. `read` is bounded
    /// for any contents. Changes are short and never wait, so retrying ends.
    #[inline(always)]
    fn validated<T>(&self, read: impl Fn() -> T) -> (T, Seq) {
        loop {
            let seq = self.begin();
            let answer = read();
            if self.is_undisturbed(seq) {
                return (answer, seq);
            }
        }
    }

    /// Waits until no change is under way.
    #[inline(always)]
    fn begin(&self) -> Seq {
        loop {
            let seq = self.tree.seq.load(Ordering::Acquire);
            if seq & 1 == 0 {
                return Seq(seq);
            }
            spin_loop();
        }
    }

    /// Whether no change has begun since.
    #[inline(always)]
    fn is_undisturbed(&self, seq: Seq) -> bool {
        self.tree.seq.load(Ordering::Acquire) == seq.0
    }
}
