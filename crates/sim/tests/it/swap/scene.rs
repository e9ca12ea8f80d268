//! The processes, the due content of their pages, and the disk that they swap to.

use std::collections::{BTreeMap, BTreeSet};

use quire::cache::{FileId, Reads};
use quire::check;
use quire::inject::FailPlan;
use quire::space::Space;
use quire::{Error, Move, Need, Pinned, Stop};
use quire_arch::{Arch, Level};
use quire_machine::Cpu;
use quire_sim::disk::{Disk, word};
use quire_sim::program::touch;
use quire_sim::system::HostedMm;
use quire_units::{Asid, PageSpan, VirtAddr, Vpn};

use super::ops::{LIVES, Stretch};

/// The model of a process: the rights and the content of each mapped page.
#[derive(Clone, Default)]
pub(crate) struct Naive {
    pub(crate) mapped: BTreeMap<u64, bool>,
    pub(crate) stamps: BTreeMap<u64, u64>,
    /// Pages that may not be touched.
    pub(crate) guards: BTreeSet<u64>,
    /// Pages that may read as zero, until they are written.
    pub(crate) lazy: BTreeSet<u64>,
    /// Pages that were written since they are tracked.
    pub(crate) written: BTreeSet<u64>,
}

impl Naive {
    pub(crate) fn map(&mut self, span: PageSpan) {
        self.cut(span);
        self.mapped.extend((span.start.get()..span.end.get()).map(|page| (page, true)));
    }

    pub(crate) fn zero(&mut self, span: PageSpan) {
        self.stamps.retain(|&page, _| !span.contains(Vpn::new(page)));
        self.lazy.retain(|&page| !span.contains(Vpn::new(page)));
        self.written.retain(|&page| !span.contains(Vpn::new(page)));
    }

    pub(crate) fn guard(&mut self, span: PageSpan) {
        self.zero(span);
        self.guards.extend(span.start.get()..span.end.get());
    }

    pub(crate) fn free(&mut self, span: PageSpan) {
        self.lazy.extend(span.start.get()..span.end.get());
        self.written.retain(|&page| !span.contains(Vpn::new(page)));
    }

    /// A page is written with a stamp.
    fn write(&mut self, page: u64, stamp: u64) {
        self.stamps.insert(page, stamp);
        self.lazy.remove(&page);
        self.written.insert(page);
    }

    /// Moves a page's content.
    fn carry(&mut self, from: u64, to: u64) {
        if let Some(stamp) = self.stamps.remove(&from) {
            self.stamps.insert(to, stamp);
        }
        for set in [&mut self.guards, &mut self.lazy] {
            if set.remove(&from) {
                set.insert(to);
            }
        }
    }

    pub(crate) fn cut(&mut self, span: PageSpan) {
        self.zero(span);
        self.guards.retain(|&page| !span.contains(Vpn::new(page)));
        self.mapped.retain(|&page, _| !span.contains(Vpn::new(page)));
    }
}

pub(crate) struct Live<A> {
    pub(crate) space: Space<A>,
    pub(crate) naive: Naive,
}

pub(crate) struct Scene<'s, 'm, 'r, A: Arch> {
    pub(crate) mm: &'s HostedMm<'m, 'r, A>,
    pub(crate) cpu: Cpu<'s, 'r>,
    pub(crate) disk: Disk,
    pub(crate) swap: Option<FileId>,
    pub(crate) lives: Vec<Live<A>>,
    pub(crate) pins: Vec<Pinned>,
    pub(crate) bad: BTreeMap<u64, ()>,
    pub(crate) next_stamp: u64,
    pub(crate) next_asid: u16,
    /// An allocation of this step fails.
    pub(crate) failing: bool,
}

/// The first page of the window: a table's boundary lies in it.
pub(crate) fn base<A: Arch>() -> u64 {
    let table = A::entries(Level::LAST) as u64;
    8 * table - 512
}

impl<A: Arch> Scene<'_, '_, '_, A> {
    pub(crate) fn span(stretch: Stretch) -> PageSpan {
        let start = base::<A>() + stretch.from;
        PageSpan::new(Vpn::new(start), Vpn::new(start + stretch.pages))
    }

    pub(crate) fn addr(page: Vpn, index: usize) -> VirtAddr {
        VirtAddr::new((page.get() << A::PAGE_SHIFT) + 8 * index as u64)
    }

    pub(crate) fn space(&mut self) -> Result<Space<A>, Error> {
        let all = base::<A>();
        self.next_asid += 1;
        let window = PageSpan::new(Vpn::new(all), Vpn::new(all + 4096));
        self.mm.space(Asid(self.next_asid), window)
    }

    pub(crate) fn carry(&self, reads: Reads) -> Result<(), Stop> {
        self.disk.serve(self.mm, reads)
    }

    /// Touches a page as a program does; word 0 if it may.
    pub(crate) fn touch(&self, at: usize, page: Vpn, write: Option<u64>) -> Result<u64, Stop> {
        let space = &self.lives[at].space;
        space.enter(self.cpu.number());
        self.cpu.switch(space.root(), space.asid());
        touch(&self.cpu, Self::addr(page, 0), write, |access| {
            let fault = {
                let _operation = self.cpu.operation("fault");
                self.mm.fault(space, page, access)
            };
            match fault {
                Err(Stop::Need(Need::Read(reads))) => self.carry(reads),
                done => done.map(drop),
            }
        })
    }

    /// Whether an access may have failed with this error: by failing allocations or bad slots.
    pub(crate) fn may_fail(&self, stop: impl Into<Stop>) -> bool {
        match stop.into() {
            Stop::Refuse(Error::NoMemory(_)) => self.failing,
            Stop::Refuse(Error::Failed(id, slot)) => {
                Some(id) == self.swap && self.bad.contains_key(&slot)
            }
            _ => false,
        }
    }

    pub(crate) fn read(&mut self, at: usize, stretch: Stretch, apart: u64) {
        let span = Self::span(stretch);
        for page in (span.start.get()..span.end.get()).step_by(apart as usize) {
            let naive = &self.lives[at].naive;
            let mut expected = naive.stamps.get(&page).copied().unwrap_or(0);
            let (mapped, guarded) =
                (naive.mapped.contains_key(&page), naive.guards.contains(&page));
            match self.touch(at, Vpn::new(page), None) {
                Ok(first) => {
                    assert!(mapped && !guarded, "page {page:#x} is not mapped, or a guard");
                    let naive = &mut self.lives[at].naive;
                    if first == word(0, 0) && naive.lazy.remove(&page) {
                        naive.stamps.remove(&page);
                        expected = 0;
                    }
                    assert_eq!(first, word(expected, 0), "page {page:#x} of {at}");
                    for index in [1, 7, 300, 511] {
                        let is = self.cpu.read(Self::addr(Vpn::new(page), index)).unwrap();
                        assert_eq!(is, word(expected, index), "word {index} of {page:#x}");
                    }
                }
                Err(Stop::Refuse(Error::NoArea(_))) => assert!(!mapped, "page {page:#x} is mapped"),
                Err(Stop::Refuse(Error::Guarded(_))) => {
                    assert!(guarded, "page {page:#x} is no guard")
                }
                Err(error) => assert!(self.may_fail(error), "page {page:#x}: {error:?}"),
            }
        }
    }

    pub(crate) fn write(&mut self, at: usize, stretch: Stretch) {
        let span = Self::span(stretch);
        for page in (span.start.get()..span.end.get()).step_by(1 + stretch.pages as usize / 24) {
            self.next_stamp += 1;
            let stamp = self.next_stamp;
            let may = self.lives[at].naive.mapped.get(&page).copied();
            match self.touch(at, Vpn::new(page), Some(word(stamp, 0))) {
                Ok(_) => {
                    assert_eq!(may, Some(true), "page {page:#x}");
                    assert!(!self.lives[at].naive.guards.contains(&page), "page {page:#x}");
                    for index in [1, 7, 300, 511] {
                        let place = Self::addr(Vpn::new(page), index);
                        self.cpu.write(place, word(stamp, index)).unwrap();
                    }
                    self.lives[at].naive.write(page, stamp);
                }
                Err(Stop::Refuse(Error::NoArea(_))) => assert_eq!(may, None),
                Err(Stop::Refuse(Error::Denied(..))) => assert_eq!(may, Some(false)),
                Err(Stop::Refuse(Error::Guarded(_))) => {
                    assert!(self.lives[at].naive.guards.contains(&page))
                }
                Err(error) => assert!(self.may_fail(error), "page {page:#x}: {error:?}"),
            }
        }
    }

    /// Changes a space, and its model if that succeeded.
    pub(crate) fn change<R, E: Into<Stop>>(
        &mut self,
        at: usize,
        call: impl FnOnce(&Self, &Space<A>) -> Result<R, E>,
        expect: impl FnOnce(&mut Naive),
    ) {
        let done = {
            let _operation = self.cpu.operation("change");
            call(self, &self.lives[at].space)
        };
        self.expect(at, done, expect);
    }

    /// The same for calls that clear dirty bits on purpose.
    pub(crate) fn clean<R, E: Into<Stop>>(
        &mut self,
        at: usize,
        call: impl FnOnce(&Self, &Space<A>) -> Result<R, E>,
        expect: impl FnOnce(&mut Naive),
    ) {
        let done = {
            let _operation = self.cpu.operation("clean").cleans();
            call(self, &self.lives[at].space)
        };
        self.expect(at, done, expect);
    }

    fn expect<R, E: Into<Stop>>(
        &mut self,
        at: usize,
        done: Result<R, E>,
        expect: impl FnOnce(&mut Naive),
    ) {
        match done.map_err(E::into) {
            Ok(_) => expect(&mut self.lives[at].naive),
            Err(Stop::Refuse(Error::NoArea(_) | Error::NoRoom(0))) => {}
            Err(error) => assert!(self.may_fail(error), "{error:?}"),
        }
    }

    pub(crate) fn write_back(&self) {
        let Some(id) = self.swap else { return };
        let spaces: Vec<&Space<A>> = self.lives.iter().map(|live| &live.space).collect();
        self.disk.write_back(self.mm, id, &spaces).unwrap();
    }

    pub(crate) fn swap_off(&mut self) {
        let Some(id) = self.swap else { return };
        self.mm.paging().swap_closing(id, true).unwrap();
        for at in 0..self.lives.len() {
            let mut from = Vpn::new(0);
            while let Some(page) = self.mm.paging().next_swapped(&self.lives[at].space, id, from) {
                let prot = self.lives[at].naive.mapped.get(&page.get());
                assert!(prot.is_some(), "a swap entry where nothing is mapped");
                match self.touch(at, page, None) {
                    Ok(_) => {}
                    Err(error) => assert!(self.may_fail(error), "{error:?}"),
                }
                from = page.add(1);
            }
        }
        match self.mm.paging().swap_off(id) {
            Ok(()) => {
                self.swap = None;
                self.bad.keys().for_each(|&slot| self.disk.set_bad(id.0, slot, false));
                self.bad.clear();
            }
            Err(Error::InUse(_)) => {
                assert!(self.failing || !self.bad.is_empty(), "nothing is in the way");
                self.mm.paging().swap_closing(id, false).unwrap();
            }
            Err(error) => panic!("{error:?}"),
        }
    }

    pub(crate) fn fork(&mut self, at: usize) {
        if self.lives.len() == LIVES {
            return;
        }
        self.next_asid += 1;
        let child = {
            let _operation = self.cpu.operation("fork");
            self.mm.fork(&self.lives[at].space, Asid(self.next_asid))
        };
        match child {
            Ok(space) => {
                let naive = self.lives[at].naive.clone();
                self.lives.push(Live { space, naive });
            }
            Err(error) => assert!(self.may_fail(error), "{error:?}"),
        }
    }

    pub(crate) fn exit(&mut self, at: usize) {
        self.cpu.leave();
        let live = self.lives.remove(at);
        self.mm.destroy(live.space);
    }

    pub(crate) fn move_pages(&mut self, at: usize, stretch: Stretch, to: u64) {
        let (old, to) = (Self::span(stretch), base::<A>() + to);
        let target = PageSpan::new(Vpn::new(to), Vpn::new(to + stretch.pages));
        let naive = &self.lives[at].naive;
        let rights: Vec<_> =
            (old.start.get()..old.end.get()).map(|page| naive.mapped.get(&page).copied()).collect();
        let uniform = rights.iter().all(|right| *right == rights[0] && right.is_some());
        if target.overlaps(old) || !uniform {
            return;
        }
        let write = rights[0] == Some(true);
        let done = {
            let _operation = self.cpu.operation("remap");
            self.mm.remap(&self.lives[at].space, old, stretch.pages, Move::To(target.start))
        };
        let naive = &mut self.lives[at].naive;
        match done {
            Ok(_) => {
                naive.cut(target);
                for (ahead, page) in (old.start.get()..old.end.get()).enumerate() {
                    naive.mapped.insert(to + ahead as u64, write);
                    naive.carry(page, to + ahead as u64);
                }
                naive.cut(old);
            }
            // Locks make areas of their own.
            Err(Error::NoArea(_)) => {}
            Err(error) => {
                assert!(self.may_fail(error), "{error:?}");
                // The target may be unmapped by then; make sure that it is.
                self.mm.bare_phys().set_fail_plan(FailPlan::Never);
                self.mm.unmap(&self.lives[at].space, target).unwrap();
                self.lives[at].naive.cut(target);
            }
        }
    }

    pub(crate) fn check(&self) {
        let spaces: Vec<&Space<A>> = self.lives.iter().map(|live| &live.space).collect();
        check::system(self.mm, &spaces).unwrap();
        self.lives.iter().for_each(|live| self.check_written(live));
    }

    /// The library reports every page that was written while its writes are tracked.
    fn check_written(&self, live: &Live<A>) {
        let all = Self::span(Stretch { from: 0, pages: 2048 });
        let mut told = BTreeSet::new();
        for area in self.mm.spaces().areas(&live.space, all) {
            self.mm.spaces().runs(&live.space, area.span, &mut |seen| {
                if quire::is_written(&area, seen) {
                    told.extend(seen.pages.start.get()..seen.pages.end.get());
                }
            });
        }
        let missed = live.naive.written.difference(&told).next();
        assert_eq!(missed, None, "was written, and is not reported");
    }

    /// Every page has its due content, and all memory comes back.
    pub(crate) fn finish(mut self, free: u64) {
        let bad: Vec<u64> = self.bad.keys().copied().collect();
        if let Some(id) = self.swap {
            bad.iter().for_each(|&slot| self.disk.set_bad(id.0, slot, false));
        }
        self.bad.clear();
        for at in 0..self.lives.len() {
            self.read(at, Stretch { from: 0, pages: 1700 }, 1);
        }
        self.check();
        while !self.lives.is_empty() {
            self.exit(0);
        }
        while let Some(pinned) = self.pins.pop() {
            self.mm.unpin(pinned);
        }
        if let Some(id) = self.swap {
            self.mm.paging().swap_off(id).unwrap();
        }
        check::system::<A, _>(self.mm, &[]).unwrap();
        assert_eq!(self.mm.phys().free_frames(), free, "all frames back");
    }
}
