//! Moving single flags between an [`Attrs`] and an entry's word, without a branch.

use crate::Attrs;

/// Bit `at` of a word, set when `attrs` holds `flag`; `flag` is a single flag.
#[inline]
pub(crate) const fn put(attrs: Attrs, flag: Attrs, at: u32) -> u64 {
    (attrs.bits() as u64 >> flag.bits().trailing_zeros() & 1) << at
}

/// `flag` when bit `at` of `word` is set; `flag` is a single flag.
#[inline]
pub(crate) const fn take(word: u64, at: u32, flag: Attrs) -> Attrs {
    let set = (word >> at & 1) as u16;
    Attrs::from_bits_retain(set << flag.bits().trailing_zeros())
}

/// A word with ones from bit `low` up to and including bit `high`.
pub(crate) const fn field(high: u32, low: u32) -> u64 {
    (u64::MAX >> (63 - high)) & (u64::MAX << low)
}
