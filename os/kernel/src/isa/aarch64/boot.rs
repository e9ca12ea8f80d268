//! The first instructions of each CPU: from the loader's world to Rust at its linked address.
//!
//! The image begins with the 64-byte header of the arm64 boot protocol, which promises: the MMU is
//! off, x0 is the physical address of the device tree. Others begin with x0 as we gave it to
//! PSCI: the physical address of the kernel's root, with the CPU's number in the bits below it.
//!
//! ```text
//!   MMU off, at physical addresses ──► MMU on, identity by TTBR0 ──► linked address by TTBR1
//! ```
//!
//! The first tables are data of the image: one table of 1 GiB blocks, used for both halves. Block 0
//! is where `virt` has its devices, all others are taken for RAM.

use core::arch::global_asm;

use crate::isa::Boot;
use crate::isa::virt::cpus;
use crate::isa::virt::stack::STACK_STEP;

use super::{clock, console, cpu, gic, mmu, tree};

global_asm!(
    r#"
    .pushsection .head, "ax", %progbits
    .globl _start
_start:
    b       {boot_cpu}
    .long   0
    .quad   0                           // offset of the image from a multiple of 2 MiB
    .quad   __image_bytes
    .quad   2                           // little-endian, 4 KiB pages, low in RAM
    .quad   0, 0, 0
    .ascii  "ARM\x64"
    .long   0
    .popsection
"#,
    boot_cpu = sym boot_cpu,
);

// One leaf: inner shareable (3 << 8), accessed (1 << 10), not for programs to execute (1 << 54).
// Devices are of memory type 1 (1 << 2), and the kernel does not execute them either (1 << 53).
global_asm!(
    r#"
    .pushsection .data.boot_tables, "aw", %progbits
    .balign 4096
    .globl __boot_root
__boot_root:
    .quad   __boot_blocks - {direct} + 3
    .fill   511, 8, 0
__boot_blocks:
    .quad   0x0060000000000705
    .set    block, 1
    .rept   511
    .quad   0x0040000000000701 + (block << 30)
    .set    block, block + 1
    .endr
    .popsection

    .pushsection .stacks, "aw", %nobits
    .balign 4096
    .globl __stacks
__stacks:
    .skip   {count} * {step}
    .popsection
"#,
    direct = const super::DIRECT,
    count = const crate::isa::MAX_CPUS,
    step = const STACK_STEP,
);

/// Entered by the loader, at its physical address: x0 is the device tree's.
///
/// # Safety
/// The loader's alone to enter, with the MMU off.
#[unsafe(naked)]
unsafe extern "C" fn boot_cpu() -> ! {
    core::arch::naked_asm!(
        "msr    daifset, #0xf",
        "mov    x20, x0",
        "bl     {drop}",
        // Nothing of `.bss` is in the image, and stacks need not be zero.
        "adrp   x1, __bss_start",
        "adrp   x2, __bss_end",
        "1: stp xzr, xzr, [x1], #16",
        "cmp    x1, x2",
        "b.lo   1b",
        "adrp   x21, __boot_root",
        "mov    x22, xzr",
        "adr    x23, 2f",
        "b      {mmu_on}",
        "2: mov x0, x20",
        "bl     {enter}",
        drop = sym drop_to_el1,
        mmu_on = sym mmu_on,
        enter = sym boot_entered,
    )
}

/// Entered by PSCI, at its physical address: x0 is the kernel's root, and below it the CPU.
///
/// # Safety
/// PSCI's alone to enter, with the MMU off, and once for each CPU.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn other_cpu() -> ! {
    core::arch::naked_asm!(
        "msr    daifset, #0xf",
        "mov    x20, x0",
        "bl     {drop}",
        "and    x22, x20, #0xfff",
        "bic    x21, x20, #0xfff",
        "adr    x23, 2f",
        "b      {mmu_on}",
        "2: mov x0, x22",
        "bl     {enter}",
        drop = sym drop_to_el1,
        mmu_on = sym mmu_on,
        enter = sym other_entered,
    )
}

/// Where EL2 runs us, goes on at EL1 with nothing trapped; else nothing. Changes x0 and x1.
///
/// HCR: EL1 is 64-bit. CNTHCTL: its counters and timers are free. CPTR: so are vectors. ICC_SRE:
/// so are the system registers of the interrupt controller, if it has any. HCRX: so are MOPS, where
/// they are.
///
/// # Safety
/// To be called on the way up alone, with the MMU off; changes x registers that are not in use yet.
#[unsafe(naked)]
unsafe extern "C" fn drop_to_el1() {
    core::arch::naked_asm!(
        "mrs    x0, CurrentEL",
        "cmp    x0, #8",
        "b.ne   2f",
        "mov    x0, #0x80000000",
        "msr    hcr_el2, x0",
        "mov    x0, #3",
        "msr    cnthctl_el2, x0",
        "msr    cntvoff_el2, xzr",
        "mov    x0, #0x33ff",
        "msr    cptr_el2, x0",
        "mrs    x0, id_aa64pfr0_el1",
        "ubfx   x0, x0, #24, #4",
        "cbz    x0, 3f",
        "mov    x0, #0xf",
        "msr    s3_4_c12_c9_5, x0", // ICC_SRE_EL2
        "isb",
        "3: mrs x0, midr_el1",
        "msr    vpidr_el2, x0",
        "mrs    x0, mpidr_el1",
        "msr    vmpidr_el2, x0",
        "mrs    x0, id_aa64mmfr1_el1",
        "ubfx   x0, x0, #40, #4",
        "cbz    x0, 1f",
        "mov    x0, #0x800",       // MSCEn
        "msr    s3_4_c1_c2_2, x0", // HCRX_EL2
        "1: mov x0, #0x3c5",
        "msr    spsr_el2, x0",
        "msr    elr_el2, x30",
        "eret",
        "2: ret",
    )
}

/// Turns the MMU on, sets this CPU up, and goes on at the linked address of x23.
///
/// x21: the physical address of the root for TTBR1. x22: the CPU's number. Keeps x20 and x22.
///
/// MAIR: index 0 is normal memory, write-back; index 1 is Device-nGnRE; index 2
/// is normal memory, not cached. CPACR: vectors are free.
/// CNTKCTL: programs may read the virtual counter.
///
/// # Safety
/// To be called on the way up alone, with the boot tables written.
#[unsafe(naked)]
unsafe extern "C" fn mmu_on() -> ! {
    core::arch::naked_asm!(
        "mov    x0, #0x04ff",
        "movk   x0, #0x44, lsl #16",
        "msr    mair_el1, x0",
        "mov    x0, #0x300000",
        "msr    cpacr_el1, x0",
        "mov    x0, #2",
        "msr    cntkctl_el1, x0",
        "msr    mdscr_el1, xzr",
        "bl     {tcr}",
        "msr    tcr_el1, x0",
        "adrp   x0, __boot_root",
        "msr    ttbr0_el1, x0",
        "msr    ttbr1_el1, x21",
        "tlbi   vmalle1",
        "dsb    nsh",
        "isb",
        "bl     {sctlr}",
        "msr    sctlr_el1, x0",
        "isb",
        "ic     iallu",
        "dsb    nsh",
        "isb",
        "movz   x0, #{direct_top}, lsl #48",
        "orr    x23, x23, x0",
        "adrp   x1, {vectors}",
        "add    x1, x1, :lo12:{vectors}",
        "orr    x1, x1, x0",
        "msr    vbar_el1, x1",
        "adrp   x1, __stacks",
        "orr    x1, x1, x0",
        "ldr    x0, ={step}",
        "madd   x1, x22, x0, x1",
        "add    sp, x1, x0",
        "msr    tpidr_el1, x22",
        "msr    tpidrro_el0, xzr",
        "mov    x29, xzr",
        "mov    x30, xzr",
        "isb",
        "br     x23",
        tcr = sym translation_control,
        sctlr = sym system_control,
        vectors = sym super::vectors::table,
        direct_top = const super::DIRECT >> 48,
        step = const STACK_STEP,
    )
}

/// TCR_EL1 for this CPU in x0. Changes x1 to x3.
///
/// Fixed: 48 bits in both halves (T0SZ, T1SZ = 16), 4 KiB granules (TG1 = 2), walks inner-shareable
/// and write-back. Of the CPU: IPS (up to 48 bits), AS (16-bit ASIDs), HA, HD (it sets the accessed
/// flag, and the dirty state).
///
/// # Safety
/// To be called on the way up alone: it keeps to registers that its callers do not.
#[unsafe(naked)]
unsafe extern "C" fn translation_control() -> u64 {
    core::arch::naked_asm!(
        "ldr    x0, =0xb5103510",
        "mrs    x1, id_aa64mmfr0_el1",
        "and    x2, x1, #0xf",
        "cmp    x2, #5",
        "mov    x3, #5",
        "csel   x2, x2, x3, ls",
        "orr    x0, x0, x2, lsl #32",
        "ubfx   x2, x1, #4, #4",
        "cmp    x2, #2",
        "cset   x2, eq",
        "orr    x0, x0, x2, lsl #36",
        "mrs    x1, id_aa64mmfr1_el1",
        "and    x1, x1, #0xf",
        "cmp    x1, #1",
        "cset   x2, hs",
        "orr    x0, x0, x2, lsl #39",
        "cmp    x1, #2",
        "cset   x2, hs",
        "orr    x0, x0, x2, lsl #40",
        "ret",
    )
}

/// SCTLR_EL1 for this CPU in x0. Changes x1.
///
/// The bits that older CPUs want as 1, among them SPAN: exceptions leave PAN alone, which is off.
/// M, C, I; SA, SA0: stack pointers are aligned; for programs: DZE, UCT, UCI (`dc zva`, `ctr_el0`,
/// cache maintenance), nTWI, nTWE (they may wait), and MSCEn where there are MOPS.
///
/// # Safety
/// To be called on the way up alone: it keeps to registers that its callers do not.
#[unsafe(naked)]
unsafe extern "C" fn system_control() -> u64 {
    core::arch::naked_asm!(
        "ldr    x0, =0x34d5d81d",
        "mrs    x1, s3_0_c0_c6_2", // ID_AA64ISAR2_EL1
        "ubfx   x1, x1, #16, #4",
        "cmp    x1, #0",
        "cset   x1, ne",
        "orr    x0, x0, x1, lsl #33",
        "ret",
    )
}

/// The boot CPU, in Rust, on its stack: `tree` is the device tree's physical address.
extern "C" fn boot_entered(tree: u64) -> ! {
    let found = tree::read(tree);
    console::set_up(&found.machine);
    clock::set_up(found.machine.rtc);
    cpu::set_up(found.machine);
    gic::set_up();
    mmu::leave(false);
    unmask_errors();
    crate::start(Boot {
        ram: found.ram,
        image: mmu::image(),
        initrd: found.initrd,
        keep: found.keep,
        command_line: found.command_line,
    })
}

/// Another CPU, in Rust, on its stack.
extern "C" fn other_entered(_number: u64) -> ! {
    mmu::leave(false);
    gic::set_up_cpu();
    unmask_errors();
    cpus::begun()
}

/// Unmasks asynchronous errors: they are reported, though not handled.
fn unmask_errors() {
    // SAFETY: the vectors are in place.
    unsafe { core::arch::asm!("msr daifclr, #4", options(nostack, preserves_flags)) };
}
