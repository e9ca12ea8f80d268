//! Files of the disk in the library's cache: their pages are kept by file, in folios as large as
//! readahead makes them, and shown in areas without a copy.
//!
//! ```text
//!   fault, read(2) ──► the library: Unread(what to read) ──► start: a folio, and its file's runs
//!        ▲                                                     │ a read of the disk for each run
//!        └── woken ◄── read_done ◄── the last part came ◄──────┘
//! ```
//!
//! The library finds files by their numbers. A file keeps its number until numbers run out, so that
//! its pages stay when no descriptor has it open. A space that shows a file has it, too.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use quire::cache::{self, FileId, FilePages, Pattern, Readahead, Reads, Store};
use quire::units::Order;
use quire::{Error, Need, ReadFailed, Stop};
use quire_linux::ext4::File;
use quire_linux::files::{Caller, Stored, Time};
use quire_linux::{Errno, Result, Waiters, Wake};
use spin::mutex::SpinMutex;

use super::device::{self, Part, Read, Reader, Target, reap};
use crate::memory::{self, PAGE, errno, mm};

/// Below this number of free frames (8 MiB), a read first gives up other pages.
const SPARE: u64 = 2048;

/// Threads that wait for pages of files.
static WAITERS: Waiters = Waiters::new();

static KNOWN: SpinMutex<Known> =
    SpinMutex::new(Known { inodes: BTreeMap::new(), files: BTreeMap::new(), hand: 0 });

struct Known {
    /// Numbers, by inode. There is one disk.
    inodes: BTreeMap<u32, u32>,
    files: BTreeMap<u32, Arc<Cached>>,
    /// Where the search for pages to give up goes on.
    hand: u32,
}

/// A file of the disk whose pages the library keeps.
struct Cached {
    file: File,
    id: FileId,
    /// Where its readers are: hints.
    reader: SpinMutex<Readahead>,
}

/// A file of the disk as programs see it: through the library, as long as there are numbers.
pub(super) fn open(file: File) -> Arc<dyn Stored> {
    let inode = file.inode().number;
    let mut known = KNOWN.lock();
    let number = known.inodes.get(&inode);
    if let Some(cached) = number.and_then(|number| known.files.get(number)) {
        return cached.clone();
    }
    let pages = file.inode().length.div_ceil(PAGE);
    let new = || mm().files().open(Store::ReadOnly, pages, Order::ZERO);
    let id = match new() {
        Err(Error::NoFile) => {
            known.close_idle();
            new()
        }
        other => other,
    };
    let Ok(id) = id else { return Arc::new(file) };
    let cached = Arc::new(Cached { file, id, reader: SpinMutex::default() });
    known.inodes.insert(inode, id.0);
    known.files.insert(id.0, cached.clone());
    cached
}

impl Known {
    /// Takes the numbers of files that no descriptor and no space has.
    fn close_idle(&mut self) {
        // A space that shows a file has it as well.
        let is_idle = |cached: &Arc<Cached>| Arc::strong_count(cached) == 1;
        let inodes = &mut self.inodes;
        self.files.retain(|_, cached| {
            let idle = is_idle(cached) && mm().files().close(cached.id).is_ok();
            if idle {
                inodes.remove(&cached.file.inode().number);
            }
            !idle
        });
    }

    /// The next file whose pages may be given up.
    fn next(&mut self) -> Option<FileId> {
        let later = self.files.range(self.hand..).next();
        let (&number, cached) = later.or_else(|| self.files.iter().next())?;
        self.hand = number + 1;
        Some(cached.id)
    }
}

/// Takes the numbers of files that no descriptor and no space has.
pub(super) fn close_idle() {
    // A caller that holds the lock needs a number itself, and looks for one.
    if let Some(mut known) = KNOWN.try_lock() {
        known.close_idle();
    }
}

/// Gives up pages of a file that is not in use; whether there were any. Does nothing while another
/// call holds the lock.
pub(crate) fn shrink() -> bool {
    let all = FilePages::new(0, cache::FILE_PAGES_MAX);
    let Some(count) = KNOWN.try_lock().map(|known| known.files.len()) else { return false };
    (0..count).any(|_| {
        let id = KNOWN.try_lock().and_then(|mut known| known.next());
        id.is_some_and(|id| mm().files().drop_clean(id, all).is_ok_and(|dropped| dropped > 0))
    })
}

/// Registers a waiter for pages of files: a thread that looks for one after this is woken when one
/// has come.
///
/// # Errors
/// [`Errno::ENOMEM`].
pub(crate) fn note(wake: &Arc<dyn Wake>) -> Result<()> {
    WAITERS.add(wake)
}

/// Wakes the waiters.
pub(super) fn tell() {
    WAITERS.wake();
}

/// Begins the reads that the library asks for.
///
/// # Errors
/// [`Errno::BLOCKED`] when it is not known yet where the bytes lie; [`Errno::ENOMEM`],
/// [`Errno::EIO`].
pub(crate) fn start(who: &Caller<'_>, mut reads: Reads) -> Result<()> {
    if let Some(started) = super::swap::start(reads) {
        return started;
    }
    let cached = KNOWN.lock().files.get(&reads.file().0).cloned().ok_or(Errno::EIO)?;
    cached.locate(who, reads.pages())?;
    if !mm().phys().has_free(SPARE) {
        // If there is nothing to give up, the library will say so.
        shrink();
    }
    loop {
        // Else a read that finds no memory for its request would seem to be one that failed.
        memory::admit()?;
        match mm().files().next_read(&mut reads).map_err(errno)? {
            Some(read) => cached.fill(who, read),
            None => return Ok(()),
        }
    }
}

/// The same for readahead, which no thread waits for.
pub(crate) fn start_ahead(reads: Reads) {
    // A failure is harmless: a fault that needs the page reads it.
    let _ = without_wake(|who| start(who, reads));
}

/// Calls `act` as a caller that is not woken.
pub(super) fn without_wake<T>(act: impl FnOnce(&Caller<'_>) -> T) -> T {
    struct NoWake;
    impl Wake for NoWake {
        fn wake(&self) {}
    }
    let wake: Arc<dyn Wake> = Arc::new(NoWake);
    act(&Caller {
        pid: 0,
        tid: 0,
        may: &quire_linux::credentials::ROOT,
        now: Time::default(),
        longest: u64::MAX,
        wake: &wake,
    })
}

impl Cached {
    /// Brings the extents of these pages into memory.
    fn locate(&self, who: &Caller<'_>, pages: FilePages) -> Result<()> {
        let end = (pages.end * PAGE).min(self.file.inode().length);
        let mut at = pages.start * PAGE;
        while at < end {
            at += self.file.volume().run(who, self.file.inode(), at, end - at)?.bytes;
        }
        Ok(())
    }

    /// Reads a folio.
    fn fill(self: &Arc<Self>, who: &Caller<'_>, read: cache::Read) {
        let mut at = read.pages().start * PAGE;
        let file_end = self.file.inode().length;
        let mut rest = Part::all(read);
        while rest.bytes() > 0 {
            let inode = self.file.inode();
            let run = match at < file_end {
                true => self.file.volume().run(who, inode, at, rest.bytes()),
                false => Ok(quire_linux::ext4::Run { at: None, bytes: rest.bytes() }),
            };
            let Ok(run) = run else { return self.end(rest, false) };
            let (mut part, behind) = rest.split(run.bytes);
            let bytes = part.bytes();
            match run.at {
                None => part.clear(),
                Some(place) => {
                    if let Err(part) = self.read_part(place, part) {
                        drop(behind);
                        return self.end(part, false);
                    }
                }
            }
            at += bytes;
            rest = behind;
        }
        self.end(rest, true);
    }

    /// Asks the disk for a part of a folio; gives it back if it cannot.
    fn read_part(self: &Arc<Self>, at: u64, part: Part) -> core::result::Result<(), Part> {
        // There is one disk with files.
        let Some(disk) = super::mounted() else { return Err(part) };
        let bytes = part.bytes();
        let (target, reader) = (Target::Part(part), self.clone());
        match disk.submit(Read { name: 0, at, bytes, target, reader }) {
            Err(Read { target: Target::Part(part), .. }) => Err(part),
            _ => Ok(()),
        }
    }

    /// A part of a folio is filled, or not. With the last one the folio is.
    fn end(&self, mut part: Part, is_good: bool) {
        if !is_good {
            part.spoil();
        }
        let Some((read, result)) = part.into_whole(self.file.inode().length) else { return };
        mm().files().read_done(read, result.map_err(|_| ReadFailed));
        WAITERS.wake();
    }

    /// The error of a call for which the library has no page.
    fn lacks(&self, who: &Caller<'_>, why: Stop) -> Errno {
        match why {
            Stop::Need(Need::Read(reads)) => start(who, reads).err().unwrap_or(Errno::BLOCKED),
            Stop::Need(Need::Wait(_)) => Errno::BLOCKED,
            Stop::Refuse(Error::Failed(..)) => Errno::EIO,
            other => errno(other),
        }
    }

    /// Copies from the folio at `offset`; how many bytes.
    fn copy(&self, who: &Caller<'_>, offset: u64, into: &mut [u8]) -> Result<usize> {
        let end = offset + into.len() as u64;
        let wanted = FilePages::new(offset / PAGE, end.div_ceil(PAGE));
        let mut reader = *self.reader.lock();
        let mut page = || mm().files().read(self.id, wanted, &mut reader, Pattern::Normal);
        let found = match page() {
            Err(Stop::Need(_)) => {
                // Register first, then look again: so no answer is missed.
                note(who.wake)?;
                page()
            }
            other => other,
        };
        *self.reader.lock() = reader;
        let (held, ahead) = found.map_err(|error| self.lacks(who, error))?;
        let room = held.frames().count * PAGE - offset % PAGE;
        let count = room.min(into.len() as u64) as usize;
        device::copy_held(&held, offset % PAGE, &mut into[..count]);
        mm().files().release(held);
        if let Some(reads) = ahead {
            start_ahead(reads);
        }
        Ok(count)
    }
}

impl Reader for Cached {
    fn finished(&self, _: u64, target: Target, result: Result<()>) {
        if let Target::Part(part) = target {
            self.end(part, result.is_ok());
        }
    }
}

impl Stored for Cached {
    fn length(&self) -> u64 {
        self.file.length()
    }

    fn held_bytes(&self) -> u64 {
        self.file.held_bytes()
    }

    /// Readahead is the library's.
    fn want(&self, _: &Caller<'_>, _: u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn read_at(&self, who: &Caller<'_>, offset: u64, into: &mut [u8]) -> Result<usize> {
        let there = self.length().saturating_sub(offset).min(into.len() as u64) as usize;
        let mut done = 0;
        while done < there {
            done += self.copy(who, offset + done as u64, &mut into[done..there])?;
        }
        Ok(there)
    }

    fn object(&self) -> Option<u32> {
        Some(self.id.0)
    }
}

/// Begins to read a page that is missing for this reason; whether it may be there soon.
pub(super) fn fetch(need: Need) -> bool {
    match need {
        Need::Read(reads) => match without_wake(|who| start(who, reads)) {
            Ok(()) | Err(Errno::BLOCKED) => reap(),
            Err(_) => return false,
        },
        Need::Wait(_) => reap(),
        _ => return false,
    }
    true
}
