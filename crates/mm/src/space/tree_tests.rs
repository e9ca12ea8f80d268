//! Areas and their tree from inside: damage, garbage, races. `quire-sim` compares the answers of
//! the tree with a naive model.

use std::vec::Vec;

use quire_units::{PageSpan, Pfn, Prot, Vpn};

use super::area::{Area, AreaFlags, Backing, FileId};
use super::tree::{AreaTree, Entry, TreeWriter};
use super::words_tests::{FIRST, Ram, Words};
use crate::sync::Ordering;

fn span(start: u64, end: u64) -> PageSpan {
    PageSpan::new(Vpn::new(start), Vpn::new(end))
}

/// An anonymous area; `kind` makes it differ from others.
fn area(start: u64, end: u64, kind: u32) -> Area {
    Area {
        span: span(start, end),
        prot: Prot::READ,
        max_prot: Prot::RW,
        flags: AreaFlags::from_bits_truncate(kind),
        backing: Backing::Anon,
    }
}

/// A writer that has all of the RAM in stock.
fn rich_writer<'a, const CAP: usize>(
    tree: &'a AreaTree<CAP>,
    ram: &'a Ram,
) -> TreeWriter<'a, Words, CAP> {
    let writer = tree.writer(&ram.hw, ram.meta());
    assert!(writer.stock(ram.run()).is_ok());
    writer
}

#[cfg(not(loom))]
mod plain {
    use super::super::tree::{EditError, Miscount, TreeViolation};
    use super::*;
    use crate::phys::Kind;
    use proptest::prelude::*;
    use quire_units::Order;
    use std::sync::atomic::AtomicBool;

    fn any_area() -> impl Strategy<Value = Area> {
        let backing = prop_oneof![
            Just(Backing::Anon),
            (0..1u32 << 24, 0..1u64 << 60)
                .prop_map(|(id, page)| Backing::File { id: crate::space::FileId(id), page }),
        ];
        (0..1u64 << 52, 1..1u64 << 40, 0..8u8, 0..8u8, any::<u32>(), backing).prop_map(
            |(start, count, prot, most, flags, backing)| Area {
                span: span(start, start + count),
                prot: Prot::from_bits_truncate(prot),
                max_prot: Prot::from_bits_truncate(most),
                flags: AreaFlags::from_bits_truncate(flags),
                backing,
            },
        )
    }

    proptest! {
        #[test]
        fn e3_area_packs_without_loss(area in any_area()) {
            prop_assert_eq!(Area::unpack(area.pack()), Some(area));
        }

        #[test]
        fn e3_words_that_unpack_are_the_area_that_packs_to_them(
            words in any::<[u64; 4]>(),
            few in any::<[u8; 4]>(),
        ) {
            for words in [words, few.map(u64::from)] {
                if let Some(area) = Area::unpack(words) {
                    prop_assert!(area.is_well_formed());
                    prop_assert_eq!(area.pack(), words);
                }
            }
        }

        #[test]
        fn e3_parts_of_an_area_merge_back(
            area in any_area(),
            at in any::<u64>(),
            far in any::<u64>(),
        ) {
            let page = Vpn::new(area.span.start.get() + at % area.span.count());
            let (head, tail) = area.split_at(page);
            prop_assert_eq!(tail.backing, area.backing_of(page));
            prop_assert_eq!(area.clipped(tail.span), tail);
            prop_assert!(head.can_merge(&tail));
            prop_assert_eq!(head.span.count() + tail.span.count(), area.span.count());
            let other = Area { flags: area.flags.symmetric_difference(AreaFlags::HUGE), ..tail };
            prop_assert!(!head.can_merge(&other));
            let (head, tail) = area.split_at(Vpn::new(far));
            prop_assert_eq!(head.span.count() + tail.span.count(), area.span.count());
        }

        /// Nodes of random words: every call of a reader returns.
        #[test]
        fn e3_reading_garbage_terminates(
            seed in any::<u64>(),
            small in any::<bool>(),
            pages in prop::collection::vec(any::<u64>(), 8),
        ) {
            let ram = Ram::new(64, 512);
            let tree = AreaTree::<3>::new();
            let writer = rich_writer(&tree, &ram);
            (0..40).for_each(|at| writer.set(area(at * 4, at * 4 + 2, 0)).expect("stocked"));
            let mut state = seed | 1;
            for word in &ram.hw.ram {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                word.store(if small { state >> 57 } else { state }, Ordering::Relaxed);
            }
            let reader = tree.reader(&ram.hw, ram.meta());
            for page in pages.into_iter().flat_map(|page| [page, page >> 57]).map(Vpn::new) {
                reader.lookup(page);
                reader.next_at_or_after(page);
                let (within, order) = (span(page.get() >> 1, page.get()), Order::new(3));
                reader.find_gap(1 + (page.get() & 7), order, within);
                reader.find_gap(page.get(), Order::new(63), span(0, !0));
                reader.overlapping(within).take(100).count();
            }
        }
    }

    fn deep<const CAP: usize>(count: u64, step: impl Fn(u64) -> u64) -> usize {
        let ram = Ram::new(4096, 512);
        let tree = AreaTree::<CAP>::new();
        let writer = rich_writer(&tree, &ram);
        for at in (0..count).map(&step) {
            writer.set(area(at * 4 + 1, at * 4 + 3, 0)).expect("stocked");
        }
        let stats = writer.check_merged().expect("sound");
        assert_eq!(stats.areas, count);
        assert_eq!(stats.nodes as usize + writer.spares(), 4096);
        let reader = writer.reader();
        for at in 0..count {
            assert_eq!(reader.lookup(Vpn::new(at * 4)).0, None);
            assert_eq!(
                reader.lookup(Vpn::new(at * 4 + 2)).0,
                Some(area(at * 4 + 1, at * 4 + 3, 0))
            );
        }
        let all = span(0, count * 4);
        let find = |pages| reader.find_gap(pages, Order::ZERO, all).0;
        let last = count * 4 - 4;
        assert_eq!(find(2), Some(span(last - 1, last + 1)));
        assert_eq!(find(3), None);
        for at in (0..count).map(&step).filter(|at| at % 16 != 0) {
            writer.cut(span(at * 4, at * 4 + 4)).expect("stocked");
            if at % 7 == 0 {
                writer.check().expect("sound");
            }
        }
        writer.cut(span(0, u64::MAX)).expect("stocked");
        assert_eq!(writer.check().map(|stats| stats.nodes), Ok(0));
        assert_eq!(writer.spares(), 4096);
        stats.depth
    }

    #[test]
    fn e3_thousands_of_areas_in_any_order() {
        let scattered = |at| at * 1_237 % 4_999;
        assert!(deep::<3>(1_999, |at| at) >= 7);
        assert!(deep::<4>(1_999, |at| 1_998 - at) >= 6);
        assert!(deep::<5>(4_999, scattered) >= 6);
        assert_eq!(deep::<127>(10_000, |at| 9_999 - at), 2);
        assert_eq!(deep::<127>(10_000, |at| at), 2);
        deep::<127>(4_999, scattered);
    }

    #[test]
    fn e3_insertions_need_no_more_nodes_than_asked_for() {
        fn fill<const CAP: usize>(chain: usize) {
            let ram = Ram::new(2048, 512);
            let tree = AreaTree::<CAP>::new();
            let writer = tree.writer(&ram.hw, ram.meta());
            let mut left = ram.run();
            for at in 0..600u64 {
                if (at as usize).is_multiple_of(chain) {
                    let lacks = writer.lacks(chain) as u64;
                    let (stock, rest) = left.split_at(lacks);
                    left = rest;
                    assert!(writer.stock(stock).is_ok());
                    assert_eq!(writer.lacks(chain), 0);
                }
                // `set` asks for itself; here the chain was asked for as one.
                let area = area(at * 97 % 600 * 2, at * 97 % 600 * 2 + 1, 0);
                writer.change(|| writer.add(&Entry::of(&area)));
            }
            assert_eq!(writer.check().map(|stats| stats.areas), Ok(600));
        }
        fill::<3>(1);
        fill::<3>(50);
        fill::<4>(7);
        fill::<7>(100);
        fill::<127>(600);
    }

    #[test]
    fn e3_refused_changes_change_nothing() {
        let ram = Ram::new(8, 512);
        let tree = AreaTree::<3>::new();
        let writer = tree.writer(&ram.hw, ram.meta());
        assert_eq!(writer.set(area(0, 2, 0)), Err(EditError::Lacks(1)));
        let (one, rest) = ram.run().split_at(1);
        assert!(writer.stock(one).is_ok());
        writer.set(area(0, 9, 0)).expect("stocked");
        let seq = writer.reader().lookup(Vpn::new(0)).1;
        assert_eq!(writer.cut(span(3, 4)), Err(EditError::Lacks(2)));
        assert_eq!(writer.replace(area(3, 4, 1)), Err(EditError::Lacks(5)));
        assert_eq!(writer.update(span(3, 4), |_| panic!("asked")), Err(EditError::Lacks(5)));
        assert_eq!(writer.set(area(8, 10, 1)), Err(EditError::Occupied(area(0, 9, 0))));
        assert_eq!(writer.set(area(9, 9, 1)), Err(EditError::Malformed(area(9, 9, 1))));
        assert!(tree.is_current(seq, all()));
        assert!(writer.stock(rest).is_ok());
        writer.cut(span(3, 4)).expect("stocked");
        assert!(!tree.is_current(seq, all()));
    }

    #[test]
    fn e3_pages_of_files_that_leave_the_tree_are_told_of_once() {
        let ram = Ram::new(40, 512);
        let tree = AreaTree::<3>::new();
        let writer = rich_writer(&tree, &ram);
        let file = Backing::File { id: FileId(7), page: 3 };
        for at in 0..6 {
            writer.set(area(20 * at, 20 * at + 10, at as u32)).expect("stocked");
        }
        writer.set(Area { backing: file, ..area(30, 40, 0) }).expect("stocked");
        writer.update(span(0, 40), |area| area).expect("stocked");
        writer.cut(span(0, 30)).expect("stocked");
        writer.replace(area(40, 45, 1)).expect("stocked");
        assert!(!tree.take_hid(), "the file's pages stay");
        writer.cut(span(34, 36)).expect("stocked");
        assert!(tree.take_hid() && !tree.take_hid());
        writer.replace(area(39, 41, 2)).expect("stocked");
        assert!(tree.take_hid());
        writer.cut(span(0, 120)).expect("stocked");
        assert!(tree.take_hid());
        assert_eq!(tree.count(), 0);
    }

    /// Random changes on few pages, so that there are nodes without gaps, at all fills.
    fn change_at_random<const CAP: usize>(mut seed: u64) {
        let ram = Ram::new(400, 512);
        let tree = AreaTree::<CAP>::new();
        let writer = rich_writer(&tree, &ram);
        let mut model = [None; 300];
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 11) % below
        };
        for _ in 0..2000 {
            let (start, kind) = (random(300), random(3) as u32);
            let most = if random(10) == 0 { 200 } else { 12 };
            let end = (start + 1 + random(most)).min(300);
            let part = &mut model[start as usize..end as usize];
            match random(4) {
                0 => {
                    writer.cut(span(start, end)).expect("stocked");
                    part.fill(None);
                }
                1 if part.iter().any(Option::is_some) => {
                    assert!(writer.set(area(start, end, kind)).is_err());
                }
                2 => {
                    let update = |old| Area { flags: area(0, 1, kind).flags, ..old };
                    writer.update(span(start, end), update).expect("stocked");
                    part.iter_mut().flatten().for_each(|old| *old = kind);
                }
                _ => {
                    writer.replace(area(start, end, kind)).expect("stocked");
                    part.fill(Some(kind));
                }
            }
            writer.check_merged().expect("sound");
            let at = |page| Some(writer.reader().lookup(Vpn::new(page)).0?.flags.bits());
            assert!((0..300).all(|page| at(page) == model[page as usize]));
        }
    }

    #[test]
    fn e3_random_changes_leave_a_sound_tree_of_the_same_pages() {
        for seed in 1..8 {
            change_at_random::<3>(seed);
            change_at_random::<4>(seed);
            change_at_random::<9>(seed);
        }
    }

    /// Appends areas to one tree, and sets them in another: they become the same. Some meet and can
    /// join.
    fn append<const CAP: usize>(steps: &[(u64, u64, u32)]) {
        let (one, other) = (Ram::new(2048, 512), Ram::new(2048, 512));
        let trees = [AreaTree::<CAP>::new(), AreaTree::<CAP>::new()];
        let (set, appended) = (rich_writer(&trees[0], &one), rich_writer(&trees[1], &other));
        let mut at = 0;
        for &(gap, pages, kind) in steps {
            let area = area(at + gap, at + gap + pages, kind);
            set.set(area).expect("stocked");
            appended.append(area).expect("stocked");
            at = area.span.end.get();
        }
        appended.check_merged().expect("sound");
        assert_eq!(set.check().unwrap().areas, appended.check().unwrap().areas);
        let areas = |writer: &TreeWriter<'_, Words, CAP>| {
            writer.reader().overlapping(span(0, at + 1)).collect::<Vec<_>>()
        };
        assert_eq!(areas(&set), areas(&appended));
        let occupied = appended.append(area(at - 1, at + 1, 0));
        assert!(matches!(occupied, Err(EditError::Occupied(_))), "{occupied:?}");
        for largest in [1, 3, 8] {
            let gap = |writer: &TreeWriter<'_, Words, CAP>| {
                writer.reader().find_gap(largest, Order::ZERO, span(0, at)).0
            };
            assert_eq!(gap(&set), gap(&appended), "{largest} pages");
        }
    }

    proptest! {
        #[test]
        fn e3_areas_that_are_appended_are_as_if_set(
            steps in proptest::collection::vec((0..4u64, 1..4u64, 0..3u32), 1..120),
        ) {
            append::<3>(&steps);
            append::<4>(&steps);
            append::<127>(&steps);
        }
    }

    /// Every page.
    fn all() -> PageSpan {
        PageSpan::new(Vpn::new(0), Vpn::new(u64::MAX))
    }

    #[test]
    fn e3_no_reading_is_current_while_the_tree_is_held() {
        let ram = Ram::new(4, 512);
        let tree = AreaTree::<4>::new();
        let writer = rich_writer(&tree, &ram);
        let seq = writer.reader().lookup(Vpn::new(0)).1;
        assert!(tree.is_current(seq, all()));
        writer.hold(all());
        let later = writer.reader().lookup(Vpn::new(0)).1;
        assert!(!tree.is_current(seq, all()) && !tree.is_current(later, all()));
        writer.release();
        writer.hold(span(10, 20));
        for (pages, free) in [(span(0, 10), true), (span(20, 30), true), (span(19, 30), false)] {
            assert_eq!(tree.is_current(seq, pages), free, "{pages:?}");
        }
        writer.release();
        assert!(tree.is_current(seq, all()), "nothing changed meanwhile");
        writer.hold(all());
        drop(writer);
        assert!(tree.is_current(seq, all()), "the end of the writer ends the hold");
    }

    #[test]
    fn e3_foreign_frames_are_not_stocked() {
        let (ram, other) = (Ram::new(2, 512), Ram::new(4, 512));
        let tree = AreaTree::<3>::new();
        let writer = tree.writer(&ram.hw, ram.meta());
        assert_eq!(writer.stock(other.run()).expect_err("too many").count(), 4);
        assert!(writer.unstock().is_none());
    }

    /// Each kind of damage, made on purpose, is found and named.
    #[test]
    fn e3_the_walker_sees_damage() {
        let ram = Ram::new(64, 512);
        let tree = AreaTree::<4>::new();
        let writer = rich_writer(&tree, &ram);
        (0..20).for_each(|at| writer.set(area(at * 4, at * 4 + 2, 0)).expect("stocked"));
        writer.check().expect("sound");
        let nodes = (0..64).map(|at| FIRST.add(at));
        let used = |frame: &Pfn| ram.hw.word(*frame, 0).load(Ordering::Relaxed) <= 4;
        let mut seen = [0; 6];
        for (frame, index) in nodes.filter(used).flat_map(|f| (0..17).map(move |i| (f, i))) {
            let word = ram.hw.word(frame, index);
            let old = word.load(Ordering::Relaxed);
            for new in [old.wrapping_add(1), old.wrapping_sub(1), 1, 0, !0] {
                word.store(new, Ordering::Relaxed);
                match writer.check() {
                    Ok(_) => seen[0] += 1,
                    Err(TreeViolation::NotANode(_)) => seen[1] += 1,
                    Err(TreeViolation::Fill(..)) => seen[2] += 1,
                    Err(TreeViolation::NotAnArea(..)) => seen[3] += 1,
                    Err(TreeViolation::Order(..)) => seen[4] += 1,
                    Err(TreeViolation::Summary { .. }) => seen[5] += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            word.store(old, Ordering::Relaxed);
        }
        assert!(seen[1..].iter().all(|count| *count > 0), "{seen:?}");
        writer.check().expect("sound again");
        writer.counted(1);
        let count = TreeViolation::Count(Miscount { counted: 21, found: 20 });
        assert_eq!(writer.check(), Err(count));
        writer.counted(-1);
        let spare = writer.take().expect("some are left");
        ram.meta().slot(spare).expect("on record").links[0].store(0, Ordering::Relaxed);
        writer.give(spare);
        ram.meta().slot(spare).expect("on record").links[0].store(0, Ordering::Relaxed);
        assert!(matches!(writer.check(), Err(TreeViolation::Spares(Miscount { found: 1, .. }))));
    }

    #[test]
    fn e3_raw_neighbours_that_could_merge_are_named() {
        let ram = Ram::new(8, 512);
        let tree = AreaTree::<4>::new();
        let writer = rich_writer(&tree, &ram);
        for (start, end) in [(0, 2), (2, 4)] {
            writer.change(|| writer.add(&Entry::of(&area(start, end, 0))));
        }
        assert!(writer.check().is_ok());
        assert_eq!(writer.check_merged(), Err(TreeViolation::Unmerged(area(2, 4, 0))));
    }

    #[test]
    fn e3_nodes_are_on_record_while_the_tree_has_them() {
        let ram = Ram::new(3, 512);
        let tree = AreaTree::<4>::new();
        let writer = rich_writer(&tree, &ram);
        let kinds = || ram.slots.iter().filter(|slot| slot.state().kind() == Kind::Node).count();
        assert_eq!(kinds(), 3);
        let frame = writer.unstock().expect("a spare");
        assert_eq!((kinds(), frame.count()), (2, 1));
    }

    /// One writer turns the world between states, each of which readers can tell from a mixture:
    /// all areas of a state carry its number. Freed nodes are scribbled over at once, as their
    /// next owner would.
    #[test]
    fn e3_readers_see_whole_states_only() {
        const ROUNDS: u64 = if cfg!(miri) { 20 } else { 3_000 };
        let ram = Ram::new(256, 512);
        let tree = AreaTree::<4>::new();
        rich_writer(&tree, &ram).set(area(0, 400, 0)).expect("stocked");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| read_states(&tree, &ram, &done));
            // Also when a check below fails: the reader must not go on for ever.
            let ending = Ending(&done);
            let mut seed = 7u64;
            for round in 1..ROUNDS {
                let writer = tree.writer(&ram.hw, ram.meta());
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                turn(&writer, (round % 4096) as u32, seed >> 33);
                writer.check().expect("sound");
                scribble(&writer, &ram);
            }
            drop(ending);
            let checked = reading.join().expect("no reader saw a mixture");
            assert!(checked > 0);
        });
    }

    struct Ending<'a>(&'a AtomicBool);

    impl Drop for Ending<'_> {
        fn drop(&mut self) {
            self.0.store(true, std::sync::atomic::Ordering::Release);
        }
    }

    /// As one change: pages 0 to 400 get areas with gaps, all with the flags `state`.
    fn turn(writer: &TreeWriter<'_, Words, 4>, state: u32, seed: u64) {
        let step = 3 + seed % 20;
        writer.change(|| {
            writer.cut_all(span(0, 400));
            for start in (0..400).step_by(step as usize) {
                let area = area(start, (start + step - 1).min(400), state);
                writer.add(&Entry::of(&area));
            }
        });
    }

    fn scribble(writer: &TreeWriter<'_, Words, 4>, ram: &Ram) {
        let mut freed = Vec::new();
        while let Some(run) = writer.unstock() {
            for index in 0..17 {
                ram.hw.word(run.start(), index).store(0xdead_beef, Ordering::Relaxed);
            }
            freed.push(run);
        }
        freed.into_iter().for_each(|run| assert!(writer.stock(run).is_ok()));
    }

    /// Within one moment, all areas have the same flags, lie one page apart, and reach page 399.
    fn read_states(tree: &AreaTree<4>, ram: &Ram, done: &AtomicBool) -> u64 {
        let reader = tree.reader(&ram.hw, ram.meta());
        let mut checked = 0;
        let mut turn = 0u64;
        while !done.load(std::sync::atomic::Ordering::Acquire) || checked == 0 {
            turn += 1;
            let (first, seq) = reader.next_at_or_after(Vpn::new(turn * 13 % 395));
            let first = first.expect("some area follows");
            let whole = first.span.start.get() % (first.span.count() + 1) == 0;
            assert!(whole || first.span.end.get() == 400, "{first:?} is torn");
            let (next, later) = reader.next_at_or_after(first.span.end);
            let behind = span(first.span.start.get(), (first.span.end.get() + 1).min(400));
            let (gap, last) = reader.find_gap(1, Order::ZERO, behind);
            if seq == later && later == last && tree.is_current(seq, all()) {
                checked += 1;
                if let Some(next) = next {
                    assert_eq!(first.flags, next.flags);
                    let end = first.span.end;
                    assert!(next.span.start <= end.add(1));
                    assert!(next.span.start == end || gap == PageSpan::at(end, 1));
                }
            }
        }
        checked
    }
}

#[cfg(loom)]
mod raced {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;

    /// A reader beside a writer that empties one of two leaves, so that a leaf and the root fall
    /// free, and gives both away; their next owner overwrites them. The reader sees whole states.
    #[test]
    fn e3_loom_readers_see_whole_states_only() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let shared = Arc::new((AreaTree::<3>::new(), Ram::new(4, 13)));
            let (tree, ram) = &*shared;
            let writer = rich_writer(tree, ram);
            (0..4).for_each(|at| writer.set(area(at * 4, at * 4 + 2, 1)).expect("stocked"));
            let reading = {
                let shared = shared.clone();
                loom::thread::spawn(move || read(&shared.0, &shared.1))
            };
            writer.change(|| {
                writer.cut_all(span(0, 10));
                writer.add(&Entry::of(&area(8, 11, 2)));
            });
            assert_eq!(writer.spares(), 3);
            while let Some(run) = writer.unstock() {
                // The count in front and what would be the first key.
                (0..2).for_each(|at| ram.hw.word(run.start(), at).store(1, Ordering::Relaxed));
            }
            reading.join().expect("the reader saw a mixture");
        });
    }

    /// A reader that has seen a hold and then its end sees all that was done in between; so does
    /// the next writer.
    #[test]
    fn e3_loom_the_end_of_a_hold_shows_what_was_done_under_it() {
        loom::model(|| {
            let done = AtomicU64::new(0);
            let shared = Arc::new((AreaTree::<3>::new(), Ram::new(4, 13), done));
            let act = |(tree, ram, done): &(AreaTree<3>, Ram, AtomicU64)| {
                let writer = tree.writer(&ram.hw, ram.meta());
                writer.hold(span(0, 10));
                done.store(done.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                writer.release();
            };
            let other = {
                let shared = shared.clone();
                loom::thread::spawn(move || act(&shared))
            };
            let (tree, _, done) = &*shared;
            let was_held = tree.is_held(span(4, 5));
            if was_held && !tree.is_held(span(4, 5)) {
                assert_eq!(done.load(Ordering::Relaxed), 1);
            }
            act(&shared);
            assert!(done.load(Ordering::Relaxed) > 0);
            other.join().expect("no thread panics");
            assert_eq!(done.load(Ordering::Relaxed), 2);
        });
    }

    fn read(tree: &AreaTree<3>, ram: &Ram) {
        let reader = tree.reader(&ram.hw, ram.meta());
        let (found, _) = reader.lookup(Vpn::new(9));
        let (old, new) = (area(8, 10, 1), area(8, 11, 2));
        assert!(found == Some(old) || found == Some(new), "{found:?}");
    }
}
