//! The area tree beside the naive model: random maps, unmaps, protects and advices, the walker
//! after each, and every question asked of both.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use quire::hw::{
    Flush, FrameRun, Hardware, Memory, MemoryTypes, Poisoned, Profile, Reuse, TableFrame,
};
use quire::inject::Phys;
use quire::inject::{AreaTree, EditError, TreeWriter};
use quire::phys::{CpuCache, Slot, Zone};
use quire::space::{Area, AreaFlags, Backing, FileId};
use quire_sim::areas::NaiveAreas;
use quire_units::{CpuId, FrameSpan, Order, PageSpan, Pfn, Prot, Vpn};

const WORDS: usize = 512;
const FRAMES: u64 = 1024;
const CPU: CpuId = CpuId::new(0);

/// Hardware that is words only.
struct Words(Vec<AtomicU64>);

impl Words {
    fn new() -> Self {
        Self((0..FRAMES as usize * WORDS).map(|_| AtomicU64::new(u64::MAX)).collect())
    }

    fn word(&self, frame: Pfn, index: usize) -> &AtomicU64 {
        assert!(index < WORDS);
        &self.0[frame.get() as usize * WORDS + index]
    }
}

impl Memory for Words {
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.word(frame, index).load(Ordering::Acquire)
    }

    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        for at in 0..count {
            let value = first.wrapping_add(step.wrapping_mul(at as u64));
            self.word(table.frame(), index + at).store(value, Ordering::Release);
        }
    }

    fn compare_exchange(&self, _: &TableFrame, _: usize, _: u64, _: u64) -> Result<(), u64> {
        unreachable!("the tree exchanges nothing")
    }

    fn clear(&self, _: &FrameRun, _: std::ops::Range<u64>, _: Reuse) {}

    fn copy(&self, _: &FrameRun, _: u64, _: FrameSpan) -> Result<(), Poisoned> {
        Ok(())
    }
}

impl Hardware for Words {
    fn flush(&self, _: &Flush<'_>) {}

    fn publish_code(&self, _: FrameSpan) {}

    fn cpu(&self) -> CpuId {
        CPU
    }

    fn profile(&self) -> Profile {
        Profile { contiguous: true, memory_types: MemoryTypes::ENTRIES, ..Profile::BASE }
    }
}

/// One change of an address space by a program.
#[derive(Clone, Debug)]
enum Op {
    Set(Area),
    Replace(Area),
    Cut(PageSpan),
    Protect(PageSpan, Prot),
    Advise(PageSpan, AreaFlags),
    Find(u64, Order, PageSpan),
}

fn span(pages: u64) -> impl Strategy<Value = PageSpan> {
    (0..pages, 1..24u64).prop_map(move |(start, count)| {
        PageSpan::new(Vpn::new(start), Vpn::new((start + count).min(pages)))
    })
}

fn prot() -> impl Strategy<Value = Prot> {
    prop_oneof![Just(Prot::empty()), Just(Prot::READ), Just(Prot::RW)]
}

fn flags() -> impl Strategy<Value = AreaFlags> {
    prop_oneof![4 => Just(AreaFlags::empty()), 1 => Just(AreaFlags::HUGE)]
}

/// Areas that often merge: few attributes, and objects mapped at the place of the page.
fn area(pages: u64) -> impl Strategy<Value = Area> {
    (span(pages), prot(), flags(), 0..4u64).prop_map(|(span, prot, flags, kind)| Area {
        span,
        prot,
        max_prot: Prot::RW,
        flags,
        backing: match kind {
            0 | 1 => Backing::Anon,
            _ => Backing::File { id: FileId(7), page: span.start.get() + kind },
        },
    })
}

fn op(pages: u64) -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => area(pages).prop_map(Op::Set),
        2 => area(pages).prop_map(Op::Replace),
        2 => span(pages).prop_map(Op::Cut),
        1 => (0..pages, 0..pages).prop_map(|(a, b)| {
            Op::Cut(PageSpan::new(Vpn::new(a.min(b)), Vpn::new(a.max(b))))
        }),
        3 => (span(pages), prot()).prop_map(|(span, prot)| Op::Protect(span, prot)),
        2 => (span(pages), flags()).prop_map(|(span, flags)| Op::Advise(span, flags)),
        3 => (1..12u64, 0..4u8, 0..pages, 0..pages).prop_map(|(count, align, a, b)| {
            let span = PageSpan::new(Vpn::new(a.min(b)), Vpn::new(a.max(b)));
            Op::Find(count, Order::new(align), span)
        }),
    ]
}

/// Both sides of the comparison.
struct Pair<'a, const CAP: usize> {
    phys: &'a Phys<'a>,
    writer: TreeWriter<'a, Words, CAP>,
    naive: NaiveAreas,
    pages: u64,
}

impl<const CAP: usize> Pair<'_, CAP> {
    /// Runs an operation of at most `insertions`. Nothing is in stock at first: if it is refused
    /// for that, it has changed nothing, and succeeds with exactly what it asked for.
    fn stocked<T: std::fmt::Debug>(
        &self,
        insertions: usize,
        run: impl Fn() -> Result<T, EditError>,
    ) -> Result<T, EditError> {
        let lacks = self.writer.lacks(insertions);
        let before = self.areas();
        let mut answer = run();
        if let Err(EditError::Lacks(frames)) = answer {
            assert_eq!(frames, lacks);
            assert_eq!(self.areas(), before);
            for _ in 0..lacks {
                let run = self.phys.alloc(CPU, Order::ZERO).expect("there are frames enough");
                self.writer.stock(run).expect("the frame is on record");
            }
            answer = run();
        }
        while let Some(run) = self.writer.unstock() {
            self.phys.free(CPU, run);
        }
        answer
    }

    fn whole(&self) -> PageSpan {
        PageSpan::new(Vpn::new(0), Vpn::new(self.pages + 64))
    }

    fn areas(&self) -> Vec<Area> {
        self.writer.reader().overlapping(self.whole()).collect()
    }

    fn cut(&mut self, span: PageSpan) {
        assert_eq!(self.stocked(1, || self.writer.cut(span)), Ok(()));
        self.naive.cut(span);
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Set(area) => {
                let done = self.stocked(1, || self.writer.set(area));
                assert_eq!(done.is_ok(), self.naive.set(area), "{done:?}");
            }
            Op::Replace(area) => {
                assert_eq!(self.stocked(2, || self.writer.replace(area)), Ok(()));
                self.naive.replace(area);
            }
            Op::Cut(span) => self.cut(span),
            Op::Protect(span, prot) => self.update(span, |area| Area { prot, ..area }),
            Op::Advise(span, flags) => self.update(span, |area| Area { flags, ..area }),
            Op::Find(pages, align, within) => {
                let found = self.writer.reader().find_gap(pages, align, within).0;
                let naive = self.naive.find_gap(pages, align, within);
                let tight = self.naive.gaps(within);
                if tight.iter().filter(|gap| gap.count() >= pages).count() <= 32 {
                    assert_eq!(found, naive);
                } else {
                    self.check_worse_place(found, naive, &tight, pages, align);
                }
            }
        }
    }

    fn update(&mut self, span: PageSpan, change: impl Fn(Area) -> Area) {
        let done = self.stocked(2, || self.writer.update(span, &change));
        assert_eq!(done, Ok(()));
        self.naive.update(span, change);
    }

    /// Too many tight gaps were there: the place may not be the best one, or missing.
    fn check_worse_place(
        &self,
        found: Option<PageSpan>,
        naive: Option<PageSpan>,
        gaps: &[PageSpan],
        pages: u64,
        align: Order,
    ) {
        match found {
            Some(place) => {
                assert!(place.count() == pages && place.start.is_aligned(align.pages()));
                assert!(gaps.iter().any(|gap| gap.covers(place)), "{place:?} is not free");
            }
            None => {
                let sure = pages + align.pages() - 1;
                assert!(naive.is_none() || gaps.iter().all(|gap| gap.count() < sure));
            }
        }
    }

    fn compare(&self) {
        self.writer.check_merged().expect("the tree is sound");
        assert_eq!(self.areas(), self.naive.areas());
        let reader = self.writer.reader();
        for page in (0..self.pages + 2).map(Vpn::new) {
            let holder = reader.lookup(page).0;
            let one = PageSpan::new(page, page.add(1));
            assert_eq!(holder.map(|area| area.clipped(one)), self.naive.page(page));
            let next = reader.next_at_or_after(page).0;
            let naive = self.naive.areas().into_iter().find(|area| area.span.end > page);
            assert_eq!(next, naive);
            let before = reader.last_before(page).0;
            let naive = self.naive.areas().into_iter().rfind(|area| area.span.start < page);
            assert_eq!(before, naive);
        }
    }
}

/// Runs `test` with a tree and an allocator; every frame must be free again afterwards.
fn with_pair<const CAP: usize>(pages: u64, test: impl FnOnce(&mut Pair<'_, CAP>)) {
    let mut slots: Vec<Slot> = (0..FRAMES).map(|_| Slot::default()).collect();
    let mut caches = [CpuCache::new()];
    let ram = FrameSpan::new(Pfn::new(0), FRAMES);
    let mut zones = [Zone::new(ram)];
    let phys = Phys::new(ram.start, &mut slots, &mut caches, &mut zones).expect("one zone");
    // SAFETY: 1. this is the only run of these frames. 2. the words of each are in `Words`, which
    // is not Rust memory but a vector of atomics. 3. they are not said to be zero.
    phys.add(unsafe { FrameRun::mint(ram, false) }).expect("all of it is in the zone");
    let hw = Words::new();
    let tree = AreaTree::<CAP>::new();
    let writer = tree.writer(&hw, phys.meta());
    let mut pair = Pair { phys: &phys, writer, naive: NaiveAreas::new(), pages };
    test(&mut pair);
    pair.cut(pair.whole());
    let stats = pair.writer.check().expect("the tree is sound");
    assert_eq!((stats.areas, stats.nodes, stats.depth), (0, 0, 0));
    assert_eq!(phys.free_frames(), FRAMES, "each node came back");
}

fn run_all<const CAP: usize>(pages: u64, ops: &[Op]) {
    with_pair::<CAP>(pages, |pair| {
        for op in ops {
            pair.apply(op);
            pair.compare();
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn e3_smallest_nodes_do_what_the_naive_model_does(
        ops in prop::collection::vec(op(160), 1..120),
    ) {
        run_all::<3>(160, &ops);
    }

    #[test]
    fn e3_small_nodes_do_what_the_naive_model_does(ops in prop::collection::vec(op(240), 1..120)) {
        run_all::<4>(240, &ops);
        run_all::<7>(240, &ops);
    }

    #[test]
    fn e3_real_nodes_do_what_the_naive_model_does(ops in prop::collection::vec(op(240), 1..120)) {
        run_all::<127>(240, &ops);
    }

    #[test]
    fn e3_gaps_of_many_tight_places_are_found_or_refused_as_told(
        every in 2..6u64,
        searches in prop::collection::vec(op(400), 1..60),
    ) {
        with_pair::<5>(400, |pair| {
            for start in (0..400).step_by(every as usize) {
                let page = PageSpan::at(Vpn::new(start), 1).expect("small numbers");
                pair.apply(&Op::Set(Area {
                    span: page,
                    prot: Prot::READ,
                    max_prot: Prot::RW,
                    flags: AreaFlags::empty(),
                    backing: Backing::Anon,
                }));
            }
            for op in searches.iter().filter(|op| matches!(op, Op::Find(..))) {
                pair.apply(op);
            }
        });
    }
}
