//! How long a clear keeps other tasks waiting (row A6).
//!
//! Where a kernel cannot be preempted, a long clear is cut into units with a point between them at
//! which another task may run. The unit follows from a latency budget and the measured bandwidth;
//! this measures what it comes to: the time of each unit, its median, its 99th percentile, and the
//! longest, which is the one that counts.

use std::time::Instant;

use quire::inject::units;
use quire_hw::extent::GRAIN;
use quire_hw::{Chosen, Reuse};

use super::clear::{CHOSEN, NAME};
use super::lanes::Lanes;
use crate::record::{Case, Record, Run};
use crate::size::Size;
use crate::stats::Summary;

/// How long another task may have to wait, in nanoseconds.
const BUDGET_NS: u64 = 1_000_000;
/// The unit where calibration gives none.
const USUAL_UNIT: u64 = 32 << 20;
/// How many units are timed at least.
const LEAST: usize = 200;

/// Clears with resched points between the units of the budget, and says how far apart they were.
pub(crate) fn measure(run: &mut Run, lanes: &mut Lanes, chosen: &Chosen) {
    let scratch = lanes.scratch();
    let unit = chosen.unit_bytes(BUDGET_NS).unwrap_or(USUAL_UNIT).min(scratch.len() as u64 / 4);
    let times = unit_times(scratch, unit / GRAIN as u64, chosen);
    let (Some(all), Some(late)) = (Summary::of(&times), percentile(&times, 99)) else { return };
    let case = Case::new("unit", Some(Size(unit)));
    run.records.push(Record::new(NAME, &case, CHOSEN, ("between-resched", "us"), all));
    let late_alone = Summary { median: late, min: late, max: late, n: all.n };
    run.records.push(Record::new(NAME, &case, CHOSEN, ("between-resched-p99", "us"), late_alone));
    run.findings.push(format!(
        "With units of {}, made for a budget of {} us, other tasks wait {:.0} us at the median, \
         {late:.0} us at the 99th percentile, {:.0} us at the longest (wall clock of a busy host \
         included).",
        Size(unit),
        BUDGET_NS / 1000,
        all.median,
        all.max
    ));
}

/// The wall-clock times of clearing unit after unit, in microseconds.
fn unit_times(scratch: &mut [u8], unit_pages: u64, chosen: &Chosen) -> Vec<f64> {
    let mut times = Vec::new();
    let pages = (scratch.len() / GRAIN) as u64;
    while times.len() < LEAST && pages > 0 {
        for unit in units(0..pages, unit_pages) {
            let bytes = unit.start as usize * GRAIN..unit.end as usize * GRAIN;
            let backend = chosen.backend(bytes.len() as u64, Reuse::Later);
            let start = Instant::now();
            backend.clear(&mut scratch[bytes]);
            times.push(start.elapsed().as_nanos() as f64 / 1000.0);
        }
    }
    times
}

/// The value that `percent` of the values do not exceed; `None` if there are none.
fn percentile(values: &[f64], percent: usize) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a6_a_percentile_is_a_value_that_so_many_do_not_exceed() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 99), Some(198.0));
        assert_eq!(percentile(&values, 50), Some(100.0));
        assert_eq!(percentile(&[7.0], 99), Some(7.0));
        assert_eq!(percentile(&[], 99), None);
    }

    #[test]
    fn a6_every_unit_is_timed_and_all_is_cleared() {
        let mut scratch = vec![1; 10 * GRAIN];
        let chosen = Chosen::default_for_cpu();
        let times = unit_times(&mut scratch, 4, &chosen);
        assert!(times.len() >= LEAST && times.len().is_multiple_of(3), "4 + 4 + 2 pages");
        assert!(scratch.iter().all(|byte| *byte == 0));
    }
}
