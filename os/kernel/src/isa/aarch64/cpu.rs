//! CPUs: their numbers and features, and the start of those that the loader left asleep.

use quire::units::{CpuId, CpuSet};
use smccc::{Hvc, Smc, psci};
use spin::Once;

use super::tree::{Conduit, Machine};
use super::{DIRECT, boot, gic, mmu, read_register};
use crate::isa::virt::cpus;

/// The affinity fields of MPIDR_EL1.
pub(super) const AFFINITY: u64 = 0xff_00ff_ffff;

/// Optional features of the CPU, as the boot CPU has them: all CPUs of a machine are taken to be
/// alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    /// FEAT_BBM level 2.
    pub(super) relaxed: bool,
    /// The CPU sets the accessed flag.
    pub(super) sets_accessed: bool,
    /// The CPU notes the dirty state.
    pub(super) sets_dirty: bool,
    /// FEAT_TLBIRANGE.
    pub(super) ranges: bool,
    /// FEAT_RNG.
    pub(super) random: bool,
}

/// Set at boot, before anything can ask.
struct FolioFlags {
    machine: Machine,
    features: Features,
}

static KNOWN: Once<FolioFlags> = Once::new();

/// Stores the description of this machine.
pub(super) fn set_up(machine: Machine) {
    let instructions = read_register!("id_aa64isar0_el1");
    let memory1 = read_register!("id_aa64mmfr1_el1");
    let memory2 = read_register!("id_aa64mmfr2_el1");
    let features = Features {
        relaxed: memory2 >> 52 & 0xf == 2,
        sets_accessed: memory1 & 0xf >= 1,
        sets_dirty: memory1 & 0xf >= 2,
        ranges: instructions >> 56 & 0xf >= 2,
        random: instructions >> 60 != 0,
    };
    KNOWN.call_once(|| FolioFlags { machine, features });
}

fn known() -> &'static FolioFlags {
    let Some(known) = KNOWN.get() else { panic!("the machine is used before it is known") };
    known
}

/// The machine.
///
/// # Panics
/// Before [`set_up`].
pub(super) fn machine() -> &'static Machine {
    &known().machine
}

/// The machine, for code that may run before it is known: a panic.
pub(super) fn machine_if_known() -> Option<&'static Machine> {
    KNOWN.get().map(|known| &known.machine)
}

/// The features of its CPUs.
///
/// # Panics
/// Before [`set_up`].
pub(super) fn features() -> &'static Features {
    &known().features
}

/// The CPU that runs this.
pub fn cpu() -> CpuId {
    CpuId::new(number())
}

/// Its number: TPIDR_EL1 holds it from the first instructions on.
pub(super) fn number() -> usize {
    read_register!("tpidr_el1") as usize
}

/// How many CPUs there are, at most [`MAX_CPUS`].
pub fn cpu_count() -> usize {
    machine().cpus
}

/// Starts all CPUs but the one that boots. Each calls `main`; returns when all have begun. To be
/// called once, by the boot CPU.
///
/// # Panics
/// When the firmware refuses to start one: the machine is not what its device tree says.
pub fn start_cpus(main: fn(CpuId) -> !) {
    let entry = boot::other_cpu as *const () as u64 - DIRECT;
    let machine = machine();
    cpus::start(main, |number| {
        let context = mmu::kernel_root_address() | number as u64;
        let affinity = machine.affinities[number];
        mmu::publish();
        let started = match machine.conduit {
            Conduit::Hvc => psci::cpu_on::<Hvc>(affinity, entry, context),
            Conduit::Smc => psci::cpu_on::<Smc>(affinity, entry, context),
        };
        if let Err(error) = started {
            panic!("CPU {number} does not start: {error:?}");
        }
    });
}

/// A full barrier on each of `cpus`, this one included, between what the caller did before and
/// what it does afterwards. With interrupts on, as others may want the same of this CPU.
pub fn serialize_others(cpus: &CpuSet) {
    cpus::serialize(cpus, gic::ask_barrier);
}
