//! Unused parts of large folios: pages that are not mapped any more, and pages of zeroes (D6).
//!
//! ```text
//!   a folio      | data | zero | zero | zero | data | .... |  not mapped  | zero |
//!   waste                 \_________________/         \_________________________/
//!   split into parts: the unmapped ones are free, and of the others those of zeroes
//! ```
//!
//! Linux has a queue of such folios (`deferred_split_folio`, mm/huge_memory.c, is the reference for
//! the behaviour); here the hand of `reclaim` passes all of them, and selects the old ones.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, PageSpan};

use super::Reclaim;
use super::zeroes::may_drop;
use crate::base::Error;
use crate::folio::Folio;
use crate::limits::POPULATE_ORDER;
use crate::paging::Found;
use crate::space::Space;
use crate::stats::Event;
use crate::table::{Divided, Division, Sight};

/// A folio is split into parts of an order if this share of its waste ([`OF_ALL`] is all of it)
/// lies in whole blocks of that order; otherwise into smaller ones.
const MOST_OF_IT: u64 = 3;
const OF_ALL: u64 = 4;

/// The unused pages of a folio.
#[derive(Default)]
struct Waste {
    /// Pages in whole aligned blocks, by the order of these.
    blocks: [u64; POPULATE_ORDER.index() + 1],
    /// Pages that are mapped, and zero.
    zeroes: u64,
    /// The page behind the last used one.
    next: u64,
}

impl Waste {
    /// Notes that page `at` of the folio is used, and none between it and the one noted last.
    fn need(&mut self, at: u64) {
        if at > self.next {
            for (order, pages) in self.blocks.iter_mut().enumerate() {
                let whole = self.next.next_multiple_of(1 << order)..at >> order << order;
                *pages += whole.end.saturating_sub(whole.start);
            }
        }
        self.next = at + 1;
    }

    /// The best order of the parts into which a folio of `order` is split.
    fn parts(&self, order: Order) -> Order {
        let enough =
            |part: &Order| self.blocks[part.index()] * OF_ALL >= self.blocks[0] * MOST_OF_IT;
        (0..order.get()).rev().map(Order::new).find(enough).unwrap_or(Order::ZERO)
    }
}

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// Frees the unused parts of the large folios in `span` that had no access for `idle` rounds of
    /// aging; returns how many pages.
    #[inline(never)]
    pub(super) fn thin(&self, space: &Space<A>, span: PageSpan, idle: u32) -> u64 {
        let (mut at, mut freed) = (span.start, 0);
        while let Some(found) = self.next_large(space, PageSpan::new(at, span.end), idle) {
            at = found.here.end.min(span.end);
            // Without memory for the split, a later call tries again.
            freed += self.thin_folio(space, &found).unwrap_or(0);
        }
        freed
    }

    /// Splits a folio, and frees its unused parts; returns how many pages. Releases the reference.
    fn thin_folio(&self, space: &Space<A>, found: &Found) -> Result<u64, Error> {
        let waste = self.waste_of(space, found);
        self.base().put(found.folio);
        let Some((parts, zeroes)) = waste else { return Ok(0) };
        match self.spaces().divide(space, found.page, Division::Uniform(parts))? {
            Divided::Parts { freed, .. } if zeroes => {
                self.base().count(Event::UnderusedSplit, 1);
                Ok(freed + self.drop_zeroes(space, found.here).unwrap_or(0))
            }
            Divided::Parts { freed, .. } => Ok(freed),
            _ => Ok(0),
        }
    }

    /// The first folio of `span` that could be split, and is old enough. The caller gets a
    /// reference.
    fn next_large(&self, space: &Space<A>, span: PageSpan, idle: u32) -> Option<Found> {
        let folios = self.base().folios();
        let looks_for_zeroes = self.base().policy.zeroes_most().is_some();
        let such = |folio: Folio| {
            let partly = u64::from(folios.counts(folio).mapped) < folio.order.pages();
            (Order::new(1)..=POPULATE_ORDER).contains(&folio.order)
                && (partly || looks_for_zeroes)
                && folios.idle(folio) >= idle
                && folios.may_be_sole(folio)
                && folios.hold(folio)
        };
        self.base().view(space).tables().first_folio(span, such).map(Found::new)
    }

    /// The order into which a folio should be split, and whether for its zeroes; `None` where that
    /// is not worth it.
    fn waste_of(&self, space: &Space<A>, found: &Found) -> Option<(Order, bool)> {
        let &Found { folio, here, .. } = found;
        if found.is_cut() {
            return None;
        }
        let most = self.base().policy.zeroes_most();
        let looks = most.is_some() && self.spaces().areas(space, here).all(|area| may_drop(&area));
        let mut waste = Waste::default();
        for seen in self.base().view(space).tables().pieces(here) {
            let Sight::Leaf { frame, attrs, .. } = seen.what else { continue };
            let from = seen.pages.start.offset_from(here.start);
            if frame.get() != folio.head.get() + from {
                // Another folio has taken this place.
                continue;
            }
            // Shared zeroes cannot be freed here; a write makes a page exclusive.
            let looks = looks && !attrs.contains(Attrs::COW);
            for at in 0..seen.pages.count() {
                match looks && self.is_zero(FrameSpan::new(frame.add(at), 1)) {
                    true => waste.zeroes += 1,
                    false => waste.need(from + at),
                }
            }
        }
        waste.need(here.count());
        // The limit is per block; for a smaller folio it is in proportion.
        let most = u64::from(most.unwrap_or(0)) << folio.order.get();
        let many = looks && waste.zeroes * A::block_order().pages() > most;
        let wasted = waste.blocks[0];
        (wasted > waste.zeroes || many).then(|| (waste.parts(folio.order), many))
    }
}
