//! Memory that other code wrote into: an error for the unit that was hit, and no more.

use crate::common::{Frames, KINDS, Kind, Noise, data, pool};
use quire_units::Order;
use quire_zpool::{Config, Error, Lender, PageId, Pool};

const SLOTS: u64 = 256;

fn filled(page_shift: u32, unit_bytes: usize, kind: Kind) -> (Pool<'static, Frames>, Vec<Vec<u8>>) {
    let config = Config::new(page_shift, unit_bytes, 0, SLOTS).unwrap();
    let mut pool = pool(config, 4000);
    let run = unit_bytes >> page_shift;
    let mut all = vec![];
    for n in 0..SLOTS as usize / run {
        let bytes = data(kind, unit_bytes, n as u64);
        let order = Order::of_bytes(unit_bytes as u64, page_shift).unwrap();
        pool.store((n * run) as u64, order, &bytes).unwrap();
        all.extend(bytes.chunks(1 << page_shift).map(<[u8]>::to_vec));
    }
    (pool, all)
}

/// How many slots are damaged: each of the others can be read.
fn damaged(pool: &mut Pool<'_, Frames>, all: &[Vec<u8>], unit: u64) -> usize {
    let mut bad = 0;
    for (slot, page) in (0..).zip(all) {
        let mut out = vec![0; page.len()];
        match pool.load(slot, 1, &mut out) {
            Ok(()) => assert!(out == *page, "wrong bytes were taken for right ones"),
            Err(Error::Corrupt { first, count }) => {
                assert_eq!((first, count), (slot / unit * unit, unit), "it names its unit");
                bad += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    bad
}

#[test]
fn d5_a_flipped_bit_of_content_is_an_error_of_its_unit_alone() {
    for (page_shift, unit_bytes) in [(12, 4096), (12, 65536), (14, 16384), (16, 65536)] {
        for kind in [Kind::Text, Kind::Random] {
            let (mut pool, all) = filled(page_shift, unit_bytes, kind);
            let unit = (unit_bytes >> page_shift) as u64;
            assert_eq!(damaged(&mut pool, &all, unit), 0);
            // The second page lent holds data: the first is the tree. Its middle is content.
            let second = pool.lender_mut().bytes_mut(PageId::new(2).unwrap());
            second[1000] ^= 0x10;
            assert_eq!(damaged(&mut pool, &all, unit) as u64, unit);
            assert_eq!(pool.counters().corrupt_units, unit, "each load met it");
            let second = pool.lender_mut().bytes_mut(PageId::new(2).unwrap());
            second[1000] ^= 0x10;
            assert_eq!(damaged(&mut pool, &all, unit), 0);
        }
    }
}

#[test]
fn d5_a_flipped_bit_of_a_repeated_word_is_found() {
    let (mut pool, all) = filled(12, 4096, Kind::Same);
    let tree = pool.lender_mut().bytes_mut(PageId::new(1).unwrap());
    tree[5 * 16 + 11] ^= 4;
    assert_eq!(damaged(&mut pool, &all, 1), 1);
    let mut out = vec![0; 4096];
    assert_eq!(pool.load(5, 1, &mut out), Err(Error::Corrupt { first: 5, count: 1 }));
}

#[test]
fn d5_two_units_whose_entries_were_swapped_are_found() {
    for kind in [Kind::Random, Kind::Same] {
        let (mut pool, all) = filled(12, 4096, kind);
        let tree = pool.lender_mut().bytes_mut(PageId::new(1).unwrap());
        (0..16).for_each(|at| tree.swap(16 * 3 + at, 16 * 4 + at));
        assert_eq!(damaged(&mut pool, &all, 1), 2);
    }
}

#[test]
fn d5_a_page_that_was_never_lent_is_never_given() {
    let config = Config::new(12, 4096, 0, 4 * SLOTS).unwrap();
    let mut pool = pool(config, 100);
    for slot in (0..4 * SLOTS).step_by(SLOTS as usize) {
        pool.store(slot, Order::ZERO, &data(Kind::Text, 4096, slot)).unwrap();
    }
    // The first page is the root; its second child is for the slots from 256 on.
    pool.lender_mut().bytes_mut(PageId::new(1).unwrap())[4..8].fill(0x77);
    pool.lender_mut().is_damaged = true;
    let mut out = vec![0; 4096];
    assert_eq!(pool.load(SLOTS, 1, &mut out), Err(Error::Absent { slot: SLOTS }));
    pool.free(SLOTS, 1).unwrap();
    pool.clear();
    assert_eq!(pool.lender().given_strays, 0);
    assert!(pool.lender().strays.get() > 0);
}

#[test]
fn d5_a_damaged_unit_can_be_freed_and_stored_again() {
    let (mut pool, all) = filled(12, 65536, Kind::Random);
    pool.lender_mut().bytes_mut(PageId::new(2).unwrap())[1000] ^= 1;
    assert_eq!(damaged(&mut pool, &all, 16), 16);
    pool.free(0, 16).unwrap();
    pool.store(0, Order::new(4), &all[..16].concat()).unwrap();
    assert_eq!(damaged(&mut pool, &all, 16), 0);
    pool.clear();
    assert_eq!(pool.lender().lent(), 0, "content alone was damaged, so nothing was lost");
}

/// Overwrites bytes anywhere, the pool's own bookkeeping included. Then much may be lost, but the
/// pool does not panic or loop, and never returns wrong bytes as right ones.
#[test]
fn d5_noise_anywhere_ends_no_kernel_and_passes_for_nothing() {
    for seed in 0..60 {
        let mut noise = Noise(seed);
        let (page_shift, unit_bytes) = [(12, 4096), (12, 65536), (14, 65536)][seed as usize % 3];
        let (mut pool, all) = filled(page_shift, unit_bytes, KINDS[seed as usize % 5]);
        (0..50).for_each(|n| assert!(pool.free(n * 5, 2).is_ok()));
        pool.lender_mut().is_damaged = true;
        for page in pool.lender_mut().all() {
            for _ in 0..noise.below(4) {
                let at = noise.below(page.len() as u64) as usize;
                page[at] ^= noise.next() as u8;
                let header = noise.below(64) as usize;
                page[header] ^= noise.next() as u8;
            }
        }
        for (slot, page) in (0..).zip(&all) {
            let mut out = vec![0; page.len()];
            if pool.load(slot, 1, &mut out).is_ok() {
                assert!(out == *page, "wrong bytes were taken for right ones");
            }
        }
        let _ = pool.check();
        pool.coldest(&mut [Default::default(); 40]);
        pool.compact(20);
        for n in 0..40 {
            let at = noise.below(SLOTS);
            let _ = pool.free(at, 3.min(SLOTS - at));
            let _ = pool.store(at, Order::ZERO, &data(Kind::Mixed, 1 << page_shift, n));
        }
        pool.compact(20);
        pool.clear();
        assert_eq!(pool.lender().given_strays, 0, "only what was lent is given back");
    }
}
