//! Dividing folios in place (D6), and paging out that needs it: parts of folios, and devices
//! without runs of free slots.

use quire::check;
use quire::fault::SizePolicy;
use quire::limits::LEAVE_MOST;
use quire::space::{At, Request, Space};
use quire::stats::Event;
use quire::table::{Divided, Division};
use quire::{Error, Move, Need, PagedOut, Scope, Stop};
use quire_arch::{Arch, Arm4k, X86_64};
use quire_machine::{Config, Machine};
use quire_sim::disk::Disk;
use quire_sim::program::touch;
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, Order, PageSpan, Prot, VirtAddr, Vpn};

const BASE: Vpn = Vpn::new(0x8000);

fn pages(from: u64, count: u64) -> PageSpan {
    PageSpan::new(BASE.add(from), BASE.add(from + count))
}

/// Runs `work` with a space that maps `pages`, in folios of `order`, page `n` of which holds `n`.
fn with<A: Arch>(
    config: Config,
    (order, count): (u8, u64),
    work: impl FnOnce(&Machine<'_>, &HostedMm<'_, '_, A>, &Space<A>),
) {
    let mut ram = system::ram(8192 << A::PAGE_SHIFT).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        let free = mm.phys().free_frames();
        mm.policy().set_size(Order::new(order), SizePolicy::Always).unwrap();
        let space = mm.space(Asid(1), pages(0, 4096)).unwrap();
        let request = Request { prot: Prot::RW, ..Request::anon(count) };
        mm.map(&space, &request.at(At::Fixed(BASE))).unwrap();
        mm.populate(&space, pages(0, count)).unwrap();
        let cpu = machine.cpu(0);
        space.enter(cpu.number());
        cpu.switch(space.root(), space.asid());
        for page in 0..count {
            mm.fault(&space, BASE.add(page), Access::Write).unwrap();
            cpu.write(addr::<A>(page), page).unwrap();
        }
        drop(cpu);
        work(machine, mm, &space);
        check::system(mm, &[&space]).unwrap();
        machine.audit().unwrap();
        machine.cpu(0).leave();
        mm.destroy(space);
        for (id, ..) in mm.paging().devices() {
            mm.paging().swap_off(id).unwrap();
        }
        assert_eq!(mm.phys().free_frames(), free);
    })
    .unwrap();
}

fn addr<A: Arch>(page: u64) -> VirtAddr {
    VirtAddr::new(BASE.add(page).get() << A::PAGE_SHIFT)
}

/// The first word of a page, after the faults that the load takes.
fn fetch<A: Arch>(
    machine: &Machine<'_>,
    mm: &HostedMm<'_, '_, A>,
    space: &Space<A>,
    disk: &Disk,
    page: u64,
) -> u64 {
    let cpu = machine.cpu(0);
    cpu.switch(space.root(), space.asid());
    let resolve = |access| match mm.fault(space, BASE.add(page), access) {
        Err(Stop::Need(Need::Read(reads))) => disk.serve(mm, reads),
        done => done.map(drop),
    };
    touch(&cpu, addr::<A>(page), None, resolve).unwrap()
}

fn reads<A: Arch>(
    machine: &Machine<'_>,
    mm: &HostedMm<'_, '_, A>,
    space: &Space<A>,
    disk: &Disk,
    pages: std::ops::Range<u64>,
) {
    for page in pages {
        assert_eq!(fetch(machine, mm, space, disk, page), page, "page {page}");
    }
}

#[test]
fn d6_a_folio_is_divided_uniformly_and_its_pages_stay_where_they_are() {
    with::<Arm4k>(Config::arm64_4k(), (4, 16), |machine, mm, space| {
        let frames = mm.phys().free_frames();
        let how = Division::Uniform(Order::new(2));
        let parts = Divided::Parts { parts: 4, freed: 0 };
        assert_eq!(mm.spaces().divide(space, BASE.add(5), how), Ok(parts));
        assert_eq!(mm.spaces().divide(space, BASE.add(5), how), Ok(Divided::Small));
        assert_eq!(mm.phys().free_frames(), frames);
        reads(machine, mm, space, &Disk::new(), 0..16);
        assert_eq!(mm.totals().event(Event::FolioSplit), 1);
    });
}

#[test]
fn d6_a_folio_is_divided_around_a_page_as_a_buddy_is() {
    with::<X86_64>(Config::x86_64(), (9, 512), |machine, mm, space| {
        let how = Division::Around(BASE.add(5), Order::ZERO);
        let parts = Divided::Parts { parts: 10, freed: 0 };
        assert_eq!(mm.spaces().divide(space, BASE.add(300), how), Ok(parts));
        check::system(mm, &[space]).unwrap();
        let order = |page: u64| {
            let pinned = mm.pin(space, BASE.add(page), Access::Read).unwrap();
            let info = mm.frame_info(pinned.frame()).unwrap();
            mm.unpin(pinned);
            info.order.get()
        };
        let orders: Vec<u8> = [0, 4, 5, 6, 8, 16, 32, 64, 128, 256].map(order).to_vec();
        assert_eq!(orders, [2, 0, 0, 1, 3, 4, 5, 6, 7, 8]);
        reads(machine, mm, space, &Disk::new(), 0..512);
    });
}

#[test]
fn d6_pages_of_a_folio_that_are_not_mapped_any_more_are_free_when_it_is_divided() {
    with::<Arm4k>(Config::arm64_4k(), (4, 32), |machine, mm, space| {
        mm.unmap(space, pages(2, 7)).unwrap();
        let free = mm.phys().free_frames();
        let how = Division::Uniform(Order::ZERO);
        let parts = Divided::Parts { parts: 9, freed: 7 };
        assert_eq!(mm.spaces().divide(space, BASE, how), Ok(parts));
        assert_eq!(mm.phys().free_frames(), free + 7);
        reads(machine, mm, space, &Disk::new(), 0..2);
        reads(machine, mm, space, &Disk::new(), 9..32);
    });
}

#[test]
fn d6_a_folio_that_others_have_a_hold_on_is_not_divided() {
    with::<X86_64>(Config::x86_64(), (4, 16), |_, mm, space| {
        let how = Division::Uniform(Order::ZERO);
        let pinned = mm.pin(space, BASE, Access::Read).unwrap();
        assert_eq!(mm.spaces().divide(space, BASE.add(1), how), Ok(Divided::Shared));
        mm.unpin(pinned);
        let child = mm.fork(space, Asid(2)).unwrap();
        assert_eq!(mm.spaces().divide(space, BASE.add(1), how), Ok(Divided::Shared));
        mm.destroy(child);
        assert_eq!(mm.spaces().divide(space, BASE.add(16), how), Ok(Divided::Nothing));
        assert_eq!(mm.totals().event(Event::FolioSplitFailed), 3);
    });
}

#[test]
fn d4_a_part_of_a_folio_is_paged_out_and_the_rest_stays() {
    for order in [4, 9] {
        with::<Arm4k>(Config::arm64_4k(), (order, 512), |machine, mm, space| {
            let (disk, id) = (Disk::new(), mm.paging().swap_on(2000).unwrap());
            let out =
                mm.paging().page_out(space, pages(20, 100), Scope::Own, &[space][..]).unwrap();
            assert_eq!((out.pages, out.stay), (100, 0));
            assert_eq!(mm.paging().swapped(space), 100);
            check::system(mm, &[space]).unwrap();
            disk.write_back(mm, id, &[space]).unwrap();
            reads(machine, mm, space, &disk, 0..512);
        });
    }
}

#[test]
fn d2_where_no_run_of_slots_is_left_a_folio_leaves_in_the_next_smaller_size_that_there_is() {
    with::<X86_64>(Config::x86_64(), (6, 128), |machine, mm, space| {
        let (disk, id) = (Disk::new(), mm.paging().swap_on(40).unwrap());
        let out = mm.paging().page_out(space, pages(0, 128), Scope::Own, &[space][..]).unwrap();
        let [half, eighth] = [5, 3].map(|order| mm.totals().swpout[order]);
        assert_eq!((out.pages, half, eighth), (40, 1, 1), "the largest runs that there are");
        assert!(mm.totals().swpout_fallback[6] >= 1);
        disk.write_back(mm, id, &[space]).unwrap();
        reads(machine, mm, space, &disk, 0..128);
    });
}

#[test]
fn d3_folios_that_leave_whole_are_one_entry_run_one_walk_and_come_back_whole() {
    with::<Arm4k>(Config::arm64_4k(), (4, 1024), |machine, mm, space| {
        let (disk, id) = (Disk::new(), mm.paging().swap_on(4096).unwrap());
        let before = mm.totals();
        let out = mm.paging().page_out(space, pages(0, 1024), Scope::Own, &[space][..]).unwrap();
        assert_eq!(out, PagedOut { folios: 64, pages: 1024, ..PagedOut::default() });
        let more = |event| mm.totals().event(event) - before.event(event);
        assert_eq!(more(Event::RmapWalks), 64, "one walk for each folio");
        let batches = 64_u64.div_ceil(LEAVE_MOST as u64);
        assert_eq!(more(Event::Flush), batches, "one flush for a batch");
        assert_eq!(more(Event::FolioSplit), 0);
        disk.write_back(mm, id, &[space]).unwrap();
        reads(machine, mm, space, &disk, 0..1024);
        assert_eq!(mm.totals().swpin[4], 64);
        assert_eq!(mm.paging().devices().next().unwrap().2, 0, "no slot is used any more");
    });
}

#[test]
fn d1_a_folio_that_three_processes_have_leaves_all_of_them() {
    with::<Arm4k>(Config::arm64_4k(), (4, 64), |machine, mm, space| {
        let (disk, id) = (Disk::new(), mm.paging().swap_on(1000).unwrap());
        let children = [2, 3].map(|asid| mm.fork(space, Asid(asid)).unwrap());
        let spaces = [space, &children[0], &children[1]];
        // One of them has it elsewhere.
        let moved = Move::To(BASE.add(1000));
        mm.remap(&children[1], pages(0, 64), 64, moved).unwrap();
        let out = mm.paging().page_out(space, pages(0, 64), Scope::Own, &spaces[..]).unwrap();
        assert_eq!((out.folios, out.stay), (0, 4), "others have them as well");
        let out = mm.paging().page_out(space, pages(0, 64), Scope::All, &spaces[..]).unwrap();
        assert_eq!((out.folios, out.stay), (4, 0));
        assert_eq!(spaces.map(|space| mm.paging().swapped(space)), [64; 3]);
        check::system(mm, &spaces).unwrap();
        disk.write_back(mm, id, &[space]).unwrap();
        reads(machine, mm, space, &disk, 0..64);
        assert_eq!(mm.paging().swapped(&children[1]), 64);
        check::system(mm, &spaces).unwrap();
        machine.cpu(0).leave();
        children.into_iter().for_each(|child| mm.destroy(child));
        let cpu = machine.cpu(0);
        cpu.switch(space.root(), space.asid());
    });
}

#[test]
fn i8_slots_count_the_entries_that_are_to_be_seen() {
    with::<X86_64>(Config::x86_64(), (4, 64), |machine, mm, space| {
        let (disk, id) = (Disk::new(), mm.paging().swap_on(1000).unwrap());
        mm.paging().page_out(space, pages(0, 64), Scope::Own, &[space][..]).unwrap();
        disk.write_back(mm, id, &[space]).unwrap();
        check::system(mm, &[space]).unwrap();
        let child = mm.fork(space, Asid(2)).unwrap();
        check::system(mm, &[space, &child]).unwrap();
        mm.unmap(&child, pages(5, 20)).unwrap();
        check::system(mm, &[space, &child]).unwrap();
        mm.remap(&child, pages(30, 10), 10, Move::To(BASE.add(2000))).unwrap();
        check::system(mm, &[space, &child]).unwrap();
        reads(machine, mm, space, &disk, 0..64);
        check::system(mm, &[space, &child]).unwrap();
        assert_eq!(
            mm.paging().devices().next().unwrap().2,
            64,
            "the child has a part of each folio"
        );
        mm.destroy(child);
        assert_eq!(mm.paging().devices().next().unwrap().2, 0);
    });
}

#[test]
fn d5_a_slot_that_cannot_be_read_fails_for_its_page_alone() {
    with::<Arm4k>(Config::arm64_4k(), (4, 64), |machine, mm, space| {
        let (disk, id) = (Disk::new(), mm.paging().swap_on(1000).unwrap());
        mm.paging().page_out(space, pages(0, 64), Scope::Own, &[space][..]).unwrap();
        disk.write_back(mm, id, &[space]).unwrap();
        disk.set_bad(id.0, 21, true);
        reads(machine, mm, space, &disk, 0..21);
        reads(machine, mm, space, &disk, 22..64);
        let wrong = loop {
            match mm.fault(space, BASE.add(21), Access::Read) {
                Err(Stop::Need(Need::Read(reads))) => disk.serve(mm, reads).unwrap(),
                done => break done.unwrap_err(),
            }
        };
        assert_eq!(wrong, Stop::Refuse(Error::Failed(id, 21)));
        disk.set_bad(id.0, 21, false);
        reads(machine, mm, space, &disk, 0..64);
    });
}

#[test]
fn d3_a_page_written_between_two_evictions_is_written_to_the_device_again() {
    with::<X86_64>(Config::x86_64(), (4, 16), |machine, mm, space| {
        let (disk, id) = (Disk::new(), mm.paging().swap_on(1000).unwrap());
        mm.paging().page_out(space, pages(0, 16), Scope::Own, &[space][..]).unwrap();
        disk.write_back(mm, id, &[space]).unwrap();
        // A part elsewhere keeps the folio on the device when the rest comes back.
        mm.remap(space, pages(8, 8), 8, Move::To(BASE.add(100))).unwrap();
        reads(machine, mm, space, &disk, 0..8);
        assert_eq!(mm.paging().swapped(space), 8);
        {
            let cpu = machine.cpu(0);
            cpu.switch(space.root(), space.asid());
            cpu.write(addr::<X86_64>(3), 333).unwrap();
        }
        mm.paging().page_out(space, pages(0, 8), Scope::Own, &[space][..]).unwrap();
        disk.write_back(mm, id, &[space]).unwrap();
        assert_eq!(mm.paging().swapped(space), 16);
        reads(machine, mm, space, &disk, 0..3);
        assert_eq!(fetch(machine, mm, space, &disk, 3), 333);
    });
}
