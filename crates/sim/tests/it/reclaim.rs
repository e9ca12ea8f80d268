//! Reclaim (D6): old pages leave first, and nothing is lost, though programs use five times the
//! memory that there is.

use std::collections::BTreeMap;

use quire::cache::FileId;
use quire::check;
use quire::fault::SizePolicy;
use quire::space::{At, Request, Space};
use quire::{Error, Need, Scope, Stop};
use quire_arch::{Arch, Arm4k, X86_64};
use quire_machine::{Config, Cpu};
use quire_sim::disk::{Disk, word};
use quire_sim::system::{self, HostedMm};
use quire_units::{Access, Asid, Order, PageSpan, Prot, VirtAddr, Vpn};

const BASE: Vpn = Vpn::new(0x10000);

struct Live<A> {
    space: Space<A>,
    stamps: BTreeMap<u64, u64>,
}

struct Scene<'s, 'm, 'r, A: Arch> {
    mm: &'s HostedMm<'m, 'r, A>,
    cpu: Cpu<'s, 'r>,
    disk: Disk,
    swap: FileId,
    lives: Vec<Live<A>>,
    frames: u64,
    dice: u64,
    asids: u16,
}

impl<A: Arch> Scene<'_, '_, '_, A> {
    fn roll(&mut self, sides: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.dice >> 33) % sides
    }

    fn begin(&mut self, pages: u64) {
        self.asids += 1;
        let window = PageSpan::new(BASE, BASE.add(1 << 18));
        let space = self.mm.space(Asid(self.asids), window).unwrap();
        let request = Request { prot: Prot::RW, ..Request::anon(pages) }.at(At::Fixed(BASE));
        self.mm.map(&space, &request).unwrap();
        self.lives.push(Live { space, stamps: BTreeMap::new() });
    }

    fn spaces(&self) -> Vec<&Space<A>> {
        self.lives.iter().map(|live| &live.space).collect()
    }

    fn write_back(&self) {
        self.disk.write_back(self.mm, self.swap, &self.spaces()).unwrap();
    }

    /// Makes memory free as a kernel does: up to the high watermark when it is below the low one.
    fn balance(&self) {
        let marks = self.mm.reclaim().watermarks(self.frames);
        let free = self.mm.phys().free_frames();
        if free < marks.low {
            let _operation = self.cpu.operation("reclaim");
            self.mm.reclaim().reclaim(marks.high - free, &self.spaces()[..]);
            self.write_back();
        }
    }

    fn touch(&self, at: usize, page: u64, write: Option<u64>) -> u64 {
        let space = &self.lives[at].space;
        space.enter(self.cpu.number());
        self.cpu.switch(space.root(), space.asid());
        let page = BASE.add(page);
        let place = |index: u64| VirtAddr::new((page.get() << A::PAGE_SHIFT) + 8 * index);
        for _ in 0..50 {
            self.balance();
            let access = if write.is_some() { Access::Write } else { Access::Read };
            let done = match write {
                Some(stamp) => self.cpu.write(place(0), word(stamp, 0)).map(|()| 0),
                None => self.cpu.read(place(0)),
            };
            if let Ok(first) = done {
                for index in [1, 7, 300, 511].into_iter().filter(|_| write.is_some()) {
                    let value = word(write.unwrap_or(0), index as usize);
                    self.cpu.write(place(index), value).unwrap();
                }
                return first;
            }
            let fault = {
                let _operation = self.cpu.operation("fault");
                self.mm.fault(space, page, access)
            };
            match fault {
                Ok(_) => {}
                Err(Stop::Refuse(Error::NoMemory(_))) => {
                    self.mm.reclaim().reclaim(64, &self.spaces()[..]);
                    self.write_back();
                }
                // Without memory to read into, the fault asks again.
                Err(Stop::Need(Need::Read(reads))) => drop(self.disk.serve(self.mm, reads)),
                Err(error) => panic!("{error:?}"),
            }
        }
        panic!("{page} cannot be had: {} frames are free", self.mm.phys().free_frames());
    }

    fn step(&mut self, pages: u64, nth: u64) {
        let at = self.roll(self.lives.len() as u64) as usize;
        // Most touches are near a place that wanders; the others are anywhere.
        let near = (nth * 7 / 50 + 40 * self.roll(8)) % pages;
        let page = if self.roll(10) < 8 { near } else { self.roll(pages) };
        let held = self.lives[at].stamps.get(&page).copied().unwrap_or(0);
        if self.roll(2) == 0 {
            self.touch(at, page, Some(nth + 1));
            self.lives[at].stamps.insert(page, nth + 1);
        } else {
            assert_eq!(self.touch(at, page, None), word(held, 0), "page {page} of {at}");
        }
    }

    fn fork_or_exit(&mut self) {
        self.cpu.leave();
        if self.lives.len() > 3 {
            let at = self.roll(self.lives.len() as u64) as usize;
            let live = self.lives.remove(at);
            self.mm.destroy(live.space);
            return;
        }
        self.asids += 1;
        self.balance();
        let parent = &self.lives[0];
        let stamps = parent.stamps.clone();
        if let Ok(space) = self.mm.fork(&parent.space, Asid(self.asids)) {
            self.lives.push(Live { space, stamps });
        }
    }
}

/// Three programs, and now and then a child, that use five times the RAM.
fn overcommits<A: Arch>(config: Config, sizes: &[u8]) {
    const FRAMES: u64 = 4096;
    let mut ram = system::ram((FRAMES as usize) << A::PAGE_SHIFT).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        for &order in sizes {
            mm.policy().set_size(Order::new(order), SizePolicy::Always).unwrap();
        }
        let free = mm.phys().free_frames();
        let swap = mm.paging().swap_on(40_000).unwrap();
        let mut scene = Scene {
            mm,
            cpu: machine.cpu(0),
            disk: Disk::new(),
            swap,
            lives: Vec::new(),
            frames: FRAMES,
            dice: 42,
            asids: 0,
        };
        let pages = 5 * FRAMES / 3;
        (0..3).for_each(|_| scene.begin(pages));
        for nth in 0..30_000 {
            scene.step(pages, nth);
            if nth % 2500 == 2499 {
                scene.fork_or_exit();
                check::system(mm, &scene.spaces()).unwrap();
            }
        }
        machine.audit().unwrap();
        for at in 0..scene.lives.len() {
            for (page, stamp) in scene.lives[at].stamps.clone() {
                assert_eq!(scene.touch(at, page, None), word(stamp, 0), "page {page} of {at}");
            }
        }
        assert!(mm.totals().swpout.iter().sum::<u64>() > 1000, "{:?}", mm.totals().swpout);
        scene.cpu.leave();
        while let Some(live) = scene.lives.pop() {
            mm.destroy(live.space);
        }
        mm.paging().swap_off(swap).unwrap();
        check::system::<A, _>(mm, &[]).unwrap();
        assert_eq!(mm.phys().free_frames(), free);
    })
    .unwrap();
}

#[test]
fn d6_five_times_the_memory_is_used_and_nothing_is_lost_x86_64_in_pages() {
    overcommits::<X86_64>(Config::x86_64(), &[]);
}

#[test]
fn d6_five_times_the_memory_is_used_and_nothing_is_lost_arm64_in_64k() {
    overcommits::<Arm4k>(Config::arm64_4k(), &[4]);
}

#[test]
fn d6_five_times_the_memory_is_used_and_nothing_is_lost_x86_64_in_all_sizes() {
    overcommits::<X86_64>(Config::x86_64(), &[2, 4, 6, 9]);
}

#[test]
fn d6_the_least_recently_used_pages_leave_first() {
    let mut ram = system::ram(2048 << 12).unwrap();
    system::with::<Arm4k, _>(Config::arm64_4k(), &mut ram, |machine, mm| {
        mm.policy().set_size(Order::new(4), SizePolicy::Always).unwrap();
        mm.paging().swap_on(4096).unwrap();
        let window = PageSpan::new(BASE, BASE.add(1024));
        let space = mm.space(Asid(1), window).unwrap();
        let request = Request { prot: Prot::RW, ..Request::anon(256) }.at(At::Fixed(BASE));
        mm.map(&space, &request).unwrap();
        mm.populate(&space, PageSpan::new(BASE, BASE.add(256))).unwrap();
        let cpu = machine.cpu(0);
        space.enter(cpu.number());
        cpu.switch(space.root(), space.asid());
        let old = |page: u64| !(64..192).contains(&page);
        for _ in 0..3 {
            assert_eq!(mm.reclaim().age_all(&[&space][..]), 256);
            for page in (0..256).step_by(16).filter(|&page| !old(page)) {
                let addr = VirtAddr::new(BASE.add(page).get() << 12);
                while cpu.read(addr).is_err() {
                    mm.fault(&space, BASE.add(page), Access::Read).unwrap();
                }
            }
        }
        let done = mm.reclaim().reclaim(128, &[&space][..]);
        assert_eq!((done.paged_out, done.dropped), (128, 0));
        for page in 0..256 {
            let there = mm.paging().next_swapped(&space, FileId(0), BASE.add(page));
            assert_eq!(there == Some(BASE.add(page)), old(page), "page {page}");
        }
        // The other pages come back only when they are needed.
        assert_eq!(mm.reclaim().reclaim(64, &[&space][..]).paged_out, 64);
        let rest = mm.paging().page_out(&space, window, Scope::Own, &[&space][..]).unwrap();
        assert_eq!(rest.pages, 64);
        cpu.leave();
        mm.destroy(space);
        machine.audit().unwrap();
    })
    .unwrap();
}

#[test]
fn d6_a_folio_is_as_young_as_its_page_that_was_touched_last() {
    let mut ram = system::ram(1024 << 12).unwrap();
    system::with::<X86_64, _>(Config::x86_64(), &mut ram, |machine, mm| {
        mm.policy().set_size(Order::new(4), SizePolicy::Always).unwrap();
        mm.paging().swap_on(1024).unwrap();
        let window = PageSpan::new(BASE, BASE.add(64));
        let space = mm.space(Asid(1), window).unwrap();
        let request = Request { prot: Prot::RW, ..Request::anon(64) }.at(At::Fixed(BASE));
        mm.map(&space, &request).unwrap();
        mm.populate(&space, window).unwrap();
        let cpu = machine.cpu(0);
        space.enter(cpu.number());
        cpu.switch(space.root(), space.asid());
        let touch = |page: u64| {
            let addr = VirtAddr::new(BASE.add(page).get() << 12);
            while cpu.read(addr).is_err() {
                mm.fault(&space, BASE.add(page), Access::Read).unwrap();
            }
        };
        // Every other page of the second folio, so that its entries differ.
        for _ in 0..3 {
            mm.reclaim().age_all(&[&space][..]);
            (17..31).step_by(2).for_each(touch);
        }
        assert_eq!(mm.reclaim().reclaim(48, &[&space][..]).paged_out, 48);
        let stays = |page: u64| {
            mm.paging().next_swapped(&space, FileId(0), BASE.add(page)) != Some(BASE.add(page))
        };
        assert!((0..64).all(|page| stays(page) == (16..32).contains(&page)));
        cpu.leave();
        mm.destroy(space);
        machine.audit().unwrap();
    })
    .unwrap();
}

#[test]
fn d6_a_page_that_many_spaces_share_ages_once_a_round() {
    let mut ram = system::ram(1024 << 12).unwrap();
    system::with::<X86_64, _>(Config::x86_64(), &mut ram, |machine, mm| {
        mm.paging().swap_on(1024).unwrap();
        let window = PageSpan::new(BASE, BASE.add(64));
        let space = mm.space(Asid(1), window).unwrap();
        let request = Request { prot: Prot::RW, ..Request::anon(64) }.at(At::Fixed(BASE));
        mm.map(&space, &request).unwrap();
        mm.populate(&space, PageSpan::new(BASE, BASE.add(32))).unwrap();
        let children: Vec<_> = (2..6).map(|id| mm.fork(&space, Asid(id)).unwrap()).collect();
        let all: Vec<_> = children.iter().chain([&space]).collect();
        let frame = |page: u64| {
            let mut frame = None;
            mm.spaces().runs(
                &space,
                PageSpan::new(BASE.add(page), BASE.add(page + 1)),
                &mut |seen| {
                    if let quire::table::Sight::Leaf { frame: first, .. } = seen.what {
                        frame = Some(first);
                    }
                },
            );
            frame.unwrap()
        };
        let idle = |page: u64| {
            let folios = quire::inject::Folios::new(mm.bare_phys().meta());
            folios.idle(folios.of(frame(page)).unwrap())
        };
        mm.reclaim().age_all(&all[..]);
        mm.reclaim().age_all(&all[..]);
        assert_eq!(idle(0), 1, "its first round found that it had been made");
        mm.reclaim().age_all(&all[..]);
        assert_eq!(idle(0), 2);
        children.into_iter().for_each(|child| mm.destroy(child));
        mm.destroy(space);
        machine.audit().unwrap();
    })
    .unwrap();
}
