//! Threads that fault at the same time, each as a CPU of the machine, on a CPU of the host.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use quire::Error;
use quire_machine::Machine;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::bench::thread_ns;

/// How long it took, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Timing {
    /// By the clock, from the first thread's start to the last one's end.
    pub(crate) wall: f64,
    /// CPU time of the thread that took most.
    pub(crate) cpu: f64,
}

impl Timing {
    /// The time for each of `count` things that each thread did.
    pub(crate) fn per(self, count: u64) -> Timing {
        Timing { wall: self.wall / count as f64, cpu: self.cpu / count as f64 }
    }
}

/// The host's CPUs that this process may use.
pub(crate) fn host_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Keeps the calling thread on `cpu`.
fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // Not permitted: it runs where it runs.
    let _ = sched_setaffinity(None, &set);
}

/// Runs `work` in each of `threads` threads, which begin together. Each has a CPU of the host to
/// itself where it is `pinned` and there are enough; one that is not is the calling thread.
///
/// # Errors
/// The first error of `work`.
pub(crate) fn run(
    machine: &Machine<'_>,
    (threads, pinned): (u32, bool),
    work: impl Fn(usize) -> Result<(), Error> + Sync,
) -> Result<Timing> {
    let cpus = host_cpus();
    let waiting = AtomicU32::new(threads);
    let one = |at: usize| {
        if pinned && threads as usize <= cpus.len() {
            pin(cpus[at]);
        }
        let _cpu = machine.cpu(at);
        // A wait that does not sleep: waking up takes longer than many faults.
        waiting.fetch_sub(1, Ordering::AcqRel);
        while waiting.load(Ordering::Acquire) > 0 {
            thread::yield_now();
        }
        let (start, cpu) = (Instant::now(), thread_ns());
        work(at)?;
        Ok((thread_ns() - cpu, start, Instant::now()))
    };
    let one = &one;
    if threads == 1 && !pinned {
        let (cpu, start, end) = one(0)?;
        return Ok(Timing { wall: (end - start).as_nanos() as f64, cpu });
    }
    let times = thread::scope(|scope| {
        let all: Vec<_> = (0..threads as usize).map(|at| scope.spawn(move || one(at))).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<(f64, Instant, Instant)>>| {
            thread.join().map_err(|_| anyhow!("a thread of the bench panicked"))?
        };
        all.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    let start = times.iter().map(|t| t.1).min().context("no threads")?;
    let end = times.iter().map(|t| t.2).max().context("no threads")?;
    let cpu = times.iter().map(|t| t.0).fold(0.0, f64::max);
    Ok(Timing { wall: (end - start).as_nanos() as f64, cpu })
}
