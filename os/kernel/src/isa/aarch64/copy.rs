//! Copies where one side is a program's memory, so that any access may fault.
//!
//! ```text
//!   fault in 64 bytes at once ──► resolved? ──► the instruction again
//!                                     └─ no ──► the rest byte by byte
//!   fault in a single byte ─────► resolved? ──► the instruction again
//!                                     └─ no ──► return how many are left
//! ```
//!
//! So the answer is exact to the byte, and x2 always holds what is left.

use core::arch::{global_asm, naked_asm};

global_asm!(
    r#"
    .pushsection .text.copy_user, "ax", %progbits
    .balign 64
    .globl  __copy_user, __copy_user_bytes, __copy_user_end
__copy_user:
1:  subs    x4, x2, #64
    b.lo    2f
    ldp     x5, x6, [x1]
    ldp     x7, x8, [x1, #16]
    ldp     x9, x10, [x1, #32]
    ldp     x11, x12, [x1, #48]
    stp     x5, x6, [x0]
    stp     x7, x8, [x0, #16]
    stp     x9, x10, [x0, #32]
    stp     x11, x12, [x0, #48]
    add     x1, x1, #64
    add     x0, x0, #64
    mov     x2, x4
    b       1b
2:  subs    x4, x2, #8
    b.lo    __copy_user_bytes
    ldr     x5, [x1]
    str     x5, [x0]
    add     x1, x1, #8
    add     x0, x0, #8
    mov     x2, x4
    b       2b
__copy_user_bytes:
    cbz     x2, __copy_user_end
    ldrb    w5, [x1]
    strb    w5, [x0]
    add     x1, x1, #1
    add     x0, x0, #1
    sub     x2, x2, #1
    b       __copy_user_bytes
__copy_user_end:
    mov     x0, x2
    ret
    .popsection
"#
);

/// Copies `bytes` bytes from `from` to `to`, and returns how many were *not* copied: those from the
/// first byte on at which [`resolve`](crate::disk::resolve) could not resolve a fault. With
/// interrupts on.
///
/// # Safety
/// 1. Each side is either memory that the caller may read or write so, or below
///    [`USER_END`](super::USER_END) as far as it is touched.
/// 2. The kernel has no reference to memory that is written.
#[unsafe(naked)]
pub unsafe extern "C" fn copy_user(_to: *mut u8, _from: *const u8, _bytes: usize) -> usize {
    naked_asm!("b __copy_user")
}
