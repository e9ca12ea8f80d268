//! What was written: forgetting it, and asking for it when nobody can change it any more.
//!
//! The hardware notes a write in the leaf through which it happened, or faults so that software
//! notes it. Who makes leaves clean, and flushes, finds out later what was written since. Of a
//! contiguous block, one word speaks for all pages.

use quire_arch::{Arch, Attrs, Level};
use quire_hw::Hardware;
use quire_units::{FrameSpan, PageSpan, Prot};

use super::map::FOREIGN;
use super::walk::Step;
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
        self.each(span, |locked, part| -> Step<()> {
            let mut at = part.start;
            while at < part.end {
                let (run, end) = locked.run_in(at, part.end);
                match run.what {
                    What::Table(_) => return Step::To(at),
                    What::Marker(marks) if remark(marks) != marks => {
                        locked.remark(run.index, run.count, remark(marks));
                    }
                    What::Leaf { frame, attrs, .. }
                        if !attrs.contains(FOREIGN) && attrs.intersects(noted) =>
                    {
                        let mut from = at;
                        Folios::new(self.meta).each(
                            FrameSpan::new(frame, end.offset_from(at)),
                            |folio, piece| {
                                let pages = PageSpan::new(from, from.add(piece.count));
                                if forgets(folio, piece, attrs) {
                                    locked.forget(pages, noted, gather);
                                }
                                from = pages.end;
                                true
                            },
                        );
                    }
                    What::Leaf { .. } | What::Absent | What::Marker(_) => {}
                }
                entries += run.count as u64;
                at = end;
            }
            Step::To(at)
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
            self.regrant(&run, count, true, |attrs| attrs.difference(noted));
            gather.flush(self.pages(&run), A::order(self.level()));
        }
        true
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
        self.regrant(&run, run.count, true, |attrs| attrs.with_prot(prot));
    }
}
