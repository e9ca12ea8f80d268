//! The share of lent memory that holds compressed bytes, beside a model of size classes.

use std::collections::BTreeMap;

use crate::common::{Frames, Kind, Noise, data, pool};
use quire_units::Order;
use quire_zpool::{Config, Pool};

const SLOTS: u64 = 2048;

/// Lent bytes divided by compressed bytes, less one.
fn waste(pool: &Pool<'_, Frames>) -> f64 {
    let counters = pool.counters();
    let lent = counters.lent_pages() as usize * pool.config().page_bytes();
    lent as f64 / counters.object_bytes as f64 - 1.0
}

/// Objects in size classes 16 bytes apart, each class in groups of one to eight pages with little
/// left over, as in zsmalloc. Groups are always compacted; no metadata is counted.
#[derive(Default)]
struct Classes {
    /// The number of objects of each class, by its size.
    classes: BTreeMap<usize, usize>,
    lengths: BTreeMap<u64, usize>,
}

impl Classes {
    fn size(length: usize) -> usize {
        // Beyond 4/5 of a page, zsmalloc gives a whole one.
        if length > 3264 { 4096 } else { length.next_multiple_of(16) }
    }

    fn insert(&mut self, slot: u64, length: usize) {
        self.remove(slot);
        *self.classes.entry(Self::size(length)).or_default() += 1;
        self.lengths.insert(slot, length);
    }

    fn remove(&mut self, slot: u64) {
        if let Some(length) = self.lengths.remove(&slot) {
            *self.classes.entry(Self::size(length)).or_default() -= 1;
        }
    }

    fn waste(&self) -> f64 {
        let pages = |(&size, &objects): (&usize, &usize)| {
            let left = |pages: &usize| (pages * 4096 % size) * 1000 / pages;
            let group = (1..=8).min_by_key(left).unwrap_or(1);
            objects.div_ceil(group * 4096 / size) * group
        };
        let lent: usize = self.classes.iter().map(pages).sum::<usize>() * 4096;
        let held: usize = self.lengths.values().sum();
        lent as f64 / held as f64 - 1.0
    }
}

/// The waste at one moment, here and with size classes.
fn compare(when: &str, pool: &mut Pool<'_, Frames>, classes: &Classes, limit: f64) {
    pool.check().unwrap();
    let (ours, theirs) = (waste(pool), classes.waste());
    eprintln!("{when}: {:.1} % wasted, size classes {:.1} %", ours * 100.0, theirs * 100.0);
    assert!(ours <= limit, "{when}: {:.1} % of the compressed bytes", ours * 100.0);
    assert!(ours < theirs, "{when}: size classes are denser");
}

#[test]
fn d5_no_more_than_a_tenth_is_wasted_when_filled_churned_or_compacted() {
    let config = Config::new(12, 4096, 0, SLOTS).unwrap();
    let mut pool = pool(config, 4096);
    let mut classes = Classes::default();
    let mut noise = Noise(11);
    let store = |pool: &mut Pool<'_, Frames>, classes: &mut Classes, slot: u64, seed: u64| {
        // Text with some part of zeroes: objects of all lengths up to 3 KiB.
        let mut bytes = data(Kind::Text, 4096, seed);
        let zeroes = Noise(seed).below(3000) as usize;
        bytes[..zeroes].fill(0);
        let stored = pool.store(slot, Order::ZERO, &bytes).unwrap();
        classes.insert(slot, stored.object_bytes as usize);
    };
    (0..SLOTS).for_each(|slot| store(&mut pool, &mut classes, slot, slot));
    compare("filled", &mut pool, &classes, 0.10);
    for seed in 0..3 * SLOTS {
        store(&mut pool, &mut classes, noise.below(SLOTS), SLOTS + seed);
    }
    compare("churned", &mut pool, &classes, 0.10);
    for slot in 0..SLOTS {
        if noise.below(3) > 0 {
            pool.free(slot, 1).unwrap();
            classes.remove(slot);
        }
    }
    let before = waste(&pool);
    assert!(pool.compact(u64::MAX) > 0);
    eprintln!("two thirds freed: {:.1} % wasted before compaction", before * 100.0);
    compare("two thirds freed, compacted", &mut pool, &classes, 0.10);
}

#[test]
fn d5_large_units_waste_no_more_on_any_page_size() {
    for (page_shift, unit_bytes) in [(12, 64 << 10), (12, 2 << 20), (14, 64 << 10), (16, 64 << 10)]
    {
        let config = Config::new(page_shift, unit_bytes, 0, SLOTS).unwrap();
        let mut pool = pool(config, 4096);
        let run = (21 - page_shift) as u8;
        for n in 0..4 {
            let bytes = data(Kind::Text, 2 << 20, n);
            pool.store(n << run, Order::new(run), &bytes).unwrap();
        }
        let waste = waste(&pool);
        eprintln!("2^{page_shift}, unit {unit_bytes}: {:.1} %", waste * 100.0);
        assert!(waste <= 0.10);
    }
}

#[test]
fn d5_compaction_gives_back_the_pages_that_frees_left_sparse() {
    let config = Config::new(12, 4096, 0, SLOTS).unwrap();
    let mut pool = pool(config, 4096);
    for slot in 0..SLOTS {
        pool.store(slot, Order::ZERO, &data(Kind::Text, 4096, slot)).unwrap();
    }
    let mut kept = vec![];
    for slot in 0..SLOTS {
        if slot % 8 == 0 {
            kept.push(slot);
        } else {
            pool.free(slot, 1).unwrap();
        }
    }
    assert_eq!(pool.compact(3), 3, "no more than asked for");
    let given = pool.compact(u64::MAX) + 3;
    assert_eq!(pool.counters().compacted_pages, given);
    assert_eq!(pool.compact(1), 0, "nothing is left to compact");
    let counters = pool.counters();
    assert!(counters.data_pages * 4096 < counters.object_bytes * 5 / 4, "{counters:?}");
    let mut out = vec![0; 4096];
    for slot in kept {
        pool.load(slot, 1, &mut out).unwrap();
        assert!(out == data(Kind::Text, 4096, slot));
    }
}
