//! Work in several threads at the same time, and how long it took.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};
use quire_machine::Machine;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::stats::thread_ns;

/// The work of one thread: CPU time in nanoseconds, start and end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    cpu: f64,
    start: Instant,
    end: Instant,
}

impl Span {
    /// Times `work`.
    pub(crate) fn of<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Span, E> {
        let (start, cpu) = (Instant::now(), thread_ns());
        work()?;
        let cpu = thread_ns() - cpu;
        Ok(Span { cpu, start, end: Instant::now() })
    }
}

/// The time of some threads' work, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Timing {
    /// By the clock, from the first thread's start to the last one's end.
    pub(crate) wall: f64,
    /// CPU time of the thread that took most.
    pub(crate) cpu: f64,
}

impl Timing {
    pub(crate) fn of(spans: &[Span]) -> Timing {
        let start = spans.iter().map(|span| span.start).min();
        let end = spans.iter().map(|span| span.end).max();
        let wall = start.zip(end).map_or(0.0, |(start, end)| (end - start).as_nanos() as f64);
        Timing { wall, cpu: spans.iter().map(|span| span.cpu).fold(0.0, f64::max) }
    }

    /// The time for each of `count` things that each thread did.
    pub(crate) fn per(self, count: u64) -> Timing {
        Timing { wall: self.wall / count as f64, cpu: self.cpu / count as f64 }
    }

    /// CPU time of one thread; time by the clock of several, as each of them sees it.
    pub(crate) fn seen(self, threads: u32) -> f64 {
        if threads == 1 { self.cpu } else { self.wall }
    }
}

/// Runs each of `jobs` in a thread of its own.
pub(crate) fn all<T: Send>(
    jobs: impl IntoIterator<Item = impl FnOnce() -> Result<T> + Send>,
) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(job)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<T>>| {
            thread.join().map_err(|_| anyhow!("a thread of the bench panicked"))?
        };
        threads.into_iter().map(join).collect()
    })
}

/// The host's CPUs that this process may use.
pub(crate) fn host_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Keeps the calling thread on `cpu`, if that is permitted.
pub(crate) fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set);
}

/// Runs `work` in each of `threads` threads, which begin together, each as a CPU of the machine.
/// Each has a CPU of the host to itself where it is `pinned` and there are enough of them; a single
/// thread that is not pinned is the calling one.
pub(crate) fn on_machine<E: Into<anyhow::Error>>(
    machine: &Machine<'_>,
    (threads, pinned): (u32, bool),
    work: impl Fn(usize) -> Result<(), E> + Sync,
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
        Span::of(|| work(at)).map_err(Into::into)
    };
    let one = &one;
    if threads == 1 && !pinned {
        return Ok(Timing::of(&[one(0)?]));
    }
    Ok(Timing::of(&all((0..threads as usize).map(|at| move || one(at)))?))
}
