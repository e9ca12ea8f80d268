//! Accessed and dirty bits: clearing them, and reading them when no CPU can set them any more.
//!
//! The hardware sets the dirty bit of the leaf through which a write went, or faults so that
//! software sets it. After the bits of a span are cleared and flushed, they record later writes. In
//! a contiguous block, one word speaks for all pages.

use quire_arch::{Arch, Attrs, Level};
use quire_hw::Hardware;
use quire_units::{FrameSpan, PageSpan, Pfn, Prot};

use super::grant::Regrant;
use super::visit::Step;
use super::word::{FOREIGN, is_foreign};
use super::{Gather, Locked, Marks, Run, Tables, What};
use crate::folio::{Counts, Folio, Folios};

/// The outcome of discarding a folio unless it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Discard {
    /// The folio is in the gather.
    Gone,
    /// The folio was written: it stays.
    Written,
    /// Other spaces map the folio, not all of it is here, or its area does not let it go: it stays.
    Shared,
}

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Clears the accessed bit of every leaf of `span` but foreign ones. A large leaf or a
    /// contiguous block that reaches across an end of the span keeps it. `gather` takes the flush.
    /// Returns how many entries were written.
    pub fn age(&self, span: PageSpan, gather: &mut Gather) -> u64 {
        let mut written = 0;
        self.runs(span, |found| -> Step<()> {
            let is_leaf = matches!(found.run.what, What::Leaf { attrs, .. } if !is_foreign(attrs));
            if is_leaf && found.table.forget(found.pages, Attrs::YOUNG, gather) {
                written += found.run.count as u64;
            }
            Step::Next
        });
        written
    }

    /// Clears the accessed bit of every leaf of `span`, and calls `hear` with each folio that is
    /// mapped there and whether the bit was set. `gather` takes the flush. Returns how many pages
    /// were looked at.
    pub(crate) fn harvest(
        &self,
        span: PageSpan,
        gather: &mut Gather,
        mut hear: impl FnMut(Folio, bool),
    ) -> u64 {
        let mut looked = 0;
        self.runs(span, |found| -> Step<()> {
            if let What::Leaf { frame, attrs, .. } = found.run.what
                && !is_foreign(attrs)
            {
                let all = found.all_pages();
                found.table.each_folio(all, frame, |folio, pages, _| {
                    hear(folio, found.table.forget(pages, Attrs::YOUNG, gather));
                });
                looked += all.count();
            }
            Step::Next
        });
        looked
    }

    /// Clears the bits `noted` in the leaves of `span`, for each piece of a folio for which
    /// `forgets` returns true, given its frames and the attributes of its leaves. `remark` returns
    /// the markers that replace others. No leaf or marker may reach across an end of the span.
    /// `gather` takes the flush. Returns how many entries were looked at.
    pub(crate) fn forget(
        &self,
        span: PageSpan,
        noted: Attrs,
        gather: &mut Gather,
        mut forgets: impl FnMut(Folio, FrameSpan, Attrs) -> bool,
        remark: impl Fn(Marks) -> Marks,
    ) -> u64 {
        let mut entries = 0;
        self.runs(span, |found| -> Step<()> {
            let (table, run) = (found.table, &*found.run);
            match run.what {
                What::Marker(marks) if remark(marks) != marks => {
                    table.overwrite(run.index, run.count, remark(marks));
                }
                What::Leaf { frame, attrs, .. }
                    if !is_foreign(attrs) && attrs.intersects(noted) =>
                {
                    table.each_folio(found.pages, frame, |folio, pages, frames| {
                        if forgets(folio, frames, attrs) {
                            table.forget(pages, noted, gather);
                        }
                    });
                }
                _ => {}
            }
            entries += run.count as u64;
            Step::Next
        });
        entries
    }

    /// Takes the leaves of `pages`, unless one was written since it was cleaned. They were all that
    /// is mapped of `folio` when the caller looked. The caller's reference goes with the folio. The
    /// right to write goes first, so that the dirty bits are final when they are read. With the
    /// table locked, `may` says whether the areas still allow it.
    pub(crate) fn discard(
        &self,
        pages: PageSpan,
        folio: Folio,
        gather: &mut Gather,
        may: impl FnOnce() -> bool,
    ) -> Discard {
        let locked = self.lock_lowest(pages.start, Level::LAST);
        if !may() || !locked.reach().covers(pages) {
            return Discard::Shared;
        }
        let (run, _) = locked.run_in(pages.start, pages.end);
        let What::Leaf { frame, attrs, .. } = run.what else { return Discard::Shared };
        let folios = Folios::new(self.meta);
        let only = Counts { refs: 1, pins: 0, mapped: folio.order.pages() as u32 };
        let whole = locked.pages(&run) == pages && frame == folio.head;
        if !whole || attrs.intersects(FOREIGN | Attrs::COW) || folios.counts(folio) != only {
            return Discard::Shared;
        }
        let mut dirty = attrs.contains(Attrs::DIRTY);
        if !dirty && locked.hushed(pages, attrs).contains(Attrs::DIRTY) {
            locked.protect(pages, attrs.prot());
            dirty = true;
        }
        if dirty {
            return Discard::Written;
        }
        // Another hold would need this lock: the mapping is the last one, and the gather takes the
        // whole folio.
        let last = folios.put(folio);
        debug_assert!(last.is_none(), "it is mapped");
        locked.clear(run.index, run.count);
        gather.mapping(self.meta, folio, folio.span());
        // The next fault maps another page here: no CPU may still see this one then.
        self.flush(pages, locked.unit());
        Discard::Gone
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Calls `act` with each folio that leaves at `pages`, which map the frames from `frame` on,
    /// have a part of: that part's pages and frames.
    #[inline]
    pub(super) fn each_folio(
        &self,
        pages: PageSpan,
        frame: Pfn,
        mut act: impl FnMut(Folio, PageSpan, FrameSpan),
    ) {
        let mut from = pages.start;
        Folios::new(self.tables.meta).each(FrameSpan::new(frame, pages.count()), |folio, piece| {
            let part = PageSpan::new(from, from.add(piece.count));
            act(folio, part, piece);
            from = part.end;
            true
        });
    }

    /// Clears the bits `noted` in the leaves of `pages`. Returns whether one was set. A block that
    /// reaches beyond the pages counts, and keeps its bits.
    pub(super) fn forget(&self, pages: PageSpan, noted: Attrs, gather: &mut Gather) -> bool {
        let (run, _) = self.run_in(pages.start, pages.end);
        let What::Leaf { attrs, .. } = run.what else { return false };
        if !attrs.intersects(noted) {
            return false;
        }
        let (first, count) = self.uncut(&run, pages);
        if count > 0 {
            let run = self.run(first, first + count);
            let _ = self.regrant(&run, count, true, Regrant::NONE.without(noted));
            gather.flush(self.pages(&run), self.unit());
        }
        true
    }

    /// The entries of a run of leaves that lie in `pages` whole, with their contiguous blocks: the
    /// first of them, and how many.
    fn uncut(&self, run: &Run, pages: PageSpan) -> (usize, usize) {
        let cut = |edge: usize| edge & (self.width() - 1) != 0 && self.is_folded(self.raw(edge));
        let mut first = run.index + (self.page(run.index) < pages.start) as usize;
        let end = run.index + run.count;
        let mut end = end - (self.page(end) > pages.end) as usize;
        if first < end && cut(first) {
            first = first.next_multiple_of(self.width());
        }
        if first < end && cut(end) {
            end = self.block_at(end);
        }
        (first, end.saturating_sub(first))
    }

    /// Takes the right to write from the leaves of `pages`, a run with the attributes `attrs`, and
    /// returns the attributes that are final then. The caller flushes.
    pub(super) fn hushed(&self, pages: PageSpan, attrs: Attrs) -> Attrs {
        if !attrs.contains(Attrs::WRITE) {
            return attrs;
        }
        self.protect(pages, attrs.prot() - Prot::WRITE);
        match self.run_in(pages.start, pages.end).0.what {
            What::Leaf { attrs, .. } => attrs,
            _ => attrs,
        }
    }

    /// Gives the leaves of `pages`, a run, the rights `prot`. The caller flushes.
    pub(super) fn protect(&self, pages: PageSpan, prot: Prot) {
        let (mut run, _) = self.run_in(pages.start, pages.end);
        self.part_run(&mut run);
        let _ = self.regrant(&run, run.count, true, Regrant::rights(prot));
    }
}
