//! Threads that walk through memory of their own, extent by extent.

use std::sync::Barrier;

use anyhow::Result;
use quire_hw::{Calibration, Chosen, calibrate, extent::Backend, read_through};

use crate::host::Host;
use crate::host::cpu::{Machine, rounded};
use crate::host::memory::{self, Area};
use crate::refused::Refused;
use crate::size::Size;
use crate::stats::thread_ns;
use crate::threads::{self, Span, Timing};

/// The last-level caches that a measurement covers: what a method leaves dirty in them is then a
/// small part of what it wrote.
const CACHES_PER_SAMPLE: u64 = 4;
/// The least length of a thread's buffer in last-level caches: the walk returns to an extent only
/// long after it has left the caches.
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
    buffer: Area,
    /// Where the next extent begins.
    at: usize,
    /// Read before each sample, so that the last-level cache holds clean lines.
    clean: Area,
}

/// How much memory `threads` threads need for extents of up to `largest`.
fn needed(machine: &Machine, largest: Size, threads: u32) -> (u64, u64) {
    let cache = machine.last_level_cache.min(CACHE_MOST);
    let buffer = largest.bytes().max(CACHES_PER_BUFFER * cache).next_multiple_of(1 << 21);
    let clean = (2 * cache / u64::from(threads)).next_multiple_of(1 << 21);
    (buffer, clean)
}

impl Lanes {
    /// Memory for `threads` threads and extents of up to `largest`; refused where the host has not
    /// enough.
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
                buffer: Area::present(buffer as usize)?,
                at: 0,
                clean: Area::present(clean as usize)?,
            })
        };
        let lanes = (0..threads).map(lane).collect::<Result<_>>()?;
        let cache = machine.last_level_cache.min(CACHE_MOST);
        let sample = (CACHES_PER_SAMPLE * cache).min(buffer) as usize;
        Ok(Lanes { lanes, sample })
    }

    /// Refuses what the host has not enough memory for.
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

    /// Calibrates all backends of this CPU in the lanes' memory, by the CPU time of this thread, so
    /// that other work on the host does not count against a backend.
    pub(crate) fn calibrated(&mut self) -> Chosen {
        let all: Vec<Backend> = Backend::available().collect();
        let clock = || thread_ns() as u64;
        calibrate(self.scratch(), clock, &all, Calibration::THOROUGH, |_| ())
    }

    /// The first thread's memory.
    pub(crate) fn scratch(&mut self) -> &mut [u8] {
        self.lanes[0].buffer.bytes()
    }

    /// The memory, in a sentence.
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
    pub(crate) fn rate<W>(&mut self, extent: Size, work: W) -> Result<f64>
    where
        W: Fn(&mut [u8]) -> Result<()> + Sync,
    {
        let sample = self.sample;
        if let [lane] = &mut self.lanes[..] {
            let (bytes, span) = lane.walk(sample, extent, || (), &work)?;
            return Ok(bytes as f64 / Timing::of(&[span]).cpu);
        }
        let barrier = Barrier::new(self.lanes.len());
        let ready = || {
            barrier.wait();
        };
        let (ready, work) = (&ready, &work);
        let jobs = self.lanes.iter_mut();
        let spans = threads::all(jobs.map(|lane| move || lane.walk(sample, extent, ready, work)))?;
        let bytes: usize = spans.iter().map(|(bytes, _)| bytes).sum();
        let spans: Vec<Span> = spans.into_iter().map(|(_, span)| span).collect();
        Ok(bytes as f64 / Timing::of(&spans).wall)
    }
}

impl Lane {
    /// The bytes of one thread's sample, and its time.
    fn walk(
        &mut self,
        sample: usize,
        extent: Size,
        ready: impl Fn(),
        work: &impl Fn(&mut [u8]) -> Result<()>,
    ) -> Result<(usize, Span)> {
        std::hint::black_box(read_through(self.clean.bytes()));
        ready();
        let extent = extent.len();
        let memory = self.buffer.bytes();
        let count = (sample / extent).max(1);
        // Extents are aligned to their size, as folios are.
        self.at = self.at.next_multiple_of(extent);
        let span = Span::of(|| {
            for _ in 0..count {
                if self.at + extent > memory.len() {
                    self.at = 0;
                }
                work(&mut memory[self.at..self.at + extent])?;
                self.at += extent;
            }
            anyhow::Ok(())
        })?;
        Ok((count * extent, span))
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
