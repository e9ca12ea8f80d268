//! User mode: into a program, and back at its next trap.
//!
//! While a program runs, `sscratch` points at its context, where the entry saves its registers; in
//! the kernel it is 0. Interrupts stay off: the firmware obeys flushes in machine mode, and this
//! kernel has no timer. A trap of the kernel itself is a mistake.

use core::arch::global_asm;

use quire::units::Access;

/// A program's registers.
#[repr(C)]
pub struct Context {
    /// x0 to x31; x0 is not used.
    regs: [u64; 32],
    pc: u64,
    kernel_sp: u64,
}

impl Context {
    /// A program that begins at `pc` with `args` in a0 to a2.
    pub fn new(pc: u64, args: [u64; 3]) -> Self {
        let mut regs = [0; 32];
        regs[10..13].copy_from_slice(&args);
        Self { regs, pc, kernel_sp: 0 }
    }
}

/// The reason why a program stopped.
pub enum Trap {
    /// It calls the kernel, with this in a0.
    Call(u64),
    /// There is no translation for this access to this address.
    Fault(u64, Access),
    /// Anything else: the number of the cause.
    Other(u64),
}

/// Runs the program until its next trap.
pub fn enter(context: &mut Context) -> Trap {
    // SAFETY: the context is ours alone, and outlives the call; the program runs in user mode, with
    // a space whose upper half is the kernel's.
    let Cause { number, address } = unsafe { __enter(context) };
    match number {
        8 => Trap::Call(context.regs[10]),
        12 => Trap::Fault(address, Access::Execute),
        13 => Trap::Fault(address, Access::Read),
        15 => Trap::Fault(address, Access::Write),
        cause => Trap::Other(cause),
    }
}

/// `scause` and `stval`: a0 and a1 at the end of `__enter`.
#[repr(C)]
struct Cause {
    number: u64,
    address: u64,
}

unsafe extern "C" {
    fn __enter(context: &mut Context) -> Cause;
    #[link_name = "__trap"]
    pub fn entry();
}

global_asm!(
    r#"
    .pushsection .text.trap, "ax"
    .globl  __enter
__enter:
    addi    sp, sp, -112                // what a call keeps, and tp
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11
    sd      s\n, 8*\n(sp)
    .endr
    sd      ra, 96(sp)
    sd      tp, 104(sp)
    sd      sp, 264(a0)
    ld      t0, 256(a0)
    csrw    sepc, t0
    li      t0, 1 << 8                  // sstatus.SPP: sret goes to user mode
    csrc    sstatus, t0
    csrw    sscratch, a0
    .irp n, 1,2,3,4,5,6,7,8,9,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,10
    ld      x\n, 8*\n(a0)
    .endr
    sret

    .balign 4
    .globl  __trap
__trap:
    csrrw   a0, sscratch, a0
    beqz    a0, 1f
    .irp n, 1,2,3,4,5,6,7,8,9,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    sd      x\n, 8*\n(a0)
    .endr
    csrr    t0, sepc
    sd      t0, 256(a0)
    csrrw   t0, sscratch, zero
    sd      t0, 80(a0)
    ld      sp, 264(a0)
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11
    ld      s\n, 8*\n(sp)
    .endr
    ld      ra, 96(sp)
    ld      tp, 104(sp)
    addi    sp, sp, 112
    csrr    a0, scause
    csrr    a1, stval
    ret
1:  csrr    a0, scause
    csrr    a1, sepc
    csrr    a2, stval
    j       {mistake}
    .popsection
"#,
    mistake = sym mistake,
);

extern "C" fn mistake(cause: u64, pc: u64, address: u64) -> ! {
    panic!("a trap of the kernel at {pc:#x}: cause {cause}, address {address:#x}")
}
