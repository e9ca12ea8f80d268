//! What the figures come to, and whether the goals are met.

use super::measure::Subject;
use super::own::{Faults, Parallel, Unit};
use crate::bench::clear::CHOSEN;
use crate::host::fault::Form;
use crate::isa::Isa;
use crate::record::{Case, Record, Run};
use crate::size::Size;
use crate::stats::Summary;

/// Of the raw clear's rate so much shall remain of a fault of this size.
const OF_RAW: (u64, f64) = (2 << 20, 0.95);
/// So many nanoseconds may everything but the clear take, by folio size.
const REST: [(u64, f64); 2] = [(4 << 10, 150.0), (64 << 10, 250.0)];
/// Two threads shall fault so many times as fast as one.
const SPEED_UP: f64 = 1.8;

/// The costs of all subjects, round by round.
pub(super) struct Measured<'a> {
    pub(super) subjects: &'a [Subject],
    pub(super) values: &'a [Vec<f64>],
    pub(super) isa: Isa,
}

impl Measured<'_> {
    fn of(&self, subject: Subject) -> Option<&[f64]> {
        let at = self.subjects.iter().position(|other| *other == subject)?;
        Some(&self.values[at])
    }

    /// What `a` takes of the time of `b`, round by round.
    fn ratios(&self, a: Subject, b: Subject) -> Option<Summary> {
        let each = self.of(a)?.iter().zip(self.of(b)?).map(|(a, b)| a / b);
        Summary::of(&each.collect::<Vec<_>>())
    }

    /// The median of `f` over the rounds in which both were measured.
    fn paired(&self, a: Subject, b: Subject, f: impl Fn(f64, f64) -> f64) -> Option<f64> {
        let (a, b) = (self.of(a)?, self.of(b)?);
        let each: Vec<f64> = a.iter().zip(b).map(|(a, b)| f(*a, *b)).collect();
        Some(Summary::of(&each)?.median)
    }
}

/// `goal …; met`, or not.
pub(crate) fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

/// Says what the costs come to.
pub(super) fn judge(run: &mut Run, measured: &Measured<'_>) {
    let demand = |size, unit| Faults { form: Form::Demand, size: Size(size), unit };
    let own = |size| Subject::Own(demand(size, Unit::Folio));
    let (size, goal) = OF_RAW;
    let raw = Subject::Raw(Size(size));
    if let Some(all) = measured.ratios(raw, own(size)) {
        let (case, ratio) = (Case::new("demand", Some(Size(size))), all.median);
        let case = case.with(&super::measure::isa_note(measured.isa));
        run.records.push(Record::new("fault", &case, CHOSEN, ("of-raw", "ratio"), all));
        run.findings.push(format!(
            "{} demand faults reach {ratio:.3} of the rate of the raw clear of the same memory \
             (goal: at least {goal}; {}).",
            Size(size),
            verdict(ratio >= goal)
        ));
    }
    for (size, goal) in REST.into_iter().filter(|(size, _)| has(measured.isa, *size)) {
        let rest = Subject::Rest(demand(size, Unit::Folio));
        let Some(rest) = measured.of(rest).and_then(Summary::of) else { continue };
        let raw = Subject::Raw(Size(size));
        let less = measured.paired(own(size), raw, |own, raw| own - raw);
        let less = less.map_or(String::new(), |ns| {
            format!(
                "; the whole fault less the raw clear, in memory that is in no cache: {ns:.0} ns"
            )
        });
        run.findings.push(format!(
            "All but the clear of a {} demand fault takes {:.0} ns (goal: at most {goal:.0} ns; \
             {}){less}.",
            Size(size),
            rest.median,
            verdict(rest.median <= goal)
        ));
    }
    for &subject in measured.subjects {
        let Subject::Own(faults @ Faults { form: Form::Demand, size, unit: Unit::Folio }) = subject
        else {
            continue;
        };
        let pages = Subject::Own(Faults { unit: Unit::Page, ..faults });
        let pages = measured.paired(pages, subject, |pages, own| pages / own);
        let linux = measured.paired(Subject::Linux(Form::Demand, size), subject, |l, own| l / own);
        let mut parts = Vec::new();
        parts.extend(pages.map(|times| format!("{times:.2} times as fast as page-at-a-time")));
        parts.extend(linux.map(|times| format!("{times:.2} times as fast as linux, trap and all")));
        if !parts.is_empty() {
            run.findings.push(format!("{size} on demand: {}.", parts.join(", ")));
        }
    }
    let traps = [Subject::Call, Subject::ReadFault];
    if let [Some(call), Some(read)] = traps.map(|t| measured.of(t).and_then(Summary::of)) {
        run.findings.push(format!(
            "The host's trap, which Quire's hosted figures leave out, costs between {:.0} ns (a \
             system call) and {:.0} ns (a read fault).",
            call.median, read.median
        ));
    }
}

/// Whether `isa` has folios of `size`.
fn has(isa: Isa, size: u64) -> bool {
    isa.nearest(Size(size)) == Size(size)
}

/// Says how much faster two threads are than one.
pub(super) fn judge_parallel(run: &mut Run, samples: &[Parallel], cpus: usize) {
    let median = |of: &dyn Fn(&Parallel) -> f64| {
        Summary::of(&samples.iter().map(of).collect::<Vec<_>>()).map(|s| s.median)
    };
    for (place, shared) in [("areas of their own", false), ("one area", true)] {
        let both = |p: &Parallel| if shared { p.shared } else { p.areas };
        let wall = median(&|p| 2.0 * p.one.wall / both(p).wall);
        let cpu = median(&|p| 2.0 * p.one.cpu / both(p).cpu);
        let (Some(wall), Some(cpu)) = (wall, cpu) else { continue };
        let verdict = match cpus {
            0 | 1 => "this host has one CPU for them",
            _ => verdict(wall >= SPEED_UP),
        };
        run.findings.push(format!(
            "Two threads in {place} fault {wall:.2} times as fast as one by the clock, {cpu:.2} \
             times by their CPU time (base pages, clear excluded; goal: at least {SPEED_UP}; \
             {verdict})."
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::empty_run;
    use crate::bench::fault::threads::Timing;
    use crate::host::Host;

    fn said(subjects: &[Subject], values: &[Vec<f64>]) -> String {
        let mut run = empty_run("fault", &Host::new(std::path::Path::new("/nonexistent")));
        judge(&mut run, &Measured { subjects, values, isa: Isa::X86_64 });
        run.findings.join("\n")
    }

    fn own(size: u64) -> Faults {
        Faults { form: Form::Demand, size: Size(size), unit: Unit::Folio }
    }

    #[test]
    fn goals_are_judged_by_ratios_within_each_round() {
        let subjects = [Subject::Own(own(2 << 20)), Subject::Raw(Size(2 << 20))];
        // The machine was half as fast in the last two rounds; the ratio did not change.
        let met = said(&subjects, &[vec![100.0, 200.0, 200.0], vec![96.0, 192.0, 192.0]]);
        assert!(met.contains("2M demand faults reach 0.960") && met.contains("; met"), "{met}");
        let missed = said(&subjects, &[vec![100.0], vec![90.0]]);
        assert!(missed.contains("0.900") && missed.contains("MISSED"), "{missed}");
    }

    #[test]
    fn the_rest_is_judged_as_measured_and_what_subtraction_says_stands_beside_it() {
        let subjects = [4096, 64 << 10].map(|size| Subject::Rest(own(size)));
        let text = said(&subjects, &[vec![151.0], vec![250.0]]);
        assert!(text.contains("4K demand fault takes 151 ns (goal: at most 150 ns; MISSED)"));
        assert!(text.contains("64K demand fault takes 250 ns (goal: at most 250 ns; met)"));
        let more = [Subject::Rest(own(4096)), Subject::Own(own(4096)), Subject::Raw(Size(4096))];
        let text = said(&more, &[vec![90.0], vec![300.0], vec![200.0]]);
        assert!(text.contains("takes 90 ns") && text.contains("no cache: 100 ns"), "{text}");
    }

    #[test]
    fn threads_are_judged_by_the_clock_and_only_where_there_are_cpus_for_them() {
        let time = |wall, cpu| Timing { wall, cpu };
        let sample = Parallel {
            one: time(100.0, 99.0),
            areas: time(105.0, 99.0),
            shared: time(120.0, 99.0),
        };
        let judged = |cpus| {
            let mut run = empty_run("fault", &Host::new(std::path::Path::new("/nonexistent")));
            judge_parallel(&mut run, &[sample], cpus);
            run.findings
        };
        let [areas, shared] = &judged(2)[..] else { panic!("two places") };
        assert!(areas.contains("1.90 times") && areas.contains("2.00 times"), "{areas}");
        assert!(
            areas.contains("met)") && shared.contains("1.67 times") && shared.contains("MISSED")
        );
        assert!(judged(1).iter().all(|line| line.contains("one CPU")));
    }
}
