//! Counting and writing runs of table words, for implementations that can borrow the words.
//!
//! Both work on eight words at a time, so that a word costs one compare or store and one addition.
//! All memory orders of table words are here: `models` has this file once more, with the atomics of
//! a model checker.

use super::atomic::{AtomicU64, Ordering, fence};

/// A word, with acquire ordering.
#[inline]
pub(crate) fn load_word(word: &AtomicU64) -> u64 {
    word.load(Ordering::Acquire)
}

/// Writes a word, with release ordering.
#[inline]
pub(crate) fn store_word(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
}

/// Writes `new` if the word is `current`, with acquire and release ordering.
///
/// # Errors
/// The word's value, if it was another, with acquire ordering.
#[inline]
pub(crate) fn exchange(word: &AtomicU64, current: u64, new: u64) -> Result<(), u64> {
    word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
}

/// How many of `words` are `first`, `first + step`, … (wrapping), as
/// [`Memory::count_run`](crate::Memory::count_run) demands.
///
/// One fence orders all loads, so they need no order among themselves; only the words are loaded
/// between them.
#[inline]
pub fn count_words(words: &[AtomicU64], first: u64, step: u64) -> usize {
    let count = match step {
        0 if first == 0 => zeroes(words),
        0 => agreeing(words, first, |word| word),
        _ => agreeing(words, first, |word| word.wrapping_add(step)),
    };
    fence(Ordering::Acquire);
    count
}

/// How many of `words` are zero: the most frequent case, since most of a sparse table is zero.
fn zeroes(words: &[AtomicU64]) -> usize {
    let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
    let (eights, _) = words.as_chunks::<8>();
    let whole =
        eights.iter().position(|eight| eight.iter().fold(0, |all, one| all | read(one)) != 0);
    let from = 8 * whole.unwrap_or(eights.len());
    let rest = &words[from..];
    from + rest.iter().position(|word| read(word) != 0).unwrap_or(rest.len())
}

/// How many of `words` are the sequence that begins with `first` and continues with `next`.
#[inline(always)]
fn agreeing(words: &[AtomicU64], first: u64, next: impl Fn(u64) -> u64) -> usize {
    let mut expected = first;
    let mut differs = |word: &AtomicU64| {
        let differs = word.load(Ordering::Relaxed) != expected;
        expected = next(expected);
        differs
    };
    let (eights, rest) = words.as_chunks::<8>();
    for (at, eight) in eights.iter().enumerate() {
        if let Some(ahead) = eight.iter().position(&mut differs) {
            return 8 * at + ahead;
        }
    }
    words.len() - rest.len() + rest.iter().position(differs).unwrap_or(rest.len())
}

/// Writes `first`, `first + step`, … (wrapping) to `words`, each with release ordering after all
/// stores before the call, as [`Memory::fill`](crate::Memory::fill) demands.
#[inline]
pub fn fill_words(words: &[AtomicU64], first: u64, step: u64) {
    // One release fence orders all of the stores, so each can be a plain one: on arm64 each release
    // store would be a barrier of its own.
    fence(Ordering::Release);
    match step {
        0 => repeat(words, first),
        _ => ascend(words, first, step),
    }
}

/// Loads all of `words`, as [`Memory::load_words`](crate::Memory::load_words) demands: one
/// fence orders all of the loads before what follows.
#[inline]
pub fn load_words(words: &[AtomicU64], into: &mut [u64]) {
    words.iter().zip(into).for_each(|(word, into)| *into = word.load(Ordering::Relaxed));
    fence(Ordering::Acquire);
}

/// Writes `values` to `words`, each with release ordering after all stores before the call, as
/// [`Memory::store_words`](crate::Memory::store_words) demands.
#[inline]
pub fn store_words(words: &[AtomicU64], values: &[u64]) {
    fence(Ordering::Release);
    words.iter().zip(values).for_each(|(word, value)| word.store(*value, Ordering::Relaxed));
}

fn repeat(words: &[AtomicU64], value: u64) {
    let (eights, rest) = words.as_chunks::<8>();
    for eight in eights {
        eight.iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }
    rest.iter().for_each(|word| word.store(value, Ordering::Relaxed));
}

/// Writes `first`, `first + step`, … in any order.
///
/// Eight sums side by side, so that no store waits for the addition before it: CPUs retire two
/// stores a cycle, but a chain of additions only one.
#[inline]
fn ascend(words: &[AtomicU64], first: u64, step: u64) {
    let (eights, rest) = words.as_chunks::<8>();
    let mut next: [u64; 8] =
        core::array::from_fn(|at| first.wrapping_add(step.wrapping_mul(at as u64)));
    for eight in eights {
        for (word, next) in eight.iter().zip(&mut next) {
            word.store(*next, Ordering::Relaxed);
            *next = next.wrapping_add(step.wrapping_mul(8));
        }
    }
    let mut last = next[0];
    for word in rest {
        word.store(last, Ordering::Relaxed);
        last = last.wrapping_add(step);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(7)).collect()
    }

    #[test]
    fn count_words_finds_a_filled_run_up_to_the_word_that_differs() {
        for (first, step) in [(0, 0), (9, 0), (u64::MAX - 0x3000, 0x1000), (5, u64::MAX - 4)] {
            for count in 0..40 {
                let words = words(count);
                fill_words(&words, first, step);
                for (at, word) in words.iter().enumerate() {
                    let nth = first.wrapping_add(step.wrapping_mul(at as u64));
                    assert_eq!(word.load(Ordering::Relaxed), nth, "word {at} of {count}");
                }
                assert_eq!(count_words(&words, first, step), count);
                for (at, word) in words.iter().enumerate() {
                    let was = word.swap(1, Ordering::Relaxed);
                    assert_eq!(count_words(&words, first, step), at, "of {count}");
                    word.store(was, Ordering::Relaxed);
                }
            }
        }
    }
}
