//! Each rule of the examiner: seen to fire on a deliberate violation, and to stay quiet on the
//! correct sequence.

use crate::support::{ASID, Space, Want, leaf_word, on, on_each, page, ram, table_word, used};
use quire_hw::{Flush, Hardware, Transitions};
use quire_machine::{Config, Cpu, Examine, Isa, Machine, Rule, TrapKind, Why};
use quire_units::{CpuId, CpuSet, FrameSpan, Order, Prot, Vpn};

const AT: Vpn = Vpn::new(0x1230);

#[track_caller]
fn fires(machine: &Machine<'_>, rule: Rule, why: Why) {
    let violation = machine.verdict().expect_err("a violation");
    assert_eq!((violation.rule, violation.why), (rule, why), "{violation}");
}

#[track_caller]
fn quiet(machine: &Machine<'_>) {
    if let Err(violation) = machine.audit() {
        panic!("{violation}");
    }
}

/// Maps a page, used and written.
fn touched(space: &Space<'_, '_>, cpu: &Cpu<'_, '_>, prot: Prot) -> Want {
    let want = used(space.frame(), prot);
    space.map(AT, want);
    cpu.read(space.addr(AT)).unwrap();
    if prot.contains(Prot::WRITE) {
        cpu.write(space.addr(AT), 1).unwrap();
    }
    want
}

/// Changes the page's entry to `now` in an operation, with the flush or without it.
fn change(space: &Space<'_, '_>, cpu: &Cpu<'_, '_>, now: u64, flush: bool) {
    let _op = cpu.operation("change");
    space.set(AT, 0, now);
    if flush {
        space.flush(AT, 1);
    }
}

#[test]
fn rule_1_an_unmap_must_flush_before_it_ends() {
    on_each(|space, cpus| {
        touched(space, &cpus[0], Prot::RW);
        change(space, &cpus[0], 0, false);
        fires(space.machine, Rule::StaleTranslation, Why::Removed);
        let violation = space.machine.verdict().unwrap_err();
        assert_eq!((violation.operation, violation.holder), (Some("change"), Some(CpuId::new(0))));
    });
    on_each(|space, cpus| {
        touched(space, &cpus[0], Prot::RW);
        change(space, &cpus[0], 0, true);
        quiet(space.machine);
    });
}

#[test]
fn rule_1_all_cpus_must_be_flushed() {
    let missed = |all: bool| {
        on(Config::arm64_4k().with_cpus(2), |space, cpus| {
            touched(space, &cpus[0], Prot::RW);
            cpus[1].read(space.addr(AT)).unwrap();
            {
                let _op = cpus[0].operation("unmap");
                space.set(AT, 0, 0);
                if all {
                    space.flush(AT, 1);
                } else {
                    let set = CpuSet::new();
                    set.insert(CpuId::new(0));
                    let root = space.root;
                    let flush = Flush { asid: ASID, root, pages: None, tables: false, cpus: &set };
                    space.machine.flush(&flush);
                }
            }
            match all {
                true => quiet(space.machine),
                false => {
                    fires(space.machine, Rule::StaleTranslation, Why::Removed);
                    let holder = space.machine.verdict().unwrap_err().holder;
                    assert_eq!(holder, Some(CpuId::new(1)));
                }
            }
        });
    };
    missed(false);
    missed(true);
}

#[test]
fn rule_1_rights_and_dirty_flags_are_not_taken_away_without_a_flush() {
    on_each(|space, cpus| {
        let want = touched(space, &cpus[0], Prot::RW);
        let less = leaf_word(space.isa, Want { prot: Prot::READ, ..want });
        change(space, &cpus[0], less, true);
        quiet(space.machine);
        change(space, &cpus[0], leaf_word(space.isa, want), false);
        quiet(space.machine);
        cpus[0].write(space.addr(AT), 1).unwrap();
        change(space, &cpus[0], less, false);
        fires(space.machine, Rule::StaleTranslation, Why::RightsLost);
    });
    on_each(|space, cpus| {
        let want = touched(space, &cpus[0], Prot::RW);
        let clean = leaf_word(space.isa, Want { dirty: false, ..want });
        // Another rule checks that the flag is cleared on purpose.
        let change = |space: &Space<'_, '_>, cpu: &Cpu<'_, '_>, now, flush: bool| {
            let _op = cpu.operation("clean").cleans();
            space.set(AT, 0, now);
            if flush {
                space.flush(AT, 1);
            }
        };
        change(space, &cpus[0], clean, true);
        cpus[0].read(space.addr(AT)).unwrap();
        // Cached as clean, so clearing it again takes nothing away.
        change(space, &cpus[0], clean, false);
        quiet(space.machine);
        cpus[0].write(space.addr(AT), 1).unwrap();
        change(space, &cpus[0], clean, false);
        fires(space.machine, Rule::StaleTranslation, Why::DirtyCleared);
    });
}

#[test]
fn rule_1_clearing_the_accessed_flag_needs_no_flush() {
    on_each(|space, cpus| {
        let want = touched(space, &cpus[0], Prot::RW);
        let old = leaf_word(space.isa, Want { accessed: false, ..want });
        change(space, &cpus[0], old, false);
        quiet(space.machine);
    });
}

#[test]
fn rule_1_a_translation_that_left_the_small_tlb_counts_as_cached() {
    on(Config::x86_64(), |space, cpus| {
        touched(space, &cpus[0], Prot::RW);
        let frame = space.frame();
        for at in 1..4000 {
            space.map(AT.add(at), used(frame, Prot::READ));
            cpus[0].read(space.addr(AT.add(at))).unwrap();
        }
        change(space, &cpus[0], 0, false);
        let trap = cpus[0].read(space.addr(AT)).unwrap_err();
        assert_eq!(trap.kind, TrapKind::NotPresent, "the small TLB forgot it");
        fires(space.machine, Rule::StaleTranslation, Why::Removed);
    });
}

#[test]
fn rule_1_an_unlinked_table_needs_a_flush_of_walk_caches() {
    for tables in [false, true] {
        on_each(|space, cpus| {
            touched(space, &cpus[0], Prot::RW);
            {
                let _op = cpus[0].operation("unmap and free tables");
                space.set(AT, 0, 0);
                space.set(AT, 1, 0);
                space.flush_by(AT, 1, Order::ZERO, tables);
            }
            match tables {
                true => quiet(space.machine),
                false => fires(space.machine, Rule::StaleTranslation, Why::Removed),
            }
        });
    }
}

#[test]
fn rule_1_tables_below_an_unlinked_table_must_be_flushed_too() {
    on_each(|space, cpus| {
        touched(space, &cpus[0], Prot::RW);
        space.map(AT.add(1), used(space.frame(), Prot::READ));
        cpus[0].read(space.addr(AT.add(1))).unwrap();
        let _op = cpus[0].operation("drop a whole table");
        space.set(AT, 1, 0);
        space.flush_by(AT, 1, Order::ZERO, true);
        drop(_op);
        fires(space.machine, Rule::StaleTranslation, Why::Above);
    });
}

#[test]
fn rule_1_a_stride_larger_than_the_blocks_misses_some() {
    for (stride, enough) in [(2, false), (0, true)] {
        on(Config::arm64_4k(), |space, cpus| {
            for at in 0..4 {
                space.map(AT.add(at), used(space.frame(), Prot::READ));
                cpus[0].read(space.addr(AT.add(at))).unwrap();
            }
            {
                let _op = cpus[0].operation("unmap");
                (0..4).for_each(|at| space.set(AT.add(at), 0, 0));
                space.flush_by(AT, 4, Order::new(stride), false);
            }
            assert_eq!(space.machine.verdict().is_ok(), enough);
        });
    }
}

#[test]
fn rule_1_a_block_parted_without_keeping_it_dirty_loses_stores() {
    on(Config::riscv64_sv39(), |space, cpus| {
        let (count, first) = (space.contiguous(), space.block(4));
        let clean = Want { accessed: true, ..page(first, Prot::RW) };
        space.map_contiguous(AT, first, clean);
        // The store dirties the first entry; the block is cached as one.
        cpus[0].write(space.addr(AT), 1).unwrap();
        let _op = cpus[0].operation("part");
        for at in 0..count {
            space.map(AT.add(at), Want { frame: first.add(at), dirty: at == 0, ..clean });
        }
        drop(_op);
        let lost = (Rule::StaleTranslation, Why::DirtyCleared);
        assert!(space.machine.violations().iter().any(|found| (found.rule, found.why) == lost));
    });
}

#[test]
fn rule_2_a_live_entry_is_not_retargeted_on_arm() {
    for isa in Isa::ALL {
        on(Config::new(isa), |space, cpus| {
            // No walk has met the entry; it is enough that one could.
            space.map(AT, used(space.frame(), Prot::RW));
            let other = leaf_word(isa, used(space.frame(), Prot::RW));
            change(space, &cpus[0], other, true);
            match isa.breaks_before_make() {
                true => fires(space.machine, Rule::BreakBeforeMake, Why::Retargeted),
                false => quiet(space.machine),
            }
        });
    }
}

#[test]
fn rule_2_a_table_that_is_not_live_may_change_freely() {
    on(Config::arm64_16k(), |space, _| {
        let table = space.frame();
        for _ in 0..2 {
            space.write(table, 3, leaf_word(space.isa, used(space.frame(), Prot::RW)));
        }
        quiet(space.machine);
    });
}

#[test]
fn rule_2_between_break_and_make_lies_the_flush() {
    for flush in [false, true] {
        on(Config::arm64_64k(), |space, cpus| {
            touched(space, &cpus[0], Prot::RW);
            {
                let _op = cpus[0].operation("move");
                space.set(AT, 0, 0);
                if flush {
                    space.flush(AT, 1);
                }
                space.map(AT, used(space.frame(), Prot::RW));
                space.flush(AT, 1);
            }
            match flush {
                true => quiet(space.machine),
                false => fires(space.machine, Rule::FlushBeforeMake, Why::Retargeted),
            }
        });
    }
}

#[test]
fn rule_2_rights_change_in_place() {
    on(Config::arm64_4k(), |space, cpus| {
        let want = touched(space, &cpus[0], Prot::RW);
        let less = leaf_word(space.isa, Want { prot: Prot::READ, ..want });
        change(space, &cpus[0], less, true);
        quiet(space.machine);
    });
}

/// Splits a block of level 1 into a table of pages, the last of which may be wrong.
fn split(space: &Space<'_, '_>, cpu: &Cpu<'_, '_>, wrong: bool) {
    let geometry = space.machine.geometry();
    let order = geometry.order(1);
    let (first, block) = (AT.align_down(order.pages()), space.block(order.get()));
    let want = Want { level: 1, ..used(block, Prot::RW) };
    space.map(first, want);
    let table = space.frame();
    for index in 0..geometry.entries(0) {
        let last = index + 1 == geometry.entries(0);
        let frame = if last && wrong { space.frame() } else { block.add(index as u64) };
        space.write(table, index, leaf_word(space.isa, used(frame, Prot::RW)));
    }
    let _op = cpu.operation("split");
    space.set(first, 1, table_word(space.isa, table));
    space.flush(first, order.pages());
}

#[test]
fn rule_2_size_changes_in_place_only_with_bbm_level_2_and_the_same_memory() {
    let level_2 = Config { transitions: Transitions::BbmLevel2, ..Config::arm64_4k() };
    on(Config::arm64_4k(), |space, cpus| {
        split(space, &cpus[0], false);
        fires(space.machine, Rule::BreakBeforeMake, Why::Resized);
    });
    on(level_2, |space, cpus| {
        split(space, &cpus[0], false);
        quiet(space.machine);
    });
    on(level_2, |space, cpus| {
        split(space, &cpus[0], true);
        fires(space.machine, Rule::BreakBeforeMake, Why::Retargeted);
    });
    on(Config::x86_64(), |space, cpus| {
        split(space, &cpus[0], false);
        quiet(space.machine);
    });
}

/// A word that is malformed at the last level.
fn malformed(isa: Isa) -> u64 {
    match isa {
        Isa::X86_64 { .. } => 1 << 50 | 7,
        Isa::Arm64 { .. } => 1,
        Isa::Riscv64(_) => 5,
    }
}

#[test]
fn rule_3_malformed_words_are_reported_when_stored_linked_or_met() {
    let is_malformed = |machine: &Machine<'_>| {
        assert_eq!(machine.verdict().unwrap_err().rule, Rule::Malformed);
    };
    on_each(|space, _| {
        space.set(AT, 0, malformed(space.isa));
        is_malformed(space.machine);
    });
    on_each(|space, _| {
        let table = space.frame();
        space.write(table, 1, malformed(space.isa));
        assert_eq!(space.machine.verdict(), Ok(()));
        space.set(AT, 1, table_word(space.isa, table));
        is_malformed(space.machine);
    });
    on_each(|space, cpus| {
        let (table, index) = space.slot(AT, 0);
        let at = table.addr(space.machine.geometry().page_shift).add(index as u64 * 8);
        space.machine.ram().write_word(at, malformed(space.isa)).unwrap();
        assert_eq!(space.machine.verdict(), Ok(()));
        let trap = cpus[0].read(space.addr(AT)).unwrap_err();
        assert!(matches!(trap.kind, TrapKind::Malformed(_)));
        is_malformed(space.machine);
    });
}

#[test]
fn rule_3_a_contiguous_block_must_be_whole() {
    for isa in Isa::ALL {
        on(Config::new(isa), |space, cpus| {
            let count = space.contiguous();
            if count == 1 {
                return;
            }
            let first = Vpn::new(count * 5);
            let block = space.block(count.ilog2() as u8);
            space.map_contiguous(first, block, used(block, Prot::RW));
            quiet(space.machine);
            // A hole is a step on the way while an operation runs, and an error afterwards.
            space.set(first.add(3), 0, 0);
            cpus[0].read(space.addr(first)).unwrap();
            assert_eq!(space.machine.verdict(), Ok(()));
            assert_eq!(space.machine.audit().unwrap_err().rule, Rule::TornBlock);
            space.map(first.add(3), used(space.frame(), Prot::RW));
            let _ = cpus[0].read(space.addr(first.add(1)));
            let torn = space.machine.verdict().is_err();
            assert_eq!(torn, isa.breaks_before_make(), "only there is parting it in steps wrong");
        });
    }
}

fn free(space: &Space<'_, '_>, frame: quire_units::Pfn) {
    space.machine.freed(FrameSpan::new(frame, 1));
}

#[test]
fn rule_4_frames_are_freed_after_the_flush() {
    for flush in [false, true] {
        on_each(|space, cpus| {
            let want = touched(space, &cpus[0], Prot::RW);
            space.set(AT, 0, 0);
            if flush {
                space.flush(AT, 1);
            }
            free(space, want.frame);
            match flush {
                true => quiet(space.machine),
                false => fires(space.machine, Rule::FreedWhileCached, Why::Freed),
            }
        });
    }
}

#[test]
fn rule_4_part_of_a_cached_block_is_not_freed() {
    on_each(|space, cpus| {
        let level = 1;
        let order = space.machine.geometry().order(level);
        let start = space.machine.frames().start.align_down(order.pages());
        space.map(Vpn::new(0), Want { level, ..used(start, Prot::READ) });
        cpus[0].read(space.addr(Vpn::new(7))).unwrap();
        free(space, start.add(9));
        fires(space.machine, Rule::FreedWhileCached, Why::Freed);
    });
}

#[test]
fn rule_4_tables_are_freed_after_walk_caches_are_flushed() {
    for tables in [false, true] {
        on_each(|space, cpus| {
            touched(space, &cpus[0], Prot::RW);
            let table = space.table_at(AT, 0);
            space.set(AT, 0, 0);
            space.set(AT, 1, 0);
            space.flush_by(AT, 1, Order::ZERO, tables);
            free(space, table);
            match tables {
                true => quiet(space.machine),
                false => fires(space.machine, Rule::FreedWhileCached, Why::Freed),
            }
        });
    }
}

#[test]
fn rule_4_a_linked_table_is_not_freed_while_its_space_runs() {
    for runs in [true, false] {
        on_each(|space, cpus| {
            let table = space.table_at(AT, 0);
            if !runs {
                cpus[0].leave();
            }
            free(space, table);
            match runs {
                true => fires(space.machine, Rule::FreedWhileMapped, Why::Freed),
                false => quiet(space.machine),
            }
        });
    }
}

#[test]
fn rule_4_thorough_also_finds_frames_that_are_still_mapped() {
    for examine in [Examine::Usual, Examine::Thorough] {
        on(Config { examine, ..Config::riscv64_sv48() }, |space, _| {
            let want = used(space.frame(), Prot::RW);
            space.map(AT, want);
            free(space, want.frame);
            assert_eq!(space.machine.verdict().is_err(), examine == Examine::Thorough);
        });
    }
}

#[test]
fn rule_5_an_audit_finds_changes_that_no_operation_announced() {
    for examine in [Examine::Off, Examine::Usual] {
        for isa in Isa::ALL {
            on(Config { examine, ..Config::new(isa) }, |space, cpus| {
                touched(space, &cpus[0], Prot::RW);
                quiet(space.machine);
                space.set(AT, 0, 0);
                assert_eq!(space.machine.verdict(), Ok(()));
                let violation = space.machine.audit().unwrap_err();
                assert_eq!(violation.rule, Rule::StaleTranslation);
                space.flush(AT, 1);
                quiet(space.machine);
            });
        }
    }
}

#[test]
fn rule_5_a_tag_given_to_another_space_without_a_flush_is_found() {
    on(Config::arm64_4k(), |space, cpus| {
        touched(space, &cpus[0], Prot::RW);
        cpus[0].switch(space.frame(), ASID);
        assert_eq!(space.machine.audit().unwrap_err().rule, Rule::StaleTranslation);
    });
}

#[test]
#[should_panic(expected = "a malformed entry: reserved bits")]
fn a_machine_may_be_told_to_panic_at_once() {
    on(Config { panics: true, ..Config::x86_64() }, |space, _| {
        space.set(AT, 0, malformed(space.isa));
    });
}

#[test]
fn an_unwatched_machine_judges_nothing() {
    let mut ram = ram();
    let (machine, frames) = Machine::new(Config::arm64_4k().bare(), &mut ram).unwrap();
    let space = Space::new(&machine, frames);
    let cpu = machine.cpu(0);
    space.run(&cpu);
    touched(&space, &cpu, Prot::RW);
    change(&space, &cpu, malformed(space.isa), false);
    assert_eq!(machine.verdict(), Ok(()));
    assert_eq!(machine.counts().words_filled, 0);
}
