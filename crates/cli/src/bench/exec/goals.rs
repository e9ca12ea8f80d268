//! What the figures come to, and whether the goals are met.

use super::measure::Measured;
use super::policy::Policy;
use super::replay::Outcome;
use crate::record::Run;

/// So much of the touched text shall be in foldable blocks of 64 KiB.
const SHARE: f64 = 0.80;
/// So many times what read-around reads may be read.
const BYTES: f64 = 1.25;
/// So many times as many faults as with read-around may there be.
const FAULTS: f64 = 0.5;

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

/// Says what text read in 64 KiB folios comes to, beside read-around.
pub(super) fn judge(run: &mut Run, all: &[Measured]) {
    for measured in all {
        let of = |wanted: Policy| {
            let mut outcomes = measured.outcomes.iter();
            outcomes.find(|(policy, _)| *policy == wanted).map(|(_, outcome)| outcome)
        };
        let (Some(around), Some(exec)) = (of(Policy::Around), of(Policy::Exec)) else { continue };
        run.findings.push(sentence(&measured.name, exec, around));
    }
}

fn sentence(name: &str, exec: &Outcome, around: &Outcome) -> String {
    let ratio = |one: u64, other: u64| one as f64 / other.max(1) as f64;
    let share = |outcome: &Outcome| ratio(outcome.text.foldable, outcome.text.touched);
    let bytes = ratio(exec.pages_read, around.pages_read);
    let faults = ratio(exec.faults, around.faults);
    format!(
        "{name}, {}: {:.0} % of touched text in foldable 64K blocks, {:.0} % with {} (goal: at \
         least {:.0} %; {}); {bytes:.2} times the bytes (goal: at most {BYTES}; {}); {faults:.2} \
         times the faults (goal: at most {FAULTS}; {}).",
        Policy::Exec.name(),
        100.0 * share(exec),
        100.0 * share(around),
        Policy::Around.name(),
        100.0 * SHARE,
        verdict(share(exec) >= SHARE),
        verdict(bytes <= BYTES),
        verdict(faults <= FAULTS),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::exec::text::Look;

    fn outcome(faults: u64, pages_read: u64, foldable: u64) -> Outcome {
        let text = Look { touched: 100, foldable, ..Look::default() };
        Outcome { faults, pages_read, text, ..Outcome::default() }
    }

    #[test]
    fn b6_goals_are_judged_beside_read_around() {
        let around = outcome(100, 1000, 10);
        let good = sentence("x", &outcome(50, 1250, 80), &around);
        assert_eq!(good.matches("; met").count(), 3, "{good}");
        assert!(good.contains("80 % of touched") && good.contains("10 % with read-around"));
        for bad in [outcome(51, 1250, 80), outcome(50, 1251, 80), outcome(50, 1250, 79)] {
            assert_eq!(sentence("x", &bad, &around).matches("MISSED").count(), 1);
        }
    }
}
