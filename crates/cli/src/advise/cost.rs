//! The time that the kernel takes for a program's memory, by constants of this host.
//!
//! Each folio that a fault brings has the time that this host's kernel takes for one of its size;
//! all other faults have that of a read fault on the page of zeroes. A walk of the tables is the
//! difference between a read of a random page of [`REGION`] in pages and the same in blocks.

use anyhow::{Context, Result};

use super::linux::Outcome;
use crate::host::Host;
use crate::host::fault::{Form, read_fault, sample, unavailable};
use crate::host::memory::Area;
use crate::host::thp::Guard;
use crate::size::Size;
use crate::stats::{Summary, thread_ns};

/// Bytes of a page, and of the memory that is faulted in, and read at random.
const PAGE: u64 = 4096;
const REGION: u64 = 64 << 20;
/// How often each is measured.
const TIMES: usize = 5;
/// Reads of a sample.
const READS: u64 = 1 << 20;

/// Nanoseconds on this host.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Constants {
    /// Of a fault that brings a folio of each order; `None` where the host has none of that size.
    folios: [Option<Summary>; 10],
    /// Of a fault that brings nothing.
    other: Summary,
    /// Of a walk of the tables.
    pub(super) walk: Summary,
}

/// A time with the bounds that its constants have.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Time {
    pub(super) usual: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Time {
    fn add(&mut self, count: u64, each: &Summary) {
        let count = count as f64;
        self.usual += count * each.median;
        self.least += count * each.min;
        self.most += count * each.max;
    }
}

impl Constants {
    /// Measures them.
    pub(super) fn measure(host: &Host, guard: &Guard) -> Result<Constants> {
        let mut folios = [None; 10];
        for (order, place) in folios.iter_mut().enumerate() {
            let size = Size(PAGE << order);
            if unavailable(host, size, REGION).is_none() {
                let one = || sample(host, guard, (Form::Demand, size), REGION, 1);
                let all: Vec<Option<f64>> = (0..TIMES).map(|_| one()).collect::<Result<_>>()?;
                *place = Summary::of(&all.into_iter().flatten().collect::<Vec<f64>>());
            }
        }
        let other: Vec<f64> = (0..TIMES).map(|_| read_fault()).collect::<Result<_>>()?;
        let other = Summary::of(&other).context("no read fault was measured")?;
        Ok(Constants { folios, other, walk: walk(guard)? })
    }

    /// The time that faults take in the kernel.
    pub(super) fn faults(&self, out: &Outcome) -> Time {
        let mut time = Time::default();
        let counts = &out.counts;
        for (order, count) in counts.folios.iter().enumerate() {
            time.add(*count, self.folios[order].as_ref().unwrap_or(&self.other));
        }
        // A copy takes a page as a fault on an empty one does, and reads one instead of nothing.
        time.add(counts.copies, self.folios[0].as_ref().unwrap_or(&self.other));
        time.add(counts.zero + counts.kept + counts.file, &self.other);
        time
    }

    /// The time of the walks when all touched pages are used once more, for the second geometry.
    pub(super) fn walks(&self, out: &Outcome) -> Time {
        let mut time = Time::default();
        time.add(out.reach.walks[1], &self.walk);
        time
    }
}

/// Nanoseconds of a walk.
fn walk(guard: &Guard) -> Result<Summary> {
    let mut all = Vec::new();
    let read = |size: u64| {
        guard.only(Size(size)).context("a switch cannot be set")?;
        let mut area = Area::new(Size(size), REGION)?;
        area.touch();
        area.bytes().iter_mut().step_by(PAGE as usize).for_each(|byte| *byte = 1);
        Ok::<f64, anyhow::Error>(reads(area.bytes()))
    };
    for _ in 0..TIMES {
        let pages = read(PAGE)?;
        all.push((pages - read(2 << 20)?).max(0.0));
    }
    Summary::of(&all).context("no walk was measured")
}

/// Nanoseconds of a read of one byte of a random page, which depends on the read before.
fn reads(bytes: &[u8]) -> f64 {
    let pages = bytes.len() as u64 / PAGE;
    let mut at = 1_u64;
    let start = thread_ns();
    for _ in 0..READS {
        let page = (at >> 33) % pages;
        let line = page % (PAGE / 64) * 64;
        let found = bytes[(page * PAGE + line) as usize];
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(u64::from(found) | 1);
    }
    std::hint::black_box(at);
    (thread_ns() - start) / READS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(median: f64) -> Summary {
        Summary { median, min: median - 1.0, max: median + 2.0, n: 3 }
    }

    #[test]
    fn f1_a_time_is_the_sum_of_its_faults_with_bounds() {
        let mut folios = [None; 10];
        (folios[0], folios[4]) = (Some(summary(10.0)), Some(summary(40.0)));
        let constants = Constants { folios, other: summary(5.0), walk: summary(7.0) };
        let mut out = Outcome::default();
        (out.counts.folios[0], out.counts.folios[4]) = (3, 2);
        (out.counts.copies, out.counts.zero, out.counts.file) = (1, 4, 6);
        let time = constants.faults(&out);
        assert_eq!((time.usual, time.least, time.most), (170.0, 154.0, 202.0));
        out.reach.walks = [0, 10];
        assert_eq!(constants.walks(&out).usual, 70.0);
    }
}
