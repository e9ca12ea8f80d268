//! The system calls. arm64 and riscv64 share Linux's generic numbers.

use core::arch::{asm, global_asm};

const WRITE: usize = 64;
const EXIT_GROUP: usize = 94;
#[cfg(target_arch = "riscv64")]
const RISCV_HWPROBE: usize = 258;

// Linux enters with an aligned stack and no frame; `main` never returns.
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, xzr", "mov x30, xzr", "b main");
#[cfg(target_arch = "riscv64")]
global_asm!(".globl _start", "_start:", "mv ra, zero", "mv fp, zero", "j main");

/// # Safety
/// The arguments fit the call.
#[cfg(target_arch = "aarch64")]
unsafe fn call(number: usize, arguments: [usize; 5]) -> isize {
    let [a, b, c, d, e] = arguments;
    let result;
    // SAFETY: passed on to the caller.
    unsafe {
        asm!("svc #0", in("x8") number, inout("x0") a => result, in("x1") b, in("x2") c,
             in("x3") d, in("x4") e, options(nostack));
    }
    result
}

/// # Safety
/// The arguments fit the call.
#[cfg(target_arch = "riscv64")]
unsafe fn call(number: usize, arguments: [usize; 5]) -> isize {
    let [a, b, c, d, e] = arguments;
    let result;
    // SAFETY: passed on to the caller.
    unsafe {
        asm!("ecall", in("a7") number, inout("a0") a => result, in("a1") b, in("a2") c,
             in("a3") d, in("a4") e, options(nostack));
    }
    result
}

/// Writes to the standard output.
pub(crate) fn print(texts: &[&str]) {
    for text in texts {
        // SAFETY: the kernel reads the bytes of `text`.
        unsafe { call(WRITE, [1, text.as_ptr().addr(), text.len(), 0, 0]) };
    }
}

/// Ends the program.
pub(crate) fn exit(status: usize) -> ! {
    loop {
        // SAFETY: touches no memory.
        unsafe { call(EXIT_GROUP, [status, 0, 0, 0, 0]) };
    }
}

/// The block of `cbo.zero` in bytes, where all CPUs have it.
#[cfg(target_arch = "riscv64")]
pub(crate) fn zicboz_block() -> Option<usize> {
    const EXTENSIONS: i64 = 4;
    const ZICBOZ: u64 = 1 << 6;
    const BLOCK: i64 = 6;
    #[repr(C)]
    struct Pair {
        key: i64,
        value: u64,
    }
    let mut pairs = [Pair { key: EXTENSIONS, value: 0 }, Pair { key: BLOCK, value: 0 }];
    let address = pairs.as_mut_ptr().expose_provenance();
    // SAFETY: the kernel writes the two pairs; no CPU set means all CPUs.
    let result = unsafe { call(RISCV_HWPROBE, [address, pairs.len(), 0, 0, 0]) };
    let [extensions, block] = pairs;
    let known = result == 0 && extensions.key == EXTENSIONS && block.key == BLOCK;
    if known && extensions.value & ZICBOZ != 0 { usize::try_from(block.value).ok() } else { None }
}
