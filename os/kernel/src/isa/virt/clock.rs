//! Time out of a counter that runs evenly, and that all CPUs see.
//!
//! Nanoseconds are counts times a fraction of 2^32.

use quire::arch::Arch;
use quire::hw::ForeignFrames;
use quire::units::{FrameSpan, MemoryType, PhysAddr};
use spin::Once;

use crate::isa::{Format, TimeBase};

const NANOS: u64 = 1_000_000_000;

#[derive(Debug)]
struct Clock {
    base: TimeBase,
    /// Counts for a nanosecond, times 2^32.
    counts: u64,
}

static CLOCK: Once<Clock> = Once::new();

/// Begins to count: `start` is the count now, of which there are `frequency` in a second, and
/// `realtime` the nanoseconds since 1970.
pub(in crate::isa) fn set_up(start: u64, frequency: u64, realtime: u64) {
    let frequency = frequency.max(1);
    CLOCK.call_once(|| Clock {
        base: TimeBase { start, scale: (NANOS << 32) / frequency, realtime },
        counts: ((u128::from(frequency) << 32) / u128::from(NANOS)) as u64,
    });
}

fn clock() -> &'static Clock {
    let Some(clock) = CLOCK.get() else { panic!("the clock is read before it is set up") };
    clock
}

fn scale(value: u64, fraction: u64) -> u64 {
    ((u128::from(value) * u128::from(fraction)) >> 32) as u64
}

/// Nanoseconds from boot to `count`.
pub(in crate::isa) fn nanos(count: u64) -> u64 {
    let base = time_base();
    scale(count - base.start, base.scale)
}

/// The first count at which at least `nanos` have passed since boot.
pub(in crate::isa) fn count_at(nanos: u64) -> u64 {
    let clock = clock();
    // One count later: the division above rounds down.
    clock.base.start.saturating_add(scale(nanos, clock.counts)).saturating_add(1)
}

/// Nanoseconds since 1970 at boot; 0 where the machine has no clock.
pub fn realtime() -> u64 {
    clock().base.realtime
}

/// The numbers with which the kernel counts.
pub fn time_base() -> TimeBase {
    clock().base
}

/// The right to map the page with the registers at physical address `address`, which the device
/// tree calls a clock's.
pub(in crate::isa) fn page(address: u64) -> ForeignFrames {
    let span = FrameSpan::new(PhysAddr::new(address).pfn(Format::PAGE_SHIFT), 1);
    // SAFETY: 1. these are registers, and the kernel's own use of them is over: it has read the
    // time at boot. 2. programs only read them (see `calls::map_file`), which has no effect.
    unsafe { ForeignFrames::new(span, MemoryType::Device) }
}
