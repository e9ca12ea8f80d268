//! Time: the virtual counter of the generic timer, and the PL031.
//!
//! All CPUs see the same counter. Nanoseconds are counts times a fraction of 2^32.

use core::arch::asm;
use core::ptr;

use spin::Once;

use super::{DIRECT, read_register, write_register};

const NANOS: u64 = 1_000_000_000;

/// CNTV_CTL_EL0: on, and not masked.
const ENABLE: u64 = 1;

#[derive(Debug)]
struct Clock {
    /// The count at boot.
    start: u64,
    /// Nanoseconds for a count, times 2^32.
    nanos: u64,
    /// Counts for a nanosecond, times 2^32.
    counts: u64,
    /// Nanoseconds since 1970 at boot.
    realtime: u64,
}

static CLOCK: Once<Clock> = Once::new();

/// Begins to count. `rtc`: the physical address of a PL031.
pub(super) fn set_up(rtc: Option<u64>) {
    let frequency = read_register!("cntfrq_el0").max(1);
    let seconds = rtc.map_or(0, |address| {
        let register = ptr::with_exposed_provenance::<u32>((address + DIRECT) as usize);
        // SAFETY: the device tree says that a PL031 is there, and its first register is the time;
        // the first GiB is mapped as device memory.
        u64::from(unsafe { register.read_volatile() })
    });
    CLOCK.call_once(|| Clock {
        start: count(),
        nanos: (NANOS << 32) / frequency,
        counts: ((u128::from(frequency) << 32) / u128::from(NANOS)) as u64,
        realtime: seconds * NANOS,
    });
}

fn clock() -> &'static Clock {
    let Some(clock) = CLOCK.get() else { panic!("the clock is read before it is set up") };
    clock
}

/// The count now: not earlier, which is what the barrier is for.
fn count() -> u64 {
    // SAFETY: a barrier.
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
    read_register!("cntvct_el0")
}

fn scale(value: u64, fraction: u64) -> u64 {
    ((u128::from(value) * u128::from(fraction)) >> 32) as u64
}

/// Nanoseconds since boot, the same on all CPUs.
pub fn now() -> u64 {
    let clock = clock();
    scale(count() - clock.start, clock.nanos)
}

/// Nanoseconds since 1970 at boot; 0 where the machine has no clock.
pub fn realtime() -> u64 {
    clock().realtime
}

/// Interrupts this CPU when [`now`] is `at`, or not: an alarm set before is forgotten.
pub fn alarm(at: Option<u64>) {
    let Some(at) = at else { return silence() };
    let clock = clock();
    // One count later: the division above rounds down.
    let count = clock.start.saturating_add(scale(at, clock.counts)).saturating_add(1);
    // SAFETY: the timer does nothing but interrupt us.
    unsafe { write_register!("cntv_cval_el0", count) };
    // SAFETY: the same.
    unsafe { write_register!("cntv_ctl_el0", ENABLE) };
    // SAFETY: a barrier, so that the timer obeys before the caller goes on.
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
}

/// Turns this CPU's timer off: an alarm rings once.
pub(super) fn silence() {
    // SAFETY: as above.
    unsafe { write_register!("cntv_ctl_el0", 0u64) };
    // SAFETY: a barrier, so that the interrupt line is down before the interrupt is ended.
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
}
