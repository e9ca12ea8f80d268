//! Copies where one side is a program's memory, so that any access may fault.
//!
//! ```text
//!   fault in 64 bytes at once ──► resolved? ──► the instruction again
//!                                     └─ no ──► the rest byte by byte
//!   fault in a single byte ─────► resolved? ──► the instruction again
//!                                     └─ no ──► return how many are left
//! ```
//!
//! So the answer is exact to the byte, and a2 always holds what is left. The kernel may access
//! programs' memory between the first instruction and the end only (`sstatus.SUM`). Words need not
//! be aligned: the CPU, or the firmware for it, loads and stores them all the same.

use core::arch::{global_asm, naked_asm};

global_asm!(
    r#"
    .pushsection .text.copy_user, "ax", %progbits
    .balign 64
    .globl  __copy_user, __copy_user_bytes, __copy_user_end
__copy_user:
    li      t6, {user_access}
    csrs    sstatus, t6
    li      t4, 64
    li      t5, 8
1:  bltu    a2, t4, 2f
    ld      a3, 0(a1)
    ld      a4, 8(a1)
    ld      a5, 16(a1)
    ld      a6, 24(a1)
    ld      a7, 32(a1)
    ld      t0, 40(a1)
    ld      t1, 48(a1)
    ld      t2, 56(a1)
    sd      a3, 0(a0)
    sd      a4, 8(a0)
    sd      a5, 16(a0)
    sd      a6, 24(a0)
    sd      a7, 32(a0)
    sd      t0, 40(a0)
    sd      t1, 48(a0)
    sd      t2, 56(a0)
    addi    a1, a1, 64
    addi    a0, a0, 64
    addi    a2, a2, -64
    j       1b
2:  bltu    a2, t5, __copy_user_bytes
    ld      a3, 0(a1)
    sd      a3, 0(a0)
    addi    a1, a1, 8
    addi    a0, a0, 8
    addi    a2, a2, -8
    j       2b
__copy_user_bytes:
    beqz    a2, __copy_user_end
    lb      a3, 0(a1)
    sb      a3, 0(a0)
    addi    a1, a1, 1
    addi    a0, a0, 1
    addi    a2, a2, -1
    j       __copy_user_bytes
__copy_user_end:
    csrc    sstatus, t6
    mv      a0, a2
    ret
    .popsection
"#,
    user_access = const super::vectors::USER_ACCESS,
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
    naked_asm!("tail __copy_user")
}
