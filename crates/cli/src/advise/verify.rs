//! `--verify`: the program on this Linux, under each setting that is shown.

use anyhow::{Context, Result};
use std::ffi::OsString;

use super::linux::Setting;
use super::measure::{Measured, Run, run};
use super::search::{Search, single};
use crate::host::Host;
use crate::host::thp::Guard;
use crate::refused::Refused;
use crate::stats::Summary;

/// A setting with what was measured under it.
pub(super) type Proven = Vec<(Setting, Measured)>;

/// Runs `command` under all `settings`, `runs` times each: in each round once under each setting.
/// The switches are restored at the end, on an error, and on a signal.
pub(super) fn verify(
    command: &[OsString],
    settings: &[Setting],
    page: u64,
    runs: u32,
    host: &Host,
) -> Result<Proven> {
    let mut says = Vec::new();
    let guard = Guard::new(host, &mut says);
    if !guard.holds() {
        let why = says.last().map_or("", |why| why.trim_end_matches('.'));
        return Err(Refused(format!("no setting can be tried: {why}")).into());
    }
    says.iter().for_each(|sentence| eprintln!("quire: {sentence}"));
    let mut all: Vec<Vec<Run>> = vec![Vec::new(); settings.len()];
    // Once for nothing: files come into the cache.
    run(command)?;
    for _ in 0..runs {
        for (setting, into) in settings.iter().zip(&mut all) {
            guard.put(&setting.switches(page)).context("a switch cannot be set")?;
            into.push(run(command)?);
        }
    }
    drop(guard);
    let measured = settings.iter().zip(&all);
    Ok(measured.filter_map(|(setting, runs)| Some((*setting, Measured::of(runs)?))).collect())
}

/// The settings to run under: those that are shown, and each size alone where `every` says so.
pub(super) fn settings(search: &Search, every: bool) -> Vec<Setting> {
    let mut all: Vec<Setting> = search.kept().iter().map(|it| it.setting).collect();
    let more = single().filter(|setting| every && !all.contains(setting)).collect::<Vec<_>>();
    all.extend(more);
    all
}

/// How far the predictions are from the medians, in per cent: of faults and of the peak, for each
/// setting.
pub(super) fn errors(search: &Search, proven: &Proven) -> Vec<[f64; 2]> {
    let of = |(setting, measured): &(Setting, Measured)| {
        let it = search.of(*setting)?;
        Some([
            error(it.faults as f64, measured.faults.median),
            error(it.peak as f64, measured.peak.median),
        ])
    };
    proven.iter().filter_map(of).collect()
}

/// How far `predicted` is from `measured`, in per cent.
pub(super) fn error(predicted: f64, measured: f64) -> f64 {
    if measured == 0.0 { 0.0 } else { 100.0 * (predicted - measured) / measured }
}

/// All errors in one sentence.
pub(super) fn verdict(errors: &[[f64; 2]]) -> String {
    let part = |at: usize| {
        let sizes: Vec<f64> = errors.iter().map(|error| error[at].abs()).collect();
        Summary::of(&sizes).map_or((0.0, 0.0), |all| (all.median, all.max))
    };
    let ((faults, worst_faults), (peak, worst_peak)) = (part(0), part(1));
    format!(
        "Faults are predicted within {faults:.1} % at the median and {worst_faults:.1} % at the \
         worst, the peak within {peak:.1} % and {worst_peak:.1} %."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_errors_are_shares_of_what_was_measured() {
        assert_eq!([error(110.0, 100.0), error(90.0, 100.0), error(1.0, 0.0)], [10.0, -10.0, 0.0]);
        let verdict = verdict(&[[1.0, -4.0], [-3.0, 2.0], [2.0, 0.0]]);
        for word in ["within 2.0 % at the median", "3.0 % at the worst", "2.0 % and 4.0 %"] {
            assert!(verdict.contains(word), "{word} in {verdict}");
        }
    }
}
