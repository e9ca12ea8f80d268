//! Fork, unmap and protect of populated memory in the host's own kernel.
//!
//! The command runs itself once more, as a *helper*: a process with one thread on one CPU, whose
//! memory is the populated area and little else, so that nothing else is forked and no other CPU
//! has to flush. The helper maps and populates fresh memory for each round, and prints
//! its figures as one line of JSON. One helper makes all rounds of a backing: memory that a process
//! has given back to a hypervisor is slow to come again.
//!
//! Fork is measured without any `unsafe`. The standard library calls `fork`, and not `vfork`, when
//! the child's group is to be set; the cost of forking is the parent's CPU time meanwhile. The
//! child ends its copy of the memory when it executes `true`. The kernel counts that as the child's
//! CPU time, which can be read until the parent waits for the child; the time of a child without
//! that memory is subtracted.
//!
//! Folios of 2 MiB that entries map come to be as on real systems: `MADV_DONTFORK` on one page of
//! each splits the area, and with it the leaf; `MADV_DOFORK` makes the area whole again, but not
//! the leaf.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::process::{Pid, WaitId, WaitIdOptions, getgid, waitid};
use rustix::thread::sched_getcpu;
use serde::{Deserialize, Serialize};

use super::task::Task;
use crate::bench::scene::Backing;
use crate::host::Host;
use crate::host::memory::Area;
use crate::host::thp::{Guard, folios_given};
use crate::size::Size;
use crate::stats::thread_ns;
use crate::threads::pin;

/// The work of a helper.
#[derive(Args, Debug)]
pub(crate) struct HelperArgs {
    /// The task
    task: Task,
    /// The size of the folios
    size: Size,
    /// How much memory is populated
    region: Size,
    /// How often it is measured
    rounds: u32,
    /// Whether blocks map the folios
    #[arg(long)]
    block: bool,
}

const PAGE: u64 = 4096;
/// The share of a sample's folios that must be as wanted.
const GIVEN: f64 = 0.95;
/// A program that ends at once.
const NOTHING: &str = "true";

/// The figures of one round.
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
    /// Whether all of the memory is there, in blocks or not as wanted, as far as the kernel says.
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
pub(crate) fn run(args: &HelperArgs) -> Result<()> {
    let backing = Backing { size: args.size, block: args.block };
    // Any CPU will do, but both halves of a fork must share one.
    pin(sched_getcpu());
    let measure = |_| measure(args.task, backing, args.region.bytes());
    let found: Vec<Found> = (0..args.rounds).map(measure).collect::<Result<_>>()?;
    println!("{}", serde_json::to_string(&found)?);
    Ok(())
}

fn measure(task: Task, backing: Backing, region: u64) -> Result<Found> {
    let empty = match task {
        // The first fork also makes the code and the stack present.
        Task::Fork => {
            fork()?;
            Some(fork()?)
        }
        _ => None,
    };
    let mut area = Area::new(backing.size, region)?;
    area.touch();
    if !backing.block && backing.size.bytes() != PAGE {
        area.split_leaves()?;
    }
    let smaps = area.smaps();
    let (resident, huge) = (smaps.as_ref().map(|s| s.resident), smaps.map(|s| s.anon_blocks));
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

/// Forks a child that ends at once.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c5_base_pages_are_measured_in_each_task_and_all_of_them_are_there() {
        let backing = Backing { size: Size(PAGE), block: false };
        for task in [Task::Fork, Task::Zap, Task::Protect] {
            let found = measure(task, backing, 8 << 20).unwrap();
            assert_eq!(found.ns.len(), task.parts().len());
            // The end of a child with little memory is lost in the subtraction.
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
