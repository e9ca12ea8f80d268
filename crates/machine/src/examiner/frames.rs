//! Maps from frames. Every store into a table looks one up, so lookups must be cheap.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use quire_units::Pfn;

/// A map from frames. Frame numbers are not hostile input, so a weak hash suffices.
pub(super) type Frames<T> = HashMap<Pfn, T, BuildHasherDefault<FrameHasher>>;

/// Spreads a number by one multiplication.
#[derive(Default)]
pub(super) struct FrameHasher(u64);

impl Hasher for FrameHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, word: u64) {
        // The table takes its place from the low bits and a tag from the high ones.
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}
