//! Ways to clear on riscv64.

use core::arch::asm;

use crate::Reuse;
use crate::extent::{Facts, GRAIN};

/// One way to clear. Private to `extent`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::extent) enum ClearWay {
    /// `cbo.zero` with blocks of this many bytes.
    Zicboz(u16),
    Stores,
}

impl ClearWay {
    /// Without Zicboz: software cannot query the CPU for it.
    pub(in crate::extent) fn available() -> impl Iterator<Item = Self> {
        core::iter::once(Self::Stores)
    }

    /// # Safety
    /// As `Backend::zicboz`.
    pub(in crate::extent) unsafe fn zicboz(block_bytes: usize) -> Option<Self> {
        let fits = block_bytes.is_power_of_two() && (8..=GRAIN).contains(&block_bytes);
        fits.then_some(Self::Zicboz(block_bytes as u16))
    }

    pub(in crate::extent) fn wishes(_bytes: u64, _reuse: Reuse) -> &'static [Self] {
        &[Self::Stores]
    }

    pub(in crate::extent) fn facts(self) -> Facts {
        match self {
            Self::Zicboz(_) => Facts::new("zicboz", true, false),
            Self::Stores => Facts::new("stores", true, false),
        }
    }

    /// # Safety
    /// As `Backend::clear_raw`; the CPU has the instructions, and `bytes` is not zero.
    pub(in crate::extent) unsafe fn run(self, start: *mut u8, bytes: usize) {
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
