//! The cells, the figures that they become, and the goals.

use anyhow::Result;
use clap::Args;
use quire_hw::extent::Backend;
use quire_hw::{Chosen, Reuse};

use super::own::{Bed, Faults, Unit, ram_bytes};
use crate::bench::clear::{CHOSEN, page_backend, raw_name};
use crate::bench::driver::Bench;
use crate::bench::lanes::Lanes;
use crate::bench::options::{Filter, Shared};
use crate::bench::sheet::{Bound, Key, LINUX, PAGES, Place, Row, Sheet, verdict};
use crate::host::cpu::rounded;
use crate::host::fault::{Form, read_fault, sample, system_call, unavailable};
use crate::host::thp::{Guard, in_force};
use crate::host::{Host, memory};
use crate::isa::Isa;
use crate::plot::{Bar, Plot};
use crate::record::Case;
use crate::size::Size;
use crate::stats::Summary;
use crate::threads;

const SIZES: [u64; 4] = [4 << 10, 64 << 10, 2 << 20, 1 << 30];
const LOOPS: u32 = 9;
/// The host's huge pages, which stand behind the machine's RAM.
const HOST_BLOCK: Size = Size(2 << 20);
/// The note of threads that fault in different parts of one area.
const ONE_AREA: &str = "one area";
/// The number of threads that are measured against one.
const THREADS: u32 = 2;
/// The share of the bare clear's rate that shall remain of a fault of this size.
const OF_RAW: (u64, Bound) = (2 << 20, Bound::AtLeast(0.95));
/// The nanoseconds that all but the clear may take, by folio size.
const REST: [(u64, Bound); 2] = [(4 << 10, Bound::AtMost(150.0)), (64 << 10, Bound::AtMost(250.0))];
/// Two threads shall fault this many times as fast as one.
const SPEED_UP: Bound = Bound::AtLeast(1.8);

const COST: (&str, &str) = ("cost", "ns");
const CLEAR_PART: (&str, &str) = ("clear", "ns");
const REST_PART: (&str, &str) = ("rest", "ns");

/// Options of `bench fault`.
#[derive(Args, Debug)]
pub(crate) struct FaultArgs {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// How much memory each thread faults in per measurement [default: four last-level caches]
    #[arg(long)]
    region: Option<Size>,
    /// The page-table format in which Quire faults
    #[arg(long, value_enum, default_value_t = Isa::X86_64)]
    isa: Isa,
}

/// A cell: the subject of a measurement.
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
    /// Threads that fault at the same time, against one alone.
    Parallel,
}

pub(crate) struct Fault {
    pub(super) sizes: Vec<Size>,
    pub(super) region: u64,
    pub(super) isa: Isa,
    pub(super) threads: u32,
    pub(super) chosen: Chosen,
    pub(super) near_cache: u64,
    pub(super) loops: u32,
    pub(super) filter: Filter,
    /// The last-level cache.
    pub(super) cache: u64,
}

/// Whole folios of `size`: `usual` bytes, or one folio if that is more.
fn region(usual: u64, size: Size) -> u64 {
    usual.max(size.bytes()) / size.bytes() * size.bytes()
}

/// The setting by which the kernel gives folios of `size`.
fn setting_of(host: &Host, size: Size) -> String {
    match size.bytes() {
        4096 => "MADV_NOHUGEPAGE".to_owned(),
        0x4000_0000 => "hugetlb".to_owned(),
        _ => in_force(host, size),
    }
}

impl Fault {
    /// The format as a note, where it is not the usual one.
    fn note(&self) -> String {
        if self.isa == Isa::X86_64 { String::new() } else { self.isa.name() }
    }

    fn variant(&self, subject: Subject) -> String {
        match subject {
            Subject::Own(Faults { unit: Unit::Folio, .. })
            | Subject::Rest(Faults { unit: Unit::Folio, .. })
            | Subject::Parallel => CHOSEN.to_owned(),
            Subject::Own(_) | Subject::Rest(_) | Subject::Pages(_) => PAGES.to_owned(),
            Subject::Raw(size) => {
                let far = size.bytes() > self.near_cache;
                let reuse = if far { Reuse::Later } else { Reuse::Soon };
                raw_name(self.chosen.backend(size.bytes(), reuse))
            }
            Subject::Linux(..) | Subject::Call | Subject::ReadFault => LINUX.to_owned(),
        }
    }

    /// The case; `setting` is that of the host's kernel.
    fn case(&self, subject: Subject, setting: &str) -> Case {
        match subject {
            Subject::Own(faults) | Subject::Rest(faults) => {
                let threads = if matches!(subject, Subject::Own(_)) { self.threads } else { 1 };
                let case = Case::new(faults.form.name(), Some(faults.size));
                case.with(&self.note()).on_threads(threads)
            }
            Subject::Raw(size) | Subject::Pages(size) => Case::new("clear", Some(size)),
            Subject::Linux(form, size) => {
                Case::new(form.name(), Some(size)).with(setting).on_threads(self.threads)
            }
            Subject::Call => Case::new("trap getppid", None),
            Subject::ReadFault => Case::new("trap zero-page read", None),
            Subject::Parallel => {
                let case = Case::new(Form::Demand.name(), Some(self.isa.nearest(Size(1))));
                case.with(&self.note()).on_threads(THREADS)
            }
        }
    }

    /// The figures of a cell: a cost, a rest, or all times of threads.
    pub(super) fn keys(&self, subject: Subject, setting: &str) -> Vec<Key> {
        let (case, variant) = (self.case(subject, setting), self.variant(subject));
        let metrics: &[(&str, &'static str)] = match subject {
            Subject::Rest(_) => &[REST_PART],
            Subject::Parallel => {
                &[REST_PART, ("rest-cpu", "ns"), ("speed-up", "ratio"), ("speed-up-cpu", "ratio")]
            }
            _ => &[COST],
        };
        let keys = |case: &Case| -> Vec<Key> {
            metrics.iter().map(|metric| Key::new(case, &variant, *metric)).collect()
        };
        match subject {
            Subject::Parallel => [keys(&case), keys(&case.clone().with(ONE_AREA))].concat(),
            _ => keys(&case),
        }
    }

    /// All cells, in the order in which they are told.
    fn subjects(&self, host: &Host, sheet: &mut Sheet) -> Vec<Subject> {
        let (mut subjects, filter) = (Vec::new(), &self.filter);
        let (own, linux, pages) = (filter.has(CHOSEN), filter.has(LINUX), filter.has(PAGES));
        let lacking = |size: Size| unavailable(host, size, region(self.region, size));
        for form in Form::ALL {
            for &size in &self.sizes {
                for (has, unit) in [(own, Unit::Folio), (pages, Unit::Page)] {
                    let faults = Faults { form, size, unit };
                    subjects.extend(
                        has.then_some([Subject::Own(faults), Subject::Rest(faults)])
                            .into_iter()
                            .flatten(),
                    );
                }
                if linux {
                    match lacking(size) {
                        None => subjects.push(Subject::Linux(form, size)),
                        Some(why) => sheet.skip(why),
                    }
                }
            }
        }
        if own || linux {
            subjects.extend([Subject::Call, Subject::ReadFault]);
        }
        let sizes = || self.sizes.iter().copied();
        let raw = |size: &Size| own || filter.has(&self.variant(Subject::Raw(*size)));
        subjects.extend(sizes().filter(raw).map(Subject::Raw));
        if linux || pages {
            subjects.extend(sizes().map(Subject::Pages));
        }
        subjects
    }

    fn sample(
        &self,
        subject: Subject,
        bed: &mut Bed,
        (host, guard): (&Host, Option<&Guard>),
    ) -> Result<Vec<f64>> {
        let region = |size| region(self.region, size);
        if let (Some(guard), Subject::Rest(_) | Subject::Parallel) = (guard, subject) {
            guard.only(HOST_BLOCK)?;
        }
        Ok(vec![match subject {
            Subject::Own(faults) => bed.faults(faults, region(faults.size))?,
            Subject::Rest(faults) => bed.rest(faults)?,
            Subject::Raw(size) => bed.raw(size, region(size))?,
            Subject::Pages(size) => bed.raw_as_linux(size, region(size))?,
            Subject::Linux(form, size) => {
                let Some(guard) = guard else { return Ok(Vec::new()) };
                let ns = sample(host, guard, (form, size), region(size), self.threads)?;
                return Ok(ns.into_iter().collect());
            }
            Subject::Call => system_call(),
            Subject::ReadFault => read_fault()?,
            Subject::Parallel => {
                let all = bed.parallel(THREADS)?;
                let times = |both: threads::Timing| {
                    let faster = |one: f64, both: f64| f64::from(THREADS) * one / both;
                    let by_clock = faster(all.one.wall, both.wall);
                    [both.wall, both.cpu, by_clock, faster(all.one.cpu, both.cpu)]
                };
                return Ok([times(all.areas), times(all.shared)].concat());
            }
        }])
    }

    /// Adds rates, and splits each cost into clearing and the rest. For Quire the rest is measured,
    /// on memory known to be zero, and the clearing is what remains of the cost. For Linux the
    /// clearing is estimated as the time in which this program clears as much page after page, and
    /// the rest is what remains.
    pub(super) fn split(&self, sheet: &mut Sheet) {
        let costs: Vec<Key> = sheet
            .figures()
            .map(|(key, _)| key)
            .filter(|key| key.metric == "cost" && key.case.size.is_some())
            .cloned()
            .collect();
        for cost in costs {
            let Key { case, variant, .. } = &cost;
            let key = |metric| Key::new(case, variant, metric);
            let size = case.size.map_or(0, Size::bytes) as f64;
            let threads = if case.form == "clear" { 1.0 } else { f64::from(self.threads) };
            sheet.derive(&cost, key(("rate", "GB/s")), |ns| threads * size / ns);
            if case.form == "clear" {
                continue;
            }
            let linux = variant == LINUX;
            let known = match linux {
                true => Key::new(&Case::new("clear", case.size), PAGES, COST),
                // The rest is measured in one thread.
                false => {
                    let alone = Case::new(&case.form, case.size).with(&self.note());
                    Key::new(&alone, variant, REST_PART)
                }
            };
            let Some(known) = sheet.median(&known) else { continue };
            let (measured, remains) =
                if linux { (CLEAR_PART, REST_PART) } else { (REST_PART, CLEAR_PART) };
            if linux {
                sheet.derive(&cost, key(measured), |_| known);
            }
            sheet.derive(&cost, key(remains), |ns| (ns - known).max(0.0));
        }
    }

    fn own(&self, size: u64, unit: Unit) -> Faults {
        Faults { form: Form::Demand, size: Size(size), unit }
    }

    /// Judges all but the clear of a fault, and a whole fault beside the bare clear.
    fn judge_faults(&self, sheet: &mut Sheet) {
        let key = |subject| self.keys(subject, "").remove(0);
        let (size, bound) = OF_RAW;
        let own = key(Subject::Own(self.own(size, Unit::Folio)));
        let to = Key::new(&own.case, CHOSEN, ("of-raw", "ratio"));
        if let Some(ratio) = sheet.ratio(&key(Subject::Raw(Size(size))), &own, to) {
            sheet.finding(format!(
                "{} demand faults reach {:.3} of the rate of the raw clear of the same \
                 memory ({}).",
                Size(size),
                ratio.median,
                bound.judge(ratio.median)
            ));
        }
        for (size, bound) in REST.into_iter().filter(|(size, _)| self.has(*size)) {
            let faults = self.own(size, Unit::Folio);
            let Some(rest) = sheet.median(&key(Subject::Rest(faults))) else { continue };
            let both =
                [Subject::Own(faults), Subject::Raw(Size(size))].map(|s| sheet.median(&key(s)));
            let less = match both {
                [Some(own), Some(raw)] => format!(
                    "; the whole fault less the raw clear, in memory that is in no cache: {:.0} ns",
                    own - raw
                ),
                _ => String::new(),
            };
            sheet.finding(format!(
                "All but the clear of a {} demand fault takes {rest:.0} ns ({}){less}.",
                Size(size),
                bound.judge(rest)
            ));
        }
    }

    /// Tells how many times as fast as page-at-a-time and the host's kernel each size is.
    fn tell_times(&self, sheet: &mut Sheet) {
        for &size in &self.sizes {
            let key = |unit| self.keys(Subject::Own(self.own(size.bytes(), unit)), "").remove(0);
            let Some(own) = sheet.median(&key(Unit::Folio)) else { continue };
            let linux = sheet.find(|key| {
                let case = &key.case;
                (key.variant.as_str(), key.metric.as_str()) == (LINUX, "cost")
                    && (case.form.as_str(), case.size) == (Form::Demand.name(), Some(size))
            });
            let mut parts = Vec::new();
            parts.extend(
                sheet
                    .median(&key(Unit::Page))
                    .map(|pages| format!("{:.2} times as fast as {PAGES}", pages / own)),
            );
            parts.extend(linux.map(|(_, linux)| {
                format!("{:.2} times as fast as linux, trap and all", linux.median / own)
            }));
            if !parts.is_empty() {
                sheet.finding(format!("{size} on demand: {}.", parts.join(", ")));
            }
        }
        let traps = [Subject::Call, Subject::ReadFault].map(|trap| self.keys(trap, "").remove(0));
        if let [Some(call), Some(read)] = traps.map(|trap| sheet.median(&trap)) {
            sheet.finding(format!(
                "The host's trap, which Quire's hosted figures leave out, costs between {call:.0} \
                 ns (a system call) and {read:.0} ns (a read fault)."
            ));
        }
    }

    /// Tells how much faster two threads are than one, on a host with `cpus` CPUs for them.
    pub(super) fn judge_parallel(&self, sheet: &mut Sheet, cpus: usize) {
        let keys = self.keys(Subject::Parallel, "");
        for (place, keys) in ["areas of their own", "one area"].into_iter().zip(keys.chunks(4)) {
            let [_, _, wall, cpu] = keys else { continue };
            let [Some(wall), Some(cpu)] = [wall, cpu].map(|key| sheet.median(key)) else {
                continue;
            };
            let verdict = match cpus {
                0 | 1 => "this host has one CPU for them",
                _ => verdict(SPEED_UP.is_kept(wall)),
            };
            sheet.finding(format!(
                "Two threads in {place} fault {wall:.2} times as fast as one by the clock, \
                 {cpu:.2} times by their CPU time (base pages, clear excluded; goal: {SPEED_UP}; \
                 {verdict})."
            ));
        }
    }

    /// Whether the format has folios of `size`.
    fn has(&self, size: u64) -> bool {
        self.isa.nearest(Size(size)) == Size(size)
    }
}

impl Bench for Fault {
    type Args = FaultArgs;

    fn titles(_: &FaultArgs) -> [&'static str; 3] {
        [
            "fault",
            "Faults",
            "The cost of faulting memory in, per 4 KiB of it, so that folio \
             sizes can be compared; below the plots per folio.",
        ]
    }

    fn headlines(&self) -> Vec<Row> {
        vec![
            headline("fault in 4K", 4 << 10, ("rest", "ns without the clear", REST[0].1)),
            headline("fault in 64K", 64 << 10, ("rest", "ns without the clear", REST[1].1)),
            headline("fault in 2M", 2 << 20, ("of-raw", "of the bare clear", OF_RAW.1)),
        ]
    }

    fn new(args: &FaultArgs, host: &Host, sheet: &mut Sheet) -> Result<Self> {
        let shared = &args.shared;
        let mut known = [CHOSEN, PAGES, LINUX].map(str::to_owned).to_vec();
        known.extend(Backend::available().map(raw_name));
        let filter = Filter::new(&shared.variants, &known)?;
        let machine = sheet.run.machine.clone();
        let (cache, near_cache) = (machine.last_level_cache, machine.near_cache);
        let usual = (4 * cache).clamp(32 << 20, 512 << 20);
        let usual = args.region.map_or(usual, Size::bytes);
        let (isa, threads) = (args.isa, shared.threads);
        let mut sizes = Vec::new();
        for size in shared.sizes(&SIZES) {
            let near = isa.nearest(size);
            let bytes = region(usual, near);
            let what = format!("faulting {size} folios in {threads} thread(s)");
            // The host's kernel faults at most the usual region in, twice: once to warm.
            let linux =
                if bytes > usual { 0 } else { bytes.saturating_mul(2 * u64::from(threads)) };
            let need = ram_bytes(bytes, threads).saturating_add(linux);
            let fits = memory::require(host, &what, need)
                .and_then(|()| Lanes::check(host, &machine, near, 1));
            match fits {
                Ok(()) if near != size => {
                    sheet.skip(format!("{} has no folios of {size}: {near} instead.", isa.name()));
                    sizes.push(near);
                }
                Ok(()) => sizes.push(near),
                Err(_) if shared.sizes.is_empty() && !sizes.is_empty() => {
                    sheet.skip(format!("Memory does not suffice for folios of {size}; left out."));
                }
                Err(refused) => return Err(refused.into()),
            }
        }
        sizes.dedup();
        let largest = sizes.last().copied().unwrap_or(Size(SIZES[0]));
        let chosen = Lanes::new(host, &machine, largest, 1)?.calibrated();
        let loops = shared.common.loops.unwrap_or(LOOPS);
        let region = usual;
        Ok(Fault { sizes, region, isa, threads, chosen, near_cache, loops, filter, cache })
    }

    fn measure(&mut self, host: &Host, sheet: &mut Sheet) -> Result<()> {
        // Backed by the host before its huge-page settings are borrowed.
        let largest = self.sizes.last().copied().unwrap_or(Size(SIZES[0]));
        let place = (self.isa, region(self.region, largest), self.threads);
        let how = (self.chosen, page_backend());
        let mut bed = Bed::new(place, how, (self.near_cache, self.cache))?;
        let subjects = self.subjects(host, sheet);
        let guard = self.filter.has(LINUX).then(|| Guard::new(host, &mut sheet.run.settings));
        let mut cells = Vec::new();
        for subject in subjects {
            let mut setting = String::new();
            if let (Some(guard), Subject::Linux(form, size)) = (&guard, subject) {
                guard.only(size)?;
                setting = setting_of(host, size);
                if form == Form::Demand {
                    sheet.setting(format!("linux {size}: {setting}."));
                }
            }
            cells.push((self.keys(subject, &setting), subject));
        }
        let place = (host, guard.as_ref());
        sheet.rounds("faulting", self.loops, &cells, |subject| {
            self.sample(*subject, &mut bed, place)
        })?;
        if self.filter.has(CHOSEN) {
            // In rounds of its own: the threads are pinned to CPUs.
            let cells = [(self.keys(Subject::Parallel, ""), Subject::Parallel)];
            sheet.rounds("faulting in two threads", self.loops, &cells, |subject| {
                self.sample(*subject, &mut bed, place)
            })?;
        }
        Ok(())
    }

    fn goals(&self, sheet: &mut Sheet) {
        self.split(sheet);
        self.judge_faults(sheet);
        self.tell_times(sheet);
        self.judge_parallel(sheet, threads::host_cpus().len());
    }

    fn words(&self, sheet: &mut Sheet) {
        sheet.words(
            include_str!("words.txt"),
            &[
                ("isa", self.isa.name()),
                ("region", Size(self.region).to_string()),
                ("PAGES", PAGES.to_owned()),
                ("page", page_backend().to_string()),
                ("near", rounded(self.near_cache)),
            ],
        );
    }

    fn place(&self, key: &Key) -> Place {
        let what = match key.metric.as_str() {
            "rate" => "GB/s, more is better",
            "cost" => "time per folio or extent, less is better",
            "clear" => "time per folio, of it clearing (estimate for linux)",
            "rest" => "time per folio, of it all but clearing",
            "rest-cpu" => "CPU time per folio, of it all but clearing",
            "speed-up" => "how many times as fast as one thread, by the clock",
            "speed-up-cpu" => "how many times as fast as one thread, by CPU time",
            _ => "ratio of the rate to the bare clear's",
        };
        if let Some(trap) = key.case.form.strip_prefix("trap ") {
            let table = "fault trap: time to enter the host's kernel and return (medians)";
            return Place::by_size(key, table, trap);
        }
        let table = format!("fault {}: {what} (medians)", key.case.form);
        let tells = |note: &&String| *note == ONE_AREA || note.ends_with(" threads");
        let notes = key.case.notes.iter().filter(tells);
        let row: Vec<&str> = [&key.variant].into_iter().chain(notes).map(String::as_str).collect();
        Place::by_size(key, table, row.join(", "))
    }

    /// One plot for each form: per size a stack for each variant.
    fn plots(&self, sheet: &Sheet) -> Vec<Plot> {
        let plot = |(form, caption): (Form, &str)| {
            let group = |size: &Size| {
                let of = |metric: &str| -> Vec<(&Key, Summary)> {
                    let same = |case: &Case| case.form == form.name() && case.size == Some(*size);
                    let is = |(key, _): &(&Key, Summary)| key.metric == metric && same(&key.case);
                    sheet.figures().filter(is).collect()
                };
                let rests = of("rest");
                let bar = |(key, cleared): (&Key, Summary)| {
                    let (_, rest) = rests.iter().find(|(other, _)| other.variant == key.variant)?;
                    let per_page = 4096.0 / size.bytes() as f64;
                    let parts = [cleared, *rest].map(|part| part.median * per_page);
                    // The whole name is wider than a bar.
                    let name = if key.variant == PAGES { "pages" } else { &key.variant };
                    Some(Bar { name: name.to_owned(), parts: vec![(parts[0], 0), (parts[1], 1)] })
                };
                (size.to_string(), of("clear").into_iter().filter_map(bar).collect())
            };
            let groups = self.sizes.iter().map(group).collect();
            Plot::bars(caption, "ns per 4 KiB", &["clearing", "all else"], groups)
        };
        let captions = ["On demand: one fault per folio", "Populated in one call"];
        Form::ALL.into_iter().zip(captions).map(plot).collect()
    }
}

const fn headline(what: &'static str, size: u64, goal: (&'static str, &'static str, Bound)) -> Row {
    let variants = [CHOSEN, PAGES];
    Row { what, form: "demand", size, note: "", metric: "cost", variants, goal }
}
