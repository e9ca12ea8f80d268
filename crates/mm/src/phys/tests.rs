//! Each claim of the room on small memories, with the walker after each test.

use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use quire_hw::FrameRun;
use quire_units::{CpuId, FrameSpan, Order, Pfn};

use super::check::{Totals, Violation};
use super::fail::FailPlan;
use super::fragment::{Fragment, fragment};
use super::list::END;
use super::*;
use crate::limits::{CACHED_ORDER_MAX, ORDER_MAX, ORDERS, ZONES_MAX};
use crate::sync::Ordering;

const CPU: CpuId = CpuId::new(0);
const OTHER: CpuId = CpuId::new(1);

pub(super) fn span(start: u64, count: u64) -> FrameSpan {
    FrameSpan::new(Pfn::new(start), count)
}

fn order(log2: u8) -> Order {
    Order::new(log2)
}

/// The right to frames that are only numbers.
#[allow(unsafe_code)]
fn numbers(span: FrameSpan, zeroed: bool) -> FrameRun {
    // SAFETY: 1. each test mints a frame once for each allocator. 2. and 3. `phys` touches no
    // frame's memory, and the tests have none.
    unsafe { FrameRun::mint(span, zeroed) }
}

/// Runs `test` on memory of two CPUs and these zones, all of which is added.
pub(super) fn on(zones: &[FrameSpan], zeroed: bool, test: impl FnOnce(&Phys<'_>)) {
    let first = zones[0].start;
    let count = zones.iter().map(|zone| zone.end()).max().unwrap_or(first).offset_from(first);
    let mut slots: Vec<Slot> = (0..count).map(|_| Slot::default()).collect();
    let mut caches = [CpuCache::new(), CpuCache::new()];
    let mut lent: Vec<Zone> = zones.iter().copied().map(Zone::new).collect();
    let phys = Phys::new(first, &mut slots, &mut caches, &mut lent).expect("the setup is sound");
    for zone in zones {
        phys.add(numbers(*zone, zeroed)).expect("the zone is RAM");
    }
    test(&phys);
}

fn on_frames(count: u64, test: impl FnOnce(&Phys<'_>)) {
    on(&[span(0, count)], false, test);
}

fn totals(phys: &Phys<'_>) -> Totals {
    phys.check().expect("every claim holds")
}

fn whole(order: usize) -> [u64; ORDERS] {
    core::array::from_fn(|at| (at == order) as u64)
}

#[test]
fn e1_setup_refuses_impossible_zones() {
    let mut slots: Vec<Slot> = (0..64).map(|_| Slot::default()).collect();
    let mut setup = |first, zones: &[FrameSpan]| {
        let mut zones: Vec<Zone> = zones.iter().copied().map(Zone::new).collect();
        Phys::new(Pfn::new(first), &mut slots, &mut [], &mut zones).err()
    };
    assert_eq!(setup(0, &[]), Some(SetupError::ZoneCount { zones: 0 }));
    let many = [span(0, 1); ZONES_MAX + 1];
    assert_eq!(setup(0, &many), Some(SetupError::ZoneCount { zones: ZONES_MAX + 1 }));
    let outside = Some(SetupError::ZoneOutside { zone: 0 });
    assert_eq!(setup(0, &[span(0, 65)]), outside);
    assert_eq!(setup(9, &[span(8, 4)]), outside);
    assert_eq!(setup(9, &[span(u64::MAX, 4)]), outside);
    let overlap = Some(SetupError::ZonesOverlap { first: 0, second: 1 });
    assert_eq!(setup(0, &[span(0, 9), span(8, 4)]), overlap);
    assert_eq!(setup(u64::MAX, &[span(0, 9)]), Some(SetupError::TooManyFrames { frames: 64 }));
    assert_eq!(setup(7, &[span(8, 8), span(16, 8)]), None);
}

#[test]
fn e1_every_order_is_taken_aligned_and_merges_back() {
    on_frames(ORDER_MAX.pages(), |phys| {
        for log2 in 0..=ORDER_MAX.get() {
            let run = phys.alloc(CPU, order(log2)).expect("all is free");
            assert!(run.start().is_aligned(1 << log2) && run.count() == 1 << log2);
            assert_eq!(phys.free_frames(), ORDER_MAX.pages() - run.count());
            phys.free(CPU, run);
        }
        phys.drain();
        assert_eq!(phys.free_by_order(), whole(ORDER_MAX.index()));
        assert!(phys.alloc(CPU, ORDER_MAX.up()).is_none());
        assert_eq!(totals(phys).free, ORDER_MAX.pages());
    });
}

#[test]
fn e1_a_shelf_has_128_frames_but_at_least_16_blocks() {
    let limits: Vec<usize> = (0..=CACHED_ORDER_MAX.index()).map(cpu_cache::limit).collect();
    assert_eq!(limits, [128, 64, 32, 16, 16]);
    assert_eq!(limits[0], cpu_cache::CAPACITY);
}

#[test]
fn e1_neighbours_of_the_largest_order_stay_two_blocks() {
    on_frames(2 * ORDER_MAX.pages(), |phys| {
        assert_eq!(phys.free_by_order(), whole(ORDER_MAX.index()).map(|count| 2 * count));
        let both = [(); 2].map(|()| phys.alloc(CPU, ORDER_MAX).expect("there are two"));
        assert_eq!(phys.free_frames(), 0);
        for run in both {
            phys.free(CPU, run);
            totals(phys);
        }
        phys.drain();
        assert_eq!(phys.free_by_order(), whole(ORDER_MAX.index()).map(|count| 2 * count));
    });
}

#[test]
fn e1_free_of_any_subrange_merges_back() {
    on_frames(1024, |phys| {
        for cut in [1, 3, 17, 255, 256, 511, 700, 1023] {
            let run = phys.alloc(CPU, order(10)).expect("all is free");
            let (head, tail) = run.split_at(cut);
            phys.free(OTHER, tail);
            totals(phys);
            assert_eq!(phys.free_frames(), 1024 - cut);
            phys.free(CPU, head);
            phys.drain();
            assert_eq!(phys.free_by_order(), whole(10), "cut at {cut}");
            totals(phys);
        }
    });
}

#[test]
fn e1_frames_in_caches_count_as_free() {
    on_frames(64, |phys| {
        assert!(phys.has_free(64) && !phys.has_free(65));
        let run = phys.alloc(CPU, order(0)).expect("all is free");
        assert!(phys.has_free(63) && !phys.has_free(64));
        phys.free(CPU, run);
        assert!(phys.has_free(64), "the frame is in a cache");
    });
}

#[test]
fn e1_neighbours_are_freed_as_one_run() {
    on_frames(64, |phys| {
        let low = phys.take_exact(span(3, 10)).expect("all is free");
        let high = phys.take_exact(span(13, 30)).expect("all but the first is free");
        phys.free(CPU, low.join(high).expect("they touch"));
        phys.drain();
        assert_eq!(phys.free_by_order(), whole(6));
        totals(phys);
    });
}

#[test]
fn e1_memory_need_not_begin_or_end_at_a_block() {
    on(&[span(13, 1000)], false, |phys| {
        let mut runs = Vec::new();
        while let Some(run) = phys.alloc(CPU, order(2)) {
            assert!(run.start().is_aligned(4));
            runs.push(run);
        }
        assert_eq!(runs.len(), 249, "all aligned blocks in 13..1013");
        runs.into_iter().for_each(|run| phys.free(OTHER, run));
        phys.drain();
        assert_eq!(totals(phys), Totals { free: 1000, cached: 0, taken: 0 });
    });
}

#[test]
fn e1_blocks_never_merge_across_zones() {
    on(&[span(0, 32), span(32, 32)], false, |phys| {
        phys.drain();
        let by_order = phys.free_by_order();
        assert_eq!((by_order[5], by_order[6]), (2, 0));
        totals(phys);
    });
}

#[test]
fn e1_later_zones_are_taken_first_and_fall_back() {
    on(&[span(0, 256), span(256, 256), span(512, 256)], false, |phys| {
        let starts = |run: FrameRun| run.start().get();
        assert_eq!(phys.alloc(CPU, order(8)).map(starts), Some(512));
        assert_eq!(phys.alloc_in(CPU, order(0), Zones::only(0)).map(starts), Some(0));
        assert_eq!(phys.alloc_in(CPU, order(8), Zones::up_to(1)).map(starts), Some(256));
        assert!(phys.alloc_in(CPU, order(0), Zones::only(1)).is_none());
        assert!(phys.alloc_in(CPU, order(0), Zones::only(9)).is_none());
        assert_eq!(phys.alloc(CPU, order(7)).map(starts), Some(128));
        totals(phys);
    });
}

#[test]
fn e1_frames_in_caches_are_reached_before_giving_up() {
    on_frames(64, |phys| {
        let all: Vec<FrameRun> =
            (0..64).map(|_| phys.alloc(CPU, Order::ZERO).expect("64 frames")).collect();
        assert!(phys.alloc(OTHER, Order::ZERO).is_none());
        all.into_iter().for_each(|run| phys.free(CPU, run));
        assert_eq!(totals(phys).cached, 64, "all are kept for CPU 0");
        assert!(phys.try_alloc(OTHER, order(6)).is_none(), "`try_alloc` leaves other caches alone");
        let run = phys.alloc(OTHER, order(6)).expect("`alloc` empties them");
        phys.free(OTHER, run);
        let run = phys.alloc_in(OTHER, Order::ZERO, Zones::only(0)).expect("all is free");
        phys.free(OTHER, run);
        let run = phys.alloc_run(CPU, Order::ZERO, 64).expect("all is free");
        phys.free(CPU, run);
    });
}

#[test]
fn e1_the_block_freed_last_is_taken_first() {
    on_frames(512, |phys| {
        for log2 in 0..=CACHED_ORDER_MAX.get() {
            let runs = [0, 1, 2].map(|_| phys.alloc(CPU, order(log2)).expect("enough"));
            let starts = runs.each_ref().map(FrameRun::start);
            assert!(starts.is_sorted(), "a filled shelf is taken upwards");
            runs.into_iter().for_each(|run| phys.free(CPU, run));
            let again = [0, 1, 2].map(|_| phys.alloc(CPU, order(log2)).expect("enough"));
            let mut reversed = again.each_ref().map(FrameRun::start);
            reversed.reverse();
            assert_eq!(reversed, starts);
            again.into_iter().for_each(|run| phys.free(CPU, run));
        }
        totals(phys);
    });
}

#[test]
fn e1_a_full_cache_gives_its_older_half_back_merged() {
    on_frames(2048, |phys| {
        let capacity = super::cpu_cache::CAPACITY as u64;
        let run = phys.alloc(CPU, order(11)).expect("all is free");
        let (mut rest, mut freed) = (run, 0);
        while freed < capacity + 1 {
            let (one, more) = rest.split_at(1);
            phys.free(CPU, one);
            (rest, freed) = (more, freed + 1);
        }
        let half = capacity / 2;
        assert_eq!(totals(phys), Totals { free: half, cached: half + 1, taken: 2047 - capacity });
        assert_eq!(phys.free_by_order()[half.ilog2() as usize], 1, "one run, one block");
        assert_eq!(phys.meta().head(Pfn::new(half - 1)).map(|(at, _)| at), Some(Pfn::new(0)));
    });
}

#[test]
fn e1_a_cache_is_filled_from_pieces_first() {
    on_frames(1024, |phys| {
        let large = phys.take_exact(span(0, 512)).expect("all is free");
        let (piece, rest) = large.split_at(3);
        phys.give_back(piece);
        let one = phys.alloc(CPU, Order::ZERO).expect("enough");
        assert!(one.start().get() < 3);
        assert_eq!(phys.free_by_order()[9], 1, "the large block is still whole");
        assert_eq!(totals(phys).cached, 2);
        phys.give_back(rest);
    });
}

#[test]
fn e1_an_exact_range_is_taken_out_of_any_blocks() {
    on(&[span(0, 512), span(512, 512)], false, |phys| {
        let run = phys.take_exact(span(100, 700)).expect("all is free");
        assert_eq!((run.start().get(), run.count()), (100, 700));
        assert_eq!(totals(phys).taken, 700);
        assert_eq!(phys.take_exact(span(90, 20)).unwrap_err(), Occupied { frame: Pfn::new(100) });
        let beyond = phys.take_exact(span(1000, 30)).unwrap_err();
        assert_eq!(beyond, Occupied { frame: Pfn::new(1024) });
        assert!(phys.take_exact(span(u64::MAX, 2)).is_err());
        assert_eq!(phys.free_frames(), 324, "nothing was taken");
        phys.free(CPU, run);
        assert_eq!(phys.free_by_order()[9], 2);
        totals(phys);
    });
}

#[test]
fn e1_an_exact_range_that_fails_in_a_later_zone_is_given_back() {
    on(&[span(0, 64), span(64, 64)], false, |phys| {
        let held = phys.take_exact(span(70, 1)).expect("all is free");
        assert_eq!(phys.take_exact(span(10, 100)).unwrap_err().frame, held.start());
        assert_eq!(totals(phys), Totals { free: 127, cached: 0, taken: 1 });
        assert_eq!(phys.free_by_order()[6], 1);
    });
}

#[test]
fn e1_an_exact_range_is_taken_out_of_caches() {
    on_frames(64, |phys| {
        let run = phys.alloc(OTHER, Order::ZERO).expect("all is free");
        phys.free(OTHER, run);
        assert!(totals(phys).cached > 0);
        let all = phys.take_exact(span(0, 64)).expect("no frame is in use");
        assert_eq!(totals(phys), Totals { free: 0, cached: 0, taken: 64 });
        phys.free(CPU, all);
    });
}

#[test]
fn e1_a_bulk_run_is_as_long_as_wanted_or_as_possible() {
    on_frames(1024, |phys| {
        let run = phys.alloc_run(CPU, Order::ZERO, 300).expect("all is free");
        assert_eq!(run.count(), 300);
        totals(phys);
        let more = phys.alloc_run(CPU, order(4), 1000).expect("some is free");
        assert_eq!((more.count(), more.start().get()), (512, 512), "the largest block");
        let last = phys.alloc_run(CPU, order(4), 5).expect("some is free");
        assert!(last.start().is_aligned(16) && last.count() == 80);
        assert!(phys.alloc_run(CPU, order(4), 0).is_none());
        [run, more, last].into_iter().for_each(|run| phys.free(CPU, run));
        assert_eq!(phys.free_by_order(), whole(10));
        totals(phys);
    });
}

#[test]
fn a5_zeroed_survives_a_split_and_is_lost_in_a_mixed_merge() {
    on(&[span(0, 64)], true, |phys| {
        let one = phys.alloc(CPU, Order::ZERO).expect("all is free");
        assert!(one.is_zeroed());
        phys.free(CPU, one);
        phys.drain();
        let all = phys.alloc(CPU, order(6)).expect("all is free");
        assert!(all.is_zeroed(), "merged from zeroed parts only");
        let (low, high) = all.split_at(32);
        phys.free(CPU, low.dirtied());
        let low = phys.alloc(CPU, order(5)).expect("half is free");
        assert!(!low.is_zeroed());
        phys.free(CPU, low);
        phys.free(CPU, high);
        let all = phys.alloc(CPU, order(6)).expect("all is free");
        assert!(!all.is_zeroed());
        phys.free(CPU, all);
    });
}

#[test]
fn a5_zeroed_and_dirty_neighbours_leave_a_cache_apart() {
    on(&[span(0, 64)], true, |phys| {
        let (_zero, rest) = phys.take_exact(span(0, 4)).expect("all is free").split_at(1);
        let (one, rest) = rest.split_at(1);
        let (two, _three) = rest.split_at(1);
        phys.free(CPU, one.dirtied());
        phys.free(CPU, two);
        phys.drain();
        assert!(!phys.take_exact(span(1, 1)).expect("free").is_zeroed());
        assert!(
            phys.take_exact(span(2, 1)).expect("free").is_zeroed(),
            "not merged with the other"
        );
    });
}

#[test]
fn e6_a_plan_fails_the_nth_allocation_or_all_from_it() {
    on_frames(64, |phys| {
        let fails = |_| phys.alloc(CPU, Order::ZERO).map(|run| phys.free(CPU, run)).is_none();
        phys.set_fail_plan(FailPlan::Nth(2));
        assert_eq!([0; 4].map(fails), [false, true, false, false]);
        assert_eq!(phys.fail_plan(), FailPlan::Never);
        phys.set_fail_plan(FailPlan::From(3));
        assert_eq!([0; 4].map(fails), [false, false, true, true]);
        assert_eq!(phys.fail_plan(), FailPlan::From(1));
        assert!(phys.take_exact(span(0, 1)).is_err() && phys.alloc_run(CPU, order(0), 1).is_none());
        assert!(phys.alloc_in(CPU, order(6), Zones::only(0)).is_none());
        phys.set_fail_plan(FailPlan::Never);
        assert_eq!([0; 2].map(fails), [false, false]);
        assert_eq!(totals(phys).taken, 0);
    });
}

#[test]
fn e6_a_plan_of_scarce_blocks_fails_the_larger_ones_more_often() {
    on_frames(64, |phys| {
        // Of four attempts for order 6, three fail: a doubling is lost with 1 - 0.25^(1/6).
        let plan = FailPlan::Scarce { chance: 13_525, seed: 1 };
        phys.set_fail_plan(plan);
        assert_eq!(phys.fail_plan(), plan);
        let failed = |of| {
            let took = || phys.alloc(CPU, order(of)).map(|run| phys.free(CPU, run));
            (0..10_000).filter(|_| took().is_none()).count()
        };
        assert_eq!(failed(0), 0);
        assert_eq!(phys.fail_plan(), plan, "base pages draw nothing");
        assert!((1_900..2_250).contains(&failed(1)));
        assert!((4_800..5_200).contains(&failed(3)));
        assert!((7_300..7_700).contains(&failed(6)));
        phys.set_fail_plan(FailPlan::Never);
        assert_eq!(failed(6), 0);
        assert_eq!(totals(phys).taken, 0);
    });
}

#[test]
fn e1_fragmentation_leaves_the_requested_blocks_and_is_undone() {
    on_frames(4096, |phys| {
        let target = Fragment::FreeAtOrder { order: order(6), blocks: 5 };
        let pieces = fragment(phys, target, 7);
        let by_order = phys.free_by_order();
        assert_eq!(by_order[6], 5);
        assert!(by_order[7..].iter().all(|blocks| *blocks == 0));
        assert_eq!(phys.free_frames() + pieces.held(), 4096);
        totals(phys);
        let taken: Vec<_> = core::iter::from_fn(|| phys.alloc(CPU, order(6))).collect();
        assert_eq!(taken.len(), 5);
        taken.into_iter().for_each(|run| phys.free(CPU, run));
        pieces.release();
        assert_eq!(phys.free_by_order(), whole(12));
        totals(phys);
    });
}

#[test]
fn e8_the_fragmentation_index_tells_pieces_from_a_lack_of_memory() {
    on_frames(1024, |phys| {
        let index = |of| phys.fragmentation(order(of));
        assert_eq!(index(6), None, "blocks are free");
        let pieces = fragment(phys, Fragment::FreeAtOrder { order: order(3), blocks: 16 }, 3);
        let counts = phys.free_by_order();
        let blocks: u64 = counts.iter().sum();
        let free: u64 = counts.iter().zip(0..).map(|(count, of)| count << of).sum();
        assert_eq!(index(3), None);
        for of in 4..=9 {
            let share = free as f64 / (blocks << of) as f64;
            let exact = 1000.0 * (1.0 - share);
            let found = index(of).expect("no block is free");
            assert!((f64::from(found) - exact).abs() <= 1.0, "{of}: {found} {exact}");
        }
        assert!(index(9) > index(4));
        drop(pieces);
        // All memory is taken: nothing is in pieces.
        let all: Vec<_> = (0..).map_while(|_| phys.alloc(CPU, Order::ZERO)).collect();
        assert_eq!(index(4), Some(0));
        all.into_iter().for_each(|run| phys.free(CPU, run));
    });
}

#[test]
fn e1_fragmentation_by_share_leaves_that_share() {
    on_frames(4096, |phys| {
        let pieces = fragment(phys, Fragment::Ratio { order: order(4), per_mille: 250 }, 1);
        let taken: Vec<_> = core::iter::from_fn(|| phys.alloc(CPU, order(4))).collect();
        assert_eq!(taken.len(), 64);
        taken.into_iter().for_each(|run| phys.free(CPU, run));
        assert_eq!(pieces.held(), 192);
        drop(pieces);
        phys.drain();
        assert_eq!(phys.free_by_order(), whole(12));
    });
}

#[test]
fn e1_frames_of_no_zone_are_refused() {
    on(&[span(0, 8), span(16, 8)], false, |phys| {
        let error = phys.add(numbers(span(4, 16), false)).unwrap_err();
        assert_eq!((error.frame, error.run.count()), (Pfn::new(8), 16));
        phys.free(CPU, numbers(span(1 << 40, 64), false));
        phys.free(CPU, numbers(span(1 << 40, 1), false));
        assert_eq!(totals(phys), Totals { free: 16, cached: 0, taken: 0 });
    });
}

#[test]
fn e10_frames_of_a_zones_hole_are_not_managed() {
    let mut slots: Vec<Slot> = (0..64).map(|_| Slot::default()).collect();
    let mut caches = [CpuCache::new()];
    let mut zones = [Zone::new(span(0, 64))];
    let phys = Phys::new(Pfn::new(0), &mut slots, &mut caches, &mut zones).unwrap();
    phys.add(numbers(span(0, 16), false)).unwrap();
    phys.add(numbers(span(40, 8), false)).unwrap();
    let first = |start, count| phys.first_managed(span(start, count)).map(Pfn::get);
    assert_eq!([first(16, 24), first(48, 16), first(64, 8)], [None; 3]);
    assert_eq!([first(16, 25), first(10, 40), first(47, 4)], [Some(40), Some(10), Some(47)]);
    // Taken frames stay the library's.
    let run = phys.alloc(CPU, Order::new(3)).unwrap();
    assert_eq!(phys.first_managed(run.span()), Some(run.start()));
    phys.free(CPU, run);
    assert_eq!(first(0, 1), Some(0));
    assert_eq!(totals(&phys).free + totals(&phys).cached, 24);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Groups have 512 frames: most spans reach over several, and the zone begins within one.
    #[test]
    fn e10_the_first_frame_that_was_added_is_found_as_by_a_search(
        added in prop::collection::vec((0_u64..4000, 1_u64..700), 0..5),
        asked in prop::collection::vec((0_u64..4000, 0_u64..4096), 1..20),
    ) {
        let mut slots: Vec<Slot> = (0..4096).map(|_| Slot::default()).collect();
        let mut caches = [CpuCache::new()];
        let mut zones = [Zone::new(span(100, 1500)), Zone::new(span(1600, 2400))];
        let phys = Phys::new(Pfn::new(0), &mut slots, &mut caches, &mut zones).unwrap();
        let mut is_added = vec![false; 4096];
        for (start, count) in added {
            let end = (start + count).min(4000) as usize;
            let here = &mut is_added[start as usize..end];
            if start >= 100 && here.iter().all(|added| !added) {
                here.fill(true);
                phys.add(numbers(span(start, end as u64 - start), false)).unwrap();
            }
        }
        for (start, count) in asked {
            let end = (start + count).min(4096);
            let found = phys.first_managed(span(start, end - start)).map(Pfn::get);
            prop_assert_eq!(found, (start..end).find(|&at| is_added[at as usize]));
        }
    }
}

#[test]
fn e1_metadata_of_an_earlier_allocator_is_forgotten() {
    let mut slots: Vec<Slot> = (0..64).map(|_| Slot::default()).collect();
    let (mut caches, mut zones) = ([CpuCache::new()], [Zone::new(span(0, 64))]);
    for _ in 0..2 {
        let phys = Phys::new(Pfn::new(0), &mut slots, &mut caches, &mut zones).expect("sound");
        assert!(phys.alloc(CPU, Order::ZERO).is_none());
        phys.add(numbers(span(0, 64), false)).expect("the zone is RAM");
        let run = phys.alloc(CPU, Order::ZERO).expect("all is free");
        phys.free(CPU, run);
        phys.drain();
        assert_eq!(totals(&phys).free, 64);
    }
}

#[test]
fn e1_the_walker_sees_a_broken_link() {
    on_frames(6, |phys| {
        phys.meta().at(Pfn::new(4)).links[0].store(0, Ordering::Relaxed);
        assert_eq!(phys.check(), Err(Violation::Link { frame: Pfn::new(4) }));
        phys.meta().at(Pfn::new(4)).links[0].store(END, Ordering::Relaxed);
        totals(phys);
    });
}

#[test]
fn e1_the_walker_sees_a_false_record() {
    on_frames(64, |phys| {
        let slot = |frame| phys.meta().at(Pfn::new(frame));
        let free = |log2| State::new(Kind::Free, log2);
        slot(5).set_state(free(0));
        let inside =
            Violation::Inside { block: Pfn::new(0), frame: Pfn::new(5), state: slot(5).state() };
        assert_eq!(phys.check(), Err(inside));
        slot(5).set_state(State::new(Kind::None, 0));
        slot(0).set_state(free(5));
        assert!(matches!(phys.check(), Err(Violation::Count { counted: 0, found: 1, .. })));
        slot(0).set_state(free(7));
        let misplaced = Violation::Misplaced { frame: Pfn::new(0), order: order(7) };
        assert_eq!(phys.check(), Err(misplaced));
        slot(0).set_state(State::new(Kind::Folio, 6));
        assert!(matches!(phys.check(), Err(Violation::Untruthful { .. })));
        slot(0).set_state(free(6));
        totals(phys);
    });
}

#[test]
fn e1_the_walker_sees_buddies_that_did_not_merge() {
    on_frames(64, |phys| {
        let zone = &phys.zones[0];
        let mut lists = zone.lists.lock();
        let whole = lists.pop(&phys.meta(), Mobility::Movable, order(6)).expect("all is free");
        for at in [0, 32] {
            let half = super::zone::Block { at: Pfn::new(at), order: order(5), ..whole };
            lists.push(&phys.meta(), half);
        }
        drop(lists);
        assert_eq!(phys.check(), Err(Violation::Unmerged { frame: Pfn::new(0), order: order(5) }));
    });
}

#[test]
fn e1_the_walker_sees_a_frame_that_is_cached_twice_or_free() {
    on_frames(64, |phys| {
        let run = phys.take_exact(span(9, 1)).expect("all is free");
        phys.free(CPU, run);
        phys.free(OTHER, numbers(span(9, 1), false));
        assert_eq!(phys.check(), Err(Violation::Cached { cpu: CPU, frame: Pfn::new(9) }));
    });
    on_frames(64, |phys| {
        phys.free(OTHER, numbers(span(9, 1), false));
        assert_eq!(phys.check(), Err(Violation::Cached { cpu: OTHER, frame: Pfn::new(9) }));
    });
}
