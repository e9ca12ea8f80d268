//! Ways to copy on arm64.

use core::arch::asm;

use super::features;
use crate::Reuse;
use crate::extent::Facts;

/// One way to copy. Private to `extent`, which hands out only those that `available` yields.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::extent) enum CopyWay {
    Mops,
    MopsNt,
    Stores,
    NtStores,
}

use CopyWay::{Mops, MopsNt, NtStores, Stores};

const ALL: [CopyWay; 4] = [Mops, MopsNt, Stores, NtStores];

impl CopyWay {
    pub(in crate::extent) fn available() -> impl Iterator<Item = Self> {
        let mops = features::mops();
        ALL.into_iter().filter(move |copy| match copy {
            Mops | MopsNt => mops,
            Stores | NtStores => true,
        })
    }

    pub(in crate::extent) fn wishes(_bytes: u64, _reuse: Reuse) -> &'static [Self] {
        &[Mops, Stores]
    }

    pub(in crate::extent) fn facts(self) -> Facts {
        match self {
            Mops => Facts::new("mops", true, false),
            MopsNt => Facts::new("mops-nt", false, false),
            Stores => Facts::new("stores", true, false),
            NtStores => Facts::new("nt-stores", false, false),
        }
    }

    /// # Safety
    /// As `CopyBackend::copy_raw`; the CPU has the instructions, and `bytes` is not zero.
    pub(in crate::extent) unsafe fn run(self, to: *mut u8, from: *const u8, bytes: usize) {
        let way: unsafe fn(*mut u8, *const u8, usize) = match self {
            Mops => mops,
            MopsNt => mops_nt,
            Stores => stores,
            NtStores => nt_stores,
        };
        // SAFETY: passed on to the caller.
        unsafe { way(to, from, bytes) }
    }
}

/// Forward-only copy: the extents do not overlap, so the CPU need not compare them.
macro_rules! cpyf {
    ($name:ident, $prologue:literal, $main:literal, $epilogue:literal) => {
        /// # Safety
        /// As [`CopyWay::run`].
        unsafe fn $name(to: *mut u8, from: *const u8, bytes: usize) {
            // SAFETY: together the three copy `bytes` bytes from `from` to `to`.
            unsafe {
                asm!(
                    ".arch_extension mops",
                    concat!($prologue, " [{to}]!, [{from}]!, {count}!"),
                    concat!($main, " [{to}]!, [{from}]!, {count}!"),
                    concat!($epilogue, " [{to}]!, [{from}]!, {count}!"),
                    to = inout(reg) to => _,
                    from = inout(reg) from => _,
                    count = inout(reg) bytes => _,
                    options(nostack),
                );
            }
        }
    };
}

cpyf!(mops, "cpyfp", "cpyfm", "cpyfe");
cpyf!(mops_nt, "cpyfpn", "cpyfmn", "cpyfen");

/// A loop of load and store pairs, 64 bytes per turn.
macro_rules! pairs {
    ($name:ident, $load:literal, $store:literal) => {
        /// # Safety
        /// As [`CopyWay::run`].
        unsafe fn $name(to: *mut u8, from: *const u8, bytes: usize) {
            // SAFETY: each turn copies the next 64 bytes, of which `bytes` is a multiple.
            unsafe {
                asm!(
                    "2:",
                    concat!($load, " {a}, {b}, [{from}]"),
                    concat!($load, " {c}, {d}, [{from}, #16]"),
                    concat!($load, " {e}, {f}, [{from}, #32]"),
                    concat!($load, " {g}, {h}, [{from}, #48]"),
                    "add {from}, {from}, #64",
                    concat!($store, " {a}, {b}, [{to}]"),
                    concat!($store, " {c}, {d}, [{to}, #16]"),
                    concat!($store, " {e}, {f}, [{to}, #32]"),
                    concat!($store, " {g}, {h}, [{to}, #48]"),
                    "add {to}, {to}, #64",
                    "cmp {to}, {end}",
                    "b.ne 2b",
                    to = inout(reg) to => _,
                    from = inout(reg) from => _,
                    end = in(reg) to.wrapping_add(bytes),
                    a = out(reg) _, b = out(reg) _, c = out(reg) _, d = out(reg) _,
                    e = out(reg) _, f = out(reg) _, g = out(reg) _, h = out(reg) _,
                    options(nostack),
                );
            }
        }
    };
}

pairs!(stores, "ldp", "stp");
pairs!(nt_stores, "ldnp", "stnp");
