//! What nobody needs of large folios: pages that are not mapped any more, and pages of zeroes (D6).
//!
//! ```text
//!   a folio      | data | zero | zero | zero | data | .... |  not mapped  | zero |
//!   waste                 \_________________/         \_________________________/
//!   divided into parts: those that are not mapped are free, and of the others the zeroes go
//! ```
//!
//! Linux has a queue of such folios (`deferred_split_folio`, mm/huge_memory.c, is the reference for
//! the behaviour); here the hand of `reclaim` comes by all of them, and says what is old enough.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, PageSpan};

use super::Reclaim;
use super::zeroes::may_drop;
use crate::base::Error;
use crate::folio::{Folio, Folios};
use crate::limits::POPULATE_ORDER;
use crate::paging::Found;
use crate::space::Space;
use crate::stats::Event;
use crate::table::{Divided, Division, Sight};

/// Of what nobody needs, so many parts of [`OF_ALL`] must lie in whole blocks of an order for the
/// folio to be divided into such, and not into smaller ones.
const MOST_OF_IT: u64 = 3;
const OF_ALL: u64 = 4;

/// What of a folio nobody needs.
struct Waste {
    /// Pages in whole aligned blocks, by the order of these.
    blocks: [u64; POPULATE_ORDER.index() + 1],
    /// Pages that are mapped, and zero.
    zeroes: u64,
    /// Where the run began that is being looked at.
    begun: Option<u64>,
}

impl Waste {
    fn new() -> Self {
        Self { blocks: [0; POPULATE_ORDER.index() + 1], zeroes: 0, begun: None }
    }

    /// The next pages of the folio, from `at` on, are needed or not.
    fn add(&mut self, at: u64, needed: bool) {
        if !needed {
            self.begun.get_or_insert(at);
        } else if let Some(begun) = self.begun.take() {
            for (order, pages) in self.blocks.iter_mut().enumerate() {
                let whole = begun.next_multiple_of(1 << order)..at >> order << order;
                *pages += whole.end.saturating_sub(whole.start);
            }
        }
    }

    /// The order of the parts into which a folio of `order` is best divided.
    fn parts(&self, order: Order) -> Order {
        let enough =
            |part: &Order| self.blocks[part.index()] * OF_ALL >= self.blocks[0] * MOST_OF_IT;
        (0..order.get()).rev().map(Order::new).find(enough).unwrap_or(Order::ZERO)
    }
}

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// Gives back what nobody needs of the large folios in `span` that were not touched for `idle`
    /// rounds of aging; how many pages.
    pub(crate) fn thin(&self, space: &Space<A>, span: PageSpan, idle: u32) -> u64 {
        let folios = Folios::new(self.base().phys.meta());
        let (mut at, mut freed) = (span.start, 0);
        while let Some(found) = self.next_large(space, PageSpan::new(at, span.end), idle) {
            at = found.here.end.max(found.page.add(1)).min(span.end);
            let parts = self.waste_of(space, &found);
            if let Some(run) = folios.put(found.folio) {
                self.base().free(run);
            }
            if let Some((parts, zeroes)) = parts {
                // Where there is no memory for it, it is tried another time.
                freed += self.divide_waste(space, &found, parts, zeroes).unwrap_or(0);
            }
        }
        freed
    }

    /// The first folio of `span` that could be divided, and is old enough. It is held.
    fn next_large(&self, space: &Space<A>, span: PageSpan, idle: u32) -> Option<Found> {
        let folios = Folios::new(self.base().phys.meta());
        let looks_for_zeroes = self.base().policy.zeroes_most().is_some();
        let such = |folio: Folio| {
            let partly = u64::from(folios.counts(folio).mapped) < folio.order.pages();
            (Order::new(1)..=POPULATE_ORDER).contains(&folio.order)
                && (partly || looks_for_zeroes)
                && folios.idle(folio) >= idle
                && folios.may_be_sole(folio)
                && folios.hold(folio)
        };
        let (page, frame, folio) = self.base().view(space).tables().first_folio(span, such)?;
        Some(Found::new(page, frame, folio))
    }

    /// Into what a folio is to be divided, and whether for zeroes; `None` where that is not worth
    /// it.
    fn waste_of(&self, space: &Space<A>, found: &Found) -> Option<(Order, bool)> {
        let &Found { folio, here, cut, .. } = found;
        if cut || here.count() != folio.order.pages() {
            return None;
        }
        let most = self.base().policy.zeroes_most();
        let looks = most.is_some() && self.spaces().areas(space, here).all(|area| may_drop(&area));
        let (mut waste, mut next) = (Waste::new(), 0);
        for seen in self.base().view(space).tables().pieces(here) {
            let Sight::Leaf { frame, attrs, .. } = seen.what else { continue };
            let from = seen.pages.start.offset_from(here.start);
            if frame.get() != folio.head.get() + from {
                // Another folio, where this one was once.
                continue;
            }
            if from > next {
                waste.add(next, false);
            }
            // What may be shared is nobody's to give up; a write makes it somebody's.
            let looks = looks && !attrs.contains(Attrs::COW);
            for at in from..from + seen.pages.count() {
                let is_zero = looks && self.is_zero(FrameSpan::new(frame.add(at - from), 1));
                waste.zeroes += u64::from(is_zero);
                waste.add(at, !is_zero);
            }
            next = from + seen.pages.count();
        }
        let unmapped = next < here.count();
        if unmapped {
            waste.add(next, false);
        }
        waste.add(here.count(), true);
        // So many of a block; of a smaller folio in proportion.
        let most = u64::from(most.unwrap_or(0)) << folio.order.get();
        let many = looks && waste.zeroes * A::block_order().pages() > most;
        let wasted = waste.blocks[0];
        (wasted > waste.zeroes || many).then(|| (waste.parts(folio.order), many))
    }

    /// Divides a folio, and gives back the parts that nobody needs; how many pages.
    fn divide_waste(
        &self,
        space: &Space<A>,
        found: &Found,
        parts: Order,
        zeroes: bool,
    ) -> Result<u64, Error> {
        let Divided::Parts { freed, .. } =
            self.spaces().divide(space, found.page, Division::Uniform(parts))?
        else {
            return Ok(0);
        };
        if !zeroes {
            return Ok(freed);
        }
        self.base().count(Event::UnderusedSplit, 1);
        Ok(freed + self.drop_zeroes(space, found.here).unwrap_or(0))
    }
}
