//! Faults on demand: memory that fails, and CPUs that are slow.
//!
//! The library must survive all of them. A failed copy loses a page and nothing else. Delays change
//! no result: they only produce interleavings that a quiet host would never show.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

/// The faults to inject. All are off at first.
#[derive(Debug, Default)]
pub struct Faults {
    /// Copies left until one fails; 0 for never.
    copies_left: AtomicU64,
    /// How many of 1024 possible delays happen.
    delays: AtomicU32,
    random: AtomicU64,
}

impl Faults {
    /// The `nth` copy from now on fails at its first frame, counted from 1; 0 calls it off.
    pub fn fail_copy(&self, nth: u64) {
        self.copies_left.store(nth, Ordering::Relaxed);
    }

    /// From now on `of_1024` of 1024 opportunities to let other CPUs run first are taken: before
    /// each CPU acknowledges a flush, before a walk reads an entry or sets a flag, and, on a
    /// watched machine, before a word is stored. The seed decides which, as far as the host's own
    /// scheduling allows.
    pub fn delay(&self, of_1024: u32, seed: u64) {
        self.random.store(seed | 1, Ordering::Relaxed);
        self.delays.store(of_1024, Ordering::Relaxed);
    }

    /// Whether this copy is the one to fail.
    pub(crate) fn copy_fails(&self) -> bool {
        if self.copies_left.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let one_less = |left: u64| left.checked_sub(1);
        let order = Ordering::Relaxed;
        self.copies_left.fetch_update(order, order, one_less) == Ok(1)
    }

    /// An opportunity for a delay.
    #[inline]
    pub(crate) fn opportunity(&self) {
        let delays = self.delays.load(Ordering::Relaxed);
        if delays != 0 && self.dice() % 1024 < u64::from(delays) {
            thread::yield_now();
        }
    }

    /// Xorshift64*; a lost update under contention is as random as any other.
    fn dice(&self) -> u64 {
        let mut x = self.random.load(Ordering::Relaxed);
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.random.store(x, Ordering::Relaxed);
        x.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }
}

#[cfg(test)]
mod tests {
    use super::Faults;

    #[test]
    fn only_the_nth_copy_fails() {
        let faults = Faults::default();
        assert!(!faults.copy_fails());
        faults.fail_copy(3);
        let failed: Vec<_> = (0..5).map(|_| faults.copy_fails()).collect();
        assert_eq!(failed, [false, false, true, false, false]);
    }

    #[test]
    fn dice_follow_the_seed() {
        let rolls = |seed| {
            let faults = Faults::default();
            faults.delay(0, seed);
            (0..4).map(|_| faults.dice()).collect::<Vec<_>>()
        };
        assert_eq!(rolls(8), rolls(8));
        assert_ne!(rolls(8), rolls(10));
    }
}
