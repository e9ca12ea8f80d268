//! Traps: in and out of user mode, and within the kernel.
//!
//! ```text
//!   enter_user ──► sret ──► the program ──► entry ──► back in enter_user's caller
//!     saves the kernel's registers on its stack;        restores them, as a return would
//!     sscratch is the context, so the entry can save there at once
//! ```
//!
//! Within the kernel `sscratch` is 0, and `tp` points at the CPU's own words. A trap in the kernel
//! pushes what a call would not keep, as a frame record, so that a backtrace goes through it.

use core::arch::{global_asm, naked_asm};

use super::context::{Context, KERNEL_SP_AT, PC_AT};
use super::{USER_END, interrupts, read_csr, trap};
use crate::isa::virt::copy;
use crate::isa::virt::stack::{self, SPARE, SPARE_BYTES};

/// `sstatus`: the interrupts and the mode of the program that `sret` goes to; access to programs'
/// memory.
const PREVIOUS_INTERRUPTS: u64 = 1 << 5;
const PREVIOUS_MODE: u64 = 1 << 8;
pub(super) const USER_ACCESS: u64 = 1 << 18;

/// Bytes of a [`Frame`].
const FRAME: usize = 160;

/// The registers that a trap within the kernel saves.
#[repr(C)]
struct Frame {
    /// ra, t0 to t6, a0 to a7.
    regs: [u64; 16],
    status: u64,
    reserved: u64,
    /// s0, and where to go on: a frame record.
    record: [u64; 2],
}

const _: () = assert!(size_of::<Frame>() == FRAME);

/// Runs the program; returns the cause of its trap. Does not touch floating point.
///
/// # Safety
/// Interrupts are off; they are afterwards, too. The caller alone uses the context.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn enter_user(context: &mut Context) -> u64 {
    naked_asm!(
        "addi   sp, sp, -112",
        "sd     ra, 0(sp)",
        "sd     tp, 8(sp)",
        "sd     s0, 16(sp)",
        "sd     s1, 24(sp)",
        "sd     s2, 32(sp)",
        "sd     s3, 40(sp)",
        "sd     s4, 48(sp)",
        "sd     s5, 56(sp)",
        "sd     s6, 64(sp)",
        "sd     s7, 72(sp)",
        "sd     s8, 80(sp)",
        "sd     s9, 88(sp)",
        "sd     s10, 96(sp)",
        "sd     s11, 104(sp)",
        "sd     sp, {kernel_sp}(a0)",
        "ld     t0, {pc}(a0)",
        "li     t1, {previous_mode}",
        "li     t2, {previous_interrupts}",
        "csrw   sepc, t0",
        "csrc   sstatus, t1",
        "csrs   sstatus, t2",
        "csrw   sscratch, a0",
        // No other thread's reservation: word 0 of the registers is 0 in any case.
        ".option push",
        ".option arch, +a",
        "sc.d   zero, zero, (a0)",
        ".option pop",
        "ld     ra, 8(a0)",
        "ld     sp, 16(a0)",
        "ld     gp, 24(a0)",
        "ld     tp, 32(a0)",
        "ld     t0, 40(a0)",
        "ld     t1, 48(a0)",
        "ld     t2, 56(a0)",
        "ld     s0, 64(a0)",
        "ld     s1, 72(a0)",
        "ld     a1, 88(a0)",
        "ld     a2, 96(a0)",
        "ld     a3, 104(a0)",
        "ld     a4, 112(a0)",
        "ld     a5, 120(a0)",
        "ld     a6, 128(a0)",
        "ld     a7, 136(a0)",
        "ld     s2, 144(a0)",
        "ld     s3, 152(a0)",
        "ld     s4, 160(a0)",
        "ld     s5, 168(a0)",
        "ld     s6, 176(a0)",
        "ld     s7, 184(a0)",
        "ld     s8, 192(a0)",
        "ld     s9, 200(a0)",
        "ld     s10, 208(a0)",
        "ld     s11, 216(a0)",
        "ld     t3, 224(a0)",
        "ld     t4, 232(a0)",
        "ld     t5, 240(a0)",
        "ld     t6, 248(a0)",
        "ld     a0, 80(a0)",
        "sret",
        kernel_sp = const KERNEL_SP_AT,
        pc = const PC_AT,
        previous_mode = const PREVIOUS_MODE,
        previous_interrupts = const PREVIOUS_INTERRUPTS,
    )
}

unsafe extern "C" {
    /// Where all traps go: `stvec`.
    #[link_name = "__trap_entry"]
    pub(super) fn entry();
}

// A trap of a program saves its registers in the context, and returns from `enter_user`. One of the
// kernel pushes a frame; a fault near the stack pointer is the stack's end.
global_asm!(
    r#"
    .pushsection .text.trap_entry, "ax", %progbits
    .balign 64
    .globl  __trap_entry
__trap_entry:
    csrrw   sp, sscratch, sp
    beqz    sp, 1f
    sd      ra, 8(sp)
    sd      gp, 24(sp)
    sd      tp, 32(sp)
    sd      t0, 40(sp)
    sd      t1, 48(sp)
    sd      t2, 56(sp)
    sd      s0, 64(sp)
    sd      s1, 72(sp)
    sd      a0, 80(sp)
    sd      a1, 88(sp)
    sd      a2, 96(sp)
    sd      a3, 104(sp)
    sd      a4, 112(sp)
    sd      a5, 120(sp)
    sd      a6, 128(sp)
    sd      a7, 136(sp)
    sd      s2, 144(sp)
    sd      s3, 152(sp)
    sd      s4, 160(sp)
    sd      s5, 168(sp)
    sd      s6, 176(sp)
    sd      s7, 184(sp)
    sd      s8, 192(sp)
    sd      s9, 200(sp)
    sd      s10, 208(sp)
    sd      s11, 216(sp)
    sd      t3, 224(sp)
    sd      t4, 232(sp)
    sd      t5, 240(sp)
    sd      t6, 248(sp)
    csrrw   t0, sscratch, zero
    csrr    t1, sepc
    csrr    a0, scause
    sd      t0, 16(sp)
    sd      t1, {pc}(sp)
    ld      sp, {kernel_sp}(sp)
    ld      ra, 0(sp)
    ld      tp, 8(sp)
    ld      s0, 16(sp)
    ld      s1, 24(sp)
    ld      s2, 32(sp)
    ld      s3, 40(sp)
    ld      s4, 48(sp)
    ld      s5, 56(sp)
    ld      s6, 64(sp)
    ld      s7, 72(sp)
    ld      s8, 80(sp)
    ld      s9, 88(sp)
    ld      s10, 96(sp)
    ld      s11, 104(sp)
    addi    sp, sp, 112
    ret

1:  csrrw   sp, sscratch, sp
    sd      t0, 8(tp)
    sd      t1, 16(tp)
    csrr    t0, stval
    sub     t0, sp, t0
    lui     t1, 2
    add     t0, t0, t1
    srli    t0, t0, 14
    beqz    t0, 2f
    ld      t0, 8(tp)
    ld      t1, 16(tp)
    addi    sp, sp, -{frame}
    sd      ra, 0(sp)
    sd      t0, 8(sp)
    sd      t1, 16(sp)
    sd      t2, 24(sp)
    sd      t3, 32(sp)
    sd      t4, 40(sp)
    sd      t5, 48(sp)
    sd      t6, 56(sp)
    sd      a0, 64(sp)
    sd      a1, 72(sp)
    sd      a2, 80(sp)
    sd      a3, 88(sp)
    sd      a4, 96(sp)
    sd      a5, 104(sp)
    sd      a6, 112(sp)
    sd      a7, 120(sp)
    csrr    t0, sstatus
    csrr    t1, sepc
    li      t2, {user_access}
    csrc    sstatus, t2
    sd      t0, 128(sp)
    sd      s0, 144(sp)
    sd      t1, 152(sp)
    addi    s0, sp, {frame}
    mv      a0, sp
    csrr    a1, scause
    csrr    a2, stval
    call    {kernel}
    ld      t0, 128(sp)
    ld      t1, 152(sp)
    csrw    sstatus, t0
    csrw    sepc, t1
    ld      s0, 144(sp)
    ld      ra, 0(sp)
    ld      t0, 8(sp)
    ld      t1, 16(sp)
    ld      t2, 24(sp)
    ld      t3, 32(sp)
    ld      t4, 40(sp)
    ld      t5, 48(sp)
    ld      t6, 56(sp)
    ld      a0, 64(sp)
    ld      a1, 72(sp)
    ld      a2, 80(sp)
    ld      a3, 88(sp)
    ld      a4, 96(sp)
    ld      a5, 104(sp)
    ld      a6, 112(sp)
    ld      a7, 120(sp)
    addi    sp, sp, {frame}
    sret

2:  lla     sp, {spare}
    li      t0, {spare_bytes}
    add     sp, sp, t0
    call    {overflow}
    .popsection
"#,
    pc = const PC_AT,
    kernel_sp = const KERNEL_SP_AT,
    frame = const FRAME,
    user_access = const USER_ACCESS,
    kernel = sym kernel_trap,
    overflow = sym stack_overflow,
    spare = sym SPARE,
    spare_bytes = const SPARE_BYTES,
);

/// A trap in the kernel: an interrupt is served; a fault of a copy is resolved or fixed up, any
/// other exception is our mistake. With interrupts off before and afterwards.
extern "C" fn kernel_trap(frame: &mut Frame, cause: u64, address: u64) {
    if let Some(interrupt) = trap::interrupt_of(cause) {
        return interrupts::serve_in_kernel(interrupt);
    }
    let pc = frame.record[1];
    let rest = copy::fix_up(pc).filter(|_| address < USER_END);
    if let Some(rest) = rest.filter(|_| trap::is_refused(cause)) {
        // A device that a program maps refuses the size in which copies read and write.
        frame.record[1] = rest;
        return;
    }
    let (Some(access), Some(rest)) = (trap::page_fault(cause), rest) else {
        panic!("exception in the kernel at {pc:#x}: cause {cause}, stval {address:#x}")
    };
    interrupts::unmask();
    let resolved = crate::disk::resolve(address, access);
    interrupts::mask();
    if !resolved {
        frame.record[1] = rest;
    }
}

extern "C" fn stack_overflow() -> ! {
    let (pc, address) = (read_csr!("sepc"), read_csr!("stval"));
    panic!("the kernel's stack is full at {pc:#x}: it ends above {address:#x}")
}

/// Calls `visit` with the return addresses of the calling chain, innermost first. A frame record
/// ends where the frame pointer points.
pub fn frames(visit: &mut dyn FnMut(u64)) {
    const RECORD: u64 = 16;
    let pointer: u64;
    // SAFETY: it reads a register.
    unsafe {
        core::arch::asm!("mv {}, s0", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    stack::walk(pointer.wrapping_sub(RECORD), -(RECORD as i64), visit);
}
