//! `--verify`: the program on this Linux, under each setting that is shown.

use std::ffi::OsString;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use super::linux::Setting;
use super::measure::{Measured, Run, run};
use super::memory::Limit;
use super::search::{Search, single};
use crate::host::Host;
use crate::host::group;
use crate::host::memory::Area;
use crate::host::swap::{Device, Swap};
use crate::host::thp::Guard;
use crate::refused::Refused;
use crate::size::Size;
use crate::stats::Summary;

/// Bytes of a block.
const BLOCK: u64 = 2 << 20;

/// A setting with what was measured under it.
pub(super) type Proven = Vec<(Setting, Measured)>;

/// Runs `command` under all `settings`, `runs` times each: in each round once under each setting.
/// Sentences say which runs Linux ended.
pub(super) fn verify(
    command: &[OsString],
    settings: &[Setting],
    page: u64,
    runs: u32,
    (host, guard): (&Host, &Guard),
    limit: Option<Limit>,
) -> Result<(Proven, Vec<String>)> {
    let mut all: Vec<(Vec<Run>, u32)> = vec![(Vec::new(), 0); settings.len()];
    let bounds = limit.map(|limit| Bounds::new(host, page, limit)).transpose();
    let mut bounds = bounds.map_err(Refused)?;
    let _known = known_to_background(guard)?;
    // Once for nothing: files come into the cache.
    run(command, None)?;
    for _ in 0..runs {
        for (setting, (into, killed)) in settings.iter().zip(&mut all) {
            guard.put(&setting.switches(page)).context("a switch cannot be set")?;
            sleep(SETTLE);
            match &mut bounds {
                None => into.push(run(command, None)?),
                Some(bounds) => match bounds.run(command)? {
                    Some(run) => into.push(run),
                    None => *killed += 1,
                },
            }
        }
    }
    let ended = settings.iter().zip(&all).filter(|(_, (_, killed))| *killed > 0);
    let ended = ended.map(|(setting, (_, killed))| {
        format!(
            "Under {setting}, Linux ended the program in {killed} of {runs} runs: its memory was \
             full, and nothing else could leave."
        )
    });
    let ended = ended.collect();
    let measured = settings.iter().zip(&all);
    let measured =
        measured.filter_map(|(setting, (runs, _))| Some((*setting, Measured::of(runs)?)));
    Ok((measured.collect(), ended))
}

/// A swap device, for as long as this lives, and the bound of each run.
struct Bounds<'h> {
    host: &'h Host,
    bytes: u64,
    device: Swap,
}

impl Bounds<'_> {
    fn new(host: &Host, page: u64, limit: Limit) -> Result<Bounds<'_>, String> {
        // The first page of a device is its header.
        let bytes = (limit.slots + 1).saturating_mul(page);
        let device = Swap::on(host, Device::Zram, bytes.next_multiple_of(BLOCK))?;
        Ok(Bounds { host, bytes: limit.pages.saturating_mul(page), device })
    }

    /// Runs the program once, in a memory group of its own: by the statistics of another run Linux
    /// would page out other memory. `None` where Linux ended a process of it.
    fn run(&mut self, command: &[OsString]) -> Result<Option<Run>> {
        let group = group::bounded(self.host, &mut self.device.keeper, self.bytes);
        let group = group.map_err(Refused)?;
        let run = run(command, Some(&group));
        let killed = group::killed(&group);
        // Else the keeper does it later.
        let _ = std::fs::remove_dir(&group);
        if killed > 0 { Ok(None) } else { run.map(Some) }
    }
}

/// The time in which the background has its first round after a switch was set.
const SETTLE: Duration = Duration::from_millis(50);

/// Memory of this process that the background (khugepaged) looks at. While it has nothing to look
/// at, Linux begins a round as soon as a program has memory for blocks: right at the start of each
/// run. With this memory, it begins one when a switch is set, and then each ten seconds.
fn known_to_background(guard: &Guard) -> Result<Area> {
    guard.only(Size(BLOCK)).context("a switch cannot be set")?;
    let mut area = Area::new(Size(BLOCK), 2 * BLOCK)?;
    area.touch();
    Ok(area)
}

/// The settings to run under: those that are shown, and each size alone where `every` says so.
pub(super) fn settings(search: &Search, every: bool) -> Vec<Setting> {
    let mut all: Vec<Setting> = search.kept().iter().map(|it| it.setting).collect();
    let more = single().filter(|setting| every && !all.contains(setting)).collect::<Vec<_>>();
    all.extend(more);
    all
}

/// How far a prediction is from what was measured, in per cent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Off {
    /// From the median.
    median: f64,
    /// From the nearest run; 0 where the prediction lies between two runs.
    nearest: f64,
}

impl Off {
    fn of(predicted: u64, measured: &Summary) -> Off {
        let predicted = predicted as f64;
        let near = predicted.clamp(measured.min, measured.max);
        Off { median: error(predicted, measured.median), nearest: error(predicted, near) }
    }
}

/// The errors of faults and of peaks, for each setting.
pub(super) fn errors(search: &Search, proven: &Proven) -> [Vec<Off>; 2] {
    let pairs = proven.iter().filter_map(|(setting, it)| Some((search.of(*setting)?, it)));
    pairs.map(|(it, m)| (Off::of(it.faults, &m.faults), Off::of(it.peak, &m.peak))).unzip().into()
}

/// How far `predicted` is from `measured`, in per cent.
pub(super) fn error(predicted: f64, measured: f64) -> f64 {
    if measured == 0.0 { 0.0 } else { 100.0 * (predicted - measured) / measured }
}

/// The errors of the pages that left and came back together, where memory was bounded.
pub(super) fn moved(search: &Search, proven: &Proven) -> Option<String> {
    let pairs = proven.iter().filter_map(|(setting, it)| Some((search.of(*setting)?, it)));
    let sizes = pairs.map(|(it, m)| {
        let measured = m.out.median + m.back.median;
        error((it.out.counts.out + it.out.counts.back) as f64, measured).abs()
    });
    let all = Summary::of(&sizes.collect::<Vec<f64>>())?;
    Some(format!(
        "Pages that leave and come back are predicted within {:.1} % at the median and {:.1} % at \
         the worst.",
        all.median, all.max
    ))
}

/// All errors in one sentence.
pub(super) fn verdict([faults, peaks]: &[Vec<Off>; 2]) -> String {
    let part = |all: &[Off], figure: fn(&Off) -> f64| {
        let sizes: Vec<f64> = all.iter().map(|off| figure(off).abs()).collect();
        Summary::of(&sizes).map_or((0.0, 0.0), |all| (all.median, all.max))
    };
    let (median, worst) = part(faults, |off| off.median);
    let (peak, worst_peak) = part(peaks, |off| off.median);
    let nearest = part(faults, |off| off.nearest).1.max(part(peaks, |off| off.nearest).1);
    format!(
        "Faults are predicted within {median:.1} % at the median and {worst:.1} % at the worst, \
         the peak within {peak:.1} % and {worst_peak:.1} %; no prediction is further than \
         {nearest:.1} % from the nearest run."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_errors_are_shares_of_what_was_measured() {
        assert_eq!([error(110.0, 100.0), error(90.0, 100.0), error(1.0, 0.0)], [10.0, -10.0, 0.0]);
        let of = |predicted, runs: &[f64]| Off::of(predicted, &Summary::of(runs).unwrap());
        let inside = of(103, &[98.0, 100.0, 104.0]);
        assert_eq!(inside, Off { median: 3.0, nearest: 0.0 });
        let outside = of(94, &[94.0, 100.0, 104.0]);
        let above = of(110, &[100.0]);
        let verdict = verdict(&[vec![inside, outside], vec![above]]);
        for word in ["within 4.5 % at the median", "6.0 % at", "10.0 % and 10.0 %", "than 10.0 %"] {
            assert!(verdict.contains(word), "{word} in {verdict}");
        }
    }
}
