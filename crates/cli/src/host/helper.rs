//! What the host's own kernel takes for fork, unmap and protect of populated memory.
//!
//! The command runs itself once more, as a *helper*: a process with one thread on one CPU, whose
//! memory is the populated area and little else, so that nothing else is forked and no other CPU
//! need be asked to flush. The helper maps and populates fresh memory for each round, and prints
//! what it measured as one line of JSON. All rounds of one backing are one helper's: what a process
//! gives back to a hypervisor is slow to come again.
//!
//! Fork is measured without any `unsafe`. The standard library forks really, and not by `vfork`,
//! when the child's group is to be set; forking is the parent's CPU time meanwhile. The child ends
//! its copy of the memory when it executes `true`. What that takes the kernel counts as the child's
//! CPU time, which can be read as long as nobody has waited for the child; the same of a process
//! that has no memory yet is taken off.
//!
//! Folios of 2 MiB that entries map come to be as on real systems: `MADV_DONTFORK` on one page of
//! each splits the area, and with it the leaf; `MADV_DOFORK` makes the area whole again, but not
//! the leaf.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use memmap2::{Advice, MmapMut, MmapOptions};
use rustix::process::{Pid, WaitId, WaitIdOptions, getgid, waitid};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::Host;
use super::memory::mapped_bytes;
use super::thp::{Guard, folios_given};
use crate::args::HelperArgs;
use crate::bench::entries::{Backing, Task};
use crate::bench::thread_ns;
use crate::size::Size;

const PAGE: u64 = 4096;
/// Of the folios of a sample so many must be as wanted.
const GIVEN: f64 = 0.95;
/// A program that does nothing.
const NOTHING: &str = "true";

/// What a helper found in one round.
#[derive(Serialize, Deserialize, Debug)]
pub(crate) struct Found {
    /// Nanoseconds of each part, as [`Task::parts`] names them.
    pub(crate) ns: Vec<f64>,
    /// Nanoseconds of a fork before there was any memory to copy.
    pub(crate) empty: Option<f64>,
    /// Bytes of the area that the kernel says are there, and in 2 MiB blocks.
    resident: Option<u64>,
    huge: Option<u64>,
}

/// Runs a helper for `rounds` rounds, and leaves out those in which the kernel did not back its
/// memory as wanted.
///
/// # Errors
/// The helper cannot be started, or failed.
pub(crate) fn samples(
    host: &Host,
    guard: &Guard,
    (task, backing): (Task, Backing),
    (region, rounds): (u64, u32),
) -> Result<Vec<Found>> {
    guard.only(backing.size).context("a huge-page setting cannot be written")?;
    let before = folios_given(host, backing.size);
    let program = std::env::current_exe().context("the command does not find itself")?;
    let mut command = Command::new(program);
    command.args(["helper", task.name()]).arg(backing.size.to_string());
    command.args([Size(region).to_string(), rounds.to_string()]);
    if backing.block {
        command.arg("--block");
    }
    let output = command.output().context("the helper cannot be started")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the helper failed: {}", said.trim());
    let mut all: Vec<Found> = serde_json::from_slice(&output.stdout).context("its line")?;
    let given = before.zip(folios_given(host, backing.size)).map(|(b, a)| a.saturating_sub(b));
    let wanted = GIVEN * (region / backing.size.bytes()) as f64 * all.len() as f64;
    if backing.size.bytes() != PAGE && given.is_some_and(|given| (given as f64) < wanted) {
        all.clear();
    }
    all.retain(|found| found.is_as_wanted(backing, region));
    Ok(all)
}

impl Found {
    /// Whether all of the memory is there, in blocks or not as wanted; a kernel that does not tell
    /// is believed.
    fn is_as_wanted(&self, backing: Backing, region: u64) -> bool {
        let most = (GIVEN * region as f64) as u64;
        let huge = match backing.block {
            true => self.huge.is_none_or(|bytes| bytes >= most),
            false => self.huge.is_none_or(|bytes| bytes == 0),
        };
        huge && self.resident.is_none_or(|bytes| bytes >= most)
    }
}

/// The helper: populates and measures, round by round, and prints.
///
/// # Errors
/// The host does not give the memory; the kernel refuses an advice.
pub(crate) fn run(args: &HelperArgs) -> Result<()> {
    let backing = Backing { size: args.size, block: args.block };
    // Where it runs makes no difference, but both halves of a fork must share a CPU.
    let mut set = CpuSet::new();
    set.set(sched_getcpu());
    let _ = sched_setaffinity(None, &set);
    let measure = |_| measure(args.task, backing, args.region.bytes());
    let found: Vec<Found> = (0..args.rounds).map(measure).collect::<Result<_>>()?;
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

fn measure(task: Task, backing: Backing, region: u64) -> Result<Found> {
    let empty = match task {
        // The first one also makes the code and the stack present.
        Task::Fork => {
            fork()?;
            Some(fork()?)
        }
        _ => None,
    };
    let mut area = Area::new(backing, region)?;
    area.populate()?;
    let (resident, huge) = (area.bytes("Rss"), area.bytes("AnonHugePages"));
    let ns = match task {
        Task::Fork => {
            let first = fork()?;
            let exit = first.child - empty.as_ref().map_or(0.0, |empty| empty.child);
            vec![first.parent, exit.max(0.0), fork()?.parent]
        }
        Task::Zap => {
            let start = thread_ns();
            drop(area);
            vec![thread_ns() - start]
        }
        Task::Protect => {
            let start = thread_ns();
            let map = area.map.make_read_only().context("mprotect fails")?;
            let middle = thread_ns();
            let map = map.make_mut().context("mprotect fails")?;
            let end = thread_ns();
            drop(map);
            vec![middle - start, end - middle]
        }
    };
    Ok(Found { ns, empty: empty.map(|empty| empty.parent), resident, huge })
}

/// Nanoseconds of CPU time of a fork and of its child.
struct Forked {
    parent: f64,
    child: f64,
}

/// Forks a child that does nothing.
fn fork() -> Result<Forked> {
    let mut command = Command::new(NOTHING);
    command.gid(getgid().as_raw());
    let start = thread_ns();
    let mut child = command.spawn().with_context(|| format!("`{NOTHING}` does not run"))?;
    let parent = thread_ns() - start;
    let id = WaitId::Pid(Pid::from_child(&child));
    waitid(id, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let told = fs::read_to_string(format!("/proc/{}/schedstat", child.id()));
    child.wait()?;
    let told = told.context("the kernel does not tell a child's CPU time (schedstat)")?;
    let child = told.split(' ').next().and_then(|ns| ns.parse().ok());
    Ok(Forked { parent, child: child.context("schedstat begins with no number")? })
}

/// Memory of this process.
struct Area {
    map: MmapMut,
    start: usize,
    len: usize,
    backing: Backing,
}

impl Area {
    fn new(backing: Backing, region: u64) -> Result<Area> {
        let len = usize::try_from(region)?;
        let size = backing.size.len();
        let map = MmapOptions::new()
            .len(len + size)
            .map_anon()
            .context("the host does not map the memory")?;
        let start = map.as_ptr().align_offset(size);
        match backing.size.bytes() {
            // Without huge pages in the kernel this is refused, and not needed.
            PAGE => drop(map.advise(Advice::NoHugePage)),
            _ => map.advise(Advice::HugePage).context("the kernel refuses MADV_HUGEPAGE")?,
        }
        Ok(Area { map, start, len, backing })
    }

    /// Touches each folio, and splits the leaves of those that are not to be mapped by blocks.
    fn populate(&mut self) -> Result<()> {
        let (start, len, size) = (self.start, self.len, self.backing.size.len());
        for folio in self.map[start..start + len].chunks_exact_mut(size) {
            folio[0] = 1;
        }
        if self.backing.block || self.backing.size.bytes() == PAGE {
            return Ok(());
        }
        for at in (start..start + len).step_by(size.max(2 << 20)) {
            let page = (at + PAGE as usize, PAGE as usize);
            self.map.advise_range(Advice::DontFork, page.0, page.1).context("MADV_DONTFORK")?;
            self.map.advise_range(Advice::DoFork, page.0, page.1).context("MADV_DOFORK")?;
        }
        Ok(())
    }

    /// What `/proc` says about the area, in bytes.
    fn bytes(&self, field: &str) -> Option<u64> {
        let smaps = fs::read_to_string("/proc/self/smaps").ok()?;
        mapped_bytes(&smaps, self.map.as_ptr().addr() + self.start, field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c5_base_pages_are_measured_in_each_task_and_all_of_them_are_there() {
        let backing = Backing { size: Size(PAGE), block: false };
        for task in [Task::Fork, Task::Zap, Task::Protect] {
            let found = measure(task, backing, 8 << 20).unwrap();
            assert_eq!(found.ns.len(), task.parts().len());
            // A child's end without much memory is lost in what is taken off.
            assert!(found.ns.iter().all(|ns| *ns >= 0.0) && found.ns[0] > 0.0, "{found:?}");
            assert!(found.is_as_wanted(backing, 8 << 20), "{found:?}");
            assert_eq!(found.empty.is_some(), task == Task::Fork);
        }
    }

    #[test]
    fn c5_memory_that_is_not_backed_as_wanted_is_no_sample() {
        let found = |resident, huge| Found { ns: Vec::new(), empty: None, resident, huge };
        let backing = |block| Backing { size: Size(2 << 20), block };
        let region = 100 << 20;
        assert!(found(Some(region), Some(region)).is_as_wanted(backing(true), region));
        assert!(!found(Some(region), Some(region / 2)).is_as_wanted(backing(true), region));
        assert!(!found(Some(region), Some(2 << 20)).is_as_wanted(backing(false), region));
        assert!(!found(Some(region / 2), Some(0)).is_as_wanted(backing(false), region));
        assert!(found(None, None).is_as_wanted(backing(true), region));
    }
}
