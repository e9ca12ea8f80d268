//! A disk behind compressed memory (writeback): cold pages go there, and come back when a fault
//! needs them.
//!
//! ```text
//!   write_now ──► more frames than it may have? ──► leave: a copy of the coldest unit ──► the disk
//!                        ▲                                                                  │
//!                        └───────── left: its frames are free, its pages away ◄─────────────┘
//!
//!   read ──► load: what is here ──► what is away: the disk ──► the page is there
//! ```
//!
//! A page has the same place on both, so that one bit tells where it is. A pool moves one unit at a
//! time, from frames reserved for that: this takes no memory when memory is short.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use quire::cache;
use quire::hw::FrameRun;
use quire_linux::{Errno, Result};

use super::claim::Claim;
use super::device::{Disk, Part, Read, Reader, Target};
use super::instant::Instant;
use super::packed;
use super::swap::{self, Device};
use crate::memory::PAGE;

/// The most pages that are read as one: those of the largest folio.
const READ_MOST: usize = 512;

/// A disk that is behind a device of compressed memory.
pub(super) struct Behind {
    disk: &'static Disk,
    /// The most frames that units may have in memory.
    most: u64,
    /// A bit for each slot that is away. Changed with the lock of the slot's pool held.
    away: Vec<AtomicU64>,
    counters: Counters,
}

/// How many pages went to the disk, came back, and could not go.
#[derive(Default)]
struct Counters {
    written: AtomicU64,
    read: AtomicU64,
    failed: AtomicU64,
}

/// A unit that is on its way to the disk.
pub(super) struct Leaving {
    /// Its first page.
    pub(super) page: u64,
    /// How many.
    pub(super) count: u64,
    /// A copy of it.
    pub(super) frames: FrameRun,
}

/// Which pages of a read are on the disk.
#[derive(Default)]
pub(super) struct Away([u64; READ_MOST / 64]);

impl Away {
    /// These are.
    pub(super) fn add(&mut self, pages: Range<u64>) {
        for page in pages {
            if let Some(word) = self.0.get_mut(page as usize / 64) {
                *word |= 1 << (page % 64);
            }
        }
    }

    /// Whether none is.
    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; READ_MOST / 64]
    }

    fn has(&self, page: u64) -> bool {
        self.0.get(page as usize / 64).is_some_and(|word| word >> (page % 64) & 1 != 0)
    }

    /// The first stretch of those that are, from page `from` on.
    fn next(&self, from: u64) -> Option<Range<u64>> {
        let most = READ_MOST as u64;
        let start = (from..most).find(|&page| self.has(page))?;
        Some(start..(start..most).find(|&page| !self.has(page)).unwrap_or(most))
    }
}

impl Behind {
    /// `disk`, for a device of `length` bytes that may have `most` frames.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when the disk is smaller, or cannot be written; [`Errno::EBUSY`] when it
    /// is in use; [`Errno::ENOMEM`].
    pub(super) fn new(disk: &'static Disk, length: u64, most: u64) -> Result<Self> {
        if disk.length() < length || disk.is_read_only() {
            return Err(Errno::EINVAL);
        }
        let words = ((packed::FIRST + length / PAGE) as usize).div_ceil(64);
        let mut away = Vec::new();
        away.try_reserve_exact(words).map_err(|_| Errno::ENOMEM)?;
        away.extend((0..words).map(|_| AtomicU64::new(0)));
        disk.claims().claim(Claim::Behind)?;
        Ok(Self { disk, most, away, counters: Counters::default() })
    }

    /// The most frames that units may have in memory.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// Whether a slot is away.
    pub(super) fn has(&self, slot: u64) -> bool {
        let word = self.away.get(slot as usize / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (slot % 64) & 1 != 0)
    }

    /// Slots are away.
    pub(super) fn take(&self, slots: Range<u64>) {
        self.counters.written.fetch_add(slots.end - slots.start, Ordering::Relaxed);
        for slot in slots {
            if let Some(word) = self.away.get(slot as usize / 64) {
                word.fetch_or(1 << (slot % 64), Ordering::Relaxed);
            }
        }
    }

    /// Marks slots as no longer away: they came back, or are free.
    pub(super) fn bring(&self, slots: Range<u64>) {
        for slot in slots {
            if let Some(word) = self.away.get(slot as usize / 64) {
                word.fetch_and(!(1 << (slot % 64)), Ordering::Relaxed);
            }
        }
    }

    /// A unit could not go.
    fn fail(&self) {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Pages away now, gone there and come back, and how often none could go.
    pub(super) fn counts(&self) -> [(&'static str, u64); 4] {
        let now = self.away.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones()));
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counters { written, read, failed } = &self.counters;
        [
            ("away", now.sum()),
            ("written", count(written)),
            ("read", count(read)),
            ("failed", count(failed)),
        ]
    }
}

impl Device {
    /// Lets the pools of a device that hold more than they may move units to the disk.
    pub(super) fn make_room(self: &Arc<Self>, device: &dyn Instant) {
        if device.behind().is_some() {
            (0..device.pools()).for_each(|pool| self.move_one(device, pool));
        }
    }

    /// Moves a unit, if the pool is not moving one.
    fn move_one(self: &Arc<Self>, device: &dyn Instant, pool: usize) {
        let Some(behind) = device.behind() else { return };
        let Some(leaving) = device.leave(pool, &|pages| self.free_in(pages)) else { return };
        let (at, bytes) = (leaving.page * PAGE, leaving.count * PAGE);
        let (target, reader) = (Target::Moved(leaving.frames), self.clone());
        let read = Read { name: pool as u64, at, bytes, target, reader };
        if let Err(Read { target: Target::Moved(frames), .. }) = behind.disk.submit(read) {
            behind.fail();
            device.left(pool, frames, false);
        }
    }

    /// A unit has reached the disk, or has not. The next one goes, if there are too many; after a
    /// failure when something is stored.
    pub(super) fn moved(&self, pool: usize, frames: FrameRun, result: Result<()>) {
        let Some(device) = self.instant() else { return };
        device.left(pool, frames, result.is_ok());
        match (result, swap::devices().find(|device| device.id == self.id)) {
            (Ok(()), Some(own)) => own.move_one(device, pool),
            // It was taken out of use meanwhile.
            (Ok(()), None) => {}
            (Err(_), _) => device.behind().into_iter().for_each(Behind::fail),
        }
    }

    /// Reads the pages of `read` that are on the disk; its first page has the place `page`.
    pub(super) fn read_behind(
        self: &Arc<Self>,
        behind: &Behind,
        page: u64,
        read: cache::Read,
        away: &Away,
    ) {
        let (mut left, mut done) = (Part::all(read), 0);
        while let Some(next) = away.next(done) {
            // The pages between are there already.
            let (_, rest) = left.split((next.start - done) * PAGE);
            let (part, rest) = rest.split((next.end - next.start) * PAGE);
            let (at, bytes) = ((page + next.start) * PAGE, part.bytes());
            behind.counters.read.fetch_add(next.end - next.start, Ordering::Relaxed);
            let read =
                Read { name: 0, at, bytes, target: Target::Part(part), reader: self.clone() };
            if let Err(Read { target, .. }) = behind.disk.submit(read) {
                self.finished(0, target, Err(Errno::ENOMEM));
            }
            (left, done) = (rest, next.end);
        }
        // If the disk was faster, only this was missing.
        self.finished(0, Target::Part(left), Ok(()));
    }
}
