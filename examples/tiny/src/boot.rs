//! The first instructions of each hart: from the firmware's world to Rust at its linked address.
//!
//! OpenSBI enters each hart in supervisor mode, with translation off: a0 is the hart's number. The
//! boot hart begins at the image's first byte, and a1 is the device tree; the others begin there,
//! too, since we say so, and a1 is the number that we gave to the firmware. CPUs are numbered from
//! 0, the boot hart first; `tp` holds the number as long as the kernel runs. The loader has written
//! zeroes to `.bss`, as ELF prescribes.

use core::arch::{asm, naked_asm};

use quire::units::CpuId;

/// The virtual address of physical address 0: the upper half of Sv39.
pub const DIRECT: usize = 0xffff_ffc0_0000_0000;

/// The end of what the boot table shows: 256 GiB.
pub const REACH: u64 = 1 << 38;

/// The CPUs that the kernel has stacks and records for.
pub const CPUS: usize = 2;

/// Stacks have 32 KiB: docs/embedding.md says how much of it the library needs.
const STACK_SHIFT: usize = 15;

#[repr(C, align(4096))]
struct Aligned<T>(T);

static mut STACKS: Aligned<[[u8; 1 << STACK_SHIFT]; CPUS]> = Aligned([[0; 1 << STACK_SHIFT]; CPUS]);

/// Physical memory up to `REACH`, as it is and in the upper half, in leaves of 1 GiB with all
/// rights: used until the kernel has tables of its own.
static TABLE: Aligned<[[u64; 256]; 2]> = {
    let (mut leaves, mut gib) = ([0; 256], 0);
    while gib < 256 {
        leaves[gib] = (gib as u64) << 28 | 0xcf;
        gib += 1;
    }
    Aligned([leaves; 2])
};

#[unsafe(naked)]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".head")]
extern "C" fn _start() -> ! {
    naked_asm!(
        "mv     tp, a1",
        "li     t0, {cpus}",
        "bltu   a1, t0, 2f",
        "li     tp, 0",
        "2: lla t0, {table}",
        "srli   t0, t0, 12",
        "li     t1, 8 << 60",   // satp: Sv39
        "or     t0, t0, t1",
        "csrw   satp, t0",
        "sfence.vma",
        "li     t1, {direct}",  // from here on at the linked address
        "lla    t0, 3f",
        "add    t0, t0, t1",
        "jr     t0",
        "3: lla t0, {trap}",
        "csrw   stvec, t0",
        "csrw   sscratch, zero",
        "lla    sp, {stacks}",
        "addi   t0, tp, 1",
        "slli   t0, t0, {stack}",
        "add    sp, sp, t0",
        "tail   {enter}",
        cpus = const CPUS,
        table = sym TABLE,
        direct = const DIRECT,
        trap = sym crate::trap::entry,
        stacks = sym STACKS,
        stack = const STACK_SHIFT,
        enter = sym crate::enter,
    )
}

unsafe extern "C" {
    /// The physical addresses at which the image's code, constants and data begin, and where they
    /// end.
    pub safe static PARTS: [u64; 4];
}

/// The CPU that runs this.
pub fn cpu() -> CpuId {
    let number: usize;
    // SAFETY: it reads a register, which never changes while kernel code runs.
    unsafe { asm!("mv {}, tp", out(reg) number, options(pure, nomem, nostack, preserves_flags)) };
    CpuId::new(number)
}
