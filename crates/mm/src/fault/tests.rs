//! Sizes beside loops over pages.

use proptest::prelude::*;
use quire_units::{Order, OrderSet, PageSpan, Vpn};

use super::size::{Choice, choose, fitting};
use crate::limits::{ORDER_MAX, ORDERS};

/// The naive form, page by page: whether all of the block lies in the area.
fn fits(area: PageSpan, page: Vpn, order: u8) -> bool {
    let block = PageSpan::block(page, Order::new(order));
    (block.start.get()..block.end.get()).all(|page| area.contains(Vpn::new(page)))
}

fn naive_choice(
    area: PageSpan,
    page: Vpn,
    candidates: u32,
    empty: Order,
    block: Order,
    most: u8,
) -> Choice {
    let (mut orders, mut geometry, mut occupied) = (1, 0, 0);
    let mut policy = None;
    let mut largest = 0;
    for order in 1..=most {
        let candidate = candidates >> order & 1 != 0;
        let fits = fits(area, page, order);
        match (candidate, fits, order <= empty.get()) {
            (true, true, true) => {
                orders |= 1 << order;
                largest = order;
            }
            (true, true, false) => occupied |= 1 << order,
            (true, false, _) => geometry |= 1 << order,
            (false, true, _) if order <= block.get() => policy = Some(Order::new(order)),
            (false, ..) => {}
        }
        if candidate && fits && order <= block.get() {
            policy = None;
        }
    }
    let policy = policy.filter(|order| order.get() > largest);
    let [orders, geometry, occupied] = [orders, geometry, occupied].map(OrderSet::from_bits);
    Choice { orders, geometry, occupied, policy }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn e4_fitting_is_the_largest_block_inside_the_area(
        start in 0..3000u64,
        len in prop_oneof![1..40u64, 1..3000u64],
        at in any::<u64>(),
    ) {
        let area = PageSpan::new(Vpn::new(start), Vpn::new(start + len));
        let page = Vpn::new(start + at % len);
        let naive = (0..14).rev().find(|order| fits(area, page, *order));
        prop_assert_eq!(Some(fitting(area, page).get()), naive);
    }

    #[test]
    fn e4_a_choice_says_what_is_possible_and_why_no_more(
        start in 0..3000u64,
        len in prop_oneof![1..40u64, 1..3000u64],
        at in any::<u64>(),
        candidates in any::<u32>(),
        empty in 0..14u8,
        block in 1..12u8,
    ) {
        let area = PageSpan::new(Vpn::new(start), Vpn::new(start + len));
        let page = Vpn::new(start + at % len);
        let most = 13;
        let candidates = candidates & ((2 << most) - 1) & !1;
        let (empty, block) = (Order::new(empty), Order::new(block));
        let choice = choose(fitting(area, page), OrderSet::from_bits(candidates), empty, block);
        let naive = naive_choice(area, page, candidates, empty, block, most);
        prop_assert_eq!(choice, naive);
        let all = choice.orders | choice.geometry | choice.occupied;
        prop_assert_eq!(all.bits(), candidates | 1);
        // Going down step by step meets every possible order once, and ends with one page.
        let mut left = choice.orders.bits();
        let mut order = Some(choice.largest());
        while let Some(next) = order {
            prop_assert_eq!(next.get(), left.ilog2() as u8);
            left &= !(1 << next.get());
            order = choice.below(next);
        }
        prop_assert_eq!(left, 0);
    }
}

#[test]
fn e4_fitting_at_the_ends_of_the_address_space() {
    let all = PageSpan::new(Vpn::new(0), Vpn::new(1 << 35));
    assert_eq!(fitting(all, Vpn::new(0)), ORDER_MAX);
    assert_eq!(fitting(all, Vpn::new((1 << 35) - 1)), ORDER_MAX);
    let first = PageSpan::new(Vpn::new(0), Vpn::new(1));
    assert_eq!(fitting(first, Vpn::new(0)), Order::ZERO);
    assert!(ORDER_MAX.index() < ORDERS);
}
