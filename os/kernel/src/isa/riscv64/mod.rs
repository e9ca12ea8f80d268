//! riscv64: QEMU's `virt` machine with OpenSBI and a PLIC, in supervisor mode.
//!
//! Sources: *The RISC-V Instruction Set Manual*, volume II (privileged architecture); of the
//! firmware: the *RISC-V Supervisor Binary Interface Specification*; of the interrupt controller:
//! the *RISC-V Platform-Level Interrupt Controller Specification*.
//!
//! ```text
//!   0                    USER_END         DIRECT
//!   ├── a program ───────┤ … nothing … ├── the kernel ───────────────────────────────────┤
//!                                       physical 0 … devices │ 2 GiB: firmware, RAM, image in it
//! ```
//!
//! Both halves are under one root. `DIRECT` is the upper half of Sv39, which Sv48 and Sv57 have,
//! too, as a part of theirs: 256 GiB.
//!
//! | file | about |
//! |---|---|
//! | `boot` | the first instructions of each CPU, up to Rust |
//! | `tree` | the device tree, as far as [`virt`](super::virt) does not read it |
//! | `cpu` | numbers of CPUs, features, start of the others |
//! | `mmu` | roots, flushes, features of the MMU |
//! | `vectors` | traps: in and out of user mode, and within the kernel |
//! | `context` | a program's registers, and [`run`] |
//! | `trap` | causes of traps |
//! | `copy` | copies that may fault |
//! | `interrupts` | interrupts, and sleep |
//! | `plic` | interrupts of devices |
//! | `clock` | time |
//! | `console` | the serial line |
//! | `power` | the machine's end, random numbers |
//! | `signal` | frames of signals |
//!
//! The rooms above rely on this:
//! * the kernel's root also maps [`devices`] at [`DIRECT`], as ordinary memory: the machine's
//!   physical memory attributes say that they are devices.

mod boot;
mod clock;
mod console;
mod context;
mod copy;
mod cpu;
mod interrupts;
mod mmu;
mod plic;
mod power;
mod signal;
mod trap;
mod tree;
mod vectors;
mod vdso;

use quire::arch::{Arch, Attrs};

use super::Facts;

pub use clock::{alarm, clock_page, now};
pub use console::{put, take};
pub use context::{Context, run};
pub use copy::copy_user;
pub use cpu::{cpu, cpu_count, serialize_others, start_cpus};
pub use interrupts::{idle, interrupt};
pub use mmu::{
    clears, devices, enter, fence_fetches, flush, kernel_root, leave, profile, publish,
    publish_code, root_template, tags,
};
pub use plic::listen_to_disk;
pub use power::{power_off, random};
pub use signal::SIGNAL_STACK_BYTES;
pub use vdso::vdso;
pub use vectors::frames;

pub use super::virt::clock::{realtime, time_base};
pub use super::virt::disk::{DiskPort, disk, take_disk_news};

#[cfg(all(feature = "sv39", not(feature = "sv57")))]
pub use quire::arch::Sv39 as Format;
/// The page-table format: tables of four levels, unless a feature asks for others.
#[cfg(not(any(feature = "sv39", feature = "sv57")))]
pub use quire::arch::Sv48 as Format;
#[cfg(feature = "sv57")]
pub use quire::arch::Sv57 as Format;

/// The virtual address of physical address 0.
pub const DIRECT: u64 = 0xffff_ffc0_0000_0000;

/// Where RAM begins that is not the firmware's; below are OpenSBI and devices.
pub const RAM_START: u64 = 0x8020_0000;

/// The kernel's image runs where the direct map shows it.
pub const IMAGE: u64 = DIRECT;

/// The end of a program's address space, in bytes.
pub const USER_END: u64 = Format::USER_PAGES << Format::PAGE_SHIFT;

/// A CPU that leaves a space is not flushed for it any more, since each flush of another CPU is a
/// call of the firmware and an interrupt; it fences when it enters the space again. With CPUs that
/// stayed, `cowcheck` on four of them took ten times as long in QEMU.
pub const KEEPS: bool = false;

/// The answer of `uname -m`.
pub const MACHINE: &str = "riscv64";

/// Leaves of devices in the kernel's half have no memory type: the machine's physical memory
/// attributes give it, and CPUs without Svpbmt know no other.
pub const DEVICE_FLAGS: Attrs = Attrs::empty();

/// The CPU's features in the auxiliary vector: `AT_HWCAP`, a bit for each letter, and `AT_HWCAP2`.
/// Extensions that are not switched on are left out.
pub fn features() -> (u64, u64) {
    (LETTERS.bytes().fold(0, |bits, letter| bits | 1 << (letter - b'a')), 0)
}

/// Features of the boot CPU that others lack, for the log.
pub fn facts() -> Facts<6> {
    let features = cpu::features();
    Facts([
        ("levels", Format::LEVELS.len() as u64),
        ("tags", tags().into()),
        ("svnapot", features.folds.into()),
        ("sets flags", features.sets_accessed.into()),
        ("zicboz", features.clear_block_bytes.map_or(0, |bytes| bytes as u64)),
        ("sstc", features.alarms.into()),
    ])
}

/// The extensions with one letter that programs may use.
pub const LETTERS: &str = "imafdc";

/// Reads a control and status register.
macro_rules! read_csr {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: all callers read registers for which a read has no effect.
        unsafe {
            core::arch::asm!(
                concat!("csrr {}, ", $name),
                out(reg) value,
                options(nomem, nostack, preserves_flags)
            );
        }
        value
    }};
}

/// Writes a control and status register with `csrw`, sets its bits with `csrs`, clears them with
/// `csrc`. To be used in `unsafe`: the caller argues what it changes.
macro_rules! change_csr {
    ($how:literal, $name:literal, $value:expr) => {
        core::arch::asm!(
            concat!($how, " ", $name, ", {}"),
            in(reg) $value,
            options(nostack, preserves_flags)
        )
    };
}

use {change_csr, read_csr};
