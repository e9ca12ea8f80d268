//! CPUs enter, change, fork and end spaces, more than there are tags, on a machine whose TLBs
//! remember tags. The naive model knows no tags: each space has its words.

use std::vec::Vec;

use proptest::prelude::*;
use quire_arch::{Arch, Arm4k, Sv39, X86_64};
use quire_hw::{Flush, Hardware};
use quire_machine::{Config, Cpu, Machine, Ram, Rule};
use quire_units::{Asid, CpuId, CpuSet, PageSpan, VirtAddr, Vpn};

use super::{Asids, Tag};
use crate::phys::{CpuCache, Slot, Zone};
use crate::space::{At, Request, Space};
use crate::stats::Counters;
use crate::{Error, Mm, Parts, Stop};

const CPUS: usize = 2;
const SPACES: usize = 6;
const PAGES: u64 = 4;
const START: Vpn = Vpn::new(1 << 12);
const WINDOW: PageSpan = PageSpan::new(START, Vpn::new(1 << 13));

/// One step of a CPU.
#[derive(Clone, Copy, Debug)]
enum Op {
    Enter(usize, usize),
    Leave(usize),
    Read(usize, u64),
    Write(usize, u64, u64),
    /// Unmaps a page of a space, which the CPU need not be in, and maps a new one.
    Renew(usize, usize, u64),
    /// The second space ends, if no CPU is in it, and begins again as a child of the first.
    Fork(usize, usize, usize),
}

fn op() -> impl Strategy<Value = Op> {
    let (cpu, space, page) = (0..CPUS, 0..SPACES, 0..PAGES);
    prop_oneof![
        6 => (cpu.clone(), space.clone()).prop_map(|(cpu, space)| Op::Enter(cpu, space)),
        1 => cpu.clone().prop_map(Op::Leave),
        4 => (cpu.clone(), page.clone()).prop_map(|(cpu, page)| Op::Read(cpu, page)),
        4 => (cpu.clone(), page.clone(), 1..u64::MAX).prop_map(|(cpu, page, value)| {
            Op::Write(cpu, page, value)
        }),
        2 => (cpu.clone(), space.clone(), page).prop_map(|(cpu, space, page)| {
            Op::Renew(cpu, space, page)
        }),
        2 => (cpu, space.clone(), space).prop_map(|(cpu, from, to)| Op::Fork(cpu, from, to)),
    ]
}

/// A kernel's part, and the naive model.
struct Bench<'a, 'm, 'r, A> {
    mm: &'a Mm<'m, A, Machine<'r>>,
    cpus: [Cpu<'a, 'r>; CPUS],
    /// The space that each CPU is in.
    at: [Option<usize>; CPUS],
    asids: Asids<CPUS>,
    spaces: Vec<Option<Space<A>>>,
    words: [[u64; PAGES as usize]; SPACES],
    /// A defect: the CPUs never flush when they enter.
    forgets: bool,
    way: Way,
}

/// A CPU that leaves a space…
#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    /// … keeps its translations, and is flushed as if it were there.
    Stays,
    /// … keeps them, and drops them when it enters again if a flush came meanwhile.
    StepsAside,
    /// … drops them when it enters again.
    Leaves,
    /// A defect: it steps aside, and does not ask whether a flush came.
    Forgets,
}

impl<A: Arch> Bench<'_, '_, '_, A> {
    fn space(&self, at: usize) -> &Space<A> {
        self.spaces[at].as_ref().expect("each is there between two steps")
    }

    fn addr(page: u64) -> VirtAddr {
        VirtAddr::new(START.add(page).get() << A::PAGE_SHIFT)
    }

    fn enter(&mut self, by: usize, to: usize) {
        let cpu = &self.cpus[by];
        let space = self.space(to);
        let entered = space.enter_with(&self.asids, cpu.number());
        let flushes = entered.must_flush && !self.forgets;
        if self.asids.are_used() {
            if flushes {
                cpu.flush_all();
            }
            // The CPU may still walk the tables that it leaves.
            let _ = cpu.read(Self::addr(0));
            cpu.switch(space.root(), entered.asid);
            if entered.joined && matches!(self.way, Way::StepsAside | Way::Leaves) {
                let pages = None;
                let (asid, root) = (entered.asid, space.root());
                let own = CpuSet::new();
                own.insert(cpu.number());
                let hw = self.mm.hardware();
                hw.flush(&Flush { asid, root, pages, tables: true, cpus: &own });
            }
        } else {
            cpu.switch(space.root(), entered.asid);
            if flushes {
                cpu.flush_all();
            }
        }
        if let Some(left) = self.at[by].filter(|left| *left != to) {
            self.left(by, left);
        }
        self.at[by] = Some(to);
    }

    /// A CPU has left a space.
    fn left(&self, by: usize, from: usize) {
        let (cpu, space) = (self.cpus[by].number(), self.space(from));
        match self.way {
            Way::Stays if self.asids.are_used() => {}
            Way::StepsAside | Way::Forgets if self.asids.are_used() => space.step_aside(cpu),
            _ => space.leave(cpu),
        }
    }

    fn leave(&mut self, by: usize) {
        let cpu = &self.cpus[by];
        cpu.leave();
        if let Some(left) = self.at[by].take() {
            if !self.asids.are_used() {
                cpu.flush_all();
            }
            self.left(by, left);
        }
    }

    /// An access of the program, with its faults; `value` is stored, or what was loaded is
    /// returned.
    fn access(&self, by: usize, page: u64, value: Option<u64>) -> Result<u64, Stop> {
        let cpu = &self.cpus[by];
        let space = self.space(self.at[by].expect("it is in a space"));
        let addr = Self::addr(page);
        for _ in 0..8 {
            let done = match value {
                Some(value) => cpu.write(addr, value).map(|()| value),
                None => cpu.read(addr),
            };
            let Err(trap) = done else { return Ok(done.unwrap_or_default()) };
            let _operation = cpu.operation("fault");
            self.mm.fault(space, START.add(page), trap.access)?;
        }
        panic!("page {page} faults for ever");
    }

    fn renew(&mut self, by: usize, of: usize, page: u64) -> Result<(), Error> {
        let span = PageSpan::new(START.add(page), START.add(page + 1));
        {
            let _operation = self.cpus[by].operation("unmap");
            self.mm.unmap(self.space(of), span)?;
        }
        self.words[of][page as usize] = 0;
        let request = Request::anon(1).at(At::Fixed(span.start));
        self.mm.map(self.space(of), &request).map(drop)
    }

    fn fork(&mut self, by: usize, from: usize, to: usize) -> Result<(), Error> {
        if from == to || self.at.contains(&Some(to)) {
            return Ok(());
        }
        let _operation = self.cpus[by].operation("fork");
        if let Some(old) = self.spaces[to].take() {
            self.mm.destroy(old);
        }
        self.spaces[to] = Some(self.mm.fork(self.space(from), Asid(0))?);
        self.words[to] = self.words[from];
        Ok(())
    }

    fn step(&mut self, op: Op) -> Result<(), Stop> {
        match op {
            Op::Enter(cpu, space) => self.enter(cpu, space),
            Op::Leave(cpu) => self.leave(cpu),
            Op::Read(cpu, page) => {
                let Some(at) = self.at[cpu] else { return Ok(()) };
                assert_eq!(self.access(cpu, page, None)?, self.words[at][page as usize], "{op:?}");
            }
            Op::Write(cpu, page, value) => {
                let Some(at) = self.at[cpu] else { return Ok(()) };
                self.access(cpu, page, Some(value))?;
                self.words[at][page as usize] = value;
            }
            Op::Renew(cpu, space, page) => self.renew(cpu, space, page)?,
            Op::Fork(cpu, from, to) => self.fork(cpu, from, to)?,
        }
        Ok(())
    }
}

/// Runs `test` on a machine of `config`, as if its CPUs had `count` tags.
fn with<A: Arch>(config: Config, count: u32, test: impl FnOnce(&mut Bench<'_, '_, '_, A>)) {
    let mut ram = Ram::new(8 << 20).expect("the host has 8 MiB");
    let config = Config { retags: true, ..config.with_cpus(CPUS) };
    let (machine, run) = Machine::new(config, &mut ram).expect("a valid configuration");
    let mut slots: Vec<Slot> = (0..run.count()).map(|_| Slot::default()).collect();
    let mut caches: Vec<_> = (0..CPUS).map(|_| CpuCache::new()).collect();
    let counters: Vec<_> = (0..CPUS).map(|_| Counters::new()).collect();
    let mut zones = [Zone::new(run.span())];
    let parts = Parts::new(run.start(), &mut slots, &mut caches, &counters, &mut zones);
    let mm = Mm::<A, _>::new(&machine, parts).expect("sound");
    mm.add(run).expect("the zone is RAM");
    let free = mm.allocator().free_frames();
    let cpus = [machine.cpu(0), machine.cpu(1)];
    let asids = Asids::new();
    asids.start(count, CPUS);
    let request = Request::anon(PAGES).at(At::Fixed(START));
    let space = |_| {
        let space = mm.space(Asid(0), WINDOW).expect("memory");
        mm.map(&space, &request).expect("room");
        Some(space)
    };
    let spaces = (0..SPACES).map(space).collect();
    let (at, words) = ([None; CPUS], [[0; PAGES as usize]; SPACES]);
    let mut bench =
        Bench { mm: &mm, cpus, at, asids, spaces, words, forgets: false, way: Way::Stays };
    test(&mut bench);
    let is_good = !bench.forgets && bench.way != Way::Forgets;
    (0..CPUS).for_each(|cpu| bench.leave(cpu));
    bench.spaces.into_iter().flatten().for_each(|space| mm.destroy(space));
    if is_good {
        assert_eq!(machine.verdict(), Ok(()));
        assert_eq!(machine.audit(), Ok(()));
    }
    assert_eq!(mm.allocator().free_frames(), free);
}

fn runs<A: Arch>(config: Config, count: u32, ops: &[Op]) {
    for way in [Way::Stays, Way::StepsAside, Way::Leaves] {
        with::<A>(config, count, |bench| {
            bench.way = way;
            for op in ops {
                bench.step(*op).expect("memory suffices");
                assert_eq!(bench.mm.hardware().verdict(), Ok(()), "{op:?}");
            }
        });
    }
}

fn riscv64(asid_bits: u32) -> Config {
    Config { asid_bits, ..Config::riscv64_sv39() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn i15_each_space_has_its_own_words_whatever_tags_cpus_have(
        ops in prop::collection::vec(op(), 1..120)
    ) {
        runs::<X86_64>(Config::x86_64(), 4, &ops);
        runs::<X86_64>(Config { asid_bits: 0, ..Config::x86_64() }, 1, &ops);
        runs::<Arm4k>(Config { asid_bits: 8, ..Config::arm64_4k() }, 5, &ops);
        for bits in [0, 1, 2, 3] {
            runs::<Sv39>(riscv64(bits), 1 << bits, &ops);
        }
    }
}

/// Enters each space in turn, and stores into it: with four tags, each third entry is the first of
/// a generation.
fn tour<A: Arch>(bench: &mut Bench<'_, '_, '_, A>) {
    for space in 0..SPACES {
        bench.enter(0, space);
        let _ = bench.access(0, 0, Some(7));
    }
}

#[test]
fn i15_a_forgotten_flush_after_a_rollover_is_found() {
    let finds = |forgets: bool| {
        with::<Sv39>(riscv64(2), 4, |bench| {
            bench.enter(0, SPACES - 1);
            bench.forgets = forgets;
            tour(bench);
            let found = bench.mm.hardware().verdict().map_err(|violation| violation.rule);
            assert_eq!(found, if forgets { Err(Rule::SharedTag) } else { Ok(()) });
            assert_eq!(bench.asids.rollovers(), 2);
        });
    };
    [false, true].into_iter().for_each(finds);
}

/// One CPU leaves a space, another takes a page away there, and the first comes back.
fn come_back<A: Arch>(bench: &mut Bench<'_, '_, '_, A>) -> Option<u64> {
    bench.enter(0, 0);
    bench.access(0, 0, Some(7)).expect("memory suffices");
    bench.enter(0, 1);
    bench.renew(1, 0, 0).expect("memory suffices");
    bench.enter(0, 0);
    bench.cpus[0].read(Bench::<'_, '_, '_, A>::addr(0)).ok()
}

#[test]
fn i15_a_cpu_that_stepped_aside_sees_no_page_that_went_meanwhile() {
    for way in [Way::StepsAside, Way::Leaves, Way::Stays] {
        with::<X86_64>(Config::x86_64(), 8, |bench| {
            bench.way = way;
            assert_eq!(come_back(bench), None, "{way:?}");
            assert_eq!(bench.mm.hardware().verdict(), Ok(()));
        });
    }
}

#[test]
fn i15_a_cpu_that_does_not_ask_for_flushes_while_it_was_aside_is_found() {
    with::<X86_64>(Config::x86_64(), 8, |bench| {
        bench.way = Way::Forgets;
        let read = come_back(bench);
        assert!(read.is_some() || bench.mm.hardware().verdict().is_err());
    });
}

#[test]
fn i15_a_cpu_aside_is_not_flushed_and_keeps_its_translations_without_one() {
    with::<X86_64>(Config::x86_64(), 8, |bench| {
        bench.way = Way::StepsAside;
        bench.enter(0, 0);
        bench.access(0, 0, Some(7)).expect("memory suffices");
        bench.enter(0, 1);
        let space = bench.space(0);
        let entered = space.enter_with(&bench.asids, bench.cpus[0].number());
        assert!(!entered.joined, "no flush came");
        space.step_aside(bench.cpus[0].number());
        let before = bench.mm.hardware().counts();
        bench.renew(1, 0, 0).expect("memory suffices");
        let did = bench.mm.hardware().counts() - before;
        assert_eq!((did.invalidations, did.full_flushes), (0, 0), "no CPU is in the space");
        bench.enter(0, 1);
    });
}

#[test]
fn i15_a_forgotten_flush_where_no_cpu_has_tags_is_found() {
    with::<Sv39>(riscv64(0), 1, |bench| {
        bench.forgets = true;
        tour(bench);
        let found = bench.mm.hardware().verdict().map_err(|violation| violation.rule);
        assert_eq!(found, Err(Rule::SharedTag));
    });
}

#[test]
fn i15_a_space_without_a_cpu_loses_its_tag_and_its_cpus_at_a_rollover() {
    let (one, other) = (CpuId::new(0), CpuId::new(1));
    let asids = Asids::<CPUS>::new();
    assert!(!asids.start(CPUS as u32 + 1, CPUS) && asids.start(CPUS as u32 + 2, CPUS));
    let tags: Vec<_> = (0..4).map(|_| Tag::new(Asid(0))).collect();
    for (cpu, space, asid, flushes) in
        [(one, 0, 1, true), (other, 1, 2, true), (one, 2, 3, false), (one, 0, 1, false)]
    {
        let entered = asids.enter(&tags[space], cpu);
        assert_eq!((entered.asid, entered.must_flush), (Asid(asid), flushes));
    }
    // CPU 0 is in space 0 and CPU 1 in space 1: they keep tags 1 and 2, and space 2 loses tag 3.
    let entered = asids.enter(&tags[3], other);
    assert_eq!((entered.asid, entered.must_flush, entered.joined), (Asid(3), true, true));
    let entered = asids.enter(&tags[0], one);
    assert_eq!((entered.asid, entered.must_flush, entered.joined), (Asid(1), true, false));
    assert!(tags[2].cpus().contains(one), "a flush of a space without a tag costs time alone");
    let entered = asids.enter(&tags[2], other);
    assert!(entered.must_flush, "CPU 0 keeps tag 1, CPU 1 tag 3: tag 2 is the next generation's");
    assert_eq!((entered.asid, asids.rollovers()), (Asid(2), 2));
    assert!(!tags[2].cpus().contains(one), "translations of CPU 0 are out of use");
}

#[test]
fn i15_the_size_does_not_depend_on_the_number_of_tags() {
    assert!(size_of::<Asids<16>>() <= 16 * 144 + 256);
    assert!(size_of::<Asids<256>>() <= 256 * 144 + 256);
    let asids = Asids::<1>::new();
    assert!(asids.start(u32::MAX, 1), "a number fits an `Asid`");
    let tags: Vec<_> = (0..1 << 16).map(|_| Tag::new(Asid(0))).collect();
    let given = tags.iter().map(|tag| asids.enter(tag, CpuId::new(0)).asid.0);
    assert!(given.take(65_535).eq(1..=u16::MAX), "all but the embedder's, once each");
    assert_eq!(asids.rollovers(), 0);
    let last = asids.enter(&tags[65_535], CpuId::new(0));
    assert_eq!((last.asid, last.must_flush, asids.rollovers()), (Asid(1), true, 1));
}

#[test]
fn i15_there_are_no_tags_before_the_start_and_after_one_with_too_few() {
    let asids = Asids::<2>::new();
    assert!(!asids.are_used());
    assert!(asids.start(8, 2) && asids.are_used());
    assert!(!asids.start(3, 2) && !asids.are_used());
}

/// A CPU may hold anything before its first entry, also under a tag that another CPU gave.
#[test]
fn i15_the_first_entry_of_each_cpu_flushes_whatever_the_space_has() {
    let asids = Asids::<CPUS>::new();
    assert!(asids.start(CPUS as u32 + 2, CPUS));
    let tag = Tag::new(Asid(0));
    for cpu in (0..CPUS).map(CpuId::new) {
        let first = asids.enter(&tag, cpu);
        assert_eq!((first.asid, first.must_flush, first.joined), (Asid(1), true, true));
        let again = asids.enter(&tag, cpu);
        assert_eq!((again.asid, again.must_flush, again.joined), (Asid(1), false, false));
    }
    assert_eq!(asids.rollovers(), 0);
}
