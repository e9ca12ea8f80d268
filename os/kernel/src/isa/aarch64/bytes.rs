//! `memcpy`, `memmove` and `memset`, which the compiler calls for whatever is large.
//!
//! The compiler's own are loops over words where there are no vector registers to use, and the
//! kernel has none: they are the program's. These move 64 bytes a turn.
//!
//! The rest, 64 bytes at most, is moved by two accesses of one size that may overlap each other.
//! All of it is loaded before any of it is stored; this part serves `memmove` in both directions,
//! too. Facts of the calling convention: AAPCS64; x3 to x17 are free.

use core::arch::global_asm;

global_asm!(
    r#"
    .pushsection .text.bytes, "ax", %progbits
    .balign 64
    .globl  memmove, memcpy, memset
    .type   memmove, %function
    .type   memcpy, %function
    .type   memset, %function
memmove:
    sub     x4, x0, x1
    cmp     x4, x2
    b.lo    5f                      // the target begins within the source: upwards from its end
memcpy:
    mov     x3, x0
    cmp     x2, #64
    b.ls    2f
1:  ldp     x5, x6, [x1]
    ldp     x7, x8, [x1, #16]
    ldp     x9, x10, [x1, #32]
    ldp     x11, x12, [x1, #48]
    add     x1, x1, #64
    sub     x2, x2, #64
    stp     x5, x6, [x3]
    stp     x7, x8, [x3, #16]
    stp     x9, x10, [x3, #32]
    stp     x11, x12, [x3, #48]
    add     x3, x3, #64
    cmp     x2, #64
    b.hi    1b
2:  add     x13, x1, x2             // 0 to 64 bytes from x1 to x3
    add     x14, x3, x2
    cmp     x2, #16
    b.lo    4f
    cmp     x2, #32
    b.hi    3f
    ldp     x5, x6, [x1]
    ldp     x7, x8, [x13, #-16]
    stp     x5, x6, [x3]
    stp     x7, x8, [x14, #-16]
    ret
3:  ldp     x5, x6, [x1]
    ldp     x7, x8, [x1, #16]
    ldp     x9, x10, [x13, #-32]
    ldp     x11, x12, [x13, #-16]
    stp     x5, x6, [x3]
    stp     x7, x8, [x3, #16]
    stp     x9, x10, [x14, #-32]
    stp     x11, x12, [x14, #-16]
    ret
4:  tbz     x2, #3, 41f
    ldr     x5, [x1]
    ldr     x6, [x13, #-8]
    str     x5, [x3]
    str     x6, [x14, #-8]
    ret
41: tbz     x2, #2, 42f
    ldr     w5, [x1]
    ldr     w6, [x13, #-4]
    str     w5, [x3]
    str     w6, [x14, #-4]
    ret
42: tbz     x2, #1, 43f
    ldrh    w5, [x1]
    ldrh    w6, [x13, #-2]
    strh    w5, [x3]
    strh    w6, [x14, #-2]
    ret
43: cbz     x2, 44f
    ldrb    w5, [x1]
    strb    w5, [x3]
44: ret
5:  mov     x3, x0
    cmp     x2, #64
    b.ls    2b
    add     x13, x1, x2
    add     x14, x0, x2
6:  ldp     x5, x6, [x13, #-16]
    ldp     x7, x8, [x13, #-32]
    ldp     x9, x10, [x13, #-48]
    ldp     x11, x12, [x13, #-64]!
    sub     x2, x2, #64
    stp     x5, x6, [x14, #-16]
    stp     x7, x8, [x14, #-32]
    stp     x9, x10, [x14, #-48]
    stp     x11, x12, [x14, #-64]!
    cmp     x2, #64
    b.hi    6b
    b       2b

memset:
    mov     x4, #0x0101010101010101
    and     x1, x1, #255
    mov     x3, x0
    mul     x1, x1, x4
    cmp     x2, #64
    b.ls    2f
1:  stp     x1, x1, [x3]
    stp     x1, x1, [x3, #16]
    stp     x1, x1, [x3, #32]
    stp     x1, x1, [x3, #48]
    add     x3, x3, #64
    sub     x2, x2, #64
    cmp     x2, #64
    b.hi    1b
2:  add     x14, x3, x2             // 0 to 64 bytes at x3
    cmp     x2, #16
    b.lo    4f
    stp     x1, x1, [x3]
    stp     x1, x1, [x14, #-16]
    cmp     x2, #32
    b.ls    3f
    stp     x1, x1, [x3, #16]
    stp     x1, x1, [x14, #-32]
3:  ret
4:  tbz     x2, #3, 41f
    str     x1, [x3]
    str     x1, [x14, #-8]
    ret
41: tbz     x2, #2, 42f
    str     w1, [x3]
    str     w1, [x14, #-4]
    ret
42: tbz     x2, #1, 43f
    strh    w1, [x3]
    strh    w1, [x14, #-2]
    ret
43: cbz     x2, 44f
    strb    w1, [x3]
44: ret
    .size   memset, . - memset
    .popsection
"#
);
