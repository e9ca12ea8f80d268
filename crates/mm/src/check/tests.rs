//! The walkers must find damage: each test breaks a claim by hand, and the walker names it.

use std::vec::Vec;

use quire_arch::{Arch, Attrs, Level, X86_64};
use quire_hw::Memory;
use quire_machine::{Config, Machine, Ram};
use quire_units::{Asid, CpuId, Order, PageSpan, Prot, Vpn};

use super::{ExtentViolation, Miscount, Violation, extents, space, system};
use crate::folio::{Folio, Folios};
use crate::mm::{Mm, Parts};
use crate::phys::{CpuCache, Kind, Slot, State, Zone};
use crate::space::{At, Request, Space};
use crate::stats::Counters;
use crate::sync::Ordering;
use crate::table::What;

type MachineMm<'m, 'r> = Mm<'m, X86_64, Machine<'r>>;

const START: Vpn = Vpn::new(1024);
const BLOCK: Order = Order::new(9);

/// Runs `test` on a space with 1024 pages, of which the first block is one large leaf, and page
/// 600 is mapped by itself.
fn with(test: impl FnOnce(&MachineMm<'_, '_>, &Space<X86_64>)) {
    let mut ram = Ram::new(8 << 20).expect("the host has 8 MiB");
    let config = Config::x86_64().bare();
    let (machine, run) = Machine::new(config, &mut ram).expect("a valid preset");
    let mut slots: Vec<Slot> = (0..run.count()).map(|_| Slot::default()).collect();
    let mut caches = [CpuCache::new()];
    let counters = [Counters::new()];
    let mut zones = [Zone::new(run.span())];
    let parts = Parts::new(run.start(), &mut slots, &mut caches, &counters, &mut zones);
    let mm = Mm::<X86_64, _>::new(&machine, parts).expect("sound");
    mm.add(run).expect("the zone is RAM");
    let window = PageSpan::new(START, START.add(2048));
    let own = mm.space(Asid(1), window).expect("there is memory");
    mm.map(&own, &Request::anon(1024).at(At::Fixed(START))).expect("there is room");
    mm.policy().set_size(BLOCK, crate::fault::SizePolicy::Always).expect("a size");
    mm.fault(&own, START, quire_units::Access::Write).expect("there is memory");
    mm.policy().set_size(BLOCK, crate::fault::SizePolicy::Never).expect("a size");
    mm.fault(&own, START.add(600), quire_units::Access::Write).expect("there is memory");
    let totals = system(&mm, &[&own]).expect("nothing is broken yet");
    assert_eq!((totals.held, totals.mapped, totals.folios), (0, 513, 2));
    test(&mm, &own);
}

/// The entry that maps `page`, and the folio behind it.
fn leaf_of(mm: &MachineMm<'_, '_>, own: &Space<X86_64>, page: Vpn) -> (u64, Folio) {
    let place = mm.base().view(own).tables().walk(page, Level::LAST);
    let quire_arch::Entry::Leaf { frame, .. } = X86_64::decode(place.word, place.level) else {
        panic!("{page} is not mapped");
    };
    (place.word, Folios::new(mm.allocator().meta()).of(frame).expect("a folio"))
}

/// Changes the word that maps `page` behind the library's back.
fn forge(mm: &MachineMm<'_, '_>, own: &Space<X86_64>, page: Vpn, word: u64) {
    let place = mm.base().view(own).tables().walk(page, Level::LAST);
    let lock =
        mm.allocator().meta().lock(place.frame).and_then(|lock| lock.words()).expect("a table");
    mm.hardware().fill(lock.words(), X86_64::index(page, place.level), 1, word, 0);
}

#[test]
fn i7_a_leaf_without_an_area_is_found() {
    with(|mm, own| {
        let span = PageSpan::new(START.add(600), START.add(601));
        let view = mm.base().view(own);
        let writer = own.areas.writer(view.hw, view.meta);
        let _ = writer.stock(mm.allocator().alloc(CpuId::new(0), Order::ZERO).expect("memory"));
        let _ = writer.stock(mm.allocator().alloc(CpuId::new(0), Order::ZERO).expect("memory"));
        writer.cut(span).expect("stocked");
        drop(writer);
        assert_eq!(space(mm, own), Err(Violation::Area(span)));
    });
}

#[test]
fn i7_a_leaf_across_two_areas_is_found() {
    with(|mm, own| {
        let view = mm.base().view(own);
        let writer = own.areas.writer(view.hw, view.meta);
        let span = PageSpan::new(START.add(100), START.add(600));
        while writer.lacks(2) > 0 {
            let _ = writer.stock(mm.allocator().alloc(CpuId::new(0), Order::ZERO).expect("memory"));
        }
        writer.update(span, |area| crate::space::Area { prot: Prot::RX, ..area }).expect("stocked");
        drop(writer);
        let pages = PageSpan::block(START, BLOCK);
        assert_eq!(space(mm, own), Err(Violation::Area(pages)));
    });
}

#[test]
fn i7_rights_beyond_the_areas_are_found_and_fewer_are_counted() {
    with(|mm, own| {
        let page = START.add(600);
        let (_, folio) = leaf_of(mm, own, page);
        let with = |attrs| X86_64::leaf(folio.head, Level::LAST, attrs | Attrs::YOUNG);
        let word = |prot| with(Attrs::user(prot));
        forge(mm, own, page, word(Prot::all()));
        assert!(matches!(space(mm, own), Err(Violation::Rights { page: at, .. }) if at == page));
        forge(mm, own, page, with(Attrs::READ));
        assert!(matches!(space(mm, own), Err(Violation::Rights { page: at, .. }) if at == page));
        forge(mm, own, page, word(Prot::READ));
        assert_eq!(space(mm, own).map(|report| report.lesser), Ok(1));
    });
}

#[test]
fn i7_a_leaf_to_frames_of_no_folio_is_found() {
    with(|mm, own| {
        let page = START.add(600);
        let pages = PageSpan::new(page, page.add(1));
        let attrs = Attrs::user(Prot::RW) | Attrs::YOUNG;
        let frame = mm.allocator().alloc(CpuId::new(0), Order::ZERO).expect("memory").start();
        forge(mm, own, page, X86_64::leaf(frame, Level::LAST, attrs));
        assert_eq!(space(mm, own), Err(Violation::NotAFolio(pages, frame)));
        let outside = mm.allocator().meta().span().end();
        forge(mm, own, page, X86_64::leaf(outside, Level::LAST, attrs));
        assert_eq!(space(mm, own), Err(Violation::NotAFolio(pages, outside)));
    });
}

#[test]
fn e2_a_table_that_counts_wrong_is_found() {
    with(|mm, own| {
        let table = mm.base().view(own).tables().walk(START.add(600), Level::LAST).frame;
        let slot = mm.allocator().meta().at(table);
        slot.counts.store(2, Ordering::Relaxed);
        assert_eq!(
            space(mm, own),
            Err(Violation::Present(table, Miscount { counted: 2, found: 1 }))
        );
    });
}

#[test]
fn e2_a_table_that_is_another_is_found() {
    with(|mm, own| {
        let frame = mm.base().view(own).tables().walk(START.add(600), Level::LAST).frame;
        let slot = mm.allocator().meta().at(frame);
        let (level, base) = (Level::LAST, START.add(512));
        let expected = Err(Violation::NotTheTable(frame, level, base));
        slot.owner.store(7, Ordering::Relaxed);
        assert_eq!(space(mm, own), expected);
        slot.owner.store(base.get(), Ordering::Relaxed);
        slot.set_state(State::new(Kind::Table, 1));
        assert_eq!(space(mm, own), expected);
        slot.set_state(State::new(Kind::Stray, 0));
        assert_eq!(space(mm, own), expected);
        slot.set_state(State::new(Kind::Table, 0));
        let root = slot.links[0].swap(1, Ordering::Relaxed);
        assert_eq!(space(mm, own), expected);
        slot.links[0].store(root, Ordering::Relaxed);
        assert!(space(mm, own).is_ok());
    });
}

#[test]
fn e2_a_word_that_means_nothing_is_found() {
    with(|mm, own| {
        forge(mm, own, START.add(600), 1 << 2);
        let place = mm.base().view(own).tables().walk(START.add(600), Level::LAST);
        let expected = Violation::Malformed { table: place.frame, index: 88, word: 1 << 2 };
        assert_eq!(space(mm, own), Err(expected));
    });
}

#[test]
fn i12_a_folio_that_counts_wrong_is_found_and_left_as_it_was() {
    with(|mm, own| {
        let (_, folio) = leaf_of(mm, own, START.add(3));
        assert_eq!(folio.order, BLOCK);
        let counts = &mm.allocator().meta().at(folio.head).counts;
        for counted in [511_u32, 513, 1] {
            counts.store((counted as u64) << 32, Ordering::Relaxed);
            let expected =
                Violation::Mapped(folio, Miscount { counted: counted.into(), found: 512 });
            assert_eq!(system(mm, &[own]), Err(expected));
            assert_eq!(counts.load(Ordering::Relaxed), (counted as u64) << 32);
        }
        counts.store(512 << 32 | 3, Ordering::Relaxed);
        assert_eq!(system(mm, &[own]).map(|totals| totals.pinned), Ok(1));
        counts.store(0, Ordering::Relaxed);
        assert_eq!(system(mm, &[own]), Err(Violation::Unheld(folio)));
    });
}

#[test]
fn e1_frames_lost_or_owned_twice_are_found() {
    with(|mm, own| {
        let lost = mm.allocator().alloc(CpuId::new(0), Order::new(3)).expect("memory");
        assert_eq!(system(mm, &[own]).map(|totals| totals.held), Ok(8));
        mm.allocator().free(CpuId::new(0), lost);
        assert_eq!(system(mm, &[own]).map(|totals| totals.held), Ok(0));

        let (_, folio) = leaf_of(mm, own, START);
        let frame = folio.head.add(5);
        let slot = mm.allocator().meta().at(frame);
        slot.set_state(State::new(Kind::Node, 0));
        let inside = Violation::Inside(folio, frame, Kind::Node);
        assert_eq!(system(mm, &[own]), Err(inside));
        slot.set_state(State::new(Kind::None, 0));

        // Given to the allocator though it is still a folio's.
        mm.allocator()
            .free(CpuId::new(0), mm.allocator().meta().forge(folio.span(), false).split_at(1).1);
        assert!(system(mm, &[own]).is_err());
    });
}

#[test]
fn e1_a_cached_frame_that_is_a_folios_is_found() {
    with(|mm, own| {
        let (_, folio) = leaf_of(mm, own, START);
        let rest = mm.allocator().meta().forge(folio.span(), false).split_at(1).1;
        let (one, _) = rest.split_at(1);
        let frame = one.start();
        // Something else is lost, so that the sum is right.
        let _ = mm.allocator().alloc(CpuId::new(0), Order::ZERO).expect("memory");
        mm.allocator().free(CpuId::new(0), one);
        assert_eq!(system(mm, &[own]), Err(Violation::Cached(frame)));
    });
}

#[test]
fn e1_tables_nodes_and_strays_that_no_space_has_are_found() {
    with(|mm, own| {
        let found = system(mm, &[own]).expect("sound");
        let run = mm.allocator().alloc(CpuId::new(0), Order::ZERO).expect("memory");
        let frame = run.start();
        let slot = mm.allocator().meta().at(frame);
        slot.set_state(State::new(Kind::Table, 0));
        let tables = Violation::Tables(Miscount { counted: found.table + 1, found: found.table });
        assert_eq!(system(mm, &[own]), Err(tables));
        slot.set_state(State::new(Kind::Node, 0));
        let nodes = Violation::Nodes(Miscount { counted: found.node + 1, found: found.node });
        assert_eq!(system(mm, &[own]), Err(nodes));
        slot.set_state(State::new(Kind::Stray, 0));
        assert_eq!(system(mm, &[own]), Err(Violation::Stray(frame)));
        slot.set_state(State::new(Kind::None, 0));
        mm.allocator().free(CpuId::new(0), run);
        // Without its space in the list, its tables and nodes have no owner.
        assert!(matches!(system(mm, &[]), Err(Violation::Tables(Miscount { found: 0, .. }))));
        assert_eq!(system(mm, &[own]), Ok(found));
    });
}

#[test]
fn e2_runs_that_are_told_are_what_the_walker_sees() {
    with(|mm, own| {
        let mut told = Vec::new();
        let all = PageSpan::new(Vpn::new(0), Vpn::new(X86_64::USER_PAGES));
        mm.base().view(own).tables().tell(all, |pages, _, what| {
            if let What::Leaf { frame, .. } = what {
                told.extend((0..pages.count()).map(|at| (pages.start.add(at), frame.add(at))));
            }
        });
        let mut seen = Vec::new();
        super::leaves(mm, own, |leaf| {
            let count = leaf.pages.count();
            seen.extend((0..count).map(|at| (leaf.pages.start.add(at), leaf.frame.add(at))));
        })
        .expect("sound");
        assert_eq!(told, seen);
        assert_eq!(seen.len(), 513);
    });
}

#[test]
#[allow(clippy::reversed_empty_ranges)]
fn i1_extents_that_are_wrong_are_found() {
    assert_eq!(extents(16, 8, &[11..16, 0..6, 6..11]), Ok(()));
    let times = |page, times| Err(ExtentViolation::Times { page, times });
    assert_eq!(extents(16, 8, &[11..16, 0..7, 6..11]), times(6, 2));
    assert_eq!(extents(16, 8, &[11..15, 0..6, 6..11]), times(15, 0));
    assert_eq!(extents(16, 8, &[12..16, 0..6, 6..11]), times(11, 0));
    assert_eq!(extents(16, 8, &[11..17, 0..6, 6..11]), Err(ExtentViolation::Beyond(16)));
    let wrong = |page| Err(ExtentViolation::Neighbourhood(page));
    assert_eq!(extents(16, 8, &[11..16, 6..11, 0..6]), wrong(0));
    assert_eq!(extents(16, 8, &[12..16, 0..6, 6..12]), wrong(11));
    assert_eq!(extents(16, 8, &[11..16, 0..7, 7..11]), wrong(6));
}
