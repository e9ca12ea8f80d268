//! arm64: QEMU's `virt` machine with a GICv3 or a GICv2, at EL1.
//!
//! Source of all facts about registers: Arm ARM (DDI 0487); of the interrupt controller: the GIC
//! architecture (IHI 0069, and 0048 for the older one); of the console: PL011 (DDI 0183); of the
//! clock: PL031 (DDI 0224).
//!
//! ```text
//!   0                       USER_END          DIRECT
//!   ├── TTBR0: a program ───┤ … nothing … ├── TTBR1: the kernel ─────────────────────────┤
//!                                          physical 0 …  1 GiB: devices │ RAM, image in it
//! ```
//!
//! | file | about |
//! |---|---|
//! | `boot` | the first instructions of each CPU, up to Rust |
//! | `tree` | the device tree, as far as [`virt`](super::virt) does not read it |
//! | `cpu` | numbers of CPUs, features, start of the others |
//! | `mmu` | roots, flushes, features of the MMU |
//! | `vectors` | exceptions: in and out of user mode, and within the kernel |
//! | `code` | caches of instructions |
//! | `context` | a program's registers, and [`run`] |
//! | `trap` | exception syndromes |
//! | `copy` | copies that may fault |
//! | `bytes` | copies that may not |
//! | `gic` | interrupts, and sleep |
//! | `gic2`, `gic3` | the interrupt controllers that there are |
//! | `clock` | time |
//! | `console` | the serial line |
//! | `power` | the machine's end, random numbers |
//! | `signal` | frames of signals |
//!
//! The rooms above rely on this:
//! * the kernel's root also maps [`devices`] at [`DIRECT`], with [`Attrs::DEVICE`].

mod boot;
mod bytes;
mod clock;
mod code;
mod console;
mod context;
mod copy;
mod cpu;
mod gic;
mod gic2;
mod gic3;
mod mmu;
mod power;
mod signal;
mod trap;
mod tree;
mod vectors;
mod vdso;

use quire::arch::aarch64::Arm64;
use quire::arch::{Attrs, memory_slots};
use quire::hw::Chosen;

use super::Facts;

pub use clock::{alarm, clock_page, now};
pub use code::publish_code;
pub use console::{put, take};
pub use context::{Context, run};
pub use copy::copy_user;
pub use cpu::{cpu, cpu_count, serialize_others, start_cpus};
pub use gic::{idle, interrupt, listen_to_disk};
pub use mmu::{devices, enter, flush, kernel_root, leave, profile, publish, root_template, tags};
pub use power::{power_off, random};
pub use signal::SIGNAL_STACK_BYTES;
pub use vdso::vdso;
pub use vectors::frames;

pub use super::virt::clock::{realtime, time_base};
pub use super::virt::disk::{DiskPort, disk, take_disk_news};

/// The page-table format: granules of 4 KiB, 48-bit addresses. `MAIR_EL1` has the usual, the
/// combining and the device type in these bytes; boot writes it.
pub type Format = Arm64<12, { memory_slots(0, 2, 1) }>;

/// The virtual address of physical address 0.
pub const DIRECT: u64 = 0xffff_0000_0000_0000;

/// Where RAM begins; below are devices.
pub const RAM_START: u64 = 1 << 30;

/// The kernel's image runs where the direct map shows it.
pub const IMAGE: u64 = DIRECT;

/// The end of a program's address space, in bytes.
pub const USER_END: u64 = 1 << 48;

/// A CPU that leaves a space keeps its translations.
pub const KEEPS: bool = true;

/// The answer of `uname -m`.
pub const MACHINE: &str = "aarch64";

/// The CPU's features in the auxiliary vector: `AT_HWCAP` and `AT_HWCAP2`. Floating point and
/// vectors are there; features that are not switched on are left out.
pub fn features() -> (u64, u64) {
    const FP: u64 = 1 << 0;
    const ASIMD: u64 = 1 << 1;
    (FP | ASIMD, 0)
}

/// Features of the boot CPU that others lack, for the log.
pub fn facts() -> Facts<5> {
    let features = cpu::features();
    Facts([
        ("tags", tags().into()),
        ("sets flags", read_register!("id_aa64mmfr1_el1") & 0xf),
        ("bbm 2", features.relaxed.into()),
        ("tlbi range", features.ranges.into()),
        ("rndr", features.random.into()),
    ])
}

/// The ways to clear memory.
pub fn clears() -> Chosen {
    Chosen::default_for_cpu()
}

/// Leaves of devices in the kernel's half name the memory type.
pub const DEVICE_FLAGS: Attrs = Attrs::DEVICE;

/// Reads a system register, named or as `s3_…`.
macro_rules! read_register {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: all callers read registers for which a read has no effect.
        unsafe {
            core::arch::asm!(
                concat!("mrs {}, ", $name),
                out(reg) value,
                options(nomem, nostack, preserves_flags)
            );
        }
        value
    }};
}

/// Writes a system register. To be used in `unsafe`: the caller argues what it changes.
macro_rules! write_register {
    ($name:literal, $value:expr) => {
        core::arch::asm!(
            concat!("msr ", $name, ", {}"),
            in(reg) $value,
            options(nostack, preserves_flags)
        )
    };
}

use {read_register, write_register};
