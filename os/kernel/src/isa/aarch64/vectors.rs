//! Exceptions: in and out of user mode, and within the kernel.
//!
//! ```text
//!   enter_user ──► eret ──► the program ──► vector ──► leave_user ──► back in enter_user's caller
//!     saves the kernel's registers on its stack;        restores them, as a return would
//!     SP_EL1 is the context, so the vector can save there at once
//! ```
//!
//! Within the kernel SP_EL1 is the CPU's stack, and SP_EL0 is free: the vectors use it as a spare
//! register. An exception in the kernel pushes what a call would not keep, as a frame record, so
//! that a backtrace goes through it.

use core::arch::{global_asm, naked_asm};

use super::context::{Context, KERNEL_SP_AT, PC_AT, SP_AT, THREAD_AT};
use super::{USER_END, gic, read_register, trap};
use crate::isa::virt::copy;
use crate::isa::virt::stack::{self, SPARE, SPARE_BYTES};

/// [`enter_user`] returns this for an interrupt, in place of a syndrome.
pub(super) const INTERRUPTED: u64 = u64::MAX;
/// It returns this for an asynchronous error.
pub(super) const BROKEN: u64 = u64::MAX - 1;

/// The flags of PSTATE that are a program's: NZCV, TCO, DIT, SSBS, BTYPE. The others would be
/// ours: its exception level, and which interrupts are off.
const PSTATE_LOW: u64 = 0x1c00;
const PSTATE_HIGH: u64 = 0xf300;

/// Bytes of a [`Frame`].
const FRAME: usize = 192;

/// The registers that an exception within the kernel saves.
#[repr(C)]
struct Frame {
    /// x0 to x18, and x30.
    regs: [u64; 20],
    /// x29, and where to go on: a frame record.
    record: [u64; 2],
    pstate: u64,
    reserved: u64,
}

const _: () = assert!(size_of::<Frame>() == FRAME);

/// Runs the program; returns the syndrome of what it stopped at, or one of the two above. Does not
/// touch vector registers.
///
/// # Safety
/// Interrupts are off; they are afterwards, too. The caller alone uses the context.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn enter_user(context: &mut Context) -> u64 {
    naked_asm!(
        "stp    x29, x30, [sp, #-96]!",
        "mov    x29, sp",
        "stp    x19, x20, [sp, #16]",
        "stp    x21, x22, [sp, #32]",
        "stp    x23, x24, [sp, #48]",
        "stp    x25, x26, [sp, #64]",
        "stp    x27, x28, [sp, #80]",
        "ldr    x4, [x0, #{thread}]",
        "str    x29, [x0, #{kernel_sp}]",
        "mov    sp, x0",
        "ldp    x30, x1, [sp, #{sp}]",
        "ldp    x2, x3, [sp, #{pc}]",
        "mov    w5, #{pstate_low}",
        "movk   w5, #{pstate_high}, lsl #16",
        "and    x3, x3, x5",
        "msr    sp_el0, x1",
        "msr    elr_el1, x2",
        "msr    spsr_el1, x3",
        "msr    tpidr_el0, x4",
        "ldp    x28, x29, [sp, #224]",
        "ldp    x26, x27, [sp, #208]",
        "ldp    x24, x25, [sp, #192]",
        "ldp    x22, x23, [sp, #176]",
        "ldp    x20, x21, [sp, #160]",
        "ldp    x18, x19, [sp, #144]",
        "ldp    x16, x17, [sp, #128]",
        "ldp    x14, x15, [sp, #112]",
        "ldp    x12, x13, [sp, #96]",
        "ldp    x10, x11, [sp, #80]",
        "ldp    x8, x9, [sp, #64]",
        "ldp    x6, x7, [sp, #48]",
        "ldp    x4, x5, [sp, #32]",
        "ldp    x2, x3, [sp, #16]",
        "ldp    x0, x1, [sp]",
        "eret",
        sp = const SP_AT,
        pc = const PC_AT,
        thread = const THREAD_AT,
        kernel_sp = const KERNEL_SP_AT,
        pstate_low = const PSTATE_LOW,
        pstate_high = const PSTATE_HIGH,
    )
}

/// The vectors save x0 to x29 and come here, with what to return in x0.
///
/// # Safety
/// The vectors' alone to enter, on the context's stack.
#[unsafe(naked)]
unsafe extern "C" fn leave_user() {
    naked_asm!(
        "mrs    x1, sp_el0",
        "mrs    x2, elr_el1",
        "mrs    x3, spsr_el1",
        "mrs    x4, tpidr_el0",
        "stp    x30, x1, [sp, #{sp}]",
        "stp    x2, x3, [sp, #{pc}]",
        "str    x4, [sp, #{thread}]",
        "ldr    x1, [sp, #{kernel_sp}]",
        "mov    sp, x1",
        "ldp    x27, x28, [sp, #80]",
        "ldp    x25, x26, [sp, #64]",
        "ldp    x23, x24, [sp, #48]",
        "ldp    x21, x22, [sp, #32]",
        "ldp    x19, x20, [sp, #16]",
        "ldp    x29, x30, [sp], #96",
        "ret",
        sp = const SP_AT,
        pc = const PC_AT,
        thread = const THREAD_AT,
        kernel_sp = const KERNEL_SP_AT,
    )
}

unsafe extern "C" {
    /// The vectors: sixteen of 128 bytes each.
    #[link_name = "__vectors"]
    pub(super) fn table();
}

// The vectors, in the manual's order: from EL1 with SP_EL0 (never), from EL1, from EL0, from EL0 in
// 32-bit state (never). Each: synchronous, interrupt, fast interrupt (never), asynchronous error.
global_asm!(
    r#"
    .macro  vector target, what
    .balign 128
    mov     x0, #\what
    b       \target
    .endm

    .macro  vector_user get
    .balign 128
    stp     x0, x1, [sp]
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x19, [sp, #144]
    stp     x20, x21, [sp, #160]
    stp     x22, x23, [sp, #176]
    stp     x24, x25, [sp, #192]
    stp     x26, x27, [sp, #208]
    stp     x28, x29, [sp, #224]
    \get
    b       {leave}
    .endm

    .macro  push_frame
    stp     x0, x1, [sp, #-{frame}]!
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x30, [sp, #144]
    mrs     x0, elr_el1
    mrs     x1, spsr_el1
    stp     x29, x0, [sp, #160]
    str     x1, [sp, #176]
    add     x29, sp, #160
    .endm

    .pushsection .text.vector_table, "ax", %progbits
    .balign 2048
    .globl __vectors
__vectors:
    vector  {never}, 0
    vector  {never}, 1
    vector  {never}, 2
    vector  {never}, 3

    // A fault near the stack pointer is the stack's end. SP_EL0 keeps x0 meanwhile.
    .balign 128
    msr     sp_el0, x0
    mrs     x0, far_el1
    sub     x0, sp, x0
    add     x0, x0, #0x2000
    lsr     x0, x0, #14
    cbz     x0, 3f
    mrs     x0, sp_el0
    push_frame
    mov     x0, sp
    bl      {fault}
    b       4f

    .balign 128
    push_frame
    bl      {interrupt}
    b       4f

    vector  {never}, 6
    vector  {never}, 7

    vector_user "mrs x0, esr_el1"
    vector_user "mov x0, #-1"
    vector_user "mov x0, #-2"
    vector_user "mov x0, #-2"

    vector  {never}, 12
    vector  {never}, 13
    vector  {never}, 14
    vector  {never}, 15

3:  adrp    x0, {spare}
    add     x0, x0, :lo12:{spare}
    add     sp, x0, #{spare_bytes}
    bl      {overflow}

    // Restores the registers that push_frame saved, with interrupts off.
4:  ldp     x29, x0, [sp, #160]
    ldr     x1, [sp, #176]
    msr     elr_el1, x0
    msr     spsr_el1, x1
    ldp     x18, x30, [sp, #144]
    ldp     x16, x17, [sp, #128]
    ldp     x14, x15, [sp, #112]
    ldp     x12, x13, [sp, #96]
    ldp     x10, x11, [sp, #80]
    ldp     x8, x9, [sp, #64]
    ldp     x6, x7, [sp, #48]
    ldp     x4, x5, [sp, #32]
    ldp     x2, x3, [sp, #16]
    ldp     x0, x1, [sp], #{frame}
    eret
    .popsection
"#,
    leave = sym leave_user,
    never = sym unexpected,
    fault = sym kernel_fault,
    interrupt = sym gic::serve_in_kernel,
    overflow = sym stack_overflow,
    spare = sym SPARE,
    spare_bytes = const SPARE_BYTES,
    frame = const FRAME,
);

/// A synchronous exception in the kernel: a fault of a copy is resolved or fixed up, any other is
/// our mistake. With interrupts off before and afterwards.
extern "C" fn kernel_fault(frame: &mut Frame) {
    let syndrome = read_register!("esr_el1");
    let address = read_register!("far_el1");
    let pc = frame.record[1];
    let is_fault = trap::class(syndrome) == trap::KERNEL_DATA_ABORT
        && trap::is_translation_fault(syndrome)
        && address < USER_END;
    let Some(rest) = copy::fix_up(pc).filter(|_| is_fault) else {
        panic!("exception in the kernel at {pc:#x}: ESR {syndrome:#x}, FAR {address:#x}")
    };
    gic::unmask();
    let resolved = crate::disk::resolve(address, trap::access(syndrome));
    gic::mask();
    if !resolved {
        frame.record[1] = rest;
    }
}

extern "C" fn stack_overflow() -> ! {
    let (pc, address) = (read_register!("elr_el1"), read_register!("far_el1"));
    panic!("the kernel's stack is full at {pc:#x}: it ends above {address:#x}")
}

extern "C" fn unexpected(vector: u64) -> ! {
    let (syndrome, pc) = (read_register!("esr_el1"), read_register!("elr_el1"));
    let address = read_register!("far_el1");
    panic!("exception of vector {vector}: ESR {syndrome:#x}, ELR {pc:#x}, FAR {address:#x}")
}

/// An asynchronous error while a program ran at `pc`.
#[cold]
pub(super) fn broken(pc: u64) -> ! {
    let syndrome = read_register!("esr_el1");
    panic!("asynchronous error while a program ran at {pc:#x}: ESR {syndrome:#x}")
}

/// Calls `visit` with the return addresses of the calling chain, innermost first.
pub fn frames(visit: &mut dyn FnMut(u64)) {
    let record: u64;
    // SAFETY: it reads a register.
    unsafe {
        core::arch::asm!("mov {}, x29", out(reg) record, options(nomem, nostack, preserves_flags));
    }
    stack::walk(record, 0, visit);
}
