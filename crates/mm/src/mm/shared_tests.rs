//! Shared memory leaves and returns.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use quire_arch::{Arch, Arm4k, Arm64k, Sv39, X86_64};
use quire_machine::{Config, Cpu, Machine, Ram};
use quire_units::{Access, Asid, Order, PageSpan, Pfn, Vpn};

use crate::cache::{FILE_PAGES_MAX, File, FileId, FilePages, Pattern, Readahead, Reads, Store};
use crate::check;
use crate::fault::SizePolicy;
use crate::phys::fail::FailPlan;
use crate::phys::{CpuCache, Slot, Zone};
use crate::space::{AreaFlags, At, Backing, Request, Space};
use crate::stats::{Counters, Event};
use crate::swap::Swap;
use crate::{Error, Group, Mm, Need, PagedOut, Parts, ReadFailed, Scope, Stop, Write, WriteFailed};

type Hosted<'m, 'r, A> = Mm<'m, A, Machine<'r>>;

pub(super) const START: Vpn = Vpn::new(1 << 18);
pub(super) const PAGES: u64 = 96;
const FOLIO: u64 = 16;
pub(super) const ALL: PageSpan = PageSpan::new(START, Vpn::new((1 << 18) + PAGES));

/// A system with a file in memory that spaces share, and a swap device.
pub(super) struct Scene<'a, 'm, 'r, A: Arch> {
    machine: &'a Machine<'r>,
    pub(super) mm: &'a Hosted<'m, 'r, A>,
    cpu: Cpu<'a, 'r>,
    pub(super) file: FileId,
    swap: FileId,
    /// The first word of each slot.
    disk: RefCell<BTreeMap<u64, u64>>,
    /// Slots that cannot be read or written.
    pub(super) bad: RefCell<BTreeSet<u64>>,
    /// Writes that the disk has not answered.
    pending: RefCell<Vec<Write>>,
    /// The reads so far.
    reads: RefCell<Vec<FilePages>>,
}

/// Runs `test` with folios of 16 pages, and a device of `slots` slots.
pub(super) fn with<A: Arch>(config: Config, slots: u64, test: impl FnOnce(&Scene<'_, '_, '_, A>)) {
    let mut ram = Ram::new(2048 << A::PAGE_SHIFT).expect("the host has memory");
    let (machine, run) = Machine::new(config, &mut ram).expect("a valid preset");
    let mut all: Vec<Slot> = (0..run.count()).map(|_| Slot::default()).collect();
    let (mut caches, counters, mut zones) =
        ([CpuCache::new()], [Counters::new()], [Zone::new(run.span())]);
    let (mut files, mut swaps) = ([File::new(), File::new()], [Swap::new()]);
    let mut groups = [Group::new()];
    let parts = Parts::new(run.start(), &mut all, &mut caches, &counters, &mut zones);
    let mm =
        Mm::<A, _>::new(&machine, parts.files(&mut files).swaps(&mut swaps).groups(&mut groups))
            .expect("sound");
    mm.add(run).expect("the zone is RAM");
    mm.policy().set_size(Order::new(4), SizePolicy::Always).expect("a size");
    let free = mm.allocator().free_frames();
    let file = mm.files().open(Store::Memory, PAGES, Order::ZERO).expect("a free file");
    let swap = mm.paging().swap_on(slots).expect("memory");
    let scene = Scene {
        machine: &machine,
        mm: &mm,
        cpu: machine.cpu(0),
        file,
        swap,
        disk: RefCell::default(),
        bad: RefCell::default(),
        pending: RefCell::default(),
        reads: RefCell::default(),
    };
    test(&scene);
    scene.cpu.leave();
    scene.answer();
    mm.files().close(file).expect("it is open");
    mm.paging().swap_off(swap).expect("no slot is in use");
    assert_eq!(machine.verdict(), Ok(()));
    assert_eq!(check::system(&mm, &[]).map(|totals| totals.held), Ok(0));
    assert_eq!(mm.allocator().free_frames(), free, "{}: nothing is lost", A::NAME);
}

impl<'m, 'r, A: Arch> Scene<'_, 'm, 'r, A> {
    /// A space that shares the file, or has a private view of it.
    fn space(&self, asid: u16, flags: AreaFlags) -> Space<A> {
        let window = PageSpan::new(START, START.add(1 << 12));
        let space = self.mm.space(Asid(asid), window).expect("memory");
        let backing = Backing::File { id: self.file, page: 0 };
        let request = Request { backing, flags, ..Request::anon(PAGES).at(At::Fixed(START)) };
        self.mm.map(&space, &request).expect("free");
        space
    }

    pub(super) fn shared(&self, asid: u16) -> Space<A> {
        self.space(asid, AreaFlags::SHARED)
    }

    /// Brings what a call lacks.
    pub(super) fn serve(&self, need: Need) -> Result<(), Stop> {
        match need {
            Need::Read(reads) => self.read(reads)?,
            Need::Wait(id) => {
                assert_eq!(id, self.swap);
                self.answer();
            }
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    fn read(&self, mut reads: Reads) -> Result<(), Stop> {
        assert_eq!(reads.file(), self.swap);
        while let Some(read) = self.mm.files().next_read(&mut reads)? {
            let pages = read.pages();
            self.reads.borrow_mut().push(pages);
            let good = !(pages.start..pages.end).any(|slot| self.bad.borrow().contains(&slot));
            for slot in pages.start..pages.end {
                let word = self.disk.borrow().get(&slot).copied().unwrap_or(0xdead);
                self.poke(read.frames().start().add(slot - pages.start), word);
            }
            self.mm.files().read_done(read, if good { Ok(()) } else { Err(ReadFailed) });
        }
        Ok(())
    }

    fn poke(&self, frame: Pfn, word: u64) {
        self.machine.ram().write_word(frame.addr(A::PAGE_SHIFT), word);
    }

    fn peek(&self, frame: Pfn) -> u64 {
        self.machine.ram().read_word(frame.addr(A::PAGE_SHIFT)).expect("it is RAM")
    }

    /// Begins to write up to `most` folios.
    pub(super) fn begin_writing(&self, most: usize) {
        let mut left = FilePages::new(0, FILE_PAGES_MAX);
        for _ in 0..most {
            let none: &[&Space<A>] = &[];
            match self.mm.files().next_write(self.swap, &mut left, none) {
                Ok(Some(write)) => self.pending.borrow_mut().push(write),
                Ok(None) => return,
                Err(Stop::Need(Need::Wait(_))) => self.answer(),
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    /// The disk answers all writes.
    pub(super) fn answer(&self) {
        for write in self.pending.take() {
            let (slots, frames) = (write.pages(), write.frames());
            let good = !(slots.start..slots.end).any(|slot| self.bad.borrow().contains(&slot));
            for slot in slots.start..slots.end {
                let word = self.peek(frames.start.add(slot - slots.start));
                self.disk.borrow_mut().insert(slot, if good { word } else { 0xbad });
            }
            self.mm.files().write_done(write, if good { Ok(()) } else { Err(WriteFailed) });
        }
    }

    fn write_all(&self) {
        self.begin_writing(usize::MAX);
        self.answer();
    }

    pub(super) fn try_access(
        &self,
        space: &Space<A>,
        page: u64,
        store: Option<u64>,
    ) -> Result<u64, Stop> {
        self.cpu.bind();
        space.enter(self.cpu.number());
        self.cpu.switch(space.root(), space.asid());
        let access = if store.is_some() { Access::Write } else { Access::Read };
        let addr = START.add(page).addr(A::PAGE_SHIFT);
        for _ in 0..24 {
            let done = match store {
                Some(word) => self.cpu.write(addr, word).map(|()| word),
                None => self.cpu.read(addr),
            };
            match done.map_err(|_| self.mm.fault(space, START.add(page), access)) {
                Ok(word) => return Ok(word),
                Err(Ok(_)) => {}
                Err(Err(Stop::Need(need))) => self.serve(need)?,
                Err(Err(stop)) => return Err(stop),
            }
        }
        panic!("{access:?} of page {page} traps for ever");
    }

    pub(super) fn access(&self, space: &Space<A>, page: u64, store: Option<u64>) -> u64 {
        self.try_access(space, page, store).unwrap_or_else(|why| panic!("page {page}: {why:?}"))
    }

    fn fill(&self, space: &Space<A>, word: u64) {
        for page in 0..PAGES {
            self.access(space, page, Some(word + page));
        }
    }

    fn holds(&self, space: &Space<A>, word: u64) {
        for page in 0..PAGES {
            assert_eq!(self.access(space, page, None), word + page, "{} page {page}", A::NAME);
        }
    }

    /// Reads a page through the file, and writes it if there is a word.
    pub(super) fn through_file(&self, page: u64, store: Option<u64>) -> Result<u64, Stop> {
        for _ in 0..24 {
            let (mut reader, wanted) = (Readahead::default(), FilePages::new(page, page + 1));
            match self.mm.files().read(self.file, wanted, &mut reader, Pattern::Normal) {
                Ok((held, _)) => {
                    let frame = held.frames().start;
                    if let Some(word) = store {
                        self.poke(frame, word);
                        self.mm.files().mark_dirty(self.file, page).expect("it is in memory");
                    }
                    let word = self.peek(frame);
                    self.mm.files().release(held);
                    return Ok(word);
                }
                Err(Stop::Need(need)) => self.serve(need)?,
                Err(stop) => return Err(stop),
            }
        }
        panic!("page {page} never comes");
    }

    /// Brings all back from the device.
    pub(super) fn empty_device(&self, spaces: &[&Space<A>]) -> Result<(), Stop> {
        while let Some(page) = self.mm.paging().next_away(self.file, self.swap, 0) {
            match self.mm.paging().bring_back(self.file, page) {
                Err(Stop::Need(need)) => self.serve(need)?,
                done => done?,
            }
        }
        for space in spaces {
            while let Some(page) = self.mm.paging().next_swapped(space, self.swap, Vpn::new(0)) {
                match self.mm.paging().swap_in_page(space, page) {
                    Err(Stop::Need(need)) => self.serve(need)?,
                    done => done?,
                }
            }
        }
        Ok(())
    }

    pub(super) fn page_out(
        &self,
        space: &Space<A>,
        whose: Scope,
        spaces: &[&Space<A>],
    ) -> PagedOut {
        self.mm.paging().page_out(space, ALL, whose, spaces).expect("sound pages")
    }

    /// How many pages of the file are in memory, how many are away, and how many slots are used.
    pub(super) fn sizes(&self) -> (u64, u64, u64) {
        let file = self.mm.files().get(self.file).expect("it is open");
        let away = self.mm.paging().away(self.file, FilePages::new(0, FILE_PAGES_MAX));
        (file.cached(), away, self.mm.base().swaps[0].used())
    }

    pub(super) fn check(&self, spaces: &[&Space<A>]) {
        check::system(self.mm, spaces).unwrap_or_else(|why| panic!("{}: {why:?}", A::NAME));
        assert_eq!(self.machine.verdict(), Ok(()));
    }

    pub(super) fn end(&self, spaces: impl IntoIterator<Item = Space<A>>) {
        self.cpu.leave();
        spaces.into_iter().for_each(|space| self.mm.destroy(space));
    }
}

/// Folios leave whole, whatever spaces map them, by one flush for each space; one read brings each
/// back, and one fault maps it.
fn leaves_and_returns<A: Arch>(config: Config) {
    with::<A>(config, 512, |scene| {
        let (mm, one) = (scene.mm, scene.shared(1));
        scene.fill(&one, 100);
        let (two, child) = (scene.shared(2), mm.fork(&one, Asid(3)).expect("memory"));
        scene.holds(&two, 100);
        scene.holds(&child, 100);
        let all = [&one, &two, &child];
        assert_eq!(scene.page_out(&one, Scope::Own, &all).pages, 0, "other spaces map them");
        let before = mm.totals();
        let out = scene.page_out(&one, Scope::All, &all);
        assert_eq!((out.pages, out.folios, out.stay), (PAGES, PAGES / FOLIO, 0), "{}", A::NAME);
        assert_eq!(scene.sizes(), (0, PAGES, PAGES));
        let event = |event| mm.totals().event(event) - before.event(event);
        assert_eq!((event(Event::PagesSwapped), event(Event::Flush)), (PAGES, 3), "{}", A::NAME);
        scene.check(&all);
        scene.write_all();
        let frames = mm.allocator().free_frames();
        scene.check(&all);
        assert_eq!(scene.access(&child, 21, None), 121);
        let around = FilePages::block(scene.reads.borrow()[0].start, Order::new(4));
        assert_eq!(*scene.reads.borrow(), [around], "{}: one read for the folio", A::NAME);
        assert_eq!(scene.sizes(), (FOLIO, PAGES - FOLIO, PAGES - FOLIO));
        assert!(mm.allocator().free_frames() + FOLIO + 4 >= frames);
        let faults = mm.totals().event(Event::Fault);
        (16..32).for_each(|page| assert_eq!(scene.access(&child, page, None), 100 + page));
        assert_eq!(mm.totals().event(Event::Fault), faults, "{}: mapped as a whole", A::NAME);
        assert_eq!(event(Event::PagesSwappedIn), FOLIO);
        all.iter().for_each(|space| scene.holds(space, 100));
        assert_eq!(scene.sizes(), (PAGES, 0, 0));
        scene.access(&two, 5, Some(7));
        assert_eq!(scene.access(&child, 5, None), 7, "it is one memory");
        scene.check(&all);
        scene.end([one, two, child]);
    });
}

#[test]
fn d9_shared_folios_leave_whole_and_come_back_by_one_read_and_one_fault() {
    leaves_and_returns::<X86_64>(Config::x86_64());
    leaves_and_returns::<Arm4k>(Config::arm64_4k());
    leaves_and_returns::<Arm64k>(Config::arm64_64k());
    leaves_and_returns::<Sv39>(Config::riscv64_sv39());
}

#[test]
fn d9_reclaim_takes_shared_memory_that_no_space_maps() {
    with::<X86_64>(Config::x86_64(), 512, |scene| {
        let one = scene.shared(1);
        scene.fill(&one, 1);
        scene.end([one]);
        let none: &[&Space<X86_64>] = &[];
        let done = scene.mm.reclaim().reclaim(40, none);
        assert!((40..64).contains(&done.paged_out), "{done:?}");
        assert_eq!(scene.sizes(), (PAGES - done.paged_out, done.paged_out, done.paged_out));
        scene.write_all();
        (0..PAGES).for_each(|page| assert_eq!(scene.through_file(page, None), Ok(1 + page)));
        scene.check(none);
    });
}

#[test]
fn d6_a_group_pages_out_the_shared_memory_that_it_maps() {
    with::<X86_64>(Config::x86_64(), 512, |scene| {
        let (mm, one, other) = (scene.mm, scene.shared(1), scene.shared(2));
        let group = mm.groups().create(None).expect("there is room");
        mm.groups().set_limit(group, PAGES).expect("it is a group");
        mm.groups().join(&one, Some(group)).expect("it is a group");
        let spaces = [&one, &other];
        assert!(mm.reclaim().relieve(group, &spaces[..]).is_ok_and(|done| done.room == PAGES));
        scene.fill(&one, 1);
        assert_eq!(mm.reclaim().usage(group, &spaces[..]), PAGES);
        let relieved = mm.reclaim().relieve(group, &spaces[..]).expect("some may leave");
        assert!(relieved.paged_out >= PAGES / 16, "{relieved:?}");
        assert_eq!(scene.sizes().1, relieved.paged_out);
        scene.write_all();
        scene.holds(&other, 1);
        scene.check(&spaces);
        scene.end([one, other]);
    });
}

#[test]
fn d9_held_pinned_and_locked_pages_stay() {
    with::<X86_64>(Config::x86_64(), 512, |scene| {
        let (mm, one, two) = (scene.mm, scene.shared(1), scene.shared(2));
        scene.fill(&one, 1);
        scene.holds(&two, 1);
        let wanted = FilePages::new(3, 4);
        let held = mm.files().read(scene.file, wanted, &mut Readahead::default(), Pattern::Normal);
        let (held, _) = held.expect("it is in memory");
        let pinned = mm.pin(&one, START.add(20), Access::Write).expect("memory");
        let locked = PageSpan::new(START.add(40), START.add(41));
        mm.mlock(&two, locked).expect("it is in memory");
        let out = scene.page_out(&one, Scope::All, &[&one, &two]);
        assert_eq!((out.pages, scene.sizes().0), (PAGES - 3 * FOLIO, 3 * FOLIO));
        assert!(mm.spaces().resident(&two) >= FOLIO, "the locked ones are still mapped");
        mm.files().release(held);
        mm.unpin(pinned);
        mm.spaces().munlock(&two, locked).expect("it is locked");
        assert_eq!(scene.page_out(&one, Scope::All, &[&one, &two]).pages, 3 * FOLIO);
        scene.write_all();
        scene.holds(&one, 1);
        scene.check(&[&one, &two]);
        scene.end([one, two]);
    });
}

#[cfg(feature = "watch")]
#[test]
fn d9_protected_pages_leave_and_are_protected_when_they_are_back() {
    use crate::Shield;
    use crate::space::{Watch, WatchFor, Watcher};
    with::<X86_64>(Config::x86_64(), 512, |scene| {
        let (mm, one, two) = (scene.mm, scene.shared(1), scene.shared(2));
        scene.fill(&one, 1);
        scene.holds(&two, 1);
        let watch = Watcher::new(7).map(|watcher| Watch { watcher, events: WatchFor::WRITE });
        mm.spaces().watch(&one, ALL, watch).expect("it is mapped");
        let part = PageSpan::new(START.add(5), START.add(70));
        mm.spaces().write_protect(&one, part, Shield::All).expect("it is watched");
        let out = scene.page_out(&one, Scope::All, &[&one, &two]);
        assert_eq!((out.pages, mm.spaces().resident(&one)), (PAGES, 0));
        let protected = || {
            let mut pages = 0;
            mm.spaces().runs(&one, ALL, &mut |seen| {
                pages += if crate::is_protected(seen) { seen.pages.count() } else { 0 };
            });
            pages
        };
        assert_eq!(protected(), part.count());
        scene.write_all();
        scene.holds(&one, 1);
        assert_eq!(protected(), part.count());
        scene.access(&two, 30, Some(77));
        scene.access(&one, 80, Some(78));
        assert_eq!(scene.access(&one, 30, None), 77, "it is one memory");
        let refused = mm.fault(&one, START.add(30), Access::Write);
        assert!(matches!(refused, Err(Stop::Need(Need::Watcher(_)))), "{refused:?}");
        scene.check(&[&one, &two]);
        scene.end([one, two]);
    });
}

#[test]
fn d9_a_folio_without_a_run_of_slots_leaves_in_parts() {
    with::<X86_64>(Config::x86_64(), PAGES + FOLIO - 1, |scene| {
        let (mm, one) = (scene.mm, scene.shared(1));
        scene.fill(&one, 1);
        // Every fourth slot is in use.
        let slots = &mm.base().device_of(scene.swap).expect("it is on").slots;
        let taken: Vec<u64> =
            (0..PAGES + FOLIO).map_while(|_| slots.take(Order::ZERO, 0)).collect();
        for &slot in taken.iter().filter(|slot| **slot % 4 != 0) {
            slots.uncache(FilePages::new(slot, slot + 1));
        }
        let out = scene.page_out(&one, Scope::Own, &[&one]);
        assert!(out.pages > PAGES / 2 && scene.sizes().1 == out.pages, "{out:?}");
        scene.write_all();
        for &slot in taken.iter().filter(|slot| **slot % 4 == 0) {
            slots.uncache(FilePages::new(slot, slot + 1));
        }
        scene.holds(&one, 1);
        scene.check(&[&one]);
        scene.end([one]);
    });
}

#[test]
fn d9_a_page_that_is_being_written_comes_back_when_that_is_done() {
    with::<X86_64>(Config::x86_64(), 512, |scene| {
        let (mm, one) = (scene.mm, scene.shared(1));
        scene.fill(&one, 1);
        scene.page_out(&one, Scope::Own, &[&one]);
        scene.begin_writing(1);
        let stop = mm.fault(&one, START, Access::Read).expect_err("its slots are being written");
        assert_eq!(stop, Stop::Need(Need::Wait(scene.swap)));
        // Others are in memory, and need no read.
        assert_eq!(scene.access(&one, 20, None), 21);
        scene.answer();
        scene.holds(&one, 1);
        assert_eq!(scene.reads.borrow().len(), 1, "only what was written is gone from memory");
        assert_eq!(scene.sizes(), (PAGES, 0, 0));
        scene.check(&[&one]);
        scene.end([one]);
    });
}

#[test]
fn d9_of_pages_that_are_away_any_part_may_go() {
    for written in [false, true] {
        with::<X86_64>(Config::x86_64(), 512, |scene| {
            let (mm, one) = (scene.mm, scene.shared(1));
            scene.fill(&one, 1);
            scene.page_out(&one, Scope::Own, &[&one]);
            if written {
                scene.write_all();
            }
            // Parts of two folios, and all of one between them.
            mm.files().punch(scene.file, FilePages::new(5, 37), &[&one][..]).expect("memory");
            mm.files().truncate(scene.file, 90, &[&one][..]).expect("memory");
            scene.check(&[&one]);
            assert_eq!(scene.sizes().1, PAGES - 32 - 6);
            mm.files().truncate(scene.file, PAGES, &[&one][..]).expect("memory");
            for page in 0..PAGES {
                let gone = (5..37).contains(&page) || page >= 90;
                let word = if gone { 0 } else { 1 + page };
                assert_eq!(scene.access(&one, page, None), word, "{written} page {page}");
            }
            assert_eq!((scene.sizes().1, scene.sizes().2), (0, 0));
            scene.check(&[&one]);
            scene.end([one]);
        });
    }
}

#[test]
fn d9_pages_that_cannot_be_read_fail_once_for_each_try_and_stay_away() {
    with::<X86_64>(Config::x86_64(), 512, |scene| {
        let one = scene.shared(1);
        scene.fill(&one, 1);
        scene.page_out(&one, Scope::Own, &[&one]);
        scene.write_all();
        scene.bad.borrow_mut().extend(0..512);
        for _ in 0..2 {
            let failed = scene.try_access(&one, 20, None);
            assert!(matches!(failed, Err(Stop::Refuse(Error::Failed(..)))), "{failed:?}");
            scene.check(&[&one]);
        }
        scene.bad.borrow_mut().clear();
        scene.holds(&one, 1);
        scene.check(&[&one]);
        scene.end([one]);
    });
}

#[test]
fn d9_each_allocation_on_the_way_out_and_back_may_fail() {
    for plan in (1..10).flat_map(|nth| [FailPlan::Nth(nth), FailPlan::From(nth)]) {
        with::<Arm4k>(Config::arm64_4k(), 512, |scene| {
            let (mm, one) = (scene.mm, scene.shared(1));
            scene.fill(&one, 50);
            mm.allocator().set_fail_plan(plan);
            scene.page_out(&one, Scope::Own, &[&one]);
            mm.allocator().set_fail_plan(FailPlan::Never);
            scene.check(&[&one]);
            scene.page_out(&one, Scope::Own, &[&one]);
            scene.write_all();
            mm.allocator().set_fail_plan(plan);
            let punched = mm.files().punch(scene.file, FilePages::new(5, 7), &[&one][..]);
            for page in (0..PAGES).step_by(7) {
                let read = scene.try_access(&one, page, None);
                assert!(
                    matches!(read, Ok(_) | Err(Stop::Refuse(Error::NoMemory(_)))),
                    "{plan:?}: {read:?}"
                );
            }
            mm.allocator().set_fail_plan(FailPlan::Never);
            scene.check(&[&one]);
            for page in (0..PAGES).filter(|page| !(5..7).contains(page)) {
                assert_eq!(scene.access(&one, page, None), 50 + page, "{plan:?}");
            }
            let hole = if punched.is_ok() { 0 } else { 55 };
            assert_eq!(scene.access(&one, 5, None), hole);
            scene.check(&[&one]);
            scene.end([one]);
        });
    }
}
