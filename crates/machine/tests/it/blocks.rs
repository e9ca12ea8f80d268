//! Tests of the examiner: it finds every mistake with the shape of a contiguous block; beside each
//! stands the nearest correct sequence, and it stays quiet.

use crate::support::scene::{Scene, configs, fires, joined, on_blocks, parted, quiet};
use crate::support::{Want, leaf_word, on, table_word};
use quire_machine::{Flaw, Rule, TrapKind, Why};
use quire_units::Prot;

const TORN: Rule = Rule::TornBlock;

#[test]
fn i4_whole_blocks_of_all_sizes_come_and_go() {
    for config in configs() {
        for level in 0..3 {
            on(config, |space, cpus| {
                let Some(scene) = Scene::new(space, &cpus[0], level) else { return };
                scene.op(|| scene.write(scene.all(), joined(Prot::RW)));
                quiet(scene.machine());
                scene.op(|| scene.write(scene.all(), joined(Prot::READ)));
                quiet(scene.machine());
                scene.op(|| scene.zero(scene.all()));
                quiet(scene.machine());
            });
        }
    }
}

#[test]
fn i4_a_hole_is_found_when_the_operation_ends_and_not_before() {
    for config in configs() {
        for level in 0..3 {
            on(config, |space, cpus| {
                let Some(scene) = Scene::new(space, &cpus[0], level) else { return };
                scene.op(|| scene.write(scene.all(), joined(Prot::RW)));
                scene.op(|| {
                    scene.zero(scene.count - 1..scene.count);
                    assert_eq!(scene.machine().verdict(), Ok(()));
                });
                fires(scene.machine(), TORN, Why::Flaw(Flaw::BlockPartial));
            });
        }
    }
}

#[test]
fn i4_a_block_with_a_hole_is_not_flushed_as_if_it_were_done() {
    on_blocks(|scene| {
        let _op = scene.cpu.operation("unmap in two parts");
        scene.zero(0..4);
        scene.flush(0..4);
        // A walk of page 5 may join pages 0 to 3 again; the caller believes their frames free.
        fires(scene.machine(), TORN, Why::Flaw(Flaw::BlockPartial));
    });
    on_blocks(|scene| {
        scene.op(|| {
            scene.zero(0..4);
            scene.zero(4..scene.count);
            scene.flush(scene.all());
        });
        quiet(scene.machine());
    });
}

#[test]
fn i4_a_flush_of_other_pages_promises_nothing_about_a_block() {
    on_blocks(|scene| {
        scene.op(|| {
            scene.zero(0..4);
            scene.space.flush(scene.page(scene.count), 3);
            scene.zero(4..scene.count);
            scene.flush(scene.all());
        });
        quiet(scene.machine());
    });
}

#[test]
fn i4_a_partial_write_protect_without_unfolding_is_found() {
    for (flush, made) in [(false, 1), (true, 1), (false, 15), (true, 15)] {
        on_blocks(|scene| {
            scene.op(|| {
                scene.write(0..made, joined(Prot::READ));
                assert_eq!(scene.machine().verdict(), Ok(()), "on the way");
                if flush {
                    scene.flush(scene.all());
                    assert!(scene.machine().verdict().is_err(), "the flush is too early");
                }
            });
            fires(scene.machine(), TORN, Why::Flaw(Flaw::BlockUneven));
        });
    }
}

#[test]
fn i4_rights_of_the_kernel_are_the_same_in_a_block_as_well() {
    on_blocks(|scene| {
        scene.op(|| {
            // PXN; or, with U cleared in all of the block, W in some.
            for at in scene.all() {
                let word = scene.word(at, joined(Prot::RW));
                scene.set(at, if scene.is_arm() { word } else { word & !(1 << 4) });
            }
            let word = scene.space.get(scene.page(7), 0);
            scene.set(7, word ^ if scene.is_arm() { 1 << 53 } else { 1 << 2 });
        });
        fires(scene.machine(), TORN, Why::Flaw(Flaw::BlockUneven));
    });
}

#[test]
fn i4_a_whole_block_is_write_protected_in_place() {
    on_blocks(|scene| {
        scene.store(1);
        scene.op(|| {
            for at in scene.all() {
                scene.set(at, scene.word(at, joined(Prot::READ)));
                // Meanwhile others walk, and get the one right or the other.
                scene.load((at * 7) % scene.count);
            }
            scene.flush(scene.all());
        });
        quiet(scene.machine());
        let trap = scene.cpu.write(scene.space.addr(scene.page(1)), 1).unwrap_err();
        assert_eq!(trap.kind, TrapKind::Permission);
    });
}

#[test]
fn i4_an_entry_parted_from_its_block_is_found() {
    on_blocks(|scene| {
        scene.op(|| {
            scene.zero(3..4);
            scene.set(3, scene.word(3, parted(joined(Prot::RW))));
            let at_once = scene.machine().verdict().is_err();
            assert_eq!(at_once, !scene.is_stepwise(), "the mark changes by break-before-make");
        });
        fires(scene.machine(), TORN, Why::Flaw(Flaw::BlockMixed));
    });
}

#[test]
fn i4_an_entry_joined_to_pages_that_are_not_is_found() {
    for config in configs() {
        on(config, |space, cpus| {
            let scene = Scene::new(space, &cpus[0], 0).unwrap();
            scene.op(|| {
                scene.write(0..2, parted(joined(Prot::RW)));
                scene.write(2..scene.count, joined(Prot::RW));
            });
            fires(scene.machine(), TORN, Why::Flaw(Flaw::BlockMixed));
        });
    }
}

#[test]
fn i4_a_misaligned_block_is_found() {
    // Frames one too far, then addresses one too far.
    for (frame_off, page_off) in [(1, 0), (0, 1)] {
        for config in configs() {
            on(config, |space, cpus| {
                let scene = Scene::new(space, &cpus[0], 0).unwrap();
                if !scene.is_arm() && frame_off > 0 {
                    return; // Svnapot has no way to say that.
                }
                scene.op(|| {
                    for at in scene.all() {
                        let frame = scene.frame.add(at + frame_off);
                        let word = leaf_word(space.isa, Want { frame, ..joined(Prot::RW) });
                        space.set(scene.first.add(at + page_off), 0, word);
                        assert_eq!(space.machine.verdict().is_err(), scene.is_arm(), "at once");
                    }
                });
                let misaligned = Why::Flaw(Flaw::BlockMisaligned);
                let partial = Why::Flaw(Flaw::BlockPartial);
                fires(scene.machine(), TORN, if scene.is_arm() { misaligned } else { partial });
            });
        }
    }
}

#[test]
fn i4_frames_that_are_not_consecutive_are_found() {
    on_blocks(|scene| {
        let stranger = scene.space.block(scene.count.ilog2() as u8).add(3);
        scene.op(|| {
            scene.zero(3..4);
            let word = leaf_word(scene.space.isa, Want { frame: stranger, ..joined(Prot::RW) });
            scene.set(3, word);
            assert_eq!(scene.machine().verdict().is_err(), scene.is_arm(), "at once on arm64");
        });
        fires(scene.machine(), TORN, Why::Flaw(Flaw::BlockTorn));
    });
}

#[test]
fn i4_unfolding_a_block_that_is_off_by_one_is_found() {
    on_blocks(|scene| {
        let next = scene.count..2 * scene.count;
        scene.op(|| next.clone().for_each(|at| scene.set(at, scene.word_of_next(at))));
        quiet(scene.machine());
        scene.op(|| {
            scene.zero(1..scene.count + 1);
            scene.flush(1..scene.count + 1);
            scene.write(1..scene.count, parted(joined(Prot::RW)));
        });
        fires(scene.machine(), TORN, Why::Flaw(Flaw::BlockPartial));
    });
}

#[test]
fn i4_a_table_that_is_linked_with_a_torn_block_is_looked_at() {
    for (hole, config) in [true, false]
        .into_iter()
        .zip([(); 2])
        .flat_map(|(hole, ())| configs().into_iter().map(move |config| (hole, config)))
    {
        on(config, |space, cpus| {
            let scene = Scene::new(space, &cpus[0], 0).unwrap();
            let (table, first) = (space.frame(), space.machine.geometry().index(scene.first, 0));
            for at in scene.all().filter(|at| !(hole && *at == 9)) {
                space.write(table, first + at as usize, scene.word(at, joined(Prot::RW)));
            }
            scene.op(|| space.set(scene.first, 1, table_word(space.isa, table)));
            match hole {
                true => fires(scene.machine(), TORN, Why::Flaw(Flaw::BlockPartial)),
                false => quiet(scene.machine()),
            }
        });
    }
}

#[test]
fn i4_a_table_that_is_linked_with_a_misaligned_block_is_looked_at_at_once() {
    for config in configs() {
        on(config, |space, cpus| {
            let scene = Scene::new(space, &cpus[0], 0).unwrap();
            if !scene.is_arm() {
                return; // Svnapot has no way to say that.
            }
            let (table, first) = (space.frame(), space.machine.geometry().index(scene.first, 0));
            for at in scene.all() {
                let frame = scene.frame.add(at + 1);
                let word = leaf_word(space.isa, Want { frame, ..joined(Prot::RW) });
                space.write(table, first + at as usize, word);
            }
            let _op = cpus[0].operation("link");
            space.set(scene.first, 1, table_word(space.isa, table));
            fires(scene.machine(), TORN, Why::Flaw(Flaw::BlockMisaligned));
        });
    }
}

#[test]
fn i4_a_block_that_two_cpus_change_is_judged_when_the_last_is_done() {
    for whole in [true, false] {
        for config in configs() {
            on(config.with_cpus(2), |space, cpus| {
                let scene = Scene::new(space, &cpus[0], 0).unwrap();
                scene.op(|| scene.write(scene.all(), joined(Prot::RW)));
                let protect = cpus[0].operation("protect");
                scene.write(scene.all(), joined(Prot::READ));
                let unmap = cpus[1].operation("unmap");
                scene.zero(0..5);
                cpus[0].bind();
                scene.flush(scene.all());
                drop(protect);
                assert_eq!(scene.machine().verdict(), Ok(()), "the other is in the middle of it");
                cpus[1].bind();
                scene.zero(5..if whole { scene.count } else { scene.count - 1 });
                drop(unmap);
                match whole {
                    true => quiet(scene.machine()),
                    false => fires(scene.machine(), TORN, Why::Flaw(Flaw::BlockPartial)),
                }
            });
        }
    }
}
