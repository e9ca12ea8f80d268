//! Looking at what is mapped, piece by piece, with nothing held in between: to report pages to a
//! program, or to copy them.

use quire_arch::{Arch, Attrs, Level};
use quire_hw::{FrameRun, Hardware};
use quire_units::{FrameSpan, Order, PageSpan, Pfn, Vpn};

use super::run::Stretch;
use super::visit::{Found, Step};
use super::word::is_foreign;
use super::{MarkKind, Marks, Place, Tables, What};
use crate::folio::{Folio, Folios};

/// Consecutive entries of one table in one state, with the same accessed and dirty bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The pages; of a leaf that reaches beyond the span, those within.
    pub pages: PageSpan,
    /// The size of each entry, never of a contiguous block.
    pub leaf: Order,
    /// Their state.
    pub what: Sight,
}

/// The state of entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sight {
    /// They map consecutive frames.
    Leaf {
        /// The first page's frame.
        frame: Pfn,
        /// Rights, accessed and dirty bits, and whether other spaces may map the pages
        /// ([`COW`](Attrs::COW)).
        attrs: Attrs,
        /// Whether they are in contiguous blocks.
        folded: bool,
    },
    /// They are markers: absent for the hardware, and not to be mapped over.
    Marker(Marks),
}

impl Seen {
    /// Whether the pages are absent, and their first write waits for a watcher.
    pub fn is_shielded(&self) -> bool {
        matches!(self.what, Sight::Marker(marks) if marks.kind() == Some(MarkKind::Watched))
    }

    /// Whether the frames are no folios: device memory, say.
    pub fn is_foreign(&self) -> bool {
        matches!(self.what, Sight::Leaf { attrs, .. } if is_foreign(attrs))
    }
}

/// The make-up of a block of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survey {
    /// Nothing is mapped.
    Empty,
    /// It is one folio, or part of one, mapped by entries as large as can be.
    Whole,
    /// A page of it maps no folio, or has a marker.
    Foreign,
    /// A folio of it is pinned.
    Pinned,
    /// Parts of folios, and perhaps holes.
    Parts,
}

impl<'a, A: Arch, H: Hardware> Tables<'a, A, H> {
    /// The first entries in `span` that are not absent. The table is not locked afterwards.
    pub fn look(&self, span: PageSpan) -> Option<Seen> {
        self.runs(span, |found| Step::Stop(found.seen())).flatten()
    }

    /// The first page of `span` whose folio `hold` takes a hold of; its frame, and that folio.
    pub(crate) fn first_folio(
        &self,
        span: PageSpan,
        hold: impl FnMut(Folio) -> bool,
    ) -> Option<(Vpn, Pfn, Folio)> {
        self.first_folio_from(None, span, hold)
    }

    /// The first page of `span` that maps `folio`, if `hold` agrees while its table is locked.
    pub(crate) fn find(
        &self,
        span: PageSpan,
        folio: Folio,
        hold: impl Fn() -> bool,
    ) -> Option<Vpn> {
        let place = (!span.is_empty()).then(|| self.walk(span.start, Level::LAST))?;
        // Most spaces that are asked for a base page have another there, or none: no lock is needed
        // to see that.
        let is_page = folio.order == Order::ZERO && span.count() == 1;
        if is_page && !place.maps::<A>(folio.head) {
            return None;
        }
        let is_it = |there| there == folio && hold();
        self.first_folio_from(Some(place), span, is_it).map(|(page, ..)| page)
    }

    fn first_folio_from(
        &self,
        from: Option<Place>,
        span: PageSpan,
        mut hold: impl FnMut(Folio) -> bool,
    ) -> Option<(Vpn, Pfn, Folio)> {
        let folios = Folios::new(self.meta);
        self.each(from, span, |table, part| {
            // One page is enough to find the folio: the run behind it is mostly other folios'.
            let one = |at: Vpn| at.add(1);
            table.runs_within(part, one, |found| match found.run.what {
                What::Leaf { frame, attrs, .. } if !is_foreign(attrs) => {
                    let (at, frame) = (found.pages.start, found.frame_within(frame));
                    match folios.of(frame) {
                        Some(folio) if hold(folio) => Step::Stop((at, frame, folio)),
                        Some(folio) => {
                            Step::To(at.add(folio.span().end().offset_from(frame)).min(part.end))
                        }
                        None => Step::Next,
                    }
                }
                _ => Step::To(table.run_in(found.pages.start, part.end).1),
            })
        })
    }

    /// How many pages have an entry: mapped, or marked. One look for each table of pages.
    pub(crate) fn weigh(&self) -> u64 {
        let mut pages = 0;
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        self.each(None, all, |table, part| -> Step<()> {
            if table.level().is_last() {
                pages += table.present();
                return Step::Next;
            }
            table.runs(part, |found| {
                pages += found.pages.count();
                Step::Next
            })
        });
        pages
    }

    /// The pieces of `span` that are not absent, ascending; nothing is held between two of them.
    pub fn pieces(&self, span: PageSpan) -> impl Iterator<Item = Seen> + use<'a, A, H> {
        let (tables, mut left) = (*self, span);
        core::iter::from_fn(move || {
            let seen = tables.look(left)?;
            left = PageSpan::new(seen.pages.end, left.end);
            Some(seen)
        })
    }

    /// The make-up of `block`, aligned and of `order`. The caller keeps changes and faults out of
    /// it; the hardware may set bits, and pins may come and go.
    pub fn survey(&self, block: PageSpan, order: Order) -> Survey {
        let folios = Folios::new(self.meta);
        let leaf = A::order(A::leaf_level(order));
        // The first folio, and its frame for the first page that is mapped.
        let mut first: Option<(Folio, Pfn)> = None;
        let (mut whole, mut mapped) = (true, 0);
        for seen in self.pieces(block) {
            let Sight::Leaf { frame, .. } = seen.what else { return Survey::Foreign };
            let frames = FrameSpan::new(frame, seen.pages.count());
            let mut pinned = false;
            let known = folios.each(frames, |folio, _| {
                pinned |= folios.counts(folio).pins > 0;
                whole &= first.get_or_insert((folio, frame)).0 == folio;
                true
            });
            if seen.is_foreign() || known < frames.count {
                return Survey::Foreign;
            }
            if pinned {
                return Survey::Pinned;
            }
            let ahead = seen.pages.start.offset_from(block.start);
            whole &= first.is_some_and(|(_, from)| frame == from.add(ahead)) && seen.leaf >= leaf;
            mapped += frames.count;
        }
        let Some((folio, from)) = first else { return Survey::Empty };
        whole &= mapped == order.pages() && folio.order >= order;
        if whole && from.is_aligned(order.pages()) { Survey::Whole } else { Survey::Parts }
    }

    /// Maps `run` at `block`, as one folio of `order`, every page of it mapped here alone. Nothing
    /// may be mapped there; the caller keeps changes and faults out.
    ///
    /// # Errors
    /// The run, when a table is in the way or missing.
    pub fn put_folio(
        &self,
        block: PageSpan,
        run: FrameRun,
        order: Order,
        attrs: Attrs,
    ) -> Result<(), FrameRun> {
        let level = A::leaf_level(order);
        let locked = self.lock_lowest(block.start, level);
        let index = locked.index(block.start);
        let count = (order.pages() >> A::order(level).get()) as usize;
        if locked.level() != level || !locked.is_empty(index, count) {
            return Err(run);
        }
        let frame = run.start();
        Folios::new(self.meta).adopt_mapped(run, order, self.home(block.start));
        locked.put(index, count, frame, attrs, order);
        Ok(())
    }
}

impl<A: Arch, H: Hardware> Found<'_, '_, A, H> {
    /// The first entries of the run that have noted the same.
    fn seen(&self) -> Option<Seen> {
        let (table, run, pages, leaf) = (self.table, &*self.run, self.pages, self.table.unit());
        let What::Leaf { frame, .. } = run.what else {
            let What::Marker(marks) = run.what else { return None };
            return Some(Seen { pages, leaf, what: Sight::Marker(marks) });
        };
        let Stretch { mut count, raw, .. } = table.stretches(run, run.count).next()?;
        let (mut attrs, folded) = (table.leaf_attrs(raw, run.index), table.is_folded(raw));
        let (width, first) = (table.width(), table.block_at(run.index));
        if folded && run.index == first && count >= width {
            count -= count % width;
        } else if folded {
            // The words of a block speak for each other.
            count = run.count.min(first + width - run.index);
            attrs |= table.gathered(first);
        }
        let end = table.page(run.index + count).min(pages.end);
        let what = Sight::Leaf { frame: self.frame_within(frame), attrs, folded };
        Some(Seen { pages: PageSpan::new(pages.start, end), leaf, what })
    }
}
