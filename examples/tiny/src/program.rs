//! The program that processes run: two loops over words. It lies on the disk, and comes into
//! memory by faults, like all else.

use core::arch::global_asm;

global_asm!(
    r#"
    .pushsection .rodata.program, "a"
    .balign 8
    .globl  PROGRAM
PROGRAM:
    xor     t0, a0, a2          // each word from a0 up to a1 becomes its address ^ a2
    sd      t0, (a0)
    addi    a0, a0, 8
    bltu    a0, a1, PROGRAM
    ecall
    .balign 32
1:  ld      t0, (a0)            // a0: the sum of the words from a0 up to a1
    add     t1, t1, t0
    addi    a0, a0, 8
    bltu    a0, a1, 1b
    mv      a0, t1
    ecall
    .balign 32
    .popsection
"#
);

/// Where each loop begins, in bytes from the program's beginning.
pub const FILL: u64 = 0;
pub const SUM: u64 = 32;

unsafe extern "C" {
    pub safe static PROGRAM: [u64; 8];
}
