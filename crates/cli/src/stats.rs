//! Medians, and the clock.

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this thread, in nanoseconds. Unlike the time of day it stands still while another
/// task runs on this CPU.
pub(crate) fn thread_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds of CPU time that `work` takes.
pub(crate) fn timed<E>(work: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let start = thread_ns();
    work()?;
    Ok(thread_ns() - start)
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
}
