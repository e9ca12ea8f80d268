//! Memory that programs did not touch for long stays in RAM, compressed.
//!
//! ```text
//!   reclaim ──► pages leave ──► write_all: copied, compressed ──► frames of the pools
//!   a fault ──► Need::Read ──► read: decompressed into frames of the library's
//! ```
//!
//! Slots that become free keep their compressed bytes until a sweep; several pools, each for
//! clusters of slots by turns, serve CPUs side by side.

use alloc::boxed::Box;
use alloc::vec::Vec;

use quire::cache::{FILE_PAGES_MAX, FilePages, Read, Reads};
use quire::hw::{FrameRun, Memory};
use quire::space::{FileId, Space};
use quire::units::{FrameSpan, Order};
use quire::{Error, ReadFailed, Watermarks, WriteFailed};
use quire_zpool::{Config, Lender, PageId, Pool, Scratch, Table};
use spin::Once;
use spin::mutex::SpinMutex;

use crate::board::{Format, PAGE_SHIFT, System, bytes, bytes_mut, bytes_of_read, mm};
use crate::home::{Everyone, bury};

/// How many pools there are.
const POOLS: u64 = 4;
/// Slots of a cluster, which one pool has: as many as the largest folio that leaves in one piece.
const CLUSTER: u64 = 512;
/// Pages that are compressed as one: 64 KiB suit folios best.
const UNIT: Order = Order::new(4);
/// Pages that leave at a time: 1 MiB.
const BATCH: u64 = 256;
/// Frames that programs leave to reclaim itself: tables of the device, and stores.
const LAST: u64 = 256;
/// One part in this number of all slots, or this number, may be free and still take memory.
const STALE: u64 = 128;

const ALL: FilePages = FilePages::new(0, FILE_PAGES_MAX);
/// No space maps slots.
const NO_SPACES: &[&Space<Format>] = &[];

/// The device.
struct Device {
    id: FileId,
    slots: u64,
    pools: [SpinMutex<Cell>; POOLS as usize],
    marks: Watermarks,
    /// Held by the CPU that reclaims.
    at_it: SpinMutex<()>,
}

/// A pool, and the frames in which a unit does not change while it is compressed.
struct Cell {
    pool: Pool<'static, Frames>,
    still: FrameRun,
}

static DEVICE: Once<Device> = Once::new();

/// The frames of a pool, by their places in a list.
#[derive(Default)]
struct Frames {
    lent: Vec<Option<FrameRun>>,
    free: Vec<u32>,
    /// Frames for a store when memory is short: paging out must go on then.
    spare: Vec<FrameRun>,
    spares: usize,
}

fn frame() -> Option<FrameRun> {
    mm()?.phys().alloc(Order::ZERO).map(FrameRun::dirtied)
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
        let run = frame().or_else(|| self.spare.pop())?;
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
        } else if let Some(mm) = mm() {
            mm.phys().free(run);
        }
    }

    fn bytes(&self, page: PageId) -> &[u8] {
        self.lent.get(page.number() as usize - 1).and_then(Option::as_ref).map_or(&[], bytes)
    }

    fn bytes_mut(&mut self, page: PageId) -> &mut [u8] {
        let run = self.lent.get_mut(page.number() as usize - 1).and_then(Option::as_mut);
        run.map_or(&mut [], bytes_mut)
    }
}

impl Cell {
    fn new(slots: u64) -> Result<Self, Error> {
        let none = Error::NoMemory(Order::ZERO);
        let config = Config::new(PAGE_SHIFT, 1 << (PAGE_SHIFT + UNIT.get() as u32), 0, slots)
            .map_err(|_| Error::Invalid)?;
        // They are there for as long as the machine runs.
        let (bytes, table) =
            (alloc::vec![0; config.scratch_bytes()].leak(), Box::leak(Box::<Table>::default()));
        let mut pool = Pool::new(config, Frames::default(), Scratch { table, bytes })
            .map_err(|_| Error::Invalid)?;
        let spares = pool.store_pages_max(UNIT) as usize;
        let lender = pool.lender_mut();
        lender.spare.extend((0..spares).map_while(|_| frame()));
        lender.spares = spares;
        let still = mm().and_then(|mm| mm.phys().alloc(UNIT)).ok_or(none)?;
        Ok(Self { pool, still: still.dirtied() })
    }
}

/// Makes a device for `size` bytes of programs' memory, once.
///
/// # Errors
/// [`Error::NoMemory`], [`Error::Invalid`] for a size that no device has.
pub fn swap_on(size: u64) -> Result<(), Error> {
    let mm = mm().ok_or(Error::Invalid)?;
    let slots = size >> PAGE_SHIFT;
    let frames = mm.phys().free_frames();
    let cells = [Cell::new(slots)?, Cell::new(slots)?, Cell::new(slots)?, Cell::new(slots)?];
    let id = mm.paging().swap_on(slots)?;
    mm.policy().set_spare(LAST);
    let marks = mm.reclaim().watermarks(frames);
    let pools = cells.map(SpinMutex::new);
    DEVICE.call_once(|| Device { id, slots, pools, marks, at_it: SpinMutex::new(()) });
    Ok(())
}

/// Slots, and how many of them are used.
pub fn swap_slots() -> (u64, u64) {
    let used = |mm: &System| mm.paging().devices().map(|(_, _, used)| used).sum();
    (DEVICE.get().map_or(0, |device| device.slots), mm().map_or(0, used))
}

/// Reads what a fault lacks, if it is on the device.
///
/// # Errors
/// The request, if its pages are a file's.
pub fn swap_in(mut reads: Reads) -> Result<(), Reads> {
    let (Some(device), Some(mm)) = (DEVICE.get(), mm()) else { return Err(reads) };
    if device.id != reads.file() {
        return Err(reads);
    }
    while let Ok(Some(mut read)) = mm.files().next_read(&mut reads) {
        let done = device.load(&mut read);
        mm.files().read_done(read, done);
    }
    device.tidy(mm);
    Ok(())
}

/// Before a fault: keeps some memory free, if there is a device.
#[inline]
pub fn ease() {
    if let (Some(device), Some(mm)) = (DEVICE.get(), mm())
        && !mm.phys().has_free(device.marks.low)
        && let Some(_at_it) = device.at_it.try_lock()
    {
        let lacks = device.marks.high.saturating_sub(mm.phys().free_frames());
        device.take(mm, lacks.min(4 * BATCH));
    }
}

/// Frees some memory for a call that found none; whether there is more than before, perhaps.
pub fn relieve() -> bool {
    let Some(mm) = mm() else { return false };
    bury();
    let Some(device) = DEVICE.get() else {
        return mm.reclaim().reclaim(BATCH, &Everyone).pages() > 0;
    };
    let _at_it = device.at_it.lock();
    // Another CPU may have freed enough meanwhile.
    mm.phys().has_free(device.marks.min) || device.take(mm, BATCH)
}

impl Device {
    /// Makes about `pages` pages leave; whether any did.
    fn take(&self, mm: &System, pages: u64) -> bool {
        let taken = mm.reclaim().reclaim(pages, &Everyone).pages();
        self.write_all(mm);
        taken > 0
    }

    /// Writes all that left and is not written. Where a pool takes no more, it stays in memory.
    fn write_all(&self, mm: &System) {
        let mut left = ALL;
        while let Ok(Some(write)) = mm.files().next_write(self.id, &mut left, NO_SPACES) {
            let done = self.store(mm, write.pages().start, write.frames());
            mm.files().write_done(write, done);
            if done.is_err() {
                break;
            }
        }
        self.tidy(mm);
    }

    /// Calls `act` for each part of these slots that is in one unit, with its pool, its first slot,
    /// and how many pages were before and are in it.
    fn each<E>(
        &self,
        first: u64,
        count: u64,
        mut act: impl FnMut(&mut Cell, u64, u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut done = 0;
        while done < count {
            let slot = first + done;
            let part = (UNIT.pages() - slot % UNIT.pages()).min(count - done);
            act(&mut self.pools[(slot / CLUSTER % POOLS) as usize].lock(), slot, done, part)?;
            done += part;
        }
        Ok(())
    }

    fn store(&self, mm: &System, first: u64, from: FrameSpan) -> Result<(), WriteFailed> {
        self.each(first, from.count, |cell, slot, before, count| {
            let part = FrameSpan::new(from.start.add(before), count);
            mm.hardware().copy(&cell.still, 0, part).map_err(|_| WriteFailed)?;
            let mut done = 0;
            while done < count {
                // Runs are aligned.
                let most = (slot + done).trailing_zeros().min((count - done).ilog2());
                let order = Order::new(most as u8);
                let at = |pages: u64| (pages << PAGE_SHIFT) as usize;
                let run = &bytes(&cell.still)[at(done)..at(done + order.pages())];
                cell.pool.store(slot + done, order, run).map_err(|_| WriteFailed)?;
                done += order.pages();
            }
            Ok(())
        })
    }

    fn load(&self, read: &mut Read) -> Result<(), ReadFailed> {
        let pages = read.pages();
        let into = bytes_of_read(read);
        self.each(pages.start, pages.count(), |cell, slot, before, count| {
            let at = |pages: u64| (pages << PAGE_SHIFT) as usize;
            let part = &mut into[at(before)..at(before + count)];
            cell.pool.load(slot, count, part).map_err(|_| ReadFailed)
        })
    }

    /// Forgets the bytes of free slots, if they are many.
    fn tidy(&self, mm: &System) {
        let held: u64 = self.pools.iter().map(|cell| cell.lock().pool.counters().slots).sum();
        if held <= swap_slots().1 + (self.slots / STALE).max(STALE) {
            return;
        }
        for first in (0..self.slots).step_by(CLUSTER as usize) {
            let mut slots = FilePages::new(first, (first + CLUSTER).min(self.slots));
            // Under this lock no slot that is free now gets a page.
            let mut cell = self.pools[(first / CLUSTER % POOLS) as usize].lock();
            while let Some(free) = mm.paging().free_slots(self.id, slots) {
                if cell.pool.free(free.start, free.count()).is_err() {
                    break;
                }
                slots.start = free.end;
            }
        }
    }
}
