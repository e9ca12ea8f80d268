//! Tests of the tests: dirty flags of contiguous blocks, set by hardware where it likes, and lost
//! on purpose.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::scene::{Scene, clean, configs, fires, joined, on_blocks, parted, quiet};
use crate::support::{self, ASID, Ends, Space, Want, leaf_word, on, table_word, used};
use quire_hw::{Hardware, Memory};
use quire_machine::{Config, Machine, Rule, TrapKind, Why};
use quire_units::{CpuId, FrameSpan, Order, Prot, VirtAddr, Vpn};

#[test]
fn i5_flags_are_set_in_any_entry_of_a_joined_block_and_only_there() {
    for config in configs() {
        on(config, |space, cpus| {
            let (mut own, mut other) = (0, 0);
            for round in 0..12 {
                let scene = Scene::new(space, &cpus[0], 0).unwrap();
                let first = scene.first.add(round * scene.count);
                let scene = Scene { first, ..scene };
                scene.op(|| scene.write(scene.all(), clean(Prot::RW)));
                let walked = round % scene.count;
                scene.store(walked);
                scene.store((walked + 1) % scene.count);
                let word = |at| space.get(scene.page(at), 0);
                let dirty: Vec<_> = scene
                    .all()
                    .filter(|at| word(*at) == scene.word(*at, joined(Prot::RW)))
                    .collect();
                let all_else = |at: &u64| word(*at) == scene.word(*at, clean(Prot::RW));
                assert_eq!(
                    scene.all().filter(all_else).count() + dirty.len(),
                    scene.count as usize
                );
                match config.joins_contiguous {
                    true => assert_eq!(dirty.len(), 1, "the second store needs no walk"),
                    false => assert_eq!(dirty.len(), 2),
                }
                if dirty.contains(&walked) {
                    own += 1
                } else {
                    other += 1
                }
                quiet(scene.machine());
            }
            assert!(own > 0, "sometimes the entry that was walked");
            assert_eq!(other > 0, config.joins_contiguous, "sometimes another");
        });
    }
}

#[test]
fn c2_without_hardware_flags_each_entry_traps_for_itself() {
    for config in configs() {
        let config = Config { sets_dirty: false, joins_contiguous: false, ..config };
        on(config, |space, cpus| {
            let scene = Scene::new(space, &cpus[0], 0).unwrap();
            scene.op(|| scene.write(scene.all(), clean(Prot::RW)));
            scene.op(|| scene.set(3, scene.word(3, joined(Prot::RW))));
            scene.store(3);
            // The block as a whole is dirty; a handler that relied on that would fault for ever.
            for _ in 0..3 {
                let trap = scene.cpu.write(scene.space.addr(scene.page(4)), 1).unwrap_err();
                assert_eq!(trap.kind, TrapKind::Permission);
            }
            quiet(scene.machine());
        });
    }
}

#[test]
fn i5_a_dirty_flag_lost_by_unfolding_is_found() {
    // Pages that stay dirty: none, the one that has the flag, all.
    for kept in 0..3 {
        on_blocks(|scene| {
            scene.remake_clean();
            scene.store(6);
            let has_flag =
                |at: u64| scene.space.get(scene.page(at), 0) == scene.word(at, joined(Prot::RW));
            let flags: Vec<_> =
                scene.all().map(|at| kept == 2 || (kept == 1 && has_flag(at))).collect();
            scene.op(|| {
                scene.zero(scene.all());
                scene.flush(scene.all());
                for at in scene.all() {
                    let dirty = flags[at as usize];
                    scene.set(at, scene.word(at, Want { dirty, ..parted(clean(Prot::RW)) }));
                }
                scene.flush(scene.all());
            });
            match kept {
                2 => quiet(scene.machine()),
                _ => fires(scene.machine(), Rule::LostDirty, Why::DirtyCleared),
            }
        });
    }
}

#[test]
fn i5_a_dirty_flag_lost_by_folding_is_found_and_one_for_all_is_enough() {
    for kept in [false, true] {
        on_blocks(|scene| {
            scene.remake_clean();
            scene.remake(parted(clean(Prot::RW)));
            scene.store(6);
            scene.op(|| {
                scene.zero(scene.all());
                scene.flush(scene.all());
                for at in scene.all() {
                    let dirty = kept && at == 2;
                    scene.set(at, scene.word(at, Want { dirty, ..clean(Prot::RW) }));
                }
                scene.flush(scene.all());
            });
            match kept {
                true => quiet(scene.machine()),
                false => fires(scene.machine(), Rule::LostDirty, Why::DirtyCleared),
            }
        });
    }
}

#[test]
fn i5_a_dirty_flag_lost_while_a_block_was_write_protected_is_found() {
    for dirty in [false, true] {
        on_blocks(|scene| {
            scene.remake_clean();
            scene.store(6);
            scene.op(|| {
                scene.write(scene.all(), clean(Prot::READ));
                scene.flush(scene.all());
            });
            // Where the flag is now, only the library knows.
            quiet(scene.machine());
            scene.op(|| scene.write(scene.all(), Want { dirty, ..clean(Prot::RW) }));
            match dirty {
                true => quiet(scene.machine()),
                false => fires(scene.machine(), Rule::LostDirty, Why::DirtyCleared),
            }
        });
    }
}

#[test]
fn i5_pages_are_cleaned_on_purpose_or_with_their_frames() {
    on_blocks(|scene| {
        let _op = scene.cpu.operation("writeback").cleans();
        scene.write(scene.all(), clean(Prot::RW));
        scene.flush(scene.all());
        drop(_op);
        quiet(scene.machine());
    });
    on_blocks(|scene| {
        scene.op(|| {
            scene.zero(scene.all());
            scene.flush(scene.all());
            scene.machine().freed(FrameSpan::new(scene.frame, scene.count));
            scene.write(scene.all(), clean(Prot::RW));
        });
        quiet(scene.machine());
    });
}

#[test]
fn i5_a_dirty_flag_lost_by_splitting_a_block_is_found() {
    for lost in [false, true] {
        on(Config::x86_64(), |space, cpus| {
            let (first, frame) = (Vpn::new(512), space.block(9));
            space.map(first, Want { level: 1, ..used(frame, Prot::RW) });
            let table = space.frame();
            for at in 0..512 {
                let dirty = !(lost && at == 511);
                let want = Want { dirty, ..used(frame.add(at), Prot::RW) };
                space.write(table, at as usize, leaf_word(space.isa, want));
            }
            let _op = cpus[0].operation("split");
            space.set(first, 1, table_word(space.isa, table));
            space.flush_by(first, 512, Order::ZERO, true);
            drop(_op);
            match lost {
                true => fires(space.machine, Rule::LostDirty, Why::DirtyCleared),
                false => quiet(space.machine),
            }
        });
    }
}

/// Breaks the block and makes it `like` this, dirty if any entry was; returns whether one was.
fn remake_gathering(scene: &Scene<'_, '_, '_>, like: Want) -> bool {
    let _op = scene.cpu.operation("part or join");
    let (machine, mut dirty) = (scene.machine(), false);
    for at in scene.all() {
        let (table, index) = scene.space.slot(scene.page(at), 0);
        let table = scene.space.tables(table);
        let mut seen = machine.load(table.frame(), index);
        while let Err(now) = machine.compare_exchange(&table, index, seen, 0) {
            seen = now;
        }
        let all_dirty = [joined(Prot::RW), parted(joined(Prot::RW))];
        dirty |= all_dirty.iter().any(|like| scene.word(at, *like) == seen);
    }
    scene.flush(scene.all());
    let is_gone = |at| scene.space.get(scene.page(at), 0) == 0;
    assert!(scene.all().all(is_gone), "a walker that set a flag brought an entry back");
    scene.write(scene.all(), Want { dirty, ..like });
    scene.flush(scene.all());
    dirty
}

#[test]
fn i5_stores_that_race_with_parting_and_joining_leave_their_flag() {
    // An unwatched machine judges nothing, but its walkers are not held back word by word.
    for config in configs().into_iter().flat_map(|config| [config, config.bare()]) {
        let mut ram = support::ram();
        let (machine, frames) = Machine::new(config.with_cpus(2), &mut ram).unwrap();
        machine.faults().delay(300, 7);
        let space = Space::new(&machine, frames);
        let cpu = machine.cpu(0);
        space.cpus.insert(CpuId::new(1));
        let scene = Scene::new(&space, &cpu, 0).unwrap();
        let pages: Vec<u64> = scene.all().map(|at| space.addr(scene.page(at)).get()).collect();
        let (done, root) = (AtomicBool::new(false), space.root);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let cpu = machine.cpu(1);
                cpu.switch(root, ASID);
                for &page in pages.iter().cycle() {
                    let _ = cpu.write(VirtAddr::new(page), 1);
                    std::thread::yield_now();
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let _end = Ends(&done);
            let (mut gathered, mut turn) = (0, 0);
            while gathered < 100 {
                let like = if turn % 2 == 0 { clean(Prot::RW) } else { parted(clean(Prot::RW)) };
                turn += 1;
                if remake_gathering(&scene, like) {
                    gathered += 1;
                    scene.clean_all();
                }
                // So that the program gets to store, also on a host of one CPU.
                std::thread::yield_now();
            }
        });
        quiet(&machine);
    }
}
