//! A program that writes shared pages one after the other has the next ones copied with them.

use quire::inject::FailPlan;
use quire::space::AreaFlags;
use quire::stats::Event::{CowCopy, Flush};
use quire_arch::{Arch, Arm4k, Sv39, X86_64};
use quire_machine::{Config, Cpu};
use quire_sim::program::Program;
use quire_sim::stage::{Meter, space_of, stage, verify};
use quire_sim::system::HostedMm;
use quire_units::{Order, PageSpan, Vpn};

use super::{Story, end, fork, page, unshared};

const PAGES: u64 = 64;

/// The story, with folios of base pages alone.
fn tell<A: Arch>(config: Config, story: Story<A>) {
    stage::<A>(config, 4096, &[], story);
}

/// A parent with all its pages written, and its child.
fn family<A: Arch>(
    mm: &HostedMm<'_, '_, A>,
    cpu: &Cpu<'_, '_>,
    flags: AreaFlags,
    act: impl FnOnce(&Program<'_, '_, '_, A>),
) {
    let space = space_of(mm, PAGES, flags);
    let program = Program::on(cpu, mm, &space);
    (0..PAGES).for_each(|number| assert!(program.write(page::<A>(number), number).is_ok()));
    let child = fork(mm, cpu, &space);
    act(&program);
    verify(mm, &[&space, &child]);
    let within = Program::on(cpu, mm, &child);
    for number in 0..PAGES {
        assert_eq!(within.read(page::<A>(number)), Ok(number), "{}", A::NAME);
    }
    cpu.leave();
    end(mm, cpu, child);
    end(mm, cpu, space);
}

fn pages<A: Arch>(from: u64, to: u64) -> PageSpan {
    let vpn: fn(u64) -> Vpn = page::<A>;
    PageSpan::new(vpn(from), vpn(to))
}

fn as_many_as_were_written<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>) {
    family(mm, cpu, AreaFlags::empty(), |program| {
        let write = |number| program.write(page::<A>(number), number + 100);
        let copied = |from, to| unshared(pages::<A>(from, to), Some(0));
        let meter = Meter::new(mm);
        for (from, to) in [(0, 1), (1, 3), (3, 7), (7, 15), (15, 31), (31, 47), (47, 63)] {
            assert_eq!(write(from), copied(from, to), "{}", A::NAME);
            assert!((from + 1..to).all(|number| write(number) == Ok(vec![])), "{}", A::NAME);
        }
        // Beyond the last page is another area, or none.
        assert_eq!(write(63), copied(63, 64), "{}", A::NAME);
        assert_eq!(meter.events([CowCopy, Flush]), [PAGES, 8], "{}", A::NAME);
        assert!((0..PAGES).all(|number| program.read(page::<A>(number)) == Ok(number + 100)));
    });
}

#[test]
fn c4_a_program_that_writes_in_order_has_as_many_pages_copied_ahead_as_it_wrote() {
    tell::<X86_64>(Config::x86_64(), as_many_as_were_written);
    tell::<Arm4k>(Config::arm64_4k(), as_many_as_were_written);
    tell::<Sv39>(Config::riscv64_sv39(), as_many_as_were_written);
}

#[test]
fn c4_a_program_that_leaves_pages_out_has_none_copied_ahead() {
    tell::<X86_64>(Config::x86_64(), |mm, cpu| {
        family(mm, cpu, AreaFlags::empty(), |program| {
            for number in (0..PAGES).step_by(2).chain([1]) {
                let alone = unshared(pages::<X86_64>(number, number + 1), Some(0));
                assert_eq!(program.write(page::<X86_64>(number), 1), alone);
            }
        });
    });
}

#[test]
fn c4_what_is_told_apart_by_page_or_wants_larger_folios_is_not_copied_ahead() {
    tell::<X86_64>(Config::x86_64(), |mm, cpu| {
        let one = |number| unshared(pages::<X86_64>(number, number + 1), Some(0));
        family(mm, cpu, AreaFlags::TRACKED, |program| {
            assert!((0..4).all(|number| program.write(page::<X86_64>(number), 1) == one(number)));
        });
        mm.policy().set_copy_most(Order::ZERO);
        family(mm, cpu, AreaFlags::empty(), |program| {
            assert!((0..4).all(|number| program.write(page::<X86_64>(number), 1) == one(number)));
        });
    });
}

#[test]
fn d6_pages_copied_ahead_stay_within_an_eighth_of_the_limit() {
    tell::<X86_64>(Config::x86_64(), |mm, cpu| {
        let space = space_of(mm, PAGES, AreaFlags::empty());
        let group = mm.groups().create(None).unwrap();
        mm.groups().set_limit(group, 1000).unwrap();
        mm.groups().join(&space, Some(group)).unwrap();
        mm.reclaim().relieve(group, &[&space][..]).unwrap();
        let program = Program::on(cpu, mm, &space);
        (0..PAGES).for_each(|number| assert!(program.write(page::<X86_64>(number), 1).is_ok()));
        let child = fork(mm, cpu, &space);
        let used = mm.reclaim().usage(group, &[&space, &child][..]);
        mm.groups().set_limit(group, used + 34).unwrap();
        mm.reclaim().relieve(group, &[&space, &child][..]).unwrap();
        let copied = |from, to| unshared(pages::<X86_64>(from, to), Some(0));
        for (from, to) in [(0, 1), (1, 3), (3, 5), (5, 7)] {
            assert_eq!(program.write(page::<X86_64>(from), 1), copied(from, to));
        }
        verify(mm, &[&space, &child]);
        cpu.leave();
        end(mm, cpu, child);
        end(mm, cpu, space);
    });
}

#[test]
fn e6_pages_that_cannot_be_copied_ahead_are_fewer() {
    tell::<X86_64>(Config::x86_64(), |mm, cpu| {
        family(mm, cpu, AreaFlags::empty(), |program| {
            let copied = |from, to| unshared(pages::<X86_64>(from, to), Some(0));
            let write = |number| program.write(page::<X86_64>(number), 1);
            assert_eq!([write(0), write(1)], [copied(0, 1), copied(1, 3)]);
            let before = mm.totals().fallback;
            // There is no block of four; then the third of eight pages cannot be read.
            mm.bare_phys().set_fail_plan(FailPlan::Nth(1));
            assert_eq!(write(3), copied(3, 5));
            mm.bare_phys().set_fail_plan(FailPlan::Never);
            mm.hardware().faults().fail_copy(3);
            assert_eq!(write(5), copied(5, 9));
            assert_eq!(mm.totals().fallback, before, "no larger folio was wanted");
        });
    });
}

#[test]
fn c4_pages_of_ones_own_are_not_copied_ahead() {
    tell::<X86_64>(Config::x86_64(), |mm, cpu| {
        family(mm, cpu, AreaFlags::empty(), |program| {
            let copied = |from, to| unshared(pages::<X86_64>(from, to), Some(0));
            let write = |number| program.write(page::<X86_64>(number), 1);
            assert_eq!(program.write(page::<X86_64>(2), 7), copied(2, 3));
            // The store of the first write stays.
            assert_eq!([write(0), write(1)], [copied(0, 1), copied(1, 2)]);
            assert_eq!(program.read(page::<X86_64>(2)), Ok(7));
        });
    });
}
