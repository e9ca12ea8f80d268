//! The GICv3: its distributor, a redistributor for each CPU, and system registers.

use core::ptr::{self, NonNull};

use arm_gic::gicv3::registers::{Gicd, GicrSgi};
use arm_gic::gicv3::{GicCpuInterface, GicV3, SgiTarget, SgiTargetGroup};
use arm_gic::{IntId, InterruptGroup, UniqueMmioPointer};
use quire::units::CpuId;
use spin::mutex::SpinMutex;

use super::{DIRECT, cpu, read_register};

/// Below every interrupt's priority.
const ALL_PRIORITIES: u8 = 0xff;

static GIC: SpinMutex<Option<GicV3<'static>>> = SpinMutex::new(None);

/// Sets the controller up, and the boot CPU's part of it; its redistributors are at this physical
/// address.
///
/// # Panics
/// When it is none.
pub(super) fn set_up(redistributors: u64) {
    let machine = cpu::machine();
    let register =
        |address: u64| ptr::with_exposed_provenance_mut::<u8>((address + DIRECT) as usize);
    let distributor = NonNull::new(register(machine.distributor).cast::<Gicd>());
    let redistributors = NonNull::new(register(redistributors).cast::<GicrSgi>());
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
}

/// Sets up the part of the CPU that runs this, and lets these interrupts reach it.
pub(super) fn set_up_cpu(interrupts: &[u32]) {
    let mut gic = GIC.lock();
    let Some(gic) = gic.as_mut() else { panic!("a CPU came before its interrupt controller") };
    let own = redistributor_of_own(gic);
    gic.init_cpu(own);
    for &interrupt in interrupts {
        if let Err(error) = gic.enable_interrupt(id(interrupt), Some(own), true) {
            panic!("interrupt {interrupt} cannot be used: {error}");
        }
    }
    GicCpuInterface::enable_group1(true);
    GicCpuInterface::set_priority_mask(ALL_PRIORITIES);
}

/// An interrupt by its number, of those that one CPU has or of the shared ones behind them.
fn id(number: u32) -> IntId {
    match number {
        0..16 => IntId::sgi(number),
        16..32 => IntId::ppi(number - 16),
        _ => IntId::spi(number - 32),
    }
}

/// Lets this shared interrupt reach the CPU that runs this.
///
/// # Panics
/// When the controller does not know the interrupt.
pub(super) fn listen(interrupt: u32) {
    let own = read_register!("mpidr_el1") & cpu::AFFINITY;
    let mut gic = GIC.lock();
    let Some(gic) = gic.as_mut() else { return };
    let routed = gic.distributor().set_routing(id(interrupt), Some(own));
    if let Err(error) = routed.and_then(|()| gic.enable_interrupt(id(interrupt), None, true)) {
        panic!("interrupt {interrupt} cannot be used: {error}");
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

/// Sends software-generated interrupt number `interrupt` to `cpu`.
pub(super) fn send(interrupt: u32, cpu: CpuId) {
    let affinity = cpu::machine().affinities[cpu.index()].to_le_bytes();
    let target = SgiTarget::List {
        affinity3: affinity[4],
        affinity2: affinity[2],
        affinity1: affinity[1],
        target_list: 1 << (affinity[0] & 15),
    };
    let sent = GicCpuInterface::send_sgi(id(interrupt), target, SgiTargetGroup::CurrentGroup1);
    debug_assert!(sent.is_ok(), "{interrupt} is no software-generated interrupt");
}

/// Calls `serve` with the number of the interrupt that is signalled, if there is one.
pub(super) fn handle(serve: impl FnOnce(u32)) {
    GicCpuInterface::handle_interrupt(InterruptGroup::Group1, |interrupt| serve(interrupt.into()));
}
