//! Memory types as the embedder numbers them: the slots of x86-64's PAT and arm64's `MAIR_EL1`.
//!
//! Both registers are the embedder's, and an entry names a slot of them. So a format has the
//! numbers as a constant parameter, which [`memory_slots`] makes: four digits of four bits, one for
//! each value of the flags of [`Attrs::MEMORY`], so that a leaf is encoded and decoded without a
//! branch.

use crate::Attrs;

/// The slots of the usual, the combining and the device type, for the constant parameter of a
/// format ([`Arm64`](crate::aarch64::Arm64), [`X86`](crate::x86_64::X86)). A type that the embedder
/// never uses has a slot, too, and its `Profile` says that the CPU lacks it.
///
/// # Panics
/// When a slot exceeds 7, or two types have the same one. x86-64 has slots 0 to 3 only: its formats
/// do not compile with others.
pub const fn memory_slots(usual: u16, combining: u16, device: u16) -> u16 {
    assert!(usual < 8 && combining < 8 && device < 8, "there are eight slots");
    let differ = usual != combining && usual != device && combining != device;
    assert!(differ, "each type has a slot of its own");
    usual | combining << COMBINING | device << DEVICE | device << (COMBINING + DEVICE)
}

/// Where the digits of the combining and the device type are.
const COMBINING: u32 = 4;
const DEVICE: u32 = 8;

/// The slot of a leaf with these attributes.
#[inline]
pub(crate) const fn slot(slots: u16, attrs: Attrs) -> u64 {
    let combining = has(attrs, Attrs::COMBINING) * COMBINING;
    let device = has(attrs, Attrs::DEVICE) * DEVICE;
    slots as u64 >> (combining + device) & 7
}

#[inline]
const fn has(attrs: Attrs, flag: Attrs) -> u32 {
    attrs.bits() as u32 >> flag.bits().trailing_zeros() & 1
}

/// For each slot two bits: whether it is the combining type's, and the device type's; both if no
/// type has it.
pub(crate) const fn types(slots: u16) -> u16 {
    let mut types = u16::MAX;
    let mut code = 3;
    while code > 0 {
        code -= 1;
        let slot = slots >> (code * COMBINING) & 7;
        types = types & !(3 << (2 * slot)) | (code as u16) << (2 * slot);
    }
    types
}

/// The type of a leaf with this slot, by [`types`].
#[inline]
pub(crate) const fn memory(types: u16, slot: u64) -> Attrs {
    let code = types >> (2 * slot) & 3;
    let combining = (code & 1) << Attrs::COMBINING.bits().trailing_zeros();
    let device = (code >> 1) << Attrs::DEVICE.bits().trailing_zeros();
    Attrs::from_bits_retain(combining | device)
}
