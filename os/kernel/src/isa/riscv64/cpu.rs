//! CPUs: their numbers and features, and the start of those that the firmware left asleep.

use core::sync::atomic::{AtomicU64, Ordering};

use quire::units::{CpuId, CpuSet};
use sbi_rt::HartMask;
use spin::Once;

use super::tree::Machine;
use super::{DIRECT, boot, interrupts};
use crate::isa::MAX_CPUS;
use crate::isa::taken::{self, Reason};
use crate::isa::virt::cpus;

/// A CPU's own words: `tp` points at them while it runs the kernel.
#[repr(C, align(64))]
pub(super) struct Local {
    /// Its number. Written by its first instructions.
    number: AtomicU64,
    /// Where traps within the kernel put two registers until they have looked at the stack.
    spare: [AtomicU64; 2],
}

const _: () = assert!(core::mem::offset_of!(Local, spare) == 8);

pub(super) static LOCALS: [Local; MAX_CPUS] =
    [const { Local { number: AtomicU64::new(0), spare: [const { AtomicU64::new(0) }; 2] } };
        MAX_CPUS];

/// Optional features of the CPU, as the boot CPU has them: all CPUs of a machine are taken to be
/// alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Features {
    /// Svadu, switched on: the CPU sets the accessed and dirty bits.
    pub(super) sets_accessed: bool,
    /// Svnapot: contiguous entries.
    pub(super) folds: bool,
    /// Svpbmt: entries say memory types. The firmware switches it on (`menvcfg.PBMTE`).
    pub(super) types: bool,
    /// Sstc: an alarm is a register of the supervisor.
    pub(super) alarms: bool,
    /// Zicboz: bytes of the block that one instruction clears.
    pub(super) clear_block_bytes: Option<usize>,
}

/// The firmware feature by which a CPU sets the accessed and dirty bits (SBI specification, FWFT).
const UPDATE_FLAGS: u32 = 4;

static KNOWN: Once<Machine> = Once::new();

/// Whether the firmware was asked to let CPUs set the accessed and dirty bits: 0 or 1.
static UPDATES: AtomicU64 = AtomicU64::new(0);

/// Stores the description of this machine.
pub(super) fn set_up(mut machine: Machine) {
    if !machine.features.sets_accessed && sbi_rt::fwft_set(UPDATE_FLAGS, 1, 0).is_ok() {
        machine.features.sets_accessed = true;
        UPDATES.store(1, Ordering::Relaxed);
    }
    KNOWN.call_once(|| machine);
}

/// Switches on this CPU what the boot CPU has switched on for itself.
pub(super) fn use_features() {
    if UPDATES.load(Ordering::Relaxed) != 0 && sbi_rt::fwft_set(UPDATE_FLAGS, 1, 0).is_err() {
        panic!("this CPU does not set accessed bits, and the boot CPU does");
    }
}

/// The machine.
///
/// # Panics
/// Before [`set_up`].
pub(super) fn machine() -> &'static Machine {
    let Some(known) = KNOWN.get() else { panic!("the machine is used before it is known") };
    known
}

/// The machine, for code that may run before it is known: a panic.
pub(super) fn machine_if_known() -> Option<&'static Machine> {
    KNOWN.get()
}

/// The features of its CPUs.
///
/// # Panics
/// Before [`set_up`].
pub(super) fn features() -> &'static Features {
    &machine().features
}

/// The CPU that runs this.
#[inline]
pub fn cpu() -> CpuId {
    let number: usize;
    // SAFETY: `tp` points at this CPU's words from the first instructions on; the number never
    // changes, and kernel code does not migrate.
    unsafe {
        core::arch::asm!(
            "ld {}, 0(tp)",
            out(reg) number,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    CpuId::new(number)
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
    let entry = boot::other_cpu as *const () as usize - DIRECT as usize;
    let machine = machine();
    cpus::start(main, |number| {
        let hart = machine.harts[number] as usize;
        let started = sbi_rt::hart_start(hart, entry, number);
        assert!(started.is_ok(), "CPU {number} does not start: {started:?}");
    });
}

/// The firmware's name for one CPU.
pub(super) fn hart_of(cpu: CpuId) -> HartMask {
    HartMask::from_mask_base(1, machine().harts[cpu.index()] as usize)
}

/// Calls `visit` with `cpus` but for the one that runs this, as masks of the firmware's numbers;
/// whether it is one of them. The set is read once: CPUs come and go meanwhile.
pub(super) fn others(cpus: &CpuSet, mut visit: impl FnMut(HartMask)) -> bool {
    let (own, machine) = (cpu(), machine());
    let (mut low, mut is_own) = (0, false);
    for cpu in cpus.iter().filter(|cpu| cpu.index() < machine.cpus) {
        let hart = machine.harts[cpu.index()] as usize;
        if cpu == own {
            is_own = true;
            continue;
        }
        taken::count_for(cpu, Reason::Flush);
        if hart < usize::BITS as usize {
            low |= 1 << hart;
        } else {
            visit(HartMask::from_mask_base(1, hart));
        }
    }
    if low != 0 {
        visit(HartMask::from_mask_base(low, 0));
    }
    is_own
}

/// A full barrier on each of `cpus`, this one included, between what the caller did before and
/// what it does afterwards. With interrupts on, as others may want the same of this CPU.
pub fn serialize_others(cpus: &CpuSet) {
    cpus::serialize(cpus, interrupts::interrupt);
}

/// All CPUs but the one that runs this, as [`others`].
pub(super) fn all_others(visit: impl FnMut(HartMask)) {
    let all = CpuSet::new();
    for number in 0..cpu_count() {
        all.insert(CpuId::new(number));
    }
    others(&all, visit);
}
