//! The words and the bytes of RAM, as the library needs them.

use core::fmt;
use core::ops::Range;

use quire_units::{FrameSpan, Pfn};

use crate::{FrameRun, TableFrame};

/// Accesses to RAM. All methods may be called by several CPUs at once.
///
/// [`Ram`](crate::Ram) implements it for an embedder that sees RAM in a direct map; [`HasMemory`]
/// passes it on. Laws, which the library relies on for correctness:
/// * `load`, `fill` and `compare_exchange` act on each 64-bit word atomically, `load` with
///   acquire, the other two with release semantics.
/// * The hardware's table walker sees the words in the order of those calls (arm64: an `ISH` store
///   barrier after a `fill` or exchange that makes an entry valid).
pub trait Memory: Sync {
    /// Word `index` of `frame`. Any frame of RAM may be read, also one that another CPU is about
    /// to free or reuse: readers validate afterwards what they read. Zero where there is no RAM.
    fn load(&self, frame: Pfn, index: usize) -> u64;

    /// How many words of `frame` from `index` on, `most` at most, are `first`, `first + step`, …,
    /// the words that [`fill`](Self::fill) would have written. Ordered as a `load` of each.
    ///
    /// Scans of tables spend their time here, so an implementation faster than word by word pays;
    /// [`DirectMap::count_run`](crate::DirectMap::count_run) is one.
    fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        let mut expected = first;
        let same = |at: &usize| {
            let same = self.load(frame, *at) == expected;
            expected = expected.wrapping_add(step);
            same
        };
        (index..index + most).take_while(same).count()
    }

    /// The words of `frame` from `index` on, into all of `words`. Each is as a `load` would return
    /// it at some moment of the call: they need not be of one moment. Only hardware can change
    /// words of a locked table, each on its own, so the holder needs no order among them, and an
    /// implementation may load several at once.
    fn load_words(&self, frame: Pfn, index: usize, words: &mut [u64]) {
        words.iter_mut().enumerate().for_each(|(at, word)| *word = self.load(frame, index + at));
    }

    /// Writes `words` from `index` on, each as [`fill`](Self::fill) would and in any order.
    fn store_words(&self, table: &TableFrame, index: usize, words: &[u64]) {
        words.iter().enumerate().for_each(|(at, word)| self.fill(table, index + at, 1, *word, 0));
    }

    /// Writes `count` words from `index` on: `first`, `first + step`, `first + 2·step`, …
    /// (wrapping).
    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64);

    /// Writes `new` to word `index` if it holds `current`.
    ///
    /// # Errors
    /// The word's value, if it was another; nothing is written then.
    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64>;

    /// Zeroes frames `pages` of `frames` (counted from its first), as one extent.
    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse);

    /// Copies `from` over the frames of `to` from number `at` (counted from its first) on.
    ///
    /// # Errors
    /// The frame whose memory failed. The frames before it were copied.
    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned>;
}

/// A value whose accesses to RAM are those of a part of it: it has [`Memory`] by that part.
pub trait HasMemory: Sync {
    /// The part.
    type Memory: Memory;

    /// The part.
    fn memory(&self) -> &Self::Memory;
}

impl<T: HasMemory> Memory for T {
    #[inline(always)]
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.memory().load(frame, index)
    }

    #[inline(always)]
    fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        self.memory().count_run(frame, index, most, first, step)
    }

    #[inline(always)]
    fn load_words(&self, frame: Pfn, index: usize, words: &mut [u64]) {
        self.memory().load_words(frame, index, words);
    }

    #[inline(always)]
    fn store_words(&self, table: &TableFrame, index: usize, words: &[u64]) {
        self.memory().store_words(table, index, words);
    }

    #[inline(always)]
    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        self.memory().fill(table, index, count, first, step);
    }

    #[inline(always)]
    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        self.memory().compare_exchange(table, index, current, new)
    }

    #[inline(always)]
    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse) {
        self.memory().clear(frames, pages, reuse);
    }

    #[inline(always)]
    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        self.memory().copy(to, at, from)
    }
}

/// Whether cleared memory will be touched soon, so that caching it pays.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reuse {
    /// The extent is about to be read or written: leave it in the near caches.
    Soon,
    /// No access is expected soon: the fastest way to zero it, whatever that leaves in the caches.
    Later,
}

/// A frame whose memory reported an uncorrectable error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poisoned {
    /// Which frame.
    pub frame: Pfn,
}

impl fmt::Display for Poisoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} holds an uncorrectable memory error", self.frame)
    }
}

impl core::error::Error for Poisoned {}
