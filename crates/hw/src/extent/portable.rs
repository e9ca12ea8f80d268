//! Relaxed 64-bit stores, on any ISA.
//!
//! Not `write_bytes`: a table walker may load a word of the extent meanwhile, and only an atomic
//! store may race with an atomic load. (The compiler does not turn these loops into calls of
//! `memset` and `memcpy`, so they also work before those exist.)

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Zeroes `count` words from `start` on.
///
/// # Safety
/// As [`Backend::clear_raw`](super::Backend::clear_raw).
pub(super) unsafe fn clear(start: *mut AtomicU64, count: usize) {
    // SAFETY: the words are mapped, aligned, and accessed by atomic operations only.
    clear_words(unsafe { core::slice::from_raw_parts(start, count) });
}

/// Copies `count` words.
///
/// # Safety
/// As [`CopyBackend::copy_raw`](super::CopyBackend::copy_raw).
pub(super) unsafe fn copy(to: *mut AtomicU64, from: *const AtomicU64, count: usize) {
    // SAFETY: the words are mapped, aligned, and accessed by atomic operations only.
    let to = unsafe { core::slice::from_raw_parts(to, count) };
    // SAFETY: as for `to`; in addition other code may read `from` plainly, which does not conflict
    // with the atomic loads made here.
    let from = unsafe { core::slice::from_raw_parts(from, count) };
    copy_words(to, from);
}

pub(super) fn clear_words(words: &[AtomicU64]) {
    for word in words {
        word.store(0, Relaxed);
    }
}

pub(super) fn copy_words(to: &[AtomicU64], from: &[AtomicU64]) {
    for (to, from) in to.iter().zip(from) {
        to.store(from.load(Relaxed), Relaxed);
    }
}
