//! The code of the vDSO: programs read the clock without a system call.
//!
//! All of it is position-independent and keeps no state. The page before it is the data page, a
//! [`TimeBase`](crate::isa::TimeBase); so the code must begin and end within one page. The numbers
//! there never change, since the kernel never sets its clock: no sequence counter is needed.
//!
//! **The order of reads.** `rdtsc` waits for nothing, and nothing waits for it (SDM volume 2,
//! RDTSC): a CPU might read the counter before an earlier load of what another CPU wrote after
//! *its* reading, and the two times would contradict each other. `lfence` before it lets it begin
//! only when all earlier instructions have ended, loads included. The other side needs nothing: a
//! store is seen by others only after the instructions before it have ended. The kernel's own
//! reading does the same (`clock::tsc`), so this holds for a call before or after as well.
//!
//! The arithmetic is that of `clock::now`, from the same counter and with the same numbers. So each
//! reading lies between those of the calls before and after it.

use core::arch::global_asm;

use linux_raw_sys::general as abi;
use quire_linux::exec::Machine;
use quire_linux::exec::vdso::Function;

use crate::isa::vdso::{self, Code, Marks};

global_asm!(
    // The clock that edi names is one of `known`, else goes on at 9.
    ".macro vdso_known known",
    "cmp    edi, {last}",
    "ja     9f",
    "mov    eax, \\known",
    "bt     eax, edi",
    "jnc    9f",
    ".endm",
    // rax: nanoseconds since boot; rcx: the data page. Changes rdx.
    ".macro vdso_now",
    "lea    rcx, [rip]",
    "and    rcx, -4096",
    "sub    rcx, 4096",
    "lfence",
    "rdtsc",
    "shl    rdx, 32",
    "or     rax, rdx",
    "sub    rax, [rcx + {start}]",
    "mul    qword ptr [rcx + {scale}]",
    "shrd   rax, rdx, 32",
    ".endm",
    // Nanoseconds in rax become seconds in rdx, and the rest in r8. 10^9 is 2^9 * 1953125, and the
    // factor is 2^75 / 1953125, rounded up: exact for all 64-bit numbers.
    ".macro vdso_split",
    "mov    r8, rax",
    "shr    rax, 9",
    "movabs rdx, 0x44b82fa09b5a53",
    "mul    rdx",
    "shr    rdx, 11",
    "imul   rax, rdx, 1000000000",
    "sub    r8, rax",
    ".endm",
    ".pushsection .rodata.vdso, \"a\"",
    ".balign 16",
    "vdso_code_start:",
    // edi: the clock; rsi: a timespec.
    "vdso_clock_gettime:",
    "vdso_known {known}",
    "vdso_now",
    "mov    edx, {real}",
    "bt     edx, edi",
    "jnc    2f",
    "add    rax, [rcx + {realtime}]",
    "2:",
    "vdso_split",
    "mov    [rsi], rdx",
    "mov    [rsi + 8], r8",
    "xor    eax, eax",
    "ret",
    "9:",
    "mov    eax, {call_gettime}",
    "syscall",
    "ret",
    ".balign 16",
    // rdi: a timeval, or none; rsi: a time zone, or none.
    "vdso_gettimeofday:",
    "test   rdi, rdi",
    "jz     2f",
    "vdso_now",
    "add    rax, [rcx + {realtime}]",
    "vdso_split",
    "mov    [rdi], rdx",
    // The rest is below 2^30, and 274877907 is 2^38 / 1000, rounded up.
    "imul   r8, r8, 274877907",
    "shr    r8, 38",
    "mov    [rdi + 8], r8",
    "2:",
    "test   rsi, rsi",
    "jz     2f",
    "mov    qword ptr [rsi], 0",
    "2:",
    "xor    eax, eax",
    "ret",
    ".balign 16",
    // rdi: where the seconds go, too, or nowhere.
    "vdso_time:",
    "vdso_now",
    "add    rax, [rcx + {realtime}]",
    "vdso_split",
    "test   rdi, rdi",
    "jz     2f",
    "mov    [rdi], rdx",
    "2:",
    "mov    rax, rdx",
    "ret",
    ".balign 16",
    // edi: the clock; rsi: a timespec, or none.
    "vdso_clock_getres:",
    "vdso_known {with_resolution}",
    "test   rsi, rsi",
    "jz     2f",
    "mov    qword ptr [rsi], 0",
    "mov    qword ptr [rsi + 8], 1",
    "2:",
    "xor    eax, eax",
    "ret",
    "9:",
    "mov    eax, {call_getres}",
    "syscall",
    "ret",
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
);

unsafe extern "C" {
    static vdso_code_start: u8;
    static vdso_clock_gettime: u8;
    static vdso_gettimeofday: u8;
    static vdso_time: u8;
    static vdso_clock_getres: u8;
    static vdso_code_end: u8;
}

/// The code and its functions.
pub fn vdso() -> Code<4> {
    let marks = Marks { start: &raw const vdso_code_start, end: &raw const vdso_code_end };
    let function = |name, at| Function { name, offset: marks.offset(at) };
    Code {
        machine: Machine::X86_64,
        version: "LINUX_2.6",
        // SAFETY: the assembler above is between the two, in the image's constants.
        bytes: unsafe { marks.bytes() },
        functions: [
            function("__vdso_clock_gettime", &raw const vdso_clock_gettime),
            function("__vdso_gettimeofday", &raw const vdso_gettimeofday),
            function("__vdso_time", &raw const vdso_time),
            function("__vdso_clock_getres", &raw const vdso_clock_getres),
        ],
        sigreturn: None,
    }
}
