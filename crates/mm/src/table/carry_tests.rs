//! Moves of random entries against a model that moves page by page.

use std::collections::BTreeMap;
use std::vec::Vec;

use proptest::prelude::*;
use quire_arch::{Arch, Arm4k, Arm16k, Attrs, Level, Sv48, X86_64, X86_64La57};
use quire_hw::{FrameRun, Memory, Reuse};
use quire_machine::{Config, Machine, Ram};
use quire_units::{CpuId, Order, PageSpan, Pfn, Prot, Vpn};

use super::word::NOTED;
use super::{Gather, Lack, Marks, Tables, Target, What};
use crate::folio::{Folio, Folios, Home};
use crate::phys::{CpuCache, Phys, Slot, Zone};

const CPU: CpuId = CpuId::new(0);
/// Pages of a table of the last level, on each of the formats.
const REACH: u64 = 512;
const PAGES: u64 = 3 * REACH;

/// The content of some pages.
#[derive(Clone, Copy, Debug)]
enum Content {
    /// A folio of this order, of which this many first pages are not mapped.
    Folio { order: u8, skip: u64, cow: bool, noted: u8, aligned: bool },
    /// A block by one entry.
    Block { cow: bool },
    /// Pages of no folio.
    Foreign(u64),
    /// Markers.
    Marks { count: u64, ascending: bool },
    /// A block of markers by one entry.
    MarkedBlock,
}

fn contents() -> impl Strategy<Value = Vec<(u64, Content)>> {
    let folio = (0u8..7, 0u64..20, any::<bool>(), 0u8..4, any::<bool>());
    let one = prop_oneof![
        6 => folio.prop_map(|(order, skip, cow, noted, aligned)| {
            Content::Folio { order, skip: skip.min((1 << order) - 1), cow, noted, aligned }
        }),
        3 => any::<bool>().prop_map(|cow| {
            Content::Folio { order: 0, skip: 0, cow, noted: 3, aligned: false }
        }),
        1 => any::<bool>().prop_map(|cow| Content::Block { cow }),
        1 => (1u64..40).prop_map(Content::Foreign),
        1 => (1u64..40, any::<bool>()).prop_map(|(count, ascending)| {
            Content::Marks { count, ascending }
        }),
        1 => Just(Content::MarkedBlock),
    ];
    let gap = prop_oneof![3 => Just(0u64), 1 => 1u64..70];
    prop::collection::vec((gap, one), 1..60)
}

/// A page shows this: a frame and its attributes, or the payload of a marker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shown {
    Leaf(Pfn, Attrs),
    Marker(u64),
}

struct Bench<'a, 'r, A> {
    machine: &'a Machine<'r>,
    phys: &'a Phys<'a>,
    tables: Tables<'a, A, Machine<'r>>,
}

impl<'a, 'r, A: Arch> Bench<'a, 'r, A> {
    fn frame(&self) -> FrameRun {
        let run = self.phys.alloc(CPU, Order::ZERO).expect("RAM is left");
        self.machine.clear(&run, 0..1, Reuse::Soon);
        run
    }

    fn supplied(&self, mut step: impl FnMut(&mut Option<FrameRun>) -> Result<(), Lack>) {
        let mut spare = None;
        while let Err(lack) = step(&mut spare) {
            assert_eq!(lack, Lack::Table);
            spare = Some(self.frame());
        }
        spare.into_iter().for_each(|run| self.phys.free(CPU, run));
    }

    /// Puts `content` at `page` or behind it. Returns the page behind.
    fn put(&self, page: Vpn, content: Content) -> Vpn {
        let user = Attrs::user(Prot::RW);
        match content {
            Content::Folio { order, skip, cow, noted, aligned } => {
                let order = Order::new(order);
                let start = if aligned {
                    page.align_up(order.pages()).expect("far from the end")
                } else {
                    page
                };
                let noted = [Attrs::empty(), Attrs::YOUNG, Attrs::DIRTY, NOTED][noted as usize];
                let attrs = if cow { Attrs::user(Prot::READ) | Attrs::COW } else { user } | noted;
                self.folio(start, Level::LAST, (order, skip), attrs)
            }
            Content::Block { cow } => {
                let start = page.align_up(A::block_order().pages()).expect("far from the end");
                let attrs = if cow { Attrs::user(Prot::READ) | Attrs::COW } else { user };
                self.folio(start, Level::LAST.parent(), (A::block_order(), 0), attrs | NOTED)
            }
            Content::Foreign(count) => {
                let (mut span, mut frame) =
                    (PageSpan::new(page, page.add(count)), Pfn::new(1 << 22));
                self.supplied(|spare| self.tables.map(&mut span, &mut frame, user, spare));
                page.add(count)
            }
            Content::Marks { count, ascending } => {
                let mut marks = Marks { ascending, ..Marks::guards(page) };
                let mut span = PageSpan::new(page, page.add(count));
                self.supplied(|spare| self.tables.mark(&mut span, &mut marks, spare));
                page.add(count)
            }
            Content::MarkedBlock => {
                let count = A::block_order().pages();
                let start = page.align_up(count).expect("far from the end");
                self.put(start, Content::Marks { count, ascending: true })
            }
        }
    }

    /// Maps the pages of a new folio from number `skip` on, as far as one table takes them.
    fn folio(&self, page: Vpn, level: Level, (order, skip): (Order, u64), attrs: Attrs) -> Vpn {
        let run = self.phys.alloc(CPU, order).expect("RAM is left");
        let head = run.start();
        self.supplied(|spare| self.tables.reach_down(page, level, spare).map(drop));
        let locked = self.tables.lock(self.tables.walk(page, level).frame, level, page);
        let locked = locked.expect("it was made");
        let unit = locked.unit().pages();
        let room = locked.reach().end.offset_from(page);
        let count = (order.pages() - skip).min(room);
        let home = self.tables.home(Vpn::new(page.get().wrapping_sub(skip)));
        Folios::new(self.phys.meta()).adopt_mapped(run, order, home);
        let counts = &self.phys.meta().at(head).counts;
        counts.store(count << 32, crate::sync::Ordering::Relaxed);
        locked.put(locked.index(page), (count / unit) as usize, head.add(skip), attrs, order);
        page.add(count)
    }

    /// The attributes of a leaf alone: those of a run have the bits that any leaf of it notes.
    fn attrs_alone(&self, page: Vpn) -> Attrs {
        let locked = self.tables.lock_lowest(page, Level::LAST);
        match locked.entry(locked.index(page)).what {
            What::Leaf { attrs, .. } => attrs,
            what => panic!("{what:?}"),
        }
    }

    fn shown(&self, span: PageSpan) -> BTreeMap<u64, Shown> {
        let mut shown = BTreeMap::new();
        self.tables.tell(span, |pages, level, what| {
            for ahead in 0..pages.count() {
                let one = match what {
                    What::Leaf { frame, attrs, .. } => Shown::Leaf(frame.add(ahead), attrs),
                    What::Marker(marks) => {
                        // The pages of a block ascend from the payload that its entry has.
                        let ascends = marks.ascending || !level.is_last();
                        Shown::Marker(marks.first + if ascends { ahead } else { 0 })
                    }
                    _ => continue,
                };
                shown.insert(pages.start.get() + ahead, one);
            }
        });
        for (page, one) in &mut shown {
            if let Shown::Leaf(_, attrs) = one {
                *attrs = self.attrs_alone(Vpn::new(*page));
            }
        }
        shown
    }

    /// How many contiguous blocks there are in `span`.
    fn blocks(&self, span: PageSpan) -> u64 {
        let mut blocks = 0;
        for start in (span.start.align_down(REACH).get()..span.end.get()).step_by(REACH as usize) {
            let table = self.tables.lock_lowest(Vpn::new(start), Level::LAST);
            blocks += if table.level().is_last() { table.folded() } else { 0 };
        }
        blocks
    }

    fn shift(&self, from: PageSpan, to: Vpn) {
        let before = self.shown(from);
        let (mut left, mut gather) = (from, Gather::new());
        self.supplied(|spare| {
            self.tables.prepare_move(&mut left, from.start, to, spare, &mut gather)
        });
        assert_eq!(self.shown(from), before, "preparing changes nothing");
        self.tables.move_entries(from, to, &mut gather);
        self.tables.prune(from, from, &mut gather);
        self.settle(gather);
        assert!(self.shown(from).is_empty(), "nothing is left behind");
        let after = self.shown(PageSpan::new(to, to.add(from.count())));
        assert_eq!(before.len(), after.len());
        let folios = Folios::new(self.phys.meta());
        // A table that moves whole leaves the homes, which are hints, as they are.
        let has_homes = !(from.start.get() ^ to.get()).is_multiple_of(REACH);
        let is_own = |attrs: Attrs| has_homes && !attrs.contains(Attrs::COW);
        for ((page, was), (new, is)) in before.into_iter().zip(after) {
            assert_eq!(page - from.start.get(), new - to.get());
            match (was, is) {
                (Shown::Leaf(frame, had), Shown::Leaf(same, has)) => {
                    assert_eq!(frame, same, "at {page}");
                    assert_eq!(had - NOTED, has - NOTED, "at {page}");
                    // In a contiguous block, a bit that one page has holds for all.
                    assert!(has.contains(had), "at {page}: {had:?} became {has:?}");
                    if let Some(folio) = folios.of(frame).filter(|_| is_own(had)) {
                        let head = new.wrapping_sub(frame.offset_from(folio.head));
                        assert_eq!(self.home(folio), self.home_at(head), "at {page}");
                    }
                }
                (was, is) => assert_eq!(was, is, "at {page}"),
            }
        }
    }

    fn home(&self, folio: Folio) -> Home {
        Folios::new(self.phys.meta()).home(folio)
    }

    /// The home that a slot returns for `page`.
    fn home_at(&self, page: u64) -> Home {
        let Home { space, page } = self.tables.home(Vpn::new(page));
        Home { space, page: Vpn::new(page.get() & ((1 << 44) - 1)) }
    }

    fn settle(&self, mut gather: Gather) {
        let target = Target { tag: None, root: self.tables.root() };
        gather.settle(self.phys, self.machine, target);
    }
}

/// Runs `test` with an empty tree. No frame is lost by that.
fn with_bench<A: Arch>(config: Config, test: impl FnOnce(&Bench<'_, '_, A>)) {
    let mut ram = Ram::new(96 << 20).expect("the host has 96 MiB");
    let (machine, all) = Machine::new(config, &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..all.count()).map(|_| Slot::empty()).collect();
    let (mut caches, mut zones) = ([CpuCache::new()], [Zone::new(all.span())]);
    let phys = Phys::new(all.start(), &mut slots, &mut caches, &mut zones).expect("sound");
    phys.add(all).expect("the zone has all frames");
    let free = phys.free_frames();
    let root = phys.alloc(CPU, Order::ZERO).expect("RAM is left");
    machine.clear(&root, 0..1, Reuse::Soon);
    let tables = Tables::<A, _>::found(&machine, phys.meta(), root);
    let bench = Bench { machine: &machine, phys: &phys, tables };
    test(&bench);
    let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
    let (mut gather, mut upto) = (Gather::new(), Vpn::new(0));
    while upto < all.end {
        upto = tables.take(PageSpan::new(upto, all.end), &mut gather).upto;
    }
    tables.prune(all, all, &mut gather);
    tables.free_root(&mut gather);
    bench.settle(gather);
    machine.verdict().unwrap();
    assert_eq!(phys.free_frames(), free, "nothing is lost");
}

fn moves<A: Arch>(config: Config, contents: &[(u64, Content)], skews: (u64, u64)) {
    with_bench::<A>(config, |bench| {
        let from = PageSpan::new(Vpn::new(REACH), Vpn::new(REACH + PAGES));
        let mut page = from.start;
        for &(gap, content) in contents {
            page = page.add(gap);
            if page.add(2 * REACH) > from.end {
                break;
            }
            page = bench.put(page, content);
        }
        let blocks = bench.blocks(from);
        let there = Vpn::new(8 * REACH + skews.0);
        bench.shift(from, there);
        let back = Vpn::new(REACH + skews.1 * REACH);
        bench.shift(PageSpan::new(there, there.add(PAGES)), back);
        // The place is aligned as the first one was. All that was folded is folded again, and
        // perhaps more: blocks by one entry have become leaves of the last level.
        assert!(bench.blocks(PageSpan::new(back, back.add(PAGES))) >= blocks, "{}", A::NAME);
    });
}

/// For each level whose entries may lead to a table that moves whole: one page is mapped, and all
/// that the entry translates moves to the next place that is aligned as far as it must be.
fn whole_tables<A: Arch>(config: fn() -> Config) {
    let inner = 1..A::ROOT.index() as u8;
    for level in inner.map(Level::new) {
        with_bench::<A>(config(), |bench| {
            let block = A::order(level).pages();
            let from = PageSpan::block(Vpn::new(block), A::order(level));
            let to = Vpn::new(3 * block);
            bench.folio(from.start, Level::LAST, (Order::ZERO, 0), Attrs::user(Prot::RW));
            let before = bench.shown(PageSpan::block(from.start, Order::ZERO));
            let mut gather = Gather::new();
            let made = bench.tables.prepare_move(
                &mut from.clone(),
                from.start,
                to,
                &mut None,
                &mut gather,
            );
            assert_eq!(made, Ok(()), "{} {level:?}: no new table is needed", A::NAME);
            assert_eq!(bench.tables.move_entries(from, to, &mut gather), 1, "the table itself");
            bench.settle(gather);
            let after = bench.shown(PageSpan::block(to, Order::ZERO));
            assert!(before.into_values().eq(after.into_values()), "{} {level:?}", A::NAME);
        });
    }
}

#[test]
fn e3_a_table_moves_whole_without_another_table() {
    whole_tables::<X86_64>(Config::x86_64);
    whole_tables::<X86_64La57>(Config::x86_64_la57);
    whole_tables::<Arm4k>(Config::arm64_4k);
    whole_tables::<Arm16k>(Config::arm64_16k);
    whole_tables::<Sv48>(Config::riscv64_sv48);
}

/// All leaves of a table above the last level move to a place that is aligned as theirs is, where
/// the table that takes them has to be made first, or is there and empty.
fn full_table_moves<A: Arch>(config: fn() -> Config) {
    let level = Level::LAST.parent();
    let (order, unit) = (A::order(level.parent()), A::order(level));
    for is_there in [false, true] {
        with_bench::<A>(config(), |bench| {
            let from = PageSpan::block(Vpn::new(order.pages()), order);
            let to = Vpn::new(3 * order.pages());
            // The frames are aligned to a leaf of the level, and no better.
            let (mut span, mut frame) = (from, Pfn::new((1 << 30) + unit.pages()));
            let user = Attrs::user(Prot::RW);
            bench.supplied(|spare| bench.tables.map(&mut span, &mut frame, user, spare));
            if is_there {
                bench.supplied(|spare| bench.tables.reach_down(to, Level::LAST, spare).map(drop));
            }
            let (mut left, mut gather) = (from, Gather::new());
            bench.supplied(|spare| {
                bench.tables.prepare_move(&mut left, from.start, to, spare, &mut gather)
            });
            let place = bench.tables.walk(to, Level::LAST);
            assert_eq!(place.level, level, "{}: its table is there, and none below", A::NAME);
            bench.tables.move_entries(from, to, &mut gather);
            bench.settle(gather);
            let mut moved = 0;
            let there = PageSpan::block(to, order);
            bench.tables.tell(there, |pages, _, _| moved += pages.count());
            assert_eq!(moved, order.pages(), "{}", A::NAME);
        });
    }
}

#[test]
fn e3_all_leaves_of_an_upper_table_move() {
    full_table_moves::<X86_64>(Config::x86_64);
    full_table_moves::<Arm4k>(Config::arm64_4k);
    full_table_moves::<Sv48>(Config::riscv64_sv48);
}

/// A block by one entry moves by this many entries to a place of this alignment.
fn block_moves<A: Arch>(config: fn() -> Config) {
    let order = A::block_order();
    let aligns = [Order::ZERO, Order::new(order.get() - 1), order, Order::new(order.get() + 1)];
    let contents = [Content::Block { cow: false }, Content::MarkedBlock];
    for (align, content) in aligns.into_iter().flat_map(|to| contents.map(|one| (to, one))) {
        with_bench::<A>(config(), |bench| {
            bench.put(Vpn::new(order.pages()), content);
            let from = PageSpan::block(Vpn::new(order.pages()), order);
            let to = Vpn::new(8 * order.pages() + align.pages());
            bench.shift(from, to);
            let (there, mut entries) = (PageSpan::new(to, to.add(order.pages())), 0);
            bench.tables.tell(there, |pages, level, _| {
                entries += pages.count() >> A::order(level).get();
            });
            let expected = if align < order { order.pages() } else { 1 };
            assert_eq!(entries, expected, "{}: {content:?} to {align:?}", A::NAME);
        });
    }
}

#[test]
fn e3_a_block_moves_as_one_entry_where_it_fits() {
    block_moves::<X86_64>(Config::x86_64);
    block_moves::<Arm4k>(Config::arm64_4k);
    block_moves::<Sv48>(Config::riscv64_sv48);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn e3_a_move_by_runs_is_a_move_of_each_page(
        contents in contents(),
        skew in prop_oneof![Just(0u64), Just(1), Just(16), Just(REACH), 0..2 * REACH],
        back in 0u64..3,
    ) {
        moves::<X86_64>(Config::x86_64(), &contents, (skew, back));
        moves::<Arm4k>(Config::arm64_4k(), &contents, (skew, back));
        moves::<Sv48>(Config::riscv64_sv48(), &contents, (skew, back));
    }
}
