//! Calibration by a scripted clock: no test here measures anything.

use core::cell::Cell;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::chosen::MOST;
use crate::extent::CopyBackend;

fn backends() -> Vec<Backend> {
    let few: Vec<Backend> = Backend::available().take(3).collect();
    assert!(few.len() >= 2, "every ISA of the tests has a backend besides the portable one");
    few
}

/// `choose` with up to the whole table measured; `speed` returns the speed in MB/s.
fn scripted(
    candidates: &[Backend],
    rounds: usize,
    longest: u64,
    mut speed: impl FnMut(Backend, u64, Reuse) -> u64,
) -> (Chosen, Vec<Measurement>) {
    let mut seen = Vec::new();
    let measure = |backend, bytes, reuse| bytes * 1000 / speed(backend, bytes, reuse);
    let chosen = choose(candidates, rounds, longest, measure, |one| seen.push(*one));
    (chosen, seen)
}

#[test]
fn a6_the_fastest_backend_wins_per_size_and_per_reuse() {
    let few = backends();
    let speed = |backend, bytes, reuse| match (reuse, bytes < 1 << 20) {
        (Reuse::Later, true) if backend == few[0] => 50_000,
        (Reuse::Later, false) if backend == few[1] => 80_000,
        (Reuse::Soon, _) if backend == few[0] => 30_000,
        _ => 20_000,
    };
    let (chosen, _) = scripted(&few, 3, 1 << MOST, speed);
    for log2 in 12..=30 {
        let later = if log2 < 20 { few[0] } else { few[1] };
        assert_eq!(chosen.backend(1 << log2, Reuse::Later), later, "2^{log2}");
        assert_eq!(chosen.backend(1 << log2, Reuse::Soon), few[0], "2^{log2}");
    }
    let choice = chosen.choice(2 << 20, Reuse::Soon);
    assert!(choice.mb_per_s.abs_diff(30_000) < 10, "{choice:?}");
    assert!(choice.clear_mb_per_s.abs_diff(20_000) < 10, "its clear alone was slow: {choice:?}");
}

#[test]
fn a6_the_incumbent_stays_unless_beaten_by_three_percent() {
    let few = backends();
    for (rival, wins) in [(10_200, false), (10_290, false), (10_320, true), (12_000, true)] {
        let speed = |backend, bytes, _| match bytes {
            4096 if backend == few[1] => 20_000,
            _ if backend == few[0] => rival,
            _ => 10_000,
        };
        let (chosen, _) = scripted(&few, 3, 1 << 20, speed);
        assert_eq!(chosen.backend(4096, Reuse::Later), few[1]);
        let expected = if wins { few[0] } else { few[1] };
        assert_eq!(chosen.backend(8192, Reuse::Later), expected, "rival at {rival}");
    }
}

#[test]
fn a6_disturbed_rounds_do_not_decide() {
    let few = backends();
    let mut calls = 0;
    // Three of five measurements of the better backend take twenty times as long.
    let speed = |backend, _, _| {
        if backend != few[1] {
            return 10_000;
        }
        calls += 1;
        if calls % 5 % 2 == 1 || calls % 5 == 0 { 600 } else { 12_000 }
    };
    let (chosen, _) = scripted(&few, 5, 1 << 24, speed);
    for log2 in 12..=24 {
        assert_eq!(chosen.backend(1 << log2, Reuse::Later), few[1], "2^{log2}");
        assert_eq!(chosen.backend(1 << log2, Reuse::Soon), few[1], "2^{log2}");
    }
}

#[test]
fn a6_a_single_lucky_round_does_not_decide() {
    let few = backends();
    let mut calls = 0;
    let speed = |backend, _, _| {
        if backend == few[0] {
            return 10_000;
        }
        calls += 1;
        if calls % 21 == 1 { 90_000 } else { 8_000 }
    };
    let (chosen, _) = scripted(&few, 7, 1 << 20, speed);
    for log2 in 12..=20 {
        assert_eq!(chosen.backend(1 << log2, Reuse::Later), few[0], "2^{log2}");
    }
}

#[test]
fn a6_candidates_take_turns_and_hopeless_ones_leave_after_three_rounds() {
    let few = backends();
    let mut order = Vec::new();
    let speed = |backend, _, _| {
        order.push(backend);
        if backend == few[0] { 5_000 } else { 10_000 }
    };
    let (_, seen) = scripted(&few, 5, 4096, speed);
    let per_form = 3 * few.len() + 2 * (few.len() - 1);
    assert_eq!(order.len(), 2 * per_form);
    assert_eq!(order[..few.len()], few, "one round: each candidate once");
    let slow = order[..per_form].iter().filter(|backend| **backend == few[0]).count();
    assert_eq!(slow, 3);
    assert_eq!(seen.len(), 2 * few.len(), "one result each, also of those that left");
    assert!(seen.iter().all(|one| one.mb_per_s > 4_000));
}

#[test]
fn a6_sizes_beyond_the_scratch_inherit_the_largest_measured() {
    let few = backends();
    let speed = |backend, _, _| if backend == few[1] { 40_000 } else { 10_000 };
    let (chosen, seen) = scripted(&few, 1, (1 << 21) - 1, speed);
    assert_eq!(seen.iter().map(|one| one.bytes).max(), Some(1 << 20));
    assert_eq!(chosen.choice(1 << 30, Reuse::Soon), chosen.choice(1 << 20, Reuse::Soon));
    assert_eq!(chosen.backend(1 << 30, Reuse::Later), few[1]);
}

#[test]
fn a6_without_a_page_of_scratch_the_features_decide() {
    let all: Vec<Backend> = Backend::available().collect();
    let (chosen, seen) = scripted(&all, 3, 4095, |_, _, _| unreachable!());
    assert_eq!(chosen, Chosen::default_with_vectors());
    assert!(seen.is_empty());
    assert_eq!(chosen.unit_bytes(1_000_000), None);
    let (none, _) = scripted(&[], 3, 1 << 30, |_, _, _| unreachable!());
    assert_eq!(none.backend(4096, Reuse::Soon), Backend::PORTABLE);
}

#[test]
fn a6_unit_is_the_largest_extent_within_the_budget() {
    let few = backends();
    // 10 GB/s clears 10 MB in 1 ms: 8 MiB fit. From 32 MiB on it is 64 GB/s: 32 MiB take 0.52 ms,
    // but 64 MiB take 1.05 ms.
    let speed = |_, bytes, _| if bytes < 32 << 20 { 10_000 } else { 64_000 };
    let (chosen, _) = scripted(&few, 1, 1 << MOST, speed);
    assert_eq!(chosen.unit_bytes(1_000_000), Some(32 << 20));
    assert_eq!(chosen.unit_bytes(500_000), Some(4 << 20));
    assert_eq!(chosen.unit_bytes(0), Some(4096), "never less than a page");
    assert_eq!(chosen.unit_bytes(100_000_000), Some(4 << 30), "beyond the largest measured");
}

#[test]
fn a6_unit_counts_the_slower_of_both_uses() {
    let few = backends();
    // For extents that are read next: the first backend, whose clear alone runs at 5 GB/s.
    let speed = |backend, _, reuse| match reuse {
        Reuse::Later if backend == few[0] => 5_000,
        Reuse::Soon if backend == few[0] => 30_000,
        _ => 20_000,
    };
    let (chosen, _) = scripted(&few, 1, 1 << MOST, speed);
    assert_eq!(chosen.backend(1 << 22, Reuse::Soon), few[0]);
    assert_eq!(chosen.unit_bytes(1_000_000), Some(4 << 20), "5 MB per ms");
}

#[test]
fn a6_the_end_of_allocation_is_a_step_that_holds() {
    let flat = [20; CLASSES];
    assert_eq!(step(&flat), None);
    let at = 25 - 12;
    let mut stepped = flat;
    stepped[at..].fill(80);
    assert_eq!(step(&stepped).map(class_bytes), Some(32 << 20));
    stepped[at + 2] = 22;
    assert_eq!(step(&stepped).map(class_bytes), Some(256 << 20), "a relapse: later");
    let mut early = [44; CLASSES];
    early[0] = 20;
    assert_eq!(step(&early), None, "short extents are slow for another reason");
}

#[test]
fn a6_a_step_is_one_of_thirty_percent_from_1_mib_on() {
    for at in 1..CLASSES {
        for (after, is_step) in [(25, false), (26, true)] {
            let mut speeds = [20; CLASSES];
            speeds[at..].fill(after);
            let expected = Some(class_bytes(at)).filter(|bytes| is_step && *bytes >= 1 << 20);
            assert_eq!(step(&speeds).map(class_bytes), expected, "from 20 to {after} at {at}");
        }
    }
    assert_eq!(step(&[0; CLASSES]), None, "no candidate stores past the caches");
    assert_eq!(step(&[20; 3]), None, "a short scratch");
}

#[test]
fn a6_the_walk_covers_the_scratch_and_uses_the_clock() {
    let ticks = Cell::new(0);
    let clock = || {
        ticks.set(ticks.get() + 1000);
        ticks.get()
    };
    let mut memory = vec![0xa5u8; 4 * GRAIN];
    let at = memory.as_ptr().align_offset(GRAIN);
    // Three pages: no extent is that large, so only the walk reaches the last one.
    let scratch = &mut memory[at..at + 3 * GRAIN];
    let few = backends();
    let effort = Calibration { rounds: 3, batch_bytes: 64 << 10 };
    let chosen = calibrate(scratch, clock, &few, effort, |_| {});
    assert_eq!(ticks.get(), 2 * 2 * 2 * 3 * few.len() as u64 * 1000);
    assert!(scratch.iter().all(|byte| *byte <= 1), "cleared, and then written by a program");
    assert_eq!(chosen.backend(4096, Reuse::Later), Chosen::among(&few).backend(4096, Reuse::Later));
    // One tick of 1 µs for three extents, thus 333 ns each.
    assert_eq!(chosen.choice(4096, Reuse::Later).mb_per_s, 4096 * 1000 / 333);
    assert_eq!(chosen.choice(8192, Reuse::Soon).mb_per_s, 8192);
}

#[test]
fn a6_an_incumbent_with_an_equal_best_round_stays() {
    let few = backends();
    for (best, stays) in [(10_000, true), (8_000, false)] {
        let mut calls = 0;
        // Beyond the first size: the incumbent has one undisturbed round of seven.
        let speed = |backend, bytes, _| {
            if backend != few[1] {
                return 10_000;
            }
            calls += 1;
            let undisturbed = calls % 7 == 1;
            if bytes == 4096 {
                20_000
            } else if undisturbed {
                best
            } else {
                7_000
            }
        };
        let (chosen, _) = scripted(&few, 7, 8192, speed);
        let expected = if stays { few[1] } else { few[0] };
        assert_eq!(chosen.backend(4096, Reuse::Later), few[1]);
        assert_eq!(chosen.backend(8192, Reuse::Later), expected, "best round at {best}");
    }
}

#[test]
fn a6_copies_use_vectors_only_where_a_candidate_does() {
    let all: Vec<Backend> = Backend::available().collect();
    let has_vectors = all.iter().any(|backend| backend.needs_vectors());
    for (candidates, may) in [(&[Backend::PORTABLE][..], false), (&all[..], has_vectors)] {
        let ways = CopyBackend::available().filter(|way| may || !way.needs_vectors());
        let (ways, chosen): (Vec<_>, _) = (ways.collect(), Chosen::among(candidates));
        for (log2, reuse) in (12..=30).flat_map(|log2| [(log2, Reuse::Soon), (log2, Reuse::Later)])
        {
            let best = CopyBackend::usual(1 << log2, reuse, &ways);
            assert_eq!(chosen.copy_backend(1 << log2, reuse), best, "2^{log2} bytes, {reuse:?}");
        }
    }
}

/// Without measurements, each size has the usual backend of those that may be chosen.
#[test]
fn a6_each_size_and_each_reuse_has_the_usual_one_of_the_candidates() {
    let all: Vec<Backend> = Backend::available().collect();
    let plain: Vec<Backend> = all.iter().copied().filter(|way| !way.needs_vectors()).collect();
    let alone: Vec<Vec<Backend>> = all.iter().map(|backend| vec![*backend]).collect();
    let without_first = || -> Vec<Backend> { all.iter().skip(1).copied().collect() };
    let named = |candidates: &[Backend]| (Chosen::among(candidates), candidates.to_vec());
    let mut pairs = vec![
        (Chosen::default_for_cpu(), plain),
        (Chosen::default_with_vectors(), all.clone()),
        named(&without_first()),
        named(&[]),
    ];
    pairs.extend(alone.iter().map(|one| named(one)));
    pairs.extend(alone.iter().map(|one| (Chosen::always(one[0]), one.clone())));
    for (chosen, candidates) in pairs {
        for (log2, reuse) in (12..=30).flat_map(|log2| [(log2, Reuse::Soon), (log2, Reuse::Later)])
        {
            let usual = Backend::usual(1 << log2, reuse, &candidates);
            for bytes in [1 << log2, (2 << log2) - 1] {
                let choice = chosen.choice(bytes, reuse);
                assert_eq!(choice.backend, usual, "{bytes} bytes, {reuse:?}, {candidates:?}");
                assert_eq!((choice.mb_per_s, choice.clear_mb_per_s), (0, 0), "not measured");
            }
        }
        for reuse in [Reuse::Soon, Reuse::Later] {
            let at = |bytes| (chosen.backend(bytes, reuse), chosen.copy_backend(bytes, reuse));
            assert_eq!((at(0), at(4095)), (at(4096), at(4096)), "smaller than the first class");
            assert_eq!((at(1 << 40), at(u64::MAX)), (at(1 << 30), at(1 << 30)));
        }
        assert_eq!((chosen.unit_bytes(u64::MAX), chosen.allocation_stops()), (None, None));
    }
}

#[test]
fn a6_speeds_are_lower_quartiles_or_best_rounds() {
    let mut times = [[u64::MAX; ROUNDS_MAX]; BACKENDS_MAX];
    times[0][..7].copy_from_slice(&[100, 50, 90, 95, 300, 310, 320]);
    times[1][..3].copy_from_slice(&[70, 50, 60]);
    times[2].fill(45);
    assert_eq!(speeds(&times, 90, 4)[..4], [1000, 1800, 2000, 0]);
    assert_eq!(speeds(&times, 90, ROUNDS_MAX)[..4], [1800, 1800, 2000, 0]);
}

#[test]
fn a6_a_read_is_of_all_words_and_of_the_bytes_after_the_last() {
    assert_eq!(read_through(&[]), 0);
    let bytes: Vec<u8> = (1..=19).collect();
    let words = [0x0807_0605_0403_0201, 0x100f_0e0d_0c0b_0a09];
    assert_eq!(read_through(&bytes), words[0] + words[1] + 17 + 18 + 19);
    // The sum wraps: it is for the eyes of the compiler alone.
    assert_eq!(read_through(&[0xff; 16]), u64::MAX - 1);
}
