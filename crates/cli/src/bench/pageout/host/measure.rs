//! The measurement, and the rows that it becomes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::super::data::Data;
use super::child::{self, Job, Round};
use crate::host::fault::unavailable;
use crate::host::group;
use crate::host::keeper::{Keeper, own_name, quoted};
use crate::host::swap::{Device, Swap};
use crate::host::thp::{Guard, folios_given};
use crate::host::{Host, memory};
use crate::size::Size;
use crate::stats::Summary;

const PAGE: u64 = 4096;
/// The share of the region that must be in folios of the wanted size, go out, and leave memory.
const ENOUGH: f64 = 0.95;
const HUGE_PAGES: &str = "sys/kernel/mm/transparent_hugepage";

/// The measurements to make.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Bytes that go out and come back; a multiple of 2 MiB.
    pub(crate) region: u64,
    /// How often each.
    pub(crate) rounds: u32,
    /// Sizes of folios, up to 2 MiB.
    pub(crate) sizes: Vec<Size>,
    /// The content of the pages.
    pub(crate) data: Vec<Data>,
    /// The swap devices.
    pub(crate) devices: Vec<Device>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            region: 256 << 20,
            rounds: 5,
            sizes: vec![Size(PAGE), Size(64 << 10), Size(2 << 20)],
            data: Data::ALL.to_vec(),
            devices: Device::ALL.to_vec(),
        }
    }
}

/// The kernel's counts over all rounds of a row; `None` where it does not count.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counts {
    /// Folios of the row's size that were written whole.
    pub(crate) out: Option<u64>,
    /// Folios that had to be split before they could be written.
    pub(crate) fallback: Option<u64>,
    /// Folios of that size that came back whole.
    pub(crate) back: Option<u64>,
}

/// The kernel's times for folios of one size with one kind of data on one device. Times are
/// nanoseconds per page of 4 KiB, a value for each round.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Row {
    pub(crate) device: Device,
    pub(crate) detail: String,
    pub(crate) size: Size,
    pub(crate) data: Data,
    /// From the call of `MADV_PAGEOUT` to its return. A loop device may still be writing then.
    pub(crate) out: Vec<f64>,
    /// CPU time of the caller meanwhile; a loop device has a thread of its own besides.
    pub(crate) out_cpu: Vec<f64>,
    /// A read of one byte of each page in ascending order; only of rounds in which the memory was
    /// gone before: pages in the swap cache come back without the device.
    pub(crate) back: Vec<f64>,
    /// CPU time of the reader meanwhile.
    pub(crate) back_cpu: Vec<f64>,
    pub(crate) counts: Counts,
}

impl Row {
    /// The times out, summed up.
    pub(crate) fn out_summary(&self) -> Option<Summary> {
        Summary::of(&self.out)
    }

    /// The times in, summed up; `None` if no round's memory was gone.
    pub(crate) fn back_summary(&self) -> Option<Summary> {
        Summary::of(&self.back)
    }
}

/// Measures the host's kernel. A device or size that is missing or not permitted costs its rows,
/// and a sentence in `says`.
///
/// All rounds of a row are made one after the other, in the same process.
pub(crate) fn run(
    host: &Host,
    guard: &Guard,
    plan: &Plan,
    says: &mut Vec<String>,
) -> Result<Vec<Row>> {
    // The region, what it goes out to, and as much again for slots that are not in use.
    let need = plan.region.saturating_mul(4);
    if let Err(refused) = memory::require(host, "paging out on the host", need) {
        says.push(format!("linux: {}; left out.", refused.0));
        return Ok(Vec::new());
    }
    let mut bench = Bench { host, guard, plan, rows: Vec::new(), says };
    for &device in &plan.devices {
        // Slots for a large folio are aligned; the first page is the header.
        match Swap::on(host, device, 2 * plan.region + (2 << 20)) {
            Ok(mut swap) => {
                bench.on(device, &mut swap)?;
                swap.off(host).map_err(anyhow::Error::msg)?;
            }
            Err(why) => bench.leave_out(&format!("on {}", device.name()), &why),
        }
    }
    Ok(bench.rows)
}

/// A measurement under way.
struct Bench<'a> {
    host: &'a Host,
    guard: &'a Guard,
    plan: &'a Plan,
    rows: Vec<Row>,
    says: &'a mut Vec<String>,
}

impl Bench<'_> {
    /// All rows of a device.
    fn on(&mut self, device: Device, swap: &mut Swap) -> Result<()> {
        let built = workshop(&mut swap.keeper).and_then(|dir| child::build(&dir));
        let program = match built {
            Ok(program) => program,
            Err(why) => {
                self.leave_out(&format!("on {}", device.name()), &why);
                return Ok(());
            }
        };
        let group = match device {
            Device::Loop => group::make(self.host, &mut swap.keeper),
            // Written pages leave memory at once.
            Device::Zram => None,
        };
        for &size in &self.plan.sizes {
            if let Some(why) = unavailable(self.host, size, self.plan.region) {
                self.says.push(why);
                continue;
            }
            self.guard.only(size).context("a huge-page setting cannot be written")?;
            for &data in &self.plan.data {
                let job = Job { size, region: self.plan.region, rounds: self.plan.rounds, data };
                self.one((device, &swap.detail), &job, (&program, group.as_deref()))?;
            }
        }
        Ok(())
    }

    /// One row, if the kernel paged out as asked.
    fn one(
        &mut self,
        (device, detail): (Device, &str),
        job: &Job,
        (program, group): (&Path, Option<&Path>),
    ) -> Result<()> {
        let given = folios_given(self.host, job.size);
        let before = Counts::read(self.host, job.size);
        let rounds = child::measure(program, job, group)?;
        let counts = Counts::read(self.host, job.size).since(before);
        let given = since(given, folios_given(self.host, job.size));
        let mut row = Row::new((device, detail), job);
        row.counts = counts;
        let name = format!("{} {} on {}", job.size, job.data.name(), device.name());
        match why_not(job, given, &rounds) {
            None => {
                rounds.iter().for_each(|round| row.push(job, round));
                if row.back.is_empty() {
                    let why = "the pages stay in the swap cache, so that nothing comes back";
                    self.leave_out(&format!("{name}, the way back"), why);
                }
                self.rows.push(row);
            }
            Some(why) => self.leave_out(&name, &why),
        }
        Ok(())
    }

    /// Says why rows, or times of one, are missing.
    fn leave_out(&mut self, what: &str, why: &str) {
        self.says.push(format!("linux {what}: {why}; left out."));
    }
}

impl Row {
    fn new((device, detail): (Device, &str), job: &Job) -> Row {
        Row {
            device,
            detail: detail.to_owned(),
            size: job.size,
            data: job.data,
            out: Vec::new(),
            out_cpu: Vec::new(),
            back: Vec::new(),
            back_cpu: Vec::new(),
            counts: Counts::default(),
        }
    }

    fn push(&mut self, job: &Job, round: &Round) {
        let pages = (job.region / PAGE) as f64;
        self.out.push(round.out / pages);
        self.out_cpu.push(round.out_cpu / pages);
        if round.gone as f64 >= ENOUGH * pages {
            self.back.push(round.back / pages);
            self.back_cpu.push(round.back_cpu / pages);
        }
    }
}

impl Counts {
    /// The counts since boot: of folios of `size`, or of single pages.
    fn read(host: &Host, size: Size) -> Counts {
        let read = |name: &str, page: Option<&str>| match size.bytes() {
            PAGE => counter(&host.read("proc/vmstat")?, page?),
            bytes => {
                let folder = format!("{HUGE_PAGES}/hugepages-{}kB/stats", bytes >> 10);
                host.read(format!("{folder}/{name}"))?.parse().ok()
            }
        };
        Counts {
            out: read("swpout", Some("pswpout")),
            fallback: read("swpout_fallback", None),
            back: read("swpin", Some("pswpin")),
        }
    }

    fn since(self, before: Counts) -> Counts {
        Counts {
            out: since(before.out, self.out),
            fallback: since(before.fallback, self.fallback),
            back: since(before.back, self.back),
        }
    }
}

/// How much a counter grew; `None` if it is not there.
fn since(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    before.zip(after).map(|(before, after)| after.saturating_sub(before))
}

/// The value of `name` in a text of lines like `pswpout 7`.
fn counter(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Why these rounds are no sample of `job`; `given` is how many folios of its size there were.
fn why_not(job: &Job, given: Option<u64>, rounds: &[Round]) -> Option<String> {
    let folios = job.region / job.size.bytes() * u64::from(job.rounds);
    let is_short = given.is_some_and(|given| (given as f64) < ENOUGH * folios as f64);
    if is_short && job.size.bytes() != PAGE {
        return Some("the kernel gave folios of other sizes".to_owned());
    }
    let pages = job.region / PAGE;
    let least = rounds.iter().map(|round| round.swapped).min().unwrap_or(0);
    ((least as f64) < ENOUGH * pages as f64)
        .then(|| format!("only {least} of {pages} pages went out"))
}

/// A folder of our own for as long as the keeper lives.
fn workshop(keeper: &mut Keeper) -> Result<PathBuf, String> {
    let dir = std::env::temp_dir().join(own_name("pageout"));
    let fail = |e: std::io::Error| format!("{}: {e}", dir.display());
    fs::create_dir(&dir).map_err(fail)?;
    keeper.promise(&format!("rm -r {}", quoted(&dir))).map_err(fail)?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(size: u64) -> Job {
        Job { size: Size(size), region: 4 << 20, rounds: 2, data: Data::Zero }
    }

    fn round(swapped: u64, gone: u64) -> Round {
        Round { out: 2048.0, out_cpu: 1.0, back: 4096.0, back_cpu: 1.0, swapped, gone }
    }

    #[test]
    fn d7_rounds_with_other_folios_or_with_memory_left_are_no_sample() {
        let (all, rounds) = (1024, [round(1024, 0), round(1000, 0)]);
        assert_eq!(why_not(&job(PAGE), None, &rounds), None);
        assert_eq!(why_not(&job(64 << 10), Some(128), &rounds), None);
        assert!(why_not(&job(64 << 10), Some(64), &rounds).unwrap().contains("other sizes"));
        let short = [round(all, all), round(900, 900)];
        assert_eq!(why_not(&job(PAGE), None, &short).unwrap(), "only 900 of 1024 pages went out");
        assert!(why_not(&job(PAGE), None, &[]).is_some());
    }

    #[test]
    fn d7_the_way_back_counts_only_where_memory_was_gone() {
        let mut row = Row::new((Device::Loop, ""), &job(PAGE));
        row.push(&job(PAGE), &round(1024, 900));
        assert_eq!((row.out.as_slice(), row.back.len()), (&[2.0][..], 0));
        row.push(&job(PAGE), &round(1024, 1024));
        assert_eq!((row.out.len(), row.back.as_slice()), (2, &[4.0][..]));
        assert_eq!(row.out_summary().unwrap().median, 2.0);
        assert_eq!(row.back_summary().unwrap().n, 1);
    }

    #[test]
    fn d7_counts_are_of_folios_of_one_size_or_of_pages() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::new(dir.path());
        assert_eq!(Counts::read(&host, Size(PAGE)), Counts::default());
        let stats = dir.path().join(HUGE_PAGES).join("hugepages-64kB/stats");
        fs::create_dir_all(&stats).unwrap();
        fs::create_dir_all(dir.path().join("proc")).unwrap();
        fs::write(dir.path().join("proc/vmstat"), "pswpin 3\npswpout 7\n").unwrap();
        fs::write(stats.join("swpout"), "5\n").unwrap();
        let pages = Counts { out: Some(7), fallback: None, back: Some(3) };
        assert_eq!(Counts::read(&host, Size(PAGE)), pages);
        let folios = Counts { out: Some(5), fallback: None, back: None };
        assert_eq!(Counts::read(&host, Size(64 << 10)), folios);
        let later = Counts { out: Some(9), ..folios };
        assert_eq!(later.since(folios), Counts { out: Some(4), ..folios });
    }
}
