//! The first instructions of each CPU: from the firmware's world to Rust at its linked address.
//!
//! OpenSBI starts the boot CPU at the image's first byte, in supervisor mode: translation is off,
//! a0 is the CPU's number as the firmware counts, a1 the physical address of the device tree.
//! Others begin at [`other_cpu`], with a1 as we gave it to the firmware: our number.
//!
//! ```text
//!   no translation ──► boot tables, identity ──► linked address ──► the kernel's tables
//! ```
//!
//! The boot tables are data of the image: one table of 1 GiB blocks shows the first 256 GiB of
//! physical memory in both halves. Above it are tables whose first and last entries point to the
//! next one, as many as the format has levels beyond three.

use core::arch::global_asm;

use quire::arch::Arch;

use super::{Format, clock, console, cpu, interrupts, mmu, plic, tree};
use crate::isa::Boot;
use crate::isa::virt::cpus;
use crate::isa::virt::stack::STACK_STEP;

/// Tables above the one of 1 GiB blocks.
const UPPER: usize = Format::LEVELS.len() - 3;

/// `sie`: software, timer and external interrupts.
const INTERRUPTS: u64 = 1 << 1 | 1 << 5 | 1 << 9;
/// `scounteren`: programs may read the time.
const COUNTERS: u64 = 1 << 1;
/// `sstatus`: vectors off, floating point in its initial state, no access to programs' memory.
const STATUS: u64 = 1 << 13;
const STATUS_CLEAR: u64 = 3 << 9 | 3 << 13 | 1 << 18 | 1 << 19;

global_asm!(
    r#"
    .pushsection .head, "ax", %progbits
    .globl _start
_start:
    tail    {boot_cpu}
    .popsection

    // A leaf: readable, writable, executable, accessed, dirty.
    .pushsection .data.boot_tables, "aw", %progbits
    .balign 4096
    .skip   2 * 4096
    .globl __boot_blocks
__boot_blocks:
    .rept   2
    .set    block, 0
    .rept   256
    .quad   (block << 28) + 0xcf
    .set    block, block + 1
    .endr
    .endr
    .popsection

    .pushsection .stacks, "aw", %nobits
    .balign 4096
    .globl __stacks
__stacks:
    .skip   {count} * {step}
    .popsection
"#,
    boot_cpu = sym boot_cpu,
    count = const crate::isa::MAX_CPUS,
    step = const STACK_STEP,
);

/// Entered by the firmware, at its physical address.
///
/// # Safety
/// The firmware's alone to enter, with translation off.
#[unsafe(naked)]
unsafe extern "C" fn boot_cpu() -> ! {
    core::arch::naked_asm!(
        "csrw   sie, zero",
        "csrci  sstatus, 2",
        "mv     s1, a0",
        "mv     s2, a1",
        // Nothing of `.bss` is in the image, and stacks need not be zero.
        "lla    t0, __bss_start",
        "lla    t1, __bss_end",
        "1: sd  zero, 0(t0)",
        "addi   t0, t0, 8",
        "bltu   t0, t1, 1b",
        // The tables above the blocks, from below.
        "lla    t0, __boot_blocks",
        "li     t1, {upper}",
        "lui    t4, 1",
        "2: beqz t1, 3f",
        "srli   t2, t0, 2",
        "ori    t2, t2, 1",
        "sub    t0, t0, t4",
        "add    t3, t0, t4",
        "sd     t2, 0(t0)",
        "sd     t2, -8(t3)",
        "addi   t1, t1, -1",
        "j      2b",
        "3: li  s4, 0",
        "lla    s5, 4f",
        "tail   {mmu_on}",
        "4: mv  a0, s2",
        "mv     a1, s1",
        "tail   {enter}",
        upper = const UPPER,
        mmu_on = sym mmu_on,
        enter = sym boot_entered,
    )
}

/// Entered by the firmware, at its physical address: a1 is our number of the CPU.
///
/// # Safety
/// The firmware's alone to enter, with translation off, and once for each CPU.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn other_cpu() -> ! {
    core::arch::naked_asm!(
        "csrw   sie, zero",
        "csrci  sstatus, 2",
        "mv     s4, a1",
        "lla    s5, 4f",
        "tail   {mmu_on}",
        "4: tail {enter}",
        mmu_on = sym mmu_on,
        enter = sym other_entered,
    )
}

/// Turns translation on, sets this CPU up, and goes on at the linked address of s5.
///
/// s4: the CPU's number. Keeps s1 and s2. A CPU that does not know the format ignores the write of
/// `satp`: then the firmware writes a sentence and ends the machine.
///
/// # Safety
/// To be called on the way up alone, with the boot tables written.
#[unsafe(naked)]
unsafe extern "C" fn mmu_on() -> ! {
    core::arch::naked_asm!(
        "lla    t0, __boot_blocks",
        "li     t1, {upper} * 4096",
        "sub    t0, t0, t1",
        "srli   t0, t0, 12",
        "li     t1, {mode} << 60",
        "or     t0, t0, t1",
        "sfence.vma",
        "csrw   satp, t0",
        "csrr   t1, satp",
        "bne    t0, t1, 1f",
        "sfence.vma",
        "li     t2, {direct}",
        "add    s5, s5, t2",
        "lla    t0, {entry}",
        "add    t0, t0, t2",
        "csrw   stvec, t0",
        "csrw   sscratch, zero",
        "lla    sp, __stacks",
        "add    sp, sp, t2",
        "li     t0, {step}",
        "mul    t1, s4, t0",
        "add    sp, sp, t1",
        "add    sp, sp, t0",
        "lla    tp, {locals}",
        "add    tp, tp, t2",
        "li     t0, {local}",
        "mul    t1, s4, t0",
        "add    tp, tp, t1",
        "sd     s4, 0(tp)",
        "li     t0, {status_clear}",
        "csrc   sstatus, t0",
        "li     t0, {status}",
        "csrs   sstatus, t0",
        "li     t0, {counters}",
        "csrw   scounteren, t0",
        "li     t0, {interrupts}",
        "csrw   sie, t0",
        "li     s0, 0",
        "li     ra, 0",
        "jr     s5",
        "1: li  a0, {sentence_bytes}",
        "lla    a1, {sentence}",
        "li     a2, 0",
        "li     a6, 0",
        "li     a7, 0x4442434e", // the debug console: write
        "ecall",
        "li     a0, 0",
        "li     a1, 1",
        "li     a6, 0",
        "li     a7, 0x53525354", // system reset: shut down
        "ecall",
        "2: wfi",
        "j      2b",
        upper = const UPPER,
        mode = const mmu::MODE,
        direct = const super::DIRECT,
        entry = sym super::vectors::entry,
        step = const STACK_STEP,
        locals = sym cpu::LOCALS,
        local = const size_of::<cpu::Local>(),
        status_clear = const STATUS_CLEAR,
        status = const STATUS,
        counters = const COUNTERS,
        interrupts = const INTERRUPTS,
        sentence = sym SENTENCE,
        sentence_bytes = const SENTENCE.len(),
    )
}

/// The last words where the CPU lacks the format.
static SENTENCE: [u8; 54] = *b"[quire] this CPU has no page tables of as many levels\n";

/// The boot CPU, in Rust, on its stack: `tree` is the device tree's physical address, `hart` the
/// firmware's number of this CPU.
extern "C" fn boot_entered(tree: u64, hart: u64) -> ! {
    let found = tree::read(tree, hart);
    console::set_up(&found.machine);
    clock::set_up(&found.machine);
    cpu::set_up(found.machine);
    plic::set_up();
    crate::start(Boot {
        ram: found.ram,
        image: mmu::image(),
        initrd: found.initrd,
        keep: found.keep,
        command_line: found.command_line,
    })
}

/// Another CPU, in Rust, on its stack.
extern "C" fn other_entered() -> ! {
    mmu::leave(true);
    mmu::flush_own();
    interrupts::clear_wake();
    cpu::use_features();
    cpus::begun()
}
