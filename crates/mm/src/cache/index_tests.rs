//! The index beside an ordered map: any places, orders and marks, at any depth.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use quire_arch::{Arch, Arm64k, X86_64};
use quire_hw::Memory;
use quire_machine::{Config, Machine, Ram};
use quire_units::{CpuId, Order, Pfn};

#[path = "row_tests.rs"]
mod rows;

use super::{Entry, FILE_PAGES_MAX, File, FileId, FilePages, Index, InsertLack, Note, Store};
use crate::folio::Folio;
use crate::mm::{Mm, Parts};
use crate::phys::{CpuCache, Slot, Zone};
use crate::stats::Counters;

/// An operation on an index. Places are aligned to the order.
#[derive(Clone, Copy, Debug)]
enum Op {
    Insert {
        page: u64,
        order: u8,
    },
    Remove {
        page: u64,
        note: bool,
    },
    Dirty {
        page: u64,
        dirty: bool,
    },
    Find {
        page: u64,
    },
    Next {
        page: u64,
        pages: u64,
    },
    Empty {
        page: u64,
        order: u8,
    },
    /// A row of folios enters, leaves, or becomes dirty or clean.
    Row {
        page: u64,
        order: u8,
        count: usize,
        act: RowAct,
    },
    Prune {
        page: u64,
        pages: u64,
    },
    Join {
        page: u64,
        order: u8,
    },
    Part {
        page: u64,
        from: u64,
        pages: u64,
    },
    /// The content leaves memory, or comes back.
    Leave {
        page: u64,
    },
}

#[derive(Clone, Copy, Debug)]
enum RowAct {
    Insert,
    Remove,
    Dirty(bool),
}

/// Pages near each other, at the edges of nodes, and far away.
fn page() -> impl Strategy<Value = u64> {
    prop_oneof![
        6 => 0..64_u64,
        3 => 480..544_u64,
        2 => (0..4_u64, 0..600_u64).prop_map(|(node, page)| node * (1 << 18) + page),
        1 => (0..44_u32, 0..9_u64).prop_map(|(bit, more)| ((1_u64 << bit) + more) % FILE_PAGES_MAX),
    ]
}

fn act() -> impl Strategy<Value = RowAct> {
    let dirty = any::<bool>().prop_map(RowAct::Dirty);
    prop_oneof![2 => Just(RowAct::Insert), 1 => Just(RowAct::Remove), 1 => dirty]
}

fn row_or_leave() -> impl Strategy<Value = Op> {
    let row = (page(), 0..4_u8, 1..17_usize, act());
    let row = row.prop_map(|(page, order, count, act)| Op::Row { page, order, count, act });
    prop_oneof![4 => row, 3 => page().prop_map(|page| Op::Leave { page })]
}

fn op() -> impl Strategy<Value = Op> {
    let order = prop_oneof![4 => 0..5_u8, 1 => 5..13_u8];
    prop_oneof![
        6 => (page(), order.clone()).prop_map(|(page, order)| Op::Insert { page, order }),
        3 => (page(), any::<bool>()).prop_map(|(page, note)| Op::Remove { page, note }),
        3 => (page(), any::<bool>()).prop_map(|(page, dirty)| Op::Dirty { page, dirty }),
        4 => page().prop_map(|page| Op::Find { page }),
        3 => (page(), 1..2000_u64).prop_map(|(page, pages)| Op::Next { page, pages }),
        2 => (page(), order).prop_map(|(page, order)| Op::Empty { page, order }),
        1 => (page(), 1..FILE_PAGES_MAX).prop_map(|(page, pages)| Op::Prune { page, pages }),
        2 => (page(), prop_oneof![3 => 1..5_u8, 1 => 5..10_u8, 1 => Just(13)])
            .prop_map(|(page, order)| Op::Join { page, order }),
        2 => (page(), 0..600_u64, 1..600_u64)
            .prop_map(|(page, from, pages)| Op::Part { page, from, pages }),
        7 => row_or_leave(),
    ]
}

/// The expected content of the index: by the first page, the folio and whether it is dirty. The
/// folios of those that are away have left.
#[derive(Default)]
struct Naive {
    folios: BTreeMap<u64, (Folio, bool)>,
    away: BTreeSet<u64>,
}

impl Naive {
    fn at(&self, page: u64) -> Option<(FilePages, Folio, bool)> {
        let (&start, &(folio, dirty)) = self.folios.range(..=page).next_back()?;
        let pages = FilePages::new(start, start + folio.order.pages());
        pages.contains(page).then_some((pages, folio, dirty))
    }

    fn entry(&self, start: u64) -> Entry {
        let (folio, dirty) = self.folios[&start];
        match self.away.contains(&start) {
            true => Entry::Away { place: folio.head.get(), order: folio.order },
            false => Entry::Folio { folio, dirty },
        }
    }

    /// The first folio in memory that has a page in `pages`.
    fn next_here(&self, mut pages: FilePages, dirty: bool) -> Option<(Folio, FilePages)> {
        loop {
            let (folio, at) = self.next(pages, dirty)?;
            if !self.away.contains(&at.start) {
                return Some((folio, at));
            }
            pages = FilePages::new(at.end, pages.end);
        }
    }

    fn next(&self, pages: FilePages, dirty: bool) -> Option<(Folio, FilePages)> {
        let from = self.at(pages.start).map_or(pages.start, |(pages, ..)| pages.start);
        let all = self.folios.range(from..pages.end);
        let mut all = all.filter(|(_, (_, is))| *is || !dirty);
        let (&start, &(folio, _)) = all.next()?;
        Some((folio, FilePages::new(start, start + folio.order.pages())))
    }
}

struct Pair<'a, 'm, 'r, A> {
    mm: &'a Mm<'m, A, Machine<'r>>,
    index: Index<'a, A, Machine<'r>>,
    naive: Naive,
    heads: u64,
}

impl<A: Arch> Pair<'_, '_, '_, A> {
    fn insert(&mut self, page: u64, order: Order) {
        let page = FilePages::block(page, order).start;
        self.heads += 1;
        let folio = Folio { head: Pfn::new(self.heads << 13), order };
        let block = FilePages::block(page, order);
        let expected = self.naive.next(block, false).is_none();
        let (mut spare, mut pruned) = (None, false);
        let done = loop {
            match self.index.insert(page, folio, &mut spare) {
                Err(InsertLack::Node) => {
                    assert!(spare.is_none(), "a node that was brought is taken");
                    let run =
                        self.mm.allocator().alloc(CpuId::new(0), Order::ZERO).expect("memory");
                    self.mm.hardware().clear(&run, 0..1, quire_hw::Reuse::Soon);
                    spare = Some(run);
                }
                Err(InsertLack::Room) if !pruned && order > A::block_order() => {
                    self.apply(Op::Prune { page, pages: order.pages() });
                    pruned = true;
                }
                Err(InsertLack::Room) => break false,
                Ok(()) => break true,
            }
        };
        if let Some(run) = spare {
            self.mm.allocator().free(CpuId::new(0), run);
        }
        assert_eq!(done, expected, "{order} at {page}");
        if done {
            self.naive.folios.insert(page, (folio, false));
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Insert { page, order } => self.insert(page, Order::new(order)),
            Op::Remove { page, note } => {
                let Some((pages, folio, _)) = self.naive.at(page) else {
                    let stranger = Folio { head: Pfn::new(1), order: Order::ZERO };
                    return assert!(!self.index.remove(page, stranger, None));
                };
                let entry = self.naive.entry(pages.start);
                let gone = match self.naive.away.remove(&pages.start) {
                    true => {
                        let is_it = |now| now == entry;
                        let (order, nothing) = (folio.order, Entry::Empty);
                        self.index.exchange(pages.start, order, is_it, nothing, || true).is_some()
                    }
                    false => self.index.remove(pages.start, folio, note.then_some(Note::Small)),
                };
                assert!(gone);
                self.naive.folios.remove(&pages.start);
            }
            Op::Dirty { page, dirty } => {
                let Some((pages, folio, _)) = self.naive.at(page) else { return };
                let is_here = !self.naive.away.contains(&pages.start);
                assert_eq!(self.index.set_dirty(pages.start, folio, dirty), is_here);
                if !is_here {
                    return;
                }
                self.naive.folios.insert(pages.start, (folio, dirty));
            }
            Op::Find { page } => self.find(page),
            Op::Next { page, pages } => {
                let pages = FilePages::new(page, page + pages);
                assert_eq!(self.index.next(pages), self.naive.next_here(pages, false));
                assert_eq!(self.index.next_dirty(pages), self.naive.next_here(pages, true));
                self.dirty_row(pages);
                let next = self.naive.next(pages, false).map(|(_, at)| at);
                let due = next.map(|at| (self.naive.entry(at.start), at));
                assert_eq!(self.index.next_content(pages), due);
            }
            Op::Empty { page, order } => self.empty(page, Order::new(order)),
            Op::Row { page, order, count, act } => self.row(page, Order::new(order), count, act),
            Op::Prune { page, pages } => {
                let pages = FilePages::new(page, page.saturating_add(pages));
                self.index.prune(pages, &mut |run| self.mm.allocator().free(CpuId::new(0), run));
            }
            Op::Join { page, order } => self.join(page, Order::new(order)),
            Op::Part { page, from, pages } => self.part(page, from, pages),
            Op::Leave { page } => self.leave(page),
        }
    }

    /// Exchanges a folio for the place of its content, or the other way.
    fn leave(&mut self, page: u64) {
        let Some((at, folio, _)) = self.naive.at(page) else { return };
        let before = self.naive.entry(at.start);
        // A folio that leaves is clean here.
        self.naive.folios.insert(at.start, (folio, false));
        if !self.naive.away.remove(&at.start) {
            self.naive.away.insert(at.start);
        }
        let (now, order) = (self.naive.entry(at.start), folio.order);
        let is_it = |there| there == before;
        assert!(self.index.exchange(at.start, order, is_it, now, || false).is_none());
        assert!(self.index.exchange(at.start, order, is_it, now, || true).is_some());
        assert!(self.index.exchange(at.start, order, is_it, now, || true).is_none());
    }

    /// Makes one folio of all in a block, if none reaches beyond it.
    fn join(&mut self, page: u64, order: Order) {
        let block = FilePages::block(page, order);
        let bits = A::PAGE_SHIFT - 3;
        let there: Vec<u64> =
            self.naive.folios.range(block.start..block.end).map(|(start, _)| *start).collect();
        let covered =
            self.naive.at(block.start).is_some_and(|(at, ..)| at.count() >= block.count());
        if there.iter().any(|start| self.naive.away.contains(start)) && !covered {
            let folio = Folio { head: Pfn::new(1), order };
            return assert!(!self.index.join(block.start, folio, &|_| true, &mut |_| {
                panic!("some of the block is away")
            }));
        }
        if u32::from(order.get()) > bits || covered {
            return;
        }
        self.heads += 1;
        let folio = Folio { head: Pfn::new(self.heads << 13), order };
        let mut gone = Vec::new();
        let stranger = there.first().map(|start| self.naive.folios[start].0);
        assert!(!self.index.join(block.start, folio, &|old| Some(old) != stranger, &mut |_| {
            panic!("one of them was not to go")
        }));
        let joined = self.index.join(block.start, folio, &|_| true, &mut |old| gone.push(old));
        assert_eq!(joined, !there.is_empty(), "{order} at {page}");
        let mut dirty = false;
        let old: Vec<Folio> = there
            .iter()
            .map(|start| {
                let (folio, was) = self.naive.folios.remove(start).expect("it was there");
                dirty |= was;
                folio
            })
            .collect();
        assert_eq!(gone, old);
        if joined {
            self.naive.folios.insert(block.start, (folio, dirty));
        }
    }

    /// Divides the folio at `page`: `pages` of it leave the index, and the others become single.
    fn part(&mut self, page: u64, from: u64, pages: u64) {
        let Some((at, folio, dirty)) = self.naive.at(page) else { return };
        let (whole, away) = (self.naive.entry(at.start), self.naive.away.contains(&at.start));
        let mut spare = None;
        let low = loop {
            match self.index.lower(at.start, whole, &mut spare) {
                Ok(low) => break low,
                Err(_) => {
                    let run =
                        self.mm.allocator().alloc(CpuId::new(0), Order::ZERO).expect("memory");
                    self.mm.hardware().clear(&run, 0..1, quire_hw::Reuse::Soon);
                    spare = Some(run);
                }
            }
        };
        if let Some(run) = spare {
            self.mm.allocator().free(CpuId::new(0), run);
        }
        assert_eq!(low, u32::from(folio.order.get()) <= A::PAGE_SHIFT - 3);
        if !low {
            return;
        }
        let gone = FilePages::new(at.start + from, at.start + from + pages);
        let kept = (at.start..at.end).filter(|page| !gone.contains(*page));
        let part = |page| Folio { head: folio.head.add(page - at.start), order: Order::ZERO };
        let parts = kept.clone().rev().map(|page| {
            let folio = part(page);
            let place = folio.head.get();
            let order = folio.order;
            match away {
                true => (page, Entry::Away { place, order }),
                false => (page, Entry::Folio { folio, dirty: false }),
            }
        });
        assert!(self.index.part(at.start, whole, parts));
        self.naive.folios.remove(&at.start);
        if self.naive.away.remove(&at.start) {
            self.naive.away.extend(kept.clone());
        }
        self.naive.folios.extend(kept.map(|page| (page, (part(page), dirty))));
    }

    fn find(&self, page: u64) {
        let (entry, pages) = self.index.find(page);
        let found = entry.has_content().then_some((entry, pages));
        let due = self.naive.at(page).map(|(at, ..)| (self.naive.entry(at.start), at));
        assert_eq!(found, due, "page {page}");
    }

    fn empty(&self, page: u64, most: Order) {
        if self.naive.at(page).is_some() {
            return;
        }
        let is_free = |order: &Order| {
            let block = FilePages::block(page, *order);
            block.start == page && self.naive.next(block, false).is_none()
        };
        let expected = (0..=most.get()).rev().map(Order::new).find(is_free);
        assert_eq!(Some(self.index.empty_order(page, most)), expected, "{page} {most}");
    }
}

fn agrees<A: Arch>(config: Config, ops: &[Op]) {
    let mut ram = Ram::new(1024 << A::PAGE_SHIFT).expect("memory");
    let (machine, run) = Machine::new(config.bare(), &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..run.count()).map(|_| Slot::default()).collect();
    let (mut caches, counters, mut zones) =
        ([CpuCache::new()], [Counters::new()], [Zone::new(run.span())]);
    let parts = Parts::new(run.start(), &mut slots, &mut caches, &counters, &mut zones);
    let mm = Mm::<A, _>::new(&machine, parts).expect("sound");
    mm.add(run).expect("the zone is RAM");
    let free = mm.allocator().free_frames();
    let file = File::new();
    assert!(file.open(Store::Memory, FILE_PAGES_MAX, Order::ZERO));
    let index = Index::new(&machine, mm.allocator().meta(), &file, FileId(0));
    let mut pair = Pair { mm: &mm, index, naive: Naive::default(), heads: 0 };
    ops.iter().for_each(|op| pair.apply(*op));
    let starts: Vec<u64> = pair.naive.folios.keys().copied().collect();
    for start in starts {
        pair.apply(Op::Find { page: start });
        pair.apply(Op::Remove { page: start, note: start % 3 == 0 });
    }
    pair.index.prune(FilePages::new(0, FILE_PAGES_MAX), &mut |run| {
        mm.allocator().free(CpuId::new(0), run)
    });
    file.close();
    assert_eq!(mm.allocator().free_frames(), free, "no node is left");
}

fn random<A: Arch>(config: Config) {
    let cases = Cases { cases: 400, failure_persistence: None, ..Cases::default() };
    let ops = proptest::collection::vec(op(), 1..150);
    let mut runner = TestRunner::new(cases);
    runner
        .run(&ops, |ops| {
            agrees::<A>(config, &ops);
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn b1_the_index_agrees_with_an_ordered_map() {
    random::<X86_64>(Config::x86_64());
}

#[test]
fn b1_the_index_of_large_nodes_agrees_with_an_ordered_map() {
    random::<Arm64k>(Config::arm64_64k());
}

#[test]
fn b1_a_file_that_was_never_open_has_nothing() {
    let file = File::new();
    assert_eq!((file.smallest(), file.pages(), file.store()), (Order::ZERO, 0, None));
    assert!(!file.holds_code());
}
