//! Single faults in areas that show files: which folios are read and mapped, and which fail.

use quire::cache::{FileId, FilePages, Pattern, Readahead, Reads, Store};
use quire::inject::FailPlan;
use quire::space::{AreaFlags, At, Backing, Request, Space};
use quire::{Error, Move, Need, Resolved, Stop};
use quire_arch::{Arch, Arm4k, X86_64};
use quire_machine::{Config, Cpu};
use quire_sim::disk::{Disk, word};
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, Order, PageSpan, Prot, VirtAddr, Vpn};

/// Where areas begin: aligned to any folio that is read here.
const START: Vpn = Vpn::new(8192);

struct Scene<'s, 'm, 'r, A> {
    mm: &'s HostedMm<'m, 'r, A>,
    space: Space<A>,
    disk: Disk,
    cpu: Cpu<'s, 'r>,
}

impl<A: Arch> Scene<'_, '_, '_, A> {
    fn file(&self, store: Store, pages: u64) -> FileId {
        let id = self.mm.files().open(store, pages, Order::ZERO).unwrap();
        (0..pages).for_each(|page| self.disk.put(id.0, page, page + 1));
        id
    }

    /// Shows all of a file from `page` on at `START` plus `skew`.
    fn show(&self, file: FileId, page: u64, pages: u64, prot: Prot, flags: AreaFlags) -> PageSpan {
        let request = Request {
            backing: Backing::File { id: file, page },
            prot,
            flags,
            ..Request::anon(pages).at(At::Fixed(START))
        };
        self.mm.map(&self.space, &request).unwrap()
    }

    fn carry(&self, reads: Reads) -> Result<(), Stop> {
        self.disk.serve(self.mm, reads)
    }

    /// Faults until the page is there; what the last fault mapped.
    fn fault(&self, at: Vpn, access: Access) -> Result<Resolved, Stop> {
        loop {
            let _operation = self.cpu.operation("fault");
            match self.mm.fault(&self.space, at, access) {
                Err(Stop::Need(Need::Read(reads))) => self.carry(reads)?,
                done => return done,
            }
        }
    }

    fn word(&self, at: Vpn) -> u64 {
        self.cpu.read(VirtAddr::new(at.get() << A::PAGE_SHIFT)).unwrap()
    }

    /// The sizes of the folios that were read, in their order.
    fn folios(&self) -> Vec<(u64, u64)> {
        self.disk.reads().iter().map(|(_, pages)| (pages.start, pages.count())).collect()
    }
}

fn with<A: Arch>(config: Config, test: impl FnOnce(&Scene<'_, '_, '_, A>)) {
    let mut ram = system::ram(4096 << A::PAGE_SHIFT).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        let before = mm.phys().free_frames();
        let window = PageSpan::new(Vpn::new(16), Vpn::new(A::USER_PAGES / 2));
        let space = mm.space(Asid(1), window).unwrap();
        let cpu = machine.cpu(0);
        cpu.bind();
        space.enter(cpu.number());
        cpu.switch(space.root(), space.asid());
        let scene = Scene { mm, space, disk: Disk::new(), cpu };
        test(&scene);
        machine.audit().unwrap_or_else(|violation| panic!("{violation}"));
        quire::check::system(mm, &[&scene.space]).unwrap_or_else(|wrong| panic!("{wrong}"));
        scene.cpu.leave();
        mm.destroy(scene.space);
        for id in (0..8).map(FileId).filter(|id| mm.files().get(*id).is_some()) {
            mm.files().close(id).unwrap();
        }
        assert_eq!(mm.phys().free_frames(), before, "nothing is lost");
    })
    .unwrap();
}

#[test]
fn b5_a_fault_maps_whole_folios_and_folds_them_the_last_of_the_file_as_well() {
    with::<Arm4k>(Config::arm64_4k(), |scene| {
        let file = scene.file(Store::ReadOnly, 48);
        scene.mm.files().policy().set_exec_tiers(&[Order::new(4)]).unwrap();
        scene.show(file, 0, 48, Prot::RX, AreaFlags::empty());
        // A fault in the middle of the last folio.
        scene.fault(START.add(37), Access::Execute).unwrap();
        let read = [(16, 16), (32, 16)];
        assert_eq!(scene.folios(), read, "one block back, and up to the file's end");
        let folded = quire::check::space(scene.mm, &scene.space).unwrap().folded;
        assert_eq!(folded, 32, "two blocks, folded");
        for page in 16..48 {
            assert_eq!(scene.word(START.add(page)), word(page + 1, 0));
        }
    });
}

#[test]
fn b1_a_file_gets_the_lowest_free_number_until_all_are_taken() {
    with::<X86_64>(Config::x86_64(), |scene| {
        let open = || scene.mm.files().open(Store::ReadOnly, 1, Order::ZERO).map(|id| id.0);
        let close = |id| scene.mm.files().close(FileId(id)).unwrap();
        assert_eq!([open(), open(), open(), open()], [0, 1, 2, 3].map(Ok));
        close(2);
        close(0);
        assert_eq!([open(), open(), open()], [0, 2, 4].map(Ok));
        let count = 5 + std::iter::from_fn(|| open().ok()).count() as u32;
        assert_eq!(open(), Err(Error::NoFile));
        close(7);
        assert_eq!([open(), open()], [Ok(7), Err(Error::NoFile)]);
        (0..count).for_each(close);
    });
}

#[test]
fn b2_code_is_read_in_aligned_folios_of_the_preferred_size_within_its_area() {
    with::<Arm4k>(Config::arm64_4k(), |scene| {
        let file = scene.file(Store::ReadOnly, 400);
        scene.mm.files().policy().set_exec_tiers(&[Order::new(4)]).unwrap();
        // The area shows pages 72 to 272.
        scene.show(file, 72, 200, Prot::RX, AreaFlags::empty());
        scene.fault(START.add(100 - 72), Access::Execute).unwrap();
        let read = [(80, 16), (96, 16), (112, 16), (128, 16)];
        assert_eq!(scene.folios(), read, "a quarter of them before the one of the fault");
        assert_eq!(scene.mm.resident(&scene.space), 64, "and one fault maps them");
        scene.fault(START.add(3), Access::Execute).unwrap();
        assert_eq!(scene.folios(), [(72, 8)], "clamped to the area's start");
        scene.fault(START.add(198), Access::Execute).unwrap();
        assert_eq!(scene.folios(), [(240, 16), (256, 16)], "and to its end");
    });
}

#[test]
fn b2_an_area_is_placed_so_that_folios_of_its_file_are_aligned_in_it() {
    with::<Arm4k>(Config::arm64_4k(), |scene| {
        let file = scene.file(Store::ReadOnly, 3000);
        for (page, pages, order) in [(0, 2000, 9), (7, 40, 4), (700, 1024, 9), (5, 3, 0)] {
            let request = Request {
                backing: Backing::File { id: file, page },
                ..Request::anon(pages).prot(Prot::RX)
            };
            let span = scene.mm.map(&scene.space, &request).unwrap();
            assert_eq!(span.count(), pages);
            let differ = (span.start.get() ^ page) & (Order::new(order).pages() - 1);
            assert_eq!(differ, 0, "{span:?} shows pages from {page} on");
        }
    });
}

#[test]
fn b2_constants_and_data_of_a_program_are_read_as_its_code_is() {
    with::<Arm4k>(Config::arm64_4k(), |scene| {
        let file = scene.file(Store::ReadOnly, 4096);
        let sizes = [Order::new(4), Order::new(9)];
        scene.mm.files().policy().set_exec_tiers(&sizes).unwrap();
        let span = scene.show(file, 0, 4096, Prot::READ, AreaFlags::empty());
        scene.fault(START.add(100), Access::Read).unwrap();
        assert_eq!(scene.folios().len(), 32, "as any file");
        // A part of it becomes code.
        let code = PageSpan::new(START.add(1024), START.add(2048));
        scene.mm.protect(&scene.space, code, Prot::RX).unwrap();
        scene.fault(START.add(600), Access::Read).unwrap();
        let read = [(576, 16), (592, 16), (608, 16), (624, 16)];
        assert_eq!(scene.folios(), read, "in the smallest of the sizes");
        scene.fault(START.add(1100), Access::Execute).unwrap();
        assert_eq!(scene.folios(), [(1024, 512)]);
        // The next file in its place has none of these folios.
        scene.mm.unmap(&scene.space, span).unwrap();
        scene.mm.files().close(file).unwrap();
        let next = scene.file(Store::ReadOnly, 400);
        assert_eq!(next, file);
        scene.show(next, 0, 400, Prot::READ, AreaFlags::empty());
        scene.fault(START.add(100), Access::Read).unwrap();
        assert_eq!(scene.folios().len(), 32);
    });
}

#[test]
fn b2_readahead_of_data_stops_where_the_code_begins() {
    with::<Arm4k>(Config::arm64_4k(), |scene| {
        let file = scene.file(Store::ReadOnly, 400);
        // The header of a program; behind it, in the file, there is code.
        scene.show(file, 0, 10, Prot::READ, AreaFlags::empty());
        scene.fault(START.add(1), Access::Read).unwrap();
        let read = scene.folios();
        assert_eq!(read.iter().map(|(_, count)| count).sum::<u64>(), 10, "{read:?}");
        scene.mm.files().policy().set_exec_tiers(&[]).unwrap();
        let other = scene.file(Store::ReadOnly, 400);
        scene.show(other, 0, 10, Prot::READ, AreaFlags::empty());
        scene.fault(START.add(1), Access::Read).unwrap();
        assert_eq!(scene.folios().len(), 32, "around, as where no size is preferred");
    });
}

#[test]
fn b3_large_folios_come_back_after_a_stray_page_and_after_a_failed_allocation() {
    with::<Arm4k>(Config::arm64_4k(), |scene| {
        let file = scene.file(Store::ReadOnly, 400);
        scene.mm.files().policy().set_exec_tiers(&[Order::new(4)]).unwrap();
        let mut reader = Readahead::default();
        let wanted = FilePages::new(105, 106);
        let Err(Stop::Need(Need::Read(reads))) =
            scene.mm.files().read(file, wanted, &mut reader, Pattern::Random)
        else {
            panic!("not in memory yet");
        };
        scene.carry(reads).unwrap();
        assert_eq!(scene.folios(), [(105, 1)]);
        scene.show(file, 0, 400, Prot::RX, AreaFlags::empty());
        scene.fault(START.add(97), Access::Execute).unwrap();
        let folios = scene.folios();
        let around = [(96, 8), (104, 1), (106, 2), (108, 4)];
        assert_eq!(folios[1..5], around);
        assert_eq!([folios[0], folios[5], folios[6]], [(80, 16), (112, 16), (128, 16)]);

        scene.mm.bare_phys().set_fail_plan(FailPlan::Nth(1));
        scene.fault(START.add(200), Access::Execute).unwrap();
        let folios = scene.folios();
        let read = [(176, 8), (184, 8), (192, 16), (208, 16), (224, 16)];
        assert_eq!(folios, read, "one order down, and back up");
    });
}

#[test]
fn b3_a_page_that_cannot_be_read_fails_alone_and_once_for_each_attempt() {
    with::<X86_64>(Config::x86_64(), |scene| {
        let file = scene.file(Store::ReadOnly, 64);
        scene.mm.files().policy().set_exec_tiers(&[Order::new(4)]).unwrap();
        scene.disk.set_bad(file.0, 21, true);
        scene.show(file, 0, 64, Prot::RX, AreaFlags::empty());
        for page in (0..64).filter(|page| *page != 21) {
            scene.fault(START.add(page), Access::Read).unwrap();
            assert_eq!(scene.word(START.add(page)), word(page + 1, 0));
        }
        for _ in 0..3 {
            let failed = scene.fault(START.add(21), Access::Read);
            assert_eq!(failed, Err(Error::Failed(file, 21).into()));
        }
        scene.disk.set_bad(file.0, 21, false);
        let _ = scene.fault(START.add(21), Access::Read);
        scene.fault(START.add(21), Access::Read).unwrap();
        assert_eq!(scene.word(START.add(21)), word(22, 0));
    });
}

#[test]
fn b1_a_file_that_becomes_shorter_and_longer_again_reads_as_zero_there() {
    with::<X86_64>(Config::x86_64(), |scene| {
        let file = scene.file(Store::Memory, 64);
        scene.mm.policy().set_size(Order::new(4), quire::fault::SizePolicy::Always).unwrap();
        scene.show(file, 0, 64, Prot::RW, AreaFlags::SHARED);
        let write = |page: u64| {
            scene.fault(START.add(page), Access::Write).unwrap();
            let addr = VirtAddr::new(START.add(page).get() << 12);
            scene.cpu.write(addr, 7).unwrap();
        };
        (16..32).for_each(write);
        for length in [20, 64] {
            let _operation = scene.cpu.operation("truncate");
            scene.mm.files().truncate(file, length, &[&scene.space][..]).unwrap();
        }
        for page in 16..32 {
            scene.fault(START.add(page), Access::Read).unwrap();
            assert_eq!(scene.word(START.add(page)), if page < 20 { 7 } else { 0 }, "page {page}");
        }
    });
}

#[test]
fn b1_a_late_read_of_a_file_that_was_closed_or_cut_is_dropped() {
    with::<X86_64>(Config::x86_64(), |scene| {
        let file = scene.file(Store::ReadOnly, 64);
        scene.show(file, 0, 64, Prot::READ, AreaFlags::empty());
        let Err(Stop::Need(Need::Read(mut reads))) =
            scene.mm.fault(&scene.space, START.add(9), Access::Read)
        else {
            panic!("not in memory yet");
        };
        let read = scene.mm.files().next_read(&mut reads).unwrap().expect("a page to read");
        let page = START.add(read.pages().start);
        let busy = scene.mm.fault(&scene.space, page, Access::Read);
        assert_eq!(busy, Err(Stop::Need(Need::Wait(file))), "it is being read");
        scene.mm.files().truncate(file, 0, &[&scene.space][..]).unwrap();
        assert_eq!(
            scene.mm.files().next_read(&mut reads).unwrap().map(drop),
            None,
            "nothing is left of it"
        );
        scene.mm.files().read_done(read, Ok(()));
        let missing = scene.mm.fault(&scene.space, page, Access::Read);
        assert_eq!(missing, Err(Error::Missing(page).into()));
        assert_eq!(scene.mm.files().get(file).unwrap().cached(), 0);
    });
}

#[test]
fn b1_a_block_of_a_file_is_mapped_by_one_entry_where_it_fits() {
    with::<X86_64>(Config::x86_64(), |scene| {
        let file = scene.file(Store::ReadOnly, 1024);
        scene.show(file, 0, 1024, Prot::READ, AreaFlags::HUGE);
        scene.fault(START.add(700), Access::Read).unwrap();
        assert_eq!(scene.folios()[0], (512, 512));
        let mut by_blocks = 0;
        scene.mm.spaces().folio_map(&scene.space, |map| by_blocks += map.by_blocks);
        assert_eq!(by_blocks, 512, "one leaf of 2 MiB");
        let cached = scene.mm.files().get(file).unwrap().cached();
        assert_eq!(scene.mm.files().cached_from(file, Order::new(9)), Ok(cached));
        let small = scene.file(Store::ReadOnly, 2048);
        for page in [3, 5, 700, 2000] {
            let (wanted, mut reader) = (FilePages::new(page, page + 1), Readahead::default());
            let page = scene.mm.files().read(small, wanted, &mut reader, Pattern::Random);
            let Err(Stop::Need(Need::Read(reads))) = page else { panic!("not in memory yet") };
            scene.carry(reads).unwrap();
        }
        let in_small = |order| scene.mm.files().cached_from(small, Order::new(order));
        assert_eq!([in_small(0), in_small(1), in_small(9)], [Ok(4), Ok(0), Ok(0)]);
        assert_eq!(scene.mm.files().cached_from(FileId(7), Order::ZERO), Err(Error::NoFile));
        assert_eq!(scene.mm.totals().event(quire::stats::Event::EntriesMade), 1);
        assert_eq!(scene.word(START.add(1000)), word(1001, 0));
    });
}

#[test]
fn d4_writes_to_shared_pages_are_tracked_as_well() {
    with::<X86_64>(Config::x86_64(), |scene| {
        let file = scene.mm.files().open(Store::Memory, 16, Order::ZERO).unwrap();
        let all = scene.show(file, 0, 16, Prot::RW, AreaFlags::SHARED);
        let written = || {
            let area = scene.mm.spaces().areas(&scene.space, all).next().unwrap();
            let mut pages = 0;
            scene.mm.spaces().runs(&scene.space, all, &mut |seen| {
                pages += u64::from(quire::is_written(&area, seen)) * seen.pages.count();
            });
            pages
        };
        let write = |page: u64| {
            scene.fault(START.add(page), Access::Write).unwrap();
            scene.cpu.write(VirtAddr::new(START.add(page).get() << 12), 7).unwrap();
        };
        (0..4).for_each(write);
        assert_eq!(written(), 4);
        {
            let _operation = scene.cpu.operation("track").cleans();
            scene.mm.spaces().track(&scene.space, all).unwrap();
        }
        assert_eq!(written(), 0);
        scene.fault(START.add(8), Access::Read).unwrap();
        assert_eq!(written(), 0, "a read fault does not dirty");
        write(2);
        write(9);
        assert_eq!(written(), 2);
    });
}

#[test]
fn e3_pages_moved_away_from_a_file_show_it_at_both_places() {
    with::<X86_64>(Config::x86_64(), |scene| {
        let file = scene.mm.files().open(Store::Memory, 16, Order::ZERO).unwrap();
        let old = scene.show(file, 0, 16, Prot::RW, AreaFlags::SHARED);
        scene.fault(START.add(5), Access::Write).unwrap();
        scene.cpu.write(VirtAddr::new(START.add(5).get() << 12), 7).unwrap();
        let new = {
            let _operation = scene.cpu.operation("remap");
            scene.mm.remap(&scene.space, old, 16, Move::Keep(At::Anywhere)).unwrap()
        };
        assert_eq!(scene.word(new.start.add(5)), 7);
        scene.fault(START.add(5), Access::Read).unwrap();
        assert_eq!(scene.word(START.add(5)), 7, "the file has it");
    });
}

#[test]
fn b4_an_areas_own_wish_for_a_size_is_kept_inherited_and_soft() {
    with::<X86_64>(Config::x86_64(), |scene| {
        let (mm, space) = (scene.mm, &scene.space);
        let file = scene.file(Store::ReadOnly, 256);
        let span = scene.show(file, 0, 256, Prot::READ, AreaFlags::empty());
        let half = PageSpan::new(START.add(128), START.add(256));
        let wishes = |space: &Space<X86_64>| {
            mm.spaces().areas(space, span).map(|area| area.flags.read_order()).collect::<Vec<_>>()
        };
        for order in [Order::ZERO, Order::new(10)] {
            assert_eq!(mm.spaces().set_read_order(space, span, Some(order)), Err(Error::Invalid));
        }
        mm.spaces().set_read_order(space, half, Some(Order::new(4))).unwrap();
        let split = [None, Some(Order::new(4))];
        assert_eq!(wishes(space), split);
        let child = mm.fork(space, Asid(2)).unwrap();
        assert_eq!(wishes(&child), split, "a child inherits it");
        mm.destroy(child);
        scene.fault(START.add(200), Access::Read).unwrap();
        let read = [(176, 16), (192, 16), (208, 16), (224, 16)];
        assert_eq!(scene.folios(), read, "aligned blocks around it");
        // Where memory is short it is smaller, and no error.
        mm.bare_phys().set_fail_plan(FailPlan::Nth(1));
        scene.fault(START.add(130), Access::Read).unwrap();
        mm.bare_phys().set_fail_plan(FailPlan::Never);
        let read = scene.folios();
        assert!(read[0].1 < 16, "{read:?}");
        mm.spaces().set_read_order(space, half, None).unwrap();
        assert_eq!(wishes(space), [None], "one area again");
        let anon = Request::anon(4).at(At::Fixed(START.add(512)));
        let anon = mm.map(space, &anon).unwrap();
        assert_eq!(
            mm.spaces().set_read_order(space, anon, Some(Order::new(4))),
            Err(Error::Invalid)
        );
    });
}
