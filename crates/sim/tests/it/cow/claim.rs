//! A folio that no other space maps any more is reused, not copied.

use quire::space::AreaFlags;
use quire::stats::Event::{CowCopy, CowReuse, Flush, Refold, Unfold};
use quire_arch::{Arch, Arm4k, Arm16k, Arm64k, Attrs, Sv39, Sv48, X86_64};
use quire_machine::{Config, Cpu};
use quire_sim::program::Program;
use quire_sim::stage::{Meter, contiguous, leaves, space_of, span, verify};
use quire_sim::system::HostedMm;
use quire_units::{PageSpan, Prot};

use super::{block, end, fork, frame, on_each_format, page, tell, unshared};

fn is_claimed_whole<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let size = block::<A>();
    let space = space_of(mm, 2 * size, AreaFlags::empty());
    let program = Program::on(cpu, mm, &space);
    program.write(page::<A>(3), 3).unwrap();
    let before = frame(mm, &space, page::<A>(3));
    let child = fork(mm, cpu, &space);
    end(mm, cpu, child);
    let meter = Meter::new(mm);
    let all = span::<A>(0, size);
    assert_eq!(program.write(page::<A>(5), 5), unshared(all, None), "{}", A::NAME);
    assert_eq!(meter.events([CowReuse, CowCopy, Unfold, Refold]), [size, 0, 0, 0], "{}", A::NAME);
    for number in 0..size {
        assert_eq!(program.write(page::<A>(number), number), Ok(vec![]), "{}: {number}", A::NAME);
    }
    assert_eq!(frame(mm, &space, page::<A>(3)), before);
    verify(mm, &[&space]);
    cpu.leave();
    end(mm, cpu, space);
}

#[test]
fn c4_the_first_write_after_the_others_exit_claims_the_whole_folio() {
    on_each_format!(is_claimed_whole);
}

fn pages_in_a_row_are_claimed_ahead<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let space = space_of(mm, 200, AreaFlags::empty());
    let program = Program::on(cpu, mm, &space);
    let write = |number| program.write(page::<A>(number), number);
    for number in 0..200 {
        write(number).unwrap();
    }
    let child = fork(mm, cpu, &space);
    {
        let _op = cpu.operation("unmap");
        mm.unmap(&child, span::<A>(0, 40)).unwrap();
        mm.unmap(&child, span::<A>(41, 199)).unwrap();
    }
    let kept = |from, to| unshared(PageSpan::new(page::<A>(from), page::<A>(to)), None);
    let meter = Meter::new(mm);
    // One page alone shows no sequence, neither the first nor one elsewhere.
    assert_eq!(write(0), kept(0, 1), "{}", A::NAME);
    assert_eq!(write(100), kept(100, 101), "{}", A::NAME);
    // The second one does; and the pages it took along are written without a fault.
    assert_eq!(write(1), kept(1, 18), "{}", A::NAME);
    assert!((2..18).all(|number| write(number) == Ok(vec![])), "{}", A::NAME);
    // It has come sixteen pages, and gets twice as many; but the child still has number 40.
    assert_eq!(write(18), kept(18, 40), "{}", A::NAME);
    // The area ends.
    assert_eq!(write(40), unshared(span::<A>(40, 1), Some(0)), "{}", A::NAME);
    assert_eq!([write(193), write(194)], [kept(193, 194), kept(194, 200)], "{}", A::NAME);
    let kept = 40 + 1 + 7;
    assert_eq!(meter.events([CowReuse, CowCopy, Flush]), [kept, 1, 1], "{}", A::NAME);
    verify(mm, &[&space, &child]);
    cpu.leave();
    end(mm, cpu, child);
    end(mm, cpu, space);
}

#[test]
fn c4_sequential_writes_claim_the_next_pages_as_well() {
    tell::<X86_64>(Config::x86_64(), &[], pages_in_a_row_are_claimed_ahead);
    tell::<Arm4k>(Config::arm64_4k(), &[], pages_in_a_row_are_claimed_ahead);
    tell::<Arm64k>(Config::arm64_64k(), &[], pages_in_a_row_are_claimed_ahead);
    tell::<Sv39>(Config::riscv64_sv39(), &[], pages_in_a_row_are_claimed_ahead);
}

fn is_claimed_by_the_child<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let size = block::<A>();
    let space = space_of(mm, size, AreaFlags::empty());
    Program::on(cpu, mm, &space).write(page::<A>(3), 3).unwrap();
    let child = fork(mm, cpu, &space);
    let within = Program::on(cpu, mm, &child);
    end(mm, cpu, space);
    assert_eq!(within.write(page::<A>(0), 1), unshared(span::<A>(0, size), None), "{}", A::NAME);
    assert_eq!(within.read(page::<A>(3)), Ok(3));
    cpu.leave();
    end(mm, cpu, child);
}

#[test]
fn c4_a_child_that_is_left_alone_claims_as_its_parent_would() {
    on_each_format!(is_claimed_by_the_child);
}

/// A folio of which one half may be written and the other may not.
fn claims_within_its_area<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    let size = block::<A>();
    let space = space_of(mm, size, AreaFlags::empty());
    let program = Program::on(cpu, mm, &space);
    program.write(page::<A>(0), 1).unwrap();
    mm.protect(&space, span::<A>(size / 2, size / 2), Prot::READ).unwrap();
    let child = fork(mm, cpu, &space);
    end(mm, cpu, child);
    program.write(page::<A>(1), 2).unwrap();
    let writable = |leaf: &&quire::check::Leaf| leaf.attrs.contains(Attrs::WRITE);
    let all = leaves(mm, &space);
    let granted: Vec<_> = all.iter().filter(writable).collect();
    assert!(!granted.is_empty());
    assert!(granted.iter().all(|leaf| leaf.pages.start < page::<A>(size / 2)), "{}", A::NAME);
    verify(mm, &[&space]);
    cpu.leave();
    end(mm, cpu, space);
}

#[test]
fn i7_a_claim_stays_within_its_area() {
    on_each_format!(claims_within_its_area);
}
