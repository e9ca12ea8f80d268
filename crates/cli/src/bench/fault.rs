//! `bench fault`: what a page fault costs against the size of the folio (row A8).
//!
//! The host's own kernel is measured here (`linux`), on demand and populated, with what the
//! comparison needs measured beside it in the same shuffled rounds: the clearing alone, page after
//! page as that kernel does it and with Quire's choice for that size, and the cost of entering the
//! kernel and coming back.

use anyhow::Result;
use quire_hw::Reuse;
use quire_hw::extent::{Backend, GRAIN};

use super::clear::{PAGES, calibrated, clear_as_linux, page_backend, raw_name};
use super::lanes::Lanes;
use super::{Filter, empty_run, measured, rounds, sizes};
use crate::args::FaultArgs;
use crate::host::fault::{Form, sample, unavailable};
use crate::host::thp::{Guard, in_force};
use crate::host::{Host, memory, trap};
use crate::record::{Case, Record, Run};
use crate::size::Size;
use crate::stats::Summary;

/// The bench's name in records.
pub(crate) const NAME: &str = "fault";
/// The host's kernel.
pub(crate) const LINUX: &str = "linux";
const SIZES: [u64; 4] = [4 << 10, 64 << 10, 2 << 20, 1 << 30];
const LOOPS: u32 = 7;

/// Who works in a cell.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Subject {
    /// The host's kernel faults folios of this size in.
    Linux(Form, Size),
    /// This program clears extents of this size as that kernel does.
    Pages(Size),
    /// This program clears extents of this size with this backend.
    Raw(Backend, Size),
    /// A system call that does nothing.
    Call,
    /// A read fault on the zero page.
    ReadFault,
}

impl Subject {
    fn variant(self) -> String {
        match self {
            Subject::Linux(..) | Subject::Call | Subject::ReadFault => LINUX.to_owned(),
            Subject::Pages(_) => PAGES.to_owned(),
            Subject::Raw(backend, _) => raw_name(backend),
        }
    }

    fn case(self, host: &Host) -> Case {
        match self {
            Subject::Linux(form, size) => {
                Case::new(form.name(), Some(size)).with(&setting_of(host, size))
            }
            Subject::Pages(size) | Subject::Raw(_, size) => Case::new("clear", Some(size)),
            Subject::Call => Case::new("trap getppid", None),
            Subject::ReadFault => Case::new("trap zero-page read", None),
        }
    }

    /// Bytes behind one unit of its cost; `None` where bytes mean nothing.
    fn bytes(self) -> Option<u64> {
        match self {
            Subject::Linux(_, size) | Subject::Pages(size) | Subject::Raw(_, size) => {
                Some(size.bytes())
            }
            Subject::Call | Subject::ReadFault => None,
        }
    }
}

/// What decided that the kernel gave folios of `size`.
fn setting_of(host: &Host, size: Size) -> String {
    match size.bytes() {
        4096 => "MADV_NOHUGEPAGE".to_owned(),
        0x4000_0000 => "hugetlb".to_owned(),
        _ => in_force(host, size),
    }
}

/// Measures.
///
/// # Errors
/// [`Refused`](crate::Refused) for unknown variants and more memory than there is.
pub(crate) fn run(args: &FaultArgs, host: &Host) -> Result<Run> {
    let shared = &args.shared;
    let mut known = vec![LINUX.to_owned(), PAGES.to_owned()];
    known.extend(Backend::available().map(raw_name));
    let filter = Filter::new(shared, &known)?;
    let mut run = empty_run(NAME, host);
    let sizes = sizes(shared, &SIZES);
    let largest = sizes.last().copied().unwrap_or(Size(GRAIN as u64));
    let region = |size: Size| args.region.bytes().max(size.bytes()) / size.bytes() * size.bytes();
    let faulted = region(largest).saturating_add(largest.bytes());
    let what = format!("faulting {largest} folios in {} thread(s)", shared.threads);
    memory::require(host, &what, faulted.saturating_mul(shared.threads.into()))?;
    let mut lanes = Lanes::new(host, &run.machine, largest, 1)?;
    let guard = Guard::new(host, &mut run.settings);
    let subjects = subjects(&mut run, &mut lanes, &filter, host, (&sizes, &region));
    // Found once: finding it asks the CPU, which takes longer than clearing a page.
    let page = page_backend();
    let values = rounds("faulting", &subjects, shared.loops.unwrap_or(LOOPS), |subject| {
        Ok(match *subject {
            Subject::Linux(form, size) => {
                sample(host, &guard, (form, size), region(size), shared.threads)?
            }
            Subject::Pages(size) => {
                Some(clear_cost(&mut lanes, size, |extent| clear_as_linux(page, extent))?)
            }
            Subject::Raw(backend, size) => {
                Some(clear_cost(&mut lanes, size, |extent| backend.clear(extent))?)
            }
            Subject::Call => Some(trap::system_call()),
            Subject::ReadFault => Some(trap::read_fault()?),
        })
    })?;
    let values: Vec<Vec<f64>> = values.iter().map(|v| measured(v)).collect();
    for (subject, values) in subjects.iter().zip(&values) {
        if let Subject::Linux(_, size) = *subject {
            guard.only(size)?;
        }
        push(&mut run, host, *subject, values, shared.threads);
    }
    split(&mut run);
    say(&mut run, &mut lanes, args.region);
    Ok(run)
}

/// What is measured, in the order in which it is told.
fn subjects(
    run: &mut Run,
    lanes: &mut Lanes,
    filter: &Filter,
    host: &Host,
    (sizes, region): (&[Size], &impl Fn(Size) -> u64),
) -> Vec<Subject> {
    let chosen = calibrated(lanes);
    let mut subjects = Vec::new();
    if filter.has(LINUX) {
        let lacking: Vec<_> = sizes.iter().map(|s| unavailable(host, *s, region(*s))).collect();
        for form in Form::ALL {
            let there = sizes.iter().zip(&lacking).filter(|(_, why)| why.is_none());
            subjects.extend(there.map(|(size, _)| Subject::Linux(form, *size)));
        }
        run.limits.extend(lacking.into_iter().flatten());
        subjects.extend([Subject::Call, Subject::ReadFault]);
    }
    for &size in sizes {
        let raw = Subject::Raw(chosen.backend(size.bytes(), Reuse::Later), size);
        subjects
            .extend([Subject::Pages(size), raw].into_iter().filter(|s| filter.has(&s.variant())));
    }
    subjects
}

/// Nanoseconds that `clear` takes for a cold extent of `size`.
fn clear_cost(lanes: &mut Lanes, size: Size, clear: impl Fn(&mut [u8]) + Sync) -> Result<f64> {
    let rate = lanes.rate(size, |extent| {
        clear(extent);
        Ok(())
    })?;
    Ok(size.bytes() as f64 / rate)
}

fn push(run: &mut Run, host: &Host, subject: Subject, costs: &[f64], threads: u32) {
    let case = subject.case(host);
    let case = if matches!(subject, Subject::Linux(..)) { case.on_threads(threads) } else { case };
    let variant = subject.variant();
    let Some(cost) = Summary::of(costs) else {
        run.limits.push(format!(
            "{variant} {case}: the kernel gave smaller folios than asked for; left out."
        ));
        return;
    };
    run.records.push(Record::new(NAME, &case, &variant, ("cost", "ns"), cost));
    if let Some(bytes) = subject.bytes() {
        let together = if matches!(subject, Subject::Linux(..)) { f64::from(threads) } else { 1.0 };
        let rate = cost.map(|ns| together * bytes as f64 / ns);
        run.records.push(Record::new(NAME, &case, &variant, ("rate", "GB/s"), rate));
    }
}

/// Splits each of the kernel's costs into clearing, which is taken to be what this program needs
/// to clear as much page after page, and the rest.
fn split(run: &mut Run) {
    let cost = |r: &&Record, form: &str| r.metric == "cost" && r.case().form == form;
    let clears: Vec<Record> =
        run.records.iter().filter(|r| cost(r, "clear") && r.variant == PAGES).cloned().collect();
    let faults: Vec<Record> = Form::ALL
        .iter()
        .flat_map(|form| run.records.iter().filter(|r| cost(r, form.name())).cloned())
        .collect();
    for fault in faults {
        let Some(clear) = clears.iter().find(|c| c.case().size == fault.case().size) else {
            continue;
        };
        let n = fault.n.min(clear.n);
        let less = |all: f64, clear: f64| (all - clear).max(0.0);
        // The two were not measured together, so that the bounds of the rest are the widest.
        let rest = Summary {
            median: less(fault.median, clear.median),
            min: less(fault.min, clear.max),
            max: less(fault.max, clear.min),
            n,
        };
        let clear = Summary { median: clear.median, min: clear.min, max: clear.max, n };
        let part = |metric: &str, part: Summary| {
            Record::new(NAME, &fault.case(), &fault.variant, (metric, "ns"), part)
        };
        let parts = [part("clear", clear), part("rest", rest)];
        run.records.extend(parts);
    }
}

fn say(run: &mut Run, lanes: &mut Lanes, region: Size) {
    run.settings.push(format!(
        "linux: {region} (or one folio, if that is more) of fresh anonymous memory per measurement, the same amount populated and given back just before; demand touches one byte per folio, populate is MADV_POPULATE_WRITE."
    ));
    for record in run.records.iter().filter(|r| r.variant == LINUX && r.metric == "cost") {
        let case = record.case();
        if case.form == Form::Demand.name()
            && let Some(size) = case.size
        {
            run.settings.push(format!("linux {size}: {}.", case.notes));
        }
    }
    run.settings.push(lanes.sentence());
    run.limits.push("linux contains exception entry and exit, page tables, allocation, accounting and clearing; its split takes for clearing what this program needs to clear as much cold memory page after page in the same order (up to 4M the last page first), so that the rest is an estimate.".to_owned());
    run.limits.push("The trap lies between its two figures: a system call saves less state than an exception, and a read fault on the zero page also walks and writes page tables.".to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_fault_is_split_into_clearing_and_the_rest() {
        let host = Host::new(Path::new("/nonexistent"));
        let mut run = empty_run(NAME, &host);
        let size = Size(4096);
        push(&mut run, &host, Subject::Linux(Form::Demand, size), &[1000.0, 1400.0, 1200.0], 1);
        push(&mut run, &host, Subject::Pages(size), &[100.0, 300.0, 200.0], 1);
        split(&mut run);
        let of =
            |metric: &str| run.records.iter().find(|r| r.metric == metric && r.variant == LINUX);
        let (clear, rest) = (of("clear").unwrap(), of("rest").unwrap());
        assert_eq!((clear.median, clear.min, clear.max), (200.0, 100.0, 300.0));
        assert_eq!((rest.median, rest.min, rest.max, rest.n), (1000.0, 700.0, 1300.0, 3));
        assert_eq!(rest.case, "demand 4K (MADV_NOHUGEPAGE)");
    }

    #[test]
    fn two_threads_double_the_rate_but_not_the_cost() {
        let host = Host::new(Path::new("/nonexistent"));
        let mut run = empty_run(NAME, &host);
        push(&mut run, &host, Subject::Linux(Form::Demand, Size(4096)), &[4096.0], 2);
        let value = |metric: &str| run.records.iter().find(|r| r.metric == metric).unwrap().median;
        assert_eq!((value("cost"), value("rate")), (4096.0, 2.0));
    }
}
