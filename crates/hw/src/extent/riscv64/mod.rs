//! riscv64: Zicboz `cbo.zero`, and plain stores. No sequence touches vector registers.

use core::arch::asm;

use super::{Facts, GRAIN};
use crate::Reuse;

/// One way to clear. Private to `extent`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ClearWay {
    /// `cbo.zero` with blocks of so many bytes.
    Zicboz(u16),
    Stores,
}

impl ClearWay {
    /// Without Zicboz: a CPU cannot be asked for it.
    pub(super) fn available() -> impl Iterator<Item = Self> {
        core::iter::once(Self::Stores)
    }

    /// # Safety
    /// As `Backend::zicboz`.
    pub(super) unsafe fn zicboz(block_bytes: usize) -> Option<Self> {
        let fits = block_bytes.is_power_of_two() && (8..=GRAIN).contains(&block_bytes);
        fits.then_some(Self::Zicboz(block_bytes as u16))
    }

    pub(super) fn wishes(_bytes: u64, _reuse: Reuse) -> &'static [Self] {
        &[Self::Stores]
    }

    pub(super) fn facts(self) -> Facts {
        match self {
            Self::Zicboz(_) => Facts::new("zicboz", true, false),
            Self::Stores => Facts::new("stores", true, false),
        }
    }

    /// # Safety
    /// As `Backend::clear_raw`; the CPU has the instructions, and `bytes` is not zero.
    pub(super) unsafe fn run(self, start: *mut u8, bytes: usize) {
        match self {
            // SAFETY: passed on to the caller.
            Self::Zicboz(block) => unsafe { zicboz(start, bytes, usize::from(block)) },
            // SAFETY: passed on to the caller.
            Self::Stores => unsafe { stores(start, bytes) },
        }
    }
}

/// # Safety
/// As [`ClearWay::run`].
unsafe fn zicboz(start: *mut u8, bytes: usize, block: usize) {
    // SAFETY: each step zeroes the aligned block that holds the address; the block divides start
    // and length, so exactly the extent is written.
    unsafe {
        asm!(
            ".option push",
            ".option arch, +zicboz",
            "2:",
            "cbo.zero ({at})",
            "add {at}, {at}, {block}",
            "bne {at}, {end}, 2b",
            ".option pop",
            at = inout(reg) start => _,
            end = in(reg) start.wrapping_add(bytes),
            block = in(reg) block,
            options(nostack),
        );
    }
}

/// # Safety
/// As [`ClearWay::run`].
unsafe fn stores(start: *mut u8, bytes: usize) {
    // SAFETY: each turn writes the next 64 bytes, of which `bytes` is a multiple.
    unsafe {
        asm!(
            "2:",
            "sd zero, 0({at})",
            "sd zero, 8({at})",
            "sd zero, 16({at})",
            "sd zero, 24({at})",
            "sd zero, 32({at})",
            "sd zero, 40({at})",
            "sd zero, 48({at})",
            "sd zero, 56({at})",
            "addi {at}, {at}, 64",
            "bne {at}, {end}, 2b",
            at = inout(reg) start => _,
            end = in(reg) start.wrapping_add(bytes),
            options(nostack),
        );
    }
}

/// One way to copy. Private to `extent`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum CopyWay {
    Stores,
}

impl CopyWay {
    pub(super) fn available() -> impl Iterator<Item = Self> {
        core::iter::once(Self::Stores)
    }

    pub(super) fn wishes(_bytes: u64, _reuse: Reuse) -> &'static [Self] {
        &[Self::Stores]
    }

    pub(super) fn facts(self) -> Facts {
        Facts::new("stores", true, false)
    }

    /// # Safety
    /// As `CopyBackend::copy_raw`, and `bytes` is not zero.
    pub(super) unsafe fn run(self, to: *mut u8, from: *const u8, bytes: usize) {
        // SAFETY: each turn copies the next 32 bytes, of which `bytes` is a multiple.
        unsafe {
            asm!(
                "2:",
                "ld {a}, 0({from})",
                "ld {b}, 8({from})",
                "ld {c}, 16({from})",
                "ld {d}, 24({from})",
                "addi {from}, {from}, 32",
                "sd {a}, 0({to})",
                "sd {b}, 8({to})",
                "sd {c}, 16({to})",
                "sd {d}, 24({to})",
                "addi {to}, {to}, 32",
                "bne {to}, {end}, 2b",
                to = inout(reg) to => _,
                from = inout(reg) from => _,
                end = in(reg) to.wrapping_add(bytes),
                a = out(reg) _,
                b = out(reg) _,
                c = out(reg) _,
                d = out(reg) _,
                options(nostack),
            );
        }
    }
}
