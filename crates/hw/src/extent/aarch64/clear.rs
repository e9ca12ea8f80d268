//! Ways to clear on arm64.

use core::arch::asm;

use super::features;
use crate::Reuse;
use crate::extent::Facts;

/// One way to clear. Private to `extent`, which hands out only those that `available` yields.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::extent) enum ClearWay {
    Mops,
    MopsNt,
    Zva,
    Stores,
    NtStores,
}

use ClearWay::{Mops, MopsNt, NtStores, Stores, Zva};

const ALL: [ClearWay; 5] = [Mops, MopsNt, Zva, Stores, NtStores];

impl ClearWay {
    pub(in crate::extent) fn available() -> impl Iterator<Item = Self> {
        let mops = features::mops();
        let zva = features::zva_block().is_some();
        ALL.into_iter().filter(move |clear| match clear {
            Mops | MopsNt => mops,
            Zva => zva,
            Stores | NtStores => true,
        })
    }

    /// MOPS leaves the strategy to the CPU, which sees the whole length. DC ZVA zeroes lines
    /// without reading them first, and cores stop allocating in long sequences by themselves.
    pub(in crate::extent) fn wishes(_bytes: u64, _reuse: Reuse) -> &'static [Self] {
        &[Mops, Zva, Stores]
    }

    pub(in crate::extent) fn facts(self) -> Facts {
        match self {
            Mops => Facts::new("mops", true, false),
            MopsNt => Facts::new("mops-nt", false, false),
            Zva => Facts::new("zva", true, false),
            Stores => Facts::new("stores", true, false),
            NtStores => Facts::new("nt-stores", false, false),
        }
    }

    /// # Safety
    /// As `Backend::clear_raw`; the CPU has the instructions, and `bytes` is not zero.
    pub(in crate::extent) unsafe fn run(self, start: *mut u8, bytes: usize) {
        let way: unsafe fn(*mut u8, usize) = match self {
            Mops => mops,
            MopsNt => mops_nt,
            Zva => zva,
            Stores => stores,
            NtStores => nt_stores,
        };
        // SAFETY: passed on to the caller.
        unsafe { way(start, bytes) }
    }
}

/// Prologue, main part and epilogue must follow each other directly and use the same registers.
/// The main part may be interrupted, and resumes: destination and count are kept up to date.
macro_rules! set {
    ($name:ident, $prologue:literal, $main:literal, $epilogue:literal) => {
        /// # Safety
        /// As [`ClearWay::run`].
        unsafe fn $name(start: *mut u8, bytes: usize) {
            // SAFETY: together the three set `bytes` bytes from `start` on to the low byte of
            // xzr.
            unsafe {
                asm!(
                    ".arch_extension mops",
                    concat!($prologue, " [{to}]!, {count}!, xzr"),
                    concat!($main, " [{to}]!, {count}!, xzr"),
                    concat!($epilogue, " [{to}]!, {count}!, xzr"),
                    to = inout(reg) start => _,
                    count = inout(reg) bytes => _,
                    options(nostack),
                );
            }
        }
    };
}

set!(mops, "setp", "setm", "sete");
set!(mops_nt, "setpn", "setmn", "seten");

/// # Safety
/// As [`ClearWay::run`].
unsafe fn zva(start: *mut u8, bytes: usize) {
    // The block size is read anew each time, not kept in the backend: reading the register costs
    // less than the first line. The fallback cannot occur on a CPU that `available` saw.
    let block = features::zva_block().unwrap_or(64);
    // SAFETY: each step zeroes the aligned block that holds the address; the block is at most
    // 2 KiB, a divisor of start and length, so exactly the extent is written.
    unsafe {
        asm!("2:", "dc zva, {at}", "add {at}, {at}, {block}", "cmp {at}, {end}", "b.ne 2b",
             at = inout(reg) start => _, end = in(reg) start.wrapping_add(bytes),
             block = in(reg) block, options(nostack));
    }
}

/// A loop of store pairs, 64 bytes per turn.
macro_rules! pairs {
    ($name:ident, $store:literal) => {
        /// # Safety
        /// As [`ClearWay::run`].
        unsafe fn $name(start: *mut u8, bytes: usize) {
            // SAFETY: each turn writes the next 64 bytes, of which `bytes` is a multiple.
            unsafe {
                asm!(
                    "2:",
                    concat!($store, " xzr, xzr, [{at}]"),
                    concat!($store, " xzr, xzr, [{at}, #16]"),
                    concat!($store, " xzr, xzr, [{at}, #32]"),
                    concat!($store, " xzr, xzr, [{at}, #48]"),
                    "add {at}, {at}, #64",
                    "cmp {at}, {end}",
                    "b.ne 2b",
                    at = inout(reg) start => _,
                    end = in(reg) start.wrapping_add(bytes),
                    options(nostack),
                );
            }
        }
    };
}

pairs!(stores, "stp");
pairs!(nt_stores, "stnp");
