//! Tests of the examiner: contiguous blocks with a forgotten, too short or too coarse flush, and
//! the counts of flushes and stores.

use crate::support::scene::{Scene, configs, fires, joined, on_blocks, parted, quiet};
use crate::support::{ASID, on};
use quire_hw::{Flush, Hardware, Memory};
use quire_machine::{Config, Examine, Rule, Why};
use quire_units::{CpuSet, Order, Prot};

const STALE: Rule = Rule::StaleTranslation;

#[test]
fn c2_blocks_are_parted_and_joined_by_break_before_make() {
    let states = [joined(Prot::RW), parted(joined(Prot::RW))];
    on_blocks(|scene| {
        scene.store(2);
        for state in [states[1], states[0], states[1]] {
            scene.remake(state);
            scene.load(5);
            quiet(scene.machine());
        }
    });
}

#[test]
fn c2_blocks_are_parted_and_joined_in_place_only_where_the_cpu_allows() {
    let states = [joined(Prot::RW), parted(joined(Prot::RW))];
    for flush in [true, false] {
        on_blocks(|scene| {
            for state in [states[1], states[0]] {
                scene.load(4);
                scene.op(|| {
                    scene.write(scene.all(), state);
                    if flush {
                        scene.flush(scene.all());
                    }
                });
            }
            match (scene.is_stepwise(), flush || scene.is_arm()) {
                (true, true) => quiet(scene.machine()),
                (true, false) => fires(scene.machine(), STALE, Why::Resized),
                (false, _) => fires(scene.machine(), Rule::BreakBeforeMake, Why::Resized),
            }
        });
    }
}

#[test]
fn i6_a_write_protected_block_is_flushed_page_by_page_and_in_full() {
    let block = |scene: &Scene<'_, '_, '_>| Order::new(scene.count.ilog2() as u8);
    type Flushing<'f> = &'f dyn Fn(&Scene<'_, '_, '_>);
    let cases: [(bool, Flushing<'_>); 6] = [
        (false, &|_| {}),
        (false, &|scene| scene.flush(1..scene.count)),
        (false, &|scene| scene.flush(0..scene.count - 1)),
        (false, &|scene| scene.flush(1..scene.count + 1)),
        // Its pages may be cached one by one: naming the block once is not enough.
        (false, &|scene| {
            scene.space.flush_by(scene.first, scene.count, block(scene), false);
        }),
        (true, &|scene| scene.flush(scene.all())),
    ];
    for (enough, flush) in cases {
        on_blocks(|scene| {
            scene.store(3);
            scene.op(|| {
                scene.write(scene.all(), joined(Prot::READ));
                flush(scene);
            });
            match enough {
                true => quiet(scene.machine()),
                false => fires(scene.machine(), STALE, Why::RightsLost),
            }
        });
    }
}

#[test]
fn i6_all_cpus_that_may_have_cached_a_block_are_flushed() {
    for config in configs() {
        on(config.with_cpus(2), |space, cpus| {
            let scene = Scene::new(space, &cpus[0], 0).unwrap();
            scene.op(|| scene.write(scene.all(), joined(Prot::RW)));
            cpus[1].read(space.addr(scene.page(3))).unwrap();
            cpus[0].bind();
            scene.op(|| {
                scene.write(scene.all(), joined(Prot::READ));
                let only = CpuSet::new();
                only.insert(cpus[0].number());
                let (root, asid) = (space.root, ASID);
                let flush = Flush { asid, root, pages: None, tables: false, cpus: &only };
                space.machine.flush(&flush);
            });
            fires(scene.machine(), STALE, Why::RightsLost);
        });
    }
}

#[test]
fn i6_parting_or_joining_a_block_without_its_flush_is_found() {
    let states = [joined(Prot::RW), parted(joined(Prot::RW))];
    // Entries that the flush between break and make leaves out: the first, the last, all.
    for left_out in 0..3 {
        for (from, to) in [(states[0], states[1]), (states[1], states[0])] {
            on_blocks(|scene| {
                scene.remake(from);
                scene.all().for_each(|at| scene.load(at));
                scene.op(|| {
                    scene.zero(scene.all());
                    match left_out {
                        0 => scene.flush(1..scene.count),
                        1 => scene.flush(0..scene.count - 1),
                        _ => {}
                    }
                    scene.write(scene.all(), to);
                });
                match (scene.is_arm(), scene.is_stepwise()) {
                    (true, false) => fires(scene.machine(), Rule::FlushBeforeMake, Why::Resized),
                    (false, _) => fires(scene.machine(), STALE, Why::Removed),
                    // With FEAT_BBM level 2 old and new may be cached side by side.
                    (true, true) => quiet(scene.machine()),
                }
            });
        }
    }
}

#[test]
fn i6_a_flush_of_one_page_drops_a_joined_translation_but_no_single_neighbours() {
    on_blocks(|scene| {
        scene.all().for_each(|at| scene.load(at));
        scene.flush(3..4);
        let walks = scene.machine().counts().walks;
        scene.load(3);
        assert_eq!(scene.machine().counts().walks, walks + 1);
        scene.load(0);
        assert_eq!(scene.machine().counts().walks, walks + 1);
        scene.flush(3..4);
        scene.load(0);
        let walked = scene.machine().counts().walks - walks - 1;
        assert_eq!(walked, u64::from(scene.machine().config().joins_contiguous));
    });
}

#[test]
fn c2_counts_are_exact_with_and_without_the_examiner() {
    for examine in [Examine::Off, Examine::Usual, Examine::Thorough] {
        let config = Config { examine, counts: true, ..Config::arm64_4k() };
        on(config.with_cpus(3), |space, cpus| {
            let scene = Scene::new(space, &cpus[0], 0).unwrap();
            let (table, index) = space.slot(scene.first, 0);
            let before = space.machine.counts();
            let table = space.tables(table);
            let (word, step) = (scene.word(0, joined(Prot::RW)), 1 << 12);
            space.machine.fill(&table, index, 16, word, step);
            scene.flush(scene.all());
            space.flush_by(scene.first, 32, Order::new(4), false);
            space.machine.compare_exchange(&table, index, 0, 1).unwrap_err();
            space.machine.compare_exchange(&table, index, word, word).unwrap();
            cpus[2].bind();
            space.machine.fill(&table, index, 16, 0, 0);
            let counts = space.machine.counts() - before;
            assert_eq!((counts.fills, counts.words_filled), (2, 32));
            assert_eq!((counts.exchanges, counts.exchange_failures), (1, 1));
            assert_eq!((counts.flushes, counts.full_flushes), (2, 0));
            assert_eq!(counts.invalidations, 3 * (16 + 2), "blocks named, times CPUs");
        });
    }
}
