//! Compressed memory as a device: `/dev/zram0`.
//!
//! ```text
//!   folio ── a unit of it ──► a copy that nobody changes ──► the pool of its cluster ──► frames
//! ```
//!
//! A folio is compressed by units, not by pages; the boot word's `unit=` says how large these are.
//! Several pools, each with a lock and with memory to work in, serve CPUs side by side: a device's
//! clusters go to them by turns. A part of a page is written with the rest of it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use quire::cache;
use quire::hw::{FrameRun, Hardware};
use quire::units::{FrameSpan, Order};
use quire_linux::files::{Block, Caller, Number, Source, Stored};
use quire_linux::{Errno, Result};
use quire_zpool::{Config, Error, Lender, PageId, Pool, Scratch, Table};
use spin::mutex::SpinMutex;

use super::claim::{Claim, Claims};
use super::device;
use super::instant::{Instant, frames};
use crate::isa;
use crate::memory::{self, PAGE, PAGE_SHIFT, mm};

/// Where Linux has it, too, when nothing else has a number of its choice.
const NUMBER: Number = (253, 0);

/// How many pools there are.
const POOLS: u64 = 4;

/// Pages of a cluster, which one pool has: as many as the largest folio that leaves in one piece.
const CLUSTER: u64 = 512;

/// The slot of page 0, which is a swap header: so page 1 begins a cluster.
const FIRST: u64 = CLUSTER - 1;

/// A device of compressed memory.
pub(super) struct Packed {
    pools: Vec<SpinMutex<Cell>>,
    /// How many pages hold something.
    held: AtomicU64,
    length: u64,
    unit: Order,
    claims: Claims,
    /// Programs write one after the other: two that write parts of one page would lose one.
    writer: SpinMutex<()>,
}

/// A pool, and the frames into which a unit is copied before it is compressed: what is compressed
/// must not change meanwhile.
struct Cell {
    pool: Pool<'static, Frames>,
    still: FrameRun,
}

/// The frames of a pool, by their places in a list.
struct Frames {
    lent: Vec<Option<FrameRun>>,
    free: Vec<u32>,
    /// For a store when there is no memory: then others can leave theirs.
    spare: Vec<FrameRun>,
    spares: usize,
}

impl Frames {
    fn frame(&mut self) -> Option<FrameRun> {
        frames(Order::ZERO).ok().or_else(|| self.spare.pop())
    }
}

impl Lender for Frames {
    fn take(&mut self) -> Option<PageId> {
        if self.free.is_empty() {
            // Each place in the one list has one in the other.
            self.lent.try_reserve(1).ok()?;
            self.free.try_reserve(self.lent.len() + 1).ok()?;
            self.free.push(self.lent.len() as u32);
            self.lent.push(None);
        }
        let run = self.frame()?;
        let place = self.free.pop()?;
        *self.lent.get_mut(place as usize)? = Some(run);
        PageId::new(place + 1)
    }

    fn give(&mut self, page: PageId) {
        let place = page.number() - 1;
        let Some(run) = self.lent.get_mut(place as usize).and_then(Option::take) else { return };
        self.free.push(place);
        if self.spare.len() < self.spares {
            self.spare.push(run);
        } else {
            mm().phys().free(isa::cpu(), run);
        }
    }

    fn bytes(&self, page: PageId) -> &[u8] {
        let run = self.lent.get(page.number() as usize - 1).and_then(Option::as_ref);
        run.map_or(&[], device::bytes)
    }

    fn bytes_mut(&mut self, page: PageId) -> &mut [u8] {
        let run = self.lent.get_mut(page.number() as usize - 1).and_then(Option::as_mut);
        run.map_or(&mut [], device::bytes_mut)
    }
}

impl Packed {
    /// One of `bytes` bytes, whole pages, that compresses `unit` bytes as one.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when that is no unit; [`Errno::ENOMEM`].
    pub(super) fn new(bytes: u64, unit: u64) -> Result<Self> {
        let (unit_bytes, slots) = (unit as usize, bytes / PAGE);
        let config = Config::new(PAGE_SHIFT, unit_bytes, FIRST, slots);
        let config = config.map_err(|_| Errno::EINVAL)?;
        let unit = Order::of_bytes(unit, PAGE_SHIFT).ok_or(Errno::EINVAL)?;
        let mut pools = Vec::new();
        pools.try_reserve_exact(POOLS as usize).map_err(|_| Errno::ENOMEM)?;
        for _ in 0..POOLS {
            pools.push(SpinMutex::new(Cell::new(config, unit)?));
        }
        let (held, claims, writer) = Default::default();
        Ok(Self { pools, held, length: bytes, unit, claims, writer })
    }

    /// Calls `act` for each part of the `count` pages from `page` on that is in one unit: with its
    /// pool, the first slot, how many, and how many pages were before.
    fn each(
        &self,
        page: u64,
        count: u64,
        mut act: impl FnMut(&mut Cell, u64, u64, u64) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        while done < count {
            let slot = FIRST + page + done;
            let part = (self.unit.pages() - slot % self.unit.pages()).min(count - done);
            let mut cell = self.pool_of(slot).lock();
            let before = cell.pool.counters().slots;
            let acted = act(&mut cell, slot, part, done);
            let more = cell.pool.counters().slots.wrapping_sub(before);
            self.held.fetch_add(more, Ordering::Relaxed);
            acted?;
            done += part;
        }
        Ok(())
    }

    fn pool_of(&self, slot: u64) -> &SpinMutex<Cell> {
        // There are as many.
        &self.pools[(slot / CLUSTER % POOLS) as usize]
    }

    /// Page `page`; zeroes where it was not written.
    fn page(&self, page: u64) -> Result<[u8; PAGE as usize]> {
        let mut whole = [0; PAGE as usize];
        self.each(page, 1, |cell, slot, _, _| match cell.pool.load(slot, 1, &mut whole) {
            Ok(()) | Err(Error::Absent { .. }) => Ok(()),
            Err(_) => Err(Errno::EIO),
        })?;
        Ok(whole)
    }

    /// Stores what the source gives for `at` and behind it, at most what is in one unit and fits
    /// into `run`; how many bytes.
    fn take(&self, at: u64, run: &mut FrameRun, source: &mut dyn Source) -> Result<usize> {
        let (page, before) = (at / PAGE, at % PAGE);
        let pages = (run.count() - (FIRST + page) % run.count()).min(self.length / PAGE - page);
        let count = (pages * PAGE - before).min(source.left() as u64);
        let last = (before + count) / PAGE;
        // What of the first and the last page is not written stays.
        let parts = [(before > 0, 0), (!(before + count).is_multiple_of(PAGE), last)];
        for (_, part) in parts.into_iter().filter(|(is_part, _)| *is_part) {
            let old = self.page(page + part)?;
            device::fill(run, part * PAGE, old.len(), &mut &old[..])?;
        }
        let mut done = 0;
        while done < count {
            match device::fill(run, before + done, (count - done) as usize, source)? {
                0 => return Err(Errno::EFAULT),
                more => done += more as u64,
            }
        }
        let whole = (before + count).div_ceil(PAGE);
        self.store(page, FrameSpan::new(run.start(), whole))?;
        Ok(count as usize)
    }
}

impl Cell {
    fn new(config: Config, unit: Order) -> Result<Self> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(config.scratch_bytes()).map_err(|_| Errno::ENOMEM)?;
        bytes.resize(config.scratch_bytes(), 0);
        // It is there for as long as the machine runs.
        let (bytes, table) = (bytes.leak(), Box::leak(Box::<Table>::default()));
        let lender = Frames { lent: Vec::new(), free: Vec::new(), spare: Vec::new(), spares: 0 };
        let scratch = Scratch { table, bytes };
        let mut pool = Pool::new(config, lender, scratch).map_err(|_| Errno::EINVAL)?;
        let spares = pool.store_pages_max(unit) as usize;
        let lender = pool.lender_mut();
        lender.spare.try_reserve_exact(spares).map_err(|_| Errno::ENOMEM)?;
        for _ in 0..spares {
            lender.spare.push(frames(Order::ZERO)?);
        }
        lender.spares = spares;
        Ok(Self { pool, still: frames(unit)? })
    }

    /// Stores a part of a unit, `from`, which may change meanwhile, by aligned runs.
    fn store(&mut self, slot: u64, from: FrameSpan) -> Result<()> {
        mm().hardware().copy(&self.still, 0, from).map_err(|_| Errno::EIO)?;
        let bytes = device::bytes(&self.still);
        let mut done = 0;
        while done < from.count {
            let most = (slot + done).trailing_zeros().min((from.count - done).ilog2());
            let order = Order::new(most as u8);
            let part = (done * PAGE) as usize..((done + order.pages()) * PAGE) as usize;
            let stored = self.pool.store(slot + done, order, &bytes[part]);
            stored.map_err(|error| match error {
                Error::NoMemory { .. } => Errno::ENOMEM,
                _ => Errno::EIO,
            })?;
            done += order.pages();
        }
        Ok(())
    }
}

impl Instant for Packed {
    fn claims(&self) -> &Claims {
        &self.claims
    }

    fn store(&self, page: u64, from: FrameSpan) -> Result<()> {
        self.each(page, from.count, |cell, slot, count, done| {
            cell.store(slot, FrameSpan::new(from.start.add(done), count))
        })
    }

    fn load(&self, page: u64, read: &mut cache::Read) -> Result<()> {
        let (count, bytes) = (read.frames().count(), device::bytes_of_read(read));
        self.each(page, count, |cell, slot, count, done| {
            let part = (done * PAGE) as usize..((done + count) * PAGE) as usize;
            cell.pool.load(slot, count, &mut bytes[part]).map_err(|_| Errno::EIO)
        })
    }

    fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    fn sweep(&self, next: &dyn Fn(Range<u64>) -> Option<Range<u64>>) {
        let (mut page, end) = (1, self.length / PAGE);
        while page < end {
            let stop = (page + CLUSTER).min(end);
            // A page that is free now, under this lock, is stored under it, too, if it is taken.
            let mut cell = self.pool_of(FIRST + page).lock();
            while let Some(free) = next(page..stop) {
                let count = free.end - free.start;
                let freed = cell.pool.free(FIRST + free.start, count).unwrap_or_default();
                self.held.fetch_sub(freed, Ordering::Relaxed);
                page = free.end;
            }
            page = stop;
        }
    }
}

impl Stored for Packed {
    fn length(&self) -> u64 {
        self.length
    }

    fn held_bytes(&self) -> u64 {
        0
    }

    fn want(&self, _: &Caller<'_>, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn read_at(&self, _: &Caller<'_>, offset: u64, into: &mut [u8]) -> Result<usize> {
        let there = self.length.saturating_sub(offset).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < there {
            let at = offset + done as u64;
            let count = (PAGE - at % PAGE).min((there - done) as u64) as usize;
            let (whole, from) = (self.page(at / PAGE)?, (at % PAGE) as usize);
            into[done..done + count].copy_from_slice(&whole[from..from + count]);
            done += count;
        }
        Ok(there)
    }
}

impl Block for Packed {
    fn number(&self) -> Number {
        NUMBER
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn is_claimed(&self) -> bool {
        !self.claims.is_claimed(Claim::None)
    }

    fn write_at(&self, _: &Caller<'_>, offset: u64, source: &mut dyn Source) -> Result<usize> {
        self.claims.refuse()?;
        memory::admit()?;
        let mut run = frames(self.unit)?;
        let _one = self.writer.lock();
        let taken = self.take(offset, &mut run, source);
        mm().phys().free(isa::cpu(), run);
        taken
    }

    fn sync(&self, _: &Caller<'_>) -> Result<()> {
        Ok(())
    }
}
