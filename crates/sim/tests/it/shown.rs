//! Areas that show frames: registers of a device, and RAM that the embedder lends (E10, I16).
//!
//! The model is a map from each page of each space to the frame behind it, and a map from each
//! frame to its first word.

use std::collections::BTreeMap;

use proptest::prelude::*;
use quire::check::{self, Leaf};
use quire::inject::FailPlan;
use quire::space::{AreaFlags, At, Backing, Request, Space};
use quire::{Error, FrameSource, LentFrames, Move, Scope, Stop};
use quire_arch::{Arch, Arm4k, Arm16k, Attrs, Sv39, Sv48, X86_64};
use quire_hw::{ForeignFrames, FrameRun, MemoryTypes, Transitions};
use quire_machine::{Config, Cpu, Machine};
use quire_sim::program::{Program, Stopped};
use quire_sim::stage::{leaves, place, span, stage, verify};
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, MemoryType, Order, PageSpan, Pfn, Prot, Vpn};

/// Programs place their areas within this many pages.
const PAGES: u64 = 1536;
/// How many frames the device has.
const REGISTERS: u64 = 1024;
const RING: u64 = 16;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Space, first frame, page, number of pages; of the device, or of the ring.
    Map(usize, u64, u64, u64, bool),
    Unmap(usize, u64, u64),
    Protect(usize, u64, u64, Prot),
    Move(usize, u64, u64, u64),
    Fork(usize),
    Exit(usize),
    Store(usize, u64, u64),
    Renew,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let prot = prop_oneof![Just(Prot::empty()), Just(Prot::READ), Just(Prot::RW)];
    // Blocks of 512 pages are mapped large, and cut.
    let page = || prop_oneof![Just(0), Just(512), Just(16), 0..PAGES];
    let count = || prop_oneof![Just(512u64), Just(16), 1u64..40, 1u64..900];
    let step = (0usize..3, page(), count(), prot, page(), 0u8..16, any::<bool>()).prop_map(
        |(space, page, count, prot, other, kind, ring)| match kind {
            0..=3 => Step::Map(space, other, page, count, ring),
            4 | 5 => Step::Unmap(space, page, count),
            6 | 7 => Step::Protect(space, page, count, prot),
            8 | 9 => Step::Move(space, page, other, count),
            10 => Step::Fork(space),
            11 => Step::Exit(space),
            12 => Step::Renew,
            _ => Step::Store(space, page, count + 1),
        },
    );
    prop::collection::vec(step, 1..40)
}

type Pages = BTreeMap<u64, (Pfn, Prot)>;

struct World<'a, 'm, 'r, A: Arch> {
    mm: &'a HostedMm<'m, 'r, A>,
    cpu: &'a Cpu<'m, 'r>,
    device: ForeignFrames,
    ring: Option<LentFrames>,
    spaces: [Option<(Space<A>, Pages)>; 3],
    words: BTreeMap<Pfn, u64>,
    asids: u16,
}

impl<A: Arch> World<'_, '_, '_, A> {
    fn fresh(&mut self) -> Space<A> {
        self.asids += 1;
        let window = PageSpan::new(place::<A>(), place::<A>().add(8 * PAGES));
        self.mm.space(Asid(self.asids), window).unwrap()
    }

    /// The pages from `page` on, `count` at most.
    fn pages(page: u64, count: u64) -> PageSpan {
        span::<A>(page, count.min(PAGES - page.min(PAGES - 1)).max(1))
    }

    fn act(&mut self, step: Step) {
        let _op = self.cpu.operation("step");
        match step {
            Step::Map(at, from, page, count, ring) => {
                self.map(at, from, Self::pages(page, count), ring)
            }
            Step::Unmap(at, page, count) => {
                let Some((space, pages)) = &mut self.spaces[at] else { return };
                let span = Self::pages(page, count);
                self.mm.unmap(space, span).unwrap();
                pages.retain(|page, _| !span.contains(Vpn::new(*page)));
            }
            Step::Protect(at, page, count, prot) => {
                let Some((space, pages)) = &mut self.spaces[at] else { return };
                let span = Self::pages(page, count);
                let numbers = || span.start.get()..span.end.get();
                match self.mm.protect(space, span, prot) {
                    Ok(()) => numbers().for_each(|page| pages.get_mut(&page).unwrap().1 = prot),
                    Err(Error::NoArea(_)) => {
                        assert!(numbers().any(|page| !pages.contains_key(&page)));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Step::Move(at, page, to, count) => self.shift(at, page, to, count),
            Step::Fork(at) => {
                let free = self.spaces.iter().position(Option::is_none);
                let (Some((space, pages)), Some(free)) = (&self.spaces[at], free) else { return };
                self.asids += 1;
                let child = self.mm.fork(space, Asid(self.asids)).unwrap();
                self.spaces[free] = Some((child, pages.clone()));
            }
            Step::Exit(at) => {
                if let Some((space, _)) = self.spaces[at].take() {
                    self.cpu.leave();
                    self.mm.destroy(space);
                } else {
                    self.spaces[at] = Some((self.fresh(), Pages::new()));
                }
            }
            Step::Store(at, page, value) => self.store(at, place::<A>().add(page), value),
            Step::Renew => self.renew(),
        }
    }

    fn map(&mut self, at: usize, from: u64, span: PageSpan, ring: bool) {
        let Some((space, pages)) = &mut self.spaces[at] else { return };
        let all = if ring { RING } else { REGISTERS };
        let count = span.count().min(all);
        let from = from.min(all - count);
        let (first, source) = match &self.ring {
            Some(lent) if ring => (lent.span().start, FrameSource::Lent(lent, from..from + count)),
            _ if ring => return,
            _ => {
                let part = self.device.part(from..from + count).unwrap();
                (self.device.span().start, FrameSource::Foreign(part))
            }
        };
        let request = Request::anon(count).at(At::Fixed(span.start));
        assert_eq!(
            self.mm.spaces().map_frames(space, &request, source),
            Ok(PageSpan::at(span.start, count).unwrap())
        );
        for ahead in 0..count {
            let frame = first.add(from + ahead);
            pages.insert(span.start.get() + ahead, (frame, Prot::RW));
        }
    }

    /// Moves pages of one area elsewhere.
    fn shift(&mut self, at: usize, page: u64, to: u64, count: u64) {
        let Some((space, pages)) = &mut self.spaces[at] else { return };
        let start = place::<A>().add(page);
        let Some(area) = self.mm.spaces().areas(space, PageSpan::block(start, Order::ZERO)).next()
        else {
            return;
        };
        let old = PageSpan::new(start, area.span.end.min(start.add(count)));
        let new = PageSpan::at(place::<A>().add(to), old.count()).unwrap();
        let moved = self.mm.remap(space, old, old.count(), Move::To(new.start));
        if new.overlaps(old) {
            assert_eq!(moved, Err(Error::Invalid));
            return;
        }
        assert_eq!(moved, Ok(new));
        let frames: Vec<_> =
            (old.start.get()..old.end.get()).map(|page| pages.remove(&page).unwrap()).collect();
        for (ahead, frame) in frames.into_iter().enumerate() {
            pages.insert(new.start.get() + ahead as u64, frame);
        }
    }

    fn store(&mut self, at: usize, page: Vpn, value: u64) {
        let Some((space, pages)) = &self.spaces[at] else { return };
        let done = Program::on(self.cpu, self.mm, space).write(page, value);
        match pages.get(&page.get()) {
            None => assert_eq!(done, Err(Stopped::Refused(Error::NoArea(page)))),
            Some((frame, Prot::RW)) => {
                done.unwrap();
                self.words.insert(*frame, value);
            }
            Some((_, prot)) => {
                let denied = Error::Denied(page, Access::Write, *prot);
                assert_eq!(done, Err(Stopped::Refused(denied)));
            }
        }
    }

    /// Takes the ring back if no page of it is mapped, and lends another.
    fn renew(&mut self) {
        let Some(lent) = self.ring.take() else {
            self.ring =
                self.mm.phys().alloc(Order::new(4)).map(|run| self.mm.spaces().lend(run).unwrap());
            return;
        };
        let ring = lent.span();
        let mapped = |pages: &Pages| pages.values().any(|(frame, _)| ring.contains(*frame));
        let mapped = self.spaces.iter().flatten().any(|(_, pages)| mapped(pages));
        match self.mm.spaces().take_back(lent) {
            Ok(run) => {
                assert!(!mapped);
                assert_eq!(run.span(), ring);
                self.words.retain(|frame, _| !ring.contains(*frame));
                self.mm.phys().free(run);
            }
            Err(lent) => {
                assert!(mapped);
                self.ring = Some(lent);
            }
        }
    }

    /// Compares everything with the model.
    fn compare(&mut self) {
        let Self { mm, cpu, words, .. } = self;
        let spaces: Vec<_> = self.spaces.iter().flatten().map(|(space, _)| space).collect();
        verify(mm, &spaces);
        for (space, pages) in self.spaces.iter().flatten() {
            let mapped: u64 = leaves(mm, space).iter().map(|leaf| leaf.pages.count()).sum();
            assert_eq!(mapped, pages.len() as u64);
            let program = Program::on(cpu, mm, space);
            for (page, (frame, prot)) in pages.iter().filter(|(page, _)| *page % 7 == 0) {
                let page = Vpn::new(*page);
                match (program.read(page), prot.contains(Prot::READ)) {
                    (Ok(word), true) => assert_eq!(word, *words.entry(*frame).or_insert(word)),
                    (Err(Stopped::Refused(Error::Denied(..))), false) => {}
                    (other, _) => panic!("{page} is {other:?}"),
                }
            }
            cpu.leave();
        }
    }
}

fn tell<A: Arch>(config: Config, steps: &[Step]) {
    let config = Config { device_frames: REGISTERS, ..config };
    stage::<A>(config, 4096 + REGISTERS as usize, &[], |mm, cpu| {
        let mut world = World {
            mm,
            cpu,
            device: mm.hardware().devices().unwrap(),
            ring: None,
            spaces: [None, None, None],
            words: BTreeMap::new(),
            asids: 0,
        };
        world.renew();
        world.spaces[0] = Some((world.fresh(), Pages::new()));
        for step in steps {
            world.act(*step);
            world.compare();
        }
        let World { spaces, ring, .. } = world;
        // Some rings end before their areas, and some after.
        if steps.len().is_multiple_of(2) {
            ring.into_iter().for_each(|lent| mm.spaces().release(lent));
            spaces.into_iter().flatten().for_each(|(space, _)| mm.destroy(space));
        } else {
            spaces.into_iter().flatten().for_each(|(space, _)| mm.destroy(space));
            let run = ring.map(|lent| mm.spaces().take_back(lent).unwrap());
            run.into_iter().for_each(|run| mm.phys().free(run));
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn i16_areas_of_frames_are_as_the_model(
        steps in steps(),
        entries: bool,
        contiguous: bool,
        flags: bool,
        relaxed: bool,
    ) {
        let transitions = if relaxed { Transitions::BbmLevel2 } else { Transitions::Base };
        let memory_types = if entries { MemoryTypes::ENTRIES } else { MemoryTypes::PLATFORM };
        let drawn = |config| Config { memory_types, contiguous, transitions, ..config };
        let by_hand = |config| Config { sets_accessed: flags, sets_dirty: flags, ..drawn(config) };
        tell::<X86_64>(drawn(Config::x86_64()), &steps);
        tell::<Arm4k>(by_hand(Config::arm64_4k()), &steps);
        tell::<Arm16k>(drawn(Config::arm64_16k()), &steps);
        tell::<Sv39>(by_hand(Config::riscv64_sv39()), &steps);
    }
}

/// A space, and the right to the device.
fn with_device<A: Arch>(
    config: Config,
    frames: u64,
    test: impl FnOnce(&HostedMm<'_, '_, A>, &Cpu<'_, '_>, &Space<A>, ForeignFrames),
) {
    let config = Config { device_frames: frames, ..config };
    stage::<A>(config, (4096 + frames) as usize, &[], |mm, cpu| {
        let window = PageSpan::new(place::<A>(), place::<A>().add(64 * A::block_order().pages()));
        let space = mm.space(Asid(1), window).unwrap();
        test(mm, cpu, &space, mm.hardware().devices().unwrap());
        cpu.leave();
        mm.destroy(space);
    });
}

fn large_leaves<A: Arch>(config: Config, per_level: &[(u8, usize)]) {
    let block = A::block_order().pages();
    with_device::<A>(config, 3 * block, |mm, cpu, space, device| {
        let part = device.part(1..3 * block).unwrap();
        let area = mm.spaces().map_frames(space, &Request::anon(3 * block - 1), part).unwrap();
        verify(mm, &[space]);
        let leaves = leaves(mm, space);
        for (level, count) in per_level {
            let at_level = leaves.iter().filter(|leaf| leaf.level.index() == *level as usize);
            assert_eq!(at_level.count(), *count, "{} of {level}", A::NAME);
        }
        let folded = leaves.iter().filter(|leaf| leaf.folded).count() as u64;
        let width = A::fold_order(quire_arch::Level::LAST).map_or(block, Order::pages);
        assert_eq!(
            folded > 0,
            width < block,
            "{}: contiguous blocks where there are some",
            A::NAME
        );
        assert!(leaves.iter().all(|leaf| leaf.attrs & Attrs::MEMORY == Attrs::DEVICE));
        let program = Program::on(cpu, mm, space);
        for page in [0, 1, block, 2 * block, 3 * block - 2] {
            assert_eq!(program.write(area.start.add(page), page).unwrap().len(), 0, "no fault");
            assert_eq!(program.read(area.start.add(page)), Ok(page));
        }
        let report = check::space(mm, space).unwrap();
        assert_eq!((report.foreign, report.areas), (area.count(), 1));
    });
}

#[test]
fn e10_registers_are_mapped_by_the_largest_leaves_and_contiguous_blocks() {
    large_leaves::<X86_64>(Config::x86_64(), &[(0, 511), (1, 2)]);
    large_leaves::<Arm4k>(Config::arm64_4k(), &[(0, 511), (1, 2)]);
    large_leaves::<Sv48>(Config::riscv64_sv48(), &[(0, 511), (1, 2)]);
}

#[test]
fn e10_frames_of_the_library_are_refused_and_lent_ones_are_not() {
    with_device::<X86_64>(Config::x86_64(), 16, |mm, _, space, device| {
        assert_eq!(mm.spaces().map_frames(space, &Request::anon(15), device), Err(Error::Invalid));
        let number = Backing::Frames { first: device.span().start, memory: MemoryType::Device };
        let by_number = Request { backing: number, ..Request::anon(1) };
        assert_eq!(mm.map(space, &by_number), Err(Error::Invalid), "a number is no right");
        let part = device.part(0..1).unwrap();
        assert_eq!(mm.spaces().map_frames(space, &by_number, part), Err(Error::Invalid));
        for flags in [AreaFlags::GROWS_DOWN, AreaFlags::WIPEONFORK, AreaFlags::DROPPABLE] {
            let unfit = Request::anon(1).flags(flags);
            assert_eq!(mm.spaces().map_frames(space, &unfit, part), Err(Error::Invalid));
        }
        let code = Request::anon(1).prot(Prot::RX);
        assert_eq!(
            mm.spaces().map_frames(space, &code, part),
            Err(Error::Invalid),
            "registers are no code"
        );
        assert_eq!(device.part(3..17).map(|part| part.span()), None);
        assert_eq!(space.area_count(), 0);
        let lent =
            mm.phys().alloc(Order::new(2)).and_then(|run| mm.spaces().lend(run).ok()).unwrap();
        let beyond = FrameSource::Lent(&lent, 3..5);
        assert_eq!(mm.spaces().map_frames(space, &Request::anon(2), beyond), Err(Error::Invalid));
        let area = mm.spaces().map_frames(space, &Request::anon(4), &lent).unwrap();
        let lent = mm.spaces().take_back(lent).expect_err("an area maps it");
        mm.unmap(space, area).unwrap();
        mm.phys().free(mm.spaces().take_back(lent).unwrap());
        let odd = mm.phys().alloc(Order::new(2)).unwrap();
        let (head, tail) = odd.split_at(1);
        let tail: FrameRun = mm.spaces().lend(tail).expect_err("three frames are no block");
        mm.phys().free(head.join(tail).unwrap());
    });
}

#[test]
fn e10_frames_in_a_zone_and_types_that_nothing_gives_are_refused() {
    let config = Config { memory_types: MemoryTypes::PLATFORM, ..Config::riscv64_sv39() };
    let mut ram = system::ram(4 << 20).unwrap();
    system::with::<Sv39, _>(config, &mut ram, |machine, mm| {
        let space = mm.space(Asid(1), span::<Sv39>(0, 64)).unwrap();
        let run = mm.phys().alloc(Order::new(2)).unwrap();
        let frame = run.start();
        let kept = ForeignFrames::keep(run, MemoryType::Usual);
        let refused = mm.spaces().map_frames(&space, &Request::anon(4), kept);
        assert_eq!(refused, Err(Error::NotForeign(frame)), "it lies in a zone");
        // Frames that this library has no slots for: another machine's.
        let mut other = system::ram(1 << 20).unwrap();
        let elsewhere = Config { ram_start_bytes: 1 << 36, ..config };
        let (_other, run) = Machine::new(elsewhere, &mut other).unwrap();
        let run = mm.spaces().lend(run).expect_err("it has no slots");
        let picture = ForeignFrames::keep(run, MemoryType::Combining);
        let refused = mm.spaces().map_frames(&space, &Request::anon(256), picture);
        assert_eq!(refused, Err(Error::NoMemoryType(MemoryType::Combining)));
        assert_eq!(space.area_count(), 0);
        mm.destroy(space);
        machine.audit().unwrap();
    })
    .unwrap();
}

#[test]
fn e10_calls_that_would_take_a_single_page_away_are_refused() {
    with_device::<Arm4k>(Config::arm64_4k(), 64, |mm, _, space, device| {
        let area = mm.spaces().map_frames(space, &Request::anon(64), device).unwrap();
        let some = PageSpan::new(area.start.add(3), area.start.add(9));
        let invalid = Err(Error::Invalid);
        assert_eq!(mm.discard(space, some), invalid);
        assert_eq!(mm.spaces().guard(space, some), invalid);
        assert_eq!(mm.spaces().free_lazily(space, some), invalid);
        assert_eq!(
            mm.spaces().set_flags(space, some, AreaFlags::WIPEONFORK, AreaFlags::empty()),
            invalid
        );
        assert_eq!(mm.spaces().set_read_order(space, some, Some(Order::new(4))), invalid);
        assert_eq!(mm.pin(space, some.start, Access::Write).map(drop), invalid.map_err(Stop::from));
        assert_eq!(mm.pin_read(space, some.start).map(drop), invalid.map_err(Stop::from));
        assert_eq!(mm.remap(space, area, 65, Move::Allowed).map(drop), invalid, "no growth");
        assert_eq!(mm.remap(space, area, 64, Move::Keep(At::Anywhere)).map(drop), invalid);
        let exec = mm.protect(space, some, Prot::RX);
        assert_eq!(exec, Err(Error::Forbidden(some.start, Prot::RX)));
        assert_eq!(mm.populate(space, area).map(|done| done.pages), Ok(0), "all are there");
        mm.mlock(space, area).unwrap();
        mm.spaces().track(space, area).unwrap();
        mm.spaces().unshare_page(space, some.start).unwrap();
        verify(mm, &[space]);
        assert_eq!(leaves(mm, space).iter().map(|leaf| leaf.pages.count()).sum::<u64>(), 64);
    });
}

#[test]
fn e10_an_area_of_frames_keeps_its_pages_where_it_was_moved_to_and_in_children() {
    with_device::<Arm4k>(Config::arm64_4k(), 64, |mm, _, space, device| {
        let below = place::<Arm4k>();
        let high = At::Fixed(below.add(1000));
        let area = mm.spaces().map_frames(space, &Request::anon(64).at(high), device).unwrap();
        // The search for areas of frames skips this span, which is below all of them.
        let free = PageSpan::new(below, below.add(64));
        assert_eq!(mm.discard(space, free), Ok(()));
        assert_eq!(mm.remap(space, area, 64, Move::To(below)), Ok(free));
        assert_eq!(mm.discard(space, free), Err(Error::Invalid));
        let child = mm.fork(space, Asid(2)).unwrap();
        assert_eq!(mm.discard(&child, free), Err(Error::Invalid));
        mm.destroy(child);
    });
}

#[test]
fn e10_a_cpu_without_types_maps_registers_by_plain_entries() {
    let without = Config { memory_types: MemoryTypes::PLATFORM, ..Config::riscv64_sv39() };
    with_device::<Sv39>(without, 16, |mm, cpu, space, device| {
        let area = mm.spaces().map_frames(space, &Request::anon(16), device).unwrap();
        assert!(leaves(mm, space).iter().all(|leaf| !leaf.attrs.intersects(Attrs::MEMORY)));
        let program = Program::on(cpu, mm, space);
        program.write(area.start.add(5), 7).unwrap();
        assert_eq!(program.read(area.start.add(5)), Ok(7));
        let shown = mm.spaces().areas(space, area).next().map(|area| area.backing);
        let first = device.span().start;
        assert_eq!(shown, Some(Backing::Frames { first, memory: MemoryType::Device }));
    });
}

#[test]
fn i10_frames_are_mapped_all_or_none_whatever_allocation_fails() {
    stage::<X86_64>(Config::x86_64(), 4096, &[], |mm, cpu| {
        let (mut failed, mut done) = (0, false);
        for nth in 1.. {
            let _op = cpu.operation("map_frames");
            let space = mm.space(Asid(nth), span::<X86_64>(0, 2 * PAGES)).unwrap();
            let lent =
                mm.phys().alloc(Order::new(4)).and_then(|run| mm.spaces().lend(run).ok()).unwrap();
            // Two tables of the last level: the second may be what is missing.
            let at = At::FixedNoReplace(place::<X86_64>().add(512 - 8));
            mm.bare_phys().set_fail_plan(FailPlan::Nth(nth.into()));
            let ring = mm.spaces().map_frames(&space, &Request::anon(16).at(at), &lent);
            mm.bare_phys().set_fail_plan(FailPlan::Never);
            verify(mm, &[&space]);
            match ring {
                Ok(area) => {
                    mm.unmap(&space, area).unwrap();
                    done = true;
                }
                Err(error) => {
                    assert!(matches!(error, Error::NoMemory(_)), "{error}");
                    assert_eq!((space.area_count(), leaves(mm, &space).len()), (0, 0));
                    failed += 1;
                }
            }
            mm.phys().free(mm.spaces().take_back(lent).unwrap());
            mm.destroy(space);
            if done {
                break;
            }
        }
        assert_eq!(failed, 5, "a node, and tables of three levels, two of the last");
    });
}

#[test]
fn e10_reclaim_and_groups_pass_lent_frames() {
    with_device::<Arm4k>(Config::arm64_4k(), 16, |mm, cpu, space, _| {
        let lent =
            mm.phys().alloc(Order::new(4)).and_then(|run| mm.spaces().lend(run).ok()).unwrap();
        let area = mm.spaces().map_frames(space, &Request::anon(16), &lent).unwrap();
        let group = mm.groups().create(None).unwrap();
        mm.groups().join(space, Some(group)).unwrap();
        let spaces: &[&Space<Arm4k>] = &[space];
        assert_eq!(mm.reclaim().usage(group, spaces), 0, "the embedder pays");
        Program::on(cpu, mm, space).write(area.start.add(3), 33).unwrap();
        for _ in 0..4 {
            let _op = cpu.operation("reclaim");
            mm.reclaim().age_all(spaces);
            mm.reclaim().reclaim(64, spaces);
        }
        assert_eq!(mm.memory_failed(lent.span().start, spaces), Ok(quire::Loss::Elsewhere));
        verify(mm, &[space]);
        assert_eq!(mm.hardware().ram().read_word(lent.span().start.add(3).addr(12)), Some(33));
        mm.spaces().release(lent);
        let info =
            mm.frame_info(mm.spaces().areas(space, area).next().map_or(Pfn::new(0), |area| {
                match area.backing {
                    Backing::Frames { first, .. } => first,
                    _ => Pfn::new(0),
                }
            }));
        assert!(info.is_some_and(|info| info.used != quire::FrameUse::Free), "the area has it yet");
        mm.groups().join(space, None).unwrap();
        mm.groups().end(group).unwrap();
        mm.unmap(space, area).unwrap();
    });
}

/// A run of 16 frames that is lent.
fn ring<A: Arch>(mm: &HostedMm<'_, '_, A>) -> LentFrames {
    let run = mm.phys().alloc(Order::new(4)).expect("memory");
    mm.spaces().lend(run).expect("one block")
}

#[test]
fn e10_lent_frames_are_not_pinned_aged_tracked_or_paged_out() {
    with_device::<Arm4k>(Config::arm64_4k(), 16, |mm, cpu, space, _| {
        let lent = ring(mm);
        let area = mm.spaces().map_frames(space, &Request::anon(16), &lent).unwrap();
        assert!(mm.spaces().areas(space, area).all(|area| area.flags.contains(AreaFlags::SHARED)));
        let before = leaves(mm, space);
        let refused = Err(Stop::from(Error::Invalid));
        assert_eq!(mm.pin(space, area.start, Access::Write).map(drop), refused);
        assert_eq!(mm.pin_read(space, area.start).map(drop), refused);
        let spaces: &[&Space<Arm4k>] = &[space];
        let swap = mm.paging().swap_on(64).unwrap();
        {
            let _op = cpu.operation("calls that pass lent frames");
            mm.spaces().track(space, area).unwrap();
            mm.spaces().clear_young(space, area);
            mm.spaces().unshare_page(space, area.start.add(2)).unwrap();
            mm.reclaim().age_all(spaces);
            let _ = mm.paging().page_out(space, area, Scope::Own, spaces);
            let _ = mm.paging().page_out(space, area, Scope::All, spaces);
            let _ = mm.reclaim().collapse(space, area, Order::new(4));
        }
        // The leaves grant as much as before, and the hardware's flags are still set.
        let after = leaves(mm, space);
        let told = |leaf: &Leaf| (leaf.pages, leaf.frame, leaf.attrs);
        assert!(before.iter().map(told).eq(after.iter().map(told)), "{before:?} {after:?}");
        verify(mm, &[space]);
        mm.paging().swap_off(swap).unwrap();
        mm.unmap(space, area).unwrap();
        mm.phys().free(mm.spaces().take_back(lent).unwrap());
    });
}

#[test]
fn e10_a_part_of_a_lent_run_shows_its_own_frames_and_counts_them_once() {
    with_device::<X86_64>(Config::x86_64(), 16, |mm, cpu, space, _| {
        let lent = ring(mm);
        let part = FrameSource::Lent(&lent, 4..8);
        let area = mm.spaces().map_frames(space, &Request::anon(4), part).unwrap();
        let first = lent.span().start.add(4);
        assert_eq!(leaves(mm, space).first().map(|leaf| leaf.frame), Some(first));
        Program::on(cpu, mm, space).write(area.start.add(2), 9).unwrap();
        assert_eq!(mm.hardware().ram().read_word(first.add(2).addr(12)), Some(9));
        let child = mm.fork(space, Asid(9)).unwrap();
        verify(mm, &[space, &child]);
        let half = PageSpan::new(area.start, area.start.add(2));
        mm.unmap(space, half).unwrap();
        mm.destroy(child);
        verify(mm, &[space]);
        let lent = mm.spaces().take_back(lent).expect_err("two pages of it are mapped");
        mm.unmap(space, area).unwrap();
        mm.phys().free(mm.spaces().take_back(lent).unwrap());
    });
}
