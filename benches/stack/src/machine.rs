//! The machine that this runs on: its first instructions, a console, its end, and the stack.
//!
//! On arm64 and riscv64 it is a board without translation, whose emulator takes requests by
//! semihosting. On x86-64 it is a program of Linux: a CPU cannot be in 64-bit mode without tables.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use core::fmt::{self, Write};
use core::panic::PanicInfo;

/// The stack's size in bytes.
pub const STACK_BYTES: usize = 64 << 10;

#[repr(C, align(4096))]
struct Stack(UnsafeCell<[u8; STACK_BYTES]>);

// SAFETY: one CPU runs on it.
unsafe impl Sync for Stack {}

static STACK: Stack = Stack(UnsafeCell::new([0; STACK_BYTES]));

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .head, \"ax\"", ".globl _start", "_start:",
    "lea rsp, [rip + {stack} + {bytes}]", "xor ebp, ebp", "call {main}", ".popsection",
    stack = sym STACK, bytes = const STACK_BYTES, main = sym crate::main,
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .head, \"ax\"", ".globl _start", "_start:",
    "adrp x0, {stack}", "add x0, x0, {bytes}", "mov sp, x0", "mov x29, xzr", "bl {main}",
    ".popsection",
    stack = sym STACK, bytes = const STACK_BYTES, main = sym crate::main,
);
#[cfg(target_arch = "riscv64")]
global_asm!(
    ".pushsection .head, \"ax\"", ".globl _start", "_start:",
    "lla sp, {stack}", "li t0, {bytes}", "add sp, sp, t0", "mv s0, zero", "call {main}",
    ".popsection",
    stack = sym STACK, bytes = const STACK_BYTES, main = sym crate::main,
);

/// The stack's lowest address.
pub fn stack_start() -> usize {
    STACK.0.get().addr()
}

/// The stack pointer of the function that this is inlined into.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let sp: usize;
    // SAFETY: it reads a register.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        asm!("mov {}, sp", out(reg) sp, options(nomem, nostack, preserves_flags));
        #[cfg(target_arch = "riscv64")]
        asm!("mv {}, sp", out(reg) sp, options(nomem, nostack, preserves_flags));
    }
    sp
}

/// A pointer into the stack; its address is known.
pub fn on_stack(address: usize) -> *mut u64 {
    STACK.0.get().cast::<u64>().with_addr(address)
}

/// The console, for [`tell`](crate::tell).
pub struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        write(text);
        Ok(())
    }
}

/// Prints a line.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => {{
        use core::fmt::Write;
        // The console does not fail.
        let _ = writeln!($crate::machine::Console, $($words)*);
    }};
}

#[cfg(target_arch = "x86_64")]
fn write(text: &str) {
    call(1, [1, text.as_ptr().addr(), text.len()]);
}

/// Ends the program; the status is 0 if all went `well`.
#[cfg(target_arch = "x86_64")]
pub fn end(well: bool) -> ! {
    loop {
        call(231, [usize::from(!well), 0, 0]);
    }
}

/// A system call of Linux that reads memory at most.
#[cfg(target_arch = "x86_64")]
fn call(number: usize, arguments: [usize; 3]) {
    let [a, b, c] = arguments;
    // SAFETY: the callers ask for output, and for the end.
    unsafe {
        asm!("syscall", inout("rax") number => _, in("rdi") a, in("rsi") b, in("rdx") c,
             out("rcx") _, out("r11") _, options(nostack));
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn write(text: &str) {
    for byte in text.bytes() {
        ask(3, (&raw const byte).addr());
    }
}

/// Ends the machine; the emulator's status is 0 if all went `well`.
#[cfg(not(target_arch = "x86_64"))]
pub fn end(well: bool) -> ! {
    // The reason: the application's exit; and its status.
    let why = [0x20026, usize::from(!well)];
    loop {
        ask(0x18, (&raw const why).addr());
    }
}

/// A request of the emulator: Arm's semihosting, which RISC-V has taken over.
#[cfg(not(target_arch = "x86_64"))]
fn ask(number: usize, argument: usize) {
    // SAFETY: the callers ask for output, and for the end; the emulator reads the argument.
    unsafe {
        #[cfg(target_arch = "aarch64")]
        asm!("hlt #0xf000", inout("x0") number => _, in("x1") argument, options(nostack));
        #[cfg(target_arch = "riscv64")]
        asm!(".balign 16", ".option push", ".option norvc", "slli x0, x0, 0x1f", "ebreak",
             "srai x0, x0, 7", ".option pop",
             inout("a0") number => _, in("a1") argument, options(nostack));
    }
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    tell!("stack: {info}");
    end(false)
}
