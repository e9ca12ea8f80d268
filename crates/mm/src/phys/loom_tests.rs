//! Every interleaving of two CPUs on very little memory: `RUSTFLAGS="--cfg loom" cargo test -p
//! quire --lib --release loom_`.

use std::boxed::Box;
use std::vec::Vec;

use loom::sync::atomic::Ordering;
use loom::thread;
use quire_hw::FrameRun;
use quire_units::{CpuId, FrameSpan, Order, Pfn};

use super::{CpuCache, Kind, Meta, Phys, Slot, Zone};

const CPUS: [CpuId; 2] = [CpuId::new(0), CpuId::new(1)];

/// An allocator of `frames` frames for two CPUs. It is leaked, because the model's threads need
/// data that lives for ever.
#[allow(unsafe_code)]
fn leaked(frames: u64) -> &'static Phys<'static> {
    let slots: Vec<Slot> = (0..frames).map(|_| Slot::default()).collect();
    let caches: Vec<CpuCache> = CPUS.iter().map(|_| CpuCache::default()).collect();
    let all = FrameSpan::new(Pfn::new(0), frames);
    let zones = Box::leak(Box::new([Zone::new(all)]));
    let phys =
        Phys::new(all.start, slots.leak(), caches.leak(), zones).expect("the setup is sound");
    // SAFETY: 1. minted once for each allocator. 2. no frame's memory is touched, and there is
    // none. 3. not zeroed.
    phys.add(unsafe { FrameRun::mint(all, false) }).expect("the zone is RAM");
    Box::leak(Box::new(phys))
}

/// Runs the two at once, on CPU 0 and CPU 1, and returns the runs that they hold in the end.
fn both(
    phys: &'static Phys<'static>,
    first: fn(&Phys<'_>) -> Option<FrameRun>,
    second: fn(&Phys<'_>) -> Option<FrameRun>,
) -> [Option<FrameRun>; 2] {
    let other = thread::spawn(move || second(phys));
    let held = first(phys);
    [held, other.join().expect("no thread panics")]
}

/// The held runs overlap nowhere, and together with the free frames they are all the frames.
fn settle(phys: &Phys<'_>, held: [Option<FrameRun>; 2], frames: u64) {
    let totals = phys.check().expect("every claim holds");
    let spans = held.each_ref().map(|run| run.as_ref().map(FrameRun::span));
    if let [Some(one), Some(other)] = spans {
        assert!(one.end() <= other.start || other.end() <= one.start, "{one:?} and {other:?}");
    }
    assert_eq!(spans.iter().flatten().map(|span| span.count).sum::<u64>(), totals.taken);
    held.into_iter().flatten().for_each(|run| phys.free(CPUS[0], run));
    phys.drain();
    assert_eq!(phys.check().expect("every claim holds").free, frames);
    assert_eq!(phys.free_by_order().iter().sum::<u64>(), 1, "all merged");
}

#[test]
fn loom_two_cpus_that_take_get_different_frames() {
    loom::model(|| {
        let phys = leaked(2);
        let held = both(phys, |p| p.alloc(CPUS[0], Order::ZERO), |p| p.alloc(CPUS[1], Order::ZERO));
        settle(phys, held, 2);
    });
}

#[test]
fn loom_a_frame_in_a_cache_goes_to_its_cpu_or_to_the_one_that_drains() {
    loom::model(|| {
        let phys = leaked(2);
        let run = phys.alloc(CPUS[0], Order::ZERO).expect("all is free");
        phys.free(CPUS[0], run);
        let held =
            both(phys, |p| p.try_alloc(CPUS[0], Order::ZERO), |p| p.alloc(CPUS[1], Order::new(1)));
        settle(phys, held, 2);
    });
}

#[test]
fn loom_a_free_and_a_drain_lose_nothing() {
    loom::model(|| {
        let phys = leaked(4);
        let free = |p: &Phys<'_>| {
            let run = p.alloc(CPUS[0], Order::ZERO)?;
            p.free(CPUS[0], run);
            None
        };
        let drain = |p: &Phys<'_>| {
            p.drain();
            p.take_exact(FrameSpan::new(Pfn::new(1), 2)).ok()
        };
        let held = both(phys, free, drain);
        settle(phys, held, 4);
    });
}

#[test]
fn loom_parts_of_one_block_freed_at_once_merge() {
    loom::model(|| {
        let phys = leaked(64);
        let (low, high) = phys.alloc(CPUS[0], Order::new(6)).expect("all is free").split_at(32);
        let other = thread::spawn(move || phys.free(CPUS[1], high));
        phys.free(CPUS[0], low);
        other.join().expect("no thread panics");
        settle(phys, [None, None], 64);
    });
}

/// A frame whose last use left a count behind becomes a table.
#[test]
fn loom_e1_a_table_that_is_known_as_one_has_the_counts_of_a_new_one() {
    loom::model(|| {
        let slots: Vec<Slot> = (0..1).map(|_| Slot::default()).collect();
        let (frame, meta) = (Pfn::new(0), Meta::new(Pfn::new(0), slots.leak()));
        meta.at(frame).counts.store(3, Ordering::Relaxed);
        let other = thread::spawn(move || {
            let slot = meta.at(frame);
            if slot.state().kind() == Kind::Table {
                assert_eq!(slot.counts.load(Ordering::Relaxed), 0, "of its former life");
            }
        });
        meta.adopt(meta.forge(FrameSpan::new(frame, 1), true), Kind::Table, 0);
        other.join().expect("no thread panics");
    });
}
