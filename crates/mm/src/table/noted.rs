//! What was written: forgetting it, and asking for it when nobody can change it any more.
//!
//! The hardware notes a write in the leaf through which it happened, or faults so that software
//! notes it. Who makes leaves clean, and flushes, finds out later what was written since. Of a
//! contiguous block, one word speaks for all pages.

use quire_arch::{Arch, Attrs, Level};
use quire_hw::Hardware;
use quire_units::{FrameSpan, PageSpan, Pfn, Prot};

use super::map::FOREIGN;
use super::regrant::{Owed, Regrant};
use super::visit::Step;
use super::{Gather, Locked, Marks, Run, Tables, What};
use crate::folio::{Counts, Folio, Folios};

/// What became of a folio that was to be discarded if nobody has written it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Discard {
    /// It is in the gather.
    Gone,
    /// It was written: it stays.
    Written,
    /// Others have it as well, or not all of it is here: it stays.
    Shared,
}

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Takes the young flag from every leaf of `span`, so that the next access to it shows. A
    /// large leaf or a contiguous block that reaches across an end of the span keeps it. The flush
    /// goes into `gather`. How many entries were written.
    pub fn age(&self, span: PageSpan, gather: &mut Gather) -> u64 {
        let mut written = 0;
        self.runs(span, |found| -> Step<()> {
            let is_leaf = matches!(found.run.what, What::Leaf { .. });
            if is_leaf && found.table.forget(found.pages, Attrs::YOUNG, gather) {
                written += found.run.count as u64;
            }
            Step::Next
        });
        written
    }

    /// Makes every leaf of `span` old, and tells `hear` of each folio that is mapped there whether
    /// it was young: folio by folio, a contiguous block being one. The flush goes into `gather`.
    /// How many pages were looked at.
    pub(crate) fn harvest(
        &self,
        span: PageSpan,
        gather: &mut Gather,
        mut hear: impl FnMut(Folio, bool),
    ) -> u64 {
        let mut looked = 0;
        self.runs(span, |found| -> Step<()> {
            if let What::Leaf { frame, attrs, .. } = found.run.what
                && !attrs.contains(FOREIGN)
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

    /// Takes the flags `noted` from the leaves of `span`, for each piece of a folio for which
    /// `forgets` says so: given its frames, and the attributes of its leaves. Markers become what
    /// `remark` makes of them. No leaf or marker may reach across an end of the span. What must be
    /// flushed goes into `gather`. How many entries were looked at.
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
            let (table, run) = (found.table, &found.run);
            match run.what {
                What::Marker(marks) if remark(marks) != marks => {
                    table.overwrite(run.index, run.count, remark(marks));
                }
                What::Leaf { frame, attrs, .. }
                    if !attrs.contains(FOREIGN) && attrs.intersects(noted) =>
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

    /// Takes the leaves of `pages`, which were all that is mapped of `folio` when somebody looked,
    /// unless one of them was written since it was cleaned. The caller refers to the folio, and
    /// no more when it is gone.
    ///
    /// The right to write goes first: what the leaves say then is the last word.
    pub(crate) fn discard(&self, pages: PageSpan, folio: Folio, gather: &mut Gather) -> Discard {
        let locked = self.lock_lowest(pages.start, Level::LAST);
        if !locked.reach().covers(pages) {
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
        let Some(run) = locked.freeze(run, attrs) else { return Discard::Written };
        // Who would take another hold needs this lock: the mapping is the last one now, and the
        // gather takes the folio whole.
        let last = folios.put(folio);
        debug_assert!(last.is_none(), "it is mapped");
        locked.clear(run.index, run.count);
        gather.mapping(self.meta, folio, folio.span());
        // Another page is mapped here by the next fault: nobody may still see this one then.
        self.flush(pages, A::order(locked.level()));
        Discard::Gone
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Calls `act` with each folio that `pages`, leaves that map the frames from `frame` on, have
    /// a part of: its pages among them, and their frames.
    #[inline]
    fn each_folio(
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

    /// Takes the flags `noted` from the leaves of `pages`; whether one of them had one. A block
    /// that reaches beyond them is asked, and keeps what it has noted.
    pub(super) fn forget(&self, pages: PageSpan, noted: Attrs, gather: &mut Gather) -> bool {
        let (run, _) = self.run_in(pages.start, pages.end);
        let What::Leaf { attrs, .. } = run.what else { return false };
        if !attrs.intersects(noted) {
            return false;
        }
        let (first, count) = self.uncut(&run, pages);
        if count > 0 {
            let run = self.run(first, first + count);
            let owed = self.regrant(&run, count, Owed::Flush, Regrant::NONE.without(noted));
            owed.note(gather, self.pages(&run), A::order(self.level()));
        }
        true
    }

    /// The entries of a run of leaves that lie in `pages` whole, and so do their blocks: the
    /// first of them, and how many.
    fn uncut(&self, run: &Run, pages: PageSpan) -> (usize, usize) {
        let cut = |edge: usize| {
            edge & (self.width() - 1) != 0 && A::is_folded(self.raw(edge), self.level())
        };
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

    /// Takes the right to write from a run of leaves, unless one of them is dirty: the run as it is
    /// now. Otherwise it is what it was.
    fn freeze(&self, run: Run, attrs: Attrs) -> Option<Run> {
        if attrs.contains(Attrs::DIRTY) {
            return None;
        }
        let pages = self.pages(&run);
        if self.hushed(pages, attrs).contains(Attrs::DIRTY) {
            self.protect(pages, attrs.prot());
            return None;
        }
        Some(self.run(run.index, run.index + run.count))
    }

    /// Takes the right to write from the leaves of `pages`, a run with the attributes `attrs`, so
    /// that nothing is noted in them any more; what is. The flush is the caller's to see to.
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

    /// Gives the leaves of `pages`, a run, the rights `prot`. The flush is the caller's to see to.
    pub(super) fn protect(&self, pages: PageSpan, prot: Prot) {
        let (mut run, _) = self.run_in(pages.start, pages.end);
        self.part_run(&mut run);
        self.regrant(&run, run.count, Owed::Flush, Regrant::rights(prot)).waive();
    }
}
