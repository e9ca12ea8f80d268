//! Looking at what is mapped, piece by piece, with nothing held in between: for whoever tells a
//! program about its pages, or copies them.

use quire_arch::{Arch, Attrs, Entry};
use quire_hw::{FrameRun, Hardware};
use quire_units::{FrameSpan, Order, PageSpan, Pfn, Vpn};

use super::map::FOREIGN;
use super::walk::Step;
use super::{Locked, Marks, Run, Tables, What, plain};
use crate::folio::{Folio, Folios};

/// Consecutive entries of one table that say the same, and have noted the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The pages; of a leaf that reaches beyond what was looked at, those within.
    pub pages: PageSpan,
    /// The size of each entry, never of a contiguous block.
    pub leaf: Order,
    /// What they say.
    pub what: Sight,
}

/// What entries say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sight {
    /// They map consecutive frames.
    Leaf {
        /// The first page's frame.
        frame: Pfn,
        /// Rights, young, dirty, and whether others may have the pages as well
        /// ([`COW`](Attrs::COW)).
        attrs: Attrs,
        /// Whether they are in contiguous blocks.
        folded: bool,
    },
    /// They are markers: absent for the hardware, and not to be mapped over.
    Marker(Marks),
}

impl Seen {
    /// Whether the frames are no folios: device memory, say.
    pub fn is_foreign(&self) -> bool {
        matches!(self.what, Sight::Leaf { attrs, .. } if attrs.contains(FOREIGN))
    }
}

/// What a block of pages is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survey {
    /// Nothing is mapped.
    Empty,
    /// It is one folio, or part of one, mapped by entries as large as can be.
    Whole,
    /// Something in it is no folio, or not to be mapped over.
    Foreign,
    /// A folio of it is pinned.
    Pinned,
    /// Parts of folios, and perhaps nothing in places.
    Parts,
}

impl<'a, A: Arch, H: Hardware> Tables<'a, A, H> {
    /// The first thing in `span` that is not absent. The table is locked while it is looked at, and
    /// not afterwards.
    pub fn look(&self, span: PageSpan) -> Option<Seen> {
        let found = self.each(span, |locked, part| {
            let mut at = part.start;
            while at < part.end {
                let (run, end) = locked.run_in(at, part.end);
                match run.what {
                    What::Table(_) => return Step::To(at),
                    What::Absent => at = end,
                    What::Leaf { .. } | What::Marker(_) => {
                        return Step::Stop(locked.seen(&run, PageSpan::new(at, end)));
                    }
                }
            }
            Step::To(at)
        });
        found.flatten()
    }

    /// The first page of `span` that maps a folio for which `hold` says that it is held now; its
    /// frame, and that folio.
    pub(crate) fn first_folio(
        &self,
        span: PageSpan,
        mut hold: impl FnMut(Folio) -> bool,
    ) -> Option<(Vpn, Pfn, Folio)> {
        let folios = Folios::new(self.meta);
        self.each(span, |locked, part| {
            let mut at = part.start;
            while at < part.end {
                // One entry tells the folio. The run behind it is other folios' as well, and would
                // be counted anew for each of them.
                let (run, _) = locked.run_in(at, at.add(1));
                match run.what {
                    What::Table(_) => return Step::To(at),
                    What::Leaf { frame, attrs, .. } if !attrs.contains(FOREIGN) => {
                        let frame = frame.add(at.offset_from(locked.page(run.index)));
                        match folios.of(frame) {
                            Some(folio) if hold(folio) => return Step::Stop((at, frame, folio)),
                            Some(folio) => {
                                let rest = folio.span().end().offset_from(frame);
                                at = at.add(rest).min(part.end);
                            }
                            None => at = at.add(1),
                        }
                    }
                    What::Leaf { .. } | What::Absent | What::Marker(_) => {
                        at = locked.run_in(at, part.end).1;
                    }
                }
            }
            Step::To(at)
        })
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

    /// What `block`, aligned and of `order`, is made of. The caller keeps changes and faults out of
    /// it, but for what the hardware notes, and for pins.
    pub fn survey(&self, block: PageSpan, order: Order) -> Survey {
        let folios = Folios::new(self.meta);
        let level = A::leaf_level(order);
        let mut first: Option<(Folio, Pfn)> = None;
        let (mut whole, mut upto) = (true, block.start);
        for seen in self.pieces(block) {
            let Sight::Leaf { frame, .. } = seen.what else { return Survey::Foreign };
            let frames = FrameSpan::new(frame, seen.pages.count());
            let (mut pinned, mut alone) = (false, true);
            let known = folios.each(frames, |folio, _| {
                pinned |= folios.counts(folio).pins > 0;
                alone &= first.get_or_insert((folio, frame)).0 == folio;
                true
            });
            if seen.is_foreign() || known < frames.count {
                return Survey::Foreign;
            }
            if pinned {
                return Survey::Pinned;
            }
            let goes_on = first
                .is_some_and(|(_, from)| frame.get() == from.get() + upto.offset_from(block.start));
            whole &= alone && goes_on && seen.pages.start == upto && seen.leaf >= A::order(level);
            upto = seen.pages.end;
        }
        let fits = |(folio, from): (Folio, Pfn)| {
            folio.order >= order && from.is_aligned(order.pages()) && upto == block.end
        };
        match first {
            None => Survey::Empty,
            Some(first) if whole && fits(first) => Survey::Whole,
            Some(_) => Survey::Parts,
        }
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
        if locked.level() != level {
            return Err(run);
        }
        let there = locked.run(index, index + count);
        if there.what != What::Absent || there.count < count {
            return Err(run);
        }
        let frame = run.start();
        Folios::new(self.meta).adopt_mapped(run, order, self.home(block.start));
        locked.put(index, count, frame, attrs, order);
        Ok(())
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// The first entries of `run` that have noted the same, as far as they lie in `pages`.
    fn seen(&self, run: &Run, pages: PageSpan) -> Option<Seen> {
        let leaf = A::order(self.level());
        let What::Leaf { frame, .. } = run.what else {
            let What::Marker(marks) = run.what else { return None };
            return Some(Seen { pages, leaf, what: Sight::Marker(marks) });
        };
        let stretch = self.stretches(run, run.count).next()?;
        let (mut count, mut attrs) = (stretch.count, self.leaf_attrs(stretch.raw, run.index));
        let (width, inside) = (self.width(), run.index - self.block_at(run.index));
        if stretch.folded && inside == 0 && count >= width {
            count -= count % width;
        } else if stretch.folded {
            // The words of a block speak for each other.
            count = run.count.min(width - inside);
            attrs |= self.gathered(self.block_at(run.index));
        }
        let end = self.page(run.index + count).min(pages.end);
        let frame = frame.add(pages.start.offset_from(self.page(run.index)));
        let what = Sight::Leaf { frame, attrs, folded: stretch.folded };
        Some(Seen { pages: PageSpan::new(pages.start, end), leaf, what })
    }

    /// The attributes of a leaf whose word at entry `index` is `raw`.
    fn leaf_attrs(&self, raw: u64, index: usize) -> Attrs {
        match A::decode(plain::<A>(raw, self.level(), index), self.level()) {
            Entry::Leaf { attrs, .. } => attrs,
            _ => Attrs::empty(),
        }
    }
}
