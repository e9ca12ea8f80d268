//! Files in memory beside a naive model: areas that show them, reads and writes, ends that move,
//! disks that fail. Every page is read through the MMU, word for word.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use quire::cache::{FileId, FilePages, Pattern, Readahead, Reads, Store};
use quire::space::{AreaFlags, At, Backing, Request, Space};
use quire::{Error, Need, Stop, check};
use quire_arch::{Arch, Arm4k, Arm16k, Sv39, X86_64};
use quire_machine::{Config, Cpu, Machine};
use quire_sim::disk::{Disk, word};
use quire_sim::program::touch;
use quire_sim::system::{self, HostedMm};
use quire_units::{Asid, Order, PageSpan, PhysAddr, Prot, VirtAddr, Vpn};

mod reshape;

/// How many files, spaces, and places for areas in each space there are.
const FILES: usize = 3;
const SPACES: usize = 2;
const SLOTS: usize = 4;
/// How many pages a file has at most, and an area.
const PAGES: u64 = 1500;
const AREA: u64 = 90;

#[derive(Clone, Debug)]
enum Op {
    /// Shows a file from a page on, at an offset in a slot.
    Map {
        space: usize,
        slot: usize,
        file: usize,
        from: u64,
        skew: u64,
        shared: bool,
        exec: bool,
    },
    Unmap {
        space: usize,
        slot: usize,
        from: u64,
        pages: u64,
    },
    Discard {
        space: usize,
        slot: usize,
        from: u64,
        pages: u64,
    },
    Protect {
        space: usize,
        slot: usize,
        write: bool,
    },
    Read {
        space: usize,
        slot: usize,
        page: u64,
    },
    Write {
        space: usize,
        slot: usize,
        page: u64,
    },
    /// As `read(2)` does.
    Look {
        file: usize,
        page: u64,
        pages: u64,
    },
    Truncate {
        file: usize,
        pages: u64,
    },
    Drop {
        file: usize,
        from: u64,
        pages: u64,
    },
    Sync {
        file: usize,
    },
    Bad {
        file: usize,
        page: u64,
        bad: bool,
    },
    Populate {
        space: usize,
        slot: usize,
    },
    Collapse {
        space: usize,
        slot: usize,
        from: u64,
        pages: u64,
    },
    Punch {
        file: usize,
        from: u64,
        pages: u64,
    },
}

/// A page of an area: a few are touched again and again.
fn page() -> impl Strategy<Value = u64> {
    prop_oneof![2 => 28..40_u64, 1 => 0..AREA]
}

/// A page of a file: about its beginning, or where one node of the index ends and the next begins.
fn place_in_file() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 0..60_u64, 2 => 470..540_u64, 1 => 0..PAGES]
}

fn op() -> impl Strategy<Value = Op> {
    let (file, space, slot) = (0..FILES, 0..SPACES, 0..SLOTS);
    prop_oneof![
        3 => (space.clone(), slot.clone(), file.clone(), place_in_file(), 0..40_u64, 0..4_u8)
            .prop_map(|(space, slot, file, from, skew, how)| {
                let (shared, exec) = (how & 1 != 0, how & 2 != 0);
                Op::Map { space, slot, file, from, skew, shared, exec }
            }),
        1 => (space.clone(), slot.clone(), page(), 1..AREA)
            .prop_map(|(space, slot, from, pages)| Op::Unmap { space, slot, from, pages }),
        1 => (space.clone(), slot.clone(), page(), 1..AREA)
            .prop_map(|(space, slot, from, pages)| Op::Discard { space, slot, from, pages }),
        1 => (space.clone(), slot.clone(), any::<bool>())
            .prop_map(|(space, slot, write)| Op::Protect { space, slot, write }),
        12 => (space.clone(), slot.clone(), page())
            .prop_map(|(space, slot, page)| Op::Read { space, slot, page }),
        8 => (space.clone(), slot.clone(), page())
            .prop_map(|(space, slot, page)| Op::Write { space, slot, page }),
        3 => (file.clone(), place_in_file(), 1..8_u64)
            .prop_map(|(file, page, pages)| Op::Look { file, page, pages }),
        2 => (file.clone(), place_in_file()).prop_map(|(file, pages)| Op::Truncate { file, pages }),
        2 => (file.clone(), place_in_file(), 1..PAGES)
            .prop_map(|(file, from, pages)| Op::Drop { file, from, pages }),
        4 => file.clone().prop_map(|file| Op::Sync { file }),
        1 => (file.clone(), place_in_file(), any::<bool>())
            .prop_map(|(file, page, bad)| Op::Bad { file, page, bad }),
        1 => (space.clone(), slot.clone())
            .prop_map(|(space, slot)| Op::Populate { space, slot }),
        3 => (space, slot, 0..AREA, 1..AREA)
            .prop_map(|(space, slot, from, pages)| Op::Collapse { space, slot, from, pages }),
        2 => (file, place_in_file(), 1..80_u64)
            .prop_map(|(file, from, pages)| Op::Punch { file, from, pages }),
    ]
}

/// One area of the model: which file's pages it shows, and what was written privately.
#[derive(Clone, Debug)]
struct Shown {
    span: PageSpan,
    file: usize,
    from: u64,
    shared: bool,
    write: bool,
    own: BTreeMap<u64, u64>,
    mapped: Vec<PageSpan>,
}

/// The content of a file, and whether its disk has it.
struct NaiveFile {
    id: FileId,
    store: Store,
    stamps: Vec<u64>,
}

struct Scene<'s, 'm, 'r, A: Arch> {
    machine: &'s Machine<'r>,
    mm: &'s HostedMm<'m, 'r, A>,
    cpu: Cpu<'s, 'r>,
    disk: Disk,
    files: Vec<NaiveFile>,
    spaces: Vec<Space<A>>,
    areas: Vec<Vec<Option<Shown>>>,
    bad: BTreeMap<(usize, u64), ()>,
    next_stamp: u64,
}

/// Where a slot begins: two tables of the last level each, and an area may lie across them.
fn place<A: Arch>(slot: usize) -> Vpn {
    let table = A::entries(quire_arch::Level::LAST) as u64;
    Vpn::new((4 + 2 * slot as u64) * table - 64)
}

impl<A: Arch> Scene<'_, '_, '_, A> {
    fn addr(page: Vpn, index: usize) -> VirtAddr {
        VirtAddr::new((page.get() << A::PAGE_SHIFT) + 8 * index as u64)
    }

    fn carry(&self, mut reads: Reads) -> Result<(), Stop> {
        while let Some(read) = self.mm.files().next_read(&mut reads)? {
            let pages = read.pages();
            assert!(pages.start.is_multiple_of(pages.count()), "folios are aligned");
            let done = self.disk.read(self.machine.ram(), A::PAGE_SHIFT, &read);
            self.mm.files().read_done(read, done);
        }
        Ok(())
    }

    /// Touches a page as a program does; word 0 if it may.
    fn touch(&self, space: usize, page: Vpn, write: Option<u64>) -> Result<u64, Stop> {
        let space = &self.spaces[space];
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

    fn shown(&self, space: usize, slot: usize, page: u64) -> Option<(&Shown, Vpn)> {
        let shown = self.areas[space][slot].as_ref()?;
        let at = Vpn::new(place::<A>(slot).get() + page);
        Some((shown, at)).filter(|_| shown.mapped.iter().any(|span| span.contains(at)))
    }

    /// The content of a page in the model: a stamp, or the reason of a refusal.
    fn expected(&self, shown: &Shown, at: Vpn) -> Result<u64, Wrong> {
        let page = shown.from + at.offset_from(shown.span.start);
        let file = &self.files[shown.file];
        if let Some(&own) = shown.own.get(&page) {
            return Ok(own);
        }
        match file.stamps.get(page as usize) {
            Some(&stamp) => Ok(stamp),
            None => Err(Wrong::Missing),
        }
    }

    fn read(&self, space: usize, slot: usize, page: u64) {
        let Some((shown, at)) = self.shown(space, slot, page) else { return };
        let expected = self.expected(shown, at);
        let got = self.touch(space, at, None);
        self.judge(shown, at, expected.map(|stamp| word(stamp, 0)), got);
        if let Ok(stamp) = expected
            && got.is_ok()
        {
            for index in [1, 7, 300] {
                let is = self.cpu.read(Self::addr(at, index)).unwrap();
                assert_eq!(is, word(stamp, index), "word {index} of {at}, {shown:?}");
            }
        }
    }

    /// Bad pages may fail, and nothing else may.
    fn judge(&self, shown: &Shown, at: Vpn, expected: Result<u64, Wrong>, got: Result<u64, Stop>) {
        let page = shown.from + at.offset_from(shown.span.start);
        match (expected, got) {
            (Err(Wrong::Missing), Err(Stop::Refuse(Error::Missing(missing)))) => {
                assert_eq!(missing, at)
            }
            (Ok(_), Err(Stop::Refuse(Error::Failed(id, failed)))) => {
                assert_eq!((id, failed), (self.files[shown.file].id, page));
                assert!(self.bad.contains_key(&(shown.file, page)), "page {page} is readable");
            }
            (Ok(expected), Ok(got)) => assert_eq!(got, expected, "{at}, page {page}: {shown:?}"),
            (expected, got) => panic!("{at}, page {page}: {expected:?}, got {got:?}"),
        }
    }

    fn write(&mut self, space: usize, slot: usize, page: u64) {
        self.next_stamp += 1;
        let stamp = self.next_stamp;
        let Some((shown, at)) = self.shown(space, slot, page) else { return };
        let before = self.expected(shown, at);
        if !shown.write {
            let got = self.touch(space, at, Some(0));
            assert!(matches!(got, Err(Stop::Refuse(Error::Denied(..)))), "{got:?}");
            return;
        }
        let got = self.touch(space, at, Some(word(stamp, 0)));
        let expected = before.map(|_| word(stamp, 0));
        self.judge(shown, at, expected, got);
        if got.is_err() {
            return;
        }
        for index in [1, 7, 300, 511] {
            self.cpu.write(Self::addr(at, index), word(stamp, index)).unwrap();
        }
        let shown = self.areas[space][slot].as_mut().unwrap();
        let number = shown.from + at.offset_from(shown.span.start);
        if shown.shared {
            self.files[shown.file].stamps[number as usize] = stamp;
        } else {
            shown.own.insert(number, stamp);
        }
    }

    fn map(&mut self, op: &Op) {
        let &Op::Map { space, slot, file, from, skew, shared, exec } = op else { return };
        let start = Vpn::new(place::<A>(slot).get() + skew);
        let span = PageSpan::new(start, start.add(AREA - skew));
        let store = self.files[file].store;
        let write = !(exec || shared && store == Store::ReadOnly);
        let prot = if exec {
            Prot::RX
        } else if write {
            Prot::RW
        } else {
            Prot::READ
        };
        let mut request = Request {
            backing: Backing::File { id: self.files[file].id, page: from },
            prot,
            ..Request::anon(span.count()).at(At::Fixed(start))
        };
        request.flags.set(AreaFlags::SHARED, shared);
        if shared && store == Store::ReadOnly {
            request.max_prot = Prot::RX;
        }
        self.unmap(space, slot, 0, AREA);
        let _operation = self.cpu.operation("map");
        self.mm.map(&self.spaces[space], &request).unwrap();
        let own = BTreeMap::new();
        let shown = Shown { span, file, from, shared, write, own, mapped: vec![span] };
        self.areas[space][slot] = Some(shown);
    }

    fn part(slot: usize, from: u64, pages: u64) -> PageSpan {
        let start = Vpn::new(place::<A>(slot).get() + from);
        PageSpan::new(start, start.add(pages.min(AREA - from)))
    }

    fn unmap(&mut self, space: usize, slot: usize, from: u64, pages: u64) {
        let part = Self::part(slot, from, pages);
        if part.is_empty() {
            return;
        }
        {
            let _operation = self.cpu.operation("unmap");
            self.mm.unmap(&self.spaces[space], part).unwrap();
        }
        let Some(shown) = self.areas[space][slot].as_mut() else { return };
        let left = |span: &PageSpan| {
            [
                PageSpan::new(span.start, part.start.clamp(span.start, span.end)),
                PageSpan::new(part.end.clamp(span.start, span.end), span.end),
            ]
        };
        let mapped = shown.mapped.iter().flat_map(left).filter(|span| !span.is_empty());
        shown.mapped = mapped.collect();
        self.forget(space, slot, part);
    }

    fn forget(&mut self, space: usize, slot: usize, part: PageSpan) {
        let Some(shown) = self.areas[space][slot].as_mut() else { return };
        let (start, from) = (shown.span.start, shown.from);
        shown.own.retain(|page, _| !part.contains(start.add(page - from)));
    }

    fn discard(&mut self, space: usize, slot: usize, from: u64, pages: u64) {
        let part = Self::part(slot, from, pages);
        if !part.is_empty() {
            let _operation = self.cpu.operation("discard");
            self.mm.discard(&self.spaces[space], part).unwrap();
        }
        self.forget(space, slot, part);
    }

    fn protect(&mut self, space: usize, slot: usize, write: bool) {
        let Some(shown) = self.areas[space][slot].as_mut() else { return };
        if shown.shared && self.files[shown.file].store == Store::ReadOnly {
            return;
        }
        shown.write = write;
        let prot = if write { Prot::RW } else { Prot::READ };
        let _operation = self.cpu.operation("protect");
        for span in &shown.mapped {
            self.mm.protect(&self.spaces[space], *span, prot).unwrap();
        }
    }

    fn look(&self, file: usize, page: u64, pages: u64) {
        let (id, mut reader) = (self.files[file].id, Readahead::default());
        let wanted = FilePages::new(page, page + pages);
        let held = loop {
            match self.mm.files().read(id, wanted, &mut reader, Pattern::Normal) {
                Ok((held, ahead)) => {
                    ahead.into_iter().for_each(|ahead| self.carry(ahead).unwrap());
                    break held;
                }
                Err(Stop::Need(Need::Read(reads))) => self.carry(reads).unwrap(),
                Err(Stop::Refuse(Error::Invalid)) => {
                    return assert!(page as usize >= self.files[file].stamps.len());
                }
                Err(Stop::Refuse(Error::Failed(_, failed))) => {
                    return assert!(self.bad.contains_key(&(file, failed)) && failed == page);
                }
                Err(error) => panic!("{error}"),
            }
        };
        let frames = held.frames();
        for at in 0..frames.count {
            let base = frames.start.add(at).addr(A::PAGE_SHIFT).get();
            let stamp = self.files[file].stamps[(page + at) as usize];
            for index in [0, 1, 300] {
                let address = PhysAddr::new(base + 8 * index as u64);
                let is = self.machine.ram().read_word(address);
                assert_eq!(is, Some(word(stamp, index)), "page {}", page + at);
            }
        }
        self.mm.files().release(held);
    }

    fn truncate(&mut self, file: usize, pages: u64) {
        let naive = &mut self.files[file];
        for page in pages..naive.stamps.len() as u64 {
            self.disk.put(naive.id.0, page, 0);
        }
        naive.stamps.resize(pages as usize, 0);
        {
            let _operation = self.cpu.operation("truncate");
            let spaces: Vec<_> = self.spaces.iter().collect();
            self.mm.files().truncate(naive.id, pages, &spaces[..]).unwrap();
        }
        let beyond = FilePages::new(pages, 2 * PAGES);
        assert_eq!(self.mm.files().next_cached(naive.id, beyond), Ok(None), "its memory is free");
        for shown in self.areas.iter_mut().flatten().flatten().filter(|shown| shown.file == file) {
            shown.own.retain(|page, _| *page < pages);
        }
    }

    fn sync(&mut self, file: usize) {
        let naive = &self.files[file];
        let spaces: Vec<_> = self.spaces.iter().collect();
        let mut left = FilePages::new(0, PAGES);
        let mut failed = false;
        loop {
            let write = {
                let _operation = self.cpu.operation("sync").cleans();
                self.mm.files().next_write(naive.id, &mut left, &spaces[..]).unwrap()
            };
            let Some(write) = write else { break };
            let end = naive.stamps.len() as u64;
            let done = self.disk.write(self.machine.ram(), A::PAGE_SHIFT, &write, end);
            failed |= done.is_err();
            self.mm.files().write_done(write, done);
        }
        for (page, &stamp) in naive.stamps.iter().enumerate().filter(|_| !failed) {
            if naive.store == Store::ReadWrite {
                assert_eq!(
                    self.disk.stamp(naive.id.0, page as u64),
                    stamp,
                    "page {page} is written"
                );
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Map { .. } => self.map(op),
            Op::Unmap { space, slot, from, pages } => self.unmap(space, slot, from, pages),
            Op::Discard { space, slot, from, pages } => self.discard(space, slot, from, pages),
            Op::Protect { space, slot, write } => self.protect(space, slot, write),
            Op::Read { space, slot, page } => self.read(space, slot, page),
            Op::Write { space, slot, page } => self.write(space, slot, page),
            Op::Look { file, page, pages } => self.look(file, page, pages),
            Op::Truncate { file, pages } => self.truncate(file, pages),
            Op::Drop { file, from, pages } => {
                self.mm
                    .files()
                    .drop_clean(self.files[file].id, FilePages::new(from, from + pages))
                    .unwrap();
            }
            Op::Sync { file } => self.sync(file),
            Op::Bad { file, page, bad } => {
                if self.files[file].store == Store::Memory {
                    return;
                }
                self.disk.set_bad(self.files[file].id.0, page, bad);
                if bad {
                    self.bad.insert((file, page), ());
                }
            }
            Op::Populate { space, slot } => self.populate(space, slot),
            Op::Collapse { space, slot, from, pages } => self.collapse(space, slot, from, pages),
            Op::Punch { file, from, pages } => self.punch(file, from, pages),
        }
    }

    fn populate(&self, space: usize, slot: usize) {
        let Some(shown) = &self.areas[space][slot] else { return };
        for span in &shown.mapped {
            loop {
                let _operation = self.cpu.operation("populate");
                match self.mm.populate(&self.spaces[space], *span) {
                    Ok(_)
                    | Err(Stop::Refuse(Error::Missing(_)) | Stop::Refuse(Error::Failed(..))) => {
                        break;
                    }
                    Err(Stop::Need(Need::Read(reads))) => self.carry(reads).unwrap(),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    fn check(&self) {
        self.machine.verdict().unwrap_or_else(|violation| panic!("{violation}"));
        self.machine.audit().unwrap_or_else(|violation| panic!("{violation}"));
        let spaces: Vec<_> = self.spaces.iter().collect();
        let totals = check::system(self.mm, &spaces).unwrap_or_else(|wrong| panic!("{wrong}"));
        assert_eq!(totals.held, 0, "nothing is lost");
    }
}

#[derive(Clone, Copy, Debug)]
enum Wrong {
    Missing,
}

fn run<A: Arch>(config: Config, ops: &[Op]) {
    let mut ram = system::ram(4096 << A::PAGE_SHIFT).unwrap();
    system::with::<A, _>(config, &mut ram, |machine, mm| {
        let before = mm.phys().free_frames();
        let window = PageSpan::new(Vpn::new(16), Vpn::new(A::USER_PAGES / 2));
        let space = |number: usize| mm.space(Asid(1 + number as u16), window).unwrap();
        let stores = [Store::ReadWrite, Store::ReadOnly, Store::Memory];
        let cpu = machine.cpu(0);
        cpu.bind();
        let disk = Disk::new();
        let file = |number: usize| {
            let pages = [PAGES, 600, 70][number];
            let id = mm.files().open(stores[number], pages, Order::ZERO).unwrap();
            let memory = stores[number] == Store::Memory;
            let stamp = |page| if memory { 0 } else { 1000 * number as u64 + page + 1 };
            (0..pages).for_each(|page| disk.put(id.0, page, stamp(page)));
            NaiveFile { id, store: stores[number], stamps: (0..pages).map(stamp).collect() }
        };
        let files = (0..FILES).map(file).collect();
        let spaces: Vec<_> = (0..SPACES).map(space).collect();
        spaces.iter().for_each(|space| space.enter(cpu.number()));
        let areas = vec![vec![None; SLOTS]; SPACES];
        let bad = BTreeMap::new();
        let next_stamp = 1 << 20;
        let mut scene = Scene { machine, mm, cpu, disk, files, spaces, areas, bad, next_stamp };
        for op in ops {
            scene.apply(op);
            scene.machine.verdict().unwrap_or_else(|violation| panic!("{op:?}: {violation}"));
        }
        for (space, slot) in (0..SPACES).flat_map(|space| (0..SLOTS).map(move |slot| (space, slot)))
        {
            (0..AREA).step_by(3).for_each(|page| scene.read(space, slot, page));
        }
        scene.check();
        scene.cpu.leave();
        let Scene { spaces, files, .. } = scene;
        spaces.into_iter().for_each(|space| mm.destroy(space));
        files.iter().for_each(|file| mm.files().close(file.id).unwrap());
        mm.phys().check().expect("every frame has one state");
        assert_eq!(mm.phys().free_frames(), before, "nothing is lost");
    })
    .unwrap();
}

fn random<A: Arch>(config: Config, cases: u32) {
    let mut runner = TestRunner::new(Cases { cases, ..Cases::default() });
    let ops = proptest::collection::vec(op(), 1..250);
    runner
        .run(&ops, |ops| {
            run::<A>(config, &ops);
            Ok(())
        })
        .unwrap();
}

#[test]
fn b1_x86_64_agrees_with_the_naive_model() {
    random::<X86_64>(Config::x86_64(), 150);
}

#[test]
fn b1_arm64_4k_agrees_with_the_naive_model() {
    random::<Arm4k>(Config::arm64_4k(), 150);
}

#[test]
fn b1_arm64_16k_agrees_with_the_naive_model() {
    random::<Arm16k>(Config::arm64_16k(), 100);
}

#[test]
fn b1_riscv64_agrees_with_the_naive_model() {
    let bare = Config { sets_accessed: false, sets_dirty: false, ..Config::riscv64_sv39() };
    random::<Sv39>(bare, 100);
}
