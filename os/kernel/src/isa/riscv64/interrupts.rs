//! Interrupts of a CPU, and sleep.
//!
//! Handlers touch nothing but atomics: they may run within any kernel code. They leave a note for
//! this CPU, `kick`: an interrupt was served in the kernel. A CPU that is about to enter user
//! mode or to sleep looks at it with interrupts off, and does not go. So none is lost between the
//! last look of the rooms above and the moment when it would have counted.

use core::arch::asm;
use core::sync::atomic::{Ordering, fence};

use quire::units::CpuId;

use super::{change_csr, clock, cpu, plic};
use crate::isa::taken::{self, Reason};
use crate::isa::virt::cpus::{kick, make_barrier, take_kick};

/// Interrupts by number: of another CPU, of the timer, of a device.
const WAKE: u64 = 1;
const TIMER: u64 = 5;
const DEVICE: u64 = 9;

/// `sip`: another CPU has sent an interrupt.
const WAKE_PENDING: u64 = 1 << WAKE;

/// Makes `cpu` leave user mode, wake from [`idle`], and execute a barrier.
pub fn interrupt(cpu: CpuId) {
    // The interrupted CPU sees all earlier stores.
    fence(Ordering::SeqCst);
    let sent = sbi_rt::send_ipi(cpu::hart_of(cpu));
    debug_assert!(sent.is_ok(), "the firmware knows no CPU {}", cpu.index());
}

/// Takes the interrupt of another CPU back.
pub(super) fn clear_wake() {
    // SAFETY: it is answered by whatever the caller does next.
    unsafe { change_csr!("csrc", "sip", WAKE_PENDING) };
}

/// Serves an interrupt. With interrupts off.
pub(super) fn serve(interrupt: u64) {
    taken::count(match interrupt {
        WAKE => Reason::Wake,
        TIMER => Reason::Timer,
        _ => Reason::Device,
    });
    match interrupt {
        WAKE => {
            clear_wake();
            make_barrier();
        }
        TIMER => clock::silence(),
        DEVICE => plic::serve(),
        other => panic!("interrupt {other} was never switched on"),
    }
}

/// Serves it in the kernel, and leaves the note.
pub(super) fn serve_in_kernel(interrupt: u64) {
    serve(interrupt);
    kick();
}

/// Turns this CPU's interrupts off.
#[inline]
pub(super) fn mask() {
    // SAFETY: each caller turns them on again.
    unsafe { asm!("csrci sstatus, 2", options(nostack, preserves_flags)) };
}

/// Turns this CPU's interrupts on.
#[inline]
pub(super) fn unmask() {
    // SAFETY: the vector is in place, and handlers touch nothing but atomics.
    unsafe { asm!("csrsi sstatus, 2", options(nostack, preserves_flags)) };
}

/// Sleeps until an interrupt, unless `has_work` (called with interrupts off) says that there is
/// work, or an interrupt was served in the kernel since the last program ran. Interrupts are on
/// afterwards.
pub fn idle(has_work: &dyn Fn() -> bool) {
    mask();
    if !take_kick() && !has_work() {
        // SAFETY: it waits for an interrupt, masked or not; which is served below.
        unsafe { asm!("wfi", options(nostack, preserves_flags)) };
    }
    // Pending interrupts are served here.
    unmask();
    // That one has been answered by returning.
    take_kick();
}
