//! The sizes of copies that writes to shared pages make (row C4).
//!
//! A copy of more than the page saves the faults of the pages around it, and costs time and memory
//! if these are never written. So it has a policy of its own, by the size of the folio that is
//! written: what pays for a first touch need not pay here.
//!
//! ```text
//!   folio that is written   sizes of its copies
//!   ≤ most                  those of first touches, as far as they are not above `most`
//!   > most                  the same; `most` where none of them is
//!   with a rule of its own  that rule
//! ```

use quire_units::{Order, OrderSet};

use crate::limits::{COPY_MOST_BYTES, COPY_NS, ORDERS};
use crate::sync::{AtomicU32, Ordering};

/// The sizes of copies. May be changed while it is in use.
#[derive(Debug)]
pub(super) struct Copies {
    /// The largest copy without a rule.
    most: AtomicU32,
    /// The rule for folios of each order: a set of orders, empty where there is none.
    rules: [AtomicU32; ORDERS],
}

impl Copies {
    /// A write copies its page alone, as on Linux.
    pub(super) fn new() -> Self {
        Self { most: AtomicU32::new(0), rules: core::array::from_fn(|_| AtomicU32::new(0)) }
    }

    pub(super) fn most(&self) -> Order {
        Order::new(self.most.load(Ordering::Relaxed) as u8)
    }

    pub(super) fn set_most(&self, order: Order) {
        self.most.store(order.get().into(), Ordering::Relaxed);
    }

    /// The largest copy that takes at most [`COPY_NS`] at this speed, and at most
    /// [`COPY_MOST_BYTES`] of memory.
    pub(super) fn affordable(mb_per_s: u32, page_shift: u32) -> Order {
        let bytes = (u64::from(mb_per_s) * COPY_NS / 1000).min(COPY_MOST_BYTES);
        Order::fitting(bytes >> page_shift).unwrap_or_default()
    }

    pub(super) fn rule(&self, folio: Order) -> Option<OrderSet> {
        let rule = self.rules.get(folio.index())?;
        let sizes = OrderSet::from_bits(rule.load(Ordering::Relaxed));
        (!sizes.is_empty()).then_some(sizes)
    }

    pub(super) fn set_rule(&self, folio: Order, sizes: Option<OrderSet>) -> Result<(), Order> {
        let rule = self.rules.get(folio.index()).ok_or(folio)?;
        let bits = sizes.map_or(0, |sizes| (sizes | OrderSet::of(Order::ZERO)).bits());
        rule.store(bits, Ordering::Relaxed);
        Ok(())
    }

    /// The sizes for a write to a private page of a file, whose block may have several folios.
    #[cfg(feature = "files")]
    pub(super) fn of_files(&self, wanted: OrderSet) -> OrderSet {
        (wanted & OrderSet::up_to(self.most())) | OrderSet::of(Order::ZERO)
    }

    /// The sizes for a write to a folio of order `folio` in an area where `wanted` are the sizes of
    /// first touches: at least a page, and nothing above the folio.
    pub(super) fn sizes(&self, folio: Order, wanted: OrderSet) -> OrderSet {
        let most = OrderSet::up_to(self.most().min(folio));
        let sizes = self.rule(folio).unwrap_or_else(|| match wanted & most {
            few if few.is_empty() && !wanted.is_empty() => OrderSet::of(self.most().min(folio)),
            sizes => sizes,
        });
        (sizes & OrderSet::up_to(folio)) | OrderSet::of(Order::ZERO)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn set(orders: &[u8]) -> OrderSet {
        orders.iter().fold(OrderSet::EMPTY, |set, order| set | OrderSet::of(Order::new(*order)))
    }

    #[test]
    fn c4_a_copy_from_a_large_folio_has_the_largest_size_where_first_touches_have_only_larger() {
        let copies = Copies::new();
        copies.set_most(Order::new(4));
        for (folio, wanted, sizes) in [
            (9, &[9][..], &[0, 4][..]),
            (9, &[2, 9], &[0, 2]),
            (9, &[3, 4, 9], &[0, 3, 4]),
            (9, &[], &[0]),
            (4, &[4], &[0, 4]),
            (2, &[9], &[0, 2]),
            (0, &[9], &[0]),
        ] {
            assert_eq!(
                copies.sizes(Order::new(folio), set(wanted)),
                set(sizes),
                "{folio} {wanted:?}"
            );
        }
    }

    #[test]
    fn c4_a_rule_for_a_folio_size_replaces_the_sizes_of_first_touches() {
        let copies = Copies::new();
        copies.set_most(Order::new(4));
        assert_eq!(copies.set_rule(Order::new(8), Some(set(&[6, 9]))), Ok(()));
        assert_eq!(copies.sizes(Order::new(8), set(&[3])), set(&[0, 6]), "never above the folio");
        assert_eq!(copies.sizes(Order::new(9), set(&[3])), set(&[0, 3]), "another size's");
        assert_eq!(copies.rule(Order::new(8)), Some(set(&[0, 6, 9])));
        assert_eq!(copies.set_rule(Order::new(8), Some(OrderSet::EMPTY)), Ok(()));
        assert_eq!(copies.sizes(Order::new(8), set(&[3])), set(&[0]), "pages alone");
        assert_eq!(copies.set_rule(Order::new(8), None), Ok(()));
        assert_eq!(copies.sizes(Order::new(8), set(&[3])), set(&[0, 3]));
        let beyond = Order::new(ORDERS as u8);
        assert_eq!(copies.set_rule(beyond, None), Err(beyond));
    }

    #[test]
    fn c4_a_slow_copy_is_a_small_copy() {
        let order = |mb_per_s| Copies::affordable(mb_per_s, 12).get();
        assert_eq!([0, 300, 410, 3_300, 6_600, 40_000].map(order), [0, 0, 0, 3, 4, 4]);
        assert_eq!(Copies::affordable(40_000, 16), Order::ZERO, "64 KiB are a page");
    }
}
