//! Interrupts: the GIC, interrupts between CPUs, and sleep.
//!
//! Handlers touch nothing but atomics: they may run within any kernel code. They leave a note for
//! this CPU, `kick`: an interrupt was served in the kernel. A CPU that is about to enter user
//! mode or to sleep looks at it with interrupts off, and does not go. So none is lost between the
//! last look of the rooms above and the moment when it would have counted.

use core::arch::asm;

use quire::units::CpuId;

use super::tree::Controller;
use super::{clock, console, cpu, gic2, gic3};
use crate::isa::taken::{self, Reason};
use crate::isa::virt::cpus::{self, kick, take_kick};
use crate::isa::virt::disk;

/// Makes a CPU look for work.
const WAKE: u32 = 0;
/// Makes a CPU execute a barrier.
const BARRIER: u32 = 1;
/// The virtual timer's, by the machine's convention.
const TIMER: u32 = 27;
/// The first of those that CPUs share.
const SHARED: u32 = 32;

/// Sets the controller up, and the boot CPU's part of it.
///
/// # Panics
/// When the controller is none that we know.
pub(super) fn set_up() {
    match cpu::machine().controller {
        Controller::V2 { .. } => gic2::set_up(),
        Controller::V3 { redistributors } => gic3::set_up(redistributors),
    }
    set_up_cpu();
    listen(cpu::machine().uart_interrupt);
}

/// Sets up the part of the CPU that runs this.
pub(super) fn set_up_cpu() {
    let own = [WAKE, BARRIER, TIMER];
    match cpu::machine().controller {
        Controller::V2 { interface } => gic2::set_up_cpu(interface, &own),
        Controller::V3 { .. } => gic3::set_up_cpu(&own),
    }
}

/// A device interrupts the CPU that runs this: the boot CPU. `interrupt` is counted among the
/// shared ones.
///
/// # Panics
/// When the controller does not know the interrupt.
fn listen(interrupt: u32) {
    match cpu::machine().controller {
        Controller::V2 { .. } => gic2::listen(SHARED + interrupt),
        Controller::V3 { .. } => gic3::listen(SHARED + interrupt),
    }
}

/// Lets disk `number` interrupt the CPU that runs this. Its driver has set its queue up before.
pub fn listen_to_disk(number: usize) {
    if let Some(interrupt) = disk::interrupt(number) {
        listen(interrupt);
    }
}

/// Makes `cpu` leave user mode, or wake from [`idle`].
pub fn interrupt(cpu: CpuId) {
    send(WAKE, cpu);
}

/// Makes `cpu` execute a barrier; see [`serialize_others`](super::serialize_others).
pub(super) fn ask_barrier(cpu: CpuId) {
    send(BARRIER, cpu);
}

fn send(interrupt: u32, cpu: CpuId) {
    // SAFETY: a barrier: the interrupted CPU sees all earlier stores.
    unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) };
    match cpu::machine().controller {
        Controller::V2 { .. } => gic2::send(interrupt, cpu),
        Controller::V3 { .. } => gic3::send(interrupt, cpu),
    }
    // SAFETY: a barrier: it is sent before the caller goes on.
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
}

/// Serves the interrupt that is signalled, if it still is. With interrupts off.
pub(super) fn serve() {
    match cpu::machine().controller {
        Controller::V2 { interface } => gic2::handle(interface, serve_one),
        Controller::V3 { .. } => gic3::handle(serve_one),
    }
}

fn serve_one(interrupt: u32) {
    match interrupt {
        WAKE => taken::count(Reason::Wake),
        BARRIER => {
            taken::count(Reason::Wake);
            cpus::make_barrier();
        }
        TIMER => {
            taken::count(Reason::Timer);
            clock::silence();
        }
        other => {
            taken::count(Reason::Device);
            if !disk::serve(other.wrapping_sub(SHARED)) {
                console::serve();
            }
        }
    }
}

/// Serves it in the kernel, and leaves the note.
pub(super) extern "C" fn serve_in_kernel() {
    serve();
    kick();
}

/// Turns this CPU's interrupts off.
#[inline]
pub(super) fn mask() {
    // SAFETY: each caller turns them on again.
    unsafe { asm!("msr daifset, #2", options(nostack, preserves_flags)) };
}

/// Turns this CPU's interrupts on, and asynchronous errors with them.
#[inline]
pub(super) fn unmask() {
    // SAFETY: the vectors are in place, and handlers touch nothing but atomics.
    unsafe { asm!("msr daifclr, #6", options(nostack, preserves_flags)) };
}

/// Sleeps until an interrupt, unless `has_work` (called with interrupts off) says that there is
/// work, or an interrupt was served in the kernel since the last program ran. Interrupts are on
/// afterwards.
pub fn idle(has_work: &dyn Fn() -> bool) {
    mask();
    if !take_kick() && !has_work() {
        // SAFETY: it waits for an interrupt, masked or not; which is served below.
        unsafe { asm!("dsb sy", "wfi", options(nostack, preserves_flags)) };
    }
    unmask();
    // SAFETY: a barrier: what is pending is served here.
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
    // That one has been answered by returning.
    take_kick();
}
