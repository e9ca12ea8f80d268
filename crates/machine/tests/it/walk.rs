//! Programs on the machine: walks against a naive interpretation, flags, TLBs, races.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{self, ASID, Ends, Space, Want, leaf_word, on, on_each, page, used};
use proptest::prelude::*;
use quire_hw::{Chosen, Flush, FrameRun, Hardware, Memory, Pieces, Poisoned, Reuse};
use quire_machine::{Config, ConfigError, Isa, Machine, MachineError, TrapKind};
use quire_units::{Asid, CpuId, FrameSpan, Order, Pfn, Prot, Vpn};

const AT: Vpn = Vpn::new(0x1234);

/// One mapping to make: which block (a small number), how high, what it grants, its flags.
type Plan = (u64, u8, u8, bool, bool);

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    prop::collection::vec((0..6u64, 0..3u8, 0..4u8, any::<bool>(), any::<bool>()), 1..10)
}

/// The blocks of the naive interpretation: first page, number of pages, and leaf.
type Naive = BTreeMap<u64, (u64, Want)>;

fn has_leaves(isa: Isa, level: u8) -> bool {
    match isa {
        Isa::X86_64 { .. } => level <= 2,
        Isa::Arm64 { .. } if isa.geometry().page_shift == 12 => level <= 2,
        Isa::Arm64 { .. } => level <= 1,
        Isa::Riscv64(_) => level <= 2,
    }
}

/// Blocks of level n lie in the n-th part of the address space, so that they do not meet.
fn build(space: &Space<'_, '_>, plans: &[Plan]) -> Naive {
    let geometry = space.machine.geometry();
    let mut naive = Naive::new();
    for &(block, level, rights, accessed, dirty) in plans {
        if !has_leaves(space.isa, level) {
            continue;
        }
        let order = geometry.order(level);
        let part = 1u64 << (geometry.va_bits - geometry.page_shift - 3);
        let first = u64::from(level) * part + block * order.pages();
        if naive.contains_key(&first) {
            continue; // A live entry is not simply replaced.
        }
        let mut prot = Prot::READ;
        prot.set(Prot::WRITE, rights & 1 != 0);
        prot.set(Prot::EXEC, rights & 2 != 0);
        // Large blocks begin where RAM does and are mostly outside of it.
        let ram = space.machine.frames();
        let frame = if level == 0 { space.frame() } else { ram.start.align_down(order.pages()) };
        let want = Want {
            frame,
            level,
            prot,
            accessed,
            dirty: dirty && rights & 1 != 0,
            contiguous: false,
        };
        space.map(Vpn::new(first), want);
        naive.insert(first, (order.pages(), want));
    }
    naive
}

fn find(naive: &Naive, at: Vpn) -> Option<(Pfn, Want)> {
    let (&first, &(pages, want)) = naive.range(..=at.get()).next_back()?;
    let within = at.get() - first;
    (within < pages).then(|| (want.frame.add(within), want))
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_walk_is_the_naive_interpretation(
        plans in plans(),
        tries in prop::collection::vec((0..6u64, 0..4u64, 0..512u64), 24),
    ) {
        on_each(|space, cpus| {
            let geometry = space.machine.geometry();
            let naive = build(space, &plans);
            let unused = space.frame();
            for &(block, part, offset) in &tries {
                let shift = geometry.va_bits - geometry.page_shift - 3;
                let order = if part < 3 { geometry.order(part as u8) } else { Order::ZERO };
                let within = offset & (order.pages() - 1);
                let at = Vpn::new((part << shift) + block * order.pages() + within);
                let addr = space.addr(at);
                if find(&naive, at).is_some_and(|(frame, want)| want.level > 0 && frame < unused) {
                    continue; // The store would go into a table: a block covers those as well.
                }
                let (read, write, fetch) = (
                    cpus[0].read(addr).map_err(|trap| trap.kind),
                    cpus[0].write(addr, 0).map_err(|trap| trap.kind),
                    cpus[0].fetch(addr).map_err(|trap| trap.kind),
                );
                let Some((frame, want)) = find(&naive, at) else {
                    assert_eq!(read, Err(TrapKind::NotPresent));
                    assert_eq!(write, Err(TrapKind::NotPresent));
                    assert_eq!(fetch, Err(TrapKind::NotPresent));
                    continue;
                };
                let inside = space.machine.frames().contains(frame);
                let expect = |allowed: bool, got: Option<TrapKind>| {
                    let outside = matches!(got, Some(TrapKind::Malformed(_)));
                    match (allowed, inside) {
                        (true, true) => assert_eq!(got, None),
                        (true, false) => assert!(outside),
                        (false, _) => assert_eq!(got, Some(TrapKind::Permission)),
                    }
                };
                expect(true, read.err());
                expect(want.prot.contains(Prot::WRITE), write.err());
                expect(want.prot.contains(Prot::EXEC), fetch.err());
                let dirty = want.dirty || want.prot.contains(Prot::WRITE);
                let block_of = at.align_down(geometry.order(want.level).pages());
                let after = Want { accessed: true, dirty, ..want };
                assert_eq!(space.get(block_of, want.level), leaf_word(space.isa, after));
            }
            assert_eq!(space.machine.audit(), Ok(()));
        });
    }
}

#[test]
fn programs_reach_the_memory_that_is_mapped() {
    on_each(|space, cpus| {
        let (one, two) = (space.frame(), space.frame());
        space.map(AT, page(one, Prot::RW));
        space.map(AT.add(1), page(two, Prot::READ));
        let shift = space.machine.geometry().page_shift;
        cpus[0].write(space.addr(AT).add(8), 77).unwrap();
        assert_eq!(space.machine.ram().read_word(one.addr(shift).add(8)), Some(77));
        space.machine.ram().write_word(two.addr(shift), 88).unwrap();
        assert_eq!(cpus[0].read(space.addr(AT.add(1))), Ok(88));
    });
}

#[test]
fn without_hardware_flags_old_and_clean_pages_trap() {
    for isa in Isa::ALL {
        let config = Config { sets_accessed: false, sets_dirty: false, ..Config::new(isa) };
        if isa.always_sets_flags() {
            let mut ram = support::ram();
            let refused = Machine::new(config, &mut ram).unwrap_err();
            assert_eq!(refused, MachineError::Config(ConfigError::Flags));
            continue;
        }
        on(config, |space, cpus| {
            let (frame, addr) = (space.frame(), space.addr(AT));
            space.map(AT, page(frame, Prot::RW));
            assert_eq!(cpus[0].read(addr).unwrap_err().kind, TrapKind::AccessFlag);
            space.map(AT, Want { accessed: true, ..page(frame, Prot::RW) });
            assert_eq!(cpus[0].read(addr), Ok(0));
            assert_eq!(cpus[0].write(addr, 1).unwrap_err().kind, TrapKind::Permission);
            space.map(AT, used(frame, Prot::RW));
            assert_eq!(cpus[0].write(addr, 1), Ok(()));
            assert_eq!(space.machine.counts().flags_set, 0);
        });
    }
}

#[test]
fn a_translation_is_cached_until_it_is_flushed() {
    on_each(|space, cpus| {
        let addr = space.addr(AT);
        space.map(AT, used(space.frame(), Prot::RW));
        cpus[0].write(addr, 5).unwrap();
        let before = space.machine.counts();
        space.set(AT, 0, 0);
        assert_eq!(cpus[0].read(addr), Ok(5), "the TLB does not know yet");
        space.flush(AT, 1);
        assert_eq!(cpus[0].read(addr).unwrap_err().kind, TrapKind::NotPresent);
        let counts = space.machine.counts() - before;
        assert_eq!((counts.first_hits, counts.walks, counts.traps), (1, 1, 1));
        assert_eq!((counts.flushes, counts.invalidations, counts.full_flushes), (1, 1, 0));
        assert_eq!((counts.fills, counts.words_filled), (1, 1));
    });
}

#[test]
fn a_contiguous_block_is_one_translation_unless_the_hint_is_ignored() {
    for isa in Isa::ALL {
        for joins_contiguous in [false, true] {
            let config = Config { joins_contiguous, ..Config::new(isa) };
            on(config, |space, cpus| {
                let count = space.contiguous();
                if count == 1 {
                    return;
                }
                let order = count.ilog2() as u8;
                let (first, frame) = (Vpn::new(count * 3), space.block(order));
                space.map_contiguous(first, frame, used(frame, Prot::RW));
                for at in 0..count {
                    cpus[0].write(space.addr(first.add(at)), at).unwrap();
                }
                let walks = if joins_contiguous { 1 } else { count };
                assert_eq!(space.machine.counts().walks, walks);
                assert_eq!(space.machine.audit(), Ok(()));
            });
        }
    }
}

#[test]
fn a_denial_is_walked_again_or_kept_as_configured() {
    for rewalks_on_denial in [false, true] {
        on(Config { rewalks_on_denial, ..Config::arm64_4k() }, |space, cpus| {
            let (frame, addr) = (space.frame(), space.addr(AT));
            space.map(AT, used(frame, Prot::READ));
            cpus[0].read(addr).unwrap();
            space.map(AT, used(frame, Prot::RW));
            assert_eq!(cpus[0].write(addr, 1).is_ok(), rewalks_on_denial);
            space.flush(AT, 1);
            assert_eq!(cpus[0].write(addr, 1), Ok(()));
        });
    }
}

#[test]
fn copies_fail_where_memory_is_poisoned_or_a_fault_is_injected() {
    let mut ram = support::ram();
    let (machine, frames) = Machine::new(Config::x86_64(), &mut ram).unwrap();
    assert!(frames.is_zeroed());
    let (to, from) = frames.split_at(8);
    let from = FrameSpan::new(from.start(), 4);
    assert_eq!(machine.copy(&to, 0, from), Ok(()));
    machine.set_poisoned(from.start.add(2), true);
    assert_eq!(machine.copy(&to, 0, from), Err(Poisoned { frame: from.start.add(2) }));
    machine.set_poisoned(from.start.add(2), false);
    machine.faults().fail_copy(2);
    assert_eq!(machine.copy(&to, 0, from), Ok(()));
    assert_eq!(machine.copy(&to, 0, from), Err(Poisoned { frame: from.start }));
    let to: FrameRun = to.dirtied();
    machine.clear(&to, 1..3, Reuse::Soon);
    assert_eq!(machine.counts().bytes_cleared, 2 << 12);
}

#[test]
fn ram_that_was_used_is_not_zeroed_for_the_next_machine() {
    let mut ram = support::ram();
    let (machine, frames) = Machine::new(Config::x86_64().bare(), &mut ram).unwrap();
    assert!(frames.is_zeroed());
    drop(machine.with_clears(Chosen::default_for_cpu()));
    let (_, frames) = Machine::new(Config::arm64_64k(), &mut ram).unwrap();
    assert!(!frames.is_zeroed());
}

#[test]
fn a_thread_runs_as_the_cpu_whose_handle_it_has() {
    let mut ram = support::ram();
    let (machine, _frames) = Machine::new(Config::x86_64().with_cpus(3), &mut ram).unwrap();
    let two = machine.cpu(2);
    assert_eq!(Hardware::cpu(&machine), CpuId::new(2));
    let one = machine.cpu(1);
    assert_eq!(Hardware::cpu(&machine), CpuId::new(1));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(Hardware::cpu(&machine), CpuId::new(0));
            let _zero = machine.cpu(0);
        });
    });
    drop(one);
    assert_eq!(Hardware::cpu(&machine), CpuId::new(2));
    two.bind();
}

/// Two CPUs, one thread each: `program` runs on CPU 0 until `library` on CPU 1 is done.
fn race(
    config: Config,
    program: impl Fn(&quire_machine::Cpu<'_, '_>, u64) + Sync,
    library: impl Fn(&Machine<'_>, &quire_hw::TableFrame, usize, u64) + Sync,
) {
    let mut ram = support::ram();
    let (machine, frames) = Machine::new(config.with_cpus(2), &mut ram).unwrap();
    machine.faults().delay(300, 7);
    let space = Space::new(&machine, frames);
    let (frame, root) = (space.frame(), space.root);
    space.map(AT, page(frame, Prot::RW));
    let (table, index) = space.slot(AT, 0);
    let word = machine.load(table, index);
    let (table, addr) = (space.tables(table), space.addr(AT).get());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let cpu = machine.cpu(0);
            cpu.switch(root, ASID);
            while !done.load(Ordering::Relaxed) {
                program(&cpu, addr);
                // The host's locks are unfair: without a pause the flush would starve.
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            let _cpu = machine.cpu(1);
            let _end = Ends(&done);
            library(&machine, &table, index, word);
        });
    });
    machine.audit().unwrap();
}

fn flush_page(machine: &Machine<'_>) {
    let cpus = quire_units::CpuSet::new();
    cpus.insert(CpuId::new(0));
    let (root, pages) = (machine.frames().start, Some(Pieces::page(AT)));
    machine.flush(&Flush { asid: ASID, root, pages, tables: false, cpus: &cpus });
}

#[test]
fn a_walker_that_sets_flags_never_brings_back_a_word_that_was_removed() {
    for config in [Config::x86_64(), Config::x86_64().bare(), Config::riscv64_sv48().bare()] {
        let write = |cpu: &quire_machine::Cpu<'_, '_>, addr| {
            let _ = cpu.write(quire_units::VirtAddr::new(addr), 1);
        };
        race(config, write, |machine, table, index, clean| {
            for turn in 0..1000 {
                let _op = machine.operation("unmap and map").cleans();
                let mut seen = machine.load(table.frame(), index);
                while let Err(now) = machine.compare_exchange(table, index, seen, 0) {
                    seen = now;
                }
                assert_eq!(machine.load(table.frame(), index), 0);
                flush_page(machine);
                assert_eq!(machine.load(table.frame(), index), 0, "a walker brought it back");
                machine.fill(table, index, 1, clean, 0);
                // Now and then the program gets to walk, to be caught in the middle.
                for _ in 0..turn % 8 {
                    std::thread::yield_now();
                }
            }
        });
    }
}

#[test]
fn flags_set_meanwhile_are_not_lost_by_a_careful_library() {
    // Bit 9 is the software's on x86-64.
    let soft = 1 << 9;
    for config in [Config::x86_64(), Config::x86_64().bare()] {
        let write = |cpu: &quire_machine::Cpu<'_, '_>, addr| {
            cpu.write(quire_units::VirtAddr::new(addr), 1).unwrap();
        };
        race(config, write, |machine, table, index, clean| {
            let flags = 3 << 5;
            let mut dirty = false;
            let wait_for_store = || {
                while machine.load(table.frame(), index) & 1 << 6 == 0 {
                    std::thread::yield_now();
                }
            };
            for turn in 0..1000 {
                if turn % 100 == 0 {
                    wait_for_store(); // so that there surely is a flag to be kept
                }
                let mut seen = machine.load(table.frame(), index);
                while let Err(now) =
                    machine.compare_exchange(table, index, seen, (seen ^ soft) & !flags)
                {
                    assert_eq!(now & !flags, seen & !flags, "only flags change meanwhile");
                    seen = now;
                }
                assert_eq!(seen & soft != 0, turn % 2 == 1);
                dirty |= seen & 1 << 6 != 0;
                flush_page(machine);
            }
            // After the last flush the program must note its next store again.
            wait_for_store();
            assert!(dirty);
            assert_eq!(machine.load(table.frame(), index) & !flags, clean & !flags);
        });
    }
}

#[test]
fn spaces_with_other_tags_do_not_share_translations() {
    on(Config::riscv64_sv39(), |space, cpus| {
        space.map(AT, used(space.frame(), Prot::RW));
        cpus[0].write(space.addr(AT), 9).unwrap();
        let empty = space.frame();
        cpus[0].switch(empty, Asid(2));
        assert_eq!(cpus[0].read(space.addr(AT)).unwrap_err().kind, TrapKind::NotPresent);
        cpus[0].switch(space.root, ASID);
        let walks = space.machine.counts().walks;
        assert_eq!(cpus[0].read(space.addr(AT)), Ok(9));
        assert_eq!(space.machine.counts().walks, walks, "still cached");
        cpus[0].leave();
        assert_eq!(cpus[0].read(space.addr(AT)).unwrap_err().kind, TrapKind::NotPresent);
    });
}
