//! A program's faults, peak and time on this Linux, as it is set now.

use std::ffi::OsString;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::stats::Summary;
use crate::watch::{Audience, Figures, Manner, Snapshot, Tracer};

/// One run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Run {
    /// Page faults of all processes, from the program's first instruction on.
    pub(super) faults: u64,
    /// Bytes of the largest process at its peak.
    pub(super) peak: u64,
    /// Nanoseconds by the clock, until the last process has ended.
    pub(super) wall: f64,
    /// Nanoseconds on CPUs in the kernel, to ten milliseconds.
    pub(super) kernel: f64,
}

/// Several runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Measured {
    pub(super) faults: Summary,
    pub(super) peak: Summary,
    pub(super) wall: Summary,
    pub(super) kernel: Summary,
}

impl Measured {
    /// `None` without runs.
    pub(super) fn of(runs: &[Run]) -> Option<Measured> {
        let all =
            |figure: fn(&Run) -> f64| Summary::of(&runs.iter().map(figure).collect::<Vec<f64>>());
        Some(Measured {
            faults: all(|run| run.faults as f64)?,
            peak: all(|run| run.peak as f64)?,
            wall: all(|run| run.wall)?,
            kernel: all(|run| run.kernel)?,
        })
    }
}

/// Sees when the program begins.
#[derive(Default)]
struct Begin {
    /// The faults of its process before, and when that was.
    before: Option<(u64, Instant)>,
}

impl Audience for Begin {
    fn executed(&mut self, snapshot: Snapshot) {
        let faults = || Figures::of(snapshot.pid).map_or(0, |figures| figures.faults);
        self.before.get_or_insert_with(|| (faults(), Instant::now()));
    }

    fn ending(&mut self, _: u32, _: Figures) {}
}

/// Runs the program once, with the same addresses each time.
pub(super) fn run(command: &[OsString]) -> Result<Run> {
    let mut tracer = Tracer::start(command, Manner { small: false, fixed: true, quiet: true })?;
    let mut begin = Begin::default();
    let status = tracer.run(&mut begin)?;
    let Some((before, start)) = begin.before else { bail!("the program did not begin") };
    let wall = start.elapsed().as_nanos() as f64;
    let failed = status.filter(|status| !status.success());
    if let Some(status) = failed {
        bail!("the program ended with {status}");
    }
    let all = tracer.figures();
    let faults: u64 = all.iter().map(|figures| figures.faults).sum();
    Ok(Run {
        faults: faults.saturating_sub(before),
        peak: all.iter().map(|figures| figures.peak).max().unwrap_or(0),
        wall,
        kernel: all.iter().map(|figures| figures.kernel_ms as f64 * 1e6).sum(),
    })
}
