//! Dividing a folio into smaller ones, where it is mapped.
//!
//! ```text
//!   uniform, to order 2:   | 0..16 |  ──►  | 0..4 | 4..8 | 8..12 | 12..16 |
//!   around page 5:         | 0..16 |  ──►  | 0..4 | 4 | 5 | 6..8 | 8..16 |
//! ```
//!
//! A folio counts its mapped pages together, and only the tables know how many belong to each
//! part. So a folio is divided only where one table maps all of it that is mapped, under its lock:
//! other holds cannot come meanwhile. Parts that are not mapped become free. No entry changes;
//! contiguous blocks that are larger than the parts are unfolded first.

use core::ops::Range;

use quire_arch::{Arch, Level};
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Vpn};

use super::visit::Step;
use super::{Gather, Locked, Tables, What};
use crate::folio::{Folio, FolioFlags, Folios};

/// How a folio is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Division {
    /// Into parts of this order.
    Uniform(Order),
    /// Into halves, and the half with this page again, down to this order (Linux: a non-uniform,
    /// or buddy-like, split).
    Around(Vpn, Order),
}

/// The outcome of a division.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Divided {
    /// The folio is divided.
    Parts {
        /// How many parts are mapped.
        parts: u64,
        /// How many pages, of other parts, were not mapped and are free.
        freed: u64,
    },
    /// The folio is as small already.
    Small,
    /// One leaf maps more of the folio than a part: split that first.
    Leaf,
    /// Other spaces map the folio, or it is held.
    Shared,
    /// No folio is mapped at the page.
    Nothing,
}

impl Division {
    /// The order of the part that page `at` of a folio of `order` belongs to. `home` is the page at
    /// which the folio's first page is.
    fn part(self, order: Order, home: i64, at: u64) -> Order {
        match self {
            Division::Uniform(part) => part,
            // The largest block with the one page and without the other.
            Division::Around(page, least) => {
                let apart = at as i64 ^ (page.get() as i64 - home);
                let block = (apart as u64).checked_ilog2().unwrap_or(0) as u8;
                Order::new(block.min(order.get() - 1)).max(least)
            }
        }
    }

    /// The smallest part.
    fn least(self) -> Order {
        match self {
            Division::Uniform(least) | Division::Around(_, least) => least,
        }
    }
}

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Divides the folio that `page` maps. Memory that becomes free goes into `gather`.
    #[inline(never)]
    pub(crate) fn divide(&self, page: Vpn, how: Division, gather: &mut Gather) -> Divided {
        let locked = self.lock_lowest(page, Level::LAST);
        let Some((frame, _)) = locked.leaf_at(locked.index(page)) else { return Divided::Nothing };
        let block = PageSpan::block(page, locked.unit());
        let frame = frame.add(page.offset_from(block.start));
        let folios = Folios::new(self.meta);
        let Some(folio) = folios.of(frame) else { return Divided::Nothing };
        if folio.order <= how.least() {
            return Divided::Small;
        }
        if locked.unit() > how.least() {
            return Divided::Leaf;
        }
        // Below zero where the first pages of the folio are not mapped.
        let home = page.get() as i64 - frame.offset_from(folio.head) as i64;
        let mapped = locked.mapped_of(folio, home, 0..folio.order.pages());
        if !folios.is_sole(folio, mapped as u32) {
            return Divided::Shared;
        }
        locked.divide(folio, home, how, gather)
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// The pages for `part` of a folio, in pages of it, that this table translates.
    fn pages_for(&self, home: i64, part: &Range<u64>) -> PageSpan {
        let reach = self.reach();
        let within = |at: u64| (home + at as i64).max(reach.start.get() as i64) as u64;
        let [start, end] = [part.start, part.end].map(|at| Vpn::new(within(at)).min(reach.end));
        PageSpan::new(start, end)
    }

    /// How many pages of `part` of `folio`, whose first page is at `home`, are mapped there.
    fn mapped_of(&self, folio: Folio, home: i64, part: Range<u64>) -> u64 {
        let mut mapped = 0;
        self.runs(self.pages_for(home, &part), |found| -> Step<()> {
            let ahead = found.pages.start.get() as i64 - home;
            if let What::Leaf { frame, .. } = found.run.what
                && frame == folio.head.add(ahead as u64)
            {
                mapped += found.pages.count();
            }
            Step::Next
        });
        mapped
    }

    /// Divides a folio whose first page is at `home`, and which only this table maps.
    fn divide(&self, folio: Folio, home: i64, how: Division, gather: &mut Gather) -> Divided {
        let folios = Folios::new(self.tables.meta);
        let (mut parts, mut freed) = (0, 0);
        // The parts are the same bytes, of the same age, and may be lost or not as before.
        let known = folios.known(folio).0
            & (FolioFlags::PUBLISHED
                | FolioFlags::LAZY
                | FolioFlags::IDLE_LOW
                | FolioFlags::IDLE_HIGH);
        // From the last part to the first: the folio's own slot changes when all others are right.
        let mut end = folio.order.pages();
        while end > 0 {
            let order = how.part(folio.order, home, end - 1);
            let range = end - order.pages()..end;
            end = range.start;
            let part = Folio { head: folio.head.add(end), order };
            let mapped = self.mapped_of(folio, home, range.clone());
            if mapped > 0 {
                self.unfold_within(self.pages_for(home, &range), order);
                let page = Vpn::new((home + end as i64) as u64);
                folios.part(part, mapped as u32, self.tables.home(page), known);
                parts += 1;
            } else {
                gather.dead(self.tables.meta, folios.abandon(part));
                freed += order.pages();
            }
        }
        Divided::Parts { parts, freed }
    }

    /// Takes the contiguous blocks of `pages` apart, if they are larger than a folio of `order`.
    fn unfold_within(&self, pages: PageSpan, order: Order) {
        if self.fold_order().is_some_and(|block| order < block) {
            self.entries(pages).for_each(|index| self.unfold_at(index));
        }
    }
}
