//! Replacing leaves by markers: pages that leave memory.
//!
//! ```text
//!   | A+0 c | A+1 c | ... | A+15 c |   ──►   | slot+0 | slot+1 | ... | slot+15 |
//!      one question, one fill, one note in the gather, for all of them
//! ```
//!
//! What may refuse is asked first, under the table's lock, and with nothing changed: whoever pins a
//! page, forks it or moves it needs that lock, too. So there is nothing to restore.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, PageSpan, Pfn};

use super::walk::Step;
use super::{Gather, Locked, Marks, Run, Tables, What};
use crate::folio::Folio;

/// What an eviction came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Evicted {
    /// Pages whose leaves are markers now.
    pub(crate) pages: u64,
    /// Entries that were written.
    pub(crate) entries: u64,
    /// Some of them were written since they were mapped, or could have been.
    pub(crate) dirty: bool,
}

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Replaces the leaves of `span` that map `folio` by markers. `ask` says with which: for a run
    /// of pages in one state, given their frames and attributes, the payload of the first, the
    /// others ascending; or that they are to stay. It is asked of `most` pages at once. What is to
    /// be flushed goes into `gather`, and so do the mappings; no more is taken when it is full.
    ///
    /// Where somebody `tracks` what is written, that is asked for when nobody can write any more,
    /// and no farther than one contiguous block goes.
    pub(crate) fn evict(
        &self,
        span: PageSpan,
        (folio, most, tracks): (Folio, Order, bool),
        gather: &mut Gather,
        mut ask: impl FnMut(PageSpan, FrameSpan, Attrs) -> Option<u64>,
    ) -> Evicted {
        let mut done = Evicted::default();
        self.each(span, |locked, part| -> Step<()> {
            let block = A::fold_order(locked.level()).unwrap_or_default();
            let most = if tracks { most.min(block) } else { most };
            let mut at = part.start;
            while at < part.end {
                let step = at.add(most.pages().max(A::order(locked.level()).pages()));
                let step = if tracks { step.align_down(most.pages()) } else { step };
                let (run, end) = locked.run_in(at, part.end.min(step));
                match run.what {
                    What::Table(_) => return Step::To(at),
                    What::Leaf { .. } if gather.is_full() => return Step::Stop(()),
                    What::Leaf { frame, attrs, .. } => {
                        let pages = locked.pages(&run).intersect(span);
                        let whole =
                            run.pages_of(locked, folio, frame).filter(|p| pages.covers(p.0));
                        if let Some((pages, frames)) = whole {
                            let now = if tracks { locked.hushed(pages, attrs) } else { attrs };
                            if let Some(first) = ask(pages, frames, now) {
                                locked.evict(pages, first);
                                gather.mapping(self.meta, folio, frames);
                                gather.flush(pages, A::order(locked.level()));
                                done.pages += pages.count();
                                done.entries += pages.count() >> A::order(locked.level()).get();
                                done.dirty |= attrs.intersects(Attrs::DIRTY | Attrs::WRITE);
                            } else if tracks {
                                locked.protect(pages, attrs.prot());
                            }
                        }
                    }
                    What::Absent | What::Marker(_) => {}
                }
                at = end;
            }
            Step::To(at)
        });
        done
    }
}

impl Run {
    /// The pages of a run of leaves from `frame` on that map `folio`, and their frames.
    fn pages_of<A: Arch, H: Hardware>(
        &self,
        locked: &Locked<'_, A, H>,
        folio: Folio,
        frame: Pfn,
    ) -> Option<(PageSpan, FrameSpan)> {
        let pages = locked.pages(self);
        let frames = FrameSpan::new(frame, pages.count());
        let start = frame.max(folio.head);
        let end = frames.end().min(folio.span().end());
        if start >= end {
            return None;
        }
        let count = end.offset_from(start);
        let first = pages.start.add(start.offset_from(frame));
        let pages = PageSpan::new(first, first.add(count));
        Some((pages, FrameSpan::new(start, count)))
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Writes markers over the leaves of `pages`, the payloads ascending from `first` on. What the
    /// hardware notes in them until the flush is lost.
    fn evict(&self, pages: PageSpan, first: u64) {
        let block = A::order(self.level());
        let (index, count) = (self.index(pages.start), (pages.count() >> block.get()) as usize);
        self.part(index, count);
        let folded = self.folded_in(index, count);
        self.overwrite(index, count, Marks { first, ascending: true });
        self.add(0, -(folded as i64));
    }

    /// Writes `marks` over `count` entries from `index` on; the caller keeps the counts. An entry
    /// that stands for a block has the payload of its first page.
    pub(super) fn overwrite(&self, index: usize, count: usize, marks: Marks) {
        let block = A::order(self.level());
        if block == Order::ZERO || !marks.ascending {
            let (first, step) = (A::marker(marks.first), marks.step::<A>());
            let ahead = if marks.ascending { count as u64 - 1 } else { 0 };
            debug_assert_eq!(first.wrapping_add(step * ahead), A::marker(marks.first + ahead));
            return self.fill(index, count, first, step);
        }
        for at in 0..count {
            let payload = marks.first + ((at as u64) << block.get());
            self.fill(index + at, 1, A::marker(payload), 0);
        }
    }

    /// Writes `marks` over the `count` markers from `index` on.
    pub(super) fn remark(&self, index: usize, count: usize, marks: Marks) {
        self.overwrite(index, count, marks);
    }

    /// Maps `count` entries from `index` on, which are markers, to the frames from `frame` on, of
    /// a folio of order `each`.
    pub(crate) fn admit(&self, index: usize, count: usize, frame: Pfn, attrs: Attrs, each: Order) {
        self.clear(index, count);
        self.put(index, count, frame, attrs, each);
    }
}
