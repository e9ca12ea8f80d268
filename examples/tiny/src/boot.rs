//! The first instructions of each hart: from the firmware's world to Rust at its linked address.
//!
//! OpenSBI enters the boot hart at the image's first byte in supervisor mode, with translation off:
//! a0 is the hart's number, a1 the device tree. It enters the others at `__start_other`; there a1
//! is the CPU's number, which we gave to the firmware. CPUs are numbered from 0, the boot hart
//! first; `tp` holds the number as long as the kernel runs.

use core::arch::{asm, global_asm};

use quire::units::CpuId;

/// The virtual address of physical address 0: the upper half of Sv39.
pub const DIRECT: u64 = 0xffff_ffc0_0000_0000;

/// The CPUs that the kernel has stacks and records for.
pub const CPUS: usize = 2;

/// Stacks have 32 KiB: docs/embedding.md says how much of it the library needs.
const STACK_SHIFT: usize = 15;

global_asm!(
    r#"
    .pushsection .head, "ax"
    .globl  _start
_start:
    lla     t0, __bss_start
    lla     t1, __bss_end
1:  sd      zero, (t0)
    addi    t0, t0, 8
    bltu    t0, t1, 1b
    li      tp, 0
    j       2f
    .globl  __start_other
__start_other:
    mv      tp, a1
2:  lla     t0, __boot_table
    srli    t0, t0, 12
    li      t1, 8 << 60             // satp: Sv39
    or      t0, t0, t1
    sfence.vma
    csrw    satp, t0
    sfence.vma
    li      t1, {direct}            // from here on at the linked address
    lla     t0, 3f
    add     t0, t0, t1
    jr      t0
3:  lla     t0, {trap}
    csrw    stvec, t0
    csrw    sscratch, zero
    lla     sp, __stacks
    addi    t0, tp, 1
    slli    t0, t0, {stack}
    add     sp, sp, t0
    mv      a2, tp
    tail    {enter}
    .popsection

    // 4 GiB as they are and in the upper half, in leaves of 1 GiB with all rights: used until the
    // kernel has tables of its own.
    .pushsection .data.boot, "aw"
    .balign 4096
__boot_table:
    .rept   2
    .quad   0x000000cf, 0x100000cf, 0x200000cf, 0x300000cf
    .skip   252 * 8
    .endr
    .popsection

    .pushsection .stacks, "aw", @nobits
    .balign 16
__stacks:
    .skip   {cpus} << {stack}
    .popsection
"#,
    direct = const DIRECT,
    trap = sym crate::trap::entry,
    stack = const STACK_SHIFT,
    cpus = const CPUS,
    enter = sym crate::enter,
);

unsafe extern "C" {
    fn __start_other();
    static __image_start: u8;
    static __rodata_start: u8;
    static __data_start: u8;
    static __image_end: u8;
}

/// The physical addresses at which the image's parts begin, and where the last one ends: code,
/// constants, data.
pub fn image() -> [u64; 4] {
    [
        &raw const __image_start,
        &raw const __rodata_start,
        &raw const __data_start,
        &raw const __image_end,
    ]
    .map(|place| place.addr() as u64 - DIRECT)
}

/// Starts `hart` as CPU `number`.
pub fn start(hart: usize, number: usize) {
    let entry = __start_other as *const () as usize - DIRECT as usize;
    let started = sbi_rt::hart_start(hart, entry, number);
    assert!(started.is_ok(), "hart {hart} does not start: {started:?}");
}

/// The CPU that runs this.
pub fn cpu() -> CpuId {
    let number: usize;
    // SAFETY: it reads a register, which never changes while kernel code runs.
    unsafe { asm!("mv {}, tp", out(reg) number, options(pure, nomem, nostack, preserves_flags)) };
    CpuId::new(number)
}
