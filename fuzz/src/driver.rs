//! Random and mutated bytes for the targets, for machines without cargo-fuzz.
//!
//! It has no coverage feedback. So it begins with valid inputs and changes a few of their bytes,
//! and draws others at random: short and long ones, with mostly small numbers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::Target;

/// The length limit of random inputs, in bytes.
const LONGEST: usize = 4096;

/// The result of fuzzing a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// How many inputs it got.
    pub runs: u64,
    /// The input that made it fail.
    pub failed: Option<Vec<u8>>,
}

/// A small generator of numbers (splitmix64), so that a seed gives the same bytes again anywhere.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// Numbers of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, of 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { (self.word() % end as u64) as usize }
    }

    /// Bytes for a target: one of `seeds`, changed a little, or random ones.
    pub fn input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        if seeds.is_empty() || self.below(8) == 0 {
            let most = LONGEST >> self.below(10);
            let small = self.below(2) == 0;
            let length = self.below(most + 1);
            let byte = |draw: &mut Self| (draw.word() >> if small { 60 } else { 56 }) as u8;
            return (0..length).map(|_| byte(self)).collect();
        }
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(6) {
            self.mutate(&mut bytes);
        }
        bytes
    }

    /// Changes a few bytes. Most are near the start, where headers are.
    fn mutate(&mut self, bytes: &mut Vec<u8>) {
        let reach = bytes.len().min(64 << self.below(16));
        let at = self.below(reach);
        match self.below(6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, self.word() as u8),
            2 => {
                let from = self.below(bytes.len());
                let count = self.below(64).min(bytes.len() - from);
                let piece = bytes[from..from + count].to_vec();
                bytes.splice(at..at, piece);
            }
            3 => {
                // A number in a header, in either byte order.
                let edges = [0, 1, 0x7f, 0x80, 0xff, 0xfff, 0x1000, 1 << 31, 1 << 47, u64::MAX];
                let number = edges[self.below(edges.len())].to_le_bytes();
                let width = 1 << self.below(4);
                bytes.iter_mut().skip(at).zip(&number[..width]).for_each(|(to, from)| *to = *from);
            }
            _ => {
                let flip = 1 << self.below(8);
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= flip);
            }
        }
    }
}

/// Feeds inputs of `seed` to `target` for `time`, or until it fails; the target's own seeds first.
pub fn fuzz(target: &Target, time: Duration, seed: u64) -> Outcome {
    let (start, seeds) = (Instant::now(), (target.seeds)());
    let mut draw = Draw::new(seed);
    let mut runs = 0;
    while runs < seeds.len() as u64 || start.elapsed() < time {
        let input = match seeds.get(runs as usize) {
            Some(whole) => whole.clone(),
            None => draw.input(&seeds),
        };
        runs += 1;
        if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
            return Outcome { runs, failed: Some(input) };
        }
    }
    Outcome { runs, failed: None }
}
