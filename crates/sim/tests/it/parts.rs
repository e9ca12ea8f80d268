//! Parts of a folio that was divided keep what was known about it (D6): the place where they are
//! mapped, and that their content may be dropped.

use quire::space::{AreaFlags, Space};
use quire::stats::Event;
use quire::table::{Divided, Division};
use quire::{Need, PagedOut, Scope};
use quire_arch::{Arch, Arm4k, Sv39, X86_64};
use quire_machine::{Config, Cpu};
use quire_sim::disk::Disk;
use quire_sim::program::{Program, Stopped};
use quire_sim::stage::{Meter, place, space_of, span, stage, verify};
use quire_sim::system::HostedMm;
use quire_units::{Asid, Order, Vpn};

const PAGES: u64 = 32;

fn page<A: Arch>(number: u64) -> Vpn {
    place::<A>().add(number)
}

/// Runs `test` with a space of two folios, page `n` of which holds `n + 1`.
fn with<A: Arch>(
    config: Config,
    test: impl for<'m, 'r> FnOnce(&HostedMm<'m, 'r, A>, &Cpu<'m, 'r>, &Space<A>),
) {
    stage::<A>(config, 4096, &[4], |mm, cpu| {
        let space = space_of(mm, PAGES, AreaFlags::empty());
        let program = Program::on(cpu, mm, &space);
        (0..PAGES).for_each(|at| drop(program.write(page::<A>(at), at + 1).unwrap()));
        test(mm, cpu, &space);
        cpu.leave();
        mm.destroy(space);
        for (id, ..) in mm.paging().devices() {
            mm.paging().swap_off(id).unwrap();
        }
    });
}

fn reads<A: Arch>((mm, cpu): (&HostedMm<'_, '_, A>, &Cpu<'_, '_>), space: &Space<A>, disk: &Disk) {
    for at in 0..PAGES {
        let word = loop {
            match Program::on(cpu, mm, space).read(page::<A>(at)) {
                Err(Stopped::Needs(Need::Read(reads))) => disk.serve(mm, reads).unwrap(),
                done => break done.unwrap(),
            }
        };
        assert_eq!(word, at + 1, "page {at}");
    }
}

/// Paging out looks for the mappings of each part in other spaces where the part was mapped first.
fn leave_both<A: Arch>(config: Config) {
    for how in [Division::Uniform(Order::new(1)), Division::Around(page::<A>(5), Order::ZERO)] {
        with::<A>(config, |mm, cpu, space| {
            let divided = mm.spaces().divide(space, page::<A>(0), how);
            assert!(matches!(divided, Ok(Divided::Parts { parts: 2.., freed: 0 })), "{divided:?}");
            let child = mm.fork(space, Asid(2)).unwrap();
            let (disk, id) = (Disk::new(), mm.paging().swap_on(64).unwrap());
            let (all, both) = (span::<A>(0, PAGES), [&child, space]);
            let walks = Meter::new(mm);
            let out = mm.paging().page_out(&child, all, Scope::All, &both[..]).unwrap();
            assert_eq!((out.pages, out.stay), (PAGES, 0), "{}: parts stay", A::NAME);
            // One look here, and one in the other space: no folio was searched for everywhere.
            assert_eq!(walks.event(Event::RmapWalks), 2 * out.folios);
            assert_eq!(both.map(|space| mm.paging().swapped(space)), [PAGES; 2]);
            disk.write_back(mm, id, &both).unwrap();
            both.iter().for_each(|space| reads((mm, cpu), space, &disk));
            verify(mm, &both);
            cpu.leave();
            mm.destroy(child);
        });
    }
}

#[test]
fn d6_parts_of_a_folio_leave_from_parent_and_child() {
    leave_both::<X86_64>(Config::x86_64());
    leave_both::<Arm4k>(Config::arm64_4k());
    leave_both::<Sv39>(Config::riscv64_sv39());
}

/// The same for a folio of which only a part is mapped at first.
#[test]
fn d6_parts_of_a_folio_that_lost_its_head_leave_from_parent_and_child() {
    with::<X86_64>(Config::x86_64(), |mm, cpu, space| {
        mm.unmap(space, span::<X86_64>(0, 3)).unwrap();
        let how = Division::Uniform(Order::new(1));
        let divided = mm.spaces().divide(space, page::<X86_64>(4), how);
        assert_eq!(divided, Ok(Divided::Parts { parts: 7, freed: 2 }));
        let child = mm.fork(space, Asid(2)).unwrap();
        mm.paging().swap_on(64).unwrap();
        let both = [&child, space];
        let all = span::<X86_64>(0, PAGES);
        let out = mm.paging().page_out(&child, all, Scope::All, &both[..]).unwrap();
        assert_eq!(out.stay, 0);
        assert_eq!(both.map(|space| mm.paging().swapped(space)), [PAGES - 3; 2]);
        verify(mm, &both);
        cpu.leave();
        mm.destroy(child);
    });
}

#[test]
fn i14_parts_of_a_folio_that_was_freed_lazily_are_dropped_without_a_slot() {
    with::<X86_64>(Config::x86_64(), |mm, cpu, space| {
        {
            let _operation = cpu.operation("free").cleans();
            mm.spaces().free_lazily(space, span::<X86_64>(0, 16)).unwrap();
        }
        let how = Division::Uniform(Order::new(2));
        let divided = mm.spaces().divide(space, page::<X86_64>(0), how);
        assert_eq!(divided, Ok(Divided::Parts { parts: 4, freed: 0 }));
        // One part is written again, and is the program's data; for that there is no device.
        Program::on(cpu, mm, space).write(page::<X86_64>(6), 77).unwrap();
        let out = {
            let _operation = cpu.operation("page out").cleans();
            mm.paging().page_out(space, span::<X86_64>(0, 16), Scope::Own, &[space][..]).unwrap()
        };
        assert_eq!(out, PagedOut { folios: 3, pages: 12, stay: 1, starved: false });
        let program = Program::on(cpu, mm, space);
        let found = [0, 4, 6, 7, 8].map(|at| program.read(page::<X86_64>(at)).unwrap());
        assert_eq!(found, [0, 5, 77, 8, 0]);
        verify(mm, &[space]);
    });
}

/// Pages that were freed lazily and are locked in memory since then stay there.
#[test]
fn d4_pages_that_are_locked_after_they_were_freed_lazily_stay() {
    with::<X86_64>(Config::x86_64(), |mm, cpu, space| {
        let (first, all) = (span::<X86_64>(0, 16), span::<X86_64>(0, PAGES));
        {
            let _operation = cpu.operation("free").cleans();
            mm.spaces().free_lazily(space, first).unwrap();
        }
        mm.mlock(space, first).unwrap();
        mm.paging().swap_on(64).unwrap();
        let _operation = cpu.operation("page out").cleans();
        let out = mm.paging().page_out(space, all, Scope::Own, &[space][..]).unwrap();
        assert_eq!((out.pages, mm.resident(space)), (16, 16));
        mm.spaces().munlock(space, first).unwrap();
        let out = mm.paging().page_out(space, first, Scope::Own, &[space][..]).unwrap();
        assert_eq!((out.pages, mm.resident(space)), (16, 0));
    });
}
