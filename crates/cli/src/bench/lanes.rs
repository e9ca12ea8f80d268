//! Threads that walk through memory of their own, extent by extent.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use quire_hw::read_through;

use super::thread_ns;
use crate::Refused;
use crate::host::Host;
use crate::host::cpu::{Machine, rounded};
use crate::host::memory::{self, Buffer};
use crate::size::Size;

/// A measurement covers so many last-level caches, so that what a method leaves dirty in them is
/// a small part of what it wrote.
const CACHES_PER_SAMPLE: u64 = 4;
/// Each thread's buffer is at least so many last-level caches long, so that the walk returns to
/// an extent only long after it has left the caches.
const CACHES_PER_BUFFER: u64 = 8;

/// Caches larger than this are not outgrown: the memory that would take is not always there.
const CACHE_MOST: u64 = 128 << 20;

/// The threads' memory.
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    /// Bytes each thread handles per sample, at least.
    sample: usize,
}

/// One thread's memory.
struct Lane {
    buffer: Buffer,
    /// Where the next extent begins.
    at: usize,
    /// Read before each sample, so that the last-level cache holds clean lines.
    clean: Buffer,
}

/// How much memory `threads` threads need for extents of up to `largest`.
fn needed(machine: &Machine, largest: Size, threads: u32) -> (u64, u64) {
    let cache = machine.last_level_cache.min(CACHE_MOST);
    let buffer = largest.bytes().max(CACHES_PER_BUFFER * cache).next_multiple_of(1 << 21);
    let clean = (2 * cache / u64::from(threads)).next_multiple_of(1 << 21);
    (buffer, clean)
}

impl Lanes {
    /// Memory for `threads` threads and extents of up to `largest`.
    ///
    /// # Errors
    /// [`Refused`] where the host has not as much.
    pub(crate) fn new(
        host: &Host,
        machine: &Machine,
        largest: Size,
        threads: u32,
    ) -> Result<Lanes> {
        Lanes::check(host, machine, largest, threads)?;
        let (buffer, clean) = needed(machine, largest, threads);
        let lane = |_| {
            Ok(Lane {
                buffer: Buffer::new(buffer as usize)?,
                at: 0,
                clean: Buffer::new(clean as usize)?,
            })
        };
        let lanes = (0..threads).map(lane).collect::<Result<_>>()?;
        let cache = machine.last_level_cache.min(CACHE_MOST);
        let sample = (CACHES_PER_SAMPLE * cache).min(buffer) as usize;
        Ok(Lanes { lanes, sample })
    }

    /// Whether there is memory for `threads` threads and extents of up to `largest`.
    ///
    /// # Errors
    /// [`Refused`] where the host has not as much.
    pub(crate) fn check(
        host: &Host,
        machine: &Machine,
        largest: Size,
        threads: u32,
    ) -> Result<(), Refused> {
        let (buffer, clean) = needed(machine, largest, threads);
        let what = format!("clearing {largest} extents in {threads} thread(s)");
        memory::require(host, &what, buffer.saturating_add(clean).saturating_mul(threads.into()))
    }

    /// The first thread's memory.
    pub(crate) fn scratch(&mut self) -> &mut [u8] {
        self.lanes[0].buffer.bytes()
    }

    /// What the memory is, in a sentence.
    pub(crate) fn sentence(&mut self) -> String {
        let len = self.lanes[0].buffer.bytes().len() as u64;
        let huge = match self.lanes[0].buffer.huge_share() {
            Some(share) => format!("{:.0} % of it in 2M pages", share * 100.0),
            None => "the kernel does not tell its page size".to_owned(),
        };
        format!(
            "Memory: {} of anonymous memory per thread, MADV_HUGEPAGE, {huge}; one thread is timed \
             by its own CPU time, several by the clock.",
            rounded(len)
        )
    }

    /// GB/s of all threads together that hand extent after extent to `work`.
    ///
    /// # Errors
    /// `work` said that something is wrong.
    pub(crate) fn rate<W>(&mut self, extent: Size, work: W) -> Result<f64>
    where
        W: Fn(&mut [u8]) -> Result<()> + Sync,
    {
        let sample = self.sample;
        if let [lane] = &mut self.lanes[..] {
            let (bytes, ns, ..) = lane.walk(sample, extent, || (), &work)?;
            return Ok(bytes as f64 / ns);
        }
        let barrier = Barrier::new(self.lanes.len());
        let ready = || {
            barrier.wait();
        };
        let times = thread::scope(|scope| {
            let start = |lane| scope.spawn(|| Lane::walk(lane, sample, extent, ready, &work));
            let all: Vec<_> = self.lanes.iter_mut().map(start).collect();
            let join = |t: thread::ScopedJoinHandle<'_, Result<Walked>>| {
                t.join().map_err(|_| anyhow!("a thread of the bench panicked"))?
            };
            all.into_iter().map(join).collect::<Result<Vec<_>>>()
        })?;
        let bytes: usize = times.iter().map(|t| t.0).sum();
        let start = times.iter().map(|t| t.2).min().context("no threads")?;
        let end = times.iter().map(|t| t.3).max().context("no threads")?;
        Ok(bytes as f64 / (end - start).as_nanos() as f64)
    }
}

/// Bytes, nanoseconds of CPU time, start and end of one thread's sample.
type Walked = (usize, f64, Instant, Instant);

impl Lane {
    fn walk(
        &mut self,
        sample: usize,
        extent: Size,
        ready: impl Fn(),
        work: &impl Fn(&mut [u8]) -> Result<()>,
    ) -> Result<Walked> {
        std::hint::black_box(read_through(self.clean.bytes()));
        ready();
        let extent = extent.len();
        let memory = self.buffer.bytes();
        let count = (sample / extent).max(1);
        // Extents are aligned to their size, as folios are.
        self.at = self.at.next_multiple_of(extent);
        let (start, cpu) = (Instant::now(), thread_ns());
        for _ in 0..count {
            if self.at + extent > memory.len() {
                self.at = 0;
            }
            work(&mut memory[self.at..self.at + extent])?;
            self.at += extent;
        }
        let ns = thread_ns() - cpu;
        Ok((count * extent, ns, start, Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn the_walk_hands_out_whole_extents_of_every_lane_and_returns_to_the_start() {
        let host = Host::new(Path::new("/nonexistent"));
        let machine = Machine { last_level_cache: 1 << 20, ..Machine::read(&host) };
        for threads in [1, 2] {
            let mut lanes = Lanes::new(&host, &machine, Size(2 << 20), threads).unwrap();
            let (calls, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
            for _ in 0..3 {
                let rate = lanes.rate(Size(2 << 20), |bytes| {
                    calls.fetch_add(1, Ordering::Relaxed);
                    seen.fetch_add(bytes.len(), Ordering::Relaxed);
                    Ok(())
                });
                assert!(rate.unwrap() > 0.0);
            }
            let calls = calls.into_inner();
            assert_eq!(calls, 3 * 2 * threads as usize);
            assert_eq!(seen.into_inner(), calls << 21);
        }
    }
}
