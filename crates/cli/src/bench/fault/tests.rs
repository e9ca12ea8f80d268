//! Figures, splits and goals on made-up costs, and a whole bed on little memory.

use quire_hw::Chosen;

use super::bench::{Fault, Subject};
use super::own::{Bed, Faults, Unit};
use crate::bench::clear::{CHOSEN, page_backend};
use crate::bench::driver::Bench;
use crate::bench::options::Filter;
use crate::bench::sheet::tests::empty;
use crate::bench::sheet::{LINUX, PAGES, Sheet};
use crate::host::fault::Form;
use crate::isa::Isa;
use crate::size::Size;
use crate::stats::Summary;

fn fault(threads: u32) -> Fault {
    Fault {
        sizes: vec![Size(4096), Size(64 << 10), Size(2 << 20)],
        region: 1 << 20,
        isa: Isa::X86_64,
        threads,
        chosen: Chosen::default_with_vectors(),
        near_cache: 1 << 20,
        loops: 1,
        filter: Filter::new(&[], &[]).unwrap(),
        cache: 1 << 20,
    }
}

const OWN: Faults = Faults { form: Form::Demand, size: Size(4096), unit: Unit::Folio };

fn own(size: u64) -> Faults {
    Faults { size: Size(size), ..OWN }
}

/// A sheet with these costs, round by round.
fn sheet(fault: &Fault, costs: &[(Subject, &[f64])]) -> Sheet {
    let mut sheet = empty();
    for (subject, values) in costs {
        sheet.put(fault.keys(*subject, "a setting").remove(0), values.to_vec());
    }
    sheet
}

fn found(sheet: &Sheet, variant: &str, metric: &str) -> Summary {
    sheet.find(|key| key.metric == metric && key.variant == variant).unwrap().1
}

fn said(costs: &[(Subject, &[f64])]) -> String {
    let mut sheet = sheet(&fault(1), costs);
    fault(1).goals(&mut sheet);
    sheet.run.findings.join("\n")
}

#[test]
fn a_fault_of_linux_is_split_by_the_time_of_the_clear_here() {
    let linux = Subject::Linux(Form::Demand, Size(4096));
    let pages = Subject::Pages(Size(4096));
    let mut sheet =
        sheet(&fault(1), &[(linux, &[1000.0, 1400.0, 1200.0]), (pages, &[100.0, 300.0, 200.0])]);
    fault(1).split(&mut sheet);
    let (clear, rest) = (found(&sheet, LINUX, "clear"), found(&sheet, LINUX, "rest"));
    assert_eq!((clear.median, rest.median, rest.n), (200.0, 1000.0, 3));
    let (key, _) = sheet.find(|key| key.metric == "rest").unwrap();
    assert_eq!(key.case.to_string(), "demand 4K (a setting)");
}

#[test]
fn for_quire_the_rest_is_measured_and_the_clear_is_what_remains() {
    let other = Subject::Rest(Faults { unit: Unit::Page, ..OWN });
    let mut sheet = sheet(
        &fault(1),
        &[
            (Subject::Own(OWN), &[300.0]),
            (Subject::Rest(OWN), &[90.0]),
            // Clears and rests of other variants are not its own.
            (Subject::Pages(Size(4096)), &[1.0]),
            (other, &[2.0]),
        ],
    );
    fault(1).split(&mut sheet);
    assert_eq!(found(&sheet, CHOSEN, "rest").median, 90.0);
    assert_eq!(found(&sheet, CHOSEN, "clear").median, 210.0);
    assert_eq!(sheet.figures().filter(|(key, _)| key.metric == "clear").count(), 1);
}

#[test]
fn two_threads_double_the_rate_but_not_the_cost() {
    for subject in [Subject::Linux(Form::Demand, Size(4096)), Subject::Own(OWN)] {
        let mut sheet = sheet(&fault(2), &[(subject, &[4096.0])]);
        fault(2).split(&mut sheet);
        let value = |metric: &str| sheet.find(|key| key.metric == metric).unwrap().1.median;
        assert_eq!((value("cost"), value("rate")), (4096.0, 2.0));
        assert!(sheet.figures().next().unwrap().0.case.has("2 threads"));
    }
}

#[test]
fn goals_are_judged_by_ratios_within_each_round() {
    let (fault, raw) = (Subject::Own(own(2 << 20)), Subject::Raw(Size(2 << 20)));
    // The machine was half as fast in the last two rounds; the ratio did not change.
    let met = said(&[(fault, &[100.0, 200.0, 200.0]), (raw, &[96.0, 192.0, 192.0])]);
    assert!(met.contains("2M demand faults reach 0.960") && met.contains("; met"), "{met}");
    let missed = said(&[(fault, &[100.0]), (raw, &[90.0])]);
    assert!(missed.contains("0.900") && missed.contains("MISSED"), "{missed}");
}

#[test]
fn the_rest_is_judged_as_measured_beside_the_difference() {
    let rest = |size| Subject::Rest(own(size));
    let text = said(&[(rest(4096), &[151.0]), (rest(64 << 10), &[250.0])]);
    assert!(text.contains("4K demand fault takes 151 ns (goal: at most 150; MISSED)"), "{text}");
    assert!(text.contains("64K demand fault takes 250 ns (goal: at most 250; met)"), "{text}");
    let raw = Subject::Raw(Size(4096));
    let text = said(&[(rest(4096), &[90.0]), (Subject::Own(OWN), &[300.0]), (raw, &[200.0])]);
    assert!(text.contains("takes 90 ns") && text.contains("no cache: 100 ns"), "{text}");
    let linux = Subject::Linux(Form::Demand, Size(4096));
    let text = said(&[(Subject::Own(OWN), &[300.0]), (linux, &[600.0])]);
    assert!(text.contains("4K on demand: 2.00 times as fast as linux"), "{text}");
    assert!(!text.contains(PAGES), "{text}");
}

#[test]
fn threads_are_judged_by_the_clock_and_only_where_there_are_cpus_for_them() {
    let judged = |cpus| {
        let (fault, mut sheet) = (fault(1), empty());
        let values = [105.0, 99.0, 1.9, 2.0, 120.0, 99.0, 1.67, 2.0];
        for (key, value) in fault.keys(Subject::Parallel, "").into_iter().zip(values) {
            sheet.put(key, vec![value]);
        }
        fault.judge_parallel(&mut sheet, cpus);
        sheet.run.findings
    };
    let [areas, shared] = &judged(2)[..] else { panic!("two places") };
    assert!(areas.contains("1.90 times") && areas.contains("2.00 times"), "{areas}");
    assert!(areas.contains("met)") && shared.contains("1.67 times") && shared.contains("MISSED"));
    assert!(judged(1).iter().all(|line| line.contains("one CPU")));
}

/// A bed of two regions of 2 MiB, without caches to outgrow.
fn bed(isa: Isa, threads: u32) -> Bed {
    let how = (Chosen::default_with_vectors(), page_backend());
    Bed::new((isa, 2 << 20, threads), how, (1 << 20, 64 << 10)).unwrap()
}

#[test]
fn e4_faults_of_every_form_unit_and_format_give_folios_of_that_size_and_no_other() {
    for (isa, size) in [(Isa::X86_64, 64 << 10), (Isa::Arm16k, 16 << 10), (Isa::Sv39, 2 << 20)] {
        for threads in [1, 2] {
            let mut bed = bed(isa, threads);
            for form in Form::ALL {
                for unit in [Unit::Folio, Unit::Page] {
                    let faults = Faults { form, size: Size(size), unit };
                    assert!(bed.faults(faults, 2 << 20).unwrap() > 0.0, "{isa:?} {faults:?}");
                }
            }
        }
    }
}

#[test]
fn a_bed_measures_the_rest_the_raw_clear_and_threads() {
    let mut bed = bed(Isa::X86_64, 1);
    assert!(bed.rest(OWN).unwrap() > 0.0);
    assert!(bed.rest(Faults { unit: Unit::Page, size: Size(1 << 30), ..OWN }).unwrap() > 0.0);
    assert!(bed.raw(Size(64 << 10), 1 << 20).unwrap() > 0.0);
    assert!(bed.raw_as_linux(Size(64 << 10), 1 << 20).unwrap() > 0.0);
    let parallel = bed.parallel(2).unwrap();
    assert!(parallel.one.wall > 0.0 && parallel.areas.cpu > 0.0 && parallel.shared.wall > 0.0);
}

#[test]
fn more_than_the_bed_holds_is_an_error_and_no_panic() {
    let mut bed = bed(Isa::X86_64, 1);
    let error = bed.faults(OWN, 1 << 30).unwrap_err();
    assert!(error.to_string().contains("free block"), "{error}");
    assert!(bed.raw(Size(4096), 1 << 30).is_err());
}
