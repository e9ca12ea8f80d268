//! The gather and its custody. The tables themselves are tested against a naive model in
//! `quire-sim`, which sees only what is public.

use std::vec::Vec;

use quire_arch::{Arch, Attrs, Level, X86_64};
use quire_hw::{FrameRun, Memory, Reuse};
use quire_machine::{Config, Machine, Ram};
use quire_units::{Asid, CpuId, FrameSpan, Order, PageSpan, Pfn, Prot, Vpn};

use super::{Gather, Heritage, Inherit, Lack, Marks, Tables, Target, What};
use crate::folio::{Counts, Folio, Folios, Home};
use crate::phys::{CpuCache, Phys, Slot, Zone};
use crate::sync::Ordering;
use crate::tags::Tag;

const HOME: Home = Home::new(Pfn::new(0), Vpn::new(0));
const CPU: CpuId = CpuId::new(0);
const ALL: PageSpan = PageSpan { start: Vpn::new(0), end: Vpn::new(X86_64::USER_PAGES) };

type Tree<'a, 'r> = Tables<'a, X86_64, Machine<'r>>;

/// Runs `work` on a machine of 8 MiB; nothing is lost in the end.
fn with(work: impl FnOnce(&Machine<'_>, &Phys<'_>)) {
    let mut ram = Ram::new(8 << 20).expect("the host has 8 MiB");
    let (machine, all) = Machine::new(Config::x86_64(), &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..all.count()).map(|_| Slot::empty()).collect();
    let (mut caches, mut zones) = ([CpuCache::new()], [Zone::new(all.span())]);
    let phys = Phys::new(all.start(), &mut slots, &mut caches, &mut zones).expect("sound");
    phys.add(all).expect("the zone has all frames");
    let before = phys.free_frames();
    work(&machine, &phys);
    machine.verdict().unwrap();
    phys.check().expect("every frame has one state");
    assert_eq!(phys.free_frames(), before, "nothing is lost");
}

fn frame(machine: &Machine<'_>, phys: &Phys<'_>) -> FrameRun {
    let run = phys.alloc(CPU, Order::ZERO).expect("RAM is left");
    machine.clear(&run, 0..1, Reuse::Soon);
    run
}

fn tree<'a, 'r>(machine: &'a Machine<'r>, phys: &'a Phys<'_>) -> Tree<'a, 'r> {
    Tables::found(machine, phys.meta(), frame(machine, phys))
}

/// The table of the last level for `page`, made where it is missing.
fn deepen(machine: &Machine<'_>, phys: &Phys<'_>, tables: Tree<'_, '_>, page: Vpn) {
    while !tables.walk(page, Level::LAST).level.is_last() {
        let place = tables.walk(page, Level::LAST);
        tables.link(place, page, frame(machine, phys)).expect("no other CPU links");
    }
}

/// Maps a folio at `page`; the first mapping makes it one, each other adds to its count.
fn map(tables: Tree<'_, '_>, phys: &Phys<'_>, page: Vpn, folio: Folio, run: Option<FrameRun>) {
    match run {
        Some(run) => Folios::new(phys.meta()).adopt_mapped(run, folio.order, HOME),
        None => {
            let counts = &phys.meta().at(folio.head).counts;
            counts.fetch_add(folio.order.pages() << 32, Ordering::Relaxed);
        }
    }
    let locked = tables.lock_lowest(page, Level::LAST);
    let attrs = Attrs::user(Prot::RW) | Attrs::YOUNG | Attrs::DIRTY;
    locked.put(locked.index(page), folio.order.pages() as usize, folio.head, attrs, folio.order);
}

fn folio(phys: &Phys<'_>, order: u8) -> (Folio, FrameRun) {
    let order = Order::new(order);
    let run = phys.alloc(CPU, order).expect("RAM is left");
    (Folio { head: run.start(), order }, run)
}

fn settle(machine: &Machine<'_>, phys: &Phys<'_>, tables: Tree<'_, '_>, mut gather: Gather) -> u64 {
    let tag = Tag::new(Asid(1));
    let target = Target { tag: Some(&tag), root: tables.root() };
    gather.settle(phys, machine, target).frames
}

/// Takes what is left, tables and all.
fn free_tree(machine: &Machine<'_>, phys: &Phys<'_>, tables: Tree<'_, '_>) {
    let mut gather = Gather::new();
    assert_eq!(tables.take(ALL, &mut gather).upto, ALL.end);
    tables.prune(ALL, ALL, &mut gather);
    tables.free_root(&mut gather);
    settle(machine, phys, tables, gather);
}

#[test]
fn i6_a_folio_of_two_trees_is_free_when_both_have_flushed() {
    with(|machine, phys| {
        let (one, other) = (tree(machine, phys), tree(machine, phys));
        let (folio, run) = folio(phys, 4);
        let page = Vpn::new(32);
        for tables in [one, other] {
            deepen(machine, phys, tables, page);
        }
        map(one, phys, page, folio, Some(run));
        map(other, phys, page, folio, None);
        let span = PageSpan::block(page, folio.order);
        let (mut first, mut second) = (Gather::new(), Gather::new());
        one.take(span, &mut first);
        other.take(span, &mut second);
        let counts = Folios::new(phys.meta()).counts(folio);
        assert_eq!(
            counts,
            Counts { refs: 0, pins: 0, mapped: 32 },
            "both mappings count until flushed"
        );
        assert_eq!(settle(machine, phys, other, second), 0);
        assert_eq!(settle(machine, phys, one, first), 16);
        free_tree(machine, phys, one);
        free_tree(machine, phys, other);
    });
}

#[test]
fn i6_a_folio_unmapped_in_parts_is_free_with_the_last() {
    with(|machine, phys| {
        let tables = tree(machine, phys);
        let (folio, run) = folio(phys, 4);
        deepen(machine, phys, tables, Vpn::new(16));
        map(tables, phys, Vpn::new(16), folio, Some(run));
        let part = |from: u64, to: u64| PageSpan::new(Vpn::new(16 + from), Vpn::new(16 + to));
        for (span, freed) in [(part(3, 9), 0), (part(12, 16), 0), (part(0, 16), 16)] {
            let mut gather = Gather::new();
            tables.take(span, &mut gather);
            assert_eq!(settle(machine, phys, tables, gather), freed, "{span:?}");
        }
        free_tree(machine, phys, tables);
    });
}

/// Maps 128 folios of one page that have another holder, their frames ascending or descending, and
/// takes them out again. Returns how many gathers that took.
fn gathers_of_shared(descending: bool) -> usize {
    let mut rounds = 0;
    with(|machine, phys| {
        let tables = tree(machine, phys);
        deepen(machine, phys, tables, Vpn::new(0));
        let (block, run) = folio(phys, 7);
        Folios::new(phys.meta()).adopt_mapped(run, Order::ZERO, HOME);
        for page in 0..128 {
            let frame = if descending { 127 - page } else { page };
            let one = Folio { head: block.head.add(frame), order: Order::ZERO };
            Folios::new(phys.meta()).get(one);
            let locked = tables.lock_lowest(Vpn::new(page), Level::LAST);
            let attrs = Attrs::user(Prot::RW) | Attrs::YOUNG;
            locked.put(page as usize, 1, one.head, attrs, Order::ZERO);
        }
        let mut left = PageSpan::new(Vpn::new(0), Vpn::new(128));
        while !left.is_empty() {
            let mut gather = Gather::new();
            let took = tables.take(left, &mut gather);
            assert!(took.upto > left.start && !took.straddles);
            left = PageSpan::new(took.upto, left.end);
            assert_eq!(settle(machine, phys, tables, gather), 0, "others hold them");
            rounds += 1;
        }
        for frame in 0..128 {
            let one = Folio { head: block.head.add(frame), order: Order::ZERO };
            let run = Folios::new(phys.meta()).put(one).expect("the last hold");
            phys.free(CPU, run);
        }
        free_tree(machine, phys, tables);
    });
    rounds
}

#[test]
fn i6_a_full_gather_stops_and_the_next_goes_on() {
    assert!(gathers_of_shared(true) > 1, "many shared runs fill a gather");
}

#[test]
fn i6_a_run_of_shared_folios_is_one_entry_of_a_gather() {
    assert_eq!(gathers_of_shared(false), 1);
}

#[test]
fn c3_markers_are_forked_and_moved_by_runs() {
    with(|machine, phys| {
        let (tables, child) = (tree(machine, phys), tree(machine, phys));
        let marks = [Marks { first: 7, ascending: true }, Marks { first: 7, ascending: false }];
        let spans = [(10, 300), (300, 700)].map(|(a, b)| PageSpan::new(Vpn::new(a), Vpn::new(b)));
        for (mut span, mut marks) in spans.into_iter().zip(marks) {
            let mut spare = None;
            while tables.mark(&mut span, &mut marks, &mut spare) == Err(Lack::Table) {
                spare = Some(frame(machine, phys));
            }
        }
        let heard = |tables: Tree<'_, '_>| {
            let mut heard = Vec::new();
            tables.tell(ALL, |pages, _, what| {
                let What::Marker(marks) = what else { panic!("{what:?}") };
                heard.push((pages.start.get(), pages.count(), marks));
            });
            heard
        };
        let told = [(10, 290, marks[0]), (300, 212, marks[1]), (512, 188, marks[1])];
        assert_eq!(heard(tables), told, "a run ends with its table");

        let (mut span, mut spare, mut done) = (ALL, None, 0);
        let mut gather = Gather::new();
        let how = Inherit::Private;
        loop {
            let (spare, gather, done) = (&mut spare, &mut gather, &mut done);
            let lend_marks = &|marks, _| marks;
            let mut with = Heritage { how, spare, gather, done, lend_marks };
            if tables.fork(&child, &mut span, &mut with).is_ok() {
                break;
            }
            *with.spare = Some(frame(machine, phys));
        }
        assert_eq!((heard(child), done), (told.to_vec(), 690));
        assert!(gather.is_empty(), "no CPU can hold a translation of a marker");

        let from = PageSpan::new(Vpn::new(0), Vpn::new(1024));
        let (mut left, to) = (from, Vpn::new(5000));
        while tables.prepare_move(&mut left, from.start, to, &mut spare, &mut gather).is_err() {
            spare = Some(frame(machine, phys));
        }
        tables.move_entries(from, to, &mut gather);
        settle(machine, phys, tables, gather);
        let moved = [(5010, 110, 7, true), (5120, 180, 117, true), (5300, 332, 7, false)];
        let moved =
            moved.map(|(page, count, first, ascending)| (page, count, Marks { first, ascending }));
        assert_eq!(heard(tables)[..3], moved);
        if let Some(run) = spare {
            phys.free(CPU, run);
        }
        free_tree(machine, phys, tables);
        free_tree(machine, phys, child);
    });
}

#[test]
fn e2_a_map_finds_room_only_where_there_is() {
    with(|machine, phys| {
        let tables = tree(machine, phys);
        deepen(machine, phys, tables, Vpn::new(0));
        // An empty lower table stands where one larger leaf would fit.
        let mut span = PageSpan::new(Vpn::new(0), Vpn::new(512));
        let mut next = quire_units::Pfn::new(1 << 20);
        let attrs = Attrs::user(Prot::READ);
        assert_eq!(tables.map(&mut span, &mut next, attrs, &mut None), Ok(()));
        let mut again = PageSpan::new(Vpn::new(511), Vpn::new(513));
        let taken = tables.map(&mut again, &mut next, attrs, &mut None);
        assert_eq!(taken, Err(Lack::Room(Vpn::new(511))));
        let mut told = Vec::new();
        tables.tell(PageSpan::new(Vpn::new(7), Vpn::new(9)), |pages, level, what| {
            let What::Leaf { frame, .. } = what else { panic!("{what:?}") };
            told.push((pages, level, frame.get()));
        });
        let span = PageSpan::new(Vpn::new(7), Vpn::new(9));
        assert_eq!(told, [(span, Level::LAST, (1 << 20) + 7)]);
        free_tree(machine, phys, tables);
    });
}

#[test]
fn a_table_that_left_its_tree_is_known_to_be_zero_and_is_zero() {
    with(|machine, phys| {
        let tables = tree(machine, phys);
        let page = Vpn::new(32);
        deepen(machine, phys, tables, page);
        let table = tables.walk(page, Level::LAST).frame;
        let (folio, run) = folio(phys, 4);
        map(tables, phys, page, folio, Some(run));
        let span = PageSpan::block(page, folio.order);
        let mut gather = Gather::new();
        tables.take(span, &mut gather);
        tables.prune(ALL, ALL, &mut gather);
        settle(machine, phys, tables, gather);
        phys.drain();
        for (frame, zeroed) in [(table, true), (folio.head, false)] {
            let run = phys.take_exact(FrameSpan::new(frame, 1)).expect("it is free");
            assert_eq!(run.is_zeroed(), zeroed, "{frame}");
            assert!(!zeroed || (0..512).all(|at| machine.load(frame, at) == 0), "{frame}");
            phys.free(CPU, run);
        }
        free_tree(machine, phys, tables);
    });
}

#[test]
fn looking_for_empty_tables_skips_what_is_absent_and_misses_none() {
    with(|machine, phys| {
        let tables = tree(machine, phys);
        let before = phys.free_frames();
        let far = [0, 1 << 9, 511 << 9, 1 << 18, (1 << 18) + (300 << 9), 255 << 27].map(Vpn::new);
        for page in far {
            deepen(machine, phys, tables, page);
        }
        assert!(phys.free_frames() < before);
        let mut gather = Gather::new();
        tables.prune(ALL, ALL, &mut gather);
        settle(machine, phys, tables, gather);
        assert_eq!(phys.free_frames(), before, "all tables but the root are free");
        free_tree(machine, phys, tables);
    });
}
