//! Shuffled rounds, and the clock they are timed by.
//!
//! Every figure is a median over rounds. Within a round each thing is measured once, in an order
//! shuffled anew for each round, so that a slow second of the machine hits all of them alike, and
//! what one leaves in the caches for the next is not always the same. The first round warms and
//! does not count.

use std::io::{self, IsTerminal};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};

use crate::stats::Shuffle;

/// CPU time of this thread, in nanoseconds: unlike the time of day it stands still while another
/// task runs on this CPU.
pub(crate) fn thread_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Measures each of `cells` once per round; what each gave, in the order of the rounds.
///
/// # Errors
/// The first error of `sample`.
pub(crate) fn rounds<C, T>(
    what: &str,
    cells: &[C],
    loops: u32,
    mut sample: impl FnMut(&C) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut values: Vec<Vec<T>> = cells.iter().map(|_| Vec::new()).collect();
    let mut order: Vec<usize> = (0..cells.len()).collect();
    let mut shuffle = Shuffle::new(1);
    let bar = progress(what, cells.len() as u64 * u64::from(loops + 1));
    for round in 0..=loops {
        shuffle.shuffle(&mut order);
        for &at in &order {
            let value = sample(&cells[at])?;
            if round > 0 {
                values[at].push(value);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(values)
}

/// A progress bar on stderr; a hidden one where that is no terminal.
fn progress(what: &str, steps: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {eta} left");
    let bar = ProgressBar::new(steps).with_message(what.to_owned());
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The values that were measured: not every sample has one.
pub(crate) fn measured(values: &[Option<f64>]) -> Vec<f64> {
    values.iter().flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_measured_once_per_round_and_the_first_round_does_not_count() {
        let mut calls = vec![0.0; 3];
        let values = rounds("", &[0, 1, 2], 4, |cell: &usize| {
            calls[*cell] += 1.0;
            Ok((*cell != 1).then_some(calls[*cell]))
        });
        let values = values.unwrap();
        assert_eq!(calls, [5.0; 3]);
        assert_eq!(measured(&values[0]), [2.0, 3.0, 4.0, 5.0]);
        assert_eq!((values[1].len(), measured(&values[1]).len()), (4, 0));
    }
}
