// memcpy, memmove and memset: byte by byte until the MMU is on, as memory has no unaligned accesses
// before that, and by the functions of os/kernel's bytes.rs from then on.

    .pushsection .text.bytes, "ax", %progbits
    .globl  memmove, memcpy, memset
    .type   memmove, %function
    .type   memcpy, %function
    .type   memset, %function
memcpy:
    mrs     x17, sctlr_el1
    tbz     x17, #0, 1f
    b       quire_memcpy
memmove:
    mrs     x17, sctlr_el1
    tbz     x17, #0, 1f
    b       quire_memmove
1:  sub     x4, x0, x1
    cmp     x4, x2
    b.lo    3f                      // the target begins within the source
    mov     x3, #0
2:  cmp     x3, x2
    b.hs    4f
    ldrb    w5, [x1, x3]
    strb    w5, [x0, x3]
    add     x3, x3, #1
    b       2b
3:  cbz     x2, 4f
    sub     x2, x2, #1
    ldrb    w5, [x1, x2]
    strb    w5, [x0, x2]
    b       3b
4:  ret
memset:
    mrs     x17, sctlr_el1
    tbz     x17, #0, 5f
    b       quire_memset
5:  cbz     x2, 6f
    sub     x2, x2, #1
    strb    w1, [x0, x2]
    b       5b
6:  ret
    .size   memset, . - memset
    .popsection
