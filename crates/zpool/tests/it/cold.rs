//! The search returns each cold unit once, and no longer when it is freed.

use crate::common::{Kind, data, pool};
use quire_units::Order;
use quire_zpool::{ColdRun, Config, SLOT_END};

fn runs(cold: &[ColdRun]) -> Vec<(u64, u64)> {
    cold.iter().map(|run| (run.first, run.count)).collect()
}

#[test]
fn d5_units_loaded_since_the_last_round_are_not_cold() {
    let config = Config::new(12, 16 << 10, 1000, 64).unwrap();
    let mut pool = pool(config, 1000);
    for n in 0..8 {
        pool.store(1000 + n * 4, Order::new(2), &data(Kind::Text, 16384, n)).unwrap();
    }
    let mut cold = [ColdRun::default(); 3];
    assert_eq!(pool.coldest(&mut cold), 3, "all were new: the first ones are as cold as any");
    assert_eq!(runs(&cold), [(1000, 4), (1004, 4), (1008, 4)]);
    pool.load(1013, 1, &mut [0; 4096]).unwrap();
    pool.store(1020, Order::new(2), &data(Kind::Text, 16384, 9)).unwrap();
    let mut cold = [ColdRun::default(); 9];
    let found = pool.coldest(&mut cold);
    let expected = [(1016, 4), (1024, 4), (1028, 4), (1000, 4), (1004, 4), (1008, 4)];
    assert_eq!(runs(&cold[..found]), expected);
    let found = pool.coldest(&mut cold);
    assert_eq!(found, 8, "in the next round, the two are cold as well");
}

#[test]
fn d5_units_without_memory_are_never_cold() {
    let config = Config::new(12, 16 << 10, 0, 64).unwrap();
    let mut pool = pool(config, 1000);
    pool.store(0, Order::new(5), &data(Kind::Zero, 32 * 4096, 0)).unwrap();
    let mut cold = [ColdRun::default(); 4];
    assert_eq!(pool.coldest(&mut cold), 0);
    pool.store(40, Order::ZERO, &data(Kind::Random, 4096, 0)).unwrap();
    assert_eq!(pool.coldest(&mut cold), 1);
    assert_eq!(runs(&cold[..1]), [(40, 1)]);
    assert_eq!(pool.coldest(&mut []), 0);
}

#[test]
fn d5_a_unit_with_a_hole_is_cold_in_parts_and_gets_its_second_chance_as_a_whole() {
    let config = Config::new(12, 16 << 10, 0, 16).unwrap();
    let mut pool = pool(config, 1000);
    for n in 0..4 {
        pool.store(n * 4, Order::new(2), &data(Kind::Text, 16384, n)).unwrap();
    }
    pool.free(5, 1).unwrap();
    let mut cold = [ColdRun::default(); 9];
    let found = pool.coldest(&mut cold);
    assert_eq!(runs(&cold[..found]), [(0, 4), (4, 1), (6, 2), (8, 4), (12, 4)]);
    pool.load(6, 1, &mut [0; 4096]).unwrap();
    let found = pool.coldest(&mut cold);
    assert_eq!(runs(&cold[..found]), [(0, 4), (8, 4), (12, 4)], "neither of its parts");
    for run in &cold[..found] {
        pool.free(run.first, run.count).unwrap();
    }
    let found = pool.coldest(&mut cold);
    assert_eq!(runs(&cold[..found]), [(4, 1), (6, 2)]);
}

#[test]
fn d5_slots_far_apart_are_found_and_leave_no_page_of_the_tree() {
    for page_shift in [12, 14, 16] {
        let config = Config::new(page_shift, 64 << 10, 0, SLOT_END).unwrap();
        let mut pool = pool(config, 1000);
        let far = [0, 255, 256, 1 << 30, (1 << 43) + 7, SLOT_END - 1];
        let page = |slot| data(Kind::Random, 1 << page_shift, slot);
        far.iter().for_each(|&slot| assert!(pool.store(slot, Order::ZERO, &page(slot)).is_ok()));
        pool.check().unwrap();
        let mut cold = [ColdRun::default(); 9];
        let found = pool.coldest(&mut cold);
        assert_eq!(runs(&cold[..found]), far.map(|slot| (slot, 1)));
        for slot in far {
            let mut out = vec![0; 1 << page_shift];
            pool.load(slot, 1, &mut out).unwrap();
            assert!(out == page(slot));
        }
        assert_eq!(pool.free(0, SLOT_END), Ok(6));
        assert_eq!(pool.lender().lent(), 0);
    }
}
