//! The cells, the figures that they become, and the goals.

use anyhow::{Result, ensure};
use clap::Args;

use super::plan::{BY_RUNS, By, Cell, K4, K16, K64, M2, backings, entries, isas, whole};
use super::task::{
    BREAKS, EXIT, FIRST, FLUSHES, LATER, REFOLDS, TO_READ, TO_WRITE, Task, UNFOLDS, UNMAP, WORDS,
};
use super::{folded, linux, own};
use crate::bench::driver::Bench;
use crate::bench::options::{Common, Filter, folio_size};
use crate::bench::scene::{BLOCK, Backing, MARGIN, Scene, affordable, with_fresh};
use crate::bench::sheet::{
    Bound, Key, LINUX, OVER_PAGES, PAGES, Place, Row, Sheet, Tally, count_of, verdict,
};
use crate::host::Host;
use crate::host::fault::unavailable;
use crate::host::thp::{Guard, in_force};
use crate::isa::{Isa, with_isa};
use crate::plot::{Bar, Plot};
use crate::refused::Refused;
use crate::size::Size;
use crate::stats::Summary;
use crate::table::duration;

/// Page-at-a-time over contiguous blocks, which is counted and not timed.
const FOLDED: &str = "page-at-a-time, folded";
const TIME: (&str, &str) = ("time", "ns");
const PER_ENTRY: (&str, &str) = ("per-entry", "ns");
/// The host's huge pages, which stand behind the machine's RAM.
const HOST_BLOCK: Size = Size(2 << 20);

/// The usual region, the least worth measuring, and the most that the smallest address space holds.
const REGION: u64 = 1 << 30;
const REGION_LEAST: u64 = 64 << 20;
const REGION_MOST: u64 = 64 << 30;
/// Memory for slots, tables and the command itself.
const BESIDE: u64 = 192 << 20;
const LOOPS: u32 = 7;

/// How many times as fast as page-at-a-time a part shall be in folios of a size that entries map.
const TIMES: [(Isa, u64, &str, f64); 8] = [
    (Isa::Arm4k, M2, FIRST, 3.0),
    (Isa::Arm4k, K64, FIRST, 2.0),
    (Isa::Arm4k, M2, EXIT, 3.0),
    (Isa::Arm4k, K64, EXIT, 3.0),
    (Isa::X86_64, M2, EXIT, 3.0),
    (Isa::X86_64, K64, EXIT, 3.0),
    (Isa::Arm4k, K64, UNMAP, 3.0),
    (Isa::X86_64, K64, UNMAP, 3.0),
];
/// The share of page-at-a-time's time that a first fork of base pages may take.
const OF_PAGES: Bound = Bound::AtMost(1.02);
/// The nanoseconds that each entry may take on x86-64, in folios that entries map.
const NS: [(u64, &str, f64); 8] = [
    (K4, FIRST, 20.0),
    (K16, FIRST, 4.0),
    (K64, FIRST, 4.0),
    (M2, FIRST, 4.0),
    (K4, UNMAP, 30.0),
    (K64, UNMAP, 6.0),
    (K64, TO_READ, 4.0),
    (K64, TO_WRITE, 4.0),
];

/// Options of `bench fork`, `bench zap` and `bench protect`.
#[derive(Args, Clone, Debug)]
pub(crate) struct EntriesArgs {
    /// Sizes of folios: a base page to a block [default: 4K,16K,64K,2M or what a format has]
    #[arg(long, value_delimiter = ',', num_args = 1.., value_parser = folio_size)]
    sizes: Vec<Size>,
    /// How much memory is populated [default: 1G, or less where memory is short]
    #[arg(long)]
    region: Option<Size>,
    /// Page-table formats [default: x86_64,arm64_4k; fork: arm64_16k,riscv64_sv48 as well]
    #[arg(long, value_enum, value_delimiter = ',', num_args = 1..)]
    isa: Vec<Isa>,
    /// Only these variants: by-runs, page-at-a-time, linux
    #[arg(long, value_delimiter = ',', num_args = 1..)]
    variants: Vec<String>,
    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) struct Entries {
    task: Task,
    region: u64,
    loops: u32,
    cells: Vec<Cell>,
    /// The counts of the library's work in a cell, part by part.
    counted: Vec<(Cell, Vec<Tally>)>,
    /// The setting of the host's kernel for each of its cells.
    settings: Vec<(Backing, String)>,
    /// Forks of the host's kernel without the memory.
    empty: Vec<f64>,
}

impl Entries {
    fn has_linux(&self) -> bool {
        self.cells.iter().any(|cell| cell.by == By::Linux)
    }

    /// The library's cells.
    fn own(&self) -> impl Iterator<Item = Cell> {
        self.cells.iter().copied().filter(|cell| cell.by == By::Runs)
    }

    /// The number of entries that map the area of `cell`.
    fn entries(&self, cell: Cell) -> u64 {
        self.region / cell.entry_bytes()
    }

    /// The keys of the times of `cell`, part by part.
    fn keys(&self, cell: Cell) -> Vec<Key> {
        let setting = self
            .settings
            .iter()
            .find(|(backing, _)| cell.by == By::Linux && *backing == cell.backing);
        let setting = setting.map_or("", |(_, setting)| setting);
        let key = |part: &&str| Key::new(&cell.case(part).with(setting), cell.by.name(), TIME);
        self.task.parts().iter().map(key).collect()
    }

    /// Measures the host's kernel, a process for each backing.
    fn measure_linux(&mut self, host: &Host, guard: &Guard, sheet: &mut Sheet) -> Result<()> {
        let cells: Vec<Cell> =
            self.cells.iter().copied().filter(|cell| cell.by == By::Linux).collect();
        for cell in cells {
            let size = cell.backing.size;
            // Populating takes long: half of the rounds.
            let place = (self.region, self.loops.div_ceil(2));
            let found = match linux::samples(host, guard, (self.task, cell.backing), place) {
                Ok(found) => found,
                Err(why) => {
                    sheet.skip(format!("{LINUX} {}: {why:#}; left out.", cell.backing));
                    continue;
                }
            };
            self.empty.extend(found.iter().filter_map(|found| found.empty));
            guard.only(size)?;
            let base = size.bytes() == K4;
            let setting = if base { "MADV_NOHUGEPAGE".to_owned() } else { in_force(host, size) };
            sheet.setting(format!("{LINUX} {}: {setting}.", cell.backing));
            self.settings.push((cell.backing, setting));
            for (part, key) in self.keys(cell).into_iter().enumerate() {
                sheet.put(key, found.iter().map(|found| found.ns[part]).collect());
            }
        }
        Ok(())
    }

    /// Nanoseconds for each part of a cell that is not the host's kernel.
    fn sample(&self, Cell { by, isa, backing }: Cell) -> Result<Vec<f64>> {
        let (task, place) = (self.task, (isa, backing, self.region));
        with_isa!(isa, A => with_fresh::<A, _>(place, false, |scene| {
            let parts = |scene: &Scene<'_, '_, '_, A>, probe: own::Probe<'_>| match by {
                By::Runs => own::by_runs(task, scene, probe),
                _ => own::at_a_time(task, by == By::Remembers, scene, probe),
            };
            scene.warmed(|small| parts(small, &mut |part| part()))?;
            own::times(|probe| parts(scene, probe))
        }))
    }

    /// Counts the library's work in each of its cells, and beside it that of page-at-a-time where
    /// the blocks of a first fork are folded.
    fn count(&mut self, sheet: &mut Sheet) -> Result<()> {
        for &cell in &self.cells {
            let Cell { by, isa, backing } = cell;
            if by == By::Runs {
                let place = (isa, backing, self.region);
                let parts = with_isa!(isa, A => {
                    with_fresh::<A, _>(place, true, |scene| own::counts(self.task, scene))
                })?;
                ensure!(parts.len() == self.task.parts().len(), "a part was not counted");
                for (part, tally) in self.task.parts().iter().zip(&parts) {
                    sheet.counts(&cell.case(part), BY_RUNS, tally);
                }
                self.counted.push((cell, parts));
            } else if by == By::Pages && self.task == Task::Fork && !backing.block {
                let work = with_isa!(isa, A => folded::fork::<A>(self.entries(cell)));
                work.into_iter()
                    .for_each(|work| sheet.counts(&cell.case(FIRST), FOLDED, &tally(work)));
            }
        }
        Ok(())
    }

    /// The ratios to page-at-a-time, and of base pages, where there is nothing to batch: there the
    /// library shall not be slower.
    fn judge_ratios(&self, sheet: &mut Sheet) {
        for cell in self.own() {
            let others = [(By::Pages, OVER_PAGES), (By::Remembers, "over-remembered")];
            for part in self.task.parts() {
                for (by, metric) in others {
                    let other = Cell { by, ..cell }.key(part, TIME);
                    sheet.ratio(&other, &cell.key(part, TIME), cell.key(part, (metric, "ratio")));
                }
            }
        }
        for (isa, size, part, least) in TIMES {
            let cell = Cell { by: By::Runs, isa, backing: entries(size) };
            let ratio = |metric| sheet.median(&cell.key(part, (metric, "ratio")));
            let Some(times) = ratio(OVER_PAGES) else { continue };
            let remembers = ratio("over-remembered").map_or(String::new(), |times| {
                format!("; {times:.2} times where that remembers the folio before")
            });
            sheet.finding(format!(
                "{} {part}, {} folios mapped by entries: {times:.2} times as fast as {PAGES} \
                 ({}){remembers}.",
                isa.name(),
                Size(size),
                Bound::AtLeast(least).judge(times)
            ));
        }
        for cell in self.own() {
            if cell.backing != entries(1 << cell.isa.page_shift()) {
                continue;
            }
            let times = sheet.median(&cell.key(FIRST, (OVER_PAGES, "ratio")));
            let Some(of) = times.map(|times| 1.0 / times) else { continue };
            sheet.finding(format!(
                "{} {FIRST}, base pages: {of:.3} of the time of {PAGES} ({}).",
                cell.isa.name(),
                OF_PAGES.judge(of)
            ));
        }
    }

    fn judge_ns(&self, sheet: &mut Sheet) {
        for (size, part, most) in NS {
            let cell = Cell { by: By::Runs, isa: Isa::X86_64, backing: entries(size) };
            let Some(ns) = sheet.median(&cell.key(part, PER_ENTRY)) else { continue };
            sheet.finding(format!(
                "x86_64 {part}, {} folios mapped by entries: {ns:.2} ns for each entry ({}).",
                Size(size),
                Bound::AtMost(most).judge(ns)
            ));
        }
    }

    /// Large folios that entries map: each entry is written once on each side, with one flush, and
    /// no contiguous block is taken apart.
    fn judge_counts(&self, sheet: &mut Sheet) {
        let cell = Cell { by: By::Runs, isa: Isa::Arm4k, backing: entries(M2) };
        let of = |part: &str| {
            let at = self.task.parts().iter().position(|name| *name == part)?;
            self.counted.iter().find(|(known, _)| *known == cell)?.1.get(at)
        };
        let (Some(first), Some(later)) = (of(FIRST), of(LATER)) else { return };
        let there = self.entries(cell);
        // A later fork writes in the child alone: the first wrote the rest in the parent.
        let child = count_of(later, WORDS);
        let parent = count_of(first, WORDS).saturating_sub(child);
        let tables = child.saturating_sub(there);
        let broken = count_of(first, UNFOLDS) + count_of(first, REFOLDS) + count_of(first, BREAKS);
        let flushes = count_of(first, FLUSHES);
        // Each table of the child is linked by one word, and each of its area nodes has a few.
        let met = parent == there && tables <= there / 64 && child >= there;
        sheet.finding(format!(
            "{} {FIRST}, {} folios mapped by entries: of {there} entries {parent} written in the \
             parent, {there} in the child and {tables} words for its tables and areas (goal: each \
             entry once on each side; {}); {flushes} flush (goal: 1; {}); {broken} blocks \
             unfolded, refolded or broken (goal: 0; {}).",
            Isa::Arm4k.name(),
            cell.backing,
            verdict(met),
            verdict(flushes == 1),
            verdict(broken == 0)
        ));
    }

    /// The host's kernel beside x86-64 tables. The two were not measured in the same rounds, so
    /// that only their medians are compared.
    fn tell_linux(&self, sheet: &mut Sheet) {
        let part = self.task.parts()[0];
        let each = self.cells.iter().filter(|cell| cell.by == By::Linux).filter_map(|cell| {
            let own = Cell { by: By::Runs, ..*cell };
            let linux = sheet.median(&self.keys(*cell)[0])?;
            let own = sheet.median(&own.key(part, TIME))?;
            Some(format!("{}: {:.1}", cell.backing, linux / own))
        });
        let each: Vec<String> = each.collect();
        if !each.is_empty() {
            let each = each.join(", ");
            sheet.finding(format!(
                "x86_64 {part}, times as fast as {LINUX}, which does more: {each}."
            ));
        }
    }
}

fn tally(work: folded::Work) -> Tally {
    vec![
        (WORDS, work.parent + work.child),
        (FLUSHES, work.flushes),
        (UNFOLDS, work.unfolds),
        (REFOLDS, work.folds),
        (BREAKS, work.breaks),
    ]
}

impl Bench for Entries {
    type Args = (Task, EntriesArgs);

    fn titles((task, _): &Self::Args) -> [&'static str; 3] {
        match task {
            Task::Fork => [
                "fork",
                "Fork",
                "The cost of copying a space, and of ending the copy, for each page of populated \
                 memory. The host's kernel does more: it keeps accounts that Quire's hosted \
                 figures lack, and enters and leaves the kernel.",
            ],
            Task::Zap => [
                "zap",
                "Unmap",
                "The cost of unmapping populated memory and freeing it, for each page. The host's \
                 kernel does more.",
            ],
            Task::Protect => [
                "protect",
                "Protect",
                "The cost of taking the right to write from populated memory and giving it back, \
                 for each page. The host's kernel does more.",
            ],
        }
    }

    fn new((task, args): &Self::Args, host: &Host, sheet: &mut Sheet) -> Result<Self> {
        let task = *task;
        let filter = Filter::new(&args.variants, &[BY_RUNS, PAGES, LINUX].map(str::to_owned))?;
        let limits = REGION_LEAST..=REGION_MOST;
        if args.region.is_some_and(|Size(region)| !limits.contains(&region)) {
            let (least, most) = (Size(REGION_LEAST), Size(REGION_MOST));
            return Err(Refused(format!("--region is from {least} to {most}")).into());
        }
        let what = |size| format!("{} of {size}", task.name());
        let need = |region: u64| region.saturating_add(MARGIN + BESIDE);
        let (region, less) = affordable(host, what, (args.region, REGION, REGION_LEAST), need)?;
        less.into_iter().for_each(|less| sheet.skip(less));
        let mut cells = Vec::new();
        for isa in isas(task, &args.isa) {
            let (backings, lacking) = backings(isa, &args.sizes);
            lacking.into_iter().for_each(|why| sheet.skip(why));
            for backing in backings {
                whole(region, backing)?;
                let mut push = |by| cells.push(Cell { by, isa, backing });
                if filter.has(BY_RUNS) {
                    push(By::Runs);
                }
                if filter.has(PAGES) {
                    push(By::Pages);
                    // Neither rights nor base pages have a folio to remember.
                    if task != Task::Protect && backing.size.bytes() >> isa.page_shift() > 1 {
                        push(By::Remembers);
                    }
                }
            }
        }
        if filter.has(LINUX) {
            for backing in backings(Isa::X86_64, &args.sizes).0 {
                whole(region, backing)?;
                match unavailable(host, backing.size, region) {
                    None => cells.push(Cell { by: By::Linux, isa: Isa::X86_64, backing }),
                    Some(why) => sheet.skip(why),
                }
            }
        }
        if cells.is_empty() {
            let why = sheet.run.skipped.join(" ");
            return Err(Refused(format!(
                "there is nothing to measure: {}",
                why.trim_end_matches('.')
            ))
            .into());
        }
        let loops = args.common.loops.unwrap_or(LOOPS);
        let (counted, settings, empty) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Entries { task, region, loops, cells, counted, settings, empty })
    }

    fn measure(&mut self, host: &Host, sheet: &mut Sheet) -> Result<()> {
        let guard = self.has_linux().then(|| Guard::new(host, &mut sheet.run.settings));
        if let Some(guard) = &guard {
            guard.only(HOST_BLOCK)?;
        }
        let own = self.cells.iter().filter(|cell| cell.by != By::Linux);
        let own: Vec<(Vec<Key>, Cell)> = own.map(|cell| (self.keys(*cell), *cell)).collect();
        sheet.rounds(self.task.name(), self.loops, &own, |cell| self.sample(*cell))?;
        if let Some(guard) = &guard {
            self.measure_linux(host, guard, sheet)?;
        }
        drop(guard);
        for cell in &self.cells {
            let entries = self.entries(*cell) as f64;
            for key in self.keys(*cell) {
                let to = Key::new(&key.case, &key.variant, PER_ENTRY);
                sheet.derive(&key, to, |ns| ns / entries);
            }
        }
        self.count(sheet)
    }

    fn goals(&self, sheet: &mut Sheet) {
        self.judge_ratios(sheet);
        self.judge_ns(sheet);
        self.judge_counts(sheet);
        self.tell_linux(sheet);
    }

    fn words(&self, sheet: &mut Sheet) {
        let (region, task) = (Size(self.region), self.task);
        if self.cells.iter().any(|cell| cell.by != By::Linux) {
            say_own(sheet, task, region);
        }
        if self.has_linux() {
            say_linux(sheet, task, region);
        }
        if let Some(fork) = Summary::of(&self.empty) {
            sheet.limit(format!(
                "{LINUX}'s forks are made by the standard library and contain {} that a process \
                 without that memory takes as well.",
                duration(fork.median)
            ));
        }
    }

    /// One table for each format and kind of figure.
    fn place(&self, key: &Key) -> Place {
        let what = match (key.metric.as_str(), key.unit) {
            ("time", _) => "time of one call, less is better (medians)",
            ("per-entry", _) => "time for each entry, less is better (medians)",
            (_, "ratio") => {
                "by-runs against page-at-a-time, times as fast, more is better (medians)"
            }
            _ => "counted in a run of its own",
        };
        let (part, variant) = (&key.case.form, &key.variant);
        let row = match (key.metric.as_str(), key.unit) {
            (OVER_PAGES, _) => part.clone(),
            (_, "ratio") => format!("{part}, folio remembered"),
            (what, "count") => format!("{part}, {variant}: {what}"),
            _ => format!("{part}, {variant}"),
        };
        let table = format!("{} {}: {what}", self.task.name(), key.case.format());
        let mut place = Place::by_size(key, table, row);
        if key.case.has(BLOCK) {
            place.column = (place.column.0 + 1, format!("{} {BLOCK}", place.column.1));
        }
        place
    }

    /// A plot for each format, and for the host's kernel: time for each base page, so that all
    /// backings can be compared.
    fn plots(&self, sheet: &Sheet) -> Vec<Plot> {
        // A later fork is no part of the cost of one fork from begin to end.
        let parts: &[&str] =
            if self.task == Task::Fork { &[FIRST, EXIT] } else { self.task.parts() };
        let mut formats: Vec<String> = self.cells.iter().map(|cell| cell.format()).collect();
        formats.dedup();
        let plot = |format: &String| {
            let own = self.cells.iter().filter(|cell| cell.format() == *format);
            let mut groups: Vec<Cell> = own.copied().collect();
            groups.sort_by_key(|cell| cell.backing);
            groups.dedup_by_key(|cell| cell.backing);
            let groups =
                groups.iter().map(|cell| (cell.backing.to_string(), bars(sheet, parts, *cell)));
            Plot::bars(format, "ns per base page", parts, groups.collect())
        };
        formats.iter().map(plot).collect()
    }

    fn headlines(&self) -> Vec<Row> {
        let row = |what, form, size, note, goal| {
            let (variants, metric) = ([BY_RUNS, PAGES], "per-entry");
            Row { what, form, size, note, metric, variants, goal }
        };
        let ns = |most| ("per-entry", "ns", Bound::AtMost(most));
        let times = |least| (OVER_PAGES, "times", Bound::AtLeast(least));
        match self.task {
            Task::Fork => vec![
                row("fork 4K folios, per entry", FIRST, K4, "x86_64", ns(20.0)),
                row("fork 64K folios, per entry", FIRST, K64, "x86_64", ns(4.0)),
                row("fork 64K folios, arm64 tables", FIRST, K64, "arm64_4k", times(2.0)),
                row("exit of the child, 64K folios", EXIT, K64, "x86_64", times(3.0)),
            ],
            Task::Zap => vec![
                row("unmap 4K folios, per entry", UNMAP, K4, "x86_64", ns(30.0)),
                row("unmap 64K folios, per entry", UNMAP, K64, "x86_64", times(3.0)),
            ],
            Task::Protect => {
                vec![row("protect 64K folios, per entry", TO_READ, K64, "x86_64", ns(4.0))]
            }
        }
    }
}

/// A bar for each variant that was measured in the format and backing of `cell`.
fn bars(sheet: &Sheet, parts: &[&str], cell: Cell) -> Vec<Bar> {
    let (backing, format) = (cell.backing, cell.format());
    let pages = cell.entry_bytes() >> cell.isa.page_shift();
    let is = |key: &Key| {
        (key.metric.as_str(), key.case.size) == ("per-entry", Some(backing.size))
            && key.case.format() == format
            && key.case.has(BLOCK) == backing.block
    };
    let figures: Vec<(&Key, Summary)> = sheet.figures().filter(|(key, _)| is(key)).collect();
    let mut variants: Vec<&str> = figures.iter().map(|(key, _)| key.variant.as_str()).collect();
    variants.dedup();
    let bar = |variant: &&str| {
        let ns = |part: &str| {
            let is = |(key, _): &&(&Key, Summary)| key.case.form == part && key.variant == *variant;
            figures.iter().find(is).map_or(0.0, |(_, ns)| ns.median / pages as f64)
        };
        let parts = parts.iter().enumerate().map(|(at, part)| (ns(part), at)).collect();
        // The whole name is wider than a bar.
        let name = if *variant == PAGES { "pages" } else { variant };
        Bar { name: name.to_owned(), parts }
    };
    variants.iter().map(bar).collect()
}

fn say_own(sheet: &mut Sheet, task: Task, region: Size) {
    sheet.setting(format!(
        "Quire: {region} of anonymous memory, every page written by its program, on the hosted \
         machine, without checks or counts while time is measured, which is CPU time of one \
         thread. Each sample has a machine of its own, whose free memory has been touched."
    ));
    sheet.setting(
        "Blocks are folios that one entry above the last level maps. Folios of that size that \
         entries map were populated as blocks; then the first page of each was protected for a \
         moment, which splits the leaf and not the folio.",
    );
    let how = match task {
        Task::Fork => {
            "One count more or less in the folio's slot, one word written on each side; a frame is \
             taken and a table cleared for each table of the child. A second form tries the folio \
             of the page before first."
        }
        Task::Zap => {
            "One word cleared, one count less in the folio's slot; frames are flushed and freed in \
             batches of 8192. A second form tries the folio of the page before first."
        }
        Task::Protect => "One word written; one flush at the end.",
    };
    sheet.setting(format!(
        "{PAGES}: the same folios, one step for each entry of tables in the host's memory, without \
         locks; words are changed by masks. {how}"
    ));
    sheet.limit(
        "Words are written and flushes are made in the hosted machine: the time that other CPUs \
         wait for a flush, and the cache misses of page-table walks afterwards, are in no figure \
         of Quire's.",
    );
    if task == Task::Fork {
        sheet.limit(format!(
            "The counts of {PAGES} over contiguous blocks are no times: breaking a live block \
             costs the flush that all CPUs wait for, which a hosted machine has not."
        ));
    }
}

fn say_linux(sheet: &mut Sheet, task: Task, region: Size) {
    let how = match task {
        Task::Fork => {
            "fork is the parent's CPU time; exit is the child's, which executes `true`, less that \
             of a child without the memory"
        }
        Task::Zap => "munmap of all of it, by CPU time",
        Task::Protect => "mprotect of all of it, by CPU time",
    };
    sheet.setting(format!(
        "{LINUX}: {region} of anonymous memory in a process of its own, on one CPU; {how}. The \
         kernel's counts say which folios it gave, smaps how they are mapped; 2M folios that \
         entries map were split by MADV_DONTFORK on one page, and made one area again."
    ));
    sheet.limit(format!(
        "{LINUX} does more: it enters the kernel and leaves it, keeps accounts, reverse maps and \
         memory groups, and in a virtual machine pays for nested or shadow paging."
    ));
}

#[cfg(test)]
mod tests;
