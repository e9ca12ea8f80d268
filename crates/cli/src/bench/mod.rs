//! The benches, and what they share: shuffled rounds, the clock, the printing.
//!
//! Every figure is a median over rounds. Within a round each thing is measured once, in an order
//! shuffled anew for each round, so that a slow second of the machine hits all of them alike, and
//! what one leaves in the caches for the next is not always the same. The first round warms and
//! does not count.

pub(crate) mod clear;
pub(crate) mod fault;
pub(crate) mod lanes;
pub(crate) mod sweep;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};

use crate::args::{Bench, Format, Shared};
use crate::host::Host;
use crate::record::{self, Run};
use crate::size::Size;
use crate::stats::Shuffle;
use crate::{Refused, table};

/// Runs a bench, saves what it found and prints it.
///
/// # Errors
/// [`Refused`] for what cannot be measured; else whatever failed on the way.
pub(crate) fn run(bench: &Bench, host: &Host) -> Result<()> {
    let (mut run, format) = match bench {
        Bench::Clear(args) if args.sweep => (sweep::run(&args.shared, host)?, args.shared.format),
        Bench::Clear(args) => (clear::run(&args.shared, host)?, args.shared.format),
        Bench::Fault(args) => (fault::run(args, host)?, args.shared.format),
    };
    if cfg!(debug_assertions) {
        run.limits.push(
            "This is a debug build, whose figures say little: build with --release.".to_owned(),
        );
    }
    let saved = record::save(&run);
    let mut out = io::stdout().lock();
    match format {
        Format::Json => {
            for record in &run.records {
                writeln!(out, "{}", serde_json::to_string(record)?)?;
            }
        }
        Format::Table => write!(out, "{}", table::page(&run))?,
    }
    out.flush()?;
    match saved {
        Ok(path) if format == Format::Table => writeln!(out, "Saved as {}.", path.display())?,
        Ok(_) => {}
        Err(e) => eprintln!("quire: the run is not saved: {e:#}."),
    }
    Ok(())
}

/// CPU time of this thread, in nanoseconds: unlike the time of day it stands still while another
/// task runs on this CPU.
pub(crate) fn thread_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Measures each of `cells` once per round; the values of each, in the order of the rounds.
///
/// A `sample` without a value counts for nothing: the thing could not be measured that time.
///
/// # Errors
/// The first error of `sample`.
pub(crate) fn rounds<C>(
    what: &str,
    cells: &[C],
    loops: u32,
    mut sample: impl FnMut(&C) -> Result<Option<f64>>,
) -> Result<Vec<Vec<Option<f64>>>> {
    let mut values = vec![Vec::new(); cells.len()];
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

/// The values that were measured.
pub(crate) fn measured(values: &[Option<f64>]) -> Vec<f64> {
    values.iter().flatten().copied().collect()
}

/// Which variants to measure: those the user named, or all.
pub(crate) struct Filter(Vec<String>);

impl Filter {
    /// The variants named in `shared`, each of which must be in `known`.
    ///
    /// # Errors
    /// [`Refused`] with what is known.
    pub(crate) fn new(shared: &Shared, known: &[String]) -> Result<Filter, Refused> {
        match shared.variants.iter().find(|name| !known.contains(name)) {
            Some(name) => Err(Refused(format!(
                "there is no variant {name:?} here; there are {}",
                known.join(", ")
            ))),
            None => Ok(Filter(shared.variants.clone())),
        }
    }

    /// Whether `name` is to be measured.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|n| n == name)
    }
}

/// The sizes the user named, without repetition and in order, or `usual`.
pub(crate) fn sizes(shared: &Shared, usual: &[u64]) -> Vec<Size> {
    let mut sizes = match shared.sizes.is_empty() {
        true => usual.iter().copied().map(Size).collect(),
        false => shared.sizes.clone(),
    };
    sizes.sort();
    sizes.dedup();
    sizes
}

/// A run with all but its figures.
pub(crate) fn empty_run(bench: &str, host: &Host) -> Run {
    Run {
        bench: bench.to_owned(),
        date: record::now_utc(),
        machine: crate::host::cpu::Machine::read(host),
        settings: Vec::new(),
        findings: Vec::new(),
        limits: Vec::new(),
        records: Vec::new(),
    }
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
