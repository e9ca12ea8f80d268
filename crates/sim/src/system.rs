//! A whole system in one call: RAM, machine, memory manager.

use quire::cache::File;
use quire::engine::{Mm, Parts};
use quire::phys::{CpuCache, Slot};
use quire::stats::Counters;
use quire::swap::Swap;
use quire_arch::Arch;
use quire_machine::{Config, Machine, MachineError, Ram, RamError};
use quire_units::FrameSpan;

/// A memory manager for page-table format `A` on the hosted machine.
pub type HostedMm<'m, 'r, A> = Mm<'m, A, Machine<'r>>;

/// How many files may have pages in memory at once.
const FILES: usize = 64;

/// As many swap devices may be in use at once.
const SWAPS: usize = 2;

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
    let all = run.span();
    let mut slots: Vec<Slot> = (0..all.count).map(|_| Slot::default()).collect();
    let mut caches: Vec<CpuCache> = (0..config.cpus).map(|_| CpuCache::new()).collect();
    let counters: Vec<Counters> = (0..config.cpus).map(|_| Counters::new()).collect();
    let files: Vec<File> = (0..FILES).map(|_| File::new()).collect();
    let swaps: Vec<Swap> = (0..SWAPS).map(|_| Swap::new()).collect();
    let zones = [FrameSpan::new(all.start, all.count)];
    let parts = Parts {
        first: all.start,
        slots: &mut slots,
        caches: &mut caches,
        counters: &counters,
        zones: &zones,
        files: &files,
        swaps: &swaps,
    };
    let mm = Mm::new(&machine, parts).map_err(SystemError::Setup)?;
    if let Err(not_ram) = mm.add(run) {
        unreachable!("the one zone is all of RAM, but {:?} is outside", not_ram.frame);
    }
    Ok(work(&machine, &mm))
}

/// `bytes` of the host's memory.
///
/// # Errors
/// [`SystemError::Ram`].
pub fn ram(bytes: usize) -> Result<Ram, SystemError> {
    Ram::new(bytes).map_err(SystemError::Ram)
}
