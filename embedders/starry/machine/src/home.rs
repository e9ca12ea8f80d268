//! Address spaces, each in a place of its own, and the list of all of them.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use quire::arch::Arch;
use quire::hw::{Memory, Reuse};
use quire::space::{Request, Space};
use quire::units::{Access, Asid, CpuId, Order, PageSpan, Prot, Vpn};
use quire::{AllSpaces, Error, Move, Resolved, Stop};
use spin::mutex::SpinMutex;

use crate::board::{Format, System, mm};
use crate::zram;

/// An address space, which ends with its last owner.
///
/// All calls, and the last drop, are made with preemption off.
pub struct Home {
    /// There from the end of [`new`](Self::new) or [`fork`](Self::fork) on.
    space: Option<Space<Format>>,
    system: &'static System,
    number: u64,
}

impl Home {
    /// A space without areas; those without an address come to lie in `window`.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn new(window: PageSpan) -> Result<Arc<Self>, Error> {
        Self::make(|system, place| system.space_in(place, root(system)?, Asid(0), window).map(drop))
    }

    /// A copy of this one, all of whose memory is shared until it is written.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub fn fork(&self) -> Result<Arc<Self>, Error> {
        Self::make(|system, place| {
            system.fork_in(place, self.space(), root(system)?, Asid(0)).map(drop)
        })
    }

    fn make(
        begin: impl FnOnce(&System, &mut Option<Space<Format>>) -> Result<(), Error>,
    ) -> Result<Arc<Self>, Error> {
        bury();
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let system = mm().ok_or(Error::NoMemory(Order::ZERO))?;
        // Relaxed: it only has to differ, and a child's is higher than its parent's in any order.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut home = Arc::new(Self { space: None, system, number });
        Arc::get_mut(&mut home).map_or(Err(Error::Invalid), |own| begin(system, &mut own.space))?;
        SPACES.lock().insert(number, Arc::downgrade(&home));
        Ok(home)
    }

    /// The library's space.
    #[inline]
    pub fn space(&self) -> &Space<Format> {
        self.space.as_ref().expect("it was made before any other code saw it")
    }

    /// Whether programs may have this page at all.
    #[inline]
    pub fn covers(&self, page: Vpn) -> bool {
        page.get() < Format::USER_PAGES
    }

    /// The memory manager that has it.
    #[inline]
    pub fn system(&self) -> &'static System {
        self.system
    }

    /// Gives the space its tag for ever. No CPU has been in it. From now on flushes reach all CPUs:
    /// a CPU that leaves the space keeps its translations.
    pub fn give_tag(&self, tag: u16, cpus: usize) {
        self.space().set_asid(Asid(tag));
        (0..cpus).for_each(|cpu| self.space().enter(CpuId::new(cpu)));
    }
}

/// The calls that programs make often. They are compiled here, as one unit, so that the compiler
/// sees the library and the board together; see the library for what they do.
impl Home {
    /// # Errors
    /// [`quire::Mm::fault`].
    pub fn fault(&self, page: Vpn, access: Access) -> Result<Resolved, Stop> {
        zram::ease();
        self.system.fault(self.space(), page, access)
    }

    /// # Errors
    /// [`quire::Mm::map`].
    pub fn map(&self, request: &Request) -> Result<PageSpan, Error> {
        self.system.map(self.space(), request)
    }

    /// # Errors
    /// [`quire::Mm::unmap`].
    pub fn unmap(&self, span: PageSpan) -> Result<(), Error> {
        self.system.unmap(self.space(), span)
    }

    /// # Errors
    /// [`quire::Mm::protect`].
    pub fn protect(&self, span: PageSpan, prot: Prot) -> Result<(), Error> {
        self.system.protect(self.space(), span, prot)
    }

    /// # Errors
    /// [`quire::Mm::remap`].
    pub fn remap(&self, old: PageSpan, pages: u64, how: Move) -> Result<PageSpan, Error> {
        self.system.remap(self.space(), old, pages, how)
    }

    /// # Errors
    /// [`quire::Mm::discard`].
    pub fn discard(&self, span: PageSpan) -> Result<(), Error> {
        self.system.discard(self.space(), span)
    }

    /// Pages of areas within `span`.
    pub fn pages_in(&self, span: PageSpan) -> u64 {
        let areas = self.system.spaces().areas(self.space(), span);
        areas.map(|area| area.span.intersect(span).count()).sum()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        SPACES.lock().remove(&self.number);
        self.system.destroy_in(&mut self.space);
    }
}

/// A root table: zeroes, since the kernel's half is under a register of its own.
fn root(system: &System) -> Result<quire::hw::FrameRun, Error> {
    let run = system.phys().alloc(Order::ZERO).ok_or(Error::NoMemory(Order::ZERO))?;
    system.hardware().clear(&run, 0..1, Reuse::Soon);
    Ok(run.dirtied())
}

/// All spaces, in the order in which they were made.
static SPACES: SpinMutex<BTreeMap<u64, Weak<Home>>> = SpinMutex::new(BTreeMap::new());

/// Spaces whose last owner went while they were visited: they cannot end then, as the visitor may
/// hold any lock of the library.
static ENDED: SpinMutex<Vec<Home>> = SpinMutex::new(Vec::new());

/// Ends them. The caller holds no lock of the library.
pub(crate) fn bury() {
    let ended = core::mem::take(&mut *ENDED.lock());
    drop(ended);
}

/// All spaces, each once, and a child that is being made after its parent.
pub struct Everyone;

impl AllSpaces<Format> for Everyone {
    fn visit(&self, see: &mut dyn FnMut(&Space<Format>)) {
        let mut next = 0;
        loop {
            let found = {
                let spaces = SPACES.lock();
                spaces.range(next..).find_map(|(&number, home)| Some((number, home.upgrade()?)))
            };
            let Some((number, home)) = found else { return };
            next = number + 1;
            see(home.space());
            ENDED.lock().extend(Arc::into_inner(home));
        }
    }
}
