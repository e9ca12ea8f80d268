//! The slots of a device beside a naive model: the runs that are taken.

use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;
use quire_arch::X86_64;
use quire_hw::{Memory, Reuse};
use quire_machine::{Config, Machine, Ram};
use quire_units::{CpuId, Order};

use super::device::InList;
use super::{Admits, SlotFault, Swap};
use crate::cache::{FileId, FilePages};
use crate::phys::{CpuCache, Phys, Slot, Zone};

const CPU: CpuId = CpuId::new(0);

type Slots<'a, 'r> = super::Slots<'a, X86_64, Machine<'r>>;

/// Slots of a cluster.
const CLUSTER: u64 = Slots::WORDS;

/// Runs `test` with an empty device.
fn with_device(slots: u64, test: impl FnOnce(&Slots<'_, '_>)) {
    let mut ram = Ram::new(1 << 20).expect("the host has 1 MiB");
    let (machine, all) = Machine::new(Config::x86_64(), &mut ram).expect("a valid preset");
    let mut meta: Vec<Slot> = (0..all.count()).map(|_| Slot::empty()).collect();
    let (mut caches, mut zones) = ([CpuCache::new()], [Zone::new(all.span())]);
    let phys = Phys::new(all.start(), &mut meta, &mut caches, &mut zones).expect("sound");
    phys.add(all).expect("the zone has all frames");
    let swap = Swap::new();
    let device = Slots::new(&machine, phys.meta(), &swap);
    let frame = || {
        let run = phys.alloc(CPU, Order::ZERO)?;
        machine.clear(&run, 0..1, Reuse::Soon);
        Some(run)
    };
    assert!(device.found(slots, frame), "RAM is left");
    swap.open(FileId(0), slots, Admits::All);
    test(&device);
    device.fell(|run| phys.free(CPU, run));
    machine.verdict().expect("no rule is broken");
}

#[test]
fn d2_a_device_is_not_in_use_before_it_is_opened() {
    for mut swap in [Swap::new(), Swap::default()] {
        for _ in 0..2 {
            assert_eq!((swap.file(), swap.slots(), swap.used()), (None, 0, 0));
            assert_eq!(swap.admits(), Admits::Nothing);
            assert!(swap.lanes.iter().flatten().all(|lane| lane.current().is_none()));
            // Its memory may be that of one that was in use.
            swap.open(FileId(3), 9, Admits::All);
            swap.lanes.iter().flatten().for_each(|lane| lane.set(Some(2)));
            assert_eq!((swap.file(), swap.slots()), (Some(FileId(3)), 9));
            swap.reset();
        }
    }
}

/// The audit, where the runs `held` are those of folios in memory.
fn audit(device: &Slots<'_, '_>, held: &BTreeMap<u64, Order>) -> Result<(), (u64, SlotFault)> {
    held.iter().for_each(|(slot, order)| device.tally_cached(FilePages::block(*slot, *order)));
    device.audit()
}

/// A step: takes a number of runs of an order side by side, as a CPU; or gives back one of those
/// that are held.
#[derive(Clone, Copy, Debug)]
enum Step {
    Take(u8, usize, usize),
    Free(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let take = |(order, most, cpu)| Step::Take(order, most, cpu);
    let large = (5u8..10, 1usize..3, 0usize..3).prop_map(take);
    let small = (0u8..5, 1usize..17, 0usize..3).prop_map(take);
    let free = any::<usize>().prop_map(Step::Free);
    prop::collection::vec(prop_oneof![2 => large, 2 => small, 3 => free], 1..120)
}

proptest! {
    #[test]
    fn d2_runs_are_disjoint_and_each_cluster_is_in_the_list_for_its_slots(
        steps in steps(),
        last in 1..CLUSTER,
    ) {
        with_device(2 * CLUSTER + last, |device| {
            let mut held = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Take(order, most, cpu) => {
                        let order = Order::new(order);
                        let Some(run) = device.take_row(order, most, cpu) else { continue };
                        let count = (run.count() >> order.get()) as usize;
                        assert_eq!(run.count(), (count as u64) << order.get(), "whole ones");
                        assert!((1..=most).contains(&count), "{count} of {most}");
                        assert_eq!(FilePages::block(run.start, order).start, run.start, "aligned");
                        assert_eq!(run.start / CLUSTER, (run.end - 1) / CLUSTER, "one cluster's");
                        let before: Option<(&u64, &Order)> = held.range(..run.end).next_back();
                        let end = before.map_or(0, |(at, order)| at + order.pages());
                        assert!(end <= run.start && run.end <= device.swap.slots(), "{run:?}");
                        let each = (run.start..run.end).step_by(order.pages() as usize);
                        held.extend(each.map(|slot| (slot, order)));
                    }
                    Step::Free(at) if !held.is_empty() => {
                        let slot = *held.keys().nth(at % held.len()).expect("there are more");
                        let order = held.remove(&slot).expect("it is held");
                        device.uncache(FilePages::block(slot, order));
                    }
                    Step::Free(_) => {}
                }
                assert_eq!(audit(device, &held), Ok(()));
            }
            while let Some(slot) = device.take(Order::ZERO, 0) {
                held.insert(slot, Order::ZERO);
            }
            let used: u64 = held.values().map(|order| order.pages()).sum();
            assert_eq!(used, device.swap.slots(), "all that is free can be taken");
        });
    }
}

#[test]
fn d2_a_slot_that_is_free_again_is_taken_before_those_of_an_empty_cluster() {
    with_device(4 * CLUSTER, |device| {
        // The first cluster is full, and the second current for the first CPU.
        let mut taken: Vec<u64> =
            (0..=CLUSTER).filter_map(|_| device.take(Order::ZERO, 0)).collect();
        let current = taken.pop().expect("there are more");
        assert!(taken.iter().all(|slot| slot / CLUSTER == taken[0] / CLUSTER));
        device.uncache(FilePages::block(taken[7], Order::ZERO));
        // An order of its own gets an empty cluster.
        let pair = device.take(Order::new(1), 1).expect("two are empty");
        assert!(![taken[7], current].map(|slot| slot / CLUSTER).contains(&(pair / CLUSTER)));
        assert_eq!(device.take(Order::ZERO, 2), Some(taken[7]));
    });
}

#[test]
fn d2_the_audit_finds_a_cluster_in_a_list_for_others() {
    for (place, used) in [(InList::Free, 1), (InList::Partial, 0), (InList::Unlisted, 1)] {
        with_device(CLUSTER, |device| {
            let held: BTreeMap<u64, Order> = (0..used)
                .filter_map(|_| Some((device.take(Order::ZERO, 0)?, Order::ZERO)))
                .collect();
            assert_eq!(audit(device, &held), Ok(()));
            device.each(FilePages::new(0, CLUSTER), |lock, _, _| {
                device.swap.lists.lock().put(device.tree.meta, lock.frame(), place, 0);
            });
            assert_eq!(audit(device, &held), Err((0, SlotFault::Listed { used })), "{place:?}");
        });
    }
}

#[test]
fn d3_claims_of_folios_side_by_side_end_at_the_first_that_is_not_whole_on_the_device() {
    with_device(2 * CLUSTER, |device| {
        let pages = |start, end| FilePages::new(start, end);
        assert_eq!(device.take_row(Order::ZERO, CLUSTER as usize, 0), Some(pages(0, CLUSTER)));
        device.refer(pages(0, CLUSTER));
        device.refer(pages(4, 6));
        device.uncache(pages(0, CLUSTER));
        // In memory, and free.
        assert_eq!(device.claim(pages(11, 12), Order::ZERO), 1);
        device.release(pages(17, 18));
        assert_eq!(device.claim(pages(0, 32), Order::new(2)), 2, "that of slot 8 is not whole");
        assert_eq!(device.claim(pages(0, 4), Order::new(2)), 0, "claimed already");
        assert_eq!(device.claim(pages(8, 16), Order::ZERO), 3);
        assert_eq!(device.claim(pages(12, 32), Order::ZERO), 5);
        assert_eq!(device.claim(pages(17, 18), Order::ZERO), 0, "a free slot");
        let across = pages(CLUSTER - 2, CLUSTER + 2);
        assert_eq!(device.claim(across, Order::ZERO), 2, "within one cluster");
        let cached = |slot| device.counted(slot).1;
        assert!((0..17).all(cached) && !(17..CLUSTER - 2).any(cached));
        assert_eq!((device.counted(3), device.counted(4)), ((1, true), (2, true)));
    });
}
