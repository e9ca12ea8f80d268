//! The program that processes run: three loops over words. It lies on the disk, and comes into
//! memory by faults, like all else.

use core::arch::global_asm;
use core::slice;

global_asm!(
    r#"
    .pushsection .rodata.program, "a"
    .balign 32
    .globl  __program, __program_end
__program:                      // each word from a0 up to a1 becomes its address ^ a2
    xor     t0, a0, a2
    sd      t0, (a0)
    addi    a0, a0, 8
    bltu    a0, a1, __program
    ecall
    .balign 32
1:  ld      t0, (a0)            // a0: the sum of the words from a0 up to a1
    add     t1, t1, t0
    addi    a0, a0, 8
    bltu    a0, a1, 1b
    mv      a0, t1
    ecall
    .balign 32
2:  addi    t0, t0, 1           // counts in the word at a0, without end
    sd      t0, (a0)
    j       2b
    .balign 32
__program_end:
    .popsection
"#
);

/// Where each loop begins, in bytes from the program's beginning.
pub const FILL: u64 = 0;
pub const SUM: u64 = 32;
pub const COUNT: u64 = 64;

unsafe extern "C" {
    static __program: u64;
    static __program_end: u64;
}

/// The program's words.
pub fn words() -> &'static [u64] {
    let (first, end) = (&raw const __program, &raw const __program_end);
    // SAFETY: constants of the image, aligned, from the first symbol to the last.
    unsafe { slice::from_raw_parts(first, (end.addr() - first.addr()) / 8) }
}
