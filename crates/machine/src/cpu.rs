//! CPUs: each runs programs on the host thread that holds its handle.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use quire_units::{Access, Asid, CpuId, Pfn, PhysAddr, VirtAddr};

use crate::config::Config;
use crate::counters::{Counters, add};
use crate::lock;
use crate::machine::{Machine, Operation};
use crate::mmu::Flaw;
use crate::tlb::{Absences, Tlb, WalkCache};

thread_local! {
    /// The CPU that the thread runs as. A plain cell with a constant start, so that a reading costs
    /// one load.
    static CURRENT: Cell<u16> = const { Cell::new(0) };
}

/// The number of the CPU that the calling thread runs as; 0 for threads that run as none.
#[inline]
pub(crate) fn current() -> usize {
    CURRENT.get() as usize
}

/// Makes the calling thread run as CPU `number` from now on.
pub(crate) fn bind(number: CpuId) {
    CURRENT.set(number.index() as u16);
}

/// The private state of a CPU: registers, TLB, walk cache.
pub(crate) struct Core {
    pub(crate) root: Option<Pfn>,
    pub(crate) asid: Asid,
    pub(crate) tlb: Tlb,
    pub(crate) walks: WalkCache,
    /// Entries that it found not valid.
    pub(crate) absences: Absences,
    /// The root last installed with each tag: the tag's translations should agree with it.
    pub(crate) spaces: HashMap<u16, Pfn>,
    /// A space was installed, and nothing accessed since; whether its tag had another root before.
    pub(crate) installed: Option<bool>,
}

/// A CPU's core and counters, away from those of others.
#[repr(align(128))]
pub(crate) struct Bank {
    pub(crate) core: Mutex<Core>,
    pub(crate) counters: Counters,
    taken: AtomicBool,
}

impl Bank {
    pub(crate) fn new(config: &Config) -> Self {
        let core = Core {
            root: None,
            asid: Asid::default(),
            tlb: Tlb::new(config.tlb),
            walks: WalkCache::new(config.tlb.walks),
            absences: Absences::default(),
            spaces: HashMap::new(),
            installed: None,
        };
        Self {
            core: Mutex::new(core),
            counters: Counters::default(),
            taken: AtomicBool::new(false),
        }
    }
}

/// One CPU. The thread that makes the handle runs as this CPU until the handle is dropped, or until
/// it makes or [binds](Self::bind) another, as a test that plays several CPUs by turns does.
///
/// ```compile_fail
/// fn elsewhere(cpu: quire_machine::Cpu<'_, '_>) {
///     std::thread::scope(|scope| scope.spawn(move || drop(cpu)).join().unwrap());
/// }
/// ```
pub struct Cpu<'m, 'r> {
    machine: &'m Machine<'r>,
    number: CpuId,
    before: u16,
    here: PhantomData<*const ()>,
}

impl<'m, 'r> Cpu<'m, 'r> {
    pub(crate) fn new(machine: &'m Machine<'r>, number: usize) -> Self {
        let bank = &machine.banks[number];
        let taken = bank.taken.swap(true, Ordering::Acquire);
        assert!(!taken, "CPU {number} already has a handle");
        let cpu =
            Self { machine, number: CpuId::new(number), before: CURRENT.get(), here: PhantomData };
        cpu.bind();
        cpu
    }

    /// Which CPU.
    pub fn number(&self) -> CpuId {
        self.number
    }

    /// Makes this the CPU that the thread runs as.
    pub fn bind(&self) {
        bind(self.number);
    }

    /// Binds, and announces an operation of the library; see [`Machine::operation`].
    pub fn operation(&self, name: &'static str) -> Operation<'m, 'r> {
        self.bind();
        self.machine.operation(name)
    }

    /// Installs an address space: the table in `root`, with translations tagged `asid`, of which
    /// the CPU may ignore upper bits. Nothing is flushed, except on x86-64 without tags; a tag that
    /// had another root must be flushed before the first access.
    pub fn switch(&self, root: Pfn, asid: Asid) {
        let mut core = lock(&self.machine.bank(self.number).core);
        // When another CPU changes an entry and then reads the set of CPUs that run the space,
        // either it sees this CPU there, by the caller's earlier write, or this CPU's walks see the
        // change.
        fence(Ordering::SeqCst);
        let config = &self.machine.config;
        let asid = config.tag(asid);
        core.root = Some(root);
        core.asid = asid;
        let before = core.spaces.insert(asid.0, root);
        core.installed = Some(before.is_some_and(|before| before != root));
        if config.drops_at_switch() {
            self.drop_all(&mut core);
        }
        if let Some(mut ledger) = self.machine.ledger() {
            ledger.install(&self.machine.ram, self.number, Some((root, asid)));
        }
    }

    /// Drops all translations that this CPU has cached, of all tags.
    pub fn flush_all(&self) {
        let mut core = lock(&self.machine.bank(self.number).core);
        self.drop_all(&mut core);
    }

    fn drop_all(&self, core: &mut Core) {
        core.tlb.drop_if(|_| true);
        core.walks.drop_if(|_| true);
        if let Some(mut ledger) = self.machine.ledger() {
            ledger.flushed_all(self.number);
        }
    }

    /// Runs no address space any more: every access traps. Nothing is flushed.
    pub fn leave(&self) {
        let mut core = lock(&self.machine.bank(self.number).core);
        core.root = None;
        if let Some(mut ledger) = self.machine.ledger() {
            ledger.install(&self.machine.ram, self.number, None);
        }
    }

    /// A load of the 64-bit word at `addr`, by a program.
    ///
    /// # Errors
    /// The trap that the CPU takes instead.
    ///
    /// # Panics
    /// When `addr` is not a multiple of 8.
    pub fn read(&self, addr: VirtAddr) -> Result<u64, Trap> {
        self.access(addr, Access::Read, |machine, at| machine.memory_at(at).read_word(at))
    }

    /// A store of `value` to the 64-bit word at `addr`, by a program.
    ///
    /// # Errors
    /// The trap that the CPU takes instead; nothing is stored then.
    ///
    /// # Panics
    /// When `addr` is not a multiple of 8.
    pub fn write(&self, addr: VirtAddr, value: u64) -> Result<(), Trap> {
        self.access(addr, Access::Write, |machine, at| machine.memory_at(at).write_word(at, value))
    }

    /// An instruction fetch of the 64-bit word at `addr`.
    ///
    /// # Errors
    /// The trap that the CPU takes instead.
    ///
    /// # Panics
    /// When `addr` is not a multiple of 8.
    pub fn fetch(&self, addr: VirtAddr) -> Result<u64, Trap> {
        self.access(addr, Access::Execute, |machine, at| machine.memory_at(at).read_word(at))
    }

    fn access<T>(
        &self,
        addr: VirtAddr,
        access: Access,
        act: impl FnOnce(&Machine<'r>, PhysAddr) -> Option<T>,
    ) -> Result<T, Trap> {
        assert!(addr.is_aligned(8), "{addr} is not the address of a word");
        let bank = self.machine.bank(self.number);
        let mut core = lock(&bank.core);
        let outside = TrapKind::Malformed(Flaw::OutsideRam);
        let result = self
            .machine
            .translate(self.number, &mut core, addr, access)
            .inspect(|at| self.machine.fetched(self.number, *at, access))
            .and_then(|at| act(self.machine, at).ok_or(outside));
        result.map_err(|kind| {
            add(&bank.counters.traps, 1);
            Trap { addr, access, kind }
        })
    }
}

impl Drop for Cpu<'_, '_> {
    fn drop(&mut self) {
        if current() == self.number.index() {
            CURRENT.set(self.before);
        }
        self.machine.bank(self.number).taken.store(false, Ordering::Release);
    }
}

impl fmt::Debug for Cpu<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPU {}", self.number.index())
    }
}

/// An access that the CPU did not carry out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trap {
    /// The address that the program accessed.
    pub addr: VirtAddr,
    /// The kind of access.
    pub access: Access,
    /// The reason for the trap.
    pub kind: TrapKind,
}

/// Why an access trapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrapKind {
    /// No translation; also for addresses that the tables do not cover, for which x86-64 has a
    /// separate trap.
    NotPresent,
    /// The translation does not grant the access, or, where the CPU does not set the dirty flag,
    /// the page is clean.
    Permission,
    /// The page is old, and the CPU does not set the accessed flag.
    AccessFlag,
    /// The entry is malformed.
    Malformed(Flaw),
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.access {
            Access::Read => "load",
            Access::Write => "store",
            Access::Execute => "fetch",
        };
        write!(f, "{what} at {}: ", self.addr)?;
        match self.kind {
            TrapKind::NotPresent => f.write_str("not present"),
            TrapKind::Permission => f.write_str("not permitted"),
            TrapKind::AccessFlag => f.write_str("accessed flag clear"),
            TrapKind::Malformed(flaw) => flaw.fmt(f),
        }
    }
}

impl std::error::Error for Trap {}
