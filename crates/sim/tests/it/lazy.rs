//! Guards, lazily freed memory and tracked writes (row D4, I14): the gain of each, and the content
//! that it must keep. The property test of swap has them in its scripts as well.

use quire::space::{AreaFlags, Space};
use quire::stats::Event;
use quire::table::{MarkKind, Sight};
use quire::{Error, Scope};
use quire_arch::{Arch, Arm4k, Sv39, X86_64};
use quire_machine::{Config, Cpu};
use quire_sim::program::Program;
use quire_sim::stage::{Meter, place, space_of, span, stage, verify};
use quire_sim::system::HostedMm;
use quire_units::{Access, Asid, PageSpan, Prot, Vpn};

const NONE: AreaFlags = AreaFlags::empty();
const PAGES: u64 = 1024;

/// Runs `test` with a space of [`PAGES`] pages, in folios of 64 KiB, page `n` of which holds
/// `n + 1`.
fn with<A: Arch>(
    config: Config,
    sizes: &[u8],
    test: impl for<'m, 'r> FnOnce(&HostedMm<'m, 'r, A>, &Cpu<'m, 'r>, &Space<A>),
) {
    stage::<A>(config, 8192, sizes, |mm, cpu| {
        let space = space_of(mm, PAGES, NONE);
        let program = Program::on(cpu, mm, &space);
        (0..PAGES).for_each(|at| drop(program.write(page::<A>(at), at + 1).unwrap()));
        test(mm, cpu, &space);
        verify(mm, &[&space]);
        cpu.leave();
        mm.destroy(space);
    });
}

fn page<A: Arch>(at: u64) -> Vpn {
    place::<A>().add(at)
}

fn out<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> u64 {
    let spaces = [space];
    mm.paging().page_out(space, span::<A>(0, PAGES), Scope::Own, &spaces[..]).unwrap().pages
}

fn free<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>, space: &Space<A>, what: PageSpan) {
    let _operation = cpu.operation("free lazily").cleans();
    mm.spaces().free_lazily(space, what).unwrap();
}

#[test]
fn d4_guards_are_one_entry_for_a_block_where_there_is_no_table() {
    stage::<X86_64>(Config::x86_64(), 4096, &[], |mm, _| {
        let space = space_of(mm, 4096, NONE);
        let since = Meter::new(mm);
        mm.spaces().guard(&space, span::<X86_64>(1, 4094)).unwrap();
        // The first block and the last have guards page by page, and two between them do not.
        let mut entries = Vec::new();
        mm.spaces().runs(&space, span::<X86_64>(0, 4096), &mut |seen| {
            let Sight::Marker(marks) = seen.what else { panic!("{seen:?}") };
            assert_eq!(marks.kind(), Some(MarkKind::Guard));
            entries.push((seen.pages.count(), seen.leaf.get()));
        });
        let blocks = 4096 / 512 - 2;
        assert_eq!(entries[0], (511, 0));
        assert_eq!(entries[1..=blocks], vec![(512, 9); blocks]);
        assert_eq!(entries.last(), Some(&(511, 0)));
        assert_eq!(since.counts().flushes, 0, "nothing was mapped");
        for at in [1, 700, 4094] {
            let fault = mm.fault(&space, page::<X86_64>(at), Access::Read);
            assert_eq!(fault, Err(Error::Guarded(page::<X86_64>(at)).into()));
        }
        assert!(mm.fault(&space, page::<X86_64>(0), Access::Read).is_ok());
        mm.spaces().unguard(&space, span::<X86_64>(700, 1)).unwrap();
        assert!(mm.fault(&space, page::<X86_64>(700), Access::Write).is_ok());
        assert!(mm.fault(&space, page::<X86_64>(701), Access::Write).is_err());
        assert_eq!(
            mm.spaces().next_guard(&space, span::<X86_64>(700, 9)),
            Some(page::<X86_64>(701))
        );
        verify(mm, &[&space]);
        mm.destroy(space);
    });
}

#[test]
fn d4_guards_of_several_calls_are_one_run() {
    stage::<X86_64>(Config::x86_64(), 4096, &[], |mm, _| {
        let space = space_of(mm, PAGES, NONE);
        for part in [span::<X86_64>(20, 5), span::<X86_64>(10, 10), span::<X86_64>(25, 1)] {
            mm.spaces().guard(&space, part).unwrap();
        }
        let mut runs = Vec::new();
        mm.spaces().runs(&space, span::<X86_64>(0, PAGES), &mut |seen| runs.push(seen.pages));
        assert_eq!(runs, [span::<X86_64>(10, 16)]);
        verify(mm, &[&space]);
        mm.destroy(space);
    });
}

fn guards_stay<A: Arch>(config: Config) {
    with::<A>(config, &[4, 9], |mm, cpu, space| {
        mm.spaces().guard(space, span::<A>(20, 600)).unwrap();
        mm.discard(space, span::<A>(0, 300)).unwrap();
        mm.protect(space, span::<A>(0, 400), Prot::READ).unwrap();
        free(mm, cpu, space, span::<A>(0, PAGES));
        let child = mm.fork(space, Asid(2)).unwrap();
        for of in [space, &child] {
            let program = Program::on(cpu, mm, of);
            assert!(program.read(page::<A>(20)).is_err() && program.read(page::<A>(619)).is_err());
            assert_eq!(
                (program.read(page::<A>(19)), program.read(page::<A>(620))),
                (Ok(0), Ok(621))
            );
        }
        verify(mm, &[space, &child]);
        cpu.leave();
        mm.destroy(child);
        mm.unmap(space, span::<A>(100, 50)).unwrap();
        let again = quire::space::Request::anon(50).at(quire::space::At::Fixed(page::<A>(100)));
        mm.map(space, &again).unwrap();
        assert!(mm.fault(space, page::<A>(100), Access::Read).is_ok(), "it went with its area");
        assert!(mm.fault(space, page::<A>(99), Access::Read).is_err());
    });
}

#[test]
fn d4_guards_outlive_all_but_their_area() {
    guards_stay::<X86_64>(Config::x86_64());
    guards_stay::<Arm4k>(Config::arm64_4k());
    guards_stay::<Sv39>(Config::riscv64_sv39());
}

#[test]
fn d4_locked_or_unmapped_pages_get_no_guard_and_lose_nothing() {
    with::<X86_64>(Config::x86_64(), &[4], |mm, cpu, space| {
        mm.mlock(space, span::<X86_64>(100, 10)).unwrap();
        assert_eq!(mm.spaces().guard(space, span::<X86_64>(0, PAGES)), Err(Error::Invalid));
        assert_eq!(mm.spaces().free_lazily(space, span::<X86_64>(0, PAGES)), Err(Error::Invalid));
        let hole = Error::NoArea(page::<X86_64>(PAGES));
        assert_eq!(mm.spaces().guard(space, span::<X86_64>(200, PAGES)), Err(hole));
        assert_eq!(mm.spaces().unguard(space, span::<X86_64>(200, PAGES)), Err(hole));
        assert_eq!(mm.spaces().free_lazily(space, span::<X86_64>(200, PAGES)), Err(hole));
        let program = Program::on(cpu, mm, space);
        (0..PAGES).for_each(|at| assert_eq!(program.read(page::<X86_64>(at)), Ok(at + 1)));
    });
}

/// Lazily freed memory is lost unless it was written again.
fn lost_or_kept<A: Arch>(config: Config) {
    with::<A>(config, &[4], |mm, cpu, space| {
        let program = Program::on(cpu, mm, space);
        free(mm, cpu, space, span::<A>(0, 512));
        assert_eq!(mm.spaces().lazily_free(space, span::<A>(0, PAGES)), 512);
        (0..512).for_each(|at| assert_eq!(program.read(page::<A>(at)), Ok(at + 1)));
        program.write(page::<A>(35), 77).unwrap();
        let since = Meter::new(mm);
        // There is no swap device: freed memory goes, except for one folio that was written.
        assert_eq!(out(mm, space), 512 - 16);
        assert_eq!(since.event(Event::LazyFreed), 512 - 16);
        assert_eq!(mm.spaces().lazily_free(space, span::<A>(0, PAGES)), 0);
        for at in (0..PAGES).filter(|at| *at != 35) {
            let kept = (32..48).contains(&at) || at >= 512;
            assert_eq!(program.read(page::<A>(at)), Ok(if kept { at + 1 } else { 0 }), "{at}");
        }
        assert_eq!(program.read(page::<A>(35)), Ok(77));
    });
}

#[test]
fn i14_only_unwritten_pages_are_lost() {
    lost_or_kept::<X86_64>(Config::x86_64());
    lost_or_kept::<Arm4k>(Config::arm64_4k());
    lost_or_kept::<Sv39>(Config::riscv64_sv39());
}

#[test]
fn i14_shared_and_pinned_folios_are_not_lost() {
    with::<X86_64>(Config::x86_64(), &[4], |mm, cpu, space| {
        let pinned = mm.pin(space, page::<X86_64>(3), Access::Write).unwrap();
        let all = span::<X86_64>(0, PAGES);
        free(mm, cpu, space, all);
        assert_eq!(mm.spaces().lazily_free(space, all), PAGES - 16, "one is pinned");
        let child = mm.fork(space, Asid(2)).unwrap();
        assert_eq!(out(mm, space), 0, "all others are shared");
        cpu.leave();
        mm.destroy(child);
        let late = mm.pin(space, page::<X86_64>(40), Access::Write).unwrap();
        let program = Program::on(cpu, mm, space);
        out(mm, space);
        (0..16).for_each(|at| assert_eq!(program.read(page::<X86_64>(at)), Ok(at + 1)));
        (32..48).for_each(|at| assert_eq!(program.read(page::<X86_64>(at)), Ok(at + 1)));
        mm.unpin(pinned);
        mm.unpin(late);
    });
}

#[test]
fn i14_a_pin_notes_writes_behind_the_tables() {
    with::<X86_64>(Config::x86_64(), &[4], |mm, cpu, space| {
        free(mm, cpu, space, span::<X86_64>(0, 32));
        mm.unpin(mm.pin(space, page::<X86_64>(3), Access::Write).unwrap());
        assert_eq!(out(mm, space), 16, "the other folio");
        assert_eq!(Program::on(cpu, mm, space).read(page::<X86_64>(3)), Ok(4));
    });
}

#[test]
fn d4_a_folio_that_is_freed_in_part_is_divided() {
    with::<X86_64>(Config::x86_64(), &[4], |mm, cpu, space| {
        free(mm, cpu, space, span::<X86_64>(5, 20));
        assert_eq!(mm.spaces().lazily_free(space, span::<X86_64>(0, PAGES)), 20);
        assert_eq!(out(mm, space), 20);
        let program = Program::on(cpu, mm, space);
        for at in 0..32 {
            let kept = !(5..25).contains(&at);
            assert_eq!(program.read(page::<X86_64>(at)), Ok(if kept { at + 1 } else { 0 }));
        }
    });
}

fn written<A: Arch>(mm: &HostedMm<'_, '_, A>, space: &Space<A>) -> Vec<u64> {
    let mut all = Vec::new();
    for area in mm.spaces().areas(space, span::<A>(0, PAGES)) {
        mm.spaces().runs(space, area.span, &mut |seen| {
            if quire::is_written(&area, seen) {
                let from = seen.pages.start.offset_from(place::<A>());
                all.extend(from..from + seen.pages.count());
            }
        });
    }
    all
}

fn track<A: Arch>(mm: &HostedMm<'_, '_, A>, cpu: &Cpu<'_, '_>, space: &Space<A>) {
    let _operation = cpu.operation("track").cleans();
    mm.spaces().track(space, span::<A>(0, PAGES)).unwrap();
}

#[test]
fn d4_tracked_writes_are_told_page_by_page_and_cost_no_fault() {
    with::<X86_64>(Config::x86_64(), &[4], |mm, cpu, space| {
        assert_eq!(written(mm, space).len() as u64, PAGES, "not tracked yet");
        let since = Meter::new(mm);
        track(mm, cpu, space);
        assert_eq!(since.counts().flushes, 1, "one for all of it");
        assert_eq!(written(mm, space), [0; 0]);
        let program = Program::on(cpu, mm, space);
        let mut faults = 0;
        for at in [3, 4, 500] {
            faults += program.write(page::<X86_64>(at), 9).unwrap().len();
            program.read(page::<X86_64>(at + 100)).unwrap();
        }
        assert_eq!((faults, written(mm, space)), (0, vec![3, 4, 500]));
        let child = mm.fork(space, Asid(2)).unwrap();
        assert_eq!(written(mm, &child), [3, 4, 500], "a child inherits it");
        Program::on(cpu, mm, &child).write(page::<X86_64>(7), 1).unwrap();
        assert!(written(mm, &child).contains(&7) && !written(mm, space).contains(&7));
        cpu.leave();
        mm.destroy(child);
        track(mm, cpu, space);
        assert_eq!(written(mm, space), [0; 0]);
        cpu.switch(space.root(), space.asid());
    });
}

#[test]
fn d4_a_pin_to_read_is_no_write() {
    with::<X86_64>(Config::x86_64(), &[4], |mm, cpu, space| {
        track(mm, cpu, space);
        mm.unpin(mm.pin(space, page::<X86_64>(3), Access::Read).unwrap());
        mm.unpin(mm.pin_read(space, page::<X86_64>(5)).unwrap());
        assert_eq!(written(mm, space), [0; 0]);
        mm.unpin(mm.pin(space, page::<X86_64>(7), Access::Write).unwrap());
        assert_eq!(written(mm, space), [7]);
    });
}

/// Tracking clears the dirty bits, which alone say that freed memory is in use again.
#[test]
fn i14_memory_that_is_written_after_it_was_freed_outlives_tracking() {
    for pages in [1, 16] {
        with::<X86_64>(Config::x86_64(), &[4], |mm, cpu, space| {
            free(mm, cpu, space, span::<X86_64>(0, pages));
            let program = Program::on(cpu, mm, space);
            program.write(page::<X86_64>(0), 77).unwrap();
            track(mm, cpu, space);
            assert_eq!(out(mm, space), 0, "there is no swap device");
            assert_eq!(program.read(page::<X86_64>(0)), Ok(77));
            assert_eq!(written(mm, space), [0; 0], "and no write since");
        });
    }
}

#[test]
fn d4_a_contiguous_block_is_written_as_a_whole() {
    with::<Arm4k>(Config::arm64_4k(), &[4], |mm, cpu, space| {
        track(mm, cpu, space);
        Program::on(cpu, mm, space).write(page::<Arm4k>(35), 9).unwrap();
        assert_eq!(written(mm, space), (32..48).collect::<Vec<_>>());
    });
}

#[test]
fn d4_a_page_on_a_swap_device_remembers_that_it_was_written() {
    with::<X86_64>(Config::x86_64(), &[4], |mm, cpu, space| {
        let device = mm.paging().swap_on(4096).unwrap();
        track(mm, cpu, space);
        let program = Program::on(cpu, mm, space);
        program.write(page::<X86_64>(100), 9).unwrap();
        assert_eq!(out(mm, space), PAGES);
        assert_eq!(written(mm, space), [100]);
        program.read(page::<X86_64>(100)).unwrap();
        program.read(page::<X86_64>(200)).unwrap();
        assert_eq!(written(mm, space), [100], "nor does it count as written when it is back");
        track(mm, cpu, space);
        assert_eq!(written(mm, space), [0; 0]);
        mm.discard(space, span::<X86_64>(0, PAGES)).unwrap();
        mm.paging().swap_off(device).unwrap();
    });
}

#[test]
fn d4_a_page_locked_on_fault_stays_once_it_was_touched() {
    stage::<X86_64>(Config::x86_64(), 8192, &[4], |mm, cpu| {
        let space = space_of(mm, 64, NONE);
        let all = span::<X86_64>(0, 64);
        mm.spaces().mlock_on_fault(&space, all).unwrap();
        assert_eq!(mm.resident(&space), 0, "nothing is brought in");
        Program::on(cpu, mm, &space).write(page::<X86_64>(3), 1).unwrap();
        let device = mm.paging().swap_on(1024).unwrap();
        assert_eq!(mm.paging().page_out(&space, all, Scope::Own, &[&space][..]).unwrap().pages, 0);
        assert_eq!(mm.resident(&space), 16);
        mm.mlock(&space, all).unwrap();
        assert_eq!(mm.resident(&space), 64, "now all of it is");
        mm.spaces().munlock(&space, all).unwrap();
        assert_eq!(mm.paging().page_out(&space, all, Scope::Own, &[&space][..]).unwrap().pages, 64);
        cpu.leave();
        mm.destroy(space);
        mm.paging().swap_off(device).unwrap();
    });
}
