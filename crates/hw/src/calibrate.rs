//! Measures which backend is best for which extent (row A6).
//!
//! For each extent size from 4 KiB up to the scratch memory, all candidates clear extents of that
//! size in turn, walking through the scratch round and round. Two forms are timed: the clear alone
//! ([`Reuse::Later`]), and the clear followed by what programs do with new memory
//! ([`Reuse::Soon`]), where lines that the clear left in the caches pay off. Programs write all of
//! it, read it back, or write one page in sixteen: each in turn, and the sum counts.
//!
//! Noise (other guests, interrupts, frequency) must not decide. So the candidates take turns within
//! each round, and the lower quartile over the rounds counts: a disturbance only ever adds time, so
//! more than half of the rounds may be disturbed, and the minimum would trust a single lucky one.
//! The incumbent is the choice for the next smaller extent; it gives way only to a candidate that
//! is better by 3 % both in its lower quartile and in its best round. After three rounds a
//! candidate that always took half as long again as the best drops out, which keeps the run short.
//!
//! The scratch memory should be several times the last-level cache, so that each extent is cold
//! again when the walk returns to it. With less, the results describe the cache.

use core::hint::black_box;

use crate::Reuse;
use crate::chosen::{BACKENDS_MAX, CLASSES, Chosen, LEAST, class_bytes};
use crate::extent::{Backend, GRAIN};

/// The effort of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Calibration {
    /// How often each candidate is measured per extent size and form: 1 to 15; more is cut off.
    pub rounds: usize,
    /// How many bytes one measurement clears at least: several extents where they are smaller. It
    /// should be of the order of the last-level cache, or a candidate leaves its dirty lines for
    /// the next one to write back.
    pub batch_bytes: usize,
}

impl Calibration {
    /// Seven rounds of 32 MiB: about ten seconds with a scratch of 1 GiB. For reports.
    pub const THOROUGH: Calibration = Calibration { rounds: 7, batch_bytes: 32 << 20 };
    /// Three rounds of 4 MiB: about 1.5 s with a scratch of 128 MiB (Zen 4, 11 candidates). For a
    /// boot.
    pub const QUICK: Calibration = Calibration { rounds: 3, batch_bytes: 4 << 20 };
}

/// One lower quartile, as [`calibrate`] reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measurement {
    /// The backend measured.
    pub backend: Backend,
    /// The extent, in bytes.
    pub bytes: u64,
    /// The form: the clear alone, or with use.
    pub reuse: Reuse,
    /// Extent bytes per time, in 10⁶ bytes per second.
    pub mb_per_s: u32,
}

const ROUNDS_MAX: usize = 15;

/// The times of each candidate in each round; `u64::MAX` where it did not take part.
type Times = [[u64; ROUNDS_MAX]; BACKENDS_MAX];

/// The speed of each candidate, in 10⁶ bytes per second.
type Speeds = [u32; BACKENDS_MAX];

/// Measures `candidates` (at most the first 16) on `scratch` and chooses. `clock` returns
/// nanoseconds; `seen` gets each result, also those of candidates that dropped out.
///
/// A hosted program on a busy machine should pass the thread's CPU time as the clock.
///
/// `scratch` should be larger than the last-level cache, touched before, aligned and backed like
/// the memory that will be cleared (for a kernel: its direct map). Sizes beyond it inherit the
/// choice of the largest size that fits; a scratch below 4 KiB leaves the choice to the CPU's
/// features.
pub fn calibrate(
    scratch: &mut [u8],
    clock: impl Fn() -> u64,
    candidates: &[Backend],
    effort: Calibration,
    seen: impl FnMut(&Measurement),
) -> Chosen {
    let at = scratch.as_ptr().align_offset(GRAIN).min(scratch.len());
    let scratch = &mut scratch[at..];
    let longest = scratch.len() as u64;
    let mut walk = 0;
    let measure = |backend: Backend, bytes: u64, reuse: Reuse| {
        let bytes = bytes as usize;
        let count = effort.batch_bytes.div_ceil(bytes).clamp(1, scratch.len() / bytes);
        let mut begin = 0;
        // The first `count` clears are not timed: lines that a backend leaves dirty in the caches
        // are written back later, and this backend must pay for them, not the next one.
        for turn in 0..2 * count {
            if turn == count {
                begin = clock();
            }
            if walk + bytes > scratch.len() {
                walk = 0;
            }
            let extent = &mut scratch[walk..walk + bytes];
            backend.clear(extent);
            if reuse == Reuse::Soon {
                use_as_programs_do(extent, turn);
            }
            walk += bytes;
        }
        (clock().saturating_sub(begin) / count as u64).max(1)
    };
    choose(candidates, effort.rounds, longest, measure, seen)
}

/// Uses `extent` as one of three programs does, in turn: one writes a word of each line, one reads
/// all, one writes the first of each sixteen pages.
fn use_as_programs_do(extent: &mut [u8], turn: usize) {
    const LINE: usize = 64;
    const PAGE: usize = 4096;
    let write = |bytes: &mut [u8]| bytes.iter_mut().step_by(LINE).for_each(|byte| *byte = 1);
    match turn % 3 {
        0 => write(extent),
        1 => {
            black_box(read_through(extent));
        }
        _ => extent.chunks_mut(16 * PAGE).for_each(|chunk| {
            let first = chunk.len().min(PAGE);
            write(&mut chunk[..first]);
        }),
    }
    black_box(extent);
}

/// Reads all of `extent` and returns the sum of its words: the read that calibration times.
pub fn read_through(extent: &[u8]) -> u64 {
    let (words, rest) = extent.as_chunks::<8>();
    let sum = words.iter().fold(0, |sum: u64, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    rest.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

/// Everything but the clock and the memory: `measure` returns the nanoseconds that one extent
/// takes.
fn choose(
    candidates: &[Backend],
    rounds: usize,
    longest: u64,
    mut measure: impl FnMut(Backend, u64, Reuse) -> u64,
    mut seen: impl FnMut(&Measurement),
) -> Chosen {
    let candidates = &candidates[..candidates.len().min(BACKENDS_MAX)];
    let mut chosen = Chosen::among(candidates);
    if candidates.is_empty() {
        return chosen;
    }
    let mut string = [0; CLASSES];
    let measured = (0..CLASSES).take_while(|at| class_bytes(*at) <= longest).count();
    for at in 0..measured {
        let mut speeds_in = |reuse| {
            let bytes = class_bytes(at);
            let times = race(candidates, rounds, |backend| measure(backend, bytes, reuse));
            let (speeds, best) = (speeds(&times, bytes, 4), speeds(&times, bytes, ROUNDS_MAX));
            for (&backend, &mb_per_s) in candidates.iter().zip(&speeds) {
                seen(&Measurement { backend, bytes, reuse, mb_per_s });
            }
            (speeds, best)
        };
        let later = speeds_in(Reuse::Later);
        let soon = speeds_in(Reuse::Soon);
        let before = at.saturating_sub(1);
        for (choices, speeds) in [(&mut chosen.later, &later), (&mut chosen.soon, &soon)] {
            let best = pick(candidates, choices[before].backend, [&speeds.0, &speeds.1]);
            choices[at].backend = candidates[best];
            choices[at].mb_per_s = speeds.0[best];
            choices[at].clear_mb_per_s = later.0[best];
        }
        let names = ["rep-stosb", "mops"];
        let string_at = candidates.iter().position(|backend| names.contains(&backend.name()));
        string[at] = string_at.map_or(0, |which| later.0[which]);
    }
    inherit(&mut chosen, measured);
    chosen.allocation_stops = step(&string[..measured]).map(class_bytes);
    chosen
}

/// Sizes that were not measured take the choice of the largest that was.
fn inherit(chosen: &mut Chosen, measured: usize) {
    if let Some(last) = measured.checked_sub(1) {
        for choices in [&mut chosen.later, &mut chosen.soon] {
            let choice = choices[last];
            choices[measured..].fill(choice);
        }
    }
}

/// Runs all candidates in turn, round after round; hopeless ones drop out after three rounds.
fn race(candidates: &[Backend], rounds: usize, mut measure: impl FnMut(Backend) -> u64) -> Times {
    let mut times = [[u64::MAX; ROUNDS_MAX]; BACKENDS_MAX];
    let least = |times: &[u64; ROUNDS_MAX]| times.iter().copied().min().unwrap_or(u64::MAX);
    for round in 0..rounds.clamp(1, ROUNDS_MAX) {
        let best = times.iter().map(least).min().unwrap_or(u64::MAX);
        for (backend, times) in candidates.iter().zip(&mut times) {
            let hopeless = round >= 3 && least(times) > best.saturating_add(best / 2);
            if !hopeless {
                times[round] = measure(*backend);
            }
        }
    }
    times
}

/// The time of each candidate that one in `parts` of its rounds undercut, as a speed. For 4 that is
/// the lower quartile (of three rounds the fastest, of seven the second), for `ROUNDS_MAX` the best
/// round.
fn speeds(times: &Times, bytes: u64, parts: usize) -> Speeds {
    times.map(|mut times| {
        times.sort_unstable();
        let count = times.iter().take_while(|time| **time != u64::MAX).count();
        let time = times[count.saturating_sub(1) / parts];
        let speed = u128::from(bytes) * 1000 / u128::from(time.max(1));
        u32::try_from(speed).unwrap_or(u32::MAX)
    })
}

/// The fastest candidate by the first of `speeds`, or the incumbent unless that candidate beats it
/// by more than 3 % in all of them.
fn pick(candidates: &[Backend], incumbent: Backend, speeds: [&Speeds; 2]) -> usize {
    let best = (0..candidates.len()).rev().max_by_key(|at| speeds[0][*at]).unwrap_or(0);
    let equals = |at: usize| {
        let close = |speeds: &Speeds| u64::from(speeds[at]) * 103 >= u64::from(speeds[best]) * 100;
        speeds.into_iter().any(close)
    };
    match candidates.iter().position(|backend| *backend == incumbent) {
        Some(at) if equals(at) => at,
        _ => best,
    }
}

/// The class from which on a step tells of allocation: 1 MiB. Shorter extents are slow for other
/// reasons.
const STEPS_FROM: usize = (20 - LEAST) as usize;

/// The first class from [`STEPS_FROM`] on at which the speed steps up by 30 % over the class
/// before, and stays that high.
fn step(speeds: &[u32]) -> Option<usize> {
    let high = |at: usize| speeds[at - 1].saturating_add(speeds[at - 1] / 10 * 3);
    let holds = |at: &usize| {
        let high = high(*at);
        speeds[*at - 1] > 0 && speeds[*at..].iter().all(|speed| *speed >= high)
    };
    (STEPS_FROM..speeds.len()).find(holds)
}

#[cfg(test)]
mod tests;
