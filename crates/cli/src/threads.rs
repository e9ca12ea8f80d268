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
    let start = Start::of(threads);
    let one = |at: usize| {
        pin_where(pinned, (at, threads));
        let _cpu = machine.cpu(at);
        start.together();
        Span::of(|| work(at)).map_err(Into::into)
    };
    let one = &one;
    if threads == 1 && !pinned {
        return Ok(Timing::of(&[one(0)?]));
    }
    Ok(Timing::of(&all((0..threads as usize).map(|at| move || one(at)))?))
}

/// Runs `work` as each of `threads` CPUs of the machine, one after the other, each on the CPU of
/// the host that [`on_machine`] gives it.
pub(crate) fn in_turn<E: Into<anyhow::Error>>(
    machine: &Machine<'_>,
    threads: u32,
    work: impl Fn(usize) -> Result<(), E> + Sync,
) -> Result<()> {
    let one = |at: usize| {
        pin_where(true, (at, threads));
        let _cpu = machine.cpu(at);
        work(at).map_err(Into::into)
    };
    let one = &one;
    (0..threads as usize).try_for_each(|at| all([move || one(at)]).map(|_| ()))
}

/// Runs `lane` in each of `threads` threads, each with a CPU of the host to itself where there are
/// enough of them. A lane prepares, and hands what it measures to [`Start::lane`].
pub(crate) fn apart(
    threads: u32,
    lane: impl Fn(usize, &Start) -> Result<Span> + Sync,
) -> Result<Timing> {
    let start = Start::of(threads);
    let one = |at: usize| {
        pin_where(true, (at, threads));
        let span = lane(at, &start);
        if span.is_err() {
            // It may have failed before it was ready: the others do not wait for it.
            start.0.store(0, Ordering::Release);
        }
        span
    };
    let one = &one;
    Ok(Timing::of(&all((0..threads as usize).map(|at| move || one(at)))?))
}

fn pin_where(pinned: bool, (at, threads): (usize, u32)) {
    let cpus = host_cpus();
    if pinned && threads as usize <= cpus.len() {
        pin(cpus[at]);
    }
}

/// How many threads are not ready yet.
pub(crate) struct Start(AtomicU32);

impl Start {
    fn of(threads: u32) -> Start {
        Start(AtomicU32::new(threads))
    }

    /// Waits until all are ready, and does not sleep: waking up takes longer than many faults.
    fn together(&self) {
        let _ =
            self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1));
        while self.0.load(Ordering::Acquire) > 0 {
            thread::yield_now();
        }
    }

    /// Times `work`, which all lanes begin together.
    pub(crate) fn lane<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<Span, E> {
        self.together();
        Span::of(work)
    }
}
