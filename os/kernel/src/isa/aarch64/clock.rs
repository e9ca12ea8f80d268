//! Time: the virtual counter of the generic timer, and the PL031.

use core::arch::asm;
use core::ptr;

use quire::hw::ForeignFrames;

use super::{DIRECT, cpu, read_register, write_register};
use crate::isa::virt::clock;

/// CNTV_CTL_EL0: on, and not masked.
const ENABLE: u64 = 1;

/// Begins to count. `rtc`: the physical address of a PL031.
pub(super) fn set_up(rtc: Option<u64>) {
    let seconds = rtc.map_or(0, |address| {
        let register = ptr::with_exposed_provenance::<u32>((address + DIRECT) as usize);
        // SAFETY: the device tree says that a PL031 is there, and its first register is the time;
        // the first GiB is mapped as device memory.
        u64::from(unsafe { register.read_volatile() })
    });
    clock::set_up(count(), read_register!("cntfrq_el0"), seconds * 1_000_000_000);
}

/// The count now: not earlier, which is what the barrier is for.
fn count() -> u64 {
    // SAFETY: a barrier.
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
    read_register!("cntvct_el0")
}

/// The registers of the PL031, which programs may read.
pub fn clock_page() -> Option<ForeignFrames> {
    cpu::machine().rtc.map(clock::page)
}

/// Nanoseconds since boot, the same on all CPUs.
pub fn now() -> u64 {
    clock::nanos(count())
}

/// Interrupts this CPU when [`now`] is `at`, or not: an alarm set before is forgotten.
pub fn alarm(at: Option<u64>) {
    let Some(at) = at else { return silence() };
    let count = clock::count_at(at);
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
