//! Disks as block devices: `/dev/vda` and so on.
//!
//! ```text
//!   write(2) ──► the pages are `Writing` ──► frames of its own ──► the disk ──► forgotten
//!                  readers of one of them wait                        fsync waits for all
//! ```
//!
//! A write of a part of a page needs the rest of it, which is read before.

use alloc::sync::Arc;
use core::ops::Range;

use quire::hw::FrameRun;
use quire::units::Order;
use quire_linux::ext4::Blocks;
use quire_linux::files::{Block, Caller, Number, Source, Stored};
use quire_linux::{Errno, Result};
use spin::Once;

use super::claim::Claim;
use super::device::{self, Disk, Read, SECTOR, Target, disk};
use super::pages::{Page, Pages};
use crate::isa::DISKS_MAX;
use crate::memory::{self, PAGE, mm};

/// The major number of disks: as on Linux with nothing but virtio's.
const MAJOR: u32 = 254;

/// Minor numbers that each disk has, for partitions.
const MINORS: u32 = 16;

/// The most that one request writes: 256 KiB.
const PIECE: u64 = 64 * PAGE;

/// The most writes that the disk has not answered.
const WRITES: usize = 32;

static PAGES: [Once<Arc<Pages>>; DISKS_MAX] = [const { Once::new() }; DISKS_MAX];

/// The cached pages of disk `number`, if there is one.
pub(crate) fn pages(number: usize) -> Option<&'static Arc<Pages>> {
    let disk = disk(number)?;
    Some(PAGES.get(number)?.call_once(|| Pages::new(disk)))
}

/// The device that a name in `/dev` means.
pub(crate) fn number_of(name: &str) -> Option<usize> {
    match name.strip_prefix("/dev/vd")?.as_bytes() {
        [letter @ b'a'..=b'z'] => Some(usize::from(letter - b'a')),
        _ => None,
    }
}

/// The disk of this name in `/dev`, if there is one.
pub(super) fn disk_of(name: &str) -> Option<&'static Disk> {
    NAMES.iter().position(|known| *known == name).and_then(disk)
}

const NAMES: [&str; DISKS_MAX] = ["vda", "vdb", "vdc", "vdd"];

/// All disks, by their names in `/dev`.
pub(crate) fn nodes() -> impl Iterator<Item = (&'static str, Arc<dyn Block>)> {
    NAMES.into_iter().enumerate().filter_map(|(number, name)| {
        let pages = pages(number)?.clone();
        Some((name, Arc::new(Node { number, pages }) as Arc<dyn Block>))
    })
}

/// A disk as a file.
struct Node {
    number: usize,
    pages: Arc<Pages>,
}

/// Which disk has these numbers.
pub(crate) fn of_number((major, minor): Number) -> Option<usize> {
    (major == MAJOR).then_some((minor / MINORS) as usize)
}

impl Stored for Node {
    fn length(&self) -> u64 {
        self.pages.disk.length()
    }

    fn held_bytes(&self) -> u64 {
        0
    }

    fn want(&self, who: &Caller<'_>, offset: u64, bytes: u64) -> Result<()> {
        Blocks::want(&*self.pages, who, offset, bytes)
    }

    fn read_at(&self, who: &Caller<'_>, offset: u64, into: &mut [u8]) -> Result<usize> {
        let there = self.length().saturating_sub(offset).min(into.len() as u64) as usize;
        Blocks::read(&*self.pages, who, offset, &mut into[..there])?;
        Ok(there)
    }
}

impl Block for Node {
    fn number(&self) -> Number {
        (MAJOR, MINORS * self.number as u32)
    }

    fn is_read_only(&self) -> bool {
        self.pages.disk.is_read_only()
    }

    fn is_claimed(&self) -> bool {
        !self.pages.disk.claims().is_claimed(Claim::None)
    }

    fn write_at(&self, who: &Caller<'_>, offset: u64, source: &mut dyn Source) -> Result<usize> {
        self.pages.disk.claims().refuse()?;
        self.pages.write(who, offset, source)
    }

    fn sync(&self, who: &Caller<'_>) -> Result<()> {
        self.pages.sync(who)
    }
}

impl Pages {
    /// Takes bytes from the source for `at`, below the end of the disk; how many.
    fn write(&self, who: &Caller<'_>, at: u64, source: &mut dyn Source) -> Result<usize> {
        memory::admit()?;
        let left = self.disk.length().saturating_sub(at);
        let mut frames = frames(at % PAGE + left.min(source.left() as u64))?;
        let room = frames.count() * PAGE - at % PAGE;
        let bytes = room.min(left).min(source.left() as u64) as usize;
        let span = at / PAGE..at / PAGE + frames.count();
        let filled = match self.begin(who, at, bytes, &mut frames) {
            Ok(()) => take(&mut frames, at % PAGE, bytes, source),
            Err(error) => {
                mm().phys().free(frames);
                return Err(error);
            }
        };
        let length = (span.end * PAGE).min(self.disk.length()) - span.start * PAGE;
        let reader = self.own.upgrade().ok_or(Errno::EIO)?;
        let (name, start, target) = (span.start, span.start * PAGE, Target::Out(frames));
        let write = Read { name, at: start, bytes: length - length % SECTOR, target, reader };
        let refused = match filled {
            Ok(()) => self.disk.submit(write).err().map(|write| (write, Errno::ENOMEM)),
            Err(error) => Some((write, error)),
        };
        match refused {
            None => Ok(bytes),
            Some((Read { target: Target::Out(frames), .. }, error)) => {
                self.written(span.start, frames, Ok(()));
                Err(error)
            }
            Some((_, error)) => Err(error),
        }
    }

    /// Takes the pages of a write: from now on a reader of one waits. The frames hold the old bytes
    /// that the write does not cover.
    fn begin(&self, who: &Caller<'_>, at: u64, bytes: usize, frames: &mut FrameRun) -> Result<()> {
        let mut known = self.known.lock();
        let span = at / PAGE..at / PAGE + frames.count();
        let end = at + bytes as u64;
        let is_part =
            |page: u64| page * PAGE < at || end < ((page + 1) * PAGE).min(self.disk.length());
        if known.writes >= WRITES || known.is_busy(span.clone()) {
            return Err(self.block(who));
        }
        for page in span.clone().filter(|page| is_part(*page)) {
            if !self.ask(&mut known, page..page + 1)? {
                return Err(self.block(who));
            }
            if let Some(Page::There(frame)) = known.pages.get(&page) {
                let (mut old, ahead) = ([0; 512], (page - span.start) * PAGE);
                for step in (0..PAGE).step_by(old.len()) {
                    device::copy(frame, step, &mut old);
                    device::fill(frames, ahead + step, old.len(), &mut &old[..])?;
                }
            }
        }
        for page in span {
            known.drop_page(page);
            known.pages.insert(page, Page::Writing);
        }
        known.writes += 1;
        Ok(())
    }

    /// A write is over.
    pub(super) fn written(&self, first: u64, frames: FrameRun, result: Result<()>) {
        let mut known = self.known.lock();
        for page in first..first + frames.count() {
            known.pages.remove(&page);
        }
        known.writes -= 1;
        known.has_lost |= result.is_err();
        drop(known);
        mm().phys().free(frames);
        self.waiters.wake();
    }

    /// Waits for all writes.
    ///
    /// # Errors
    /// [`Errno::BLOCKED`]; [`Errno::EIO`] when some did not go well, once.
    pub(super) fn sync(&self, who: &Caller<'_>) -> Result<()> {
        let mut known = self.known.lock();
        if known.writes > 0 {
            return Err(self.block(who));
        }
        match core::mem::take(&mut known.has_lost) {
            true => Err(Errno::EIO),
            false => Ok(()),
        }
    }

    /// Forgets all pages: another user will change the disk, or has.
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync), and [`Errno::BLOCKED`] as long as some are being read.
    pub(super) fn forget(&self, who: &Caller<'_>) -> Result<()> {
        self.sync(who)?;
        let mut known = self.known.lock();
        let all: Range<u64> = 0..u64::MAX;
        if known.is_busy(all) {
            return Err(self.block(who));
        }
        while let Some(page) = known.pages.keys().next().copied() {
            known.drop_page(page);
        }
        Ok(())
    }
}

/// Frames for at most `bytes` bytes; fewer when memory is in pieces.
fn frames(bytes: u64) -> Result<FrameRun> {
    let count = bytes.min(PIECE).div_ceil(PAGE).max(1);
    let most = Order::fitting(count.next_power_of_two()).unwrap_or_default();
    for order in (0..=most.get()).rev().map(Order::new) {
        if let Some(run) = mm().phys().alloc(order) {
            let (run, rest) = run.split_at(count.min(order.pages()));
            mm().phys().free(rest);
            return Ok(run);
        }
    }
    Err(Errno::ENOMEM)
}

/// Fills `bytes` bytes of the frames from byte `at` on.
///
/// # Errors
/// [`Errno::EFAULT`] when the source has fewer.
fn take(frames: &mut FrameRun, at: u64, bytes: usize, source: &mut dyn Source) -> Result<()> {
    let mut done = 0;
    while done < bytes {
        match device::fill(frames, at + done as u64, bytes - done, source)? {
            0 => return Err(Errno::EFAULT),
            count => done += count,
        }
    }
    Ok(())
}
