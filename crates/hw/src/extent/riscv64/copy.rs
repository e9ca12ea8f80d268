//! Ways to copy on riscv64.

use core::arch::asm;

use crate::Reuse;
use crate::extent::Facts;

/// One way to copy. Private to `extent`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::extent) enum CopyWay {
    Stores,
}

impl CopyWay {
    pub(in crate::extent) fn available() -> impl Iterator<Item = Self> {
        core::iter::once(Self::Stores)
    }

    pub(in crate::extent) fn wishes(_bytes: u64, _reuse: Reuse) -> &'static [Self] {
        &[Self::Stores]
    }

    pub(in crate::extent) fn facts(self) -> Facts {
        Facts::new("stores", true, false)
    }

    /// # Safety
    /// As `CopyBackend::copy_raw`, and `bytes` is not zero.
    pub(in crate::extent) unsafe fn run(self, to: *mut u8, from: *const u8, bytes: usize) {
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
