//! The code of the vDSO: programs read the clock without a system call, and return from handlers.
//!
//! All of it is position-independent and keeps no state. The page before it is the data page, a
//! [`TimeBase`](crate::isa::TimeBase); so the code must begin and end within one page. The numbers
//! there never change, since the kernel never sets its clock: no sequence counter is needed.
//!
//! **The order of reads.** A read of the counter may be made early, and out of order (Arm ARM,
//! "The generic timer", CNTVCT_EL0): before an earlier load of what another CPU wrote after *its*
//! reading, and the two times would contradict each other. `isb` before it prevents that, as in the
//! kernel (`clock::count`). On the other side, the time that is stored depends on the count. So a
//! store-release after that, or a barrier, which publishes it, comes after the read as well.
//!
//! The arithmetic is that of `virt::clock`, from the same counter and with the same numbers. So
//! each reading lies between those of the calls before and after it.

use core::arch::global_asm;

use linux_raw_sys::general as abi;
use quire_linux::exec::Machine;
use quire_linux::exec::vdso::Function;

use crate::isa::vdso::{self, Code, Marks};

global_asm!(
    // w2: the bit of the clock in w0, which is one of `known`, else goes on at 9. Changes w3.
    ".macro vdso_known known",
    "cmp    w0, #{last}",
    "b.hi   9f",
    "mov    w2, #1",
    "lsl    w2, w2, w0",
    "mov    w3, #\\known",
    "tst    w2, w3",
    "b.eq   9f",
    ".endm",
    // x5: nanoseconds since boot; x4: the data page. Changes x6 to x8.
    ".macro vdso_now",
    "adr    x4, .",
    "and    x4, x4, #~0xfff",
    "sub    x4, x4, #0x1000",
    "ldr    x6, [x4, #{start}]",
    "ldr    x7, [x4, #{scale}]",
    "isb",
    "mrs    x5, cntvct_el0",
    "sub    x5, x5, x6",
    "mul    x8, x5, x7",
    "umulh  x5, x5, x7",
    "extr   x5, x5, x8, #32",
    ".endm",
    // Nanoseconds in x5 become seconds in x6, and the rest in x5. Changes x7.
    ".macro vdso_split",
    "mov    w7, #0xca00",
    "movk   w7, #0x3b9a, lsl #16",
    "udiv   x6, x5, x7",
    "msub   x5, x6, x7, x5",
    ".endm",
    ".pushsection .rodata.vdso, \"a\"",
    ".balign 16",
    "vdso_code_start:",
    // w0: the clock; x1: a timespec.
    "vdso_clock_gettime:",
    "vdso_known {known}",
    "vdso_now",
    "mov    w3, #{real}",
    "tst    w2, w3",
    "b.eq   2f",
    "ldr    x6, [x4, #{realtime}]",
    "add    x5, x5, x6",
    "2:",
    "vdso_split",
    "stp    x6, x5, [x1]",
    "mov    w0, #0",
    "ret",
    "9:",
    "mov    x8, #{call_gettime}",
    "svc    #0",
    "ret",
    ".balign 16",
    // x0: a timeval, or none; x1: a time zone, or none.
    "vdso_gettimeofday:",
    "cbz    x0, 2f",
    "vdso_now",
    "ldr    x6, [x4, #{realtime}]",
    "add    x5, x5, x6",
    "vdso_split",
    "mov    w7, #1000",
    "udiv   x5, x5, x7",
    "stp    x6, x5, [x0]",
    "2:",
    "cbz    x1, 2f",
    "str    xzr, [x1]",
    "2:",
    "mov    w0, #0",
    "ret",
    ".balign 16",
    // w0: the clock; x1: a timespec, or none.
    "vdso_clock_getres:",
    "vdso_known {with_resolution}",
    "cbz    x1, 2f",
    "mov    x2, #1",
    "stp    xzr, x2, [x1]",
    "2:",
    "mov    w0, #0",
    "ret",
    "9:",
    "mov    x8, #{call_getres}",
    "svc    #0",
    "ret",
    ".balign 16",
    // Unwinders know a handler's frame by just these two instructions.
    "vdso_rt_sigreturn:",
    "mov    x8, #{call_sigreturn}",
    "svc    #0",
    "vdso_code_end:",
    ".popsection",
    ".purgem vdso_known",
    ".purgem vdso_now",
    ".purgem vdso_split",
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
        machine: Machine::Aarch64,
        version: "LINUX_2.6.39",
        // SAFETY: the assembler above is between the two, in the image's constants.
        bytes: unsafe { marks.bytes() },
        functions: [
            function("__kernel_clock_gettime", &raw const vdso_clock_gettime),
            function("__kernel_gettimeofday", &raw const vdso_gettimeofday),
            function("__kernel_clock_getres", &raw const vdso_clock_getres),
            function("__kernel_rt_sigreturn", &raw const vdso_rt_sigreturn),
        ],
        sigreturn: Some(marks.offset(&raw const vdso_rt_sigreturn)),
    }
}
