//! A whole system in one call: RAM, machine, memory manager.

use quire::cache::File;
use quire::phys::{CpuCache, Slot, Zone};
use quire::stats::Counters;
use quire::swap::Swap;
use quire::{Group, Mm, Parts};
use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_machine::{Config, Machine, MachineError, Ram, RamError};
use quire_units::FrameSpan;

/// A memory manager for page-table format `A` on the hosted machine.
pub type HostedMm<'m, 'r, A> = Mm<'m, A, Machine<'r>>;

/// How many files may have pages in memory at once.
const FILES: usize = 64;

/// As many swap devices may be in use at once.
pub const SWAPS: usize = 3;

/// Why there is no system.
#[derive(Debug)]
pub enum SystemError {
    /// The host has not that much memory.
    Ram(RamError),
    /// There is no such machine.
    Machine(MachineError),
    /// The memory manager cannot be set up.
    Setup(quire::phys::SetupError),
}

impl std::fmt::Display for SystemError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SystemError::Ram(error) => error.fmt(f),
            SystemError::Machine(error) => error.fmt(f),
            SystemError::Setup(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SystemError {}

/// Runs `work` on a new machine of `config` with `ram`, all of it managed.
///
/// # Errors
/// See [`SystemError`].
pub fn with<A: Arch, R>(
    config: Config,
    ram: &mut Ram,
    work: impl FnOnce(&Machine<'_>, &HostedMm<'_, '_, A>) -> R,
) -> Result<R, SystemError> {
    with_machine::<A, R>(config, ram, |machine| machine, work)
}

/// The same; `prepare` may change the machine before it is used.
///
/// # Errors
/// See [`SystemError`].
pub fn with_machine<A: Arch, R>(
    config: Config,
    ram: &mut Ram,
    prepare: impl for<'r> FnOnce(Machine<'r>) -> Machine<'r>,
    work: impl FnOnce(&Machine<'_>, &HostedMm<'_, '_, A>) -> R,
) -> Result<R, SystemError> {
    let (machine, run) = Machine::new(config, ram).map_err(SystemError::Machine)?;
    let machine = prepare(machine);
    let mut stock = Stock::new(run.count(), config.cpus);
    let mm = stock.manage(&machine, run)?;
    Ok(work(&machine, &mm))
}

/// The memory that a memory manager borrows from its embedder.
pub struct Stock {
    slots: Vec<Slot>,
    caches: Vec<CpuCache>,
    counters: Vec<Counters>,
    files: Vec<File>,
    swaps: Vec<Swap>,
    zones: Vec<Zone>,
    groups: [Group; 64],
}

impl Stock {
    /// Enough for `frames` frames and `cpus` CPUs.
    #[must_use]
    pub fn new(frames: u64, cpus: usize) -> Self {
        Self {
            slots: (0..frames).map(|_| Slot::default()).collect(),
            caches: (0..cpus).map(|_| CpuCache::new()).collect(),
            counters: (0..cpus).map(|_| Counters::new()).collect(),
            files: (0..FILES).map(|_| File::new()).collect(),
            // One more is for moves.
            swaps: (0..=SWAPS).map(|_| Swap::new()).collect(),
            zones: Vec::new(),
            groups: [const { Group::new() }; 64],
        }
    }

    /// A memory manager of all of `run`, on any hardware.
    ///
    /// # Errors
    /// [`SystemError::Setup`] when the run has other frames than the stock is for.
    pub fn manage<'m, A: Arch, H: Hardware>(
        &'m mut self,
        hw: &'m H,
        run: FrameRun,
    ) -> Result<Mm<'m, A, H>, SystemError> {
        self.manage_apart(hw, run, 0)
    }

    /// The same with the first `low` frames as a zone of their own, which is scarce.
    ///
    /// # Errors
    /// As for [`manage`](Self::manage).
    pub fn manage_apart<'m, A: Arch, H: Hardware>(
        &'m mut self,
        hw: &'m H,
        run: FrameRun,
        low: u64,
    ) -> Result<Mm<'m, A, H>, SystemError> {
        let all = run.span();
        let zones =
            [FrameSpan::new(all.start, low), FrameSpan::new(all.start.add(low), all.count - low)];
        self.zones = zones.into_iter().filter(|zone| zone.count > 0).map(Zone::new).collect();
        let parts = Parts::new(
            all.start,
            &mut self.slots,
            &mut self.caches,
            &self.counters,
            &mut self.zones,
        )
        .files(&mut self.files)
        .swaps(&mut self.swaps)
        .groups(&mut self.groups);
        let mm = Mm::new(hw, parts).map_err(SystemError::Setup)?;
        if let Err(not_ram) = mm.add(run) {
            unreachable!("the one zone is all of RAM, but {:?} is outside", not_ram.frame);
        }
        Ok(mm)
    }
}

/// `bytes` of the host's memory.
///
/// # Errors
/// [`SystemError::Ram`].
pub fn ram(bytes: usize) -> Result<Ram, SystemError> {
    Ram::new(bytes).map_err(SystemError::Ram)
}
