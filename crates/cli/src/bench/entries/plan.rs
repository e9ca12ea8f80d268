//! What is measured: which formats, which backings, how much memory, by whom.

use crate::Refused;
use crate::args::EntriesArgs;
use crate::bench::Filter;
use crate::bench::clear::PAGES;
use crate::bench::fault::LINUX;
use crate::host::fault::unavailable;
use crate::host::{Host, memory};
use crate::isa::Isa;
use crate::record::Case;
use crate::size::Size;

use super::backing::{Backing, backings};
use super::own::Task;
use super::scene::ram_bytes;

/// The library.
pub(crate) const BY_RUNS: &str = "by-runs";
/// The baseline with a memory of one folio.
pub(crate) const REMEMBERS: &str = "page-at-a-time, folio remembered";
/// Page-at-a-time over contiguous blocks, which is counted and not timed.
pub(crate) const FOLDED: &str = "page-at-a-time, folded";
/// What stands in the place of a format for the host's own kernel.
pub(crate) const HOST: &str = "this host";

const REGION: u64 = 1 << 30;
/// Less is not worth measuring.
const REGION_LEAST: u64 = 64 << 20;
/// More finds no place in the smallest address space.
const REGION_MOST: u64 = 64 << 30;
/// Memory for slots, tables and the command itself.
const BESIDE: u64 = 192 << 20;
const LOOPS: u32 = 7;

/// Who does the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Who {
    /// The library, by runs.
    Runs(Isa),
    /// The baseline.
    Pages(Isa),
    /// The baseline that tries the folio of the page before first.
    Remembers(Isa),
    /// The host's kernel.
    Linux,
}

/// One thing to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cell {
    pub(super) who: Who,
    pub(super) backing: Backing,
}

/// What is known before the first sample.
pub(super) struct Plan {
    pub(super) task: Task,
    pub(super) region: u64,
    pub(super) loops: u32,
    pub(super) cells: Vec<Cell>,
}

impl Plan {
    /// What `args` ask for; what is left out is said in `lacking`.
    ///
    /// # Errors
    /// [`Refused`] for unknown variants, sizes that no format has, and too much or too odd memory.
    pub(super) fn new(
        task: Task,
        args: &EntriesArgs,
        host: &Host,
        lacking: &mut Vec<String>,
    ) -> Result<Plan, Refused> {
        let known = [BY_RUNS, PAGES, LINUX].map(str::to_owned);
        let filter = Filter::new(&args.variants, &known)?;
        let isas = isas(task, &args.isa);
        let linux = filter.has(LINUX);
        let region = region(task, args.region, host, lacking)?;
        let mut cells = Vec::new();
        for &isa in &isas {
            for backing in backings(isa, &args.sizes, lacking) {
                whole(region, backing)?;
                if filter.has(BY_RUNS) {
                    cells.push(Cell { who: Who::Runs(isa), backing });
                }
                if filter.has(PAGES) {
                    cells.push(Cell { who: Who::Pages(isa), backing });
                    // Neither rights nor base pages have a folio to remember.
                    if task != Task::Protect && backing.size.bytes() >> isa.page_shift() > 1 {
                        cells.push(Cell { who: Who::Remembers(isa), backing });
                    }
                }
            }
        }
        if linux {
            for backing in backings(Isa::X86_64, &args.sizes, &mut Vec::new()) {
                whole(region, backing)?;
                match unavailable(host, backing.size, region) {
                    None => cells.push(Cell { who: Who::Linux, backing }),
                    Some(why) if !lacking.contains(&why) => lacking.push(why),
                    Some(_) => {}
                }
            }
        }
        if cells.is_empty() {
            return Err(Refused(format!("there is nothing to measure: {}", lacking.join(" "))));
        }
        Ok(Plan { task, region, loops: args.loops.unwrap_or(LOOPS), cells })
    }

    /// Whether the host's kernel is measured; its cells are the last.
    pub(super) fn has_linux(&self) -> bool {
        self.cells.iter().any(|cell| cell.who == Who::Linux)
    }

    /// How often the host's kernel is measured: populating takes it long.
    pub(super) fn linux_loops(&self) -> u32 {
        self.loops.div_ceil(2)
    }

    /// How many entries map the area of `cell`.
    pub(super) fn entries(&self, cell: Cell) -> u64 {
        self.region / cell.backing.entry_bytes(cell.page())
    }
}

impl Cell {
    /// Bytes of a base page.
    pub(super) fn page(self) -> u64 {
        match self.who {
            Who::Runs(isa) | Who::Pages(isa) | Who::Remembers(isa) => 1 << isa.page_shift(),
            Who::Linux => 4096,
        }
    }

    /// The format's name, or what stands in its place.
    pub(super) fn format(self) -> String {
        match self.who {
            Who::Runs(isa) | Who::Pages(isa) | Who::Remembers(isa) => isa.name(),
            Who::Linux => HOST.to_owned(),
        }
    }

    pub(super) fn variant(self) -> &'static str {
        match self.who {
            Who::Runs(_) => BY_RUNS,
            Who::Pages(_) => PAGES,
            Who::Remembers(_) => REMEMBERS,
            Who::Linux => LINUX,
        }
    }

    /// The case of `part`.
    pub(super) fn case(self, part: &str) -> Case {
        Case::new(part, Some(self.backing.size)).with(&self.format()).with(self.backing.note())
    }
}

/// The formats to measure.
fn isas(task: Task, named: &[Isa]) -> Vec<Isa> {
    let usual: &[Isa] = match task {
        Task::Fork => &[Isa::X86_64, Isa::Arm4k, Isa::Arm16k, Isa::Sv48],
        Task::Zap | Task::Protect => &[Isa::X86_64, Isa::Arm4k],
    };
    let mut isas = Vec::new();
    for isa in if named.is_empty() { usual } else { named } {
        if !isas.contains(isa) {
            isas.push(*isa);
        }
    }
    isas
}

/// How much memory to populate: as much as was `named`, or what there is room for.
fn region(
    task: Task,
    named: Option<Size>,
    host: &Host,
    lacking: &mut Vec<String>,
) -> Result<u64, Refused> {
    let what = |region| format!("{} of {}", task.name(), Size(region));
    let fits = |region| memory::require(host, &what(region), ram_bytes(region) + BESIDE);
    if let Some(Size(region)) = named {
        if !(REGION_LEAST..=REGION_MOST).contains(&region) {
            let (least, most) = (Size(REGION_LEAST), Size(REGION_MOST));
            return Err(Refused(format!("--region is from {least} to {most}")));
        }
        return fits(region).map(|()| region);
    }
    let mut region = REGION;
    while let Err(refused) = fits(region) {
        if region == REGION_LEAST {
            return Err(refused);
        }
        region /= 2;
    }
    if region < REGION {
        lacking.push(format!(
            "Memory does not suffice for {}: {} instead.",
            Size(REGION),
            Size(region)
        ));
    }
    Ok(region)
}

/// Whether `region` is a whole number of folios.
fn whole(region: u64, backing: Backing) -> Result<(), Refused> {
    match region % backing.size.bytes() {
        0 => Ok(()),
        _ => Err(Refused(format!(
            "--region {} is no whole number of folios of {}",
            Size(region),
            backing.size
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(kib: u64) -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("proc")).unwrap();
        let text = format!("MemAvailable: {kib} kB\n");
        std::fs::write(dir.path().join("proc/meminfo"), text).unwrap();
        let host = Host::new(dir.path());
        (dir, host)
    }

    #[test]
    fn c5_less_is_populated_where_memory_is_short_and_it_is_said() {
        let mut lacking = Vec::new();
        let mut fit = |kib, named: Option<Size>| {
            let (_dir, host) = host(kib);
            region(Task::Fork, named, &host, &mut lacking)
        };
        assert_eq!(fit(4 << 20, None).unwrap(), 1 << 30);
        assert_eq!(fit(1 << 20, None).unwrap(), 512 << 20);
        assert!(fit(200 << 10, None).unwrap_err().0.contains("only 200M is available"));
        assert!(fit(1 << 20, Some(Size(1 << 30))).unwrap_err().0.contains("fork of 1G"));
        assert!(fit(4 << 20, Some(Size(1 << 20))).unwrap_err().0.contains("64M to 64G"));
        assert_eq!(lacking, ["Memory does not suffice for 1G: 512M instead."]);
    }

    #[test]
    fn c5_a_region_is_a_whole_number_of_folios() {
        let backing = Backing { size: Size(32 << 20), block: true };
        assert!(whole(64 << 20, backing).is_ok());
        assert!(whole(80 << 20, backing).unwrap_err().0.contains("folios of 32M"));
    }

    #[test]
    fn c5_a_format_that_is_named_twice_is_measured_once() {
        assert_eq!(isas(Task::Zap, &[Isa::Sv48, Isa::Sv48]), [Isa::Sv48]);
        assert_eq!(isas(Task::Fork, &[]).len(), 4);
    }
}
