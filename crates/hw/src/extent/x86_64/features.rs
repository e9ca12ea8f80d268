//! The features in CPUID. Needs only `core`.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};

/// The features the backends depend on.
#[derive(Clone, Copy)]
pub(super) struct Features {
    /// CPUID.7.0:EBX\[9\]: `rep stosb` is fast for any length.
    pub(super) erms: bool,
    /// CPUID.8000_0008:EBX\[0\], and lines of 64 bytes.
    pub(super) clzero: bool,
    /// AVX2, and the operating system saves its registers.
    pub(super) avx2: bool,
    /// AVX-512F, and the operating system saves its registers.
    pub(super) avx512: bool,
}

impl Features {
    pub(super) fn detect() -> Self {
        let leaf7 = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        let leaf8 =
            if __cpuid(0x8000_0000).eax >= 0x8000_0008 { __cpuid(0x8000_0008).ebx } else { 0 };
        let leaf1 = __cpuid(1);
        let saved = if leaf1.ecx & 1 << 27 != 0 { saved_state() } else { 0 };
        Self {
            erms: leaf7 & 1 << 9 != 0,
            clzero: leaf8 & 1 != 0 && (leaf1.ebx >> 8 & 0xff) * 8 == 64,
            avx2: leaf7 & 1 << 5 != 0 && saved & 0x6 == 0x6,
            avx512: leaf7 & 1 << 16 != 0 && saved & 0xe6 == 0xe6,
        }
    }
}

/// XCR0: the register files that the operating system saves. Bits 1 and 2 are SSE and AVX, 5 to 7
/// AVX-512.
fn saved_state() -> u32 {
    let low: u32;
    // SAFETY: the caller saw OSXSAVE, so the instruction exists; XCR0 always does.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _,
             options(nomem, nostack, preserves_flags));
    }
    low
}
