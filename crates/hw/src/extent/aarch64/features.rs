//! The features in the ID registers.

use core::arch::asm;

/// Whether the CPU has the memory copy and set instructions: ID_AA64ISAR2_EL1.MOPS, bits 16 to 19.
///
/// Linux emulates the read for programs. A kernel under a hypervisor must also have permission to
/// use them (HCRX_EL2.MSCEn), or they are undefined; the ID register does not show it.
pub(super) fn mops() -> bool {
    let isar2: u64;
    // SAFETY: reads an ID register, without side effect. It is ID_AA64ISAR2_EL1, spelt so that
    // assemblers for older versions of the architecture take it; it reads as zero there.
    unsafe {
        asm!("mrs {}, S3_0_C0_C6_2", out(reg) isar2, options(nomem, nostack, preserves_flags))
    };
    isar2 >> 16 & 0xf != 0
}

/// How many bytes DC ZVA zeroes; `None` where it is prohibited. DCZID_EL0: bit 4 prohibits, bits
/// 0 to 3 hold the base-two logarithm of the block in words of 4 bytes, at most 9.
pub(super) fn zva_block() -> Option<usize> {
    let dczid: u64;
    // SAFETY: reads an ID register that every level may read, without side effect.
    unsafe { asm!("mrs {}, DCZID_EL0", out(reg) dczid, options(nomem, nostack, preserves_flags)) };
    if dczid & 1 << 4 == 0 { Some(4 << (dczid & 0xf)) } else { None }
}
