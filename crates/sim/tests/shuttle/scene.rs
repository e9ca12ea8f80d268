//! Where the models take place: a system of a few hundred frames, a space with two folios' worth
//! of pages in it, a disk, and CPUs that run programs.

use std::sync::Arc;

use quire::cache::{FileId, FilePages, Reads};
use quire::check;
use quire::fault::SizePolicy;
use quire::space::{At, Request, Space};
use quire::{AllSpaces, Error, Mm, Need, Scope, Stop};
use quire_arch::Arch;
use quire_machine::{Config, Cpu, Machine};
use quire_sim::disk::Disk;
use quire_sim::system::{self, Stock};
use quire_units::{Access, Asid, Order, PageSpan, Vpn};
use shuttle::sync::Mutex;
use shuttle::thread;

use crate::turns::Turns;

/// How many CPUs a model has at most.
pub(crate) const CPUS: usize = 3;

/// Pages of a folio, and folios of the area.
pub(crate) const FOLIO: u64 = 4;
pub(crate) const FOLIOS: u64 = 2;

/// Enough for what is kept for paging out, and a little.
const FRAMES: usize = 448;
const SLOTS: u64 = 64;

pub(crate) type Memory<'m, 'r, A> = Mm<'m, A, Turns<'m, 'r>>;

/// All spaces that have not ended. A thread that looks at one holds a reference, and the last
/// reference ends the space.
pub(crate) struct FolioFlags<'t, 'm, 'r, A: Arch> {
    mm: &'t Memory<'m, 'r, A>,
    spaces: Mutex<Vec<Arc<Space<A>>>>,
}

impl<A: Arch> FolioFlags<'_, '_, '_, A> {
    pub(crate) fn add(&self, space: Space<A>) -> Arc<Space<A>> {
        let space = Arc::new(space);
        self.list().push(space.clone());
        space
    }

    /// The space that was added after the first.
    pub(crate) fn second(&self) -> Option<Arc<Space<A>>> {
        self.list().get(1).cloned()
    }

    /// Drops a reference to a space, which may be the last.
    pub(crate) fn put(&self, space: Arc<Space<A>>) {
        self.drop(space);
    }

    /// Takes the space off the list; it ends with the last reference to it.
    pub(crate) fn end(&self, space: Arc<Space<A>>) {
        self.list().retain(|other| !Arc::ptr_eq(other, &space));
        self.drop(space);
    }

    fn drop(&self, space: Arc<Space<A>>) {
        if let Some(last) = Arc::into_inner(space) {
            let _op = self.mm.hardware().machine().operation("destroy");
            self.mm.destroy(last);
        }
    }

    fn list(&self) -> impl std::ops::DerefMut<Target = Vec<Arc<Space<A>>>> + '_ {
        self.spaces.lock().expect("a model that panics is over")
    }
}

impl<A: Arch> AllSpaces<A> for FolioFlags<'_, '_, '_, A> {
    fn visit(&self, see: &mut dyn FnMut(&Space<A>)) {
        let all = self.list().clone();
        for space in all {
            see(&space);
            self.drop(space);
        }
    }
}

/// The state that the threads of a model share.
pub(crate) struct Scene<'t, 'm, 'r, A: Arch> {
    pub(crate) mm: &'t Memory<'m, 'r, A>,
    pub(crate) disk: Disk,
    pub(crate) swap: FileId,
    /// The parent, where there are several.
    pub(crate) space: Arc<Space<A>>,
    pub(crate) known: FolioFlags<'t, 'm, 'r, A>,
}

/// Builds a scene, lets `model` play, and sees to it that nothing is lost and no rule was broken.
pub(crate) fn play<A: Arch>(config: Config, model: impl FnOnce(&Scene<'_, '_, '_, A>)) {
    let mut ram = system::ram(FRAMES << A::PAGE_SHIFT).expect("the host has memory");
    let (machine, run) = Machine::new(config.with_cpus(CPUS), &mut ram).expect("a sound machine");
    let turns = Turns::new(&machine);
    let mut stock = Stock::new(run.count(), CPUS);
    let mm = stock.manage::<A, _>(&turns, run).expect("a sound system");
    mm.policy().set_size(A::block_order(), SizePolicy::Never).expect("blocks have a choice");
    let order = Order::new(FOLIO.ilog2() as u8);
    mm.policy().set_size(order, SizePolicy::Always).expect("there is a choice");
    let free = mm.phys().free_frames();
    let window = PageSpan::new(Vpn::new(16), Vpn::new(A::USER_PAGES));
    let space = mm.space(Asid(1), window).expect("memory for a root");
    let swap = mm.paging().swap_on(SLOTS).expect("memory for slots");
    let known = FolioFlags { mm: &mm, spaces: Mutex::new(Vec::new()) };
    let scene = Scene { mm: &mm, disk: Disk::new(), swap, space: known.add(space), known };
    scene.map_anon();
    model(&scene);
    scene.verify();
    for space in scene.known.list().split_off(0) {
        drop((space.clone(), scene.space.clone()));
        let space = if Arc::ptr_eq(&space, &scene.space) { None } else { Some(space) };
        space.into_iter().for_each(|space| scene.known.drop(space));
    }
    let Scene { space, known, .. } = scene;
    known.drop(space);
    mm.paging().swap_off(swap).expect("no space refers to it");
    check::system::<A, _>(&mm, &[]).unwrap_or_else(|found| panic!("{found}"));
    machine.audit().unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(mm.phys().free_frames(), free, "nothing is lost");
}

impl<'m, 'r, A: Arch> Scene<'_, 'm, 'r, A> {
    /// The area.
    pub(crate) fn span(&self) -> PageSpan {
        PageSpan::new(Vpn::new(64), Vpn::new(64 + FOLIO * FOLIOS))
    }

    pub(crate) fn map_anon(&self) {
        let request = Request::anon(self.span().count()).at(At::Fixed(self.span().start));
        self.mm.map(&self.space, &request).expect("memory for an area");
    }

    /// A page of the area.
    pub(crate) fn page(&self, at: u64) -> Vpn {
        self.span().start.add(at)
    }

    /// Runs `program` as CPU `number`, in the first space.
    pub(crate) fn on<T>(
        &self,
        number: usize,
        program: impl FnOnce(&Runner<'_, 'm, 'r, A>) -> T,
    ) -> T {
        let cpu = self.mm.hardware().run_as(number);
        let runner = Runner { scene: self, cpu };
        runner.enter(&self.space);
        let done = program(&runner);
        runner.cpu.leave();
        done
    }

    pub(crate) fn verify(&self) {
        let all: Vec<_> = self.known.list().clone();
        let all: Vec<&Space<A>> = all.iter().map(|space| &**space).collect();
        let totals = check::system(self.mm, &all).unwrap_or_else(|found| panic!("{found}"));
        assert_eq!(totals.held, 0, "no frame is lost");
        self.mm.hardware().machine().audit().unwrap_or_else(|violation| panic!("{violation}"));
    }
}

/// A program on a CPU.
pub(crate) struct Runner<'t, 'm, 'r, A: Arch> {
    pub(crate) scene: &'t Scene<'t, 'm, 'r, A>,
    cpu: Cpu<'m, 'r>,
}

impl<A: Arch> Runner<'_, '_, '_, A> {
    pub(crate) fn enter(&self, space: &Space<A>) {
        self.scene.mm.hardware().machine();
        space.enter(self.cpu.number());
        self.cpu.switch(space.root(), space.asid());
    }

    /// An operation of the library, which the examiner watches.
    pub(crate) fn operation<T>(&self, name: &'static str, act: impl FnOnce() -> T) -> T {
        let _op = self.cpu.operation(name);
        act()
    }

    /// An operation that clears dirty bits on purpose.
    pub(crate) fn cleaning<T>(&self, name: &'static str, act: impl FnOnce() -> T) -> T {
        let _op = self.cpu.operation(name).cleans();
        act()
    }

    fn fault(&self, space: &Space<A>, page: Vpn, access: Access) -> Result<(), Error> {
        match self.operation("fault", || self.scene.mm.fault(space, page, access)) {
            Ok(_) => {}
            Err(Stop::Need(Need::Read(reads))) => self.carry(reads),
            Err(Stop::Need(_)) => {}
            Err(Stop::Refuse(error)) => return Err(error),
        }
        Ok(())
    }

    fn access<T>(
        &self,
        space: &Space<A>,
        page: Vpn,
        access: Access,
        once: impl Fn() -> Option<T>,
    ) -> Result<T, Error> {
        let mut traps = 0;
        loop {
            self.scene.mm.hardware().machine();
            if let Some(done) = once() {
                return Ok(done);
            }
            if traps > 0 {
                // It may wait for another thread, which must have its turn for that.
                thread::yield_now();
            }
            self.fault(space, page, access)?;
            traps += 1;
        }
    }

    pub(crate) fn carry(&self, mut reads: Reads) {
        let (mm, disk) = (self.scene.mm, &self.scene.disk);
        while let Some(read) = mm.files().next_read(&mut reads).expect("the file is there") {
            let ram = mm.hardware().machine().ram();
            let done = disk.read(ram, A::PAGE_SHIFT, &read);
            mm.files().read_done(read, done);
        }
    }

    /// Writes the first word of a page; the error of a fault that was refused.
    pub(crate) fn try_write(&self, space: &Space<A>, page: Vpn, value: u64) -> Result<(), Error> {
        let store = || self.cpu.write(page.addr(A::PAGE_SHIFT), value).ok();
        self.access(space, page, Access::Write, store)
    }

    pub(crate) fn write(&self, space: &Space<A>, page: Vpn, value: u64) {
        self.try_write(space, page, value).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Reads the first word of a page; the error of a fault that was refused.
    pub(crate) fn try_read(&self, space: &Space<A>, page: Vpn) -> Result<u64, Error> {
        let load = || self.cpu.read(page.addr(A::PAGE_SHIFT)).ok();
        self.access(space, page, Access::Read, load)
    }

    pub(crate) fn read(&self, space: &Space<A>, page: Vpn) -> u64 {
        self.try_read(space, page).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Pages out what it finds of a space in `span`, and writes it.
    pub(crate) fn page_out(&self, space: &Space<A>, span: PageSpan) {
        let known = &self.scene.known;
        self.operation("page out", || {
            self.scene.mm.paging().page_out(space, span, Scope::All, known).expect("sound pages")
        });
        self.write_back(self.scene.swap);
    }

    /// Writes what is dirty of a file.
    pub(crate) fn write_back(&self, file: FileId) {
        let Scene { mm, disk, known, .. } = self.scene;
        let end = mm.files().get(file).expect("it is in use").pages();
        let mut left = FilePages::new(0, end);
        loop {
            let next = {
                let _op = self.cpu.operation("write back").cleans();
                mm.files().next_write(file, &mut left, known)
            };
            let Ok(Some(write)) = next else { break };
            let ram = mm.hardware().machine().ram();
            let done = disk.write(ram, A::PAGE_SHIFT, &write, end);
            mm.files().write_done(write, done);
        }
    }

    /// A child of the first space.
    pub(crate) fn fork(&self, asid: u16) -> Arc<Space<A>> {
        let parent = &self.scene.space;
        let child = self.operation("fork", || self.scene.mm.fork(parent, Asid(asid)));
        self.scene.known.add(child.expect("there is memory"))
    }
}
