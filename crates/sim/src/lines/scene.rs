//! A system of many CPUs on one thread: a space that all of them run, and one for each.

use std::cell::RefCell;

use quire::cache::{FileId, FilePages, Pattern, Readahead, Store};
use quire::phys::Kind;
use quire::space::{At, Backing, Request, Space};
use quire::{Mm, Need, Stop};
use quire_arch::{Arch, X86_64};
use quire_machine::{Config, Machine};
use quire_units::{Access, Asid, CpuId, Order, PageSpan, Pfn, Prot, Vpn};

use super::recorder::{Known, install};
use super::watched::Watched;
use crate::system::{self, Stock};

/// The format of the tables; other formats have the same paths.
type A = X86_64;

/// The memory manager.
pub(super) type Memory<'t, 'm, 'r> = Mm<'t, A, Watched<'m, 'r>>;

/// Pages of a stretch: the reach of one table of the last level.
pub(super) const STRETCH: u64 = 512;
/// Pages that an operation on a stretch is about.
pub(super) const PAGES: u64 = 16;
/// Where the areas lie that exist from the beginning, the shared area of the file, and those that
/// operations make.
const TOUCHED: u64 = 1 << 18;
const SHOWN: u64 = 2 << 18;
pub(super) const MADE: u64 = 3 << 18;

/// Frames of RAM for each CPU, and for all.
const FRAMES: [usize; 2] = [6 * 1024, 16 * 1024];
/// Slots of the swap device for each CPU.
const SLOTS: u64 = 4 * STRETCH;

/// The system.
pub(super) struct Scene<'t, 'm, 'r> {
    pub(super) mm: &'t Memory<'t, 'm, 'r>,
    /// Runs on all CPUs.
    pub(super) one: Space<A>,
    /// Each runs on the CPU of its number.
    pub(super) own: Vec<Space<A>>,
    /// A child of each.
    pub(super) children: RefCell<Vec<Option<Space<A>>>>,
    pub(super) file: FileId,
    pub(super) swap: FileId,
    readers: RefCell<Vec<Readahead>>,
}

/// Builds the system, and lets `work` use it.
///
/// # Panics
/// When the host has not enough memory.
pub(super) fn with_scene<R>(cpus: usize, work: impl FnOnce(&Scene<'_, '_, '_>) -> R) -> R {
    let bottom = 0u8;
    let frames = cpus * FRAMES[0] + FRAMES[1];
    let mut ram = system::ram(frames << A::PAGE_SHIFT).expect("the host has memory");
    let config = Config::x86_64().with_cpus(cpus).bare();
    let (machine, run) = Machine::new(config, &mut ram).expect("a sound machine");
    let watched = Watched(&machine);
    let mut stock = Stock::new(run.count(), cpus);
    let mm = stock.manage::<A, _>(&watched, run).expect("a sound system");
    let scene = Scene::new(&mm, cpus).expect("memory for all");
    install(scene.known(), &raw const bottom as usize);
    work(&scene)
}

fn span(from: u64, stretch: usize, pages: u64) -> PageSpan {
    let start = Vpn::new(from + stretch as u64 * STRETCH);
    PageSpan::new(start, start.add(pages))
}

/// The first pages of a CPU's stretch that is mapped from the beginning.
pub(super) fn touched(cpu: usize) -> PageSpan {
    span(TOUCHED, cpu, PAGES)
}

/// The first pages of a CPU's stretch for areas that operations make; no two are neighbours.
pub(super) fn made(cpu: usize) -> PageSpan {
    span(MADE, 2 * cpu, PAGES)
}

/// Page `at` of the file where a space shows it.
pub(super) fn shown(at: u64) -> Vpn {
    Vpn::new(SHOWN + at)
}

impl<'t, 'm, 'r> Scene<'t, 'm, 'r> {
    fn new(mm: &'t Memory<'t, 'm, 'r>, cpus: usize) -> Result<Self, Stop> {
        let window = PageSpan::new(Vpn::new(16), Vpn::new(A::USER_PAGES));
        let pages = cpus as u64 * STRETCH;
        let file = mm.files().open(Store::Memory, pages, Order::ZERO)?;
        let swap = mm.paging().swap_on(cpus as u64 * SLOTS)?;
        let space = |number: usize| {
            let space = mm.space(Asid(number as u16), window)?;
            mm.map(&space, &Request::anon(pages).at(At::Fixed(Vpn::new(TOUCHED))))?;
            let show = Request::anon(pages).prot(Prot::READ).at(At::Fixed(shown(0)));
            mm.map(&space, &Request { backing: Backing::File { id: file, page: 0 }, ..show })?;
            Ok::<_, Stop>(space)
        };
        let one = space(cpus)?;
        let own = (0..cpus).map(space).collect::<Result<Vec<_>, _>>()?;
        for (cpu, space) in own.iter().enumerate() {
            one.enter(CpuId::new(cpu));
            space.enter(CpuId::new(cpu));
        }
        let children = RefCell::new((0..cpus).map(|_| None).collect());
        let readers = RefCell::new(vec![Readahead::default(); cpus]);
        Ok(Scene { mm, one, own, children, file, swap, readers })
    }

    /// All memory that the library may touch.
    fn known(&self) -> Known {
        let mut known = Known::default();
        known.add(self.mm);
        self.own.iter().chain([&self.one]).for_each(|space| known.add(space));
        known.slots(self.mm.bare_phys().meta().slots());
        known
    }

    /// The space of a CPU: its own, or the one that all run.
    pub(super) fn space(&self, cpu: usize, own: bool) -> &Space<A> {
        if own { &self.own[cpu] } else { &self.one }
    }

    /// A fault, with all that it needs.
    pub(super) fn fault(&self, space: &Space<A>, page: Vpn, access: Access) -> Result<(), Stop> {
        loop {
            match self.mm.fault(space, page, access) {
                Err(Stop::Need(Need::Read(mut reads))) => {
                    while let Some(read) = self.mm.files().next_read(&mut reads)? {
                        self.mm.files().read_done(read, Ok(()));
                    }
                }
                done => return done.map(|_| ()),
            }
        }
    }

    /// Writes to all pages.
    pub(super) fn write(&self, space: &Space<A>, mut pages: PageSpan) -> Result<(), Stop> {
        while !pages.is_empty() {
            self.fault(space, pages.start, Access::Write)?;
            pages = PageSpan::new(pages.start.add(1), pages.end);
        }
        Ok(())
    }

    /// Maps the pages of a CPU that operations make.
    pub(super) fn map(&self, space: &Space<A>, pages: PageSpan) -> Result<(), Stop> {
        let request = Request::anon(pages.count()).at(At::Fixed(pages.start));
        self.mm.map(space, &request)?;
        Ok(())
    }

    /// Reads a page of the file as a system call does.
    pub(super) fn read(&self, cpu: usize, page: u64) -> Result<(), Stop> {
        let reader = &mut self.readers.borrow_mut()[cpu];
        let pages = FilePages::new(page, page + 1);
        let (held, _) = self.mm.files().read(self.file, pages, reader, Pattern::Normal)?;
        self.mm.files().release(held);
        Ok(())
    }

    /// Writes the pages that left to the swap device.
    pub(super) fn write_back(&self, space: &Space<A>) -> Result<(), Stop> {
        let end = self.mm.files().get(self.swap).map_or(0, |file| file.pages());
        let mut left = FilePages::new(0, end);
        let none: &[&Space<A>] = &[space];
        while let Some(write) = self.mm.files().next_write(self.swap, &mut left, none)? {
            self.mm.files().write_done(write, Ok(()));
        }
        Ok(())
    }

    /// The use of a frame by its slot.
    pub(super) fn use_of(&self, frame: Pfn) -> &'static str {
        match self.mm.bare_phys().meta().slot(frame).map(|slot| slot.state().kind()) {
            Some(Kind::Folio) => "folio",
            Some(Kind::Table) => "table",
            Some(Kind::Node) => "area node",
            Some(Kind::Index) => "index node",
            Some(Kind::Swap) => "cluster",
            _ => "free frame",
        }
    }
}
