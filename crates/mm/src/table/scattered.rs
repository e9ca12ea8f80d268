//! Leaves whose frames lie anywhere.
//!
//! Programs touch pages in any order, and memory that was used is in pieces. Each page is a run by
//! itself then. But the words of such neighbours still differ in their frames alone, so that one of
//! them, once it is decoded, gives the meaning of the others and what they become:
//!
//! ```text
//!   words   | 7 c w | 2 c w | 9 c w | 4 c w | ... |  20 c w | 21 c w | 22 c w | ...
//!             └─ a batch: each like the first? ──┘      └ consecutive: a run, done as one
//! ```

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::Pfn;

use super::lock::BATCH;
use super::sample::Sample;
use super::word::is_foreign;
use super::{Locked, Run, What};

/// This many consecutive frames are a run that costs less as one.
pub(super) const LONG: usize = 8;

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// The difference between the word of a leaf like `raw`, which maps `frame`, and its word with
    /// the attributes `now`.
    #[inline]
    pub(super) fn change_of(&self, raw: u64, frame: Pfn, now: Attrs) -> u64 {
        self.spelled(frame, now).wrapping_sub(raw)
    }

    /// If `run` is short, calls `act` with the frame and word of its first leaf, and with those of
    /// the leaves after it that have the same attributes, before entry `end`, up to one for which
    /// it returns `false`. `put` gets the words as `act` leaves them, with the first of their
    /// entries, a batch at a time. Returns how many leaves were done. None of them is in a
    /// contiguous block.
    #[inline(always)]
    pub(super) fn scattered(
        &self,
        run: &Run,
        end: usize,
        mut act: impl FnMut(Pfn, &mut u64) -> bool,
        mut put: impl FnMut(usize, &[u64]),
    ) -> usize {
        let Some(sample) = self.sample_of(run, end) else { return 0 };
        let mut at = run.index;
        loop {
            let mut words = [0; BATCH];
            let words = &mut words[..BATCH.min(end - at)];
            self.load_batch(at, words);
            let mut done = 0;
            while let Some(word) = words.get_mut(done)
                && *word != 0
                && let Some((frame, _)) = sample.read::<A>(*word)
                && act(frame, word)
            {
                done += 1;
            }
            put(at, &words[..done]);
            at += done;
            if done < words.len() || at == end || self.begins_run(at, end) {
                return at - run.index;
            }
        }
    }

    /// Loads the words from entry `at` on, at most a batch. One instance for all that scatter.
    #[inline(never)]
    pub(super) fn load_batch(&self, at: usize, words: &mut [u64]) {
        self.load_words(at, words);
    }

    /// Stores the words from entry `at` on, at most a batch; see
    /// [`store_words`](Self::store_words).
    #[inline(never)]
    pub(super) fn store_batch(&self, at: usize, words: &[u64]) {
        self.store_words(at, words);
    }

    /// The sample of a run's first leaf, if others of its kind can come before entry `end`.
    #[inline(never)]
    fn sample_of(&self, run: &Run, end: usize) -> Option<Sample> {
        let What::Leaf { frame, attrs, .. } = run.what else { return None };
        let is_lone = run.index + 1 < end;
        let is_plain = !self.is_folded(run.raw) && !is_foreign(attrs);
        let sample = || Sample::of::<A>(run.raw, self.level(), frame, attrs);
        (is_lone && is_plain).then(sample)
    }

    /// Whether a long run begins at entry `at`, or something like it: the word far behind tells.
    #[inline(always)]
    fn begins_run(&self, at: usize, end: usize) -> bool {
        let ahead = A::step(self.level()).wrapping_mul(LONG as u64 - 1);
        at + LONG <= end && self.raw(at + LONG - 1) == self.raw(at).wrapping_add(ahead)
    }
}
