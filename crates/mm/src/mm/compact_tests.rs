//! Compaction beside a naive model: the word of each page, and the fewest groups that could hold
//! what is in use.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::vec::Vec;

use quire_arch::{Arch, Arm4k, Sv39, X86_64};
use quire_machine::Config;
use quire_units::{Access, Asid, CpuId, FrameSpan, Order, PageSpan, Pfn, Vpn};

use super::migrate_tests::{Device, Scene, random, with_device};
use crate::base::AllSpaces;
use crate::cache::{FileId, Store};
use crate::fault::{Cause, Defrag, SizePolicy};
use crate::limits::GROUP_ORDER;
use crate::phys::Mobility;
use crate::phys::fail::FailPlan;
use crate::space::{AreaFlags, At, Backing, Request, Space};
use crate::stats::Event;
use crate::{Compacted, Compaction, Need, Resolved, Stop};

/// The pages of a second area of each space: more than three groups.
const MORE: PageSpan = PageSpan::new(Vpn::new((1 << 18) + 1024), Vpn::new((1 << 18) + 2816));

/// The most frames that the index of a device keeps.
const NODES: u64 = 2;

/// As many blocks of an order as possible.
fn all(order: u8) -> Compaction {
    Compaction { order: Order::new(order), blocks: u64::MAX, pages: u64::MAX }
}

/// A space with memory in pieces: of its pages, the word of each that is there. Single pages, and
/// folios of 16 pages where `large` says so.
struct Worn<A> {
    space: Space<A>,
    words: BTreeMap<u64, u64>,
}

impl<A: Arch> Worn<A> {
    fn new(scene: &Scene<'_, '_, '_, A>, seed: &mut u64, large: bool) -> Self {
        let (mm, space) = (scene.mm, scene.space());
        let policy = if large { SizePolicy::Always } else { SizePolicy::Never };
        mm.policy().set_size(Order::new(4), policy).expect("a size");
        let request = Request::anon(MORE.count()).at(At::Fixed(MORE.start));
        mm.map(&space, &request).expect("free");
        let mut words = BTreeMap::new();
        for at in 0..MORE.count() {
            scene.access(&space, MORE.start.add(at), Some(at + 1));
            words.insert(at, at + 1);
        }
        let unit = if large { 16 } else { 1 };
        for first in (0..MORE.count()).step_by(unit).filter(|_| random(seed, 10) < 6) {
            let span = PageSpan::new(MORE.start.add(first), MORE.start.add(first + unit as u64));
            mm.discard(&space, span).expect("memory");
            words.retain(|at, _| !(first..first + unit as u64).contains(at));
        }
        Self { space, words }
    }

    fn holds(&self, scene: &Scene<'_, '_, '_, A>, space: &Space<A>) {
        for (at, word) in &self.words {
            assert_eq!(scene.access(space, MORE.start.add(*at), None), *word, "page {at}");
        }
    }
}

fn compact<A: Arch>(
    scene: &Scene<'_, '_, '_, A>,
    goal: Compaction,
    spaces: &[&Space<A>],
) -> Compacted {
    let done = scene.mm.reclaim().compact(goal, spaces, &mut || {});
    scene.check(spaces);
    assert!(!scene.is_isolated(), "no group stays isolated");
    done
}

impl<A: Arch> Scene<'_, '_, '_, A> {
    fn is_isolated(&self) -> bool {
        self.mm.allocator().free_by_mobility(Mobility::Isolated).iter().any(|blocks| *blocks > 0)
    }

    /// How many blocks of `order` are free, parts of larger ones included.
    fn blocks(&self, order: u8) -> u64 {
        self.mm.allocator().drain();
        let counts = self.mm.allocator().free_by_order();
        let all = counts.iter().zip(0u8..).skip(order.into());
        all.map(|(count, at)| count << (at - order)).sum()
    }
}

fn makes_blocks<A: Arch>(config: Config, device: Device, large: bool) {
    with_device::<A>(config, device, |scene| {
        let (mm, mut seed) = (scene.mm, 7);
        let worn = Worn::new(scene, &mut seed, large);
        let space = &worn.space;
        let child = mm.fork(space, Asid(9)).expect("memory");
        let (free, before) = (scene.blocks(0), scene.blocks(GROUP_ORDER.get()));
        let done = compact(scene, all(GROUP_ORDER.get()), &[space, &child]);
        let after = scene.blocks(GROUP_ORDER.get());
        assert!(done.made > 0 && after >= before + done.made, "{}: {done:?}", A::NAME);
        // One group may be partly in use for each of the mobilities.
        let most = free >> GROUP_ORDER.get();
        assert!(after + 2 >= most, "{}: {after} of {most}, {done:?}", A::NAME);
        // The device's index keeps its nodes.
        assert!(free - scene.blocks(0) <= NODES, "{}: no frame is lost", A::NAME);
        assert_eq!(scene.used_slots(), 0);
        let counts = mm.totals();
        assert_eq!(counts.event(Event::MigratedPages), done.moved);
        assert!(counts.event(Event::CompactScanned) >= done.moved);
        worn.holds(scene, space);
        worn.holds(scene, &child);
        let again = compact(scene, all(GROUP_ORDER.get()), &[space, &child]);
        assert!(again.moved <= GROUP_ORDER.pages(), "{}: {again:?}", A::NAME);
        scene.end([worn.space, child]);
    });
}

#[test]
fn e7_what_is_in_use_fits_into_the_fewest_groups() {
    for device in [Device::Swap, Device::Moves] {
        makes_blocks::<X86_64>(Config::x86_64(), device, false);
        makes_blocks::<Arm4k>(Config::arm64_4k(), device, true);
        makes_blocks::<Sv39>(Config::riscv64_sv39(), device, false);
    }
}

#[test]
fn e7_a_compaction_ends_at_its_goal_and_at_its_budget() {
    with_device::<X86_64>(Config::x86_64(), Device::Moves, |scene| {
        let worn = Worn::new(scene, &mut 3, false);
        let spaces = &[&worn.space];
        scene.mm.allocator().drain();
        let counts = scene.mm.allocator().free_by_mobility(Mobility::Movable);
        let counts = counts.iter().zip(0u64..).skip(6);
        let blocks: u64 = counts.map(|(count, at)| count << (at - 6)).sum();
        let goal = Compaction { blocks: blocks + 2, ..all(6) };
        let done = compact(scene, goal, spaces);
        assert!(done.enough && done.made == 2, "{done:?}");
        assert!(done.moved < 2 * 64);
        let none = compact(scene, goal, spaces);
        assert_eq!(none, Compacted { enough: true, ..Compacted::default() });
        // A block that needs more than that is left alone.
        let done = compact(scene, Compaction { pages: 100, ..all(GROUP_ORDER.get()) }, spaces);
        assert_eq!(done, Compacted::default());
        let done = compact(scene, Compaction { pages: 400, ..all(GROUP_ORDER.get()) }, spaces);
        assert!(done.made > 0 && (101..=400).contains(&done.moved), "{done:?}");
        scene.end([worn.space]);
    });
}

/// The budget is exact: what one block costs is enough for it, and one page less is not.
#[test]
fn e7_a_compaction_moves_as_many_pages_as_its_budget_has_and_no_more() {
    let one_block = |pages: u64| {
        let mut made = Compacted::default();
        with_device::<X86_64>(Config::x86_64(), Device::Moves, |scene| {
            let worn = Worn::new(scene, &mut 3, false);
            let blocks = scene.blocks(GROUP_ORDER.get()) + 1;
            let goal = Compaction { blocks, pages, ..all(GROUP_ORDER.get()) };
            made = compact(scene, goal, &[&worn.space]);
            worn.holds(scene, &worn.space);
            scene.end([worn.space]);
        });
        (made.made, made.moved)
    };
    let (made, cost) = one_block(u64::MAX);
    assert!(made == 1 && cost > 0, "{cost}");
    assert_eq!(one_block(cost), (1, cost));
    assert_eq!(one_block(cost - 1), (0, 0));
}

#[test]
fn e7_a_fault_that_lacks_a_block_gets_it_after_a_compaction_and_counts_no_fallback() {
    with_device::<X86_64>(Config::x86_64(), Device::Moves, |scene| {
        let (mm, worn) = (scene.mm, Worn::new(scene, &mut 9, false));
        mm.policy().set_size(GROUP_ORDER, SizePolicy::Always).expect("a size");
        mm.policy().set_defrag(Defrag::Always);
        let spaces = &[&worn.space];
        let area = PageSpan::new(Vpn::new((1 << 18) + 4096), Vpn::new((1 << 18) + 5632));
        let request = Request::anon(area.count()).at(At::Fixed(area.start));
        mm.map(&worn.space, &request).expect("free");
        let take_blocks = || std::iter::from_fn(|| mm.phys().alloc(GROUP_ORDER));
        let mut held: Vec<_> = take_blocks().collect();
        let lacked = || mm.totals().fallback[GROUP_ORDER.index()][Cause::Memory as usize];
        let touch = |page| mm.fault(&worn.space, page, Access::Write);
        let order = |got| match got {
            Ok(Resolved::Mapped(installed)) => Some(installed.order),
            _ => None,
        };

        mm.reclaim().answer_faults(true);
        // Memory is in pieces, and more so than any threshold but the highest.
        let index = mm.phys().fragmentation(GROUP_ORDER).expect("no block is free");
        assert!(index > 900, "{index}");
        mm.policy().set_extfrag_threshold(index).expect("at most 1000");
        assert!(order(touch(area.start.add(1024))).is_some_and(|order| order < GROUP_ORDER));
        assert_eq!(lacked(), 1, "short of memory rather than in pieces: compaction is no help");
        mm.policy().set_extfrag_threshold(index - 1).expect("at most 1000");
        let asks = touch(area.start);
        assert!(matches!(asks, Err(Stop::Need(Need::Compact(GROUP_ORDER)))), "{asks:?}");
        let done = mm.reclaim().compact_for(GROUP_ORDER, u64::MAX, &spaces[..], &mut || {});
        assert!(done.enough && done.made == 1, "{done:?}");
        assert_eq!(order(touch(area.start)), Some(GROUP_ORDER));
        assert_eq!(lacked(), 1, "it got what it wanted");

        // Without an answer the fault takes a smaller folio, and says what it lacked.
        mm.reclaim().answer_faults(false);
        held.extend(take_blocks());
        assert!(order(touch(area.start.add(512))).is_some_and(|order| order < GROUP_ORDER));
        assert_eq!(lacked(), 2);
        held.into_iter().for_each(|run| mm.phys().free(run));
        worn.holds(scene, &worn.space);
        scene.end([worn.space]);
    });
}

#[test]
fn e7_pinned_memory_stays_and_its_group_is_left_alone() {
    with_device::<X86_64>(Config::x86_64(), Device::Moves, |scene| {
        let (mm, worn) = (scene.mm, Worn::new(scene, &mut 5, false));
        let pages: Vec<u64> = worn.words.keys().copied().step_by(25).collect();
        let pins: Vec<_> = pages
            .iter()
            .map(|at| mm.pin(&worn.space, MORE.start.add(*at), Access::Write).expect("memory"))
            .collect();
        let before = scene.frames(&worn.space);
        let done = compact(scene, all(GROUP_ORDER.get()), &[&worn.space]);
        assert_eq!(done, Compacted::default(), "no group of pinned pages is tried");
        assert_eq!(scene.frames(&worn.space), before);
        pins.into_iter().for_each(|pin| mm.unpin(pin));
        assert!(compact(scene, all(GROUP_ORDER.get()), &[&worn.space]).made > 0);
        worn.holds(scene, &worn.space);
        scene.end([worn.space]);
    });
}

#[test]
fn e7_each_allocation_of_a_compaction_may_fail() {
    for plan in (1..40).step_by(3).flat_map(|nth| [FailPlan::Nth(nth), FailPlan::From(nth)]) {
        with_device::<Arm4k>(Config::arm64_4k(), Device::Moves, |scene| {
            let (mm, worn) = (scene.mm, Worn::new(scene, &mut 11, true));
            let free = scene.blocks(0);
            mm.allocator().set_fail_plan(plan);
            compact(scene, all(GROUP_ORDER.get()), &[&worn.space]);
            mm.allocator().set_fail_plan(FailPlan::Never);
            assert_eq!(scene.used_slots(), 0, "{plan:?}");
            assert!(free - scene.blocks(0) <= NODES, "{plan:?}");
            worn.holds(scene, &worn.space);
            scene.end([worn.space]);
        });
    }
}

/// A file in memory that both spaces of a family map, from `PAGES` of the first area on.
fn file<A: Arch>(scene: &Scene<'_, '_, '_, A>, space: &Space<A>) -> FileId {
    let mm = scene.mm;
    let id = mm.files().open(Store::Memory, MORE.count(), Order::ZERO).expect("a free file");
    let backing = Backing::File { id, page: 0 };
    let at = At::Fixed(MORE.start.add(MORE.count()));
    let flags = AreaFlags::SHARED;
    let request = Request { backing, flags, ..Request::anon(MORE.count()).at(at) };
    mm.map(space, &request).expect("free");
    id
}

#[test]
fn e7_pages_of_a_file_move_and_stay_shared_and_dirty() {
    with_device::<X86_64>(Config::x86_64(), Device::Moves, |scene| {
        let (mm, worn) = (scene.mm, Worn::new(scene, &mut 13, false));
        let space = &worn.space;
        let id = file(scene, space);
        let first = MORE.start.add(MORE.count());
        for at in (0..MORE.count()).step_by(3) {
            scene.access(space, first.add(at), Some(at + 5));
        }
        let child = mm.fork(space, Asid(9)).expect("memory");
        let half = PageSpan::new(MORE.start, MORE.start.add(MORE.count() / 2));
        mm.discard(space, half).expect("memory");
        let done = compact(scene, all(GROUP_ORDER.get()), &[space, &child]);
        assert!(done.made > 0, "{done:?}");
        for at in (0..MORE.count()).step_by(3) {
            assert_eq!(scene.access(space, first.add(at), None), at + 5);
            assert_eq!(scene.access(&child, first.add(at), None), at + 5);
        }
        scene.access(&child, first, Some(99));
        assert_eq!(scene.access(space, first, None), 99, "it is the same page");
        worn.holds(scene, &child);
        scene.end([worn.space, child]);
        mm.files().close(id).expect("it is open");
    });
}

/// Spaces that are found by their numbers; counts how often all are visited.
struct Found<'a, A> {
    spaces: [&'a Space<A>; 2],
    all: Cell<u32>,
}

impl<A: Arch> AllSpaces<A> for Found<'_, A> {
    fn visit(&self, see: &mut dyn FnMut(&Space<A>)) {
        self.all.set(self.all.get() + 1);
        self.spaces.iter().for_each(|space| see(space));
    }

    fn visit_some(&self, numbers: &[u32], see: &mut dyn FnMut(&Space<A>)) {
        let such = self.spaces.iter().filter(|space| numbers.contains(&space.number()));
        such.for_each(|space| see(space));
    }
}

#[test]
fn e7_a_page_of_a_file_that_one_space_maps_is_looked_for_in_that_one_alone() {
    with_device::<X86_64>(Config::x86_64(), Device::Moves, |scene| {
        let (mm, space) = (scene.mm, scene.space());
        let id = file(scene, &space);
        let first = MORE.start.add(MORE.count());
        let file = PageSpan::new(first, first.add(MORE.count()));
        let child = mm.fork(&space, Asid(9)).expect("memory");
        let found = Found { spaces: [&space, &child], all: Cell::new(0) };
        let moves = |page: Vpn| {
            found.all.set(0);
            let frame = scene.frames(&space)[&page].0;
            let span = FrameSpan::new(frame, 1);
            let run = mm.reclaim().take_span(span, &found, &mut || {}).expect("it can move");
            assert!(scene.frames(&space).get(&page).is_none_or(|(now, _)| *now != frame));
            mm.phys().free(run);
            found.all.get()
        };
        for at in 0..MORE.count() {
            scene.access(&space, first.add(at), Some(at + 5));
        }
        let (alone, both) = (first.add(2), first.add(7));
        assert_eq!(moves(alone), 0, "its home has all its mappings");
        assert!(scene.frames(&space).contains_key(&alone), "it is mapped again");
        assert_eq!(scene.access(&child, both, None), 12);
        assert!(moves(both) > 0, "its home has one of two");
        for of in [&space, &child] {
            assert!(scene.frames(of).contains_key(&both), "it is mapped again");
            assert_eq!(scene.access(of, both, None), 12);
        }
        scene.check(&[&space, &child]);
        mm.unmap(&child, file).expect("memory");
        scene.end([space, child]);
        mm.files().close(id).expect("it is open");
    });
}

#[test]
fn e7_a_span_is_taken_out_of_memory_in_use_unless_a_frame_is_pinned() {
    with_device::<X86_64>(Config::x86_64(), Device::Moves, |scene| {
        let (mm, worn) = (scene.mm, Worn::new(scene, &mut 17, false));
        let spaces = &[&worn.space];
        let frames = scene.frames(&worn.space);
        let (page, (frame, _)) = frames.iter().nth(300).expect("there are more");
        let span = FrameSpan::new(frame.align_down(512).add(100), 700);
        let pinned = mm.pin(&worn.space, *page, Access::Write).expect("memory");
        let refused = mm.reclaim().take_span(span, &spaces[..], &mut || {});
        assert_eq!(refused.map_err(|occupied| occupied.frame).map(drop).is_ok(), {
            !span.contains(pinned.frame())
        });
        mm.unpin(pinned);
        scene.check(spaces);
        let taken = mm.reclaim().take_span(span, &spaces[..], &mut || {});
        let run = taken.unwrap_or_else(|occupied| panic!("{occupied}"));
        assert_eq!(run.span(), span);
        assert!(scene.frames(&worn.space).values().all(|(frame, _)| !span.contains(*frame)));
        mm.phys().free(run);
        assert!(!scene.is_isolated());
        worn.holds(scene, &worn.space);
        scene.check(spaces);
        scene.end([worn.space]);
    });
}

#[test]
fn e7_no_folio_moves_for_a_span_that_is_not_all_of_ram() {
    with_device::<X86_64>(Config::x86_64(), Device::Moves, |scene| {
        let (mm, worn) = (scene.mm, Worn::new(scene, &mut 17, false));
        let (known, frames) = (mm.allocator().meta().span(), scene.frames(&worn.space));
        let in_use = *frames.values().map(|(frame, _)| frame).max().expect("it has memory");
        let before = Pfn::new(known.start.get() - 1);
        let beyond = known.end().add(1);
        let spans = [
            (in_use, beyond, known.end()),
            (known.end(), beyond, known.end()),
            (before, known.end(), before),
        ];
        for (start, end, missing) in spans {
            let span = FrameSpan::new(start, end.offset_from(start));
            let taken = mm.reclaim().take_span(span, &[&worn.space][..], &mut || {});
            assert_eq!(taken.map_err(|occupied| occupied.frame).map(drop), Err(missing));
        }
        let counts = mm.totals();
        for event in [Event::MigratedPages, Event::MigrateFailed] {
            assert_eq!(counts.event(event), 0, "{event:?}");
        }
        // All numbers of frames that there are: a walk over them would never end.
        let all = FrameSpan::new(in_use, u64::MAX - in_use.get());
        let taken = mm.reclaim().take_span(all, &[&worn.space][..], &mut || {});
        assert_eq!(taken.map_err(|occupied| occupied.frame).map(drop), Err(known.end()));
        assert_eq!(scene.frames(&worn.space), frames, "all is where it was");
        worn.holds(scene, &worn.space);
        scene.end([worn.space]);
    });
}

fn lives<A: Arch>(config: fn() -> Config) {
    for first in 0..6 {
        let device = if first % 2 == 0 { Device::Swap } else { Device::Moves };
        with_device::<A>(config(), device, |scene| {
            let mut seed = first;
            let mm = scene.mm;
            let mut worn = Worn::new(scene, &mut seed, first % 3 == 0);
            let mut children: Vec<(Space<A>, BTreeMap<u64, u64>)> = Vec::new();
            for step in 0..40 {
                let page = random(&mut seed, MORE.count());
                match random(&mut seed, 6) {
                    0 | 1 => {
                        scene.access(&worn.space, MORE.start.add(page), Some(step + 5000));
                        worn.words.insert(page, step + 5000);
                    }
                    2 => {
                        let end = (page + 1 + random(&mut seed, 300)).min(MORE.count());
                        let span = PageSpan::new(MORE.start.add(page), MORE.start.add(end));
                        mm.discard(&worn.space, span).expect("memory");
                        worn.words.retain(|at, _| !(page..end).contains(at));
                    }
                    3 if children.len() < 2 => {
                        let child = mm.fork(&worn.space, Asid(step as u16 + 2)).expect("memory");
                        children.push((child, worn.words.clone()));
                    }
                    4 if !children.is_empty() => {
                        scene.end([children.swap_remove(0).0]);
                    }
                    _ => {
                        let order = 1 + random(&mut seed, GROUP_ORDER.get().into()) as u8;
                        let mut spaces: Vec<&Space<A>> =
                            children.iter().map(|(child, _)| child).collect();
                        spaces.push(&worn.space);
                        compact(scene, Compaction { pages: 400, ..all(order) }, &spaces);
                    }
                }
            }
            worn.holds(scene, &worn.space);
            for (child, words) in &children {
                for (at, word) in words {
                    assert_eq!(scene.access(child, MORE.start.add(*at), None), *word);
                }
            }
            scene.end(children.into_iter().map(|(child, _)| child).chain([worn.space]));
        });
    }
}

#[test]
fn i19_compactions_between_forks_and_writes_lose_no_byte() {
    lives::<X86_64>(Config::x86_64);
    lives::<Arm4k>(Config::arm64_4k);
    lives::<Sv39>(Config::riscv64_sv39);
}

/// The folio of `divides`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Large {
    Anon,
    File,
    /// It is a file's, and reaches beyond its end.
    Cut,
}

/// A large folio moves out of a span while only single pages are free elsewhere.
fn divides<A: Arch>(config: Config, what: Large) {
    with_device::<A>(config, Device::Moves, |scene| {
        let (mm, worn) = (scene.mm, Worn::new(scene, &mut 21, false));
        let (space, cpu) = (&worn.space, CpuId::new(0));
        let id = file(scene, space);
        let first = match what {
            Large::Anon => Vpn::new(MORE.start.get() - 64),
            Large::File | Large::Cut => MORE.start.add(MORE.count()),
        };
        if what == Large::Anon {
            mm.map(space, &Request::anon(64).at(At::Fixed(first))).expect("free");
        }
        mm.policy().set_size(Order::new(4), SizePolicy::Always).expect("a size");
        for at in 0..64 {
            scene.access(space, first.add(at), Some(at + 7));
        }
        let mut pages = 64;
        let frame = scene.frames(space)[&first].0;
        let before = mm.frame_info(frame).expect("it is in use");
        assert!(before.order > Order::ZERO, "{} {what:?}: {before:?}", A::NAME);
        if what == Large::Cut {
            pages = before.order.pages() / 2 - 1;
            let pin = mm.pin(space, first, Access::Write).expect("it is there");
            mm.files().truncate(id, pages, &[space][..]).expect("shorter");
            mm.unpin(pin);
            assert_eq!(mm.frame_info(frame).map(|now| now.order), Some(before.order));
        }
        let orders = (0..=GROUP_ORDER.get()).rev().map(Order::new);
        let alloc = |order| std::iter::from_fn(move || mm.allocator().alloc(cpu, order));
        let held: Vec<_> = orders.flat_map(alloc).collect();
        for at in (0..MORE.count()).step_by(2) {
            let page = PageSpan::at(MORE.start.add(at), 1).expect("a page");
            mm.discard(space, page).expect("memory");
        }
        let span = FrameSpan::new(before.head, before.order.pages());
        let taken = mm.reclaim().take_span(span, &[space][..], &mut || {});
        assert_eq!(taken.as_ref().map(|run| run.span()).ok(), Some(span), "{} {what:?}", A::NAME);
        assert!(mm.totals().event(Event::FolioSplit) > 0);
        scene.check(&[space]);
        for at in 0..pages {
            assert_eq!(scene.access(space, first.add(at), None), at + 7, "{} page {at}", A::NAME);
        }
        taken.into_iter().chain(held).for_each(|run| mm.allocator().free(cpu, run));
        scene.end([worn.space]);
        mm.files().close(id).expect("it is open");
    });
}

#[test]
fn e7_a_large_folio_is_divided_where_no_free_part_has_room_for_it() {
    for what in [Large::Anon, Large::File, Large::Cut] {
        divides::<X86_64>(Config::x86_64(), what);
        divides::<Arm4k>(Config::arm64_4k(), what);
        divides::<Sv39>(Config::riscv64_sv39(), what);
    }
}
