//! The room for folios that move, beside a naive model that places them one by one.

use std::vec::Vec;

use proptest::prelude::*;
use quire_units::{FrameSpan, Pfn};

use super::{Content, Parts};
use crate::limits::GROUP_ORDER;

const ORDERS: usize = GROUP_ORDER.index();
const BLOCK: FrameSpan = FrameSpan::new(Pfn::new(0), GROUP_ORDER.pages());

/// Takes a block of `order` out of the smallest part that has one; whether there was any.
fn place(free: &mut Parts, order: usize) -> bool {
    let Some(from) = (order..ORDERS).find(|at| free[*at] > 0) else { return false };
    free[from] -= 1;
    // The rest of the part: one block of each smaller order.
    (order..from).for_each(|at| free[at] += 1);
    true
}

/// The pages of folios that must be divided, if all folios find room: large ones choose first.
fn divided(whole: &[u16; ORDERS], divisible: &[u16; ORDERS], free: Parts) -> Option<u64> {
    let (mut free, mut pages) = (free, 0);
    for order in (0..ORDERS).rev() {
        if !(0..whole[order]).all(|_| place(&mut free, order)) {
            return None;
        }
        for _ in 0..divisible[order] {
            pages += if place(&mut free, order) { 0 } else { 1 << order };
        }
    }
    (0..pages).all(|_| place(&mut free, 0)).then_some(pages)
}

fn small(most: u16) -> impl Strategy<Value = [u16; ORDERS]> {
    prop::array::uniform::<_, ORDERS>(0..=most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn e7_folios_fit_into_free_parts_where_they_fit_one_by_one(
        whole in small(2),
        divisible in small(2),
        parts in small(4),
        most in 0u64..4000,
        stays in prop::bool::weighted(0.1),
    ) {
        let free: Parts = parts.map(u64::from);
        let count = |of: &[u16; ORDERS]| -> u64 {
            of.iter().enumerate().map(|(order, count)| u64::from(*count) << order).sum()
        };
        let pages = count(&whole) + count(&divisible);
        let content = Content { free: [0; ORDERS], whole, divisible, pages, stays };
        let load = content.load(BLOCK, &free, most);
        let fits = divided(&whole, &divisible, free);
        let expected = fits.filter(|_| !stays && pages > 0 && pages <= most);
        prop_assert_eq!(load.map(|load| load.divided), expected);
        if let Some(load) = load {
            prop_assert_eq!((load.block, load.pages), (BLOCK, pages));
            prop_assert_eq!(load.cost(), pages + load.divided);
        }
    }
}

#[test]
fn e7_a_block_with_exactly_as_many_pages_as_may_move_is_feasible() {
    let one = |order: usize| {
        let mut parts = [0; ORDERS];
        parts[order] = 1;
        parts
    };
    let content = || Content { whole: one(3), pages: 8, ..Content::default() };
    let free: Vec<Parts> = [2, 3, 4].map(|order| one(order).map(u64::from)).into();
    let fits = |free: &Parts, most| content().load(BLOCK, free, most).is_some();
    assert_eq!(free.iter().map(|free| fits(free, 8)).collect::<Vec<_>>(), [false, true, true]);
    assert!(!fits(&free[1], 7), "one page more than may move");
    let empty = Content::default().load(BLOCK, &free[1], 8);
    assert!(empty.is_none(), "nothing would be gained");
}
