//! Pages that went to swap side by side come back side by side (D4), and devices are told which
//! slots are free (D5).

use quire::cache::{FileId, FilePages};
use quire::space::{At, Request, Space};
use quire::{Need, Resolved, Scope, Stop, WriteFailed};
use quire_arch::X86_64;
use quire_machine::{Config, Cpu};
use quire_sim::disk::{Disk, word};
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, PageSpan, Prot, VirtAddr, Vpn};

const BASE: Vpn = Vpn::new(0x10000);
const PAGES: u64 = 64;

struct Scene<'s, 'm, 'r> {
    mm: &'s HostedMm<'m, 'r, X86_64>,
    cpu: &'s Cpu<'s, 'r>,
    space: &'s Space<X86_64>,
    disk: Disk,
    swap: FileId,
}

fn address(page: u64) -> VirtAddr {
    VirtAddr::new(BASE.add(page).get() << 12)
}

impl Scene<'_, '_, '_> {
    fn fault(&self, page: u64) -> Result<Resolved, Stop> {
        self.mm.fault(self.space, BASE.add(page), Access::Read)
    }

    /// The pages of the device that a fault lacks; they are read.
    fn reads(&self, page: u64) -> u64 {
        let Err(Stop::Need(Need::Read(reads))) = self.fault(page) else { panic!("page {page}") };
        let count = reads.pages().count();
        self.disk.serve(self.mm, reads).unwrap();
        count
    }

    /// The pages that a fault maps, counted from the area's beginning.
    fn maps(&self, page: u64) -> (u64, u64) {
        let Ok(Resolved::Mapped(done)) = self.fault(page) else { panic!("page {page}") };
        (done.pages.start.offset_from(BASE), done.pages.end.offset_from(BASE))
    }
}

/// Runs `test` with an area of pages, each of which was written and went out.
fn with_all_out(ram_pages: usize, test: impl FnOnce(&Scene<'_, '_, '_>)) {
    let mut ram = system::ram(ram_pages << 12).unwrap();
    system::with::<X86_64, _>(Config::x86_64(), &mut ram, |machine, mm| {
        let swap = mm.paging().swap_on(1024).unwrap();
        let window = PageSpan::new(BASE, BASE.add(1024));
        let space = mm.space(Asid(1), window).unwrap();
        let request = Request { prot: Prot::RW, ..Request::anon(PAGES) }.at(At::Fixed(BASE));
        mm.map(&space, &request).unwrap();
        let cpu = machine.cpu(0);
        space.enter(cpu.number());
        cpu.switch(space.root(), space.asid());
        for page in 0..PAGES {
            mm.fault(&space, BASE.add(page), Access::Write).unwrap();
            for index in [0, 1, 7, 300, 511] {
                let place = VirtAddr::new(address(page).get() + 8 * index);
                cpu.write(place, word(page + 1, index as usize)).unwrap();
            }
        }
        let scene = Scene { mm, cpu: &cpu, space: &space, disk: Disk::new(), swap };
        let spaces = [&space];
        let out = mm.paging().page_out(&space, window, Scope::Own, &spaces[..]).unwrap();
        assert_eq!(out.pages, PAGES);
        scene.disk.write_back(mm, swap, &spaces).unwrap();
        test(&scene);
        drop(scene);
        cpu.leave();
        mm.destroy(space);
        mm.paging().swap_off(swap).unwrap();
        machine.audit().unwrap();
    })
    .unwrap();
}

#[test]
fn d4_a_fault_brings_back_what_lies_around_it_within_64k() {
    with_all_out(4096, |scene| {
        assert_eq!(scene.reads(5), 16);
        assert_eq!(scene.maps(5), (5, 16), "the pages behind it are mapped with it");
        assert_eq!(scene.maps(0), (0, 5), "the pages before it are not read again");
        assert_eq!(scene.reads(16), 16, "nothing beyond was read");
        for page in 0..16 {
            assert_eq!(scene.cpu.read(address(page)), Ok(word(page + 1, 0)));
        }
    });
}

#[test]
fn d4_only_neighbours_whose_entries_follow_each_other_are_read() {
    with_all_out(4096, |scene| {
        let hole = PageSpan::new(BASE.add(36), BASE.add(37));
        scene.mm.unmap(scene.space, hole).unwrap();
        assert_eq!(scene.reads(33), 4);
        assert_eq!(scene.maps(32), (32, 36));
        assert_eq!(scene.reads(47), 11);
        assert_eq!(scene.maps(40), (40, 48));
        assert_eq!(scene.maps(37), (37, 40), "up to what is mapped already");
    });
}

#[test]
fn d4_where_memory_is_short_just_the_page_is_read() {
    with_all_out(1024, |scene| {
        let mut taken = Vec::new();
        while scene.mm.phys().has_free(500) {
            taken.extend(scene.mm.phys().alloc(quire_units::Order::ZERO));
        }
        assert_eq!(scene.reads(5), 1);
        assert_eq!(scene.maps(5), (5, 6));
        taken.into_iter().for_each(|run| scene.mm.phys().free(run));
        assert_eq!(scene.reads(6), 10, "but not what is there already, nor what lies before it");
    });
}

#[test]
fn d5_free_slots_are_told_by_runs_within_a_cluster() {
    with_all_out(4096, |scene| {
        let free =
            |start, end| scene.mm.paging().free_slots(scene.swap, FilePages::new(start, end));
        assert_eq!(free(0, 1024), Some(FilePages::new(PAGES, 512)));
        assert_eq!(free(512, 1024), Some(FilePages::new(512, 1024)));
        assert_eq!(free(700, 5000), Some(FilePages::new(700, 1024)), "up to the device's end");
        assert_eq!(free(1024, 5000), None);
        assert_eq!(free(0, PAGES), None);
        scene.mm.unmap(scene.space, PageSpan::new(BASE.add(40), BASE.add(43))).unwrap();
        assert_eq!(free(0, 1024), Some(FilePages::new(40, 43)));
        assert_eq!(free(41, 42), Some(FilePages::new(41, 42)));
        assert_eq!(scene.mm.paging().free_slots(FileId(77), FilePages::new(0, 9)), None);
    });
}

#[test]
fn d3_neighbours_leave_in_one_run_of_slots_and_one_write_and_come_back_in_one_read() {
    with_all_out(4096, |scene| {
        let (mm, spaces) = (scene.mm, [scene.space]);
        assert_eq!(scene.reads(5), 16);
        assert_eq!(scene.maps(5), (5, 16));
        assert_eq!(scene.maps(0), (0, 5));
        for page in 0..16 {
            let place = VirtAddr::new(address(page).get());
            scene.mm.fault(scene.space, BASE.add(page), Access::Write).unwrap();
            scene.cpu.write(place, word(page + 100, 0)).unwrap();
        }
        // One of them stays.
        let pinned = mm.pin(scene.space, BASE.add(9), Access::Read).unwrap();
        let span = PageSpan::new(BASE, BASE.add(16));
        let out = mm.paging().page_out(scene.space, span, Scope::Own, &spaces[..]).unwrap();
        assert_eq!((out.pages, out.stay), (15, 1));
        let (mut left, mut runs) = (FilePages::new(0, 1024), Vec::new());
        while let Some(run) = mm.files().next_writes(scene.swap, &mut left, &spaces[..]).unwrap() {
            runs.push(run.pages().count());
            let mut writes: Vec<_> = run.into_writes().collect();
            let last = writes.pop().unwrap();
            let ram = mm.hardware().ram();
            for write in writes {
                let done = scene.disk.write(ram, 12, &write, 1024);
                mm.files().write_done(write, done);
            }
            // It is dirty again, and by itself next time.
            mm.files().write_done(last, Err(WriteFailed));
        }
        assert_eq!(runs, [15], "the slots behind it follow those before it");
        scene.disk.write_back(mm, scene.swap, &spaces[..]).unwrap();
        mm.unpin(pinned);
        scene.disk.reads();
        assert_eq!(scene.reads(0), 9);
        assert_eq!(scene.disk.reads().len(), 9);
        assert_eq!(scene.maps(0), (0, 9));
        assert_eq!(scene.reads(15), 6);
        assert_eq!(scene.maps(10), (10, 16));
        for page in 0..16 {
            assert_eq!(scene.cpu.read(address(page)), Ok(word(page + 100, 0)), "page {page}");
        }
    });
}
