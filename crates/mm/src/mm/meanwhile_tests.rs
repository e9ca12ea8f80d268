//! The calls of another CPU in the moment before a flush, while a third has the old translations.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::vec::Vec;

use quire_arch::{Arch, X86_64};
use quire_hw::{Flush, Hardware, HasMemory, Profile};
use quire_machine::{Config, Cpu, Machine, Ram};
use quire_units::{Access, Asid, CpuId, FrameSpan, Order, PageSpan, Vpn};

use crate::cache::{File, FileId, FilePages, Store};
use crate::check;
use crate::phys::{CpuCache, Slot, Zone};
use crate::space::{AreaFlags, At, Backing, Request, Space};
use crate::stats::Counters;
use crate::swap::Swap;
use crate::{Mm, Move, Need, Parts, Scope, Stop};

type Paused<'m, 'r> = Mm<'m, X86_64, Pauses<'m, 'r>>;

const CPUS: usize = 3;
const PAGES: u64 = 4;
const OLD: PageSpan = PageSpan::new(Vpn::new(4096), Vpn::new(4096 + PAGES));
const NEW: PageSpan = PageSpan::new(Vpn::new(5120), Vpn::new(5120 + PAGES));

/// The machine, which lets another CPU do something before its next flush.
struct Pauses<'m, 'r> {
    machine: &'m Machine<'r>,
    /// Tells the other CPU that a flush is due, and hears that it is done.
    other: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl<'r> HasMemory for Pauses<'_, 'r> {
    type Memory = Machine<'r>;

    fn memory(&self) -> &Self::Memory {
        self.machine
    }
}

impl Hardware for Pauses<'_, '_> {
    fn flush(&self, flush: &Flush<'_>) {
        let other = self.other.lock().expect("no thread panics").take();
        if let Some((due, done)) = other {
            due.send(()).expect("it waits");
            done.recv().expect("it comes to its end");
        }
        self.machine.flush(flush);
    }

    fn publish_code(&self, frames: FrameSpan) {
        self.machine.publish_code(frames);
    }

    fn freed(&self, frames: FrameSpan) {
        self.machine.freed(frames);
    }

    fn cpu(&self) -> CpuId {
        Hardware::cpu(self.machine)
    }

    fn profile(&self) -> Profile {
        self.machine.profile()
    }
}

/// A system with a swap device, a file, and an area over it or over anonymous memory.
struct Story<'a, 'm, 'r> {
    mm: &'a Paused<'m, 'r>,
    space: &'a Space<X86_64>,
    file: FileId,
    swap: FileId,
}

fn with(is_file: bool, test: impl FnOnce(&Story<'_, '_, '_>)) {
    let mut ram = Ram::new(4 << 20).expect("the host has 4 MiB");
    let config = Config::x86_64().with_cpus(CPUS);
    let (machine, run) = Machine::new(config, &mut ram).expect("a valid preset");
    let hw = Pauses { machine: &machine, other: Mutex::new(None) };
    let mut slots: Vec<Slot> = (0..run.count()).map(|_| Slot::default()).collect();
    let mut caches = [const { CpuCache::new() }; CPUS];
    let counters = [const { Counters::new() }; CPUS];
    let (mut zones, mut files, mut swaps) =
        ([Zone::new(run.span())], [File::new(), File::new()], [Swap::new()]);
    let parts = Parts::new(run.start(), &mut slots, &mut caches, &counters, &mut zones)
        .files(&mut files)
        .swaps(&mut swaps);
    let mm = Mm::<X86_64, _>::new(&hw, parts).expect("sound");
    mm.add(run).expect("the zone is RAM");
    let space = mm.space(Asid(1), PageSpan::new(OLD.start, Vpn::new(8192))).expect("memory");
    let swap = mm.paging().swap_on(64).expect("memory");
    let file = mm.files().open(Store::ReadWrite, PAGES, Order::ZERO).expect("a free file");
    let request = Request::anon(PAGES).at(At::Fixed(OLD.start));
    let shown = Request { backing: Backing::File { id: file, page: 0 }, ..request };
    let request = if is_file { shown.flags(AreaFlags::SHARED) } else { request };
    mm.map(&space, &request).expect("free");
    let story = Story { mm: &mm, space: &space, file, swap };
    story.on(2, |cpu| story.warm(cpu));
    test(&story);
    check::system(&mm, &[&space]).expect("every claim holds");
    machine.audit().expect("no rule of the hardware is broken");
    story.on(2, |cpu| cpu.leave());
    mm.destroy(space);
    machine.audit().expect("no rule of the hardware is broken");
}

impl Story<'_, '_, '_> {
    fn on<T>(&self, number: usize, act: impl FnOnce(&Cpu<'_, '_>) -> T) -> T {
        act(&self.mm.base().hw.machine.cpu(number))
    }

    /// Runs CPU 2 in the space, until it has the translations of all pages.
    fn warm(&self, cpu: &Cpu<'_, '_>) {
        self.space.enter(cpu.number());
        cpu.switch(self.space.root(), self.space.asid());
        for page in 0..PAGES {
            self.store(cpu, OLD.start.add(page), 10 + page);
        }
    }

    /// Accesses a page until no fault is due.
    fn access<T>(
        &self,
        cpu: &Cpu<'_, '_>,
        page: Vpn,
        access: Access,
        once: impl Fn() -> Option<T>,
    ) -> T {
        loop {
            if let Some(done) = once() {
                return done;
            }
            let _op = cpu.operation("fault");
            if let Err(stop) = self.mm.fault(self.space, page, access) {
                let Stop::Need(Need::Read(mut reads)) = stop else { panic!("{stop:?}") };
                while let Some(read) = self.mm.files().next_read(&mut reads).expect("it is open") {
                    self.mm.files().read_done(read, Ok(()));
                }
            }
        }
    }

    fn store(&self, cpu: &Cpu<'_, '_>, page: Vpn, word: u64) {
        let addr = page.addr(X86_64::PAGE_SHIFT);
        self.access(cpu, page, Access::Write, || cpu.write(addr, word).ok());
    }

    fn load(&self, cpu: &Cpu<'_, '_>, page: Vpn) -> u64 {
        let addr = page.addr(X86_64::PAGE_SHIFT);
        self.access(cpu, page, Access::Read, || cpu.read(addr).ok())
    }

    /// Writes all dirty pages of a file, to a store that is not looked at.
    fn write_back(&self, file: FileId) {
        let pages = self.mm.files().get(file).expect("it is open").pages();
        let mut left = FilePages::new(0, pages);
        while let Some(write) = self
            .mm
            .files()
            .next_write(file, &mut left, [self.space].as_slice())
            .expect("none is under way")
        {
            self.mm.files().write_done(write, Ok(()));
        }
    }

    /// CPU 0 makes a call, and CPU `number` one in the moment before its first flush.
    fn meanwhile(
        &self,
        call: impl FnOnce(),
        number: usize,
        other: impl FnOnce(&Cpu<'_, '_>) + Send,
    ) {
        let ((due, begins), (done, ended)) = (channel(), channel());
        let hw = self.mm.base().hw;
        *hw.other.lock().expect("no thread panics") = Some((due, ended));
        thread::scope(|scope| {
            scope.spawn(move || {
                self.on(number, |cpu| {
                    begins.recv().expect("the call flushes");
                    let _op = cpu.operation("the other").cleans();
                    other(cpu);
                });
                done.send(()).expect("the call waits");
            });
            self.on(0, |cpu| {
                let _op = cpu.operation("the call").cleans();
                call();
            });
            drop(hw.other.lock().expect("no thread panics").take());
        });
    }

    fn moves(&self) {
        let moved = self.mm.remap(self.space, OLD, PAGES, Move::To(NEW.start));
        assert_eq!(moved, Ok(NEW));
    }
}

#[test]
fn i6_a_page_that_moves_does_not_leave_memory_before_its_old_place_is_flushed() {
    with(false, |story| {
        let page_out = |_: &Cpu<'_, '_>| {
            let out =
                story.mm.paging().page_out(story.space, NEW, Scope::All, [story.space].as_slice());
            out.expect("programs may map it");
            story.write_back(story.swap);
        };
        story.meanwhile(|| story.moves(), 1, page_out);
        story.on(2, |cpu| {
            for page in 0..PAGES {
                assert_eq!(story.load(cpu, NEW.start.add(page)), 10 + page);
            }
        });
    });
}

#[test]
fn i6_a_file_page_that_moves_is_not_free_before_its_old_place_is_flushed() {
    with(true, |story| {
        story.on(1, |_| story.write_back(story.file));
        // Writeback took the right to write, and flushed: CPU 2 gets the translations again.
        story.on(2, |cpu| {
            for page in 0..PAGES {
                story.load(cpu, OLD.start.add(page));
            }
        });
        let reclaim = |_: &Cpu<'_, '_>| {
            let done = story.mm.reclaim().reclaim(u64::MAX, [story.space].as_slice());
            assert_eq!(done.dropped, PAGES, "they are clean");
        };
        story.meanwhile(|| story.moves(), 1, reclaim);
    });
}

#[test]
fn i14_a_store_beside_a_search_for_zeroes_stays_where_the_page_was_freed_lazily() {
    with(false, |story| {
        let zeroes =
            || story.on(2, |cpu| (0..PAGES).for_each(|at| story.store(cpu, OLD.start.add(at), 0)));
        zeroes();
        story.on(0, |cpu| {
            let _op = cpu.operation("free lazily").cleans();
            story.mm.spaces().free_lazily(story.space, OLD).expect("anonymous memory");
        });
        // They count as written again, and CPU 2 stores without a look at the tables.
        zeroes();
        let drop_zeroes = || {
            let _ = story.mm.reclaim().drop_zeroes(story.space, OLD);
        };
        let addr = OLD.start.addr(X86_64::PAGE_SHIFT);
        story.meanwhile(drop_zeroes, 2, |cpu| cpu.write(addr, 7).expect("it has the translation"));
        story.on(1, |cpu| {
            let _op = cpu.operation("page out").cleans();
            let out =
                story.mm.paging().page_out(story.space, OLD, Scope::Own, [story.space].as_slice());
            out.expect("programs may map it");
        });
        assert_eq!(story.on(2, |cpu| story.load(cpu, OLD.start)), 7, "the store was lost");
    });
}
