//! Files beside anonymous memory when there is too little for both (D6), and refaults (B1): the
//! kind of memory that costs reads stays, and refaults are counted as a naive model does.

use std::collections::BTreeMap;

use quire::cache::{FileId, FilePages, Pattern, Readahead, Store};
use quire::check;
use quire::space::{At, Request, Space};
use quire::stats::Event;
use quire::{Need, Stop};
use quire_arch::{Arch, X86_64};
use quire_machine::{Config, Cpu, Machine};
use quire_sim::disk::{Disk, word};
use quire_sim::program::touch;
use quire_sim::system::{self, HostedMm};
use quire_units::{Asid, Order, PageSpan, PhysAddr, Prot, VirtAddr, Vpn};

type Format = X86_64;

const SHIFT: u32 = Format::PAGE_SHIFT;
const START: Vpn = Vpn::new(8192);
/// How many frames there are, where a test does not say otherwise.
const FRAMES: u64 = 1024;

/// A program with anonymous memory that also reads a file.
struct Scene<'s, 'm, 'r> {
    machine: &'s Machine<'r>,
    mm: &'s HostedMm<'m, 'r, Format>,
    cpu: Cpu<'s, 'r>,
    disk: Disk,
    file: FileId,
    swap: Option<FileId>,
    space: Space<Format>,
    frames: u64,
}

impl Scene<'_, '_, '_> {
    fn write_back(&self) {
        let Some(swap) = self.swap else { return };
        self.disk.write_back(self.mm, swap, &[&self.space]).unwrap();
    }

    fn reclaim(&self, pages: u64) {
        let _operation = self.cpu.operation("reclaim");
        self.mm.reclaim().reclaim(pages, &[&self.space][..]);
        self.write_back();
    }

    /// Makes memory free as a kernel does.
    fn ease(&self) {
        let marks = self.mm.reclaim().watermarks(self.frames);
        let free = self.mm.phys().free_frames();
        if free < marks.low {
            self.reclaim(marks.high - free);
        }
    }

    fn touch(&self, page: u64, write: Option<u64>) -> u64 {
        let addr = VirtAddr::new(START.add(page).get() << SHIFT);
        let resolve = |access| {
            self.ease();
            let _operation = self.cpu.operation("fault");
            match self.mm.fault(&self.space, START.add(page), access) {
                Err(Stop::Need(Need::Read(reads))) => {
                    // Without memory to read into, the fault asks again.
                    let _ = self.disk.serve(self.mm, reads);
                    Ok(())
                }
                done => done.map(drop),
            }
        };
        touch(&self.cpu, addr, write, resolve).unwrap()
    }

    /// Writes the first `pages` pages of memory.
    fn fill(&self, pages: u64) {
        for page in 0..pages {
            self.touch(page, Some(page + 7));
        }
    }

    /// Reads a page of the file, with nothing around it; whether it was cached.
    fn read(&self, page: u64) -> bool {
        let (wanted, mut reader) = (FilePages::new(page, page + 1), Readahead::default());
        let mut cached = true;
        loop {
            match self.mm.files().read(self.file, wanted, &mut reader, Pattern::Random) {
                Ok((held, _)) => {
                    let at = PhysAddr::new(held.frames().start.get() << SHIFT);
                    let is = self.machine.ram().read_word(at);
                    assert_eq!(is, Some(word(page + 1, 0)), "page {page}");
                    self.mm.files().release(held);
                    return cached;
                }
                Err(Stop::Need(Need::Read(reads))) => {
                    cached = false;
                    self.ease();
                    let _ = self.disk.serve(self.mm, reads);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn count(&self, event: Event) -> u64 {
        self.mm.totals().event(event)
    }
}

/// A scene with frames, a file of `pages` pages and, if they are wanted, slots.
fn with(frames: u64, pages: u64, slots: u64, act: impl FnOnce(&Scene<'_, '_, '_>)) {
    let mut ram = system::ram((frames as usize) << SHIFT).unwrap();
    system::with::<Format, _>(Config::x86_64(), &mut ram, |machine, mm| {
        let free = mm.phys().free_frames();
        let disk = Disk::new();
        let file = mm.files().open(Store::ReadOnly, pages, Order::ZERO).unwrap();
        (0..pages).for_each(|page| disk.put(file.0, page, page + 1));
        let swap = (slots > 0).then(|| mm.paging().swap_on(slots).unwrap());
        let space = mm.space(Asid(1), PageSpan::new(START, START.add(1 << 13))).unwrap();
        let request = Request { prot: Prot::RW, ..Request::anon(6144) };
        mm.map(&space, &request.at(At::Fixed(START))).unwrap();
        let cpu = machine.cpu(0);
        space.enter(cpu.number());
        cpu.switch(space.root(), space.asid());
        let scene = Scene { machine, mm, cpu, disk, file, swap, space, frames };
        act(&scene);
        scene.cpu.leave();
        check::system(mm, &[&scene.space]).unwrap();
        mm.destroy(scene.space);
        mm.files().close(file).unwrap();
        swap.into_iter().for_each(|swap| mm.paging().swap_off(swap).unwrap());
        assert_eq!(mm.phys().free_frames(), free, "notes have kept memory");
        machine.audit().unwrap();
    })
    .unwrap();
}

/// Reads a file again and again beside memory that is never touched; how many reads of the disk the
/// last of eight times took.
fn reads_beside_idle_memory(swappiness: u32) -> usize {
    const WANTED: u64 = 640;
    let mut last = 0;
    with(FRAMES, WANTED, 4096, |scene| {
        scene.mm.policy().set_swappiness(swappiness).unwrap();
        scene.fill(512);
        for _ in 0..8 {
            last = (0..WANTED).filter(|page| !scene.read(*page)).count();
            eprintln!(
                "{swappiness}: {last} refault {} out {} free {} cached {}",
                scene.count(Event::RefaultFile),
                scene.count(Event::PagesSwapped),
                scene.mm.phys().free_frames(),
                scene.mm.files().get(scene.file).unwrap().cached()
            );
        }
        (0..512).for_each(|page| assert_eq!(scene.touch(page, None), page + 7));
    });
    last
}

#[test]
fn d6_a_file_that_is_read_again_stays_and_idle_memory_leaves() {
    let balanced = reads_beside_idle_memory(60);
    let files_first = reads_beside_idle_memory(0);
    assert!(balanced <= 32, "{balanced} of 640 pages were read once more");
    assert!(files_first >= 320, "only {files_first} pages: there was room for both");
}

#[test]
fn d6_memory_in_use_stays_while_a_file_goes_by() {
    // Larger than a batch of the clock hand.
    const IN_USE: u64 = 5120;
    with(8 * FRAMES, 8192, 8192, |scene| {
        scene.fill(IN_USE);
        let before = scene.count(Event::RefaultAnon);
        for page in 0..8192 {
            scene.read(page);
            // All of it while 64 pages are read.
            for near in 0..IN_USE / 64 {
                let own = (page * (IN_USE / 64) + near) % IN_USE;
                assert_eq!(scene.touch(own, None), own + 7);
            }
        }
        assert_eq!(scene.count(Event::RefaultFile), 0, "none was read twice");
        let missed = scene.count(Event::RefaultAnon) - before;
        assert!(missed <= IN_USE / 100, "{missed} pages in use were paged out");
    });
}

#[test]
fn d6_swappiness_chooses_the_kind_as_long_as_nothing_comes_back() {
    let gave = |swappiness| {
        let mut gave = 0;
        with(FRAMES, 512, 4096, |scene| {
            scene.mm.policy().set_swappiness(swappiness).unwrap();
            scene.fill(256);
            assert!((0..256).all(|page| !scene.read(page)));
            // Until both kinds have old pages.
            (0..4).for_each(|_| scene.reclaim(8));
            let before = scene.mm.files().get(scene.file).unwrap().cached();
            (0..2).for_each(|_| scene.reclaim(64));
            gave = before - scene.mm.files().get(scene.file).unwrap().cached();
            // A number beyond all pages is no error, and reclaims all.
            scene.reclaim(u64::MAX);
            assert_eq!(scene.mm.files().get(scene.file).unwrap().cached(), 0);
        });
        gave
    };
    let files = [0, 60, 100, 140, 200].map(gave);
    assert!(files.is_sorted_by(|more, less| more >= less), "{files:?}");
    assert!(files[0] == 128 && files[4] == 0, "{files:?}");
    let policy = quire::fault::Policy::new(Order::new(9));
    assert_eq!((policy.set_swappiness(201), policy.swappiness()), (Err(201), 60));
}

/// Random reads of a file that does not fit, some of it dropped now and then, beside a table of
/// when each page left.
#[test]
fn b1_a_read_is_counted_that_more_room_would_have_saved() {
    // One window of the hand, so that pages leave in the order of their numbers.
    const PAGES: u64 = 512;
    with(FRAMES, PAGES, 0, |scene| {
        let mut dice = quire_sim::Dice::new(7);
        let is_cached = |page: u64| {
            scene
                .mm
                .files()
                .next_cached(scene.file, FilePages::new(page, page + 1))
                .unwrap()
                .is_some()
        };
        let (mut clock, mut left, mut missed) = (0, BTreeMap::new(), 0);
        for step in 0..40_000_u64 {
            // The reads wander, so that some pages are not read for long.
            let page = (step / 40 + dice.roll(96)) % PAGES;
            if !scene.read(page) && left.remove(&page).is_some_and(|at| clock - at <= FRAMES) {
                missed += 1;
            }
            if dice.roll(12) == 0 {
                let before: Vec<u64> = (0..PAGES).filter(|page| is_cached(*page)).collect();
                scene.reclaim(8 + dice.roll(32));
                for gone in before.into_iter().filter(|page| !is_cached(*page)) {
                    left.insert(gone, clock);
                    clock += 1;
                }
            }
            assert_eq!(scene.count(Event::RefaultFile), missed, "at step {step}");
        }
        assert!(missed > 1000 && clock > 4 * FRAMES, "{missed} of {clock}");
        let away = left.values().filter(|at| clock - **at > FRAMES).count();
        assert!(away > 0, "none was gone for long");
    });
}
