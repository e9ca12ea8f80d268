//! How many interrupts each CPU has taken, by the reason. `/proc/interrupts` prints them.

use core::sync::atomic::{AtomicU64, Ordering};

use quire::units::CpuId;

use super::{MAX_CPUS, cpu};

/// The reason for an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// This CPU's timer.
    Timer,
    /// Another CPU wants this one to look for work, or to make a barrier.
    Wake,
    /// Another CPU wants this one to drop translations. On riscv64 the firmware takes it, and the
    /// CPU that asks counts it for the one that is asked. On arm64 no CPU is interrupted: there it
    /// is an invalidation that this CPU has broadcast.
    Flush,
    /// A disk or the console.
    Device,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Timer, Self::Wake, Self::Flush, Self::Device];
}

/// One CPU's counts, by [`Reason`], in cache lines of their own.
#[repr(align(128))]
struct Counts([AtomicU64; Reason::ALL.len()]);

static TAKEN: [Counts; MAX_CPUS] =
    [const { Counts([const { AtomicU64::new(0) }; Reason::ALL.len()]) }; MAX_CPUS];

/// Counts one for this CPU.
pub(super) fn count(reason: Reason) {
    count_for(cpu(), reason);
}

/// Counts one for `cpu`.
pub(super) fn count_for(cpu: CpuId, reason: Reason) {
    TAKEN[cpu.index()].0[reason as usize].fetch_add(1, Ordering::Relaxed);
}

/// How many interrupts CPU `number` has taken for that reason since boot. Zero for a CPU that is
/// not there.
pub fn taken(number: usize, reason: Reason) -> u64 {
    let counts = TAKEN.get(number).map(|counts| &counts.0[reason as usize]);
    counts.map_or(0, |count| count.load(Ordering::Relaxed))
}
