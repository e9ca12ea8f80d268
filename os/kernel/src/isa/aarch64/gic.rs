//! Interrupts: the GICv3, interrupts between CPUs, and sleep.
//!
//! Handlers touch nothing but atomics: they may run within any kernel code. They leave a note for
//! this CPU, `kick`: an interrupt was served in the kernel. A CPU that is about to enter user
//! mode or to sleep looks at it with interrupts off, and does not go. So none is lost between the
//! last look of the rooms above and the moment when it would have counted.

use core::arch::asm;
use core::ptr::{self, NonNull};

use arm_gic::gicv3::registers::{Gicd, GicrSgi};
use arm_gic::gicv3::{GicCpuInterface, GicV3, SgiTarget, SgiTargetGroup};
use arm_gic::{IntId, InterruptGroup, UniqueMmioPointer};
use quire::units::CpuId;
use spin::mutex::SpinMutex;

use super::{DIRECT, clock, console, cpu, read_register};
use crate::isa::taken::{self, Reason};
use crate::isa::virt::cpus::{self, kick, take_kick};
use crate::isa::virt::disk;

/// Makes a CPU look for work.
const WAKE: IntId = IntId::sgi(0);
/// Makes a CPU execute a barrier.
const BARRIER: IntId = IntId::sgi(1);
/// The virtual timer's, by the machine's convention: interrupt 27.
const TIMER: IntId = IntId::ppi(11);

/// Below every interrupt's priority.
const ALL_PRIORITIES: u8 = 0xff;

static GIC: SpinMutex<Option<GicV3<'static>>> = SpinMutex::new(None);

/// Sets the controller up, and the boot CPU's part of it.
///
/// # Panics
/// When the controller is none that we know.
pub(super) fn set_up() {
    let machine = cpu::machine();
    let register =
        |address: u64| ptr::with_exposed_provenance_mut::<u8>((address + DIRECT) as usize);
    let distributor = NonNull::new(register(machine.distributor).cast::<Gicd>());
    let redistributors = NonNull::new(register(machine.redistributors).cast::<GicrSgi>());
    let (Some(distributor), Some(redistributors)) = (distributor, redistributors) else {
        panic!("the interrupt controller has no address")
    };
    // SAFETY: the device tree says where it is; mapped as device memory; this is called once.
    let distributor = unsafe { UniqueMmioPointer::new(distributor) };
    // SAFETY: the same.
    match unsafe { GicV3::new(distributor, redistributors, machine.cpus_all) } {
        Ok(mut gic) => {
            let own = redistributor_of_own(&mut gic);
            gic.setup(own);
            *GIC.lock() = Some(gic);
        }
        Err(error) => panic!("the interrupt controller is no GICv3: {error}"),
    }
    set_up_cpu();
    listen(machine.uart_interrupt);
}

/// Sets up the part of the CPU that runs this.
pub(super) fn set_up_cpu() {
    let mut gic = GIC.lock();
    let Some(gic) = gic.as_mut() else { panic!("a CPU came before its interrupt controller") };
    let own = redistributor_of_own(gic);
    gic.init_cpu(own);
    for interrupt in [WAKE, BARRIER, TIMER] {
        if let Err(error) = gic.enable_interrupt(interrupt, Some(own), true) {
            panic!("{interrupt:?} cannot be used: {error}");
        }
    }
    GicCpuInterface::enable_group1(true);
    GicCpuInterface::set_priority_mask(ALL_PRIORITIES);
}

/// A device interrupts the CPU that runs this: the boot CPU. `interrupt` is counted among the
/// shared ones.
///
/// # Panics
/// When the controller does not know the interrupt.
pub(super) fn listen(interrupt: u32) {
    let interrupt = IntId::spi(interrupt);
    let own = read_register!("mpidr_el1") & cpu::AFFINITY;
    let mut gic = GIC.lock();
    let Some(gic) = gic.as_mut() else { return };
    let routed = gic.distributor().set_routing(interrupt, Some(own));
    if let Err(error) = routed.and_then(|()| gic.enable_interrupt(interrupt, None, true)) {
        panic!("{interrupt:?} cannot be used: {error}");
    }
}

/// The number of this CPU's redistributor: the one that has its affinity.
fn redistributor_of_own(gic: &mut GicV3<'_>) -> usize {
    let own = read_register!("mpidr_el1") & cpu::AFFINITY;
    let mut all = 0..cpu::machine().cpus_all;
    match all.find(|&cpu| gic.gicr_typer(cpu).is_ok_and(|typer| typer.core_mpidr() == own)) {
        Some(cpu) => cpu,
        None => panic!("no redistributor belongs to CPU {own:#x}"),
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

fn send(interrupt: IntId, cpu: CpuId) {
    let affinity = cpu::machine().affinities[cpu.index()].to_le_bytes();
    let target = SgiTarget::List {
        affinity3: affinity[4],
        affinity2: affinity[2],
        affinity1: affinity[1],
        target_list: 1 << (affinity[0] & 15),
    };
    // SAFETY: a barrier: the interrupted CPU sees all earlier stores.
    unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) };
    let sent = GicCpuInterface::send_sgi(interrupt, target, SgiTargetGroup::CurrentGroup1);
    debug_assert!(sent.is_ok(), "{interrupt:?} is no software-generated interrupt");
    // SAFETY: a barrier: it is sent before the caller goes on.
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
}

/// Serves the interrupt that is signalled, if it still is. With interrupts off.
pub(super) fn serve() {
    GicCpuInterface::handle_interrupt(InterruptGroup::Group1, |interrupt| match interrupt {
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
            if !is_disk(other) {
                console::serve();
            }
        }
    });
}

/// Whether an interrupt is the disk's, which has been served then.
fn is_disk(interrupt: IntId) -> bool {
    const SHARED: u32 = 32;
    disk::serve(u32::from(interrupt).wrapping_sub(SHARED))
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
