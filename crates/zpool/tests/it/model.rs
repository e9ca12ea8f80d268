//! The pool beside a naive one: a map from slots to bytes.

use std::collections::BTreeMap;

use crate::common::{Frames, KINDS, Kind, Noise, data, pool};
use proptest::prelude::*;
use quire_units::Order;
use quire_zpool::{ColdRun, Config, Error, Pool};

const FIRST: u64 = 1 << 20;
const SLOTS: u64 = 600;

#[derive(Clone, Debug)]
enum Op {
    Store { at: u64, order: u8, kind: Kind, seed: u64 },
    Load { at: u64, count: u64 },
    Free { at: u64, count: u64 },
    Compact { pages: u64 },
    WriteBack { runs: usize },
    Budget { pages: usize },
    FailAfter { pages: usize },
}

fn op(order_max: u8) -> impl Strategy<Value = Op> {
    let kind = (0..KINDS.len()).prop_map(|kind| KINDS[kind]);
    let store = (0..SLOTS, 0..=order_max, kind, any::<u64>())
        .prop_map(|(at, order, kind, seed)| Op::Store { at, order, kind, seed });
    let few = 1..=(1 << order_max) as u64;
    prop_oneof![
        8 => store,
        4 => (0..SLOTS, few.clone()).prop_map(|(at, count)| Op::Load { at, count }),
        4 => (0..SLOTS, few).prop_map(|(at, count)| Op::Free { at, count }),
        1 => (1..20_u64).prop_map(|pages| Op::Compact { pages }),
        1 => (1..6_usize).prop_map(|runs| Op::WriteBack { runs }),
        1 => (0..400_usize).prop_map(|pages| Op::Budget { pages }),
        1 => (0..6_usize).prop_map(|pages| Op::FailAfter { pages }),
    ]
}

/// Both, side by side.
struct Pair {
    pool: Pool<'static, Frames>,
    model: BTreeMap<u64, Vec<u8>>,
    page_bytes: usize,
}

impl Pair {
    fn new(page_shift: u32, unit_bytes: usize) -> Self {
        let config = Config::new(page_shift, unit_bytes, FIRST, SLOTS).unwrap();
        Self { pool: pool(config, 400), model: BTreeMap::new(), page_bytes: 1 << page_shift }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Store { at, order, kind, seed } => self.store(at, order, kind, seed),
            Op::Load { at, count } => self.load(FIRST + at, count.min(SLOTS - at)),
            Op::Free { at, count } => self.free(FIRST + at, count.min(SLOTS - at)),
            Op::Compact { pages } => self.compact(pages),
            Op::WriteBack { runs } => self.write_back(runs),
            Op::Budget { pages } => self.pool.lender_mut().budget = pages,
            Op::FailAfter { pages } => self.pool.lender_mut().fail_after = Some(pages),
        }
        self.pool.check().unwrap();
        let counters = self.pool.counters();
        assert_eq!(counters.lent_pages() as usize, self.pool.lender().lent());
        assert_eq!(counters.slots as usize, self.model.len());
        assert_eq!((counters.corrupt_units, counters.orphans), (0, 0));
    }

    fn store(&mut self, at: u64, order: u8, kind: Kind, seed: u64) {
        let count = 1_u64 << order;
        let first = (FIRST + at) & !(count - 1);
        let bytes = data(kind, count as usize * self.page_bytes, seed);
        match self.pool.store(first, Order::new(order), &bytes) {
            Ok(stored) => {
                let units = stored.same_units + stored.raw_units + stored.packed_units;
                assert!(units >= 1 && u64::from(units) <= count);
                let pages = bytes.chunks(self.page_bytes).map(<[u8]>::to_vec);
                self.model.extend((first..).zip(pages));
            }
            Err(Error::NoMemory { first: failed, count: slots }) => {
                assert_eq!((failed, slots), (first, count));
                (first..first + count).for_each(|slot| drop(self.model.remove(&slot)));
            }
            Err(Error::OutOfRange { .. }) => assert!(first + count > FIRST + SLOTS),
            Err(other) => panic!("{other}"),
        }
    }

    fn load(&mut self, first: u64, count: u64) {
        let mut out = vec![0x11; count as usize * self.page_bytes];
        let loaded = self.pool.load(first, count, &mut out);
        match (first..first + count).find(|slot| !self.model.contains_key(slot)) {
            Some(slot) => assert_eq!(loaded, Err(Error::Absent { slot })),
            None => {
                loaded.unwrap();
                for (slot, page) in (first..).zip(out.chunks(self.page_bytes)) {
                    assert!(page == self.model[&slot], "slot {slot} has other bytes");
                }
            }
        }
    }

    fn free(&mut self, first: u64, count: u64) {
        let asked = self.pool.lender().asked;
        let freed = self.pool.free(first, count).unwrap();
        let held = (first..first + count).filter(|slot| self.model.remove(slot).is_some()).count();
        assert_eq!(freed as usize, held);
        assert_eq!(self.pool.lender().asked, asked, "freeing asks for no page");
    }

    fn compact(&mut self, pages: u64) {
        let (asked, lent) = (self.pool.lender().asked, self.pool.lender().lent());
        let given = self.pool.compact(pages);
        assert!(given <= pages);
        assert_eq!(self.pool.lender().lent() + given as usize, lent);
        assert_eq!(self.pool.lender().asked, asked, "compaction asks for no page");
    }

    fn write_back(&mut self, runs: usize) {
        let mut cold = vec![ColdRun::default(); runs];
        let found = self.pool.coldest(&mut cold);
        assert_eq!(found == 0, self.pool.counters().object_bytes == 0);
        let mut seen = std::collections::BTreeSet::new();
        for run in &cold[..found] {
            assert!((run.first..run.first + run.count).all(|slot| seen.insert(slot)));
            self.load(run.first, run.count);
            self.free(run.first, run.count);
        }
    }

    /// All stored slots can be read; and when they are freed, no page stays lent.
    fn finish(mut self) {
        let slots: Vec<u64> = self.model.keys().copied().collect();
        slots.iter().for_each(|&slot| self.load(slot, 1));
        while self.pool.compact(u64::MAX) > 0 {}
        slots.iter().for_each(|&slot| self.load(slot, 1));
        self.pool.clear();
        assert_eq!(self.pool.lender().lent(), 0, "no page stays");
        assert_eq!(self.pool.counters().lent_pages(), 0);
    }
}

fn compare(page_shift: u32, unit_bytes: usize, ops: &[Op]) {
    let mut pair = Pair::new(page_shift, unit_bytes);
    ops.iter().for_each(|op| pair.apply(op));
    pair.finish();
}

macro_rules! beside_the_model {
    ($($name:ident: $page_shift:literal, $order_max:literal, $cases:literal;)*) => {
        proptest! {
            $(
                #![proptest_config(ProptestConfig::with_cases($cases))]
                #[test]
                fn $name(
                    unit in 0..=$order_max as u32,
                    ops in prop::collection::vec(op($order_max), 1..60),
                ) {
                    compare($page_shift, 1 << ($page_shift + unit), &ops);
                }
            )*
        }
    };
}

beside_the_model! {
    d5_a_pool_of_4k_pages_holds_what_a_map_holds: 12, 6_u8, 60;
}
beside_the_model! {
    d5_a_pool_of_16k_pages_holds_what_a_map_holds: 14, 4_u8, 30;
}
beside_the_model! {
    d5_a_pool_of_64k_pages_holds_what_a_map_holds: 16, 3_u8, 16;
}

#[test]
fn d5_whole_folios_of_2m_come_back_in_each_unit() {
    for unit_bytes in [4 << 10, 16 << 10, 64 << 10, 2 << 20] {
        let mut pair = Pair::new(12, unit_bytes);
        pair.pool.lender_mut().budget = 2000;
        for (seed, kind) in KINDS.into_iter().enumerate() {
            pair.apply(&Op::Store { at: 0, order: 9, kind, seed: seed as u64 });
            pair.apply(&Op::Load { at: 0, count: 512 });
            pair.apply(&Op::Load { at: 3, count: 100 });
            pair.apply(&Op::Free { at: 0, count: 1 });
            pair.apply(&Op::Store { at: 64, order: 5, kind: Kind::Text, seed: 1 });
            pair.apply(&Op::Free { at: 300, count: 30 });
            pair.apply(&Op::Load { at: 1, count: 299 });
        }
        pair.finish();
    }
}

#[test]
fn d5_a_long_life_under_a_failing_lender_leaks_nothing() {
    let mut noise = Noise(7);
    let mut pair = Pair::new(12, 64 << 10);
    for round in 0..400 {
        let at = noise.below(SLOTS);
        let kind = KINDS[noise.below(5) as usize];
        let order = noise.below(6) as u8;
        pair.apply(&Op::FailAfter { pages: noise.below(30) as usize });
        pair.apply(&Op::Store { at, order, kind, seed: round });
        pair.apply(&Op::Free { at: noise.below(SLOTS), count: noise.below(40) + 1 });
    }
    pair.finish();
}
