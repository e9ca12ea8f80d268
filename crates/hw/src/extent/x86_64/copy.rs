//! Ways to copy on x86-64.

use core::arch::asm;

use super::features::Features;
use crate::Reuse;
use crate::extent::Facts;

/// One way to copy. Private to `extent`, which hands out only those that `available` yields.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::extent) enum CopyWay {
    RepMovsq,
    Stores,
    StoresAvx2,
    StoresAvx512,
    NtStores,
    NtAvx2,
    NtAvx512,
}

use CopyWay::{NtAvx2, NtAvx512, NtStores, RepMovsq, Stores, StoresAvx2, StoresAvx512};

const ALL: [CopyWay; 7] = [RepMovsq, Stores, StoresAvx2, StoresAvx512, NtStores, NtAvx2, NtAvx512];

impl CopyWay {
    pub(in crate::extent) fn available() -> impl Iterator<Item = Self> {
        let cpu = Features::detect();
        ALL.into_iter().filter(move |copy| match copy {
            StoresAvx2 | NtAvx2 => cpu.avx2,
            StoresAvx512 | NtAvx512 => cpu.avx512,
            RepMovsq | Stores | NtStores => true,
        })
    }

    /// Non-temporal stores avoid the read of the target's lines, which is a third of the traffic
    /// (measured on Zen 4: 16 to 19 GB/s, 22 with vectors, against 11 from one page on). The string
    /// instruction does the same for extents beyond the last-level cache, there 32 MiB, and is then
    /// faster. It is as fast by words as by bytes, for 4 and 64 KiB, cold and warm (measured on an
    /// EPYC), and an emulator that counts each turn counts an eighth.
    pub(in crate::extent) fn wishes(bytes: u64, reuse: Reuse) -> &'static [Self] {
        match reuse {
            _ if bytes >= 32 << 20 => &[RepMovsq, NtStores],
            Reuse::Later => &[NtAvx2, NtStores],
            Reuse::Soon if bytes >= 2 << 20 => &[NtAvx2, NtStores],
            Reuse::Soon => &[RepMovsq],
        }
    }

    pub(in crate::extent) fn facts(self) -> Facts {
        match self {
            RepMovsq => Facts::new("rep-movsq", true, false),
            Stores => Facts::new("stores", true, false),
            StoresAvx2 => Facts::new("stores-avx2", true, true),
            StoresAvx512 => Facts::new("stores-avx512", true, true),
            NtStores => Facts::new("nt-stores", false, false),
            NtAvx2 => Facts::new("nt-avx2", false, true),
            NtAvx512 => Facts::new("nt-avx512", false, true),
        }
    }

    /// # Safety
    /// As `CopyBackend::copy_raw`; the CPU has the instructions, and `bytes` is not zero.
    pub(in crate::extent) unsafe fn run(self, to: *mut u8, from: *const u8, bytes: usize) {
        let way: unsafe fn(*mut u8, *const u8, usize) = match self {
            RepMovsq => rep_movsq,
            Stores => stores,
            StoresAvx2 => stores_avx2,
            StoresAvx512 => stores_avx512,
            NtStores => nt_stores,
            NtAvx2 => nt_avx2,
            NtAvx512 => nt_avx512,
        };
        // SAFETY: passed on to the caller.
        unsafe { way(to, from, bytes) }
    }
}

/// # Safety
/// As [`CopyWay::run`].
unsafe fn rep_movsq(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: copies `bytes` bytes, a multiple of 8, upwards: the ABI keeps the direction flag
    // clear.
    unsafe {
        asm!("rep movsq", inout("rdi") to => _, inout("rsi") from => _,
             inout("rcx") bytes / 8 => _, options(nostack, preserves_flags));
    }
}

/// A loop that copies four registers of `$width` bytes per turn. `$after` orders the stores or
/// leaves the upper halves of the vector registers clean.
macro_rules! copy_loop {
    ($name:ident, $load:literal, $store:literal, $width:literal,
     [$a:literal, $b:literal, $c:literal, $d:literal], $after:literal) => {
        /// # Safety
        /// As [`CopyWay::run`].
        unsafe fn $name(to: *mut u8, from: *const u8, bytes: usize) {
            // SAFETY: each turn copies the next `4 * $width` bytes, of which `bytes`, a multiple
            // of 4096, is a multiple, and both starts are as aligned. The registers of the C ABI
            // that a callee may overwrite are declared clobbered, the vector ones among them.
            unsafe {
                asm!(
                    "2:",
                    concat!($load, " ", $a, ", [rsi]"),
                    concat!($load, " ", $b, ", [rsi + ", $width, "]"),
                    concat!($load, " ", $c, ", [rsi + 2 * ", $width, "]"),
                    concat!($load, " ", $d, ", [rsi + 3 * ", $width, "]"),
                    concat!($store, " [rdi], ", $a),
                    concat!($store, " [rdi + ", $width, "], ", $b),
                    concat!($store, " [rdi + 2 * ", $width, "], ", $c),
                    concat!($store, " [rdi + 3 * ", $width, "], ", $d),
                    concat!("add rsi, 4 * ", $width),
                    concat!("add rdi, 4 * ", $width),
                    "cmp rdi, rdx",
                    "jne 2b",
                    $after,
                    inout("rdi") to => _,
                    inout("rsi") from => _,
                    inout("rdx") to.wrapping_add(bytes) => _,
                    clobber_abi("sysv64"),
                    options(nostack),
                );
            }
        }
    };
}

copy_loop!(stores, "mov", "mov", "8", ["rax", "rcx", "r8", "r9"], "");
copy_loop!(nt_stores, "mov", "movnti", "8", ["rax", "rcx", "r8", "r9"], "sfence");
copy_loop!(stores_avx2, "vmovdqa", "vmovdqa", "32", ["ymm0", "ymm1", "ymm2", "ymm3"], "vzeroupper");
copy_loop!(
    nt_avx2,
    "vmovdqa",
    "vmovntdq",
    "32",
    ["ymm0", "ymm1", "ymm2", "ymm3"],
    "vzeroupper\nsfence"
);
copy_loop!(
    stores_avx512,
    "vmovdqa64",
    "vmovdqa64",
    "64",
    ["zmm0", "zmm1", "zmm2", "zmm3"],
    "vzeroupper"
);
copy_loop!(
    nt_avx512,
    "vmovdqa64",
    "vmovntdq",
    "64",
    ["zmm0", "zmm1", "zmm2", "zmm3"],
    "vzeroupper\nsfence"
);
