//! Every backend that this CPU has, against a naive byte loop.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use proptest::prelude::*;
use quire_hw::extent::{Backend, CopyBackend, GRAIN};
use quire_hw::{Chosen, Reuse};

/// A buffer and the offset of the first byte in it that is a multiple of [`GRAIN`].
fn buffer(bytes: usize, seed: u8) -> (Vec<u8>, usize) {
    let buffer: Vec<u8> = (0..bytes + GRAIN).map(|at| pattern(at, seed)).collect();
    let at = buffer.as_ptr().align_offset(GRAIN);
    (buffer, at)
}

/// Never zero, so that every cleared byte shows.
fn pattern(at: usize, seed: u8) -> u8 {
    (at.wrapping_mul(31) >> 3) as u8 ^ seed | 1
}

fn clear_naively(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = 0;
    }
}

fn copy_naively(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

fn check_clear(backend: Backend, bytes: usize, start: usize, length: usize) {
    let (mut memory, at) = buffer(bytes, 0x40);
    let mut naive = memory.clone();
    backend.clear(&mut memory[at + start..][..length]);
    clear_naively(&mut naive[at + start..][..length]);
    assert!(memory == naive, "{backend}: {length} bytes from {start}");
}

fn check_copy(backend: CopyBackend, to_start: usize, from_start: usize, length: usize) {
    let bytes = to_start.max(from_start) + length + GRAIN;
    let (mut to, to_at) = buffer(bytes, 0x40);
    let (from, from_at) = buffer(bytes, 0x9e);
    let mut naive = to.clone();
    let source = &from[from_at + from_start..][..length];
    backend.copy(&mut to[to_at + to_start..][..length], source);
    copy_naively(&mut naive[to_at + to_start..][..length], source);
    assert!(to == naive, "{backend}: {length} bytes from {from_start} to {to_start}");
}

#[test]
fn a1_whole_pages_are_cleared_and_their_neighbours_are_not() {
    for backend in Backend::available() {
        for page in [4096, 16384, 65536] {
            for start in 0..4 {
                for pages in [0, 1, 2, 3, 5, 8] {
                    check_clear(backend, 13 * page, start * page, pages * page);
                }
            }
        }
    }
}

#[test]
fn a1_large_extents_are_cleared() {
    for backend in Backend::available() {
        check_clear(backend, 40 << 20, 1 << 20, 38 << 20);
    }
}

#[test]
fn a7_whole_pages_are_copied_and_their_neighbours_are_not() {
    for backend in CopyBackend::available() {
        for (to, from) in [(0, 0), (1, 0), (0, 3), (2, 2)] {
            for pages in [0, 1, 2, 3, 7, 513] {
                check_copy(backend, to * GRAIN, from * GRAIN, pages * GRAIN);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a1_any_slice_is_cleared_exactly(start in 0..3 * GRAIN, length in 0..6 * GRAIN) {
        for backend in Backend::available() {
            check_clear(backend, 9 * GRAIN, start, length);
        }
    }

    #[test]
    fn a7_any_slice_is_copied_exactly(
        to in 0..3 * GRAIN,
        from in 0..3 * GRAIN,
        alike: bool,
        length in 0..6 * GRAIN,
    ) {
        let to = if alike { to / GRAIN * GRAIN + from % GRAIN } else { to };
        for backend in CopyBackend::available() {
            check_copy(backend, to, from, length);
        }
    }

    #[test]
    fn a1_any_words_are_cleared_and_copied_exactly(
        start in 0..1200usize,
        length in 0..3000usize,
        to in 0..1200usize,
    ) {
        let words = || (0..4800).map(|at| AtomicU64::new(at * 3 + 1)).collect::<Vec<_>>();
        let plain = |words: &[AtomicU64]| -> Vec<u64> {
            words.iter().map(|word| word.load(Relaxed)).collect()
        };
        for backend in Backend::available() {
            let memory = words();
            let mut naive = plain(&memory);
            backend.clear_words(&memory[start..start + length]);
            naive[start..start + length].fill(0);
            prop_assert_eq!(plain(&memory), naive, "{}", backend);
        }
        for backend in CopyBackend::available() {
            let (target, source) = (words(), words());
            source.iter().for_each(|word| { word.fetch_xor(!0, Relaxed); });
            let mut naive = plain(&target);
            backend.copy_words(&target[to..to + length], &source[start..start + length]);
            naive[to..to + length].copy_from_slice(&plain(&source)[start..start + length]);
            prop_assert_eq!(plain(&target), naive, "{}", backend);
        }
    }
}

#[test]
fn a1_backends_are_found_by_their_names_only() {
    let all: Vec<Backend> = Backend::available().collect();
    assert_eq!(all.last(), Some(&Backend::PORTABLE));
    for (at, backend) in all.iter().enumerate() {
        assert_eq!(Backend::by_name(backend.name()), Some(*backend));
        assert!(!all[..at].contains(backend));
    }
    assert_eq!(Backend::by_name("rep-stosw"), None);
    for backend in CopyBackend::available() {
        assert_eq!(CopyBackend::by_name(backend.name()), Some(backend));
    }
    assert_eq!(CopyBackend::by_name(""), None);
}

#[test]
fn a1_the_default_is_safe_in_a_kernel() {
    let chosen = Chosen::default_for_cpu();
    for bytes in (0..=40).map(|log2| 1u64 << log2) {
        for reuse in [Reuse::Soon, Reuse::Later] {
            assert!(!chosen.backend(bytes, reuse).needs_vectors());
            assert!(!chosen.copy_backend(bytes, reuse).needs_vectors());
        }
    }
}

#[test]
fn a1_an_extent_belongs_to_the_largest_class_that_is_not_larger() {
    let chosen = Chosen::default_with_vectors();
    for reuse in [Reuse::Soon, Reuse::Later] {
        assert_eq!(chosen.choice(0, reuse), chosen.choice(4096, reuse));
        assert_eq!(chosen.choice(12 << 10, reuse), chosen.choice(8 << 10, reuse));
        assert_eq!(chosen.choice((2 << 20) - 1, reuse), chosen.choice(1 << 20, reuse));
        assert_eq!(chosen.choice(u64::MAX, reuse), chosen.choice(1 << 30, reuse));
    }
}

#[test]
fn a5_a_choice_by_features_alone_claims_no_speed() {
    for chosen in [Chosen::default_for_cpu(), Chosen::default_with_vectors()] {
        for (log2, reuse) in (10..=32).flat_map(|log2| [(log2, Reuse::Soon), (log2, Reuse::Later)])
        {
            let choice = chosen.choice(1 << log2, reuse);
            assert_eq!((choice.mb_per_s, choice.clear_mb_per_s), (0, 0), "nothing was measured");
        }
    }
}
