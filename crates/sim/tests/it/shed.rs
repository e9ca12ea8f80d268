//! Reclaiming pages of files that spaces map (D6): the least recently used ones go, and no
//! byte that was written is lost.

use quire::cache::{FileId, FilePages, Store};
use quire::check;
use quire::space::{AreaFlags, At, Backing, Request, Space};
use quire::{Need, Stop};
use quire_arch::{Arch, Arm4k, X86_64};
use quire_machine::{Config, Cpu, Machine};
use quire_sim::disk::{Disk, word};
use quire_sim::program::touch;
use quire_sim::system::{self, HostedMm};
use quire_units::{Asid, Order, PageSpan, Prot, VirtAddr, Vpn};

const START: Vpn = Vpn::new(8192);
const PAGES: u64 = 128;

struct Scene<'s, 'm, 'r, A> {
    machine: &'s Machine<'r>,
    mm: &'s HostedMm<'m, 'r, A>,
    cpu: Cpu<'s, 'r>,
    disk: Disk,
    file: FileId,
    /// Two that show the file: the first shared, the second privately.
    spaces: [Space<A>; 2],
}

impl<A: Arch> Scene<'_, '_, '_, A> {
    fn touch(&self, space: usize, page: u64, write: Option<u64>) -> u64 {
        let space = &self.spaces[space];
        space.enter(self.cpu.number());
        self.cpu.switch(space.root(), space.asid());
        let addr = VirtAddr::new(START.add(page).get() << A::PAGE_SHIFT);
        let resolve = |access| {
            let _operation = self.cpu.operation("fault");
            match self.mm.fault(space, START.add(page), access) {
                Err(Stop::Need(Need::Read(reads))) => self.disk.serve(self.mm, reads),
                done => done.map(drop),
            }
        };
        touch(&self.cpu, addr, write, resolve).unwrap()
    }

    /// Uses some pages, each in one of the two spaces.
    fn use_some(&self) {
        for page in 32..64 {
            self.touch((page % 2) as usize, page, None);
        }
    }

    fn all(&self) -> [&Space<A>; 2] {
        [&self.spaces[0], &self.spaces[1]]
    }

    fn reclaim(&self, pages: u64) -> u64 {
        let _operation = self.cpu.operation("reclaim");
        self.mm.reclaim().reclaim(pages, &self.all()[..]).dropped
    }

    fn cached(&self) -> u64 {
        self.mm.files().get(self.file).unwrap().cached()
    }

    fn is_cached(&self, page: u64) -> bool {
        self.mm.files().next_cached(self.file, FilePages::new(page, page + 1)).unwrap().is_some()
    }
}

fn with<A: Arch>(config: Config, act: impl FnOnce(&Scene<'_, '_, '_, A>)) {
    let mut ram = system::ram(2048 << A::PAGE_SHIFT).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        let disk = Disk::new();
        let file = mm.files().open(Store::ReadWrite, PAGES, Order::ZERO).unwrap();
        (0..PAGES).for_each(|page| disk.put(file.0, page, page + 1));
        let spaces = [AreaFlags::SHARED, AreaFlags::empty()].map(|flags| {
            let asid = Asid(1 + u16::from(flags.is_empty()));
            let space = mm.space(asid, PageSpan::new(START, START.add(1 << 12))).unwrap();
            let backing = Backing::File { id: file, page: 0 };
            let request = Request { backing, prot: Prot::RW, flags, ..Request::anon(PAGES) };
            mm.map(&space, &request.at(At::Fixed(START))).unwrap();
            space
        });
        let scene = Scene { machine, mm, cpu: machine.cpu(0), disk, file, spaces };
        for page in 0..PAGES {
            for space in [0, 1] {
                assert_eq!(scene.touch(space, page, None), word(page + 1, 0));
            }
        }
        act(&scene);
        scene.cpu.leave();
        check::system(mm, &scene.all()).unwrap();
        for space in scene.spaces {
            mm.destroy(space);
        }
        mm.files().close(file).unwrap();
        machine.audit().unwrap();
    })
    .unwrap();
}

fn keeps_used_pages<A: Arch>(config: Config) {
    with::<A>(config, |scene| {
        assert_eq!(scene.cached(), PAGES);
        // A page that only one of the two spaces uses counts as used.
        let is_used = |page: u64| (32..64).contains(&page);
        for _ in 0..3 {
            scene.mm.reclaim().age_all(&scene.all()[..]);
            scene.use_some();
        }
        let mut dropped = 0;
        while dropped < 64 {
            scene.use_some();
            let more = scene.reclaim(8);
            assert!(more > 0);
            dropped += more;
        }
        assert!((0..PAGES).filter(|page| is_used(*page)).all(|page| scene.is_cached(page)));
        assert_eq!(scene.cached(), PAGES - dropped);
        for page in 0..PAGES {
            for space in [0, 1] {
                assert_eq!(scene.touch(space, page, None), word(page + 1, 0), "page {page}");
            }
        }
    });
}

#[test]
fn d6_idle_mapped_pages_of_files_go_x86_64() {
    keeps_used_pages::<X86_64>(Config::x86_64());
}

#[test]
fn d6_idle_mapped_pages_of_files_go_arm64() {
    keeps_used_pages::<Arm4k>(Config::arm64_4k());
}

#[test]
fn d6_dirty_pages_of_a_file_go_after_their_writeback() {
    with::<X86_64>(Config::x86_64(), |scene| {
        for page in 0..16 {
            scene.touch(0, page, Some(word(1000 + page, 0)));
        }
        scene.reclaim(PAGES);
        assert!((0..16).all(|page| scene.is_cached(page)), "they are dirty");
        assert!((0..16).all(|page| scene.touch(1, page, None) == word(1000 + page, 0)));
        let mut left = FilePages::new(0, PAGES);
        while let Some(write) =
            scene.mm.files().next_write(scene.file, &mut left, &scene.all()[..]).unwrap()
        {
            let done = scene.disk.write(scene.machine.ram(), 12, &write, PAGES);
            scene.mm.files().write_done(write, done);
        }
        scene.reclaim(PAGES);
        assert_eq!(scene.cached(), 0);
        for page in 0..16 {
            let stamp = word(1000 + page, 0);
            assert_eq!((scene.touch(0, page, None), scene.touch(1, page, None)), (stamp, stamp));
        }
    });
}

#[test]
fn d6_a_private_copy_of_a_page_of_a_file_stays() {
    with::<X86_64>(Config::x86_64(), |scene| {
        for page in (0..PAGES).step_by(3) {
            scene.touch(1, page, Some(7000 + page));
        }
        scene.reclaim(PAGES);
        assert_eq!(scene.cached(), 0);
        for page in 0..PAGES {
            let own = if page % 3 == 0 { 7000 + page } else { word(page + 1, 0) };
            assert_eq!(scene.touch(1, page, None), own, "page {page}");
            assert_eq!(scene.touch(0, page, None), word(page + 1, 0), "page {page}");
        }
    });
}

#[test]
fn d6_pages_of_files_that_are_pinned_or_locked_stay() {
    with::<X86_64>(Config::x86_64(), |scene| {
        let pinned = scene.mm.pin_read(&scene.spaces[0], START.add(5)).unwrap();
        let locked = PageSpan::new(START.add(100), START.add(101));
        scene.mm.mlock(&scene.spaces[1], locked).unwrap();
        scene.reclaim(PAGES);
        assert!(scene.is_cached(5) && scene.is_cached(100));
        assert!(scene.cached() < PAGES);
        scene.mm.unpin(pinned);
        scene.reclaim(PAGES);
        assert!(!scene.is_cached(5) && scene.is_cached(100));
    });
}
