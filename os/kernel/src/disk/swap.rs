//! Swap devices: block devices with a header of version 1, and the pages that go there and come
//! back.
//!
//! ```text
//!   page 0 of the disk: the header        page n + 1: slot n, which is page n of a file
//!
//!   page_out ──► begin_writing ──► next_write ──► the disk ──► write_done: memory is free
//!                                      ▲                            │
//!                                      └── while any is dirty ◄─────┘
//!   fault ──► Unread ──► start ──► the disk ──► read_done
//! ```
//!
//! Writing to a disk needs no memory, and goes on by itself once begun: each answer asks for the
//! next write. A device in memory has answered when it was asked: to write to it is a loop, and a
//! fault has its page without a wait.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, Ordering};

use quire::cache::{self, FileId, FilePages, ReadRun, Reads};
use quire::space::Space;
use quire::units::{FrameSpan, Vpn};
use quire::{Error, Need, ReadFailed, Stop, WriteFailed};
use quire_linux::ext4::Blocks;
use quire_linux::files::{Caller, Number};
use quire_linux::{Errno, Result};
use spin::mutex::SpinMutex;

use super::claim::{Claim, Claims};
use super::device::{Part, Read, Reader, Target, WRITES};
use super::instant::Instant;
use super::pages::Pages;
use super::{block, files, instant};
use crate::isa::Format;
use crate::memory::{self, Memory, PAGE, errno, mm};

/// A swap device.
pub(crate) struct Device {
    /// Its slots.
    pub(crate) id: FileId,
    /// The path by which it was named.
    pub(crate) path: Vec<u8>,
    /// As in `/proc/swaps`. The library takes slots where there are some.
    pub(crate) priority: i32,
    number: Number,
    medium: Medium,
}

/// Where the slots of a device are kept.
enum Medium {
    /// On a disk, which answers later.
    Disk(&'static Arc<Pages>, SpinMutex<Out>),
    /// In memory.
    Instant(&'static dyn Instant),
}

/// The write in flight.
struct Out {
    /// Where to look for more.
    left: FilePages,
    /// Then once more from the beginning.
    again: bool,
    /// Writes that the disk has not answered.
    flying: usize,
}

/// Those in use, at most as many as there are disks.
static DEVICES: SpinMutex<Vec<Arc<Device>>> = SpinMutex::new(Vec::new());

/// Whether there are any: to ask without the lock.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// One part in this number of a device's slots, or this number, may be free and still take memory.
const STALE: u64 = 128;

/// Frames that readahead leaves free: 2 MiB.
const SPARE: u64 = 512;

/// All pages of any file.
const ALL: FilePages = FilePages::new(0, cache::FILE_PAGES_MAX);

/// No space maps slots: no TLB is flushed before they are written.
const NO_SPACES: &[&Space<Format>] = &[];

/// Whether there is a swap device.
#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Swap device `index`, in the order in which they were taken into use.
pub(crate) fn device(index: usize) -> Option<Arc<Device>> {
    DEVICES.lock().get(index).cloned()
}

/// All swap devices.
pub(crate) fn devices() -> impl Iterator<Item = Arc<Device>> {
    (0..).map_while(device)
}

/// Whether a file is that of a swap device.
pub(crate) fn has(id: FileId) -> bool {
    is_on() && devices().any(|device| device.id == id)
}

/// The swap device on the block device with these numbers.
pub(crate) fn on_block(number: Number) -> Option<Arc<Device>> {
    devices().find(|device| device.number == number)
}

impl Medium {
    /// The block device with these numbers.
    fn of(number: Number) -> Option<Self> {
        if let Some(device) = instant::of_number(number) {
            return Some(Self::Instant(&**device));
        }
        let out = Out { left: FilePages::default(), again: false, flying: 0 };
        Some(Self::Disk(block::pages(block::of_number(number)?)?, SpinMutex::new(out)))
    }

    fn claims(&self) -> &Claims {
        match self {
            Self::Disk(pages, _) => pages.disk.claims(),
            Self::Instant(device) => device.claims(),
        }
    }

    fn is_read_only(&self) -> bool {
        match self {
            Self::Disk(pages, _) => pages.disk.is_read_only(),
            Self::Instant(device) => device.is_read_only(),
        }
    }

    fn length(&self) -> u64 {
        match self {
            Self::Disk(pages, _) => pages.disk.length(),
            Self::Instant(device) => device.length(),
        }
    }

    /// Reads the first page.
    fn first_page(&self, who: &Caller<'_>) -> Result<[u8; PAGE as usize]> {
        let mut page = [0; PAGE as usize];
        match self {
            Self::Disk(pages, _) => Blocks::read(&***pages, who, 0, &mut page)?,
            Self::Instant(device) => drop(device.read_at(who, 0, &mut page)?),
        }
        Ok(page)
    }
}

/// Slots of all devices: how many there are, and how many are used.
pub(crate) fn slots() -> (u64, u64) {
    let add = |sum: (u64, u64), (_, slots, used): (FileId, u64, u64)| (sum.0 + slots, sum.1 + used);
    mm().paging().devices().fold((0, 0), add)
}

/// Takes a block device into use. `priority` is what was asked for.
///
/// # Errors
/// [`Errno::BLOCKED`] until its header was read; [`Errno::EBUSY`] when the device has an owner,
/// [`Errno::EACCES`] when it cannot be written, [`Errno::EINVAL`] when it is none of ours or its
/// header is none, [`Errno::EPERM`] when there are too many devices, [`Errno::ENOMEM`].
pub(crate) fn on(
    who: &Caller<'_>,
    number: Number,
    path: Vec<u8>,
    priority: Option<i32>,
) -> Result<()> {
    let medium = Medium::of(number).ok_or(Errno::EINVAL)?;
    if !medium.claims().is_claimed(Claim::None) {
        return Err(Errno::EBUSY);
    }
    if medium.is_read_only() {
        return Err(Errno::EACCES);
    }
    let slots = slots_of(who, &medium)?;
    if let Medium::Disk(pages, _) = &medium {
        pages.forget(who)?;
    }
    medium.claims().claim(Claim::Swap)?;
    let opened = memory::admit().and_then(|()| open(number, medium, slots, (path, priority)));
    opened.inspect_err(|_| Medium::of(number).iter().for_each(|medium| medium.claims().unclaim()))
}

fn open(
    number: Number,
    medium: Medium,
    slots: u64,
    (path, priority): (Vec<u8>, Option<i32>),
) -> Result<()> {
    let mut all = DEVICES.lock();
    all.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    let id = mm().paging().swap_on(slots).map_err(|error| match error {
        Error::NoFile => Errno::EPERM,
        other => errno(other),
    })?;
    let priority = priority.unwrap_or(-2 - all.len() as i32);
    all.push(Arc::new(Device { id, path, priority, number, medium }));
    IS_ON.store(true, Ordering::Relaxed);
    Ok(())
}

/// The number of slots in the header. Its layout is that of Linux, include/linux/swap.h.
fn slots_of(who: &Caller<'_>, medium: &Medium) -> Result<u64> {
    const MAGIC: &[u8] = b"SWAPSPACE2";
    const VERSION: usize = 1024;
    const LAST: usize = 1028;
    const BAD: usize = 1032;
    let pages = medium.length() / PAGE;
    if pages == 0 {
        return Err(Errno::EINVAL);
    }
    let header = medium.first_page(who)?;
    let word = |at: usize| {
        u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let last = u64::from(word(LAST));
    let is_good = header.ends_with(MAGIC)
        && (word(VERSION), word(BAD)) == (1, 0)
        && (1..pages).contains(&last);
    if is_good { Ok(last) } else { Err(Errno::EINVAL) }
}

impl Device {
    /// Takes it out of use, once nothing is there any more.
    ///
    /// # Errors
    /// [`Errno::EBUSY`] when something is; [`Errno::BLOCKED`] while the disk is being asked.
    pub(crate) fn off(&self, who: &Caller<'_>) -> Result<()> {
        files::note(who.wake)?;
        if !self.is_quiet() {
            return Err(Errno::BLOCKED);
        }
        mm().paging().swap_off(self.id).map_err(|error| match error {
            Error::InUse(_) => Errno::EBUSY,
            other => errno(other),
        })?;
        let mut all = DEVICES.lock();
        all.retain(|other| other.id != self.id);
        IS_ON.store(!all.is_empty(), Ordering::Relaxed);
        drop(all);
        if let Medium::Instant(device) = &self.medium {
            device.sweep(&|pages| Some(pages).filter(|pages| !pages.is_empty()));
        }
        self.medium.claims().unclaim();
        Ok(())
    }

    /// Whether nothing is to be written.
    fn is_quiet(&self) -> bool {
        let Medium::Disk(_, out) = &self.medium else { return true };
        let out = out.lock();
        out.flying == 0 && out.left.is_empty()
    }

    /// Which page of the device has page `page` of the file.
    fn place(page: u64) -> u64 {
        page + 1
    }

    /// Reads folios.
    fn read(self: Arc<Self>, mut reads: Reads) -> Result<()> {
        let pages = match &self.medium {
            Medium::Disk(pages, _) => *pages,
            Medium::Instant(device) => return self.read_now(*device, reads).map(drop),
        };
        loop {
            // Else a read that finds no memory for its request would seem to be one that failed.
            memory::admit()?;
            let Some(read) = mm().files().next_read(&mut reads).map_err(errno)? else {
                return Ok(());
            };
            let at = Self::place(read.pages().start) * PAGE;
            let part = Part::all(read);
            let (bytes, reader) = (part.bytes(), self.clone());
            let read = Read { name: 0, at, bytes, target: Target::Part(part), reader };
            if let Err(Read { target, .. }) = pages.disk.submit(read) {
                self.finished(0, target, Err(Errno::ENOMEM));
            }
        }
    }

    /// Looks at all slots for what is to be written.
    fn begin(self: &Arc<Self>) {
        let (pages, out) = match &self.medium {
            Medium::Disk(pages, out) => (*pages, out),
            Medium::Instant(device) => return self.write_now(*device),
        };
        let mut out = out.lock();
        match out.left.is_empty() {
            true => out.left = ALL,
            false => out.again = true,
        }
        self.write(pages, &mut out);
    }

    /// Gives the disk as much to write as it may have.
    fn write(self: &Arc<Self>, pages: &Pages, out: &mut Out) {
        while out.flying < WRITES && !out.left.is_empty() {
            match mm().files().next_write(self.id, &mut out.left, NO_SPACES) {
                Ok(Some(write)) => {
                    let at = Self::place(write.pages().start) * PAGE;
                    let bytes = write.frames().count * PAGE;
                    let (target, reader) = (Target::Kept(write), self.clone());
                    out.flying += 1;
                    let refused = pages.disk.submit(Read { name: 0, at, bytes, target, reader });
                    if let Err(Read { target: Target::Kept(write), .. }) = refused {
                        out.flying -= 1;
                        written(write, Err(Errno::ENOMEM));
                        // With no answer to come, nothing would go on: the next write begins it
                        // again.
                        if out.flying == 0 {
                            out.left = FilePages::default();
                        }
                        return;
                    }
                }
                Ok(None) if core::mem::take(&mut out.again) => out.left = ALL,
                Ok(None) => out.left = FilePages::default(),
                // It is being written, and will be again: with the next answer.
                Err(_) if out.flying > 0 => return,
                Err(_) => out.left = FilePages::default(),
            }
        }
    }
}

impl Reader for Device {
    fn finished(&self, name: u64, target: Target, result: Result<()>) {
        match target {
            Target::Part(part) => {
                let part = if result.is_ok() { part } else { spoilt(part) };
                if let Some((read, result)) = part.into_whole(u64::MAX) {
                    mm().files().read_done(read, result.map_err(|_| ReadFailed));
                    files::tell();
                }
            }
            Target::Kept(write) => {
                mm().files().write_done(write, result.map_err(|_| WriteFailed));
                // It may have been taken out of use, if this was the last.
                let own = devices().find(|device| device.id == self.id);
                let Medium::Disk(pages, out) = &self.medium else { return };
                let mut out = out.lock();
                out.flying -= 1;
                if let Some(own) = own {
                    own.write(pages, &mut out);
                }
                drop(out);
                // A fault may wait for the folio, and a call until nothing is left to write.
                files::tell();
            }
            Target::Moved(frames) => self.moved(name as usize, frames, result),
            Target::Own(_) | Target::Out(_) => {}
        }
    }
}

impl Device {
    /// The device in memory that it is.
    pub(super) fn instant(&self) -> Option<&'static dyn Instant> {
        match self.medium {
            Medium::Disk(..) => None,
            Medium::Instant(device) => Some(device),
        }
    }

    /// Reads folios from a device that answers at once; whether all pages are there, with none on a
    /// disk behind it.
    fn read_now(self: &Arc<Self>, device: &dyn Instant, reads: Reads) -> Result<bool> {
        let is_there = self.read_each(device, reads);
        // Other threads may have found a page being read, even if not all could be.
        files::tell();
        self.tidy(device);
        is_there
    }

    fn read_each(self: &Arc<Self>, device: &dyn Instant, mut reads: Reads) -> Result<bool> {
        let (mut is_there, mut run) = (true, ReadRun::new());
        loop {
            if device.behind().is_some() {
                // Else a read that finds no memory for its request would seem to have failed.
                memory::admit()?;
            }
            mm().files().next_reads(&mut reads, &mut run).map_err(errno)?;
            if run.is_empty() {
                return Ok(is_there);
            }
            let load = |read: &mut cache::Read| device.load(Self::place(read.pages().start), read);
            if run.iter_mut().all(|read| load(read).is_ok_and(|away| away.is_empty())) {
                mm().files().reads_done(&mut run);
                continue;
            }
            for mut read in run.drain() {
                let place = Self::place(read.pages().start);
                match (device.load(place, &mut read), device.behind()) {
                    (Ok(away), Some(behind)) if !away.is_empty() => {
                        is_there = false;
                        self.read_behind(behind, place, read, &away);
                    }
                    (done, _) => {
                        mm().files().read_done(read, done.map(drop).map_err(|_| ReadFailed));
                    }
                }
            }
        }
    }

    /// Writes all there is to write to a device that answers at once, until it takes no more.
    fn write_now(self: &Arc<Self>, device: &dyn Instant) {
        let mut left = ALL;
        // Where another CPU is writing something that left again meanwhile, the next pass does it.
        while let Ok(Some(run)) = mm().files().next_writes(self.id, &mut left, NO_SPACES) {
            let stores = |(pages, frames): &(FilePages, FrameSpan)| {
                device.store(Self::place(pages.start), *frames).is_ok()
            };
            let stored = run.parts().take_while(stores).count();
            let is_good = stored == run.parts().count();
            if is_good {
                mm().files().writes_done(run, Ok(()));
            } else {
                for (write, at) in run.into_writes().zip(0..) {
                    let done = if at < stored { Ok(()) } else { Err(WriteFailed) };
                    mm().files().write_done(write, done);
                }
            }
            files::tell();
            if !is_good {
                break;
            }
        }
        self.tidy(device);
        self.make_room(device);
    }

    /// Lets a device drop the content of free slots, if that is much.
    fn tidy(&self, device: &dyn Instant) {
        let held = device.held();
        if held == 0 {
            return;
        }
        let found = mm().paging().devices().find(|(file, ..)| *file == self.id);
        let Some((_, slots, used)) = found else { return };
        // A sweep looks at all slots: it must be worth that.
        if held > used + (slots / STALE).max(STALE) {
            device.sweep(&|pages| self.free_in(pages));
        }
    }

    /// The first free run of pages of the device, among these.
    pub(super) fn free_in(&self, pages: Range<u64>) -> Option<Range<u64>> {
        let zero = Self::place(0);
        let slots = FilePages::new(pages.start - zero, pages.end - zero);
        let free = mm().paging().free_slots(self.id, slots)?;
        Some(Self::place(free.start)..Self::place(free.end))
    }
}

/// A write has ended: a fault that found its folio being written tries again.
fn written(write: quire::Write, result: Result<()>) {
    mm().files().write_done(write, result.map_err(|_| WriteFailed));
    files::tell();
}

fn spoilt(mut part: Part) -> Part {
    part.spoil();
    part
}

/// Reads the library's request without a wait; whether the bytes were there, and the fault can try
/// again.
pub(crate) fn at_once(reads: Reads) -> bool {
    let device = devices().find(|device| device.id == reads.file());
    let Some(device) = device.filter(|_| is_on()) else { return false };
    match &device.medium {
        Medium::Instant(medium) => device.read_now(*medium, reads).is_ok_and(|there| there),
        Medium::Disk(..) => false,
    }
}

/// Begins the reads that the library asks for, if they are of a swap device.
pub(super) fn start(reads: Reads) -> Option<Result<()>> {
    if !is_on() {
        return None;
    }
    let device = devices().find(|device| device.id == reads.file())?;
    Some(device.read(reads))
}

/// Readahead around a page that a fault waits for, in pages: as many as Linux reads.
const AROUND: u64 = 8;

/// Begins to read the swapped-out pages behind `page`, which a fault waits for: they went out
/// together, and will be wanted together.
pub(crate) fn start_around(memory: &Memory, page: Vpn) {
    for page in (1..AROUND).map(|ahead| page.add(ahead)) {
        // Else readahead would evict pages in use.
        if !mm().phys().has_free(SPARE) {
            return;
        }
        if let Err(Stop::Need(Need::Read(reads))) = mm().paging().swap_in_page(memory.space(), page)
            && let Some(Err(_)) = start(reads)
        {
            return;
        }
    }
}

/// Begins to write all that is paged out and not written.
pub(crate) fn begin_writing() {
    devices().for_each(|device| device.begin());
}

/// Whether nothing is being written to any device.
pub(crate) fn is_quiet() -> bool {
    devices().all(|device| device.is_quiet())
}

/// Waits for what is being written.
///
/// # Errors
/// [`Errno::BLOCKED`] as long as it is; [`Errno::ENOMEM`].
pub(crate) fn settle(who: &Caller<'_>) -> Result<()> {
    if is_quiet() {
        return Ok(());
    }
    // Register first, then look: so no answer is missed.
    files::note(who.wake)?;
    if is_quiet() { Ok(()) } else { Err(Errno::BLOCKED) }
}
