//! Replacing leaves by markers: pages that leave memory.
//!
//! ```text
//!   | A+0 c | A+1 c | ... | A+15 c |   ──►   | slot+0 | slot+1 | ... | slot+15 |
//!      one question, one fill, one note in the gather, for all of them
//! ```
//!
//! All checks precede all changes, under the table's lock. A pin, a fork or a move needs that lock,
//! too, so that nothing ever has to be restored.

use quire_arch::{Arch, Attrs, Level};
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, PageSpan, Pfn, Vpn};

use super::visit::{Found, Step};
use super::word::is_foreign;
use super::{Gather, Locked, Marks, Tables, What};
use crate::folio::{Folio, Folios};

/// How folios leave memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Eviction {
    /// How large a part of a folio leaves in one step.
    pub(crate) most: Order,
    /// The space tracks writes: the dirty bits are read when the pages cannot be written any
    /// more, contiguous block by contiguous block.
    pub(crate) tracks: bool,
}

/// The outcome of an eviction.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Evicted {
    /// Pages whose leaves are markers now.
    pub(crate) pages: u64,
    /// Entries that were written.
    pub(crate) entries: u64,
    /// A page was written since it was mapped, or could have been.
    pub(crate) dirty: bool,
}

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Replaces the leaves of `span` by markers that map the folio which `which` says for their
    /// page; it also says the page up to which that holds. For a run of pages in one state, given
    /// their frames and attributes, `ask` returns the payload of the first marker, and the others
    /// ascend from it; or `None` for pages that stay. `gather` takes the mappings and the flush;
    /// the walk ends when it is full.
    pub(crate) fn evict(
        &self,
        span: PageSpan,
        leaving: Eviction,
        gather: &mut Gather,
        which: impl Fn(Vpn) -> (Folio, Vpn),
        mut ask: impl FnMut(PageSpan, FrameSpan, Attrs) -> Option<u64>,
    ) -> Evicted {
        let Eviction { most, tracks } = leaving;
        let mut done = Evicted::default();
        self.each(None, span, |table, part| -> Step<()> {
            let unit = table.unit();
            let block = table.fold_order().unwrap_or_default();
            let most = if tracks { most.min(block) } else { most };
            let limit = |at: Vpn| {
                let end = at.add(most.pages().max(unit.pages()));
                let end = if tracks { end.align_down(most.pages()) } else { end };
                end.min(which(at).1)
            };
            table.runs_within(part, limit, |found| {
                let What::Leaf { frame, attrs, .. } = found.run.what else { return Step::Next };
                if gather.is_full() {
                    return Step::Stop(());
                }
                let (here, (folio, _)) =
                    (found.all_pages().intersect(span), which(found.pages.start));
                let whole = found.pages_of(folio, frame).filter(|of| here.covers(of.0));
                let Some((pages, frames)) = whole else { return Step::Next };
                let now = if tracks { table.hushed(pages, attrs) } else { attrs };
                if let Some(first) = ask(pages, frames, now) {
                    table.evict(pages, first);
                    gather.mapping(self.meta, folio, frames);
                    gather.flush(pages, unit);
                    done.pages += pages.count();
                    done.entries += pages.count() >> unit.get();
                    done.dirty |= attrs.intersects(Attrs::DIRTY | Attrs::WRITE);
                } else if tracks {
                    table.protect(pages, attrs.prot());
                }
                Step::Next
            })
        });
        done
    }
}

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Calls `take` with the folios of `order` that the leaves of `span` map whole, one right
    /// behind the other, as far as one table has them and `take` returns true.
    pub(crate) fn neighbours(
        &self,
        span: PageSpan,
        order: Order,
        mut take: impl FnMut(Folio) -> bool,
    ) {
        let (folios, table) = (Folios::new(self.meta), self.lock_lowest(span.start, Level::LAST));
        let (mut at, end) = (span.start, span.end.min(table.reach().end));
        while at.add(order.pages()) <= end {
            let index = table.index(at);
            let What::Leaf { frame, attrs, .. } = table.entry(index).what else { return };
            let is_own = table.unit() <= order && table.page(index) == at && !is_foreign(attrs);
            match folios.of(frame).filter(|_| is_own) {
                Some(folio) if folio == (Folio { head: frame, order }) && take(folio) => {}
                _ => return,
            }
            at = at.add(order.pages());
        }
    }
}

impl<A: Arch, H: Hardware> Found<'_, '_, A, H> {
    /// The pages of this run of leaves, from `frame` on, that map `folio`, and their frames.
    fn pages_of(&self, folio: Folio, frame: Pfn) -> Option<(PageSpan, FrameSpan)> {
        let all = self.all_pages();
        let start = frame.max(folio.head);
        let end = frame.add(all.count()).min(folio.span().end());
        let count = end.get().checked_sub(start.get()).filter(|&count| count > 0)?;
        let first = all.start.add(start.offset_from(frame));
        Some((PageSpan::new(first, first.add(count)), FrameSpan::new(start, count)))
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Writes markers over the leaves of `pages`, the payloads ascending from `first` on. Bits
    /// that the hardware sets in them until the flush are lost.
    fn evict(&self, pages: PageSpan, first: u64) {
        let entries = self.entries(pages);
        let (index, count) = (entries.start, entries.len());
        self.part(index, count);
        let folded = self.folded_in(index, count);
        self.overwrite(index, count, Marks { first, ascending: true });
        self.add(0, -(folded as i64));
    }

    /// Maps `count` markers from `index` on to the frames of a folio of order `each`.
    pub(crate) fn admit(&self, index: usize, count: usize, frame: Pfn, attrs: Attrs, each: Order) {
        self.clear(index, count);
        self.put_alike(index, count, frame, attrs, each);
    }
}
