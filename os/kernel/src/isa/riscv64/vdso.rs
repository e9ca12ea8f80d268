//! The code of the vDSO: programs read the clock without a system call, and return from handlers.
//!
//! All of it is position-independent and keeps no state. The page before it is the data page, a
//! [`TimeBase`](crate::isa::TimeBase); so the code must begin and end within one page. The numbers
//! there never change, since the kernel never sets its clock: no sequence counter is needed.
//!
//! **The order of reads.** A read of `time` is not ordered with loads and stores by itself
//! (unprivileged ISA, "CSR Access Ordering"): it may be made before an earlier load of what another
//! hart wrote after *its* reading, and the two times would contradict each other. To fences it is
//! device input, so `fence r, i` prevents that, as in the kernel (`clock::count`). On the other
//! side, the time that is stored depends on the count. So a fence or a release after that, which
//! publishes it, comes after the read as well. A hart's own reads are in order anyway.
//!
//! The arithmetic is that of `virt::clock`, from the same counter and with the same numbers. So
//! each reading lies between those of the calls before and after it.

use core::arch::global_asm;

use linux_raw_sys::general as abi;
use quire_linux::exec::Machine;
use quire_linux::exec::vdso::Function;

use crate::isa::vdso::{self, Code, Marks};

global_asm!(
    ".option push",
    ".option arch, +m",
    // The linker must not make other code of it: its place there is not where it runs.
    ".option norelax",
    // t1: the bit of the clock in a0, which is one of `known`, else goes on at 9. Changes t0.
    ".macro vdso_known known",
    "li     t0, {last}",
    "bgtu   a0, t0, 9f",
    "li     t1, 1",
    "sll    t1, t1, a0",
    "li     t0, \\known",
    "and    t0, t0, t1",
    "beqz   t0, 9f",
    ".endm",
    // t0: nanoseconds since boot; t4: the data page. Changes t2, t3 and t5.
    ".macro vdso_now",
    "auipc  t4, 0xfffff",
    "srli   t4, t4, 12",
    "slli   t4, t4, 12",
    "ld     t2, {start}(t4)",
    "ld     t3, {scale}(t4)",
    "fence  r, i",
    "rdtime t0",
    "sub    t0, t0, t2",
    "mul    t5, t0, t3",
    "mulhu  t0, t0, t3",
    "srli   t5, t5, 32",
    "slli   t0, t0, 32",
    "or     t0, t0, t5",
    ".endm",
    // Nanoseconds in t0 become seconds in t2, and the rest in t0. Changes t3.
    ".macro vdso_split",
    "li     t3, 1000000000",
    "divu   t2, t0, t3",
    "remu   t0, t0, t3",
    ".endm",
    ".pushsection .rodata.vdso, \"a\"",
    ".balign 16",
    "vdso_code_start:",
    // a0: the clock; a1: a timespec.
    "vdso_clock_gettime:",
    "vdso_known {known}",
    "vdso_now",
    "li     t3, {real}",
    "and    t1, t1, t3",
    "beqz   t1, 2f",
    "ld     t3, {realtime}(t4)",
    "add    t0, t0, t3",
    "2:",
    "vdso_split",
    "sd     t2, 0(a1)",
    "sd     t0, 8(a1)",
    "li     a0, 0",
    "ret",
    "9:",
    "li     a7, {call_gettime}",
    "ecall",
    "ret",
    ".balign 16",
    // a0: a timeval, or none; a1: a time zone, or none.
    "vdso_gettimeofday:",
    "beqz   a0, 2f",
    "vdso_now",
    "ld     t3, {realtime}(t4)",
    "add    t0, t0, t3",
    "vdso_split",
    "li     t3, 1000",
    "divu   t0, t0, t3",
    "sd     t2, 0(a0)",
    "sd     t0, 8(a0)",
    "2:",
    "beqz   a1, 2f",
    "sd     zero, 0(a1)",
    "2:",
    "li     a0, 0",
    "ret",
    ".balign 16",
    // a0: the clock; a1: a timespec, or none.
    "vdso_clock_getres:",
    "vdso_known {with_resolution}",
    "beqz   a1, 2f",
    "li     t2, 1",
    "sd     zero, 0(a1)",
    "sd     t2, 8(a1)",
    "2:",
    "li     a0, 0",
    "ret",
    "9:",
    "li     a7, {call_getres}",
    "ecall",
    "ret",
    ".balign 16",
    // Unwinders know a handler's frame by just these two instructions, of four bytes each.
    "vdso_rt_sigreturn:",
    ".option norvc",
    "li     a7, {call_sigreturn}",
    "ecall",
    "vdso_code_end:",
    ".popsection",
    ".purgem vdso_known",
    ".purgem vdso_now",
    ".purgem vdso_split",
    ".option pop",
    last = const vdso::LAST,
    known = const vdso::MONOTONIC | vdso::REAL,
    real = const vdso::REAL,
    with_resolution = const vdso::MONOTONIC | vdso::REAL | vdso::CPU_TIME,
    start = const vdso::START,
    scale = const vdso::SCALE,
    realtime = const vdso::REALTIME,
    call_gettime = const abi::__NR_clock_gettime,
    call_getres = const abi::__NR_clock_getres,
    call_sigreturn = const abi::__NR_rt_sigreturn,
);

unsafe extern "C" {
    static vdso_code_start: u8;
    static vdso_clock_gettime: u8;
    static vdso_gettimeofday: u8;
    static vdso_clock_getres: u8;
    static vdso_rt_sigreturn: u8;
    static vdso_code_end: u8;
}

/// The code and its functions.
pub fn vdso() -> Code<4> {
    let marks = Marks { start: &raw const vdso_code_start, end: &raw const vdso_code_end };
    let function = |name, at| Function { name, offset: marks.offset(at) };
    Code {
        machine: Machine::Riscv64,
        version: "LINUX_4.15",
        // SAFETY: the assembler above is between the two, in the image's constants.
        bytes: unsafe { marks.bytes() },
        functions: [
            function("__vdso_clock_gettime", &raw const vdso_clock_gettime),
            function("__vdso_gettimeofday", &raw const vdso_gettimeofday),
            function("__vdso_clock_getres", &raw const vdso_clock_getres),
            function("__vdso_rt_sigreturn", &raw const vdso_rt_sigreturn),
        ],
        sigreturn: Some(marks.offset(&raw const vdso_rt_sigreturn)),
    }
}
