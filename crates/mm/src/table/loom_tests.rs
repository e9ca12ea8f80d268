//! Every interleaving of two CPUs on one table:
//! `RUSTFLAGS="--cfg loom" cargo test -p quire-mm --lib --release loom_`.

use std::boxed::Box;
use std::vec::Vec;

use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use quire_arch::{Arch, Attrs, Level, X86_64};
use quire_hw::{FrameRun, Memory};
use quire_units::{Asid, CpuId, FrameSpan, Order, PageSpan, Pfn, Prot, Vpn};

use super::word::FOREIGN;
use super::{Divided, Division, Gather, Tables, Target, What};
use crate::folio::{Folio, Folios, Home};
use crate::phys::{Kind, Meta, Slot, State};
use crate::space::tree::AreaTree;
use crate::space::{Area, AreaFlags, Backing, Space};
use crate::tags::Tag;

/// Every page.
const ALL: PageSpan = PageSpan { start: Vpn::new(0), end: Vpn::new(u64::MAX) };
const HOME: Home = Home::new(Pfn::new(0), Vpn::new(0));
/// The tables of one tree, one for each level from the root on.
const CHAIN: [Pfn; 4] = [Pfn::new(0), Pfn::new(1), Pfn::new(2), Pfn::new(3)];
const OTHER_ROOT: Pfn = Pfn::new(4);
/// The last two are also a folio.
const FRAMES: usize = 6;
/// As many as a node of three areas has.
const WORDS: usize = 16;

type Board = super::board::Board<FRAMES, WORDS>;

/// A board and its slots, leaked: the model's threads ask for what lives for ever.
fn leaked() -> (&'static Board, Meta<'static>) {
    let slots: Vec<Slot> = (0..FRAMES).map(|_| Slot::default()).collect();
    (Box::leak(Box::new(Board::new())), Meta::new(Pfn::new(0), slots.leak()))
}

fn frame(meta: Meta<'_>, frame: Pfn) -> FrameRun {
    meta.forge(FrameSpan::new(frame, 1), true)
}

/// A tree whose only table of the last level is empty.
fn chain(hw: &'static Board, meta: Meta<'static>) -> Tables<'static, X86_64, Board> {
    let tables = Tables::<X86_64, _>::found(hw, meta, frame(meta, CHAIN[0]));
    for lower in &CHAIN[1..] {
        let place = tables.walk(Vpn::new(0), Level::LAST);
        tables.link(place, Vpn::new(0), frame(meta, *lower)).expect("nothing is there");
    }
    tables
}

#[test]
fn loom_e2_a_lock_finds_that_its_table_is_another_by_now() {
    loom::model(|| {
        let (hw, meta) = leaked();
        let tables = chain(hw, meta);
        let other = Tables::<X86_64, _>::found(hw, meta, frame(meta, OTHER_ROOT));
        let pruner = thread::spawn(move || {
            let span = PageSpan::new(Vpn::new(0), Vpn::new(512));
            let mut gather = Gather::new();
            tables.prune(span, span, &mut gather);
            if !gather.is_empty() {
                // The flush is over, the frame was free, and is a table of another space now: of
                // the same level, and of the same pages there.
                meta.at(CHAIN[3]).set_state(State::new(Kind::None, 0));
                other.adopt(frame(meta, CHAIN[3]), Level::LAST, Vpn::new(0));
            }
            !gather.is_empty()
        });
        let page = Vpn::new(1);
        let place = tables.walk(page, Level::LAST);
        let mapped = tables.lock(place.frame, place.level, page).is_some_and(|locked| {
            let lowest = locked.level() == Level::LAST;
            if lowest {
                locked.put(1, 1, Pfn::new(9), Attrs::user(Prot::RW), Order::ZERO);
            }
            lowest
        });
        let pruned = pruner.join().expect("no thread panics");
        assert!(!(mapped && pruned), "a table with an entry was pruned, or written after");
        assert_eq!(hw.load(CHAIN[3], 1) != 0, mapped);
        let state = meta.at(CHAIN[3]).state();
        assert_eq!((state.kind(), state.order()), (Kind::Table, 0));
        assert_eq!(tables.walk(page, Level::LAST).level.is_last(), !pruned);
    });
}

/// A CPU prunes the table of the first pages, and its frame becomes a table of the same tree again:
/// `level` and `base` say which. Another CPU, which has walked before, locks it for page 1.
fn reused_beside_a_walker(level: Level, base: Vpn) {
    loom::model(move || {
        let (hw, meta) = leaked();
        let tables = chain(hw, meta);
        let page = Vpn::new(1);
        let place = tables.walk(page, Level::LAST);
        let pruner = thread::spawn(move || {
            let span = PageSpan::new(Vpn::new(0), Vpn::new(512));
            let mut gather = Gather::new();
            tables.prune(span, span, &mut gather);
            if !gather.is_empty() {
                meta.at(CHAIN[3]).set_state(State::new(Kind::None, 0));
                tables.adopt(frame(meta, CHAIN[3]), level, base);
            }
            !gather.is_empty()
        });
        let mapped = tables.lock(place.frame, place.level, page).map(|locked| {
            locked.put(1, 1, Pfn::new(9), Attrs::user(Prot::RW), Order::ZERO);
        });
        let pruned = pruner.join().expect("no thread panics");
        assert!(mapped.is_none() || !pruned, "written as the table that it was");
        assert_eq!(hw.load(CHAIN[3], 1) != 0, mapped.is_some());
    });
}

#[test]
fn loom_e2_a_table_that_is_a_neighbour_by_now_is_not_taken_for_what_it_was() {
    reused_beside_a_walker(Level::LAST, Vpn::new(512));
}

#[test]
fn loom_e2_a_table_that_is_one_of_another_level_by_now_is_not_taken_for_what_it_was() {
    reused_beside_a_walker(Level::LAST.parent(), Vpn::new(0));
}

/// Two CPUs prune the only two tables under one: each goes once, and the one above stays sound.
#[test]
fn loom_e2_neighbours_are_pruned_once_each() {
    loom::model(|| {
        let (hw, meta) = leaked();
        let tables = chain(hw, meta);
        let second = Vpn::new(512);
        let place = tables.walk(second, Level::LAST);
        tables.link(place, second, frame(meta, OTHER_ROOT)).expect("nothing is there");
        let hole = PageSpan::new(Vpn::new(0), Vpn::new(1024));
        let prune = move |span: PageSpan| {
            let mut gather = Gather::new();
            tables.prune(span, hole, &mut gather);
            !gather.is_empty()
        };
        let other = thread::spawn(move || prune(PageSpan::new(second, hole.end)));
        let own = prune(PageSpan::new(hole.start, second));
        assert!(own && other.join().expect("no thread panics"), "each has found one");
        let kinds = [CHAIN[3], OTHER_ROOT].map(|frame| meta.at(frame).state().kind());
        assert!(!kinds.contains(&Kind::Table), "{kinds:?} are out of the tree");
        assert_ne!(tables.walk(Vpn::new(1), Level::LAST).level, Level::LAST);
        assert_ne!(tables.walk(second, Level::LAST).level, Level::LAST);
    });
}

#[test]
fn loom_e2_two_links_of_the_same_table_agree_on_one() {
    loom::model(|| {
        let (hw, meta) = leaked();
        let tables = Tables::<X86_64, _>::found(hw, meta, frame(meta, CHAIN[0]));
        let link = move |lower| {
            let place = tables.walk(Vpn::new(0), Level::LAST);
            tables.link(place, Vpn::new(0), frame(meta, lower)).is_ok()
        };
        let other = thread::spawn(move || link(CHAIN[1]));
        let (first, second) = (link(CHAIN[2]), other.join().expect("no thread panics"));
        // The second may have walked after the first linked, and then goes one level down.
        let root = tables.lock(CHAIN[0], X86_64::ROOT, Vpn::new(0)).expect("it is the root");
        assert_eq!(root.present(), 1);
        assert!(first || second);
    });
}

#[test]
fn loom_i6_a_folio_of_two_spaces_is_free_once_and_after_both_flushes() {
    loom::model(|| {
        let (_, meta) = leaked();
        let folio = Folio { head: Pfn::new(2), order: Order::new(1) };
        let folios = Folios::new(meta);
        folios.adopt_mapped(meta.forge(folio.span(), false), folio.order, HOME);
        meta.at(folio.head).counts.fetch_add(2 << 32, Ordering::Relaxed);
        let flushed: &'static [AtomicU64; 2] =
            Box::leak(Box::new([AtomicU64::new(0), AtomicU64::new(0)]));
        // Whether this one freed the folio.
        let drops = move |own: usize| {
            // Relaxed: that the other's flush is seen must follow from the folio's counts.
            let flush = || flushed[own].store(1, Ordering::Relaxed);
            let frees = match Folios::new(meta).retire(folio, 2).is_some() {
                true => {
                    flush();
                    true
                }
                false => {
                    flush();
                    Folios::new(meta).unmap(folio, 2).is_some()
                }
            };
            let all = || flushed.iter().all(|flag| flag.load(Ordering::Relaxed) == 1);
            assert!(!frees || all(), "free before the other's flush");
            frees
        };
        let other = thread::spawn(move || drops(1));
        let freed = [drops(0), other.join().expect("no thread panics")];
        assert_eq!(freed.iter().filter(|freed| **freed).count(), 1);
        assert_eq!(meta.at(folio.head).state().kind(), Kind::None);
    });
}

#[test]
fn loom_c4_a_space_keeps_a_shared_folio_only_after_the_other_is_done_with_it() {
    loom::model(|| {
        let (_, meta) = leaked();
        let folio = Folio { head: Pfn::new(2), order: Order::ZERO };
        let folios = Folios::new(meta);
        folios.adopt_mapped(meta.forge(folio.span(), false), folio.order, HOME);
        assert!(folios.share(folio, 1, true), "it is not pinned");
        let copied: &'static [AtomicU64; 2] =
            Box::leak(Box::new([AtomicU64::new(0), AtomicU64::new(0)]));
        // A write to a page of it by one of two spaces: whether it keeps it, whether it frees it.
        let write = move |own: usize| {
            let folios = Folios::new(meta);
            if folios.is_sole(folio, 1) {
                // Relaxed: that the other's copy is seen must follow from the folio's counts.
                assert_eq!(copied[1 - own].load(Ordering::Relaxed), 1, "written while it is read");
                return (true, false);
            }
            folios.get(folio);
            copied[own].store(1, Ordering::Relaxed);
            let early = folios.unmap(folio, 1).is_some();
            assert!(!early, "it is held");
            (false, folios.put(folio).is_some())
        };
        let other = thread::spawn(move || write(1));
        let ends = [write(0), other.join().expect("no thread panics")];
        let kept = ends.iter().filter(|end| end.0).count();
        let freed = ends.iter().filter(|end| end.1).count();
        assert_eq!(kept + freed, 1, "kept by one, or copied by both and free");
    });
}

#[test]
fn loom_e3_what_a_fault_installs_an_unmap_finds_or_prevents() {
    loom::model(|| {
        let (hw, meta) = leaked();
        let tables = chain(hw, meta);
        let areas: &'static AreaTree<3> = Box::leak(Box::new(AreaTree::new()));
        let span = PageSpan::new(Vpn::new(0), Vpn::new(2));
        let area = Area {
            span,
            prot: Prot::RW,
            max_prot: Prot::RW,
            flags: AreaFlags::empty(),
            backing: Backing::Anon,
        };
        let writer = areas.writer(hw, meta);
        writer.stock(frame(meta, OTHER_ROOT)).expect("there is room for a spare");
        writer.set(area).expect("the place is free");
        drop(writer);
        let unmap = thread::spawn(move || {
            let writer = areas.writer(hw, meta);
            writer.hold(ALL);
            writer.cut(span).expect("nothing has to be split");
            writer.release();
            let mut gather = Gather::new();
            tables.take(span, &mut gather);
        });
        let page = Vpn::new(1);
        if let (Some(_), seq) = areas.reader(hw, meta).next_at_or_after(page) {
            let place = tables.walk(page, Level::LAST);
            let locked = tables.lock(place.frame, place.level, page).expect("no CPU prunes");
            if areas.is_current(seq, ALL) {
                locked.put(1, 1, Pfn::new(9), Attrs::user(Prot::RW) | FOREIGN, Order::ZERO);
            }
        }
        unmap.join().expect("no thread panics");
        assert_eq!(hw.load(CHAIN[3], 1), 0, "mapped where no area is");
    });
}

/// A CPU takes leaves out as reclaim does, and flushes afterwards; a change finds them gone. It
/// must see the flush, or that it has to flush itself.
#[test]
fn loom_i6_a_change_that_finds_a_leaf_gone_sees_the_flush_or_flushes() {
    loom::model(|| {
        let (hw, meta) = leaked();
        let tables = chain(hw, meta);
        let window = PageSpan::new(Vpn::new(0), Vpn::new(512));
        let space: &'static Space<X86_64> =
            Box::leak(Box::new(Space::new(CHAIN[0], Asid(1), window)));
        let page = Vpn::new(1);
        let locked = tables.lock_lowest(page, Level::LAST);
        locked.put(1, 1, OTHER_ROOT, Attrs::user(Prot::RW), Order::ZERO);
        drop(locked);
        let span = PageSpan::block(page, Order::ZERO);
        let folio = Folio { head: OTHER_ROOT, order: Order::ZERO };
        Folios::new(meta).adopt_mapped(meta.forge(folio.span(), false), folio.order, HOME);
        let flushed: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
        let reclaim = thread::spawn(move || {
            let _taking = space.taking();
            let mut gather = Gather::new();
            assert_eq!(tables.detach(span, &mut gather, &|_| true), None);
            // Relaxed: the end of the taking must make this store visible.
            flushed.store(1, Ordering::Relaxed);
            gather.is_empty()
        });
        let mut gather = Gather::new();
        tables.take(span, &mut gather);
        let is_gone = gather.is_empty();
        let is_due = space.is_unflushed();
        if is_gone && !is_due {
            assert_eq!(flushed.load(Ordering::Relaxed), 1, "a CPU still has the translation");
        }
        let others = reclaim.join().expect("no thread panics");
        assert_ne!(is_gone, others, "one of them has it");
        assert!(!space.is_unflushed(), "all is flushed");
    });
}

/// A folio is divided while its pages are shared with a child, both under their table's lock, and
/// while another CPU gives up a reference.
#[test]
fn loom_c3_a_folio_is_divided_before_it_is_shared_or_not_at_all() {
    loom::model(|| {
        let (hw, meta) = leaked();
        let tables = chain(hw, meta);
        let folio = Folio { head: OTHER_ROOT, order: Order::new(1) };
        let page = Vpn::new(2);
        let folios = Folios::new(meta);
        folios.adopt_mapped(meta.forge(folio.span(), false), folio.order, tables.home(page));
        folios.get(folio);
        let locked = tables.lock_lowest(page, Level::LAST);
        locked.put(2, 2, folio.head, Attrs::user(Prot::RW), folio.order);
        drop(locked);
        let fork = thread::spawn(move || {
            let locked = tables.lock_lowest(page, Level::LAST);
            let What::Leaf { .. } = locked.run(2, 4).what else { panic!("it is mapped") };
            Folios::new(meta).share_all(folio.span(), true).0
        });
        let releases = thread::spawn(move || Folios::new(meta).put(folio).is_none());
        let how = Division::Uniform(Order::ZERO);
        let divided = tables.divide(page, how, &mut Gather::new());
        assert_eq!(fork.join().expect("no thread panics"), 2, "all of it is shared");
        assert!(releases.join().expect("no thread panics"), "it is mapped");
        let mapped = |at: u64| {
            folios
                .of(folio.head.add(at))
                .map(|part| (part.order, folios.counts(part).mapped, folios.counts(part).refs))
        };
        match divided {
            Divided::Parts { parts: 2, freed: 0 } => {
                assert_eq!([0, 1].map(mapped), [Some((Order::ZERO, 2, 0)); 2]);
                let homes = [0, 1].map(|at| folios.of(folio.head.add(at)).map(|p| folios.home(p)));
                assert_eq!(homes, [0, 1].map(|at| Some(tables.home(page.add(at)))));
            }
            Divided::Shared => assert_eq!(mapped(0), Some((folio.order, 4, 0))),
            other => panic!("{other:?}"),
        }
    });
}

/// A change without a flush of the CPU that enters beside it: the CPU walks the new words.
#[test]
fn loom_i6_a_cpu_that_enters_beside_a_change_sees_it_or_is_flushed() {
    loom::model(|| {
        let tag: &'static Tag = Box::leak(Box::new(Tag::new(Asid(1))));
        let word: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(1)));
        let cpu = CpuId::new(1);
        let other = thread::spawn(move || {
            tag.join(cpu);
            // The write of the root register.
            fence(Ordering::SeqCst);
            word.load(Ordering::Relaxed)
        });
        word.store(0, Ordering::Relaxed);
        let target = Target { tag: Some(tag), root: CHAIN[0] };
        let flush = target.order(None, false).expect("it has a tag");
        let is_flushed = flush.cpus.contains(cpu);
        let seen = other.join().expect("no thread panics");
        assert!(seen == 0 || is_flushed, "it uses what is gone");
    });
}
