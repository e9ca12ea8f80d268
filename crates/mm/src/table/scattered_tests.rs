//! Leaves that lie anywhere, changed at once, are as if each had been changed by itself.

use std::vec::Vec;

use proptest::prelude::*;
use quire_arch::{Arch, Arm4k, Attrs, Level, X86_64};
use quire_hw::{FrameRun, Memory, Reuse};
use quire_machine::{Config, Machine, Ram};
use quire_units::{Asid, CpuId, Order, PageSpan, Pfn, Prot, Vpn};

use super::{Gather, Heritage, Inherit, Tables, Target};
use crate::folio::{Counts, Folio, Folios, Home};
use crate::phys::{CpuCache, Phys, Slot, Zone};
use crate::tags::Tag;

const CPU: CpuId = CpuId::new(0);
const PAGES: u64 = 64;
/// The first leaf, by number: not at the start of a table, and no end of a contiguous block.
const AT: u64 = 512 + 5;

/// A page that is mapped: the frame, by its number among those that were taken, and what it grants.
type Leaf = Option<(usize, u8)>;

#[derive(Clone, Copy, Debug)]
enum Act {
    Protect(u64, u64, Prot),
    Lend(u64),
    Fork(Inherit),
    Pin(usize),
    Take(u64, u64),
}

/// All that a case leaves behind: the words of parent and child, the holds on each frame, and
/// which acts owed a flush.
type Outcome = (Vec<u64>, Vec<u64>, Vec<Option<Counts>>, Vec<bool>);

fn attrs(grant: u8) -> Attrs {
    let settled = Attrs::YOUNG | Attrs::DIRTY;
    match grant {
        0 => Attrs::user(Prot::RW) | settled,
        1 => Attrs::user(Prot::READ) | settled | Attrs::COW,
        2 => Attrs::user(Prot::RW) | Attrs::YOUNG,
        3 => Attrs::user(Prot::READ) | settled,
        _ => Attrs::user(Prot::READ | Prot::EXEC) | settled,
    }
}

struct Case<'a, 'r, A> {
    machine: &'a Machine<'r>,
    phys: &'a Phys<'a>,
    parent: Tables<'a, A, Machine<'r>>,
    child: Tables<'a, A, Machine<'r>>,
    frames: Vec<Pfn>,
    /// How many leaves each call changes; `None` for all at once.
    each: Option<u64>,
    /// The level of the leaves.
    level: Level,
    flushes: Vec<bool>,
}

impl<A: Arch> Case<'_, '_, A> {
    fn frame(&self) -> FrameRun {
        let run = self.phys.alloc(CPU, Order::ZERO).expect("RAM is left");
        self.machine.clear(&run, 0..1, Reuse::Soon);
        run
    }

    /// The size of a leaf.
    fn unit(&self) -> Order {
        A::order(self.level)
    }

    fn page(&self, leaf: u64) -> Vpn {
        Vpn::new((AT + leaf) << self.unit().get())
    }

    /// Maps each of `leaves` in the parent, whose lowest table it makes.
    fn map(&self, leaves: &[Leaf]) {
        let first = self.page(0);
        for tables in [&self.parent, &self.child] {
            while tables.walk(first, self.level).level != self.level {
                let place = tables.walk(first, self.level);
                tables.link(place, first, self.frame()).expect("no other CPU links");
            }
        }
        let locked = self.parent.lock_lowest(first, self.level);
        for (at, leaf) in (0..).zip(leaves) {
            if let Some((frame, grant)) = *leaf {
                let index = locked.index(self.page(at));
                locked.put(index, 1, self.frames[frame], attrs(grant), self.unit());
            }
        }
    }

    fn pieces(&self, from: u64, to: u64) -> Vec<PageSpan> {
        let each = self.each.unwrap_or(PAGES);
        let starts = (from..to).step_by(each as usize);
        let span = |at: u64| PageSpan::new(self.page(at), self.page(to.min(at + each)));
        starts.map(span).collect()
    }

    fn act(&mut self, act: Act) {
        let mut gather = Gather::new();
        let whole = (0, PAGES);
        let (from, to) = match act {
            Act::Protect(from, to, _) | Act::Take(from, to) => (from, to),
            Act::Lend(page) => (page, page + 1),
            Act::Fork(_) | Act::Pin(_) => whole,
        };
        for span in self.pieces(from, to) {
            match act {
                Act::Protect(_, _, prot) => _ = self.parent.protect(span, prot, &mut gather),
                Act::Lend(_) => _ = self.parent.lend(span, &mut gather),
                Act::Take(..) => gather = self.take(&self.parent, span, gather),
                Act::Fork(how) => self.fork(span, how, &mut gather),
                Act::Pin(_) => {}
            }
        }
        self.flushes.push(!gather.is_empty());
        self.settle(&self.parent, gather);
    }

    fn fork(&self, mut span: PageSpan, how: Inherit, gather: &mut Gather) {
        let mut spare = None;
        while !span.is_empty() {
            let mut done = 0;
            let (spare, done, lend_marks) = (&mut spare, &mut done, &|marks, _| marks);
            let mut with = Heritage { how, spare, gather, done, lend_marks };
            if let Err(_pinned) = self.parent.fork(&self.child, &mut span, &mut with) {
                span = PageSpan::new(span.start.add(self.unit().pages()), span.end);
            }
        }
    }

    fn take(
        &self,
        tables: &Tables<'_, A, Machine<'_>>,
        mut span: PageSpan,
        mut gather: Gather,
    ) -> Gather {
        while !span.is_empty() {
            span = PageSpan::new(tables.take(span, &mut gather).upto, span.end);
            if !span.is_empty() {
                self.settle(tables, core::mem::take(&mut gather));
            }
        }
        gather
    }

    fn settle(&self, tables: &Tables<'_, A, Machine<'_>>, mut gather: Gather) {
        let tag = Tag::new(Asid(1));
        gather.settle(self.phys, self.machine, Target { tag: Some(&tag), root: tables.root() });
    }

    fn words(&self, tables: &Tables<'_, A, Machine<'_>>) -> Vec<u64> {
        let locked = tables.lock_lowest(self.page(0), self.level);
        (0..PAGES).map(|at| locked.word(locked.index(self.page(at)))).collect()
    }

    fn end(mut self) -> Outcome {
        let folios = Folios::new(self.phys.meta());
        let of = |&frame: &Pfn| folios.of(frame).map(|folio| folios.counts(folio));
        let counts = self.frames.iter().map(of).collect();
        let result = (
            self.words(&self.parent),
            self.words(&self.child),
            counts,
            core::mem::take(&mut self.flushes),
        );
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        for tables in [self.parent, self.child] {
            let mut gather = self.take(&tables, all, Gather::new());
            tables.prune(all, all, &mut gather);
            tables.free_root(&mut gather);
            self.settle(&tables, gather);
        }
        result
    }
}

/// Runs the acts on leaves of `level`, in calls of `each` of them.
fn run<A: Arch>(
    config: Config,
    (leaves, level): (&[Leaf], Level),
    acts: &[Act],
    each: Option<u64>,
) -> Outcome {
    let unit = A::order(level);
    let ram = ((PAGES << unit.get()) + 1024).next_multiple_of(1024) << A::PAGE_SHIFT;
    let mut ram = Ram::new(2 * ram as usize).expect("the host has that much");
    let (machine, all) = Machine::new(config, &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..all.count()).map(|_| Slot::empty()).collect();
    let (mut caches, mut zones) = ([CpuCache::new()], [Zone::new(all.span())]);
    let phys = Phys::new(all.start(), &mut slots, &mut caches, &mut zones).expect("sound");
    phys.add(all).expect("the zone has all frames");
    let before = phys.free_frames();
    let folios = Folios::new(phys.meta());
    let run = phys.alloc(CPU, Order::new(6 + unit.get())).expect("RAM is left");
    let frames: Vec<_> = (0..PAGES).map(|at| run.start().add(at << unit.get())).collect();
    folios.adopt_mapped(run, unit, Home::new(Pfn::new(0), Vpn::new(AT << unit.get())));
    let tree = || {
        Tables::<A, _>::found(&machine, phys.meta(), {
            let run = phys.alloc(CPU, Order::ZERO).expect("RAM is left");
            machine.clear(&run, 0..1, Reuse::Soon);
            run
        })
    };
    let (parent, child) = (tree(), tree());
    let (machine, phys, flushes) = (&machine, &phys, Vec::new());
    let mut case = Case { machine, phys, parent, child, frames, each, level, flushes };
    case.map(leaves);
    let page = |frame| Folio { head: frame, order: unit };
    // Every second frame has a holder beside its mappings.
    let is_held = |at: usize| at % 2 == 1;
    (0..case.frames.len())
        .filter(|at| is_held(*at))
        .for_each(|at| folios.get(page(case.frames[at])));
    let mut pinned = Vec::new();
    for act in acts {
        match act {
            Act::Pin(frame) if !is_held(*frame) => {}
            Act::Pin(frame) if !folios.pin(page(case.frames[*frame])) => {}
            Act::Pin(frame) => pinned.push(*frame),
            _ => case.act(*act),
        }
    }
    let frames = case.frames.clone();
    let mapped: Vec<_> = leaves.iter().flatten().map(|leaf| leaf.0).collect();
    let outcome = case.end();
    for frame in pinned {
        assert!(folios.unpin(page(frames[frame])).is_none(), "there is a reference");
    }
    for (at, frame) in frames.into_iter().enumerate() {
        // Its first mapping, where no leaf stands for it.
        let unmapped = if mapped.contains(&at) {
            None
        } else {
            folios.unmap(page(frame), unit.pages() as u32)
        };
        let put = if is_held(at) { folios.put(page(frame)) } else { None };
        if let Some(run) = unmapped.or(put) {
            phys.free(CPU, run);
        }
    }
    machine.verdict().unwrap();
    phys.check().expect("every frame has one state");
    assert_eq!(phys.free_frames(), before, "nothing is lost");
    outcome
}

/// Each frame is mapped once at most: consecutive, scattered, and nothing in between.
fn leaves() -> impl Strategy<Value = Vec<Leaf>> {
    let order = Just((0..PAGES as usize).collect::<Vec<_>>());
    let order = prop_oneof![order.clone().prop_shuffle(), order];
    let grants = prop::collection::vec((0..40_u8, 0..5_u8), PAGES as usize);
    let common = 0..5_u8;
    (order, grants, common, 0..PAGES as usize).prop_map(|(order, grants, common, turn)| {
        let leaf = |(frame, (kind, grant)): (usize, (u8, u8))| match kind {
            0 => None,
            1 | 2 => Some((frame, grant)),
            _ => Some((frame, common)),
        };
        let mut order = order;
        order.rotate_left(turn);
        order.into_iter().zip(grants).map(leaf).collect()
    })
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let span = (0..PAGES, 1..=PAGES).prop_map(|(from, count)| (from, PAGES.min(from + count)));
    let prots = prop::sample::select(std::vec![
        Prot::empty(),
        Prot::READ,
        Prot::RW,
        Prot::READ | Prot::EXEC
    ]);
    let frame = || 0..PAGES as usize;
    let act = prop_oneof![
        (span.clone(), prots).prop_map(|((from, to), prot)| Act::Protect(from, to, prot)),
        (0..PAGES).prop_map(Act::Lend),
        span.prop_map(|(from, to)| Act::Take(from, to)),
        frame().prop_map(Act::Pin),
    ];
    let fork =
        prop::sample::select(std::vec![Inherit::Private, Inherit::Shared]).prop_map(Act::Fork);
    (prop::collection::vec(act.clone(), 0..4), fork, prop::collection::vec(act, 0..3)).prop_map(
        |(mut acts, fork, more)| {
            acts.push(fork);
            acts.extend(more);
            acts
        },
    )
}

fn at_once_and_one_by_one<A: Arch>(
    config: Config,
    leaves: (&[Leaf], Level),
    acts: &[Act],
) -> Result<(), TestCaseError> {
    let at_once = run::<A>(config, leaves, acts, None);
    prop_assert_eq!(at_once, run::<A>(config, leaves, acts, Some(1)));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn c1_pages_that_lie_anywhere_change_as_one_by_one(leaves in leaves(), acts in acts()) {
        let leaves = (&leaves[..], Level::LAST);
        at_once_and_one_by_one::<X86_64>(Config::x86_64(), leaves, &acts)?;
        at_once_and_one_by_one::<Arm4k>(Config::arm64_4k(), leaves, &acts)?;
    }

    #[test]
    fn c1_so_do_large_leaves(leaves in leaves(), acts in acts()) {
        let leaves = (&leaves[..], Level::LAST.parent());
        at_once_and_one_by_one::<X86_64>(Config::x86_64(), leaves, &acts)?;
        at_once_and_one_by_one::<Arm4k>(Config::arm64_4k(), leaves, &acts)?;
    }
}
