//! Groups beside a naive model: which mobility has which frames, frame by frame.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use quire_hw::FrameRun;
use quire_units::{CpuId, FrameSpan, Order, Pfn};

use super::alloc::Want;
use super::tests::{on, span};
use super::{Mobility, Phys, Zones};
use crate::limits::GROUP_ORDER;

/// A CPU without a cache: each call reaches the zones.
const BARE: CpuId = CpuId::new(9);
const CPU: CpuId = CpuId::new(0);
const GROUP: u64 = GROUP_ORDER.pages();

/// The cheapest of the groups that a search looks at, and how many it passed.
fn cheapest(phys: &Phys<'_>, cost: &mut dyn FnMut(Pfn) -> Option<u64>) -> (Option<Pfn>, u64) {
    let mut best: Option<(u64, Pfn)> = None;
    let passed = phys.search(true, &mut |group| {
        let cost = cost(group)?;
        best = best.into_iter().chain([(cost, group)]).min();
        Some(cost)
    });
    (best.map(|(_, group)| group), passed)
}

/// The SplitMix64 sequence (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }
}

/// Runs that are in use, and for what.
#[derive(Default)]
struct Held(Vec<(FrameRun, Mobility)>);

impl Held {
    fn frames(&self) -> u64 {
        self.0.iter().map(|(run, _)| run.count()).sum()
    }

    fn give_one(&mut self, phys: &Phys<'_>, at: u64) {
        let (run, mobility) = self.0.swap_remove(at as usize);
        phys.free_from(BARE, run, mobility);
    }

    fn give_all(&mut self, phys: &Phys<'_>) {
        self.0.drain(..).for_each(|(run, mobility)| phys.free_from(BARE, run, mobility));
    }

    /// The mobilities of each group that is in use, as bits.
    fn groups(&self) -> BTreeMap<u64, u32> {
        let mut groups = BTreeMap::new();
        for (run, mobility) in &self.0 {
            for frame in run.start().get()..run.start().get() + run.count() {
                *groups.entry(frame / GROUP).or_default() |= 1 << mobility.index();
            }
        }
        groups
    }
}

#[test]
fn i18_groups_hold_frames_of_one_mobility_until_one_borrows() {
    for seed in 0..24 {
        on(&[span(0, 16 * GROUP + 100)], false, |phys| {
            let (mut random, mut held) = (Random(seed), Held::default());
            for step in 0..2000 {
                let mobility = Mobility::ALL[random.below(3) as usize];
                let log2 = random.below(if seed % 3 == 0 { 11 } else { 4 }) as u8;
                if random.below(100) < 55 {
                    let order = Order::new(log2);
                    let run = phys.alloc_for(BARE, order, mobility);
                    held.0.extend(run.map(|run| (run, mobility)));
                } else if !held.0.is_empty() {
                    let at = random.below(held.0.len() as u64);
                    held.give_one(phys, at);
                }
                if step % 100 == 0 {
                    let totals = phys.check().expect("every claim holds");
                    assert_eq!(totals.taken, held.frames());
                }
                if phys.borrowed().blocks > 0 {
                    break;
                }
                // The frames behind the last whole group are in none.
                let mixed = |(group, uses): (&u64, &u32)| *group < 16 && !uses.is_power_of_two();
                let groups = held.groups();
                assert!(!groups.iter().any(mixed), "seed {seed}, step {step}: {groups:?}");
            }
            held.give_all(phys);
            assert_eq!(phys.check().expect("every claim holds").taken, 0);
            assert_eq!(phys.free_by_order()[13], 1, "all groups are free, and merged");
        });
    }
}

#[test]
fn e7_frames_of_any_mobility_are_found_wherever_they_are_free() {
    let taken = [Mobility::Movable, Mobility::Reclaimable, Mobility::Unmovable];
    for (holder, wanted) in taken.into_iter().flat_map(|a| taken.map(|b| (a, b))) {
        on(&[span(0, 4 * GROUP)], false, |phys| {
            let mut held = Held::default();
            while let Some(run) = phys.alloc_for(BARE, Order::ZERO, holder) {
                held.0.push((run, holder));
            }
            assert_eq!(held.frames(), 4 * GROUP);
            for at in (0..64).rev() {
                held.give_one(phys, at * 9);
            }
            let mut taken = 0;
            while let Some(run) = phys.alloc_for(CPU, Order::ZERO, wanted) {
                held.0.push((run, wanted));
                taken += 1;
                phys.check().expect("every claim holds");
            }
            assert_eq!(taken, 64, "{wanted:?} from groups of {holder:?}");
            assert_eq!(phys.borrowed().blocks > 0, holder != wanted);
            let takes_over = holder != wanted && wanted != Mobility::Movable;
            assert_eq!(phys.borrowed().groups > 0, takes_over);
        });
    }
}

#[test]
fn e7_frames_that_stay_take_over_one_group_and_leave_the_others() {
    on(&[span(0, 8 * GROUP)], false, |phys| {
        let mut held = Held::default();
        while let Some(run) = phys.alloc_for(BARE, Order::ZERO, Mobility::Movable) {
            held.0.push((run, Mobility::Movable));
        }
        // Every eighth frame of each group becomes free, and a run of 16 in the fifth.
        held.0.sort_by_key(|(run, _)| run.start());
        let stays = |frame: u64| frame % 8 != 3 && !(4 * GROUP..4 * GROUP + 16).contains(&frame);
        for at in (0..8 * GROUP).rev().filter(|at| !stays(*at)) {
            held.give_one(phys, at);
        }
        let table = || phys.alloc_for(BARE, Order::ZERO, Mobility::Unmovable);
        for at in 0..GROUP / 8 {
            let run = table().expect("enough is free");
            assert_eq!(run.start().get() / GROUP, 4, "table {at}");
            held.0.push((run, Mobility::Unmovable));
        }
        assert_eq!((phys.borrowed().blocks, phys.borrowed().groups), (1, 1));
        phys.check().expect("every claim holds");
        held.give_all(phys);
    });
}

#[test]
fn e7_a_group_that_is_free_again_is_for_any_use() {
    on(&[span(0, 2 * GROUP)], false, |phys| {
        for mobility in [2, 0, 1, 0, 2, 1].map(|at| Mobility::ALL[at]) {
            let whole = phys.alloc_for(BARE, GROUP_ORDER, mobility).expect("all is free");
            let one = phys.alloc_for(BARE, Order::ZERO, mobility).expect("a group is free");
            assert_eq!(phys.free_by_mobility(mobility)[0], 1, "the rest is for {mobility:?}");
            // A part of a block that was taken whole goes to its mobility's list as well.
            let (part, rest) = whole.split_at(8);
            phys.free_from(BARE, rest, mobility);
            assert_eq!(phys.free_by_mobility(mobility)[3], 2, "{mobility:?}");
            phys.free_from(BARE, part, mobility);
            phys.free_from(BARE, one, mobility);
            assert_eq!(phys.borrowed().blocks, 0);
            phys.check().expect("every claim holds");
        }
    });
}

#[test]
fn e7_a_group_whose_first_frame_is_locked_keeps_its_mobility() {
    on(&[span(0, GROUP)], false, |phys| {
        let meta = phys.meta();
        {
            let _lock = meta.lock(span(0, 1).start);
            let want =
                Want { mobility: Mobility::Unmovable, order: Order::ZERO, zones: Zones::ALL };
            let run = phys.take_block(want).expect("all is free");
            assert_eq!(phys.free_by_mobility(Mobility::Movable)[0], 1);
            phys.check().expect("every claim holds");
            phys.free(BARE, run);
            phys.drain();
        }
        let run = phys.alloc_for(BARE, Order::ZERO, Mobility::Unmovable).expect("all is free");
        assert_eq!(phys.free_by_mobility(Mobility::Unmovable)[0], 1);
        // A lock that is taken and released keeps the record.
        drop(meta.lock(span(0, 1).start));
        phys.check().expect("every claim holds");
        phys.free_from(BARE, run, Mobility::Unmovable);
    });
}

#[test]
fn i18_the_emptiest_group_is_isolated_and_gives_no_frame_until_that_ends() {
    for seed in 0..24 {
        on(&[span(0, 8 * GROUP)], false, |phys| {
            let (mut random, mut held) = (Random(seed), Held::default());
            let mut live = |held: &mut Held, steps: u64, frees: u64| {
                for _ in 0..steps {
                    let order = Order::new(random.below(4) as u8);
                    let at = random.below(held.0.len().max(1) as u64);
                    match random.below(100) < frees && !held.0.is_empty() {
                        true => held.give_one(phys, at),
                        false => {
                            let run = phys.alloc_for(BARE, order, Mobility::Movable);
                            held.0.extend(run.map(|run| (run, Mobility::Movable)));
                        }
                    }
                }
            };
            live(&mut held, 1500, 0);
            live(&mut held, 700, 90);
            let free_of = |held: &Held, group: u64| {
                let frames = held
                    .0
                    .iter()
                    .flat_map(|(run, _)| run.start().get()..run.start().get() + run.count());
                GROUP - frames.filter(|frame| frame / GROUP == group).count() as u64
            };
            let best = (0..8).map(|group| free_of(&held, group)).filter(|free| *free < GROUP);
            let mut used = |group: Pfn| {
                let used = GROUP - phys.free_in(FrameSpan::new(group, GROUP));
                (used > 0).then_some(used)
            };
            let (next, passed) = cheapest(phys, &mut used);
            let next = next.expect("groups are partly in use");
            assert_eq!(passed, 8, "a small zone is seen as a whole");
            assert_eq!(Some(free_of(&held, next.get() / GROUP)), best.max(), "seed {seed}");
            assert!(phys.isolate(next) && !phys.isolate(next));
            let (all, group) = (held.frames(), next.get() / GROUP);
            let before = free_of(&held, group);
            live(&mut held, 2000, 45);
            assert!(free_of(&held, group) >= before, "seed {seed}: {all}");
            let packed = phys.alloc_packed(Order::new(2));
            let is_apart = |run: &FrameRun| run.start().get() / GROUP != group;
            assert!(packed.as_ref().is_none_or(is_apart));
            if let Some(run) = packed {
                phys.give_back(run);
            }
            held.0.retain(|(run, _)| run.start().get() / GROUP != group);
            phys.check().expect("every claim holds");
            assert_ne!(cheapest(phys, &mut used).0, Some(next), "it is being emptied");
            phys.end_isolation(next);
            phys.check().expect("every claim holds");
            let mut all_alike = |_: Pfn| Some(1);
            phys.refuse(next);
            assert_ne!(cheapest(phys, &mut all_alike).0, Some(next));
            let mut it_alone = |group: Pfn| (group == next).then_some(1);
            assert_eq!(cheapest(phys, &mut it_alone).0, None);
            phys.forgive();
            assert_eq!(cheapest(phys, &mut it_alone).0, Some(next));
            held.give_all(phys);
        });
    }
}

#[test]
fn e7_a_group_of_which_ram_has_only_a_part_is_left_alone() {
    // RAM begins and ends in the middle of a group, and only there something is free.
    let all = 2 * GROUP;
    on(&[span(GROUP / 2, all)], false, |phys| {
        let mut held = Held::default();
        while let Some(run) = phys.alloc_for(BARE, Order::ZERO, Mobility::Movable) {
            held.0.push((run, Mobility::Movable));
        }
        let is_outer = |run: &FrameRun| run.start().get() / GROUP != 1;
        while let Some(at) = held.0.iter().position(|(run, _)| is_outer(run)) {
            held.give_one(phys, at as u64);
        }
        let mut seen = Vec::new();
        let mut see = |group: Pfn| {
            seen.push(group);
            Some(1)
        };
        assert_eq!(cheapest(phys, &mut see), (Some(Pfn::new(GROUP)), 1));
        assert_eq!(
            (seen, phys.groups()),
            ([Pfn::new(GROUP)].to_vec(), 1),
            "there is one whole group"
        );
        assert!(!phys.isolate(Pfn::new(0)) && !phys.isolate(Pfn::new(2 * GROUP)));
        held.give_one(phys, 0);
        assert_eq!(phys.free_in(FrameSpan::new(Pfn::new(GROUP), GROUP)), 1);
        phys.check().expect("every claim holds");
        held.give_all(phys);
    });
}

#[test]
fn e7_searches_see_all_groups_in_turn_and_the_cheapest_ones_each_time() {
    let groups = 100;
    on(&[span(0, groups * GROUP)], false, |phys| {
        let (mut seen, mut all) = (BTreeSet::new(), 0);
        // Each costs the more the later it comes.
        let mut cost = |group: Pfn| {
            seen.insert(group);
            Some(group.get())
        };
        while all < groups {
            let (best, passed) = cheapest(phys, &mut cost);
            assert!(best.is_some() && passed <= 16, "a search has a bound");
            all += passed;
        }
        assert_eq!(seen.len() as u64, groups);
        // The first groups were seen long ago, and are remembered.
        for group in 0..40 {
            let mut cost = |at: Pfn| (at.get() >= group * GROUP).then_some(at.get());
            let best = cheapest(phys, &mut cost).0.map(|best| best.get() / GROUP);
            assert!(best.is_some_and(|best| best >= group), "{best:?}");
            assert!(group >= 16 || best == Some(group), "{group}: {best:?}");
        }
    });
}

#[test]
fn e7_a_group_within_a_larger_free_block_is_free() {
    on(&[span(0, 4 * GROUP)], false, |phys| {
        for start in [0, 1, GROUP / 2, GROUP, 3 * GROUP] {
            let part = FrameSpan::new(Pfn::new(start), GROUP);
            assert_eq!(phys.free_in(part), GROUP, "from {start} on");
        }
    });
}

#[test]
fn e7_the_groups_of_all_zones_count() {
    let zones = [span(0, 2 * GROUP), span(2 * GROUP, 3 * GROUP)];
    // Which zone has the larger part makes no difference.
    for (low, high) in [(5, 3), (3, 5), (4, 4)] {
        on(&zones, false, |phys| {
            let mut held = Held::default();
            while let Some(run) = phys.alloc_for(BARE, Order::ZERO, Mobility::Movable) {
                held.0.push((run, Mobility::Movable));
            }
            assert_eq!((phys.groups(), phys.largest_packed()), (5, None));
            let mut give = |start: u64, order: u32| {
                let is_in =
                    |run: &FrameRun| (start..start + (1 << order)).contains(&run.start().get());
                while let Some(at) = held.0.iter().position(|(run, _)| is_in(run)) {
                    held.give_one(phys, at as u64);
                }
            };
            give(GROUP, low);
            give(4 * GROUP, high);
            let most = low.max(high) as u8;
            assert_eq!(phys.largest_packed(), Some(Order::new(most)), "of {low} and {high}");
            let blocks = |order: u32| (1 << low >> order) + (1 << high >> order);
            for order in [0, 2, 3] {
                assert!(phys.has_blocks(Order::new(order), blocks(order.into())));
                assert!(!phys.has_blocks(Order::new(order), blocks(order.into()) + 1));
            }
            let mut seen = BTreeSet::new();
            assert_eq!(phys.search(false, &mut |group| seen.insert(group).then_some(GROUP)), 5);
            assert_eq!(seen.len(), 5, "of each zone");
            // The first costs no more than a look: none is looked for that is cheaper.
            phys.search(false, &mut |group| seen.remove(&group).then_some(1));
            assert_eq!(seen.len(), 3, "one look in each zone");
            // Low memory is scarce: a folio that moves goes to the highest zone that has room.
            let fitting = Order::new(low.min(high) as u8);
            let packed = phys.alloc_packed(fitting).expect("both zones have room");
            assert!(packed.start().get() >= 2 * GROUP, "{:?}", packed.start());
            phys.give_back(packed);
            let largest = phys.alloc_packed(Order::new(most)).expect("one zone has room");
            phys.give_back(largest);
            assert_eq!(
                phys.alloc_packed(Order::new(most + 1)).map(|run| phys.give_back(run)),
                None
            );
            phys.check().expect("every claim holds");
            held.give_all(phys);
        });
    }
}
