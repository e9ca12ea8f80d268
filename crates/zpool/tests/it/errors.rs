//! Each way to fail, and the state after it.

use crate::common::{Frames, Kind, data, pool};
use quire_units::Order;
use quire_zpool::{
    Config, Error, Lender, PageId, Pool, SLOT_END, Scratch, SetupError, Table, UNIT_BYTES_MAX,
};

const FIRST: u64 = 64;
const SLOTS: u64 = 128;

fn config() -> Config {
    Config::new(12, 16 << 10, FIRST, SLOTS).unwrap()
}

#[test]
fn d5_an_impossible_pool_is_refused_with_the_arguments() {
    for page_shift in [0, 11, 13, 21, 64] {
        let refused = Config::new(page_shift, 4096, 0, 1);
        assert_eq!(refused, Err(SetupError::PageShift { page_shift }));
    }
    for unit_bytes in [0, 2048, 4095, 12288, UNIT_BYTES_MAX * 2] {
        assert_eq!(Config::new(12, unit_bytes, 0, 1), Err(SetupError::Unit { unit_bytes }));
    }
    assert_eq!(Config::new(16, 4096, 0, 1), Err(SetupError::Unit { unit_bytes: 4096 }));
    for (first, count) in [(0, 0), (SLOT_END, 1), (1, SLOT_END), (u64::MAX, 1), (0, u64::MAX)] {
        assert_eq!(Config::new(12, 4096, first, count), Err(SetupError::Slots { first, count }));
    }
    assert!(Config::new(12, 4096, 0, SLOT_END).is_ok());
    let needed = config().scratch_bytes();
    for given in [0, 16384, needed - 1] {
        let mut bytes = vec![0; given];
        let scratch = Scratch { table: &mut Table::new(), bytes: &mut bytes };
        let refused = Pool::new(config(), Frames::new(4096, 0), scratch).err();
        assert_eq!(refused, Some(SetupError::Scratch { given, needed }));
    }
}

#[test]
fn d5_wrong_arguments_change_nothing() {
    let mut pool = pool(config(), 100);
    let bytes = data(Kind::Text, 16384, 1);
    pool.store(FIRST, Order::new(2), &bytes).unwrap();
    let before = pool.counters();
    let mut out = vec![0; 4096];
    for (first, count) in [(0, 1), (FIRST - 1, 2), (FIRST + SLOTS, 1), (u64::MAX, 2), (FIRST, 0)] {
        let refused = Error::OutOfRange { first, count };
        assert_eq!(pool.load(first, count, &mut out), Err(refused));
        assert_eq!(pool.free(first, count), Err(refused));
    }
    let (first, order) = (FIRST + SLOTS - 1, Order::new(1));
    let refused = Error::OutOfRange { first, count: 2 };
    assert_eq!(pool.store(first, order, &bytes[..8192]), Err(refused));
    let (first, order) = (FIRST, Order::new(63));
    let refused = Error::OutOfRange { first, count: 1 << 63 };
    assert_eq!(pool.store(first, order, &bytes), Err(refused));
    let (first, order) = (FIRST + 1, Order::new(1));
    assert_eq!(pool.store(first, order, &bytes[..8192]), Err(Error::Misaligned { first, order }));
    let refused = Error::WrongLength { given: 8191, needed: 8192 };
    assert_eq!(pool.store(FIRST, Order::new(1), &bytes[..8191]), Err(refused));
    assert_eq!(
        pool.load(FIRST, 2, &mut out),
        Err(Error::WrongLength { given: 4096, needed: 8192 })
    );
    assert_eq!(pool.counters(), before);
    let mut out = vec![0; 16384];
    pool.load(FIRST, 4, &mut out).unwrap();
    assert!(out == bytes);
}

#[test]
fn d5_slots_that_are_not_stored_are_absent_and_named() {
    let mut pool = pool(config(), 100);
    let mut out = vec![0; 16384];
    assert_eq!(pool.load(FIRST, 4, &mut out), Err(Error::Absent { slot: FIRST }));
    pool.store(FIRST, Order::new(2), &data(Kind::Text, 16384, 1)).unwrap();
    assert_eq!(pool.free(FIRST + 2, 1), Ok(1));
    assert_eq!(pool.free(FIRST + 2, 1), Ok(0), "it is free already");
    assert_eq!(pool.load(FIRST, 4, &mut out), Err(Error::Absent { slot: FIRST + 2 }));
}

#[test]
fn d5_a_store_that_fails_at_any_page_leaves_the_run_empty_and_leaks_nothing() {
    let old = data(Kind::Random, 16 * 4096, 1);
    let new = data(Kind::Mixed, 16 * 4096, 2);
    let mut failures = 0;
    for fail_after in 0.. {
        let mut pool = pool(config(), 1000);
        pool.store(FIRST, Order::new(4), &old).unwrap();
        pool.store(FIRST + 64, Order::ZERO, &old[..4096]).unwrap();
        pool.lender_mut().fail_after = Some(fail_after);
        let stored = pool.store(FIRST, Order::new(4), &new);
        pool.check().unwrap();
        let mut out = vec![0; 16 * 4096];
        if stored.is_ok() {
            // The lender may fail and the store succeed: other pages had room.
            pool.load(FIRST, 16, &mut out).unwrap();
            assert!(out == new);
            if pool.lender().fail_after.is_some() {
                assert!(fail_after > 4, "pages were needed");
                break;
            }
            continue;
        }
        assert_eq!(stored, Err(Error::NoMemory { first: FIRST, count: 16 }));
        assert_eq!(pool.counters().failed_stores, 1);
        failures += 1;
        assert_eq!(pool.counters().slots, 1);
        assert_eq!(pool.load(FIRST, 16, &mut out), Err(Error::Absent { slot: FIRST }));
        pool.load(FIRST + 64, 1, &mut out[..4096]).unwrap();
        assert!(out[..4096] == old[..4096], "its neighbour is as before");
        pool.free(FIRST + 64, 1).unwrap();
        assert_eq!(pool.lender().lent(), 0);
    }
    assert!(failures > 1, "only {failures} stores failed");
}

#[test]
fn d5_with_the_pages_that_were_promised_a_store_succeeds() {
    for (page_shift, unit_order) in [(12, 0), (12, 4), (12, 9), (14, 0), (14, 4), (16, 0), (16, 5)]
    {
        let config = Config::new(page_shift, 1 << (page_shift + unit_order), 5, 1 << 30).unwrap();
        for order in (0..=5).chain((page_shift == 12).then_some(9)) {
            let mut pool = pool(config, 0);
            let order = Order::new(order);
            pool.lender_mut().budget = pool.store_pages_max(order) as usize;
            let bytes = data(Kind::Random, (1 << page_shift) * order.pages() as usize, 1);
            pool.store(1 << 20, order, &bytes).unwrap();
            assert!(pool.counters().raw_units > 0);
        }
    }
}

#[test]
fn d5_the_promise_for_a_run_is_no_larger_than_its_pages_and_their_entries_demand() {
    let slots = 32;
    let pool = pool(Config::new(12, 1 << 16, 0, slots).unwrap(), 0);
    let promised = [0, 4, 5, 6, 9].map(|order| pool.store_pages_max(Order::new(order)));
    assert!(promised[0] < promised[1] && promised[1] < promised[2], "{promised:?}");
    assert_eq!(promised[2..], [promised[2]; 3], "no run is larger than the pool");
    // A page for each slot, one more that the last object may begin in, and a path of the tree.
    assert!(promised[2] <= slots + 1 + 8, "{promised:?}");
}

#[test]
fn d5_same_filled_units_take_entries_only() {
    let mut pool = pool(config(), 1);
    for (kind, seed) in [(Kind::Zero, 0), (Kind::Same, 5)] {
        let bytes = data(kind, 64 * 4096, seed);
        let stored = pool.store(FIRST, Order::new(6), &bytes).unwrap();
        assert_eq!((stored.same_units, stored.object_bytes), (16, 0));
        assert_eq!(pool.counters().data_pages, 0);
        let mut out = vec![1; 3 * 4096];
        pool.load(FIRST + 7, 3, &mut out).unwrap();
        assert!(out == bytes[..3 * 4096]);
    }
}

#[test]
fn d5_a_unit_keeps_its_memory_until_its_last_slot_is_freed() {
    let mut pool = pool(config(), 100);
    let bytes = data(Kind::Random, 16384, 1);
    pool.store(FIRST, Order::new(2), &bytes).unwrap();
    let held = pool.counters().object_bytes;
    for (slot, left) in [(FIRST, 3), (FIRST + 3, 2), (FIRST + 1, 1)] {
        pool.free(slot, 1).unwrap();
        pool.check().unwrap();
        assert_eq!((pool.counters().slots, pool.counters().object_bytes), (left, held));
        let mut out = vec![0; 4096];
        pool.load(FIRST + 2, 1, &mut out).unwrap();
        assert!(out == bytes[2 * 4096..3 * 4096]);
    }
    pool.free(FIRST + 2, 1).unwrap();
    assert_eq!(pool.lender().lent(), 0);
}

#[test]
fn d5_the_parts_of_a_unit_are_decoded_once_if_loaded_one_after_the_other() {
    let mut pool = pool(config(), 100);
    for (kind, seed) in [(Kind::Text, 1), (Kind::Text, 2), (Kind::Random, 3)] {
        let bytes = data(kind, 16384, seed);
        pool.store(FIRST, Order::new(2), &bytes).unwrap();
        let before = pool.counters().decoded_units;
        for (slot, page) in (FIRST..).zip(bytes.chunks(4096)) {
            let mut out = vec![0; 4096];
            pool.load(slot, 1, &mut out).unwrap();
            assert!(out == page, "the earlier contents are not remembered");
        }
        assert_eq!(pool.counters().decoded_units, before + 1);
    }
}

#[test]
fn d5_smaller_units_live_in_the_holes_of_a_larger_one() {
    let mut pool = pool(config(), 100);
    let old = data(Kind::Text, 16384, 1);
    let new = data(Kind::Text, 4096, 2);
    pool.store(FIRST, Order::new(2), &old).unwrap();
    for slot in 0..3 {
        pool.store(FIRST + slot, Order::ZERO, &new).unwrap();
        pool.check().unwrap();
        let mut out = vec![0; 16384];
        pool.load(FIRST, 4, &mut out).unwrap();
        for (at, page) in out.chunks(4096).enumerate() {
            let is_new = at as u64 <= slot;
            assert!(page == if is_new { &new } else { &old[at * 4096..][..4096] });
        }
    }
    assert_eq!(pool.counters().packed_units, 4);
    pool.store(FIRST + 3, Order::ZERO, &new).unwrap();
    assert_eq!(pool.counters().packed_units, 4, "the large one is gone");
}

#[test]
fn d5_errors_say_what_they_are_about() {
    let order = Order::new(3);
    let texts = [
        (Error::OutOfRange { first: 71, count: 2 }.to_string(), "71"),
        (Error::Misaligned { first: 72, order }.to_string(), "72"),
        (Error::WrongLength { given: 73, needed: 4096 }.to_string(), "73"),
        (Error::NoMemory { first: 74, count: 2 }.to_string(), "74"),
        (Error::Absent { slot: 75 }.to_string(), "75"),
        (Error::Corrupt { first: 76, count: 2 }.to_string(), "76"),
        (SetupError::PageShift { page_shift: 13 }.to_string(), "13"),
        (SetupError::Unit { unit_bytes: 77 }.to_string(), "77"),
        (SetupError::Slots { first: 78, count: 0 }.to_string(), "78"),
        (SetupError::Scratch { given: 79, needed: 99 }.to_string(), "79"),
    ];
    texts.iter().for_each(|(text, evidence)| assert!(text.contains(evidence), "{text}"));
}

#[test]
fn d5_an_empty_pool_has_no_page_and_page_zero_is_none() {
    let mut pool = pool(config(), 10);
    assert_eq!(pool.counters().lent_pages(), 0);
    pool.clear();
    assert_eq!(pool.compact(9), 0);
    assert_eq!(PageId::new(0), None);
    assert_eq!(pool.lender_mut().take().map(PageId::number), Some(1));
    assert_eq!(pool.into_lender().lent(), 1, "that one was not the pool's");
}
