//! User mode: into a program, and back at its next trap.
//!
//! While a program runs, `sscratch` points at its context, where the entry saves its registers; in
//! the kernel it is 0. Interrupts stay off: the firmware obeys flushes in machine mode, and this
//! kernel has no timer. A trap of the kernel itself is a mistake.

use core::arch::naked_asm;

use riscv::register::{scause, sepc, stval};

/// A program's registers x0 to x31, and the kernel's stack: the place of x0, which is always 0, has
/// the program counter.
pub type Context = [u64; 33];

/// The place of register a0 in it.
pub const A0: usize = 10;

/// A program that begins at `pc` with `args` in a0 to a2.
pub fn context(pc: u64, args: [u64; 3]) -> Context {
    let mut context = [0; 33];
    context[0] = pc;
    context[A0..A0 + 3].copy_from_slice(&args);
    context
}

/// Runs a program in user mode, under this CPU's root, until its next trap, which
/// `scause` and `stval` describe.
#[unsafe(naked)]
pub extern "C" fn enter(context: &mut Context) {
    naked_asm!(
        "addi   sp, sp, -112", // what a call keeps, and tp
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11; sd s\\n, 8*\\n(sp); .endr",
        "sd     ra, 96(sp)",
        "sd     tp, 104(sp)",
        "sd     sp, 256(a0)",
        "ld     t0, 0(a0)",
        "csrw   sepc, t0",
        "li     t0, 1 << 8", // sstatus.SPP: sret goes to user mode
        "csrc   sstatus, t0",
        "csrw   sscratch, a0",
        ".irp n, 1,2,3,4,5,6,7,8,9,11,12,13,14,15,16; ld x\\n, 8*\\n(a0); .endr",
        ".irp n, 17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,10; ld x\\n, 8*\\n(a0); .endr",
        "sret",
    )
}

/// Entered by each trap: the end of `enter`.
#[unsafe(naked)]
pub extern "C" fn entry() {
    naked_asm!(
        ".balign 4",
        "csrrw  a0, sscratch, a0",
        "beqz   a0, 2f",
        ".irp n, 1,2,3,4,5,6,7,8,9,11,12,13,14,15,16; sd x\\n, 8*\\n(a0); .endr",
        ".irp n, 17,18,19,20,21,22,23,24,25,26,27,28,29,30,31; sd x\\n, 8*\\n(a0); .endr",
        "csrr   t0, sepc",
        "sd     t0, 0(a0)",
        "csrrw  t0, sscratch, zero",
        "sd     t0, 80(a0)",
        "ld     sp, 256(a0)",
        ".irp n, 0,1,2,3,4,5,6,7,8,9,10,11; ld s\\n, 8*\\n(sp); .endr",
        "ld     ra, 96(sp)",
        "ld     tp, 104(sp)",
        "addi   sp, sp, 112",
        "ret",
        "2: j   {mistake}",
        mistake = sym mistake,
    )
}

extern "C" fn mistake() -> ! {
    let (pc, cause, address) = (sepc::read(), scause::read().code(), stval::read());
    panic!("a trap of the kernel at {pc:#x}: cause {cause}, address {address:#x}")
}
