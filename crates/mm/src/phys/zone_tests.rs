//! Which zone a frame comes from, and what an allocation tries before it fails.

use std::vec::Vec;

use quire_hw::FrameRun;
use quire_units::{CpuId, Order, Pfn};

use super::tests::{on, span};
use super::{Phys, Zones};
use crate::limits::CACHED_ORDER_MAX;

const CPU: CpuId = CpuId::new(0);
const OTHER: CpuId = CpuId::new(1);
/// A CPU without a cache.
const STRANGE: CpuId = CpuId::new(9);
/// Frames of each zone.
const ZONE: u64 = 1 << 10;
const HIGH: Pfn = Pfn::new(ZONE);
/// Too large for a cache.
const LARGE: Order = CACHED_ORDER_MAX.up();

/// Runs `test` on two zones, of which the first is scarce.
fn on_two(test: impl FnOnce(&Phys<'_>)) {
    on(&[span(0, ZONE), span(ZONE, ZONE)], false, test);
}

/// Takes until nothing is left; the first frame of each, in the order in which they came.
fn drained<'p>(phys: &Phys<'p>, take: impl Fn(&Phys<'p>) -> Option<FrameRun>) -> Vec<Pfn> {
    let all: Vec<_> = std::iter::from_fn(|| take(phys)).collect();
    let starts = all.iter().map(FrameRun::start).collect();
    all.into_iter().for_each(|run| phys.free(CPU, run));
    starts
}

#[test]
fn e1_low_memory_is_taken_last_by_every_call() {
    type Take = for<'p> fn(&Phys<'p>) -> Option<FrameRun>;
    let calls: [(&str, Take); 7] = [
        ("a frame", |phys| phys.alloc(CPU, Order::ZERO)),
        ("a frame that is easy to get", |phys| phys.try_alloc(CPU, Order::ZERO)),
        ("the largest block of a cache", |phys| phys.alloc(CPU, CACHED_ORDER_MAX)),
        ("a block past the caches", |phys| phys.alloc(CPU, LARGE)),
        ("a frame for a CPU without a cache", |phys| phys.alloc(STRANGE, Order::ZERO)),
        ("a run", |phys| phys.alloc_run(CPU, Order::ZERO, 48)),
        ("a frame of any zone by name", |phys| phys.alloc_in(CPU, Order::ZERO, Zones::ALL)),
    ];
    for (name, take) in calls {
        on_two(|phys| {
            let starts = drained(phys, take);
            let low = starts.iter().position(|start| *start < HIGH);
            let low = low.unwrap_or_else(|| panic!("{name}: low memory is memory, too"));
            assert!(low > 0, "{name}: low memory first");
            assert!(starts[low..].iter().all(|start| *start < HIGH), "{name}: all high memory");
        });
    }
}

#[test]
fn e1_a_caller_that_names_a_zone_gets_no_other() {
    on_two(|phys| {
        let low = Zones::only(0);
        for start in drained(phys, |phys| phys.alloc_in(CPU, Order::ZERO, low)) {
            assert!(start < HIGH);
        }
        let all = drained(phys, |phys| phys.alloc_in(CPU, LARGE, low));
        assert_eq!(all.len() as u64, ZONE >> LARGE.get());
    });
}

/// Takes all memory for one CPU, whose cache has it all afterwards as far as it fits.
fn hide(phys: &Phys<'_>) -> Vec<FrameRun> {
    let mut all: Vec<_> = std::iter::from_fn(|| phys.alloc(OTHER, Order::ZERO)).collect();
    let kept = all.split_off(32);
    all.into_iter().for_each(|run| phys.free(OTHER, run));
    kept
}

#[test]
fn e1_what_lies_in_another_cache_is_found_before_a_call_fails() {
    type Take = for<'p> fn(&Phys<'p>) -> Option<FrameRun>;
    let calls: [(&str, Take); 5] = [
        ("alloc", |phys| phys.alloc(CPU, Order::ZERO)),
        ("alloc for a CPU without a cache", |phys| phys.alloc(STRANGE, Order::ZERO)),
        ("alloc of two", |phys| phys.alloc(CPU, Order::new(1))),
        ("alloc_run", |phys| phys.alloc_run(CPU, Order::ZERO, 8)),
        ("alloc_in", |phys| phys.alloc_in(CPU, Order::ZERO, Zones::only(0))),
    ];
    for (name, take) in calls {
        on(&[span(0, 512)], false, |phys| {
            let kept = hide(phys);
            assert!(phys.try_alloc(CPU, Order::ZERO).is_none(), "it leaves other caches alone");
            let found = take(phys).unwrap_or_else(|| panic!("{name} failed"));
            phys.free(CPU, found);
            kept.into_iter().for_each(|run| phys.free(CPU, run));
        });
    }
}

#[test]
fn e1_all_of_a_zone_is_one_block_again_after_it_went_in_pieces() {
    on_two(|phys| {
        let before = phys.free_by_order();
        for order in (0..=LARGE.get()).map(Order::new) {
            let all: Vec<_> = std::iter::from_fn(|| phys.alloc(CPU, order)).collect();
            assert_eq!(all.len() as u64, (2 * ZONE) >> order.get());
            // Every second one first.
            let (even, odd): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|run| run.start().get() >> order.get() & 1 == 0);
            [even, odd].into_iter().flatten().for_each(|run| phys.free(OTHER, run));
            phys.drain();
            assert_eq!(phys.free_by_order(), before, "{order}");
            phys.check().expect("every claim holds");
        }
    });
}
