//! Several CPUs on the same files, all at once, under the examiner.
//!
//! Three files. The content of the first never changes, so that every page of it, however it was
//! mapped, has its stamp. One CPU makes the second shorter and longer, and announces its length: no
//! page beyond that is seen, and a page that is seen has its stamp, or is zero if it was ever cut
//! off. The third is memory that all CPUs write, each its own words.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use quire::cache::{FileId, FilePages, Pattern, Readahead, Reads, Store};
use quire::fault::SizePolicy;
use quire::space::{AreaFlags, At, Backing, Request, Space};
use quire::{Error, Need, Stop};
use quire_arch::{Arch, Arm4k, Sv39, X86_64};
use quire_machine::{Config, Cpu, Machine};
use quire_sim::disk::{Disk, word};
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, Order, PageSpan, PhysAddr, Prot, VirtAddr, Vpn};

/// How many pages each file has.
const PAGES: u64 = 96;
const STABLE: usize = 0;
const CUT: usize = 1;
const MEMORY: usize = 2;

struct Shared<A> {
    spaces: Vec<Space<A>>,
    files: [FileId; 3],
    disk: Disk,
    /// The length of `CUT` in the low half, while it is not changing; how often it changed above.
    length: AtomicU64,
}

/// While the length changes.
const LOOSE: u64 = u32::MAX as u64;

struct Worker<'t, 'm, 'r, A> {
    cpu: Cpu<'t, 'r>,
    machine: &'t Machine<'r>,
    mm: &'t HostedMm<'m, 'r, A>,
    shared: &'t Shared<A>,
    number: u64,
    random: u64,
    reader: Readahead,
}

/// Where file `file` is shown, from its first page on. Two are across two tables.
fn place<A: Arch>(file: usize) -> Vpn {
    let table = A::entries(quire_arch::Level::LAST) as u64;
    Vpn::new((4 + 2 * file as u64) * table - 16 * file as u64)
}

impl<A: Arch> Worker<'_, '_, '_, A> {
    /// Xorshift64*.
    fn dice(&mut self, sides: u64) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % sides
    }

    fn work(&mut self, steps: u64) {
        for _ in 0..steps {
            let space = &self.shared.spaces[self.dice(self.shared.spaces.len() as u64) as usize];
            self.cpu.switch(space.root(), space.asid());
            for _ in 0..6 {
                let page = self.dice(PAGES);
                match self.dice(5) {
                    0..=1 => self.see(space, STABLE, page),
                    2..=3 => self.see(space, CUT, page),
                    _ => self.own_word(space, page),
                }
            }
            self.change(space);
        }
        self.cpu.leave();
    }

    fn carry(&self, mut reads: Reads) {
        while let Ok(Some(read)) = self.mm.files().next_read(&mut reads) {
            // A slow disk, now and then: others come to the page while it is being read.
            if read.pages().start % 3 == self.number % 3 {
                thread::yield_now();
            }
            let done = self.shared.disk.read(self.machine.ram(), A::PAGE_SHIFT, &read);
            self.mm.files().read_done(read, done);
        }
    }

    /// Makes an access possible; `false` where the page is beyond the file's end.
    fn fault(&self, space: &Space<A>, page: Vpn, access: Access) -> bool {
        let _operation = self.cpu.operation("fault");
        match self.mm.fault(space, page, access) {
            Ok(_) => true,
            Err(Stop::Need(Need::Read(reads))) => {
                self.carry(reads);
                true
            }
            Err(Stop::Need(Need::Wait(_))) => {
                thread::yield_now();
                true
            }
            Err(Stop::Refuse(Error::Missing(_)) | Stop::Refuse(Error::NoArea(_))) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Reads a page, and judges its content.
    fn see(&self, space: &Space<A>, file: usize, page: u64) {
        let at = place::<A>(file).add(page);
        let addr = VirtAddr::new(at.get() << A::PAGE_SHIFT);
        self.cpu.bind();
        for _ in 0..20 {
            let before = self.shared.length.load(Ordering::SeqCst);
            if let Ok(seen) = self.cpu.read(addr) {
                let stamp = word(self.stamp(file, page), 0);
                let zero = file == CUT && seen == 0;
                assert!(seen == stamp || zero, "page {page} of file {file}: {seen:#x}");
                let held = self.shared.length.load(Ordering::SeqCst) == before;
                let cut = file == CUT && before & LOOSE != LOOSE && page >= before & LOOSE;
                assert!(!(held && cut), "page {page} is seen beyond {}", before & LOOSE);
                return;
            }
            if !self.fault(space, at, Access::Read) {
                return;
            }
        }
    }

    fn stamp(&self, file: usize, page: u64) -> u64 {
        1 + page + 1000 * file as u64
    }

    /// Writes its own word of a page that all CPUs write, and finds it, or zero, later.
    fn own_word(&mut self, space: &Space<A>, page: u64) {
        let at = place::<A>(MEMORY).add(page);
        let addr = VirtAddr::new((at.get() << A::PAGE_SHIFT) + 8 * self.number);
        let name = (self.number + 1) << 32 | page;
        let write = self.dice(2) == 0;
        self.cpu.bind();
        for _ in 0..20 {
            let done = if write { self.cpu.write(addr, name).is_ok() } else { false };
            if done {
                return;
            }
            match self.cpu.read(addr) {
                Ok(seen) if !write => {
                    return assert!(seen == 0 || seen == name, "{seen:#x} is not {name:#x}");
                }
                _ => {
                    let access = if write { Access::Write } else { Access::Read };
                    if !self.fault(space, at, access) {
                        return;
                    }
                }
            }
        }
    }

    fn change(&mut self, space: &Space<A>) {
        let (mm, file) = (self.mm, self.dice(3) as usize);
        let (from, count) = (self.dice(PAGES), 1 + self.dice(24));
        let pages = FilePages::new(from, (from + count).min(PAGES));
        let start = place::<A>(file).add(from);
        let span = PageSpan::new(start, start.add(pages.count()));
        let dice = self.dice(10);
        let _operation = self.cpu.operation("change");
        match dice {
            0..=1 => mm.discard(space, span).unwrap(),
            2..=3 => drop(mm.files().drop_clean(self.shared.files[file], pages).unwrap()),
            4..=5 => self.look(STABLE, from),
            8 => self.collapse(space, span),
            9 => {
                let spaces: Vec<_> = self.shared.spaces.iter().collect();
                mm.files().punch(self.shared.files[MEMORY], pages, &spaces[..]).unwrap();
            }
            6..=7 if self.number == 0 => self.cut(),
            6 if self.number == 1 => {
                mm.unmap(space, span).unwrap();
                let number = u64::from(space.asid().0) - 1;
                let request = shown::<A>(self.shared.files, number, file, pages);
                mm.map(space, &request).unwrap();
            }
            _ => {}
        }
    }

    /// Collapses pages of an area. Other CPUs touch them, and hold them.
    fn collapse(&self, space: &Space<A>, span: PageSpan) {
        let spaces: Vec<_> = self.shared.spaces.iter().collect();
        for _ in 0..20 {
            match self.mm.reclaim().collapse_file(space, span, &spaces[..]) {
                Ok(_) => return,
                Err(Stop::Need(Need::Read(reads))) => self.carry(reads),
                Err(Stop::Need(Need::Wait(_))) => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// As `read(2)` does.
    fn look(&mut self, file: usize, page: u64) {
        let wanted = FilePages::new(page, page + 4);
        let id = self.shared.files[file];
        for _ in 0..20 {
            match self.mm.files().read(id, wanted, &mut self.reader, Pattern::Normal) {
                Ok((held, ahead)) => {
                    ahead.into_iter().for_each(|reads| self.carry(reads));
                    let frames = held.frames();
                    for at in 0..frames.count {
                        let frame = frames.start.add(at).addr(A::PAGE_SHIFT).get();
                        let seen = self.machine.ram().read_word(PhysAddr::new(frame + 8));
                        assert_eq!(seen, Some(word(self.stamp(file, page + at), 1)));
                    }
                    return self.mm.files().release(held);
                }
                Err(Stop::Need(Need::Read(reads))) => self.carry(reads),
                Err(Stop::Need(Need::Wait(_))) => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Makes a file shorter or longer, and tells the others.
    fn cut(&mut self) {
        let pages = self.dice(PAGES);
        let shared = self.shared;
        let changes = (shared.length.load(Ordering::SeqCst) >> 32) + 1;
        shared.length.store(changes << 32 | LOOSE, Ordering::SeqCst);
        // The disk drops the pages first: they can only be read as zero from now on.
        (pages..PAGES).for_each(|page| shared.disk.put(shared.files[CUT].0, page, 0));
        let spaces: Vec<_> = shared.spaces.iter().collect();
        self.mm.files().truncate(shared.files[CUT], pages, &spaces[..]).unwrap();
        shared.length.store(changes << 32 | pages, Ordering::SeqCst);
    }
}

fn stress<A: Arch>(config: Config, spaces: u64, steps: u64, seed: u64) {
    let mut ram = system::ram(2048 << A::PAGE_SHIFT).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        let before = mm.phys().free_frames();
        mm.policy().set_size(Order::new(2), SizePolicy::Always).unwrap();
        mm.files().policy().set_exec_tiers(&[Order::new(3)]).unwrap();
        machine.faults().delay(24, seed);
        let shared = set_up(mm, spaces);
        thread::scope(|scope| {
            for number in 0..config.cpus {
                let shared = &shared;
                scope.spawn(move || {
                    let cpu = machine.cpu(number);
                    shared.spaces.iter().for_each(|space| space.enter(cpu.number()));
                    let random = seed ^ (number as u64 + 1) << 32 | 1;
                    let (number, reader) = (number as u64, Readahead::default());
                    Worker { cpu, machine, mm, shared, number, random, reader }.work(steps);
                });
            }
        });
        machine.verdict().unwrap_or_else(|violation| panic!("{violation}"));
        machine.audit().unwrap_or_else(|violation| panic!("{violation}"));
        let all: Vec<_> = shared.spaces.iter().collect();
        quire::check::system(mm, &all).unwrap_or_else(|wrong| panic!("{wrong}"));
        shared.spaces.into_iter().for_each(|space| mm.destroy(space));
        shared.files.iter().for_each(|file| mm.files().close(*file).unwrap());
        assert_eq!(mm.phys().free_frames(), before, "nothing is lost");
    })
    .unwrap();
}

/// An area that shows pages of a file, at the file's usual place. The areas of every other space
/// are shared, as is that of memory in all.
fn shown<A: Arch>(files: [FileId; 3], space: u64, file: usize, pages: FilePages) -> Request {
    let shared = file == MEMORY || space % 2 == 1;
    Request {
        backing: Backing::File { id: files[file], page: pages.start },
        prot: if file == MEMORY { Prot::RW } else { Prot::RX },
        flags: if shared { AreaFlags::SHARED } else { AreaFlags::empty() },
        ..Request::anon(pages.count()).at(At::Fixed(place::<A>(file).add(pages.start)))
    }
}

fn set_up<A: Arch>(mm: &HostedMm<'_, '_, A>, spaces: u64) -> Shared<A> {
    let stores = [Store::ReadOnly, Store::ReadWrite, Store::Memory];
    let files = stores.map(|store| mm.files().open(store, PAGES, Order::ZERO).unwrap());
    let disk = Disk::new();
    for (page, file) in (0..PAGES).flat_map(|page| [STABLE, CUT].map(|file| (page, file))) {
        disk.put(files[file].0, page, 1 + page + 1000 * file as u64);
    }
    let space = |number: u64| {
        let table = A::entries(quire_arch::Level::LAST) as u64;
        let window = PageSpan::new(Vpn::new(16), Vpn::new(64 * table));
        let space = mm.space(Asid(number as u16 + 1), window).unwrap();
        for file in [STABLE, CUT, MEMORY] {
            let all = FilePages::new(0, PAGES);
            mm.map(&space, &shown::<A>(files, number, file, all)).unwrap();
        }
        space
    };
    let spaces = (0..spaces).map(space).collect();
    Shared { spaces, files, disk, length: AtomicU64::new(PAGES) }
}

#[test]
fn b1_two_cpus_see_what_their_files_hold() {
    stress::<X86_64>(Config::x86_64().with_cpus(2), 1, 3000, 21);
}

#[test]
fn b1_four_cpus_in_three_spaces_see_what_their_files_hold() {
    stress::<X86_64>(Config::x86_64().with_cpus(4), 3, 1500, 22);
}

#[test]
fn b1_cpus_with_contiguous_blocks_see_what_their_files_hold() {
    stress::<Arm4k>(Config::arm64_4k().with_cpus(3), 2, 1000, 23);
    stress::<Sv39>(Config::riscv64_sv39().with_cpus(2), 2, 1000, 24);
}
