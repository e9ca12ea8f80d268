//! Regular files in memory: each is a file of the library's that has no store. Its number is taken
//! when it is first written or shown, and given back when the last owner of the file is gone.
//!
//! ```text
//!   read, write ──► Data (its lock, its length) ──► MemoryFile ──► pages of the library
//!   areas ─────────────────────────────────────────────────────────────┘
//! ```
//!
//! Bytes are copied from and to pages that are held, while programs may write them: programs order
//! such reads and writes themselves.

use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use quire::cache::{FILE_PAGES_MAX, FileId, FilePages, Pattern, Readahead, Store};
use quire::units::Order;
use quire::{Error, Held, Need, Stop};
use quire_linux::files::{Pages, Reserved};
use quire_linux::{Errno, Result};
use spin::Once;
use spin::mutex::SpinMutex;

use super::reserved::order_of;
use super::shared::Showing;
use super::{PAGE, PAGE_SHIFT, errno, mm, shrink};

/// Frames that files in memory leave to programs: 8 MiB.
const SPARE: u64 = 2048;

/// How many numbers files of the tree may have, and how many have one. The others are for shared
/// memory and for files of a disk: programs must run while /tmp is full.
static LIMIT: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);

/// Says how many numbers there are.
pub(super) fn init(files: usize) {
    LIMIT.store(files - files / 8, Ordering::Relaxed);
}

/// Closes files without an owner, so that their numbers are free.
static CLOSE_IDLE: Once<fn()> = Once::new();

/// Sets the function that frees numbers of files; rooms to the right have it.
pub(crate) fn set_close_idle(how: fn()) {
    CLOSE_IDLE.call_once(|| how);
}

/// Brings what a page that is on a swap device lacks, in place; whether to look again.
static BRING: Once<fn(Need) -> bool> = Once::new();

/// Sets the function that brings pages back from swap devices; rooms to the right have it.
pub(crate) fn set_bring(how: fn(Need) -> bool) {
    BRING.call_once(|| how);
}

/// A file in memory.
pub(crate) struct MemoryFile {
    place: SpinMutex<Place>,
    /// Areas have shown it. It changes under the lock of the file's `Data`.
    is_shown: AtomicBool,
    /// It is shared memory, and no file of the tree.
    is_own: bool,
    /// The reserved folios that its pages are in.
    whole: Option<Order>,
}

struct Place {
    /// Its number, once it has one.
    id: Option<FileId>,
    /// How many pages it has.
    pages: u64,
}

impl MemoryFile {
    /// Shared memory of `pages` pages, none of which is there.
    pub(super) fn shared(pages: u64) -> Arc<Self> {
        Self::new(pages, true, None)
    }

    /// The same in reserved folios.
    pub(super) fn reserved(pages: u64, order: Order) -> Arc<Self> {
        Self::new(pages, true, Some(order))
    }

    fn new(pages: u64, is_own: bool, whole: Option<Order>) -> Arc<Self> {
        let place = SpinMutex::new(Place { id: None, pages });
        Arc::new(Self { place, is_shown: AtomicBool::new(false), is_own, whole })
    }

    /// Allocates the missing reserved folios of some pages.
    fn fill(id: FileId, pages: FilePages, order: Order) -> Result<()> {
        let mut at = pages.start;
        while at < pages.end {
            let block = FilePages::block(at, order);
            if mm().files().next_content(id, block).map_err(errno)?.is_none() {
                let held = hold(id, block).map_err(|error| trouble(error, Errno::ENOSPC))?;
                mm().files().release(held);
            }
            at = block.end;
        }
        Ok(())
    }

    /// Its number, if it has one.
    fn id(&self) -> Option<FileId> {
        self.place.lock().id
    }

    /// Its number, which it gets now if it has none.
    fn open(&self) -> Result<FileId> {
        let mut place = self.place.lock();
        if let Some(id) = place.id {
            return Ok(id);
        }
        let is_counted = !self.is_own;
        if is_counted && USED.fetch_add(1, Ordering::Relaxed) >= LIMIT.load(Ordering::Relaxed) {
            USED.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::ENFILE);
        }
        let (store, smallest) = match self.whole {
            Some(order) => (Store::Reserved, order),
            None => (Store::Memory, Order::ZERO),
        };
        let new = || mm().files().open(store, place.pages, smallest);
        let id = match (new(), CLOSE_IDLE.get()) {
            (Err(Error::NoFile), Some(close_idle)) => {
                close_idle();
                new()
            }
            (other, _) => other,
        };
        if id.is_err() && is_counted {
            USED.fetch_sub(1, Ordering::Relaxed);
        }
        let id = id.map_err(|_| Errno::ENFILE)?;
        place.id = Some(id);
        Ok(id)
    }

    /// Copies the first of `into`, which are together in a hole or in a folio; how many.
    fn read_some(id: Option<FileId>, at: u64, into: &mut [u8]) -> Result<usize> {
        let wanted = pages_of(&(at..at + into.len() as u64));
        let there =
            id.map(|id| mm().files().next_content(id, wanted).map_err(errno)).transpose()?;
        let hole = match there.flatten() {
            Some(pages) => (pages.start * PAGE).saturating_sub(at).min(into.len() as u64) as usize,
            None => into.len(),
        };
        let (Some(id), 0) = (id, hole) else {
            into[..hole].fill(0);
            return Ok(hole);
        };
        match hold(id, wanted) {
            Ok(held) => {
                let count = held_bytes(&held, at, into.len() as u64);
                copy_out(&held, at % PAGE, &mut into[..count]);
                mm().files().release(held);
                Ok(count)
            }
            // A truncation came meanwhile: the page lies behind the end.
            Err(Stop::Refuse(Error::Invalid)) => {
                into.fill(0);
                Ok(into.len())
            }
            Err(error) => Err(trouble(error, Errno::ENOMEM)),
        }
    }

    /// Zeroes bytes in pages that are there.
    fn zero(id: FileId, bytes: &Range<u64>) -> Result<()> {
        let mut at = bytes.start;
        while at < bytes.end {
            let left = pages_of(&(at..bytes.end));
            let Some(pages) = mm().files().next_content(id, left).map_err(errno)? else { break };
            at = at.max(pages.start * PAGE);
            let held = match hold(id, pages_of(&(at..bytes.end))) {
                Ok(held) => held,
                Err(Stop::Refuse(Error::Invalid)) => break,
                Err(error) => return Err(trouble(error, Errno::ENOMEM)),
            };
            let count = held_bytes(&held, at, bytes.end - at);
            copy_in(&held, at % PAGE, count, None);
            mm().files().release(held);
            at += count as u64;
        }
        Ok(())
    }
}

/// The pages that have these bytes.
fn pages_of(bytes: &Range<u64>) -> FilePages {
    FilePages::new(bytes.start / PAGE, bytes.end.div_ceil(PAGE))
}

/// How many bytes from `at` on are in what is held, at most `most`.
fn held_bytes(held: &Held, at: u64, most: u64) -> usize {
    (held.frames().count * PAGE - at % PAGE).min(most) as usize
}

/// Holds the first of `wanted`, and the pages behind it in its folio. A missing page is made, and
/// one on a swap device is waited for in place.
fn hold(id: FileId, wanted: FilePages) -> core::result::Result<Held, Stop> {
    let brings = |need| BRING.get().is_some_and(|bring| bring(need));
    loop {
        match mm().files().read(id, wanted, &mut Readahead::default(), Pattern::Normal) {
            Err(Stop::Refuse(Error::NoMemory(_))) if shrink() => {}
            Err(Stop::Need(need)) if brings(need) => {}
            found => return found.map(|(held, _)| held),
        }
    }
}

/// The errno for a page that cannot be brought in.
fn trouble(why: impl Into<Stop>, short: Errno) -> Errno {
    match why.into() {
        Stop::Refuse(Error::NoMemory(_) | Error::NoReserved(_)) => short,
        _ => Errno::EIO,
    }
}

/// Whether there is memory for `pages` more pages of files.
fn has_room(pages: u64) -> bool {
    while !mm().phys().has_free(SPARE.saturating_add(pages)) {
        if !shrink() {
            return false;
        }
    }
    true
}

/// Copies from byte `at` of what is held.
///
/// # Panics
/// When it has fewer bytes.
fn copy_out(held: &Held, at: u64, into: &mut [u8]) {
    let room = held.frames().count * PAGE;
    assert!(at + into.len() as u64 <= room, "{} bytes at {at} of {room}", into.len());
    let from = mm().hardware().address(held.frames().start);
    // SAFETY: what is held stays the file's, and the direct map shows it. Programs may write it at
    // the same time: the kernel only copies the bytes and derives nothing from them. `into` is
    // other memory, being borrowed.
    unsafe { into.as_mut_ptr().copy_from_nonoverlapping(from.add(at as usize), into.len()) };
}

/// Writes `count` bytes to byte `at` of what is held: these, or else zeroes.
///
/// # Panics
/// When it has fewer bytes, or others are given.
fn copy_in(held: &Held, at: u64, count: usize, bytes: Option<&[u8]>) {
    let room = held.frames().count * PAGE;
    assert!(at + count as u64 <= room, "{count} bytes at {at} of {room}");
    let to = mm().hardware().address(held.frames().start).wrapping_add(at as usize);
    match bytes {
        // SAFETY: as in `copy_out`; no reference to bytes of a file in memory is ever made.
        None => unsafe { to.write_bytes(0, count) },
        Some(bytes) => {
            assert_eq!(bytes.len(), count, "as many bytes as are to be written");
            // SAFETY: as above; `bytes` are other memory, being borrowed.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), count) };
        }
    }
}

impl Pages for MemoryFile {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let id = self.id();
        let mut done = 0;
        while done < into.len() {
            done += Self::read_some(id, offset + done as u64, &mut into[done..])?;
        }
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let id = self.open().map_err(|_| Errno::ENOSPC)?;
        if !has_room(1) {
            return Err(Errno::ENOSPC);
        }
        let wanted = pages_of(&(offset..offset + bytes.len() as u64));
        let held = hold(id, wanted).map_err(|error| trouble(error, Errno::ENOSPC))?;
        copy_in(&held, offset % PAGE, bytes.len(), Some(bytes));
        mm().files().release(held);
        Ok(())
    }

    fn set_end(&self, end: u64) -> Result<()> {
        let pages = end.div_ceil(PAGE);
        if pages > FILE_PAGES_MAX {
            return Err(Errno::EFBIG);
        }
        let id = {
            let mut place = self.place.lock();
            if place.pages == pages {
                return Ok(());
            }
            place.pages = pages;
            place.id
        };
        let Some(id) = id else { return Ok(()) };
        let showing = Showing { id: id.0, is_shown: self.is_shown() };
        loop {
            match mm().files().truncate(id, pages, &showing) {
                Err(Error::NoMemory(_)) if shrink() => {}
                other => return other.map_err(errno),
            }
        }
    }

    fn clear(&self, bytes: Range<u64>) -> Result<()> {
        let Some(id) = self.id() else { return Ok(()) };
        let whole = FilePages::new(bytes.start.div_ceil(PAGE), bytes.end / PAGE);
        let showing = Showing { id: id.0, is_shown: self.is_shown() };
        if !whole.is_empty() {
            mm().files().punch(id, whole, &showing).map_err(errno)?;
        }
        Self::zero(id, &bytes)
    }

    fn reserve(&self, bytes: Range<u64>) -> Result<()> {
        let id = self.open().map_err(|_| Errno::ENOSPC)?;
        let pages = pages_of(&bytes);
        if let Some(order) = self.whole {
            return Self::fill(id, pages, order);
        }
        let there = mm().files().get(id).map_or(0, |file| file.cached());
        if !has_room(pages.count().saturating_sub(there)) {
            return Err(Errno::ENOSPC);
        }
        for page in pages.start..pages.end {
            let one = FilePages::new(page, page + 1);
            if mm().files().next_content(id, one).map_err(errno)?.is_some() {
                continue;
            }
            match hold(id, one) {
                Ok(held) if has_room(0) => mm().files().release(held),
                Ok(held) => {
                    mm().files().release(held);
                    return Err(Errno::ENOSPC);
                }
                // A truncation came meanwhile.
                Err(Stop::Refuse(Error::Invalid)) => break,
                Err(error) => return Err(trouble(error, Errno::ENOSPC)),
            }
        }
        Ok(())
    }

    fn next(&self, bytes: Range<u64>) -> Option<Range<u64>> {
        let found = mm().files().next_content(self.id()?, pages_of(&bytes)).ok()??;
        Some(found.start * PAGE..found.end * PAGE)
    }

    fn block_bytes(&self) -> u64 {
        self.whole.map_or(PAGE, |order| order.bytes(PAGE_SHIFT))
    }

    fn held_bytes(&self) -> u64 {
        let Some(id) = self.id() else { return 0 };
        let all = FilePages::new(0, FILE_PAGES_MAX);
        let here = mm().files().get(id).map_or(0, |file| file.cached());
        (here + mm().paging().away(id, all)) * PAGE
    }

    fn object(&self) -> Result<u32> {
        let id = self.open()?;
        self.is_shown.store(true, Ordering::Relaxed);
        // First this, then the areas: a truncation looks for areas afterwards.
        fence(Ordering::SeqCst);
        Ok(id.0)
    }

    fn is_shown(&self) -> bool {
        self.is_shown.load(Ordering::Relaxed)
    }

    fn is_writable_somewhere(&self) -> bool {
        let id = self.id().filter(|_| self.is_shown());
        id.is_some_and(|id| Showing { id: id.0, is_shown: true }.is_writable())
    }

    fn is_running(&self) -> bool {
        let id = self.id().filter(|_| self.is_shown());
        id.is_some_and(|id| Showing { id: id.0, is_shown: true }.is_running())
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let Some(id) = self.place.get_mut().id else { return };
        if !self.is_own {
            USED.fetch_sub(1, Ordering::Relaxed);
        }
        // Neither a name nor a descriptor nor an area has it any more.
        let closed = mm().files().close(id);
        debug_assert!(closed.is_ok(), "only this call closes it");
    }
}

/// A place for the bytes of a new file.
///
/// # Errors
/// `ENODEV` for reserved folios of a size that there is not.
pub(crate) fn make_pages(size: Option<Reserved>) -> Result<Arc<dyn Pages>> {
    let order = |size| order_of(size).ok_or(Errno::ENODEV);
    Ok(MemoryFile::new(0, false, size.map(order).transpose()?))
}
