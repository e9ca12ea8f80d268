//! What a regular file contains.
//!
//! ```text
//!   base    |=========================|            bytes of the initramfs, borrowed for ever
//!   pieces          |####|       |####|  |####|    what was written, each PIECE bytes, aligned
//!   reads   |=======|####|=======|####|00|####|00| pieces first, then the base, else zeroes
//!                                           length ┘
//! ```
//!
//! Nothing is ever one large allocation, and a file of holes costs nothing.
//!
//! No lock of a file is held while a program's memory is touched: that memory may be a mapping of
//! the same file, and a fault in it would come here again. So pieces are shared, and what reads
//! holds the piece, not the lock; who writes to a piece that is being read makes a new one.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use spin::mutex::SpinMutex;

use super::call::{Sink, Source, moved, zeroes};
use crate::{Errno, Result};

/// Bytes of a piece.
pub const PIECE: usize = 4096;

/// The most bytes that a file may have: what a signed offset can tell.
pub const LENGTH_MAX: u64 = i64::MAX as u64;

static ZEROES: [u8; PIECE] = [0; PIECE];

/// Bytes of a write that are gathered without the heap.
const SMALL: usize = 256;

/// The contents of a regular file.
#[derive(Default)]
pub struct Data {
    base: &'static [u8],
    /// Written pieces by index: each has exactly [`PIECE`] bytes, zero beyond `length`.
    pieces: BTreeMap<u64, Arc<Vec<u8>>>,
    length: u64,
}

impl Data {
    /// No bytes.
    pub const fn new() -> Self {
        Self { base: &[], pieces: BTreeMap::new(), length: 0 }
    }

    /// These bytes, which are not copied before they are written.
    pub const fn borrowed(base: &'static [u8]) -> Self {
        Self { base, pieces: BTreeMap::new(), length: base.len() as u64 }
    }

    /// Length in bytes.
    pub const fn len(&self) -> u64 {
        self.length
    }

    /// Whether it has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Bytes of memory that written pieces take.
    pub fn held_bytes(&self) -> u64 {
        self.pieces.len() as u64 * PIECE as u64
    }

    /// Copies bytes from `offset` on into `into`, and says how many there were.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> usize {
        let mut done = 0;
        while done < into.len() {
            let run = self.run(offset.saturating_add(done as u64), into.len() - done);
            let bytes = run.bytes();
            if bytes.is_empty() {
                break;
            }
            into[done..done + bytes.len()].copy_from_slice(bytes);
            done += bytes.len();
        }
        done
    }

    /// Writes `bytes` at `offset`, and says how many it wrote.
    ///
    /// # Errors
    /// [`Errno::ENOSPC`] when there is no memory, [`Errno::EFBIG`] beyond [`LENGTH_MAX`]: each
    /// only when nothing was written.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<usize> {
        let mut done = 0;
        while done < bytes.len() {
            match self.write_piece(offset.saturating_add(done as u64), &bytes[done..]) {
                Ok(count) => done += count,
                Err(errno) => return moved(done, Some(errno)),
            }
        }
        Ok(done)
    }

    /// Sets the length in bytes. What is new reads as zero; what is cut off is forgotten.
    ///
    /// # Errors
    /// [`Errno::EFBIG`] beyond [`LENGTH_MAX`], [`Errno::ENOSPC`].
    pub fn truncate(&mut self, length: u64) -> Result<()> {
        if length > LENGTH_MAX {
            return Err(Errno::EFBIG);
        }
        if length < self.length {
            let tail = (length % PIECE as u64) as usize;
            if tail > 0 && self.pieces.contains_key(&(length / PIECE as u64)) {
                self.own_piece(length / PIECE as u64)?[tail..].fill(0);
            }
            drop(self.pieces.split_off(&length.div_ceil(PIECE as u64)));
            let base = usize::try_from(length).unwrap_or(usize::MAX).min(self.base.len());
            self.base = &self.base[..base];
        }
        self.length = length;
        Ok(())
    }

    /// The first offset at or after `offset` that is not in a hole; `None` if only holes follow.
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        if offset >= self.length {
            return None;
        }
        if offset < self.base.len() as u64 {
            return Some(offset);
        }
        let (index, _) = self.pieces.range(offset / PIECE as u64..).next()?;
        Some(offset.max(index * PIECE as u64))
    }

    /// The first offset at or after `offset` in a hole; the end of the file counts as one. `None`
    /// if `offset` is not in the file.
    pub fn next_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.length {
            return None;
        }
        let base = self.base.len().next_multiple_of(PIECE) as u64 / PIECE as u64;
        let mut index =
            (offset / PIECE as u64).max(if offset < base * PIECE as u64 { base } else { 0 });
        while self.pieces.contains_key(&index) {
            index += 1;
        }
        Some(offset.max(index * PIECE as u64).min(self.length))
    }

    /// At most `most` bytes at `offset` that are together somewhere; none at the end of the file.
    fn run(&self, offset: u64, most: usize) -> Run {
        let within = (offset % PIECE as u64) as usize;
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        if let Some(piece) = self.pieces.get(&(offset / PIECE as u64)) {
            let count = most.min(left).min(PIECE - within);
            return Run::Piece(piece.clone(), within..within + count);
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.base.len());
        let most = most.min(left).min(self.unwritten(offset));
        let base = &self.base[start..self.base.len().min(start.saturating_add(most))];
        Run::Static(if base.is_empty() { &ZEROES[..most.min(PIECE)] } else { base })
    }

    /// Bytes from `offset` on, which is in no piece, up to the next piece.
    fn unwritten(&self, offset: u64) -> usize {
        let next = self.pieces.range(offset / PIECE as u64..).next();
        next.map_or(usize::MAX, |(index, _)| (index * PIECE as u64 - offset) as usize)
    }

    /// The piece `index`, to write to it: made from the base or from zeroes, or copied, if need be.
    fn own_piece(&mut self, index: u64) -> Result<&mut Vec<u8>> {
        if self.pieces.get(&index).is_none_or(|piece| Arc::strong_count(piece) > 1) {
            let mut piece = zeroes(PIECE).map_err(|_| Errno::ENOSPC)?;
            self.read_at(index * PIECE as u64, &mut piece);
            self.pieces.insert(index, Arc::new(piece));
        }
        self.pieces.get_mut(&index).and_then(Arc::get_mut).ok_or(Errno::ENOSPC)
    }

    fn write_piece(&mut self, offset: u64, bytes: &[u8]) -> Result<usize> {
        let room = usize::try_from(LENGTH_MAX.saturating_sub(offset)).unwrap_or(usize::MAX);
        if room == 0 {
            return Err(Errno::EFBIG);
        }
        let within = (offset % PIECE as u64) as usize;
        let count = bytes.len().min(PIECE - within).min(room);
        let piece = self.own_piece(offset / PIECE as u64)?;
        piece[within..within + count].copy_from_slice(&bytes[..count]);
        self.length = self.length.max(offset + count as u64);
        Ok(count)
    }

    /// Writes `piece` at `offset`: it becomes part of the file as it is when it is a whole piece.
    fn write_whole(&mut self, offset: u64, piece: Vec<u8>) -> Result<usize> {
        let end = offset.saturating_add(PIECE as u64);
        if piece.len() != PIECE || !offset.is_multiple_of(PIECE as u64) || end > LENGTH_MAX {
            return self.write_at(offset, &piece);
        }
        self.pieces.insert(offset / PIECE as u64, Arc::new(piece));
        self.length = self.length.max(end);
        Ok(PIECE)
    }
}

/// Bytes of a file that can be read without its lock.
enum Run {
    Static(&'static [u8]),
    Piece(Arc<Vec<u8>>, Range<usize>),
}

impl Run {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Static(bytes) => bytes,
            Self::Piece(piece, range) => &piece[range.clone()],
        }
    }
}

/// Puts at most `count` bytes from `offset` on into `sink`, and says how many these were.
///
/// # Errors
/// The sink's, when it took nothing.
pub fn read_to(
    data: &SpinMutex<Data>,
    offset: u64,
    count: usize,
    sink: &mut dyn Sink,
) -> Result<usize> {
    let mut done = 0;
    while done < count {
        let run = data.lock().run(offset.saturating_add(done as u64), count - done);
        let bytes = run.bytes();
        if bytes.is_empty() {
            break;
        }
        if let Err(errno) = sink.put(bytes) {
            return moved(done, Some(errno));
        }
        done += bytes.len();
    }
    Ok(done)
}

/// Writes all that `source` has left, at `offset` or else at the end of the file. Says how many
/// bytes these were, and the offset behind the last. A long write is done in parts, between which
/// others may write, too.
///
/// # Errors
/// As [`Data::write_at`], and the source's, when nothing was written.
pub fn write_from(
    data: &SpinMutex<Data>,
    offset: Option<u64>,
    source: &mut dyn Source,
) -> Result<(usize, u64)> {
    let mut done = 0;
    let mut end = offset.unwrap_or_default();
    while source.left() > 0 {
        match write_part(data, offset.map(|_| end), source) {
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
    data: &SpinMutex<Data>,
    offset: Option<u64>,
    source: &mut dyn Source,
) -> Result<(usize, u64)> {
    if offset.is_some_and(|offset| offset >= LENGTH_MAX) {
        return Err(Errno::EFBIG);
    }
    if source.left() <= SMALL {
        let mut bytes = [0; SMALL];
        let count = source.take(&mut bytes)?;
        let mut data = data.lock();
        let offset = offset.unwrap_or(data.len());
        let count = data.write_at(offset, &bytes[..count])?;
        return Ok((count, offset + count as u64));
    }
    let start = offset.unwrap_or_else(|| data.lock().len());
    let room = PIECE - (start % PIECE as u64) as usize;
    let mut bytes = zeroes(room.min(source.left())).map_err(|_| Errno::ENOSPC)?;
    let count = source.take(&mut bytes)?;
    bytes.truncate(count);
    let mut data = data.lock();
    let offset = offset.unwrap_or(data.len());
    let count = data.write_whole(offset, bytes)?;
    Ok((count, offset + count as u64))
}
