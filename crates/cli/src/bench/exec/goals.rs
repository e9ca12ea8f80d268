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

/// Says what text that is read in preferred sizes comes to, beside read-around.
pub(super) fn judge(run: &mut Run, all: &[Measured]) {
    for measured in all {
        let of = |wanted: Policy| {
            let mut outcomes = measured.outcomes.iter();
            outcomes.find(|(policy, _)| *policy == wanted).map(|(_, outcome)| outcome)
        };
        let Some(around) = of(Policy::Around) else { continue };
        for policy in [Policy::Exec, Policy::Tiers] {
            run.findings
                .extend(of(policy).map(|own| sentence(&measured.name, policy, own, around)));
        }
    }
}

fn sentence(name: &str, policy: Policy, own: &Outcome, around: &Outcome) -> String {
    let ratio = |one: u64, other: u64| one as f64 / other.max(1) as f64;
    let share = |outcome: &Outcome| ratio(outcome.text.foldable, outcome.text.touched);
    let bytes = ratio(own.pages_read, around.pages_read);
    let faults = ratio(own.faults, around.faults);
    format!(
        "{name}, {}: {:.0} % of touched text in foldable 64K blocks, {:.0} % with {} (goal: at \
         least {:.0} %; {}); {bytes:.2} times the bytes (goal: at most {BYTES}; {}); {faults:.2} \
         times the faults (goal: at most {FAULTS}; {}), {:.2} in text.",
        policy.name(),
        100.0 * share(own),
        100.0 * share(around),
        Policy::Around.name(),
        100.0 * SHARE,
        verdict(share(own) >= SHARE),
        verdict(bytes <= BYTES),
        verdict(faults <= FAULTS),
        ratio(own.text_faults, around.text_faults),
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
        let said = |own: &Outcome| sentence("x", Policy::Exec, own, &around);
        let good = said(&outcome(50, 1250, 80));
        assert_eq!(good.matches("; met").count(), 3, "{good}");
        assert!(good.contains("80 % of touched") && good.contains("10 % with read-around"));
        for bad in [outcome(51, 1250, 80), outcome(50, 1251, 80), outcome(50, 1250, 79)] {
            assert_eq!(said(&bad).matches("MISSED").count(), 1);
        }
    }
}
