//! The machine itself: RAM, CPUs and examiner put together.

use std::fmt;
use std::sync::{Mutex, MutexGuard};

use quire_hw::{Chosen, DirectMap, ForeignFrames, FrameRun, Hardware, SetupError};
use quire_units::{CpuId, FrameSpan, MemoryType, Pfn, PhysAddr};

use crate::clock::Clock;
use crate::config::{Config, ConfigError, Examine};
use crate::counters::Counts;
use crate::cpu::{Bank, Cpu, bind};
use crate::examiner::{Ledger, Violation, audit};
use crate::faults::Faults;
use crate::lock;
use crate::mmu::Geometry;
use crate::races::Races;
use crate::ram::Ram;

/// A machine that runs in `'r` on borrowed RAM. It implements [`Hardware`].
pub struct Machine<'r> {
    pub(crate) config: Config,
    pub(crate) geometry: Geometry,
    pub(crate) ram: DirectMap<'r>,
    devices: Option<(DirectMap<'r>, ForeignFrames)>,
    pub(crate) banks: Box<[Bank]>,
    pub(crate) faults: Faults,
    pub(crate) races: Races,
    pub(crate) clock: Clock,
    pub(crate) clears: Chosen,
    /// The examiner or the counters must see every call; this is the one branch that each call
    /// pays.
    pub(crate) watched: bool,
    ledger: Option<Mutex<Ledger>>,
}

impl<'r> Machine<'r> {
    /// A machine with all of `ram`, and the right to all its frames. Its contents count as zero if
    /// no other code has had access to it.
    ///
    /// # Errors
    /// * [`MachineError::Config`] when there is no machine of that configuration.
    /// * [`MachineError::Ram`] when the RAM is not a whole number of its pages.
    pub fn new(config: Config, ram: &'r mut Ram) -> Result<(Self, FrameRun), MachineError> {
        config.validate().map_err(MachineError::Config)?;
        let geometry = config.isa.geometry();
        let first = PhysAddr::new(config.ram_start_bytes).pfn(geometry.page_shift);
        let (ram, frames, devices) =
            ram.map(first, geometry.page_shift, config.devices()).map_err(MachineError::Ram)?;
        let devices =
            devices.map(|(words, run)| (words, ForeignFrames::keep(run, MemoryType::Device)));
        let watches = config.examine != Examine::Off;
        let machine = Self {
            config,
            geometry,
            ram,
            devices,
            banks: (0..config.cpus).map(|_| Bank::new(&config)).collect(),
            faults: Faults::default(),
            races: Races::default(),
            clock: Clock::new(config.time),
            clears: Chosen::default_with_vectors(),
            watched: watches || config.counts,
            ledger: watches.then(|| Mutex::new(Ledger::new(&config))),
        };
        Ok((machine, frames))
    }

    /// Uses these clear and copy backends instead of those chosen by the host CPU's features.
    #[must_use]
    pub fn with_clears(self, clears: Chosen) -> Self {
        Self { clears, ..self }
    }

    /// CPU `number`, for the calling thread to run as.
    ///
    /// # Panics
    /// When there is no such CPU, or another handle for it exists.
    pub fn cpu(&self, number: usize) -> Cpu<'_, 'r> {
        Cpu::new(self, number)
    }

    /// Makes the calling host thread run as CPU `number`, without a handle: for hardware in front
    /// of this machine that plays several CPUs by turns on one host thread.
    pub fn bind(&self, number: CpuId) {
        bind(number);
    }

    /// The configuration that it was built with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The geometry of its tables.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The frames that are RAM.
    pub fn frames(&self) -> FrameSpan {
        self.ram.span()
    }

    /// RAM, as a debugger sees it: for tests.
    pub fn ram(&self) -> &DirectMap<'r> {
        &self.ram
    }

    /// The right to map the device's registers, if there is one ([`Config::device_frames`]).
    pub fn devices(&self) -> Option<ForeignFrames> {
        self.devices.as_ref().map(|(_, frames)| *frames)
    }

    /// The memory at `at`: the device's registers, or RAM.
    #[inline]
    pub(crate) fn memory_at(&self, at: PhysAddr) -> &DirectMap<'r> {
        match &self.devices {
            Some((words, _)) if words.span().contains(at.pfn(self.geometry.page_shift)) => words,
            _ => &self.ram,
        }
    }

    /// Faults to inject.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Makes the memory of `frame` fail from now on, or no longer; `false` outside of RAM.
    pub fn set_poisoned(&self, frame: Pfn, fails: bool) -> bool {
        self.ram.set_poisoned(frame, fails)
    }

    /// The clock, to be advanced by hand.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The counters of all CPUs. Counters of table stores, clears and copies stay 0 where the
    /// machine is neither examined nor told to count.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for bank in &self.banks {
            bank.counters.add_to(&mut sum);
        }
        sum
    }

    /// Announces that the calling CPU begins an operation of the library, such as an unmap. By the
    /// time the guard is dropped, all translations that the operation's stores made stale must be
    /// flushed, the contiguous blocks that it changed must be whole or gone, and no page that it
    /// found dirty may be clean: rules 1, 6 and 7 of the [`examiner`](crate::examiner). Guards may
    /// nest; the outermost counts.
    #[must_use = "the operation ends when the guard is dropped"]
    pub fn operation(&self, name: &'static str) -> Operation<'_, 'r> {
        let cpu = Hardware::cpu(self);
        if let Some(mut ledger) = self.ledger() {
            ledger.begin(cpu, name);
        }
        Operation { machine: self, cpu }
    }

    /// Whether every rule was kept so far.
    ///
    /// # Errors
    /// The first violation.
    pub fn verdict(&self) -> Result<(), Violation> {
        match self.ledger().and_then(|ledger| ledger.violations().first().copied()) {
            Some(violation) => Err(violation),
            None => Ok(()),
        }
    }

    /// The violations so far, oldest first; only the first few dozen are kept.
    pub fn violations(&self) -> Vec<Violation> {
        self.ledger().map_or(Vec::new(), |ledger| ledger.violations().to_vec())
    }

    /// The full check, for moments at which no operation runs: all tables that a CPU has installed
    /// are well-formed, with whole contiguous blocks, and no cached translation grants more than a
    /// fresh walk. Without the examiner it checks the contents of the TLBs.
    ///
    /// # Errors
    /// The first violation of the verdict, or else the first found now.
    pub fn audit(&self) -> Result<(), Violation> {
        self.verdict()?;
        let cores: Vec<_> = self.banks.iter().map(|bank| lock(&bank.core)).collect();
        let ledger = self.ledger();
        let cores: Vec<_> = cores.iter().map(|core| &**core).collect();
        audit(&self.config, &self.ram, &cores, ledger.as_deref())
    }

    /// The examiner's ledger, if there is one. Lock it after a core's lock, never before.
    #[inline]
    pub(crate) fn ledger(&self) -> Option<MutexGuard<'_, Ledger>> {
        self.ledger.as_ref().map(lock)
    }
}

impl fmt::Debug for Machine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} with {} CPUs and {:?}", self.config.isa, self.config.cpus, self.ram)
    }
}

/// An operation of the library that a CPU has announced; it ends when this is dropped.
pub struct Operation<'m, 'r> {
    machine: &'m Machine<'r>,
    cpu: CpuId,
}

impl Operation<'_, '_> {
    /// Announces as well that the operation cleans pages on purpose, such as for a writeback:
    /// dirty flags that it clears are not lost.
    #[must_use = "the operation ends when the guard is dropped"]
    pub fn cleans(self) -> Self {
        if let Some(mut ledger) = self.machine.ledger() {
            ledger.cleans(self.cpu);
        }
        self
    }
}

impl Drop for Operation<'_, '_> {
    fn drop(&mut self) {
        // A failing test needs no second reason.
        if std::thread::panicking() {
            return;
        }
        if let Some(mut ledger) = self.machine.ledger() {
            ledger.end(&self.machine.ram, self.cpu);
        }
    }
}

impl fmt::Debug for Operation<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operation of CPU {}", self.cpu.index())
    }
}

/// Why there is no machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MachineError {
    /// No machine has this configuration.
    Config(ConfigError),
    /// The RAM does not fit it.
    Ram(SetupError),
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineError::Config(error) => error.fmt(f),
            MachineError::Ram(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MachineError {}
