//! Ways to clear on x86-64.

use core::arch::asm;

use super::features::Features;
use crate::Reuse;
use crate::extent::Facts;

/// One way to clear. Private to `extent`, which hands out only those that `available` yields.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::extent) enum ClearWay {
    RepStosb,
    RepStosq,
    Stores,
    StoresSse2,
    StoresAvx2,
    StoresAvx512,
    NtStores,
    NtAvx2,
    NtAvx512,
    Clzero,
}

use ClearWay::{
    Clzero, NtAvx2, NtAvx512, NtStores, RepStosb, RepStosq, Stores, StoresAvx2, StoresAvx512,
    StoresSse2,
};

const ALL: [ClearWay; 10] = [
    RepStosb,
    RepStosq,
    Stores,
    StoresSse2,
    StoresAvx2,
    StoresAvx512,
    NtStores,
    NtAvx2,
    NtAvx512,
    Clzero,
];

impl ClearWay {
    pub(in crate::extent) fn available() -> impl Iterator<Item = Self> {
        let cpu = Features::detect();
        ALL.into_iter().filter(move |clear| match clear {
            RepStosb => cpu.erms,
            StoresAvx2 | NtAvx2 => cpu.avx2,
            StoresAvx512 | NtAvx512 => cpu.avx512,
            Clzero => cpu.clzero,
            RepStosq | Stores | StoresSse2 | NtStores => true,
        })
    }

    /// `clzero` never reads memory and allocates no cache line, whatever the length, and writes
    /// zeroes at twice the rate of other data (measured on Zen 4 and Zen 5: 75 to 85 GB/s against
    /// 25 to 44 for stores that allocate); it loses on a single page only, because of its fence.
    /// Extents that are read next should stay in the caches while they about fit them. Without
    /// `clzero`, the string instruction is best, and stops allocating by itself where that pays.
    pub(in crate::extent) fn wishes(bytes: u64, reuse: Reuse) -> &'static [Self] {
        match reuse {
            Reuse::Later if bytes >= 8 << 10 => &[Clzero, RepStosb, Stores],
            // For one cold page, the start-up of the string instruction costs some 5 %.
            Reuse::Later => &[Stores, RepStosb],
            // From about the size of an L2 cache on, the speed of clearing through the caches
            // depends on their contents: 19 to 25 GB/s on Zen 4, where the others always reach
            // about 23.
            Reuse::Soon if bytes >= 1 << 20 => &[Clzero, RepStosb, Stores],
            // Alone the two are equal here. But a fault's neighbourhood of some pages is cleared
            // right after an extent that bypasses the caches, and then `rep stosb` waits longer for
            // the memory: 0.8 against 0.5 us on Zen 4.
            Reuse::Soon if (8 << 10..16 << 10).contains(&bytes) => &[Stores, RepStosb],
            _ => &[RepStosb, Stores],
        }
    }

    pub(in crate::extent) fn facts(self) -> Facts {
        match self {
            RepStosb => Facts::new("rep-stosb", true, false),
            RepStosq => Facts::new("rep-stosq", true, false),
            Stores => Facts::new("stores", true, false),
            StoresSse2 => Facts::new("stores-sse2", true, true),
            StoresAvx2 => Facts::new("stores-avx2", true, true),
            StoresAvx512 => Facts::new("stores-avx512", true, true),
            NtStores => Facts::new("nt-stores", false, false),
            NtAvx2 => Facts::new("nt-avx2", false, true),
            NtAvx512 => Facts::new("nt-avx512", false, true),
            Clzero => Facts::new("clzero", false, false),
        }
    }

    /// # Safety
    /// As `Backend::clear_raw`; the CPU has the instructions, and `bytes` is not zero.
    pub(in crate::extent) unsafe fn run(self, start: *mut u8, bytes: usize) {
        let way: unsafe fn(*mut u8, usize) = match self {
            RepStosb => rep_stosb,
            RepStosq => rep_stosq,
            Stores => stores,
            StoresSse2 => stores_sse2,
            StoresAvx2 => stores_avx2,
            StoresAvx512 => stores_avx512,
            NtStores => nt_stores,
            NtAvx2 => nt_avx2,
            NtAvx512 => nt_avx512,
            Clzero => clzero,
        };
        // SAFETY: passed on to the caller.
        unsafe { way(start, bytes) }
    }
}

/// # Safety
/// As [`ClearWay::run`].
unsafe fn rep_stosb(start: *mut u8, bytes: usize) {
    // SAFETY: writes `bytes` bytes from `start` on, upwards: the ABI keeps the direction flag
    // clear.
    unsafe {
        asm!("rep stosb", inout("rdi") start => _, inout("rcx") bytes => _, in("al") 0u8,
             options(nostack, preserves_flags));
    }
}

/// # Safety
/// As [`ClearWay::run`].
unsafe fn rep_stosq(start: *mut u8, bytes: usize) {
    // SAFETY: as `rep_stosb`; `bytes` is a multiple of 8.
    unsafe {
        asm!("rep stosq", inout("rdi") start => _, inout("rcx") bytes / 8 => _, in("rax") 0u64,
             options(nostack, preserves_flags));
    }
}

/// # Safety
/// As [`ClearWay::run`].
unsafe fn clzero(start: *mut u8, bytes: usize) {
    // SAFETY: each step zeroes the 64-byte line that rax points into; start and length are
    // multiples of a line, so exactly the extent is written. SFENCE orders the weakly ordered
    // writes before all later stores.
    unsafe {
        asm!("2:", "clzero", "add rax, 64", "cmp rax, {end}", "jne 2b", "sfence",
             inout("rax") start => _, end = in(reg) start.wrapping_add(bytes),
             options(nostack));
    }
}

/// A loop that stores the zeroed register `$zero`, `$width` bytes wide, eight times per turn.
/// `$before` zeroes it, `$after` orders the stores or leaves the upper halves of the vector
/// registers clean.
macro_rules! store_loop {
    (
        $name:ident,
        $before:literal,
        $store:literal,
        $zero:literal,
        $width:literal,
        $after:literal
    ) => {
        /// # Safety
        /// As [`ClearWay::run`].
        unsafe fn $name(start: *mut u8, bytes: usize) {
            // SAFETY: each turn writes the next `8 * $width` bytes, of which `bytes`, a multiple
            // of 4096, is a multiple, and start is as aligned. The registers of the C ABI that a
            // callee may overwrite are declared clobbered, the vector registers among them.
            unsafe {
                asm!(
                    $before,
                    "2:",
                    concat!($store, " [rdi], ", $zero),
                    concat!($store, " [rdi + ", $width, "], ", $zero),
                    concat!($store, " [rdi + 2 * ", $width, "], ", $zero),
                    concat!($store, " [rdi + 3 * ", $width, "], ", $zero),
                    concat!($store, " [rdi + 4 * ", $width, "], ", $zero),
                    concat!($store, " [rdi + 5 * ", $width, "], ", $zero),
                    concat!($store, " [rdi + 6 * ", $width, "], ", $zero),
                    concat!($store, " [rdi + 7 * ", $width, "], ", $zero),
                    concat!("add rdi, 8 * ", $width),
                    "cmp rdi, rsi",
                    "jne 2b",
                    $after,
                    inout("rdi") start => _,
                    inout("rsi") start.wrapping_add(bytes) => _,
                    clobber_abi("sysv64"),
                    options(nostack),
                );
            }
        }
    };
}

store_loop!(stores, "xor eax, eax", "mov", "rax", "8", "");
store_loop!(stores_sse2, "pxor xmm0, xmm0", "movdqa", "xmm0", "16", "");
store_loop!(stores_avx2, "vpxor xmm0, xmm0, xmm0", "vmovdqa", "ymm0", "32", "vzeroupper");
store_loop!(stores_avx512, "vpxor xmm0, xmm0, xmm0", "vmovdqa64", "zmm0", "64", "vzeroupper");
store_loop!(nt_stores, "xor eax, eax", "movnti", "rax", "8", "sfence");
store_loop!(nt_avx2, "vpxor xmm0, xmm0, xmm0", "vmovntdq", "ymm0", "32", "vzeroupper\nsfence");
store_loop!(nt_avx512, "vpxor xmm0, xmm0, xmm0", "vmovntdq", "zmm0", "64", "vzeroupper\nsfence");
