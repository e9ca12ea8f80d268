//! The program that processes run: three loops over words. It lies on the disk, and comes into
//! memory by faults, like all else.

use core::arch::global_asm;
use core::slice;

global_asm!(
    r#"
    .pushsection .rodata.program, "a"
    .balign 8
    .globl  __fill, __sum, __count, __program_end
__fill:                         // each word from a0 up to a1 is its address ^ a2
    xor     t0, a0, a2
    sd      t0, (a0)
    addi    a0, a0, 8
    bltu    a0, a1, __fill
    ecall
__sum:                          // a0: of the words from a0 up to a1
    ld      t0, (a0)
    add     t1, t1, t0
    addi    a0, a0, 8
    bltu    a0, a1, __sum
    mv      a0, t1
    ecall
__count:                        // into the word at a0, without end
    addi    t0, t0, 1
    sd      t0, (a0)
    j       __count
    .balign 8
__program_end:
    .popsection
"#
);

unsafe extern "C" {
    static __fill: u64;
    static __sum: u64;
    static __count: u64;
    static __program_end: u64;
}

/// One of its loops.
#[derive(Clone, Copy)]
pub enum Loop {
    Fill,
    Sum,
    Count,
}

impl Loop {
    /// How many bytes behind the program's beginning it begins.
    pub fn offset(self) -> u64 {
        let place = match self {
            Self::Fill => &raw const __fill,
            Self::Sum => &raw const __sum,
            Self::Count => &raw const __count,
        };
        (place.addr() - (&raw const __fill).addr()) as u64
    }
}

/// Its words.
pub fn words() -> &'static [u64] {
    let (first, end) = (&raw const __fill, &raw const __program_end);
    // SAFETY: constants of the image, aligned, from the first symbol to the last.
    unsafe { slice::from_raw_parts(first, (end.addr() - first.addr()) / 8) }
}
