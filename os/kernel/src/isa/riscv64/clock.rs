//! Time: the `time` register, the supervisor's timer, and the Goldfish clock.

use core::arch::asm;
use core::ptr;

use quire::hw::ForeignFrames;

use super::tree::Machine;
use super::{DIRECT, cpu, read_csr};
use crate::isa::virt::clock;

/// Registers of the Goldfish clock, as offsets in bytes: nanoseconds since 1970. A look at the
/// lower half keeps the upper one.
const LOW: u64 = 0;
const HIGH: u64 = 4;

/// Begins to count.
pub(super) fn set_up(machine: &Machine) {
    let realtime = machine.rtc.map_or(0, |address| {
        let read = |offset: u64| {
            let register =
                ptr::with_exposed_provenance::<u32>((address + offset + DIRECT) as usize);
            // SAFETY: the device tree says that the clock is there, and the boot tables map it.
            u64::from(unsafe { register.read_volatile() })
        };
        let low = read(LOW);
        read(HIGH) << 32 | low
    });
    clock::set_up(count(), machine.frequency, realtime);
}

/// The registers of the Goldfish clock, which programs may read.
pub fn clock_page() -> Option<ForeignFrames> {
    cpu::machine().rtc.map(clock::page)
}

/// The count now: not earlier than what comes before, which is what the fence is for (see `vdso`).
fn count() -> u64 {
    // SAFETY: a barrier.
    unsafe { asm!("fence r, i", options(nostack, preserves_flags)) };
    read_csr!("time")
}

/// Nanoseconds since boot, the same on all CPUs.
pub fn now() -> u64 {
    clock::nanos(count())
}

/// Interrupts this CPU when [`now`] is `at`, or not: an alarm set before is forgotten.
pub fn alarm(at: Option<u64>) {
    set(at.map_or(u64::MAX, clock::count_at));
}

/// Turns this CPU's timer off: an alarm rings once.
pub(super) fn silence() {
    set(u64::MAX);
}

/// Interrupts this CPU from `count` on.
fn set(count: u64) {
    if cpu::features().alarms {
        // SAFETY: the timer does nothing but interrupt us. The register is `stimecmp`.
        unsafe { asm!("csrw 0x14d, {}", in(reg) count, options(nostack, preserves_flags)) };
    } else {
        sbi_rt::set_timer(count);
    }
}
