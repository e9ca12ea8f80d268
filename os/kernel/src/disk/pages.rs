//! Pages of the disk in memory: the bytes that files and names are made of.
//!
//! ```text
//!             want                      answered
//!   absent ──────────► reading ───┬────────────────► there ── room is needed ──► absent
//!             a run of pages      │ a run failed
//!      ┌──────────────────────────┴─► alone ── want ──► trying ── failed ──► failed
//!      └──────────────── the next reader of it gets EIO ◄─────────────────────┘
//! ```
//!
//! A run that fails is read again page by page, and one at a time, as a device may make one request
//! of neighbours: so one bad sector is the error of one page. Reporting an error clears it: the
//! next read asks the disk again.
//!
//! Writes ([`block`](super::block)) go to the disk at once, and leave the cache. Until they are
//! there, a reader waits.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use core::ops::Range;

use quire::hw::FrameRun;
use quire::units::Order;
use quire_linux::ext4::{Blocks, File};
use quire_linux::files::{Caller, Stored};
use quire_linux::{Errno, Result, Waiters};
use spin::mutex::SpinMutex;

use super::device::{self, Disk, Read, Reader, SECTOR, Target};
use super::files;
use crate::memory::{PAGE, mm};

/// Pages that are read at once: 64 KiB.
const RUN: Order = Order::new(4);
const RUN_PAGES: u64 = RUN.pages();

/// One part in this number of the frames that are free when the disk is opened may hold pages of
/// it.
const SHARE: u64 = 4;

/// Frames that the cache leaves to code that cannot reclaim: 4 MiB.
const SPARE: u64 = 1024;

/// The state of a page; a page without one is absent.
pub(super) enum Page {
    Reading,
    There(FrameRun),
    /// It was in a run that failed: it is to be read by itself.
    Alone,
    /// It is being read by itself.
    Trying,
    /// It could not be read, and the error is not reported yet.
    Failed,
    /// It is being written.
    Writing,
}

#[derive(Default)]
pub(super) struct Known {
    pub(super) pages: BTreeMap<u64, Page>,
    /// How many have frames, or will.
    held: u64,
    /// Writes that the disk has not answered.
    pub(super) writes: usize,
    /// Some could not be written, and the error is not reported yet.
    pub(super) has_lost: bool,
    /// Whether a page is being read by itself.
    tries: bool,
    /// Where the search for a page to give up goes on.
    hand: u64,
}

/// Pages of a disk.
pub(crate) struct Pages {
    pub(super) disk: &'static Disk,
    pub(super) known: SpinMutex<Known>,
    pub(super) waiters: Waiters,
    /// The most pages that may be held.
    most: u64,
    /// Itself, for the answers.
    pub(super) own: alloc::sync::Weak<Self>,
}

impl Pages {
    /// No pages of `disk` yet.
    pub(crate) fn new(disk: &'static Disk) -> Arc<Self> {
        let most = (mm().phys().free_frames() / SHARE).max(4 * RUN_PAGES);
        Arc::new_cyclic(|own| Self {
            disk,
            known: SpinMutex::new(Known::default()),
            waiters: Waiters::new(),
            most,
            own: own.clone(),
        })
    }

    /// The page after the last one.
    fn end(&self) -> u64 {
        self.disk.length().div_ceil(PAGE)
    }

    /// Asks for all pages of `span` that are absent; whether all are there already.
    pub(super) fn ask(&self, known: &mut Known, span: Range<u64>) -> Result<bool> {
        let mut at = span.start;
        let mut is_whole = true;
        while at < span.end {
            match known.pages.get(&at) {
                Some(Page::There(_)) => {}
                Some(Page::Reading | Page::Trying | Page::Writing) => is_whole = false,
                Some(Page::Failed) => {
                    known.pages.insert(at, Page::Alone);
                    return Err(Errno::EIO);
                }
                Some(Page::Alone) => {
                    is_whole = false;
                    if !known.tries {
                        self.start(known, at..at + 1)?;
                        known.tries = true;
                        known.pages.insert(at, Page::Trying);
                    }
                }
                None => {
                    is_whole = false;
                    let end = known.absent(at..span.end.min(at + RUN_PAGES));
                    self.start(known, at..end)?;
                    at = end;
                    continue;
                }
            }
            at += 1;
        }
        Ok(is_whole)
    }

    /// Asks for a page that is not there, and if it is absent for absent neighbours: they will be
    /// wanted, too.
    fn ask_around(&self, known: &mut Known, page: u64) -> Result<()> {
        if known.pages.contains_key(&page) {
            return self.ask(known, page..page + 1).map(drop);
        }
        let (first, last) = (page - page % RUN_PAGES, (page / RUN_PAGES + 1) * RUN_PAGES);
        let below = known.pages.range(first..page).next_back();
        let start = below.map_or(first, |(page, _)| page + 1);
        let end = known.absent(page..last.min(self.end()));
        self.start(known, start..end)
    }

    /// Reads a run of pages, all of them absent or alone.
    fn start(&self, known: &mut Known, span: Range<u64>) -> Result<()> {
        let count = span.end - span.start;
        let frames = self.frames(known, count)?;
        let at = span.start * PAGE;
        let bytes = (count * PAGE).min(self.disk.length() - at);
        let reader = self.own.upgrade().ok_or(Errno::EIO)?;
        let target = Target::Own(frames);
        let read = Read { name: span.start, at, bytes: bytes - bytes % SECTOR, target, reader };
        if let Err(Read { target: Target::Own(frames), .. }) = self.disk.submit(read) {
            mm().phys().free(frames);
            return Err(Errno::ENOMEM);
        }
        known.held += count;
        known.pages.extend(span.map(|page| (page, Page::Reading)));
        Ok(())
    }

    /// Frames for `count` pages; reclaims other pages for them if need be.
    fn frames(&self, known: &mut Known, count: u64) -> Result<FrameRun> {
        while known.held + count > self.most || !mm().phys().has_free(SPARE + count) {
            known.give_up()?;
        }
        let order = Order::fitting(count.next_power_of_two()).unwrap_or(RUN);
        loop {
            if let Some(run) = mm().phys().alloc(order) {
                let (run, rest) = run.split_at(count);
                mm().phys().free(rest);
                return Ok(run);
            }
            known.give_up()?;
        }
    }

    /// Registers a call that lacks pages as a waiter. With `known` locked, so that no answer comes
    /// in between.
    pub(super) fn block(&self, who: &Caller<'_>) -> Errno {
        self.waiters.add(who.wake).err().unwrap_or(Errno::BLOCKED)
    }
}

impl Known {
    /// Where the absent pages from the beginning of `span` on end.
    fn absent(&self, span: Range<u64>) -> u64 {
        self.pages.range(span.clone()).next().map_or(span.end, |(page, _)| *page)
    }

    /// Gives up a page that is there, the next one in the order of numbers.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`] when there is none.
    fn give_up(&mut self) -> Result<()> {
        let is_there = |(page, what): (&u64, &Page)| match what {
            Page::There(_) => Some(*page),
            _ => None,
        };
        let later = self.pages.range(self.hand..).find_map(is_there);
        let page = later.or_else(|| self.pages.range(..self.hand).find_map(is_there));
        let page = page.ok_or(Errno::ENOMEM)?;
        self.hand = page + 1;
        self.drop_page(page);
        Ok(())
    }

    /// Forgets a page, and frees its frame if it has one.
    pub(super) fn drop_page(&mut self, page: u64) {
        if let Some(Page::There(frame)) = self.pages.remove(&page) {
            mm().phys().free(frame);
            self.held -= 1;
        }
    }

    /// Whether the disk was asked for a page of `span`, or is given one, and has not answered.
    pub(super) fn is_busy(&self, span: Range<u64>) -> bool {
        let mut pages = self.pages.range(span);
        pages.any(|(_, page)| matches!(page, Page::Reading | Page::Trying | Page::Writing))
    }
}

impl Reader for Pages {
    fn finished(&self, first: u64, target: Target, result: Result<()>) {
        let frames = match target {
            Target::Own(frames) => frames,
            Target::Out(frames) => return self.written(first, frames, result),
            Target::Part(_) | Target::Kept(_) | Target::Moved(_) => return,
        };
        let count = frames.count();
        let mut known = self.known.lock();
        let tried = matches!(known.pages.get(&first), Some(Page::Trying));
        known.tries &= !tried;
        if result.is_ok() {
            let mut rest = frames;
            for page in first..first + count {
                let (frame, behind) = rest.split_at(1);
                known.pages.insert(page, Page::There(frame));
                rest = behind;
            }
            // None are left.
            mm().phys().free(rest);
        } else {
            known.held -= count;
            for page in first..first + count {
                let becomes = if tried { Page::Failed } else { Page::Alone };
                known.pages.insert(page, becomes);
            }
            mm().phys().free(frames);
        }
        drop(known);
        self.waiters.wake();
    }
}

impl Blocks for Pages {
    fn length(&self) -> u64 {
        self.disk.length()
    }

    fn want(&self, who: &Caller<'_>, at: u64, bytes: u64) -> Result<()> {
        let end = at.saturating_add(bytes).div_ceil(PAGE).min(self.end());
        let span = at / PAGE..end;
        // Pages that cannot all be there at once would be read for ever.
        if end.saturating_sub(span.start) > self.most / 2 {
            return Err(Errno::ENOMEM);
        }
        let mut known = self.known.lock();
        match self.ask(&mut known, span)? {
            true => Ok(()),
            false => Err(self.block(who)),
        }
    }

    fn read(&self, who: &Caller<'_>, at: u64, into: &mut [u8]) -> Result<()> {
        let end = at.checked_add(into.len() as u64).filter(|end| *end <= self.length());
        end.ok_or(Errno::EIO)?;
        let mut known = self.known.lock();
        let mut done = 0;
        while done < into.len() {
            let from = at + done as u64;
            let page = from / PAGE;
            let Some(Page::There(frame)) = known.pages.get(&page) else {
                self.ask_around(&mut known, page)?;
                return Err(self.block(who));
            };
            let count = (PAGE - from % PAGE).min((into.len() - done) as u64) as usize;
            device::copy(frame, from % PAGE, &mut into[done..done + count]);
            done += count;
        }
        Ok(())
    }

    fn file(&self, file: File) -> Arc<dyn Stored> {
        files::open(file)
    }
}
