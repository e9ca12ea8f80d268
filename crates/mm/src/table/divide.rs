//! Dividing a folio into smaller ones, where it is mapped.
//!
//! ```text
//!   uniform, to order 2:   | 0..16 |  ──►  | 0..4 | 4..8 | 8..12 | 12..16 |
//!   around page 5:         | 0..16 |  ──►  | 0..4 | 4 | 5 | 6..8 | 8..16 |
//! ```
//!
//! A folio counts its mapped pages together, and only the tables know how many belong to each
//! part. So a folio is divided only where one table maps all of it that is mapped, and under the
//! lock of that table. If the folio's count says that there are no other holds, none can come
//! meanwhile: a new mapping takes the same lock. Parts that are not mapped become free. No entry
//! changes; contiguous blocks that are larger than the parts are unfolded first.

use quire_arch::{Arch, Level};
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Vpn};

use super::visit::Step;
use super::{Gather, Locked, Tables, What};
use crate::folio::{Folio, Folios};

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
    /// The order of the part that begins with page `at` of a folio of `order`, whose page `around`
    /// is the one to divide around.
    fn part(self, order: Order, at: u64, around: u64) -> Order {
        match self {
            Division::Uniform(part) => part,
            Division::Around(_, least) => {
                let fits = |part: &Order| {
                    at.is_multiple_of(part.pages()) && !(at..at + part.pages()).contains(&around)
                };
                let larger = (least.get()..order.get()).rev().map(Order::new);
                larger.filter(|part| part.pages() <= order.pages() - at).find(fits).unwrap_or(least)
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
    pub(crate) fn divide(&self, page: Vpn, how: Division, gather: &mut Gather) -> Divided {
        let locked = self.lock_lowest(page, Level::LAST);
        let index = locked.index(page);
        let What::Leaf { frame, .. } = locked.run(index, index + 1).what else {
            return Divided::Nothing;
        };
        let folios = Folios::new(self.meta);
        let block = PageSpan::block(page, A::order(locked.level()));
        let frame = frame.add(page.offset_from(block.start));
        let Some(folio) = folios.of(frame) else { return Divided::Nothing };
        if folio.order <= how.least() {
            return Divided::Small;
        }
        if A::order(locked.level()) > how.least() {
            return Divided::Leaf;
        }
        let home = page.get().wrapping_sub(frame.offset_from(folio.head));
        let end = home.wrapping_add(folio.order.pages());
        let reach = locked.reach();
        let pages = PageSpan::new(
            Vpn::new(home).max(reach.start),
            Vpn::new(end).min(reach.end).max(reach.start),
        );
        let mapped = locked.mapped_of(folio, Vpn::new(home), pages);
        if !folios.is_sole(folio, mapped as u32) {
            return Divided::Shared;
        }
        locked.divide(folio, (Vpn::new(home), pages), how, gather)
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// How many of `pages` map their page of `folio`, whose first page is at `home`.
    fn mapped_of(&self, folio: Folio, home: Vpn, pages: PageSpan) -> u64 {
        let mut mapped = 0;
        self.runs(pages, |found| -> Step<()> {
            let ahead = found.pages.start.get().wrapping_sub(home.get());
            if let What::Leaf { frame, .. } = found.run.what
                && frame.get() == folio.head.get().wrapping_add(ahead)
            {
                mapped += found.pages.count();
            }
            Step::Next
        });
        mapped
    }

    /// Divides a folio whose first page is at `home`, and which only this table maps, at `pages`.
    fn divide(
        &self,
        folio: Folio,
        (home, pages): (Vpn, PageSpan),
        how: Division,
        gather: &mut Gather,
    ) -> Divided {
        let folios = Folios::new(self.tables.meta);
        let around = match how {
            Division::Around(page, _) => page.get().wrapping_sub(home.get()),
            Division::Uniform(_) => 0,
        };
        let (mut parts, mut freed) = (0, 0);
        // From the last part to the first: the folio's own slot changes when all others are right.
        let mut end = folio.order.pages();
        while end > 0 {
            let order = self.last_part(how, folio.order, end, around);
            end -= order.pages();
            let part = Folio { head: folio.head.add(end), order };
            // A part may lie outside of the table's reach.
            let start = Vpn::new(home.get().wrapping_add(end)).max(pages.start);
            let upto = Vpn::new(home.get().wrapping_add(end + order.pages())).min(pages.end);
            let here = PageSpan::new(start, upto.max(start));
            let mapped = self.mapped_of(folio, home, here);
            if mapped > 0 {
                self.unfold_within(here, order);
                let page = Vpn::new(home.get().wrapping_add(end));
                folios.part(part, mapped as u32, self.tables.home(page));
                parts += 1;
            } else {
                gather.dead(self.tables.meta, folios.abandon(part));
                freed += order.pages();
            }
        }
        Divided::Parts { parts, freed }
    }

    /// The order of the part that ends before page `end` of a folio.
    fn last_part(&self, how: Division, order: Order, end: u64, around: u64) -> Order {
        let fits = |part: &Order| {
            let start = end.checked_sub(part.pages());
            start.is_some_and(|start| {
                start.is_multiple_of(part.pages()) && how.part(order, start, around) == *part
            })
        };
        (0..order.get()).rev().map(Order::new).find(fits).unwrap_or_default()
    }

    /// Takes the contiguous blocks of `pages` apart, if they are larger than a folio of `order`.
    fn unfold_within(&self, pages: PageSpan, order: Order) {
        if A::fold_order(self.level()).is_none_or(|block| order >= block) {
            return;
        }
        let entries = pages.count() >> A::order(self.level()).get();
        let first = self.index(pages.start);
        for index in first..first + entries as usize {
            self.unfold_at(index);
        }
    }
}
