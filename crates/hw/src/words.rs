//! Runs of table words: counted and written by whoever has them at hand.
//!
//! Both work on eight words at a time, so that a word costs no more than to compare or store it and
//! to add to the next one.

use core::sync::atomic::{AtomicU64, Ordering, fence};

/// How many of `words` are `first`, `first + step`, … (wrapping): what
/// [`Hardware::count_run`](crate::Hardware::count_run) asks for.
///
/// One fence orders all loads, so that they need not be ordered among themselves, and nothing but
/// the words is loaded between them.
#[inline]
pub fn count_words(words: &[AtomicU64], first: u64, step: u64) -> usize {
    let count = match step {
        0 => agreeing(words, first, |word| word),
        _ => agreeing(words, first, |word| word.wrapping_add(step)),
    };
    fence(Ordering::Acquire);
    count
}

/// How many of `words` are `first`, and what `next` makes of it, and so on.
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

/// Writes `first`, `first + step`, … (wrapping) to `words`, each with release ordering towards what
/// was written before the call: what [`Hardware::fill`](crate::Hardware::fill) asks for.
#[inline]
pub fn fill_words(words: &[AtomicU64], first: u64, step: u64) {
    // One release fence orders all of the stores, so that each can be a plain one: a release store
    // each would be a barrier each on arm64.
    fence(Ordering::Release);
    // Eight sums side by side, so that no store waits for the addition before it: CPUs retire two
    // stores a cycle, but a chain of additions only one.
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
