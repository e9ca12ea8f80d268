//! Medians, the shuffle of rounds, and the clock.

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this thread, in nanoseconds. Unlike the time of day it stands still while another
/// task runs on this CPU.
pub(crate) fn thread_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Repeated measurements of one thing, summed up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Summary {
    /// The middle value; of an even number of values the mean of the middle two.
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// The number of values.
    pub(crate) n: usize,
}

impl Summary {
    /// Summarises `values`; `None` if there are none.
    pub(crate) fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let n = sorted.len();
        let median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0;
        Some(Summary { median, min, max, n })
    }
}

/// A small reproducible generator (`splitmix64`), enough to shuffle an order of measurements.
pub(crate) struct Shuffle(u64);

impl Shuffle {
    /// A generator that starts from `seed`.
    pub(crate) fn new(seed: u64) -> Shuffle {
        Shuffle(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Puts `items` in a random order (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.next() % (last as u64 + 1);
            items.swap(last, other as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_has_the_middle_and_the_ends() {
        assert_eq!(Summary::of(&[]), None);
        let one = Summary::of(&[3.0]).unwrap();
        assert_eq!((one.median, one.min, one.max, one.n), (3.0, 3.0, 3.0, 1));
        let even = Summary::of(&[4.0, 1.0, 2.0, 9.0]).unwrap();
        assert_eq!((even.median, even.min, even.max, even.n), (3.0, 1.0, 9.0, 4));
    }

    #[test]
    fn a_shuffle_keeps_every_item_and_changes_the_order() {
        let mut items: Vec<u32> = (0..100).collect();
        Shuffle::new(1).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
