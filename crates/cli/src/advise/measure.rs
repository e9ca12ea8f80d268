//! A program's faults, peak and time on this Linux, as it is set now.

use std::ffi::OsString;
use std::path::Path;
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
    /// Pages that left for swap devices of the host, and that came back.
    pub(super) out: u64,
    pub(super) back: u64,
}

/// Several runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Measured {
    pub(super) faults: Summary,
    pub(super) peak: Summary,
    pub(super) wall: Summary,
    pub(super) kernel: Summary,
    pub(super) out: Summary,
    pub(super) back: Summary,
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
            out: all(|run| run.out as f64)?,
            back: all(|run| run.back as f64)?,
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

/// Pages that left for swap devices until now, and that came back; pages of zeroes, too.
fn moved() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let count = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    [count("pswpout") + count("swpout_zero"), count("pswpin") + count("swpin_zero")]
}

/// Runs the program once, with the same addresses each time, in `group` if there is one.
pub(super) fn run(command: &[OsString], group: Option<&Path>) -> Result<Run> {
    let group = group.map(Path::to_owned);
    let manner = Manner { small: false, fixed: true, quiet: true, group };
    let before_it = moved();
    let mut tracer = Tracer::start(command, manner)?;
    let mut begin = Begin::default();
    let status = tracer.run(&mut begin)?;
    let Some((before, start)) = begin.before else { bail!("the program did not begin") };
    let wall = start.elapsed().as_nanos() as f64;
    let failed = status.filter(|status| !status.success());
    if let Some(status) = failed {
        bail!("the program ended with {status}");
    }
    let all = tracer.figures();
    let after = moved();
    let faults: u64 = all.iter().map(|figures| figures.faults).sum();
    Ok(Run {
        faults: faults.saturating_sub(before),
        peak: all.iter().map(|figures| figures.peak).max().unwrap_or(0),
        wall,
        kernel: all.iter().map(|figures| figures.kernel_ms as f64 * 1e6).sum(),
        out: after[0].saturating_sub(before_it[0]),
        back: after[1].saturating_sub(before_it[1]),
    })
}
