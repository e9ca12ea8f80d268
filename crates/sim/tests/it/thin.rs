//! Unused parts of large folios are freed when memory is short (D6): pages of zeroes, and pages
//! that are no longer mapped. Programs see no difference, also those that write meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use proptest::prelude::*;
use quire::check;
use quire::fault::SizePolicy;
use quire::space::{AreaFlags, At, Request, Space};
use quire::stats::Event;
use quire_arch::{Arch, Arm4k, Sv39, X86_64};
use quire_machine::{Config, Cpu};
use quire_sim::program::Program;
use quire_sim::stage::{place, space_of, span, stage, verify};
use quire_sim::system::{self, HostedMm};
use quire_units::{Asid, Order, PageSpan, VirtAddr, Vpn};

const PAGES: u64 = 1024;

fn page<A: Arch>(at: u64) -> Vpn {
    place::<A>().add(at)
}

/// Lets the hand go around until everything is old, and everything that can be is given back; how
/// many pages were.
fn reclaim<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>, spaces: &[&Space<A>]) -> u64 {
    let _operation = cpu.operation("reclaim").cleans();
    (0..4).map(|_| mm.reclaim().reclaim(4 * PAGES, spaces).dropped).sum()
}

/// Runs `test` with a space of two blocks in folios of `order`, page `n` of which holds
/// `holds(n)`.
fn with<A: Arch>(
    config: Config,
    order: u8,
    flags: AreaFlags,
    holds: fn(u64) -> u64,
    test: impl for<'m, 'r> FnOnce(&HostedMm<'m, 'r, A>, &Cpu<'m, 'r>, &Space<A>),
) {
    stage::<A>(config, 8192, &[order], |mm, cpu| {
        let space = space_of(mm, PAGES, flags);
        let program = Program::on(cpu, mm, &space);
        (0..PAGES).for_each(|at| drop(program.write(page::<A>(at), holds(at)).unwrap()));
        test(mm, cpu, &space);
        let program = Program::on(cpu, mm, &space);
        for at in 0..PAGES {
            if let Ok(word) = program.read(page::<A>(at)) {
                assert_eq!(word, holds(at), "page {at}");
            }
        }
        verify(mm, &[&space]);
        cpu.leave();
        mm.destroy(space);
    });
}

/// A tenth of the first block is nonzero, at both its ends and in its middle.
fn sparse(at: u64) -> u64 {
    let used = matches!(at, 0..17 | 250..270 | 500..);
    if used { at + 1 } else { 0 }
}

fn gives_zeroes_back<A: Arch>(config: Config) {
    with::<A>(config, 9, AreaFlags::empty(), sparse, |mm, cpu, space| {
        assert_eq!(reclaim(mm, cpu, &[space]), 0, "the policy is off");
        mm.policy().set_zeroes_most(Some(500));
        assert_eq!(reclaim(mm, cpu, &[space]), 0, "there are fewer zeroes than that");
        mm.policy().set_zeroes_most(Some(400));
        let (free, split) = (mm.phys().free_frames(), mm.totals().event(Event::UnderusedSplit));
        let gave = reclaim(mm, cpu, &[space]);
        // 17..250 and 270..500 are zero. Blocks of 32 pages hold three quarters of that: 32..224
        // and 288..480. Then 26 pages are many in the block before 256, in blocks of 8.
        assert_eq!(gave, 384 + 24);
        assert_eq!(mm.totals().event(Event::UnderusedSplit) - split, 2, "the other block is full");
        // One frame became the table in place of the large leaf.
        assert_eq!(mm.phys().free_frames() - free, gave - 1);
        let program = Program::on(cpu, mm, space);
        for at in [17, 100, 300, 499] {
            assert_eq!(program.read(page::<A>(at)), Ok(0));
            program.write(page::<A>(at), 9).unwrap();
            assert_eq!(program.read(page::<A>(at)), Ok(9));
            program.write(page::<A>(at), 0).unwrap();
        }
    });
}

#[test]
fn d6_pages_of_zeroes_are_given_back() {
    gives_zeroes_back::<X86_64>(Config::x86_64());
    gives_zeroes_back::<Arm4k>(Config::arm64_4k());
    gives_zeroes_back::<Sv39>(Config::riscv64_sv39());
}

#[test]
fn d6_of_folios_below_a_block_as_many_zeroes_in_proportion() {
    with::<Arm4k>(Config::arm64_4k(), 4, AreaFlags::empty(), sparse, |mm, cpu, space| {
        mm.policy().set_zeroes_most(Some(256));
        // 32..240 and 272..496 are whole folios; 17..32 is many of one, and 240..248 of another.
        assert_eq!(reclaim(mm, cpu, &[space]), 208 + 224 + 15 + 8);
    });
}

#[test]
fn d6_unmapped_parts_of_folios_are_freed() {
    with::<X86_64>(
        Config::x86_64(),
        9,
        AreaFlags::empty(),
        |at| at + 1,
        |mm, cpu, space| {
            {
                let _operation = cpu.operation("unmap");
                mm.unmap(space, span::<X86_64>(64, 300)).unwrap();
                mm.discard(space, span::<X86_64>(700, 3)).unwrap();
            }
            let free = mm.phys().free_frames();
            // Blocks of 4 in the first folio are three quarters of it, and all of the second's 3.
            assert_eq!(reclaim(mm, cpu, &[space]), 300 + 3);
            assert_eq!(mm.phys().free_frames() - free, 303);
            assert_eq!(mm.totals().event(Event::UnderusedSplit), 0);
            // A touch of a discarded page maps a new one.
            let program = Program::on(cpu, mm, space);
            for at in 700..703 {
                assert_eq!(program.read(page::<X86_64>(at)), Ok(0));
                program.write(page::<X86_64>(at), at + 1).unwrap();
            }
        },
    );
}

#[test]
fn d6_shared_or_locked_pages_are_not_freed() {
    let locked = AreaFlags::LOCKED;
    with::<X86_64>(Config::x86_64(), 9, locked, sparse, |mm, cpu, space| {
        mm.policy().set_zeroes_most(Some(0));
        assert_eq!(reclaim(mm, cpu, &[space]), 0);
    });
    with::<X86_64>(Config::x86_64(), 9, AreaFlags::empty(), sparse, |mm, cpu, space| {
        mm.policy().set_zeroes_most(Some(0));
        {
            let _operation = cpu.operation("track").cleans();
            mm.spaces().track(space, span::<X86_64>(0, PAGES)).unwrap();
        }
        assert_eq!(reclaim(mm, cpu, &[space]), 0, "tracked pages stay, so that no write is missed");
    });
    with::<X86_64>(Config::x86_64(), 9, AreaFlags::empty(), sparse, |mm, cpu, space| {
        mm.policy().set_zeroes_most(Some(0));
        let child = mm.fork(space, Asid(2)).unwrap();
        assert_eq!(reclaim(mm, cpu, &[space, &child]), 0, "both have it");
        cpu.leave();
        mm.destroy(child);
        assert_eq!(reclaim(mm, cpu, &[space]), 0, "not known to be exclusive");
        Program::on(cpu, mm, space).write(page::<X86_64>(0), sparse(0)).unwrap();
        assert!(reclaim(mm, cpu, &[space]) > 0);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// After any writes, discards and divisions each page has the content that a table has for it.
    #[test]
    fn d6_programs_see_no_difference(
        steps in prop::collection::vec((0..6_u8, 0..PAGES, 1..200_u64, 0..40_u32), 1..40),
        order in 1..10_u8,
    ) {
        stage::<Arm4k>(Config::arm64_4k(), 8192, &[order], |mm, cpu| {
            let space = space_of(mm, PAGES, AreaFlags::empty());
            let mut holds = vec![0_u64; PAGES as usize];
            for (step, (what, at, count, most)) in steps.into_iter().enumerate() {
                let end = (at + count).min(PAGES);
                let program = Program::on(cpu, mm, &space);
                match what {
                    0 | 1 => for at in at..end {
                        // Every third is a zero that was written.
                        let word = if at % 3 == 0 { 0 } else { step as u64 * 1000 + at };
                        program.write(page::<Arm4k>(at), word).unwrap();
                        holds[at as usize] = word;
                    },
                    2 => for at in at..end {
                        program.write(page::<Arm4k>(at), 0).unwrap();
                        holds[at as usize] = 0;
                    },
                    3 => {
                        let _operation = cpu.operation("discard");
                        mm.discard(&space, span::<Arm4k>(at, end - at)).unwrap();
                        holds[at as usize..end as usize].fill(0);
                    }
                    _ => {
                        mm.policy().set_zeroes_most(Some(most));
                        reclaim(mm, cpu, &[&space]);
                    }
                }
                verify(mm, &[&space]);
            }
            let program = Program::on(cpu, mm, &space);
            for at in 0..PAGES {
                let word = program.read(page::<Arm4k>(at)).unwrap();
                assert_eq!(word, holds[at as usize], "page {at}");
            }
            cpu.leave();
            mm.destroy(space);
        });
    }
}

/// One CPU counts in pages among zeroes, another gives zeroes back: no number is lost.
fn nothing_written_is_lost<A: Arch>(config: Config) {
    let mut ram = system::ram(8192 << A::PAGE_SHIFT).unwrap();
    system::with::<A, _>(Config { cpus: 2, ..config }, &mut ram, |machine, mm| {
        mm.policy().set_size(Order::new(9), SizePolicy::Always).unwrap();
        mm.policy().set_zeroes_most(Some(64));
        let start = place::<A>();
        let space = mm.space(Asid(1), PageSpan::new(start, start.add(PAGES))).unwrap();
        mm.map(&space, &Request::anon(PAGES).at(At::Fixed(start))).unwrap();
        let (over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let cpu = machine.cpu(1);
                while !over.load(Ordering::Relaxed) {
                    reclaim(mm, &cpu, &[&space]);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
            let cpu = machine.cpu(0);
            let program = Program::on(&cpu, mm, &space);
            let mut dice = quire_sim::Dice::new(3);
            let mut holds = vec![0_u64; PAGES as usize];
            for step in 1..20_000_u64 {
                if step.is_multiple_of(500) {
                    // Each pair of new folios has a round of the reclaimer, so zeroes are freed.
                    let done = rounds.load(Ordering::Relaxed) + 2;
                    while rounds.load(Ordering::Relaxed) < done && !other.is_finished() {
                        thread::yield_now();
                    }
                    let _operation = cpu.operation("discard");
                    mm.discard(&space, PageSpan::new(start, start.add(PAGES))).unwrap();
                    holds.fill(0);
                }
                // A few pages, so that they are often looked at just when they are written.
                let at = dice.roll(16) * (PAGES / 16);
                let addr = VirtAddr::new(page::<A>(at).get() << A::PAGE_SHIFT);
                let word = cpu.read(addr).or_else(|_| program.read(page::<A>(at))).unwrap();
                assert_eq!(word, holds[at as usize], "page {at} at step {step}");
                // Most of the pages become zero again.
                holds[at as usize] = if dice.once_in(3) { step } else { 0 };
                program.write(page::<A>(at), holds[at as usize]).unwrap();
            }
            over.store(true, Ordering::Relaxed);
            cpu.leave();
        });
        machine.audit().unwrap();
        assert!(mm.totals().event(Event::ZeroesDropped) > 0, "nothing went");
        check::system(mm, &[&space]).unwrap();
        mm.destroy(space);
        machine.audit().unwrap();
    })
    .unwrap();
}

#[test]
fn i14_a_write_while_zeroes_go_stays_x86_64() {
    nothing_written_is_lost::<X86_64>(Config::x86_64());
}

#[test]
fn i14_a_write_while_zeroes_go_stays_arm64() {
    nothing_written_is_lost::<Arm4k>(Config::arm64_4k());
}
