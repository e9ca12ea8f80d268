//! The encoding of a unit: one repeated word, LZ4, or its plain bytes. And the checksum over that.

use lz4_flex::block::{compress_into_with_table, decompress_into};
use twox_hash::XxHash64;

use crate::Table;
use crate::heap::Owner;
use crate::words::get64;

/// A unit that compression shortens by less than this part of it (1/16) is kept uncompressed: then
/// reading it costs a copy and no decompression.
const GAIN_SHIFT: u32 = 4;

/// The encoding chosen for a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome<'a> {
    /// This word, again and again.
    Same(u64),
    /// These bytes, LZ4.
    Lz4(&'a [u8]),
    /// Its plain bytes.
    Raw,
}

/// Compresses a unit. `out` holds the worst case, see [`Config::scratch_bytes`].
///
/// [`Config::scratch_bytes`]: crate::Config::scratch_bytes
pub(crate) fn pack<'a>(table: &mut Table, unit: &[u8], out: &'a mut [u8]) -> Outcome<'a> {
    if let Some(word) = repeated(unit) {
        return Outcome::Same(word);
    }
    let Ok(length) = compress_into_with_table(unit, out, &mut table.0) else { return Outcome::Raw };
    let is_worth = length <= unit.len() - (unit.len() >> GAIN_SHIFT);
    match out.get(..length) {
        Some(packed) if is_worth => Outcome::Lz4(packed),
        _ => Outcome::Raw,
    }
}

/// The word that a unit repeats, if it does.
pub(crate) fn repeated(unit: &[u8]) -> Option<u64> {
    // A unit repeats a word if it equals itself shifted by a word; comparing memory is fast.
    let (head, tail) = (unit.get(..unit.len().checked_sub(8)?)?, unit.get(8..)?);
    (head == tail).then(|| get64(unit, 0))
}

/// Fills `out` with a repeated word.
pub(crate) fn repeat(word: u64, out: &mut [u8]) {
    for chunk in out.chunks_exact_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
}

/// Decompresses a whole unit into `out`; `None` when the bytes are no LZ4 block of that length.
pub(crate) fn unpack(packed: &[u8], out: &mut [u8]) -> Option<()> {
    let length = decompress_into(packed, out).ok()?;
    (length == out.len()).then_some(())
}

/// The checksum of a unit's stored bytes. It also covers the unit's owner and kind, so that the
/// bytes of another unit do not pass.
pub(crate) fn checksum(owner: Owner, kind: u64, kept: &[u8]) -> u32 {
    // XXH64 without SIMD, which kernels do not use: 10 to 15 GB/s where LZ4 decompresses 3 GB/s.
    // For data that compresses, that is 2 to 9 % of storing and 5 to 15 % of loading; for data that
    // does not, a third to 40 % of either. One wrong unit in 2^32 passes.
    XxHash64::oneshot(owner.bits() ^ kind << 60, kept) as u32
}

#[cfg(test)]
mod tests {
    use std::{assert, assert_eq, vec};

    use super::*;

    #[test]
    fn d5_only_a_unit_that_repeats_one_word_is_same_filled() {
        for length in [8, 16, 4096, 65536] {
            let mut unit = vec![0; length];
            assert_eq!(repeated(&unit), Some(0));
            repeat(0x0123_4567_89ab_cdef, &mut unit);
            assert_eq!(repeated(&unit), Some(0x0123_4567_89ab_cdef));
            if length > 8 {
                for at in [0, 8, length / 2, length - 1] {
                    unit[at] ^= 1;
                    assert_eq!(repeated(&unit), None, "byte {at} of {length}");
                    unit[at] ^= 1;
                }
            }
        }
        assert_eq!(repeated(&[1; 7]), None, "less than a word");
    }

    #[test]
    fn d5_a_unit_is_kept_compressed_from_a_gain_of_a_sixteenth_on() {
        let (mut table, mut out) = (Table::new(), vec![0; 8192]);
        for length in [4096, 16384] {
            let mut gains = std::collections::BTreeSet::new();
            // The more bytes of a unit are of chance, the longer is its block, mostly by one.
            for chance in length * 7 / 8..length {
                let mut unit = vec![0; length];
                let mut dice = 1_u32;
                unit[..chance].fill_with(|| {
                    dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (dice >> 24) as u8
                });
                out.resize(2 * length, 0);
                let packed = compress_into_with_table(&unit, &mut out, &mut table.0);
                let gain = length as i64 - packed.expect("there is room") as i64;
                let is_kept = matches!(pack(&mut table, &unit, &mut out), Outcome::Lz4(_));
                assert_eq!(is_kept, 16 * gain >= length as i64, "{gain} of {length}");
                gains.insert(gain);
            }
            let edge = length as i64 / 16;
            assert!((edge - 1..=edge + 1).all(|gain| gains.contains(&gain)), "{gains:?}");
        }
    }

    #[test]
    fn d5_a_block_of_another_length_is_refused() {
        let mut table = Table::new();
        let mut out = vec![0; 8192];
        let unit: std::vec::Vec<u8> = (0..4096_u32).map(|n| (n / 7) as u8).collect();
        let Outcome::Lz4(packed) = pack(&mut table, &unit, &mut out) else { panic!("it shrinks") };
        assert!(unpack(packed, &mut vec![0; 4096]).is_some());
        assert!(unpack(packed, &mut vec![0; 4095]).is_none());
        assert!(unpack(packed, &mut vec![0; 4097]).is_none());
        assert!(unpack(&packed[1..], &mut vec![0; 4096]).is_none());
    }
}
