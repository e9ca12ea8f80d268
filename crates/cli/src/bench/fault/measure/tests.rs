//! Records and splits on made-up costs, and a whole bed on little memory.

use std::path::Path;

use super::*;

fn plan(threads: u32) -> Plan {
    Plan {
        sizes: vec![Size(4096)],
        region: 1 << 20,
        isa: Isa::X86_64,
        threads,
        chosen: Chosen::default_with_vectors(),
        near_cache: 1 << 20,
    }
}

fn nowhere() -> Host {
    Host::new(Path::new("/nonexistent"))
}

fn put(run: &mut Run, plan: &Plan, subject: Subject, costs: &[f64]) {
    push(run, plan, (subject, plan.case(subject, &nowhere())), costs);
}

fn found<'r>(run: &'r Run, variant: &str, metric: &str) -> &'r Record {
    let mut found = run.records.iter().filter(|r| r.metric == metric && r.variant == variant);
    found.next().unwrap()
}

const OWN: Faults = Faults { form: Form::Demand, size: Size(4096), unit: Unit::Folio };

#[test]
fn a_fault_of_linux_is_split_by_what_the_clear_takes_here() {
    let (mut run, plan) = (empty_run(NAME, &nowhere()), plan(1));
    let linux = Subject::Linux(Form::Demand, Size(4096));
    put(&mut run, &plan, linux, &[1000.0, 1400.0, 1200.0]);
    put(&mut run, &plan, Subject::Pages(Size(4096)), &[100.0, 300.0, 200.0]);
    split(&mut run);
    let (clear, rest) = (found(&run, LINUX, "clear"), found(&run, LINUX, "rest"));
    assert_eq!((clear.median, clear.min, clear.max), (200.0, 100.0, 300.0));
    assert_eq!((rest.median, rest.min, rest.max, rest.n), (1000.0, 700.0, 1300.0, 3));
    assert_eq!(rest.case, "demand 4K (MADV_NOHUGEPAGE)");
}

#[test]
fn of_quire_the_rest_is_measured_and_the_clear_is_what_remains() {
    let (mut run, plan) = (empty_run(NAME, &nowhere()), plan(1));
    put(&mut run, &plan, Subject::Own(OWN), &[300.0]);
    put(&mut run, &plan, Subject::Rest(OWN), &[90.0]);
    // Others' clears and rests are not its own.
    put(&mut run, &plan, Subject::Pages(Size(4096)), &[1.0]);
    put(&mut run, &plan, Subject::Rest(Faults { unit: Unit::Page, ..OWN }), &[2.0]);
    split(&mut run);
    assert_eq!(found(&run, CHOSEN, "rest").median, 90.0);
    assert_eq!(found(&run, CHOSEN, "clear").median, 210.0);
    assert_eq!(run.records.iter().filter(|r| r.metric == "clear").count(), 1);
}

#[test]
fn two_threads_double_the_rate_but_not_the_cost() {
    for subject in [Subject::Linux(Form::Demand, Size(4096)), Subject::Own(OWN)] {
        let mut run = empty_run(NAME, &nowhere());
        let plan = plan(2);
        put(&mut run, &plan, subject, &[4096.0]);
        let value = |metric: &str| run.records.iter().find(|r| r.metric == metric).unwrap().median;
        assert_eq!((value("cost"), value("rate")), (4096.0, 2.0));
        assert!(run.records[0].case.contains("2 threads"));
    }
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
