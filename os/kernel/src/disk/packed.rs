//! Compressed memory as a device: `/dev/zram0`.
//!
//! ```text
//!   folio ── a unit of it ──► a copy that stays the same ──► the pool of its cluster ──► frames
//! ```
//!
//! A folio is compressed by units, not by pages; the boot word's `unit=` says how large these are.
//! Several pools, each with a lock and with memory to work in, serve CPUs side by side: a device's
//! clusters go to them by turns. A part of a page is written with the rest of it.
//!
//! With a disk behind it (`behind=`), a pool that has more frames than it may (`most=`) writes its
//! least recently used unit to the disk. Its pages are *away* then: they have the same places on
//! the disk. A page that is stored or forgotten meanwhile stays here.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use quire::cache;
use quire::hw::{FrameRun, Memory};
use quire::units::{FrameSpan, Order};
use quire_linux::files::{Block, Caller, Number, Source, Stored};
use quire_linux::{Errno, Result};
use quire_zpool::{ColdRun, Config, Error, Lender, PageId, Pool, Scratch, Table};
use spin::mutex::SpinMutex;

use super::behind::{Away, Behind, Leaving};
use super::claim::{Claim, Claims};
use super::device;
use super::instant::{Instant, frames};
use crate::memory::{self, PAGE, PAGE_SHIFT, mm};

/// Linux's first dynamic number, which zram has there, too.
const NUMBER: Number = (253, 0);

/// How many pools there are.
const POOLS: u64 = 4;

/// Pages of a cluster, which one pool has: as many as the largest folio that leaves in one piece.
const CLUSTER: u64 = 512;

/// The slot of page 0, which is a swap header: so page 1 begins a cluster.
pub(super) const FIRST: u64 = CLUSTER - 1;

/// A device of compressed memory.
pub(super) struct Packed {
    pools: Vec<SpinMutex<Cell>>,
    /// How many pages hold something.
    held: AtomicU64,
    length: u64,
    unit: Order,
    behind: Option<Behind>,
    claims: Claims,
    /// Programs write one after the other: two that write parts of one page would lose one.
    writer: SpinMutex<()>,
}

/// A pool, and the frames into which a unit is copied before it is compressed: the source must not
/// change meanwhile.
struct Cell {
    pool: Pool<'static, Frames>,
    still: FrameRun,
    /// Where there is a disk behind: the frames that a unit goes there from, but while one goes.
    out: Option<FrameRun>,
    /// The slots of that unit, unless they were given something else meanwhile.
    leaving: Option<Range<u64>>,
}

/// The frames of a pool, by their places in a list.
struct Frames {
    lent: Vec<Option<FrameRun>>,
    free: Vec<u32>,
    /// Frames for a store when memory is short: paging out must go on then.
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
            mm().phys().free(run);
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
    /// One of `bytes` bytes, whole pages, that compresses `unit` bytes as one, with this behind it.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when that is no unit; [`Errno::ENOMEM`].
    pub(super) fn new(bytes: u64, unit: u64, behind: Option<Behind>) -> Result<Self> {
        let (unit_bytes, slots) = (unit as usize, bytes / PAGE);
        let config = Config::new(PAGE_SHIFT, unit_bytes, FIRST, slots);
        let config = config.map_err(|_| Errno::EINVAL)?;
        let unit = Order::of_bytes(unit, PAGE_SHIFT).ok_or(Errno::EINVAL)?;
        let mut pools = Vec::new();
        pools.try_reserve_exact(POOLS as usize).map_err(|_| Errno::ENOMEM)?;
        for _ in 0..POOLS {
            pools.push(SpinMutex::new(Cell::new(config, unit, behind.is_some())?));
        }
        let (held, claims, writer) = Default::default();
        Ok(Self { pools, held, length: bytes, unit, behind, claims, writer })
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

    /// Page `page`; zeroes where it was not written. Only the swap device can read a page that is
    /// away.
    fn page(&self, page: u64) -> Result<[u8; PAGE as usize]> {
        let mut whole = [0; PAGE as usize];
        self.each(page, 1, |cell, slot, _, _| match cell.pool.load(slot, 1, &mut whole) {
            Ok(()) => Ok(()),
            Err(Error::Absent { .. }) if !self.behind.as_ref().is_some_and(|b| b.has(slot)) => {
                Ok(())
            }
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
        // The bytes of the first and the last page outside the write stay.
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
    fn new(config: Config, unit: Order, leaves: bool) -> Result<Self> {
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
        let out = if leaves { Some(frames(unit)?) } else { None };
        Ok(Self { pool, still: frames(unit)?, out, leaving: None })
    }

    /// Slots get other content, or none.
    fn change(&mut self, slots: Range<u64>, behind: Option<&Behind>) {
        let overlaps =
            |leaving: &mut Range<u64>| leaving.start < slots.end && slots.start < leaving.end;
        self.leaving.take_if(|leaving| overlaps(leaving));
        if let Some(behind) = behind {
            behind.bring(slots);
        }
    }

    /// Fills `bytes` with slots as far as they are here; the others go into `away`, in which the
    /// first is number `done`.
    fn load(
        &mut self,
        slots: Range<u64>,
        bytes: &mut [u8],
        behind: Option<&Behind>,
        (away, done): (&mut Away, u64),
    ) -> Result<()> {
        let mut slot = slots.start;
        while slot < slots.end {
            let is_away = |slot| behind.is_some_and(|behind| behind.has(slot));
            let goes = is_away(slot);
            let end = (slot..slots.end).find(|&slot| is_away(slot) != goes).unwrap_or(slots.end);
            let ahead = slot - slots.start;
            if goes {
                away.add(done + ahead..done + end - slots.start);
            } else {
                let part = (ahead * PAGE) as usize..((end - slots.start) * PAGE) as usize;
                let loaded = self.pool.load(slot, end - slot, &mut bytes[part]);
                loaded.map_err(|_| Errno::EIO)?;
            }
            slot = end;
        }
        Ok(())
    }

    /// Takes a copy of the coldest unit in use, if there are more than `most` frames: its slots,
    /// and the copy. Free slots, which `next` names, give up their memory on the way.
    fn leave(
        &mut self,
        most: u64,
        next: &dyn Fn(Range<u64>) -> Option<Range<u64>>,
    ) -> Option<(Range<u64>, FrameRun)> {
        let mut passed = false;
        while self.pool.counters().data_pages > most && self.out.is_some() {
            let mut runs = [ColdRun::default()];
            let found = self.pool.coldest(&mut runs);
            let cold = runs[..found].first()?;
            let slots = cold.first..cold.first + cold.count;
            // The header stays where it is found; when it comes again, there is nothing else.
            if slots.start == FIRST {
                if core::mem::replace(&mut passed, true) {
                    return None;
                }
                continue;
            }
            if let Some(free) = next(slots.start - FIRST..slots.end - FIRST) {
                self.pool.free(FIRST + free.start, free.end - free.start).ok()?;
                continue;
            }
            let mut out = self.out.take()?;
            let bytes = &mut device::bytes_mut(&mut out)[..(cold.count * PAGE) as usize];
            if self.pool.load(cold.first, cold.count, bytes).is_err() {
                self.out = Some(out);
                return None;
            }
            self.leaving = Some(slots.clone());
            return Some((slots, out));
        }
        None
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
            cell.change(slot..slot + count, self.behind.as_ref());
            cell.store(slot, FrameSpan::new(from.start.add(done), count))
        })
    }

    fn load(&self, page: u64, read: &mut cache::Read) -> Result<Away> {
        let (count, bytes) = (read.frames().count(), device::bytes_of_read(read));
        let mut away = Away::default();
        self.each(page, count, |cell, slot, count, done| {
            let part = (done * PAGE) as usize..((done + count) * PAGE) as usize;
            let slots = slot..slot + count;
            cell.load(slots, &mut bytes[part], self.behind.as_ref(), (&mut away, done))
        })?;
        Ok(away)
    }

    fn behind(&self) -> Option<&Behind> {
        self.behind.as_ref()
    }

    fn leave(
        &self,
        number: usize,
        next: &dyn Fn(Range<u64>) -> Option<Range<u64>>,
    ) -> Option<Leaving> {
        let most = self.behind.as_ref()?.most() / POOLS;
        let mut cell = self.pools.get(number)?.lock();
        let before = cell.pool.counters().slots;
        let left = cell.leave(most, next);
        let freed = before.wrapping_sub(cell.pool.counters().slots);
        self.held.fetch_sub(freed, Ordering::Relaxed);
        let (slots, frames) = left?;
        Some(Leaving { page: slots.start - FIRST, count: slots.end - slots.start, frames })
    }

    fn left(&self, number: usize, frames: FrameRun, is_there: bool) {
        let (Some(behind), Some(cell)) = (&self.behind, self.pools.get(number)) else { return };
        let mut cell = cell.lock();
        cell.out = Some(frames);
        if let Some(slots) = cell.leaving.take().filter(|_| is_there) {
            let freed = cell.pool.free(slots.start, slots.end - slots.start).unwrap_or_default();
            self.held.fetch_sub(freed, Ordering::Relaxed);
            behind.take(slots);
        }
    }

    fn pools(&self) -> usize {
        self.pools.len()
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
                cell.change(FIRST + free.start..FIRST + free.end, self.behind.as_ref());
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
        mm().phys().free(run);
        taken
    }

    fn sync(&self, _: &Caller<'_>) -> Result<()> {
        Ok(())
    }
}
