//! What is measured, and the records it becomes.

use anyhow::Result;
use quire_hw::extent::Backend;
use quire_hw::{Chosen, Reuse};

use super::own::{Bed, Faults, Parallel, Unit, ram_bytes};
use super::{goals, threads};
use crate::Refused;
use crate::args::FaultArgs;
use crate::bench::clear::{CHOSEN, PAGES, calibrated, page_backend, raw_name};
use crate::bench::lanes::Lanes;
use crate::bench::{Filter, empty_run, measured, rounds, sizes};
use crate::host::cpu::rounded;
use crate::host::fault::{Form, sample, unavailable};
use crate::host::thp::{Guard, in_force};
use crate::host::{Host, memory, trap};
use crate::isa::Isa;
use crate::record::{Case, Record, Run};
use crate::size::Size;
use crate::stats::Summary;

/// The bench's name in records.
pub(crate) const NAME: &str = "fault";
/// The host's kernel.
pub(crate) const LINUX: &str = "linux";
const SIZES: [u64; 4] = [4 << 10, 64 << 10, 2 << 20, 1 << 30];
const LOOPS: u32 = 9;
/// The host's huge pages, which stand behind the machine's RAM.
const HOST_BLOCK: Size = Size(2 << 20);
/// The circumstance of threads that fault in different parts of one area.
pub(crate) const ONE_AREA: &str = "one area";
/// As many threads are measured against one.
const THREADS: u32 = 2;

/// Who does what in a cell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Subject {
    /// Quire faults memory in.
    Own(Faults),
    /// The same with memory known to be zero.
    Rest(Faults),
    /// Folios of this size are cleared and nothing else.
    Raw(Size),
    /// The same as Linux does it.
    Pages(Size),
    /// The host's kernel faults folios of this size in.
    Linux(Form, Size),
    /// A system call that does nothing.
    Call,
    /// A read fault on the zero page.
    ReadFault,
}

/// What is known before the first sample.
struct Plan {
    sizes: Vec<Size>,
    region: u64,
    isa: Isa,
    threads: u32,
    chosen: Chosen,
    near_cache: u64,
}

impl Plan {
    /// How much of folios of `size` is faulted in per sample.
    fn region(&self, size: Size) -> u64 {
        region(self.region, size)
    }

    fn variant(&self, subject: Subject) -> String {
        match subject {
            Subject::Own(Faults { unit: Unit::Folio, .. })
            | Subject::Rest(Faults { unit: Unit::Folio, .. }) => CHOSEN.to_owned(),
            Subject::Own(_) | Subject::Rest(_) | Subject::Pages(_) => PAGES.to_owned(),
            Subject::Raw(size) => {
                let far = size.bytes() > self.near_cache;
                let reuse = if far { Reuse::Later } else { Reuse::Soon };
                raw_name(self.chosen.backend(size.bytes(), reuse))
            }
            Subject::Linux(..) | Subject::Call | Subject::ReadFault => LINUX.to_owned(),
        }
    }

    fn case(&self, subject: Subject, host: &Host) -> Case {
        match subject {
            Subject::Own(faults) | Subject::Rest(faults) => {
                let threads = if matches!(subject, Subject::Own(_)) { self.threads } else { 1 };
                Case::new(faults.form.name(), Some(faults.size))
                    .with(&isa_note(self.isa))
                    .on_threads(threads)
            }
            Subject::Raw(size) | Subject::Pages(size) => Case::new("clear", Some(size)),
            Subject::Linux(form, size) => Case::new(form.name(), Some(size))
                .with(&setting_of(host, size))
                .on_threads(self.threads),
            Subject::Call => Case::new("trap getppid", None),
            Subject::ReadFault => Case::new("trap zero-page read", None),
        }
    }

    /// Everything to measure, in the order in which it is told.
    fn subjects(&self, filter: &Filter, host: &Host, lacking: &mut Vec<String>) -> Vec<Subject> {
        let mut subjects = Vec::new();
        let (own, linux) = (filter.has(CHOSEN), filter.has(LINUX));
        for form in Form::ALL {
            for &size in &self.sizes {
                let faults = |unit| Faults { form, size, unit };
                if own {
                    subjects.push(Subject::Own(faults(Unit::Folio)));
                    subjects.push(Subject::Rest(faults(Unit::Folio)));
                }
                if filter.has(PAGES) {
                    subjects.push(Subject::Own(faults(Unit::Page)));
                    subjects.push(Subject::Rest(faults(Unit::Page)));
                }
                if linux && unavailable(host, size, self.region(size)).is_none() {
                    subjects.push(Subject::Linux(form, size));
                }
            }
        }
        if linux {
            let why = |size: &Size| unavailable(host, *size, self.region(*size));
            lacking.extend(self.sizes.iter().filter_map(why));
        }
        if own || linux {
            subjects.extend([Subject::Call, Subject::ReadFault]);
        }
        let raw = |size: &Size| filter.has(&self.variant(Subject::Raw(*size))) || own;
        subjects.extend(self.sizes.iter().filter(|size| raw(size)).map(|size| Subject::Raw(*size)));
        if linux || filter.has(PAGES) {
            subjects.extend(self.sizes.iter().map(|size| Subject::Pages(*size)));
        }
        subjects
    }
}

/// Whole folios of `size`: `usual` bytes, or one folio if that is more.
fn region(usual: u64, size: Size) -> u64 {
    usual.max(size.bytes()) / size.bytes() * size.bytes()
}

/// What is said of a format that is not the usual one.
pub(super) fn isa_note(isa: Isa) -> String {
    if isa == Isa::X86_64 { String::new() } else { isa.name() }
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
/// [`Refused`] for unknown variants and more memory than there is.
pub(crate) fn run(args: &FaultArgs, host: &Host) -> Result<Run> {
    let shared = &args.shared;
    let mut known = [CHOSEN, PAGES, LINUX].map(str::to_owned).to_vec();
    known.extend(Backend::available().map(raw_name));
    let filter = Filter::new(&shared.variants, &known)?;
    let mut run = empty_run(NAME, host);
    let cache = run.machine.last_level_cache;
    let usual = (4 * cache).clamp(32 << 20, 512 << 20);
    let usual = args.region.map_or(usual, |region| region.bytes());
    let sizes = fitting(args, host, &mut run, usual)?;
    let largest = sizes.last().copied().unwrap_or(Size(SIZES[0]));
    let mut lanes = Lanes::new(host, &run.machine, largest, 1)?;
    let chosen = calibrated(&mut lanes);
    drop(lanes);
    let near_cache = run.machine.near_cache;
    let (isa, threads) = (args.isa, shared.threads);
    let plan = Plan { sizes, region: usual, isa, threads, chosen, near_cache };
    // Backed by the host before its huge-page settings are borrowed.
    let most = plan.region(largest);
    let how = (chosen, page_backend());
    let mut bed = Bed::new((isa, most, threads), how, (near_cache, cache))?;
    let subjects = plan.subjects(&filter, host, &mut run.limits);
    let guard = filter.has(LINUX).then(|| Guard::new(host, &mut run.settings));
    let loops = shared.loops.unwrap_or(LOOPS);
    let values = rounds("faulting", &subjects, loops, |subject| {
        if let (Some(guard), Subject::Rest(_)) = (&guard, subject) {
            guard.only(HOST_BLOCK)?;
        }
        measure(*subject, &plan, &mut bed, (host, guard.as_ref()))
    })?;
    let values: Vec<Vec<f64>> = values.iter().map(|v| measured(v)).collect();
    let parallel = match filter.has(CHOSEN) {
        true => in_parallel(&bed, &guard, loops)?,
        false => Vec::new(),
    };
    for (subject, values) in subjects.iter().zip(&values) {
        if let (Some(guard), Subject::Linux(_, size)) = (&guard, *subject) {
            guard.only(size)?;
        }
        push(&mut run, &plan, (*subject, plan.case(*subject, host)), values);
    }
    drop(guard);
    push_parallel(&mut run, &plan, &parallel);
    split(&mut run);
    goals::judge(&mut run, &goals::Measured { subjects: &subjects, values: &values, isa });
    goals::judge_parallel(&mut run, &parallel, threads::host_cpus().len());
    say(&mut run, &plan);
    Ok(run)
}

/// The sizes to measure: those the format has, and of the usual ones those that memory suffices
/// for; named ones must fit.
fn fitting(args: &FaultArgs, host: &Host, run: &mut Run, usual: u64) -> Result<Vec<Size>, Refused> {
    let shared = &args.shared;
    let mut fitting = Vec::new();
    for size in sizes(shared, &SIZES) {
        let near = args.isa.nearest(size);
        let bytes = region(usual, near);
        let what = format!("faulting {size} folios in {} thread(s)", shared.threads);
        // The host's kernel faults at most the usual region in, twice: once to warm.
        let linux = if bytes > usual { 0 } else { bytes.saturating_mul(2 * shared.threads as u64) };
        let need = ram_bytes(bytes, shared.threads).saturating_add(linux);
        let fits = memory::require(host, &what, need)
            .and_then(|()| Lanes::check(host, &run.machine, near, 1));
        match fits {
            Ok(()) => {
                if near != size {
                    run.limits.push(format!(
                        "{} has no folios of {size}: {near} instead.",
                        args.isa.name()
                    ));
                }
                fitting.push(near);
            }
            Err(_) if shared.sizes.is_empty() && !fitting.is_empty() => {
                run.limits.push(format!("Memory does not suffice for folios of {size}; left out."));
            }
            Err(refused) => return Err(refused),
        }
    }
    fitting.dedup();
    Ok(fitting)
}

fn measure(
    subject: Subject,
    plan: &Plan,
    bed: &mut Bed,
    (host, guard): (&Host, Option<&Guard>),
) -> Result<Option<f64>> {
    Ok(match subject {
        Subject::Own(faults) => Some(bed.faults(faults, plan.region(faults.size))?),
        Subject::Rest(faults) => Some(bed.rest(faults)?),
        Subject::Raw(size) => Some(bed.raw(size, plan.region(size))?),
        Subject::Pages(size) => Some(bed.raw_as_linux(size, plan.region(size))?),
        Subject::Linux(form, size) => match guard {
            Some(guard) => sample(host, guard, (form, size), plan.region(size), plan.threads)?,
            None => None,
        },
        Subject::Call => Some(trap::system_call()),
        Subject::ReadFault => Some(trap::read_fault()?),
    })
}

/// Threads that fault at the same time, against one alone.
fn in_parallel(bed: &Bed, guard: &Option<Guard>, loops: u32) -> Result<Vec<Parallel>> {
    if let Some(guard) = guard {
        guard.only(HOST_BLOCK)?;
    }
    let what = "faulting in two threads";
    let samples = rounds(what, &[THREADS], loops, |threads| bed.parallel(*threads))?;
    Ok(samples.into_iter().flatten().collect())
}

fn push(run: &mut Run, plan: &Plan, (subject, case): (Subject, Case), costs: &[f64]) {
    let variant = plan.variant(subject);
    let Some(cost) = Summary::of(costs) else {
        run.limits.push(format!(
            "{variant} {case}: the kernel gave smaller folios than asked for; left out."
        ));
        return;
    };
    let together = match subject {
        Subject::Own(_) | Subject::Linux(..) => f64::from(plan.threads),
        _ => 1.0,
    };
    let size = match subject {
        Subject::Rest(_) => {
            run.records.push(Record::new(NAME, &case, &variant, ("rest", "ns"), cost));
            return;
        }
        Subject::Own(Faults { size, .. }) => Some(size),
        Subject::Raw(size) | Subject::Pages(size) | Subject::Linux(_, size) => Some(size),
        Subject::Call | Subject::ReadFault => None,
    };
    run.records.push(Record::new(NAME, &case, &variant, ("cost", "ns"), cost));
    if let Some(size) = size {
        let rate = cost.map(|ns| together * size.bytes() as f64 / ns);
        run.records.push(Record::new(NAME, &case, &variant, ("rate", "GB/s"), rate));
    }
}

/// The time of each fault while several threads fault, and how much faster they are together.
fn push_parallel(run: &mut Run, plan: &Plan, samples: &[Parallel]) {
    let size = plan.isa.nearest(Size(1));
    let case = Case::new(Form::Demand.name(), Some(size)).with(&isa_note(plan.isa));
    let areas = case.clone().on_threads(THREADS);
    let shared = areas.clone().with(ONE_AREA);
    let mut put = |case: &Case, metric, of: &dyn Fn(&Parallel) -> f64| {
        let values: Vec<f64> = samples.iter().map(of).collect();
        if let Some(summary) = Summary::of(&values) {
            run.records.push(Record::new(NAME, case, CHOSEN, metric, summary));
        }
    };
    put(&areas, ("rest", "ns"), &|p| p.areas.wall);
    put(&shared, ("rest", "ns"), &|p| p.shared.wall);
    put(&areas, ("rest-cpu", "ns"), &|p| p.areas.cpu);
    put(&shared, ("rest-cpu", "ns"), &|p| p.shared.cpu);
    let threads = f64::from(THREADS);
    put(&areas, ("speed-up", "ratio"), &|p| threads * p.one.wall / p.areas.wall);
    put(&shared, ("speed-up", "ratio"), &|p| threads * p.one.wall / p.shared.wall);
    put(&areas, ("speed-up-cpu", "ratio"), &|p| threads * p.one.cpu / p.areas.cpu);
    put(&shared, ("speed-up-cpu", "ratio"), &|p| threads * p.one.cpu / p.shared.cpu);
}

/// Splits each cost into clearing and the rest. Of Quire the rest is measured, on memory known to
/// be zero, and what remains of the cost is the clearing. Of Linux the clearing is taken to be what
/// this program needs to clear as much page after page, and the rest is what remains.
fn split(run: &mut Run) {
    let is = |r: &&Record, metric: &str| r.metric == metric && r.case().form != "clear";
    let costs: Vec<Record> = run.records.iter().filter(|r| is(r, "cost")).cloned().collect();
    for cost in costs {
        let case = cost.case();
        let same = |r: &&Record| {
            let other = r.case();
            (other.form, other.size) == (case.form.clone(), case.size)
        };
        let linux = cost.variant == LINUX;
        let known = run.records.iter().find(|r| match linux {
            true => {
                let clear = r.case();
                (clear.form == "clear" && r.variant == PAGES && r.metric == "cost")
                    && clear.size == case.size
            }
            false => r.metric == "rest" && r.variant == cost.variant && same(r),
        });
        let Some(known) = known else { continue };
        let less = |all: f64, part: f64| (all - part).max(0.0);
        // The two were not measured together, so that the bounds of what remains are the widest.
        let remains = Summary {
            median: less(cost.median, known.median),
            min: less(cost.min, known.max),
            max: less(cost.max, known.min),
            n: cost.n.min(known.n),
        };
        let clear = Summary { median: known.median, min: known.min, max: known.max, n: known.n };
        let part = |metric: &str, s| Record::new(NAME, &case, &cost.variant, (metric, "ns"), s);
        let parts = match linux {
            true => vec![part("clear", clear), part("rest", remains)],
            false => vec![part("clear", remains)],
        };
        run.records.extend(parts);
    }
}

fn say(run: &mut Run, plan: &Plan) {
    let region = Size(plan.region);
    run.settings.push(format!(
        "Quire: {} on the hosted machine, nothing watched or counted by it; {region} (or one \
         folio, if that is more) per measurement. Demand is one call of Mm::fault for each folio, \
         on its first page, in ascending order; populate is one call of Mm::populate.",
        plan.isa.name()
    ));
    run.settings.push(format!(
        "{PAGES}: the same memory through Mm in base pages only, each cleared by {} of its own; \
         stated for as many bytes as the folio has.",
        page_backend()
    ));
    run.settings.push(
        "All but the clear (rest) is measured by itself, on memory that is known to be zero and \
         that Quire therefore does not clear; the clear is what remains of the cost."
            .to_owned(),
    );
    for record in run.records.iter().filter(|r| r.variant == LINUX && r.metric == "cost") {
        let case = record.case();
        if case.form == Form::Demand.name()
            && let Some(size) = case.size
        {
            run.settings.push(format!("linux {size}: {}.", case.notes));
        }
    }
    run.settings.push(format!(
        "linux: {region} of fresh anonymous memory per measurement, the same amount populated and \
         given back just before; demand touches one byte per folio, populate is \
         MADV_POPULATE_WRITE."
    ));
    run.settings.push(format!(
        "Quire clears folios of up to {}, the near cache, so that they stay in it, since the \
         program is about to use them; here nobody does.",
        rounded(plan.near_cache)
    ));
    run.limits.push(
        "Quire's hosted figures leave out exception entry and exit and the hardware's table walks: \
         the fault is a function call. The trap's cost on this host stands beside them: it lies \
         between its two figures, since a system call saves less state than an exception, and a \
         read fault on the zero page also walks and writes page tables."
            .to_owned(),
    );
    run.limits.push(
        "linux contains exception entry and exit, page tables, allocation, accounting and \
         clearing; its split takes for clearing what this program needs to clear as much cold \
         memory page after page in the same order (up to 4M the last page first), so that the rest \
         is an estimate."
            .to_owned(),
    );
}

#[cfg(test)]
mod tests;
