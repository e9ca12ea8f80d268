//! The content of a regular file in memory.
//!
//! ```text
//!   Data     length, seals: under one lock       bytes, holes, limits, rights to change
//!    └─ Pages     |####|    |####|####|          where written bytes are: pages of the memory
//!                 0    1    2    3    4          manager's, that areas of programs show, too
//! ```
//!
//! A hole has no page and reads as zero; so do the bytes behind the end in the last page. Bytes
//! that programs write there, through an area, are zero again before the file grows over them.
//!
//! No lock is held while a program's memory is touched: it may be a mapping of the same file. The
//! lock of a file is to the left of all locks of memory.

use alloc::sync::Arc;
use core::any::Any;
use core::ops::Range;

use linux_raw_sys::general as raw;
use spin::mutex::SpinMutex;

use super::call::{Sink, Source, moved, zeroes};
use crate::{Errno, Result};

/// Bytes of a page, and of one step of a transfer.
pub const PIECE: usize = 4096;

const PAGE: u64 = PIECE as u64;

/// The most bytes that a file may have: the largest signed offset.
pub const LENGTH_MAX: u64 = i64::MAX as u64;

/// Bytes of a read or write that are gathered without the heap.
const SMALL: usize = 256;

/// Seals that keep bytes as they are.
const WRITES: u32 = raw::F_SEAL_WRITE | raw::F_SEAL_FUTURE_WRITE;

/// All seals that there are.
const SEALS: u32 =
    raw::F_SEAL_SEAL | raw::F_SEAL_SHRINK | raw::F_SEAL_GROW | raw::F_SEAL_EXEC | WRITES;

/// The storage of a file's bytes: pages that are allocated when they are written. Offsets are in
/// bytes, ranges half-open. The caller of a change has the file's lock, which orders changes.
pub trait Pages: Any + Send + Sync {
    /// Copies the bytes from `offset` on; zeroes where no page is, or behind the end.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`], [`Errno::EIO`].
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()>;

    /// Writes bytes of one page that is not wholly behind the end.
    ///
    /// # Errors
    /// [`Errno::ENOSPC`], [`Errno::EIO`]; nothing was written then.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// The file ends at `end` from now on. Pages wholly behind it are gone, from all mappings, too;
    /// the bytes of the last page behind it stay.
    ///
    /// # Errors
    /// [`Errno::EFBIG`] and nothing has changed; [`Errno::ENOMEM`] when the file is shorter, but
    /// some areas may still show pages behind the end.
    fn set_end(&self, end: u64) -> Result<()>;

    /// Makes bytes zero where there are pages, which may go.
    ///
    /// # Errors
    /// [`Errno::EIO`]; some of them may be zero then.
    fn clear(&self, bytes: Range<u64>) -> Result<()>;

    /// Allocates pages for these bytes.
    ///
    /// # Errors
    /// [`Errno::ENOSPC`]; there are some of them then.
    fn reserve(&self, bytes: Range<u64>) -> Result<()>;

    /// The first page in `bytes` and all that follow it without a hole, as far as is known: the run
    /// may go on behind.
    fn next(&self, bytes: Range<u64>) -> Option<Range<u64>>;

    /// The bytes of a block: the length is a multiple of it, and blocks come and go as a whole.
    /// More than a page where they are reserved folios: then only areas write them.
    fn block_bytes(&self) -> u64 {
        PAGE
    }

    /// Bytes of memory that the pages take.
    fn held_bytes(&self) -> u64;

    /// The number under which the memory manager has the pages, so that areas can show them.
    ///
    /// # Errors
    /// [`Errno::ENFILE`] when there is none left.
    fn object(&self) -> Result<u32>;

    /// Whether areas have shown it: then programs may have written behind its end.
    fn is_shown(&self) -> bool;

    /// Whether there is an area through which a program may write it.
    fn is_writable_somewhere(&self) -> bool;

    /// Whether a program runs from them: it has code of them, and sees writes to them.
    fn is_running(&self) -> bool;
}

/// Makes a place for a new file's bytes: in pages as they come, or in reserved folios.
///
/// # Errors
/// [`Errno::ENODEV`] where there are no reserved folios of that size.
pub type MakePages = fn(Option<Reserved>) -> Result<Arc<dyn Pages>>;

/// The size of reserved folios: the power of two of its bytes, or 0 for the usual one, as in the
/// flags of `mmap` and `memfd_create`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved(pub u32);

impl Reserved {
    /// Those bits of such flags.
    pub const FLAGS: u32 = 0x3f << Self::AT;
    const AT: u32 = 26;

    /// The size in flags that ask for reserved folios.
    pub const fn of_flags(flags: u32) -> Self {
        Self((flags & Self::FLAGS) >> Self::AT)
    }
}

struct State {
    length: u64,
    seals: u32,
}

/// The contents of a regular file.
pub struct Data {
    pages: Arc<dyn Pages>,
    state: SpinMutex<State>,
}

impl Data {
    /// No bytes, in a place for them; nothing can be sealed.
    pub fn new(pages: Arc<dyn Pages>) -> Self {
        Self { pages, state: SpinMutex::new(State { length: 0, seals: raw::F_SEAL_SEAL }) }
    }

    /// The same, and with other seals.
    pub fn sealed(pages: Arc<dyn Pages>, seals: u32) -> Self {
        Self { pages, state: SpinMutex::new(State { length: 0, seals }) }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.state.lock().length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that it takes.
    pub fn held_bytes(&self) -> u64 {
        self.pages.held_bytes()
    }

    /// The bytes of a block; see [`Pages::block_bytes`].
    pub fn block_bytes(&self) -> u64 {
        self.pages.block_bytes()
    }

    /// Whether its pages are in reserved folios.
    pub fn is_reserved(&self) -> bool {
        self.block_bytes() > PAGE
    }

    /// Copies bytes from `offset` on into `into`, and says how many there were.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`], [`Errno::EIO`].
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<usize> {
        let there = self.len().saturating_sub(offset).min(into.len() as u64) as usize;
        self.pages.read(offset, &mut into[..there])?;
        Ok(there)
    }

    /// Writes `bytes` at `offset`, or else at the end. How many it wrote, and the offset behind.
    ///
    /// # Errors
    /// [`Errno::ENOSPC`] when there is no memory, [`Errno::EFBIG`] beyond [`LENGTH_MAX`],
    /// [`Errno::EPERM`] where seals forbid it: each only when nothing was written.
    /// [`Errno::EINVAL`] where the pages are reserved folios.
    pub fn write_at(&self, offset: Option<u64>, bytes: &[u8]) -> Result<(usize, u64)> {
        if self.is_reserved() {
            return Err(Errno::EINVAL);
        }
        let mut state = self.state.lock();
        let start = offset.unwrap_or(state.length);
        let mut done = 0;
        while done < bytes.len() {
            let at = start.saturating_add(done as u64);
            match self.write_piece(&mut state, at, &bytes[done..]) {
                Ok(count) => done += count,
                Err(errno) => return moved(done, Some(errno)).map(|done| (done, at)),
            }
        }
        Ok((done, start.saturating_add(done as u64)))
    }

    /// Writes as much as goes into one page.
    fn write_piece(&self, state: &mut State, offset: u64, bytes: &[u8]) -> Result<usize> {
        if state.seals & WRITES != 0 {
            return Err(Errno::EPERM);
        }
        let room = LENGTH_MAX.saturating_sub(offset);
        if room == 0 {
            return Err(Errno::EFBIG);
        }
        let count = (PAGE - offset % PAGE).min(room).min(bytes.len() as u64);
        let before = state.length;
        let end = offset + count;
        if end > before {
            self.grow(state, end)?;
        }
        let written = self.pages.write(offset, &bytes[..count as usize]);
        if written.is_err() && end > before {
            // No reader has seen the longer file: the lock was held.
            state.length = before;
            self.pages.set_end(before)?;
        }
        written.map(|()| count as usize)
    }

    /// Makes it longer. New bytes read as zero.
    fn grow(&self, state: &mut State, length: u64) -> Result<()> {
        if state.seals & raw::F_SEAL_GROW != 0 {
            return Err(Errno::EPERM);
        }
        if self.pages.is_shown() {
            self.pages.clear(state.length..state.length.next_multiple_of(PAGE))?;
        }
        self.pages.set_end(length)?;
        state.length = length;
        Ok(())
    }

    /// Whether a program runs from it.
    pub fn is_running(&self) -> bool {
        self.pages.is_shown() && self.pages.is_running()
    }

    /// Sets the length in bytes. New bytes read as zero; bytes behind the end are forgotten.
    ///
    /// # Errors
    /// [`Errno::EFBIG`] beyond what a file may have, [`Errno::EPERM`] where seals forbid it;
    /// [`Errno::EINVAL`] for a part of a reserved folio; [`Errno::ENOMEM`], as [`Pages::set_end`]
    /// says.
    pub fn truncate(&self, length: u64) -> Result<()> {
        if self.is_reserved() && !length.is_multiple_of(self.block_bytes()) {
            return Err(Errno::EINVAL);
        }
        if length > LENGTH_MAX {
            return Err(Errno::EFBIG);
        }
        let mut state = self.state.lock();
        if length > state.length {
            return self.grow(&mut state, length);
        }
        if length == state.length {
            return Ok(());
        }
        if state.seals & raw::F_SEAL_SHRINK != 0 {
            return Err(Errno::EPERM);
        }
        state.length = length;
        let cut = self.pages.set_end(length);
        self.pages.clear(length..length.next_multiple_of(PAGE))?;
        cut
    }

    /// Makes bytes zero, and frees the pages that hold only these.
    ///
    /// # Errors
    /// [`Errno::EPERM`] where seals forbid it, [`Errno::EIO`].
    pub fn punch(&self, bytes: Range<u64>) -> Result<()> {
        let state = self.state.lock();
        if state.seals & WRITES != 0 {
            return Err(Errno::EPERM);
        }
        let end = bytes.end.min(state.length.next_multiple_of(PAGE));
        if bytes.start < end { self.pages.clear(bytes.start..end) } else { Ok(()) }
    }

    /// Takes memory for these bytes; with `grows`, the file ends behind them at least.
    ///
    /// # Errors
    /// [`Errno::ENOSPC`], [`Errno::EFBIG`]; [`Errno::EPERM`] where seals forbid it.
    pub fn reserve(&self, bytes: Range<u64>, grows: bool) -> Result<()> {
        if bytes.end > LENGTH_MAX {
            return Err(Errno::EFBIG);
        }
        let bytes = match self.is_reserved() {
            true => bytes.start..bytes.end.next_multiple_of(self.block_bytes()),
            false => bytes,
        };
        let end = {
            let mut state = self.state.lock();
            let before = state.length;
            if bytes.end > before && state.seals & raw::F_SEAL_GROW != 0 {
                return Err(Errno::EPERM);
            }
            if grows && bytes.end > before {
                self.grow(&mut state, bytes.end)?;
            }
            state.length
        };
        // There are no pages behind the end here, though Linux keeps some there.
        let bytes = bytes.start.min(end)..bytes.end.min(end);
        if bytes.is_empty() { Ok(()) } else { self.pages.reserve(bytes) }
    }

    /// The first offset at or after `offset` that is not in a hole; `None` if only holes follow.
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        let length = self.len();
        if offset >= length {
            return None;
        }
        let next = self.pages.next(offset..length)?;
        Some(next.start.max(offset)).filter(|at| *at < length)
    }

    /// The first offset at or after `offset` in a hole; the end of the file counts as one. `None`
    /// if `offset` is not in the file.
    pub fn next_hole(&self, offset: u64) -> Option<u64> {
        let length = self.len();
        let mut at = offset;
        while at < length
            && let Some(next) = self.pages.next(at..length).filter(|next| next.start <= at)
        {
            at = next.end;
        }
        (offset < length).then(|| at.min(length))
    }

    /// Its seals: `F_SEAL_` bits.
    pub fn seals(&self) -> u32 {
        self.state.lock().seals
    }

    /// Seals it against more.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for unknown seals; [`Errno::EPERM`] where they are final; [`Errno::EBUSY`]
    /// to keep writers off while an area can be written.
    pub fn seal(&self, more: u32) -> Result<()> {
        if more & !SEALS != 0 {
            return Err(Errno::EINVAL);
        }
        let mut state = self.state.lock();
        if state.seals & raw::F_SEAL_SEAL != 0 {
            return Err(Errno::EPERM);
        }
        let is_new = more & !state.seals & raw::F_SEAL_WRITE != 0;
        if is_new && self.pages.is_writable_somewhere() {
            return Err(Errno::EBUSY);
        }
        state.seals |= more;
        Ok(())
    }

    /// Makes it end at `end` at least, for an area that shows it up to there.
    ///
    /// # Errors
    /// As [`truncate`](Self::truncate).
    pub fn reach(&self, end: u64) -> Result<()> {
        let mut state = self.state.lock();
        if end > state.length { self.grow(&mut state, end) } else { Ok(()) }
    }

    /// Does `map` with the number of its pages, while its seals and its length stay the same.
    /// `is_shared`: writes go to the file; `writes`: they may come at once. `map` gets whether it
    /// may ever happen.
    ///
    /// # Errors
    /// [`Errno::EPERM`] where seals forbid it; [`Errno::ENFILE`]; those of `map`.
    pub fn show<T>(
        &self,
        is_shared: bool,
        writes: bool,
        map: impl FnOnce(u32, bool) -> Result<T>,
    ) -> Result<T> {
        let state = self.state.lock();
        let is_fixed = is_shared && state.seals & WRITES != 0;
        if is_fixed && writes {
            return Err(Errno::EPERM);
        }
        map(self.pages.object()?, !is_fixed)
    }
}

/// Puts at most `count` bytes from `offset` on into `sink`, and says how many these were.
///
/// # Errors
/// The sink's and those of [`Data::read_at`], when the sink took nothing.
pub fn read_to(data: &Data, offset: u64, count: usize, sink: &mut dyn Sink) -> Result<usize> {
    let there = data.len().saturating_sub(offset).min(count as u64) as usize;
    if there <= SMALL {
        let mut bytes = [0; SMALL];
        return read_steps(data, offset, there, &mut bytes, sink);
    }
    read_steps(data, offset, there, &mut zeroes(PIECE.min(there))?, sink)
}

/// Moves bytes in steps that fit the room, up to the end of a page.
fn read_steps(
    data: &Data,
    offset: u64,
    count: usize,
    room: &mut [u8],
    sink: &mut dyn Sink,
) -> Result<usize> {
    let mut done = 0;
    while done < count {
        let at = offset.saturating_add(done as u64);
        let step = (PIECE - (at % PAGE) as usize).min(room.len()).min(count - done);
        let put = data.read_at(at, &mut room[..step]).and_then(|got| {
            sink.put(&room[..got])?;
            Ok(got)
        });
        match put {
            // A truncation came meanwhile.
            Ok(0) => break,
            Ok(got) => done += got,
            Err(errno) => return moved(done, Some(errno)),
        }
    }
    Ok(done)
}

/// Writes all that `source` has left, at `offset` or else at the end of the file, but not beyond
/// `longest`. Says how many bytes these were, and the offset behind the last. A long write is done
/// in parts, between which others may write, too.
///
/// # Errors
/// As [`Data::write_at`], and the source's, when nothing was written.
pub fn write_from(
    data: &Data,
    offset: Option<u64>,
    longest: u64,
    source: &mut dyn Source,
) -> Result<(usize, u64)> {
    let mut done = 0;
    let mut end = offset.unwrap_or_default();
    while source.left() > 0 {
        match write_part(data, offset.map(|_| end), longest, source) {
            Ok((0, _)) => break,
            Ok((count, at)) => {
                done += count;
                end = at;
            }
            Err(errno) => return moved(done, Some(errno)).map(|done| (done, end)),
        }
    }
    Ok((done, end))
}

fn write_part(
    data: &Data,
    offset: Option<u64>,
    longest: u64,
    source: &mut dyn Source,
) -> Result<(usize, u64)> {
    let start = offset.unwrap_or_else(|| data.len());
    if start >= longest.min(LENGTH_MAX) {
        return Err(Errno::EFBIG);
    }
    let most = usize::try_from(longest - start).unwrap_or(usize::MAX);
    if source.left() <= SMALL {
        let mut bytes = [0; SMALL];
        let count = source.take(&mut bytes[..SMALL.min(most)])?;
        return data.write_at(offset, &bytes[..count]);
    }
    let room = PIECE - (start % PAGE) as usize;
    let mut bytes = zeroes(room.min(source.left()).min(most))?;
    let count = source.take(&mut bytes)?;
    data.write_at(offset, &bytes[..count])
}
