//! Random changes of page tables against a model that works a page at a time, on every format. The
//! machine's own decoder is the second witness, its CPU touches pages between the steps, and its
//! examiner watches the flushes.

use std::fmt::Debug;

use proptest::prelude::*;
use quire::inject::{Gather, Lack, Phys, Tables, Target, What};
use quire::phys::Kind;
use quire::tags::Tag;
use quire_arch::{Arch, Arm4k, Arm16k, Arm64k, Attrs, Entry, Level};
use quire_arch::{Sv39, Sv48, Sv57, X86_64, X86_64La57};
use quire_hw::{Flush, FrameRun, Hardware, Memory, Pieces, Reuse, Transitions};
use quire_machine::mmu::Meaning;
use quire_machine::{Config, Cpu, Machine, TrapKind};
use quire_sim::system;
use quire_sim::tables::{NaivePage, NaiveTables};
use quire_units::{Access, Asid, Order, PageSpan, Pfn, Prot, VirtAddr, Vpn};

const ASID: Asid = Asid(7);

/// One change. Places and lengths are in units of a 64th of what one table of the last level
/// translates, plus pages, so that both ends and middles of tables and blocks occur on all formats.
#[derive(Clone, Copy, Debug)]
enum Op {
    Map { at: Spot, to: Spot, skew: u64, prot: Prot, used: bool },
    Take { at: Spot, to: Spot, isolated: bool, pruned: bool },
    Protect { at: Spot, to: Spot, prot: Prot },
    Isolate { at: Spot },
    Prune { at: Spot, to: Spot },
    Access { at: Spot, access: Access },
    Tell { at: Spot, to: Spot },
}

/// A page of the window: 64ths of a table, and pages.
#[derive(Clone, Copy, Debug)]
struct Spot(u64, u64);

/// The tables under test with all that watches them.
struct Bench<'t, 'm, 'r, A> {
    machine: &'m Machine<'r>,
    cpu: &'t Cpu<'m, 'r>,
    phys: &'t Phys<'t>,
    tables: Tables<'t, A, Machine<'r>>,
    target: Target<'t>,
    model: NaiveTables<A>,
    window: PageSpan,
}

impl<'t, 'r, A: Arch> Bench<'t, '_, 'r, A> {
    /// Pages that one table of the last level translates.
    fn reach() -> u64 {
        A::entries(Level::LAST) as u64
    }

    fn page(&self, spot: Spot) -> Vpn {
        let pages = spot.0 * (Self::reach() / 64) + spot.1;
        self.window.start.add(pages.min(self.window.count()))
    }

    fn span(&self, at: Spot, to: Spot) -> PageSpan {
        let (one, other) = (self.page(at), self.page(to));
        PageSpan::new(one.min(other), one.max(other))
    }

    fn zeroed(&self) -> FrameRun {
        let run =
            self.phys.alloc(self.cpu.number(), Order::ZERO).expect("the machine has RAM enough");
        self.machine.clear(&run, 0..1, Reuse::Soon);
        run
    }

    /// Calls `step` until it lacks no table.
    fn supplied<T>(
        &self,
        mut step: impl FnMut(&mut Option<FrameRun>) -> Result<T, Lack>,
    ) -> Result<T, Lack> {
        let mut spare = None;
        let done = loop {
            match step(&mut spare) {
                Err(Lack::Table) => spare = Some(self.zeroed()),
                done => break done,
            }
        };
        if let Some(run) = spare {
            self.machine.freed(run.span());
            self.phys.free(self.cpu.number(), run);
        }
        done
    }

    fn isolate(&self, page: Vpn, gather: &mut Gather) -> u64 {
        self.supplied(|spare| self.tables.isolate(page, page, spare, gather.due()))
            .map(|isolated| isolated.splits)
            .expect("only tables can be lacking")
    }

    /// Settles; the frames that it frees were not free before, and are free after.
    fn settle(&self, mut gather: Gather) {
        let (before, empty) = (self.phys.free_frames(), gather.is_empty());
        let settled = gather.settle(self.phys, self.machine, self.target);
        assert_eq!(self.phys.free_frames(), before + settled.frames);
        assert!(!empty || settled == Default::default());
    }

    fn apply(&mut self, op: Op) {
        let _operation = self.cpu.operation("change");
        let mut gather = Gather::new();
        match op {
            Op::Map { at, to, skew, prot, used } => {
                self.map(self.span(at, to), skew, prot, used);
            }
            Op::Take { at, to, isolated, pruned } => {
                self.take(self.span(at, to), isolated, &mut gather);
                if pruned {
                    self.prune(self.span(at, to), self.window, &mut gather);
                }
            }
            Op::Protect { at, to, prot } => {
                let span = self.span(at, to);
                for page in [span.start, span.end] {
                    assert_eq!(self.isolate(page, &mut gather), self.model.isolate(page));
                }
                self.tables.protect(span, prot, &mut gather);
                self.model.protect(span, prot);
            }
            Op::Isolate { at } => {
                let page = self.page(at);
                assert_eq!(self.isolate(page, &mut gather), self.model.isolate(page));
            }
            Op::Prune { at, to } => {
                self.prune(self.span(at, to), self.span(at, to), &mut gather);
            }
            Op::Access { at, access } => self.access(self.page(at), access),
            Op::Tell { at, to } => self.tell(self.span(at, to)),
        }
        self.settle(gather);
    }

    fn map(&mut self, span: PageSpan, skew: u64, prot: Prot, used: bool) {
        let mut attrs = Attrs::user(prot) | Attrs::SOFT;
        attrs.set(Attrs::YOUNG | Attrs::DIRTY, used);
        // Frames beyond RAM, as a device has them: the machine lets programs fail there, but only
        // after it has noted the access in the tables.
        let frame = Pfn::new((1 << 22) + span.start.offset_from(self.window.start) + skew);
        let (mut left, mut next) = (span, frame);
        let done = self.supplied(|spare| self.tables.map(&mut left, &mut next, attrs, spare));
        assert_eq!(left.start.offset_from(span.start), next.offset_from(frame));
        match self.model.map(span, frame, attrs) {
            Ok(()) => assert_eq!((done, left.is_empty()), (Ok(()), true)),
            Err(page) => assert_eq!((done, left.start), (Err(Lack::Room(page)), page)),
        }
    }

    /// Takes `span`; where it was not isolated before, the table says where it must be.
    fn take(&mut self, span: PageSpan, isolated: bool, gather: &mut Gather) {
        if isolated {
            for page in [span.start, span.end] {
                assert_eq!(self.isolate(page, gather), self.model.isolate(page));
            }
        }
        let free = self.phys.free_frames();
        let mut left = span;
        while !left.is_empty() {
            let took = self.tables.take(left, gather);
            let done = PageSpan::new(left.start, took.upto);
            assert_eq!(took.straddles, took.upto < left.end, "foreign frames fill no gather");
            self.model.take(done);
            left = PageSpan::new(took.upto, left.end);
            if took.straddles {
                assert!(!isolated, "no leaf reaches across the ends");
                for page in [left.start, left.end] {
                    assert_eq!(self.isolate(page, gather), self.model.isolate(page));
                }
            }
        }
        assert!(self.phys.free_frames() <= free, "nothing is free before the flush");
    }

    fn prune(&mut self, span: PageSpan, hole: PageSpan, gather: &mut Gather) {
        let (free, tables) = (self.phys.free_frames(), self.model.tables());
        let before = self.table_frames();
        self.tables.prune(span, hole, gather);
        self.model.prune(span, hole);
        let after = self.table_frames();
        assert_eq!(after.len(), self.model.tables() + 1);
        assert_eq!(before.len(), tables + 1);
        let gone = before.iter().filter(|frame| !after.contains(frame));
        for frame in gone {
            let kind = self.phys.meta().slot(*frame).map(|slot| slot.state().kind());
            assert!(matches!(kind, Some(Kind::Stray | Kind::None)), "{kind:?} before the flush");
        }
        assert_eq!(self.phys.free_frames(), free, "nothing is free before the flush");
    }

    /// A program accesses `page`; where the CPU does not set flags itself, it traps, and the trap
    /// is answered as `spaces` would.
    fn access(&mut self, page: Vpn, access: Access) {
        let addr = VirtAddr::new(page.get() << A::PAGE_SHIFT);
        let allowed = self.model.access(page, access);
        let rights = self.model.page(page).map_or(Prot::empty(), |found| found.attrs.prot());
        for _ in 0..3 {
            let tried = match access {
                Access::Read => self.cpu.read(addr).map(drop),
                Access::Write => self.cpu.write(addr, 0),
                Access::Execute => self.cpu.fetch(addr).map(drop),
            };
            match tried.map_err(|trap| trap.kind) {
                Err(TrapKind::Malformed(_)) => return assert!(allowed, "{page} {access:?}"),
                Err(_) if !allowed => return,
                Err(_) => {
                    assert!(self.tables.touch(page, access, rights, || true).is_some());
                    let pages = Some(Pieces::page(page));
                    let root = self.target.root;
                    let tag = self.target.tag.expect("the tree has one");
                    let (asid, cpus) = (tag.asid(), tag.cpus());
                    self.machine.flush(&Flush { asid, root, pages, tables: false, cpus });
                }
                Ok(()) => unreachable!("the frames lie beyond RAM"),
            }
        }
        panic!("{access:?} of {page} keeps trapping");
    }

    /// A report of a span has exactly its pages and their frames, even if it begins within a leaf.
    fn tell(&self, span: PageSpan) {
        let mut told = Vec::new();
        self.tables.tell(span, |pages, _, what| {
            let What::Leaf { frame, .. } = what else { panic!("told {what:?}") };
            told.extend((0..pages.count()).map(|at| (pages.start.add(at), frame.add(at))));
        });
        let pages = self.model.pages().filter(|(page, _)| span.contains(*page));
        assert_eq!(told, pages.map(|(page, found)| (page, found.frame)).collect::<Vec<_>>());
    }

    /// All tables, the root first, each with as many entries on record as it has words.
    fn table_frames(&self) -> Vec<Pfn> {
        let mut found = Vec::new();
        self.count_words(self.tables.root(), A::ROOT, Vpn::new(0), &mut found);
        found
    }

    fn count_words(&self, frame: Pfn, level: Level, base: Vpn, found: &mut Vec<Pfn>) {
        found.push(frame);
        let mut lower = Vec::new();
        let locked = self.tables.lock(frame, level, base).expect("it is a table of this tree");
        let mut present = 0;
        for index in 0..A::entries(level) {
            let word = self.machine.load(frame, index);
            present += (word != 0) as u64;
            if let Entry::Table(table) = A::decode(word, level) {
                lower.push((table, base.add((index as u64) << A::order(level).get())));
            }
        }
        assert_eq!(locked.present(), present, "{frame} at {level:?}");
        drop(locked);
        for (table, base) in lower {
            self.count_words(table, level.child().expect("no table below the last"), base, found);
        }
    }

    /// The model, the library, and the machine's decoder agree on every page.
    fn check(&self) {
        let mut told = Vec::new();
        self.tables.tell(self.window, |pages, level, what| told.push((pages, level, what)));
        self.check_runs(&told);
        let mut pages = self.model.pages();
        let mut block = None;
        for (run, level, what) in &told {
            let What::Leaf { frame, .. } = what else { panic!("told {what:?}") };
            for at in 0..run.count() {
                let (page, found) = pages.next().expect("no page is told that is not mapped");
                assert_eq!(page, run.start.add(at));
                assert_eq!((found.frame, found.level), (frame.add(at), *level), "{page}");
                let width = A::fold_order(*level).unwrap_or_default();
                if page == run.start || page.is_aligned(width.pages()) {
                    block = self.model.contiguous(page);
                }
                if page == run.start || page.is_aligned(A::order(*level).pages()) {
                    self.check_words(page, &found, block);
                }
            }
        }
        assert_eq!(pages.next(), None, "every mapped page is told");
        assert_eq!(self.table_frames().len(), self.model.tables() + 1);
        self.machine.audit().unwrap();
    }

    /// Compares the readings of the words for `page`: the library's and the machine's.
    fn check_words(&self, page: Vpn, expected: &NaivePage, block: Option<PageSpan>) {
        let place = self.tables.walk(page, Level::LAST);
        let pages = A::order(expected.level).pages();
        let frame = expected.frame.get() - (page.get() & (pages - 1));
        // In a contiguous block, the hardware may note an access in any entry.
        let noted = if block.is_some() { Attrs::YOUNG | Attrs::DIRTY } else { Attrs::empty() };
        let Entry::Leaf { frame: to, attrs } = A::decode(place.word, place.level) else {
            panic!("{page} is not mapped")
        };
        assert_eq!((to.get(), attrs - noted), (frame, expected.attrs - noted), "{page}");
        assert!(expected.attrs.contains(attrs), "{page}");
        let geometry = self.machine.geometry();
        let (isa, mut table) = (self.machine.config().isa, self.tables.root());
        for level in (0..=geometry.root_level()).rev() {
            let index = geometry.index(page, level);
            match isa.decode(self.machine.load(table, index), level, index) {
                Meaning::Table(lower) => table = lower.frame,
                Meaning::Leaf(leaf) => {
                    assert_eq!(leaf.is_contiguous(), block.is_some(), "{page}: {block:?}");
                    let width = 1 << (leaf.block.get() - leaf.order.get());
                    let first = index & !(width - 1);
                    if block.is_some() && index != first {
                        return;
                    }
                    let flags = (first..first + width).map(|at| {
                        match isa.decode(self.machine.load(table, at), level, at) {
                            Meaning::Leaf(leaf) => (leaf.accessed, leaf.dirty),
                            other => panic!("{page} lies beside {other:?}"),
                        }
                    });
                    let any = |one: (bool, bool), two: (bool, bool)| (one.0 | two.0, one.1 | two.1);
                    let (accessed, dirty) = flags.fold((false, false), any);
                    assert_eq!((leaf.frame.get(), leaf.order.pages()), (frame, pages), "{page}");
                    assert_eq!(leaf.prot, expected.attrs.prot(), "{page}");
                    assert_eq!(accessed, expected.attrs.contains(Attrs::YOUNG), "{page}");
                    let writable = expected.attrs.contains(Attrs::WRITE);
                    let stored = expected.attrs.contains(Attrs::DIRTY);
                    return assert!(!writable || dirty == stored, "{page}");
                }
                Meaning::Absent if !expected.attrs.intersects(Attrs::RIGHTS) => return,
                other => panic!("{page} is {other:?} at level {level}"),
            }
        }
    }

    /// I7: a run stays within a table and agrees in rights, and it is as long as it can be.
    fn check_runs(&self, told: &[(PageSpan, Level, What)]) {
        let fixed = |attrs: Attrs| attrs - (Attrs::YOUNG | Attrs::DIRTY);
        let table =
            |page: Vpn, level| page.get() / (A::order(level).pages() * A::entries(level) as u64);
        let mut before: Option<(PageSpan, Level, Pfn, Attrs)> = None;
        for &(run, level, what) in told {
            let What::Leaf { frame, attrs, settled } = what else { panic!("told {what:?}") };
            assert_eq!(table(run.start, level), table(Vpn::new(run.end.get() - 1), level));
            let mut noted = Attrs::empty();
            let mut quiet = true;
            for page in (run.start.get()..run.end.get()).map(Vpn::new) {
                let found = self.model.page(page).expect("a reported page is mapped");
                assert_eq!(fixed(found.attrs), fixed(attrs), "{page} in {run:?}");
                noted |= found.attrs;
                let dirty = Attrs::DIRTY | Attrs::WRITE;
                let noted = found.attrs.contains(Attrs::YOUNG);
                let seen = found.attrs.intersects(Attrs::RIGHTS);
                quiet &= !seen || noted && found.attrs & dirty != Attrs::WRITE;
            }
            assert_eq!(noted, attrs, "{run:?}");
            assert!(quiet || !settled, "{run:?} is called settled");
            if let Some((last, height, from, rights)) = before {
                let joins = last.end == run.start
                    && height == level
                    && table(last.start, level) == table(run.start, level)
                    && from.add(last.count()) == frame
                    && fixed(rights) == fixed(attrs);
                assert!(!joins, "{last:?} and {run:?} are one run");
            }
            before = Some((run, level, frame, attrs));
        }
    }

    fn end(mut self) {
        self.cpu.leave();
        let mut gather = Gather::new();
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        self.take(all, true, &mut gather);
        self.prune(all, all, &mut gather);
        assert_eq!(self.model.tables(), 0);
        self.tables.free_root(&mut gather);
        self.settle(gather);
    }
}

/// Runs `ops` on a machine of `config` from page `from` on; nothing is lost in the end.
fn run<A: Arch>(config: Config, from: u64, ops: &[Op]) {
    let mut ram = system::ram(16 << 20).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        let cpu = machine.cpu(0);
        let phys = mm.bare_phys();
        let before = phys.free_frames();
        let root = phys.alloc(cpu.number(), Order::ZERO).expect("nothing is taken yet");
        machine.clear(&root, 0..1, Reuse::Soon);
        let tables = Tables::<A, _>::found(machine, phys.meta(), root);
        let tag = Tag::new(ASID);
        tag.join(cpu.number());
        let target = Target { tag: Some(&tag), root: tables.root() };
        let tables = Tables::<A, _>::new(machine, phys.meta(), &[], target);
        cpu.switch(tables.root(), ASID);
        let start = Vpn::new(from);
        let window = PageSpan::new(start, start.add(4 * A::entries(Level::LAST) as u64));
        let model = NaiveTables::new();
        let mut bench = Bench { machine, cpu: &cpu, phys, tables, target, model, window };
        for op in ops {
            bench.apply(*op);
            bench.model.gather();
            bench.check();
        }
        bench.end();
        machine.audit().unwrap();
        assert_eq!(phys.free_frames(), before, "nothing is lost");
    })
    .unwrap();
}

fn spot() -> impl Strategy<Value = Spot> {
    // Mostly ends of blocks, of 16ths of them, and just beside them.
    let coarse = prop_oneof![3 => (0..=4_u64).prop_map(|n| n * 64), 2 => 0..=256_u64];
    let fine = prop_oneof![4 => Just(0_u64), 1 => 0..8_u64];
    (coarse, fine).prop_map(|(coarse, fine)| Spot(coarse, fine))
}

fn prot() -> impl Strategy<Value = Prot> {
    prop_oneof![
        3 => Just(Prot::RW),
        3 => Just(Prot::READ),
        1 => Just(Prot::RX),
        1 => Just(Prot::all()),
        1 => Just(Prot::empty()),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let skew = prop_oneof![4 => Just(0_u64), 1 => 1..64_u64];
    let access = prop_oneof![
        3 => Just(Access::Write), 2 => Just(Access::Read), 1 => Just(Access::Execute),
    ];
    prop_oneof![
        4 => (spot(), spot(), skew, prot(), any::<bool>())
            .prop_map(|(at, to, skew, prot, used)| Op::Map { at, to, skew, prot, used }),
        2 => (spot(), spot(), any::<bool>(), any::<bool>())
            .prop_map(|(at, to, isolated, pruned)| Op::Take { at, to, isolated, pruned }),
        2 => (spot(), spot(), prot()).prop_map(|(at, to, prot)| Op::Protect { at, to, prot }),
        1 => spot().prop_map(|at| Op::Isolate { at }),
        1 => (spot(), spot()).prop_map(|(at, to)| Op::Prune { at, to }),
        1 => (spot(), spot()).prop_map(|(at, to)| Op::Tell { at, to }),
        6 => (spot(), access).prop_map(|(at, access)| Op::Access { at, access }),
    ]
}

/// The machines of a format: with all that the hardware can do, and with the least.
fn machines(config: Config) -> [Config; 2] {
    let full = Config { transitions: Transitions::BbmLevel2, ..config };
    let least = Config {
        sets_accessed: config.isa.always_sets_flags(),
        sets_dirty: config.isa.always_sets_flags(),
        rewalks_on_denial: config.isa.always_sets_flags(),
        ..config
    };
    [full, least]
}

fn random<A: Arch>(config: Config, cases: u32) {
    let mut runner = proptest::test_runner::TestRunner::new_with_rng(
        ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() },
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    );
    let ops = prop::collection::vec(op(), 1..24);
    let case = (ops, 0..2_usize, any::<bool>());
    let outcome = runner.run(&case, |(ops, machine, high)| {
        // At the start of several levels of tables, and far from any.
        let middle = A::USER_PAGES / 2 - 2 * A::entries(Level::LAST) as u64;
        let from = if high { middle } else { 0 };
        run::<A>(machines(config)[machine], from, &ops);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{}: {error}", A::NAME));
}

#[test]
fn e2_tables_of_x86_64_agree_with_pages() {
    random::<X86_64>(Config::x86_64(), 300);
    random::<X86_64La57>(Config::x86_64_la57(), 100);
}

#[test]
fn e2_tables_of_arm64_agree_with_pages() {
    random::<Arm4k>(Config::arm64_4k(), 300);
    random::<Arm16k>(Config::arm64_16k(), 60);
    random::<Arm64k>(Config::arm64_64k(), 16);
}

#[test]
fn e2_tables_of_riscv64_agree_with_pages() {
    random::<Sv39>(Config::riscv64_sv39(), 150);
    random::<Sv48>(Config::riscv64_sv48(), 100);
    random::<Sv57>(Config::riscv64_sv57(), 100);
}

/// The largest leaf that the library makes: split in its middle, level by level, and protected in
/// part.
fn largest<A: Arch>(config: Config) {
    let mut ram = system::ram(16 << 20).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        let (cpu, phys) = (machine.cpu(0), mm.bare_phys());
        let before = phys.free_frames();
        let root = phys.alloc(cpu.number(), Order::ZERO).expect("nothing is taken yet");
        machine.clear(&root, 0..1, Reuse::Soon);
        let tables = Tables::<A, _>::found(machine, phys.meta(), root);
        let tag = Tag::new(ASID);
        tag.join(cpu.number());
        let target = Target { tag: Some(&tag), root: tables.root() };
        let tables = Tables::<A, _>::new(machine, phys.meta(), &[], target);
        let top = (0..A::LEVELS.len()).rev().map(|at| Level::new(at as u8));
        // The library makes no leaf above the order of a block.
        let is_made =
            |level: &Level| A::is_leaf_level(*level) && A::order(*level) <= A::block_order();
        let top = top.clone().find(is_made).expect("a page is a leaf");
        let pages = A::order(top).pages();
        let span = PageSpan::new(Vpn::new(pages), Vpn::new(2 * pages));
        let supply = || {
            let run = phys.alloc(cpu.number(), Order::ZERO).expect("RAM is left");
            machine.clear(&run, 0..1, Reuse::Soon);
            Some(run)
        };
        let mut spare = None;
        let (mut left, mut frame) = (span, Pfn::new(pages));
        let attrs = Attrs::user(Prot::RW);
        while tables.map(&mut left, &mut frame, attrs, &mut spare) == Err(Lack::Table) {
            spare = supply();
        }
        let mut gather = Gather::new();
        let middle = Vpn::new(pages + pages / 2 + 1);
        let splits = loop {
            match tables.isolate(middle, middle, &mut spare, gather.due()) {
                Ok(isolated) => break isolated.splits,
                Err(_) => spare = supply(),
            }
        };
        assert!(splits <= 1, "the last call splits what is left to split");
        tables.protect(PageSpan::new(middle, span.end), Prot::READ, &mut gather);
        let mut told = 0;
        tables.tell(span, |run, level, what| {
            let What::Leaf { frame, attrs, .. } = what else { panic!("told {what:?}") };
            assert_eq!(frame.get(), run.start.get(), "the identity at {level:?}");
            assert_eq!(attrs.contains(Attrs::WRITE), run.start < middle);
            told += run.count();
        });
        assert_eq!(told, pages);
        tables.take(span, &mut gather);
        tables.prune(span, PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES)), &mut gather);
        tables.free_root(&mut gather);
        gather.settle(phys, machine, target);
        if let Some(run) = spare {
            phys.free(cpu.number(), run);
        }
        assert_eq!(phys.free_frames(), before, "nothing is lost");
    })
    .unwrap();
}

#[test]
fn e2_the_largest_leaf_is_split_where_it_must_and_nowhere_else() {
    largest::<X86_64>(Config::x86_64());
    largest::<X86_64La57>(Config::x86_64_la57());
    largest::<Arm4k>(Config::arm64_4k());
    largest::<Arm16k>(Config::arm64_16k());
    largest::<Arm64k>(Config::arm64_64k());
    largest::<Sv39>(Config::riscv64_sv39());
    largest::<Sv48>(Config::riscv64_sv48());
    largest::<Sv57>(Config::riscv64_sv57());
}
