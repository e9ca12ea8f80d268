//! The hosted machine: RAM, CPUs with MMU and TLB, a clock, faults on demand, and an examiner.
//!
//! It runs the library without a kernel: to test it, to watch it, and to measure it. [`Ram`] is one
//! big mapping of host memory; a [`Machine`] borrows it and implements
//! [`Hardware`](quire_hw::Hardware); each [`Cpu`] runs programs on one host thread. Every access of
//! a program goes through a TLB of stated geometry and a walker that reads the tables in RAM.
//!
//! ```text
//!            Cpu::read, write, fetch              Hardware::fill, compare_exchange, flush, freed
//!                      |                                             |
//!                  +-------+   miss   +------+   words    +-----+    |
//!                  |  tlb  |--------->| walk |----------->| ram |<---+
//!                  +-------+          +------+  A/D flags +-----+    |
//!                      |                 | mmu: what a word means     |
//!                      +---------------->| examiner <-----------------+
//! ```
//!
//! The decoder in [`mmu`] is written from the manuals and shares nothing with the library's
//! encoder: they are two witnesses. The [`examiner`] knows what real hardware may have cached, and
//! reports accesses that would go wrong there even where they happen to go well here.
//!
//! ```
//! use quire_hw::Hardware;
//! use quire_machine::{Config, Machine, Ram, TrapKind};
//! use quire_units::{Asid, VirtAddr};
//!
//! let mut ram = Ram::new(16 << 20).expect("the host has 16 MiB");
//! let (machine, frames) = Machine::new(Config::x86_64(), &mut ram).expect("a valid preset");
//! let cpu = machine.cpu(0);
//! cpu.switch(frames.start(), Asid(1)); // RAM is zeroed, so this is an empty root table
//! let trap = cpu.read(VirtAddr::new(0x1000)).unwrap_err();
//! assert_eq!(trap.kind, TrapKind::NotPresent);
//! assert_eq!(machine.audit(), Ok(()));
//! ```
//!
//! Left out, so that no figure measured on it is taken for more than it is:
//! * **Exception entry and exit.** A trap is a returned value. Its cost on a real CPU, hundreds of
//!   cycles, is missing from every fault measured here.
//! * **The cost of walks and TLB hits.** They are simulated, at some hundred nanoseconds each;
//!   measurements of the library do not go through them.
//! * **Weak memory.** Words have the host's ordering, and a flush is a lock. A missing barrier on
//!   arm64 or riscv64 does not show.
//! * **The kernel's own addresses.** The library reads RAM directly; programs run in user mode
//!   only, and pages without user rights simply trap. No protection keys, no shadow stacks, no
//!   pointer tags, no second stage. One device, whose registers keep what is stored.
//! * **Speculation.** Only accesses walk. For rules about what *could* be cached, the examiner
//!   makes up for that. Data caches have no model at all, and instruction caches none but the
//!   examiner's: a fetch that could see old bytes returns the new ones and is reported.
//! * **Interrupts and idleness.** The CPUs that a flush names obey it at once, or after an injected
//!   delay; no lazy mode defers it.
#![forbid(unsafe_code)]

mod config;
mod clock;
mod ram;
mod faults;
mod races;
mod counters;
pub mod mmu;
mod tlb;
pub mod examiner;
mod walk;
mod cpu;
mod machine;
mod hardware;

pub use clock::{Clock, Time};
pub use config::{Config, ConfigError, DEVICES_BYTES, Examine};
pub use counters::Counts;
pub use cpu::{Cpu, Trap, TrapKind};
pub use examiner::{Rule, Violation, Why};
pub use faults::Faults;
pub use machine::{Machine, MachineError, Operation};
pub use mmu::{Flaw, Granule, Isa, Sv};
pub use races::{Race, Raced, Races};
pub use ram::{Ram, RamError};
pub use tlb::TlbGeometry;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. If a thread panicked with the lock, its test has failed already; the other threads should
/// report their own failures.
#[inline]
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
