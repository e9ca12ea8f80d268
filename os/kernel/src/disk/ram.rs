//! A disk in memory: `/dev/ram0`.
//!
//! ```text
//!   chunk of 64 KiB:  absent ── written ──► there ◄──────────────┐
//!                                             └── a program's ──► away
//! ```
//!
//! A chunk that was never written is zero, and takes no memory. A program's copy may fault, and the
//! fault may need the disk: so no lock is held meanwhile, and the chunk is *away* from its place.

use alloc::vec::Vec;

use quire::cache;
use quire::hw::{FrameRun, Memory, Reuse};
use quire::units::{FrameSpan, Order};
use quire_linux::files::{Block, Caller, Number, Source, Stored};
use quire_linux::{Errno, Result};
use spin::mutex::SpinMutex;

use super::behind::Away;
use super::claim::{Claim, Claims};
use super::device;
use super::instant::{Instant, frames};
use crate::memory::{self, PAGE, mm};

/// As on Linux: the numbers of the first disk in memory.
const NUMBER: Number = (1, 0);

/// The unit of allocation: 64 KiB.
const CHUNK: Order = Order::new(4);
const CHUNK_PAGES: u64 = CHUNK.pages();
const CHUNK_BYTES: u64 = CHUNK_PAGES * PAGE;

enum Chunk {
    /// Zeroes.
    Absent,
    There(FrameRun),
    /// A program's copy is at it.
    Away,
}

/// A disk in memory.
pub(super) struct Ram {
    chunks: Vec<SpinMutex<Chunk>>,
    length: u64,
    claims: Claims,
}

impl Ram {
    /// One of `bytes` bytes, whole pages, all zero.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub(super) fn new(bytes: u64) -> Result<Self> {
        let count = usize::try_from(bytes.div_ceil(CHUNK_BYTES)).map_err(|_| Errno::ENOMEM)?;
        let mut chunks = Vec::new();
        chunks.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
        chunks.extend((0..count).map(|_| SpinMutex::new(Chunk::Absent)));
        Ok(Self { chunks, length: bytes, claims: Claims::default() })
    }

    /// Calls `act` for each part of the `count` pages from `page` on that lies in one chunk: the
    /// chunk, the first page in it, how many, and how many pages were before.
    fn each(
        &self,
        page: u64,
        count: u64,
        mut act: impl FnMut(&mut Chunk, u64, u64, u64) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        while done < count {
            let (number, at) = ((page + done) / CHUNK_PAGES, (page + done) % CHUNK_PAGES);
            let part = (CHUNK_PAGES - at).min(count - done);
            let chunk = self.chunks.get(number as usize).ok_or(Errno::EIO)?;
            act(&mut chunk.lock(), at, part, done)?;
            done += part;
        }
        Ok(())
    }

    /// Takes a chunk from its place, or `None` where there are zeroes. Its owner is in the middle
    /// of a copy and brings it back soon.
    fn take(&self, number: u64) -> Result<Option<FrameRun>> {
        let chunk = self.chunks.get(number as usize).ok_or(Errno::EIO)?;
        loop {
            match core::mem::replace(&mut *chunk.lock(), Chunk::Away) {
                Chunk::Absent => return Ok(None),
                Chunk::There(run) => return Ok(Some(run)),
                Chunk::Away => core::hint::spin_loop(),
            }
        }
    }

    /// Puts a chunk that was taken back to its place.
    fn put(&self, number: u64, run: Option<FrameRun>) {
        if let Some(chunk) = self.chunks.get(number as usize) {
            *chunk.lock() = run.map_or(Chunk::Absent, Chunk::There);
        }
    }
}

/// Frames for a chunk of which all but `count` pages from `at` on, which are to be written, are
/// zero.
fn fresh(at: u64, count: u64) -> Result<FrameRun> {
    let run = frames(CHUNK)?;
    for rest in [0..at, at + count..CHUNK_PAGES].into_iter().filter(|rest| !rest.is_empty()) {
        mm().hardware().clear(&run, rest, Reuse::Later);
    }
    Ok(run)
}

impl Instant for Ram {
    fn claims(&self) -> &Claims {
        &self.claims
    }

    fn store(&self, page: u64, from: FrameSpan) -> Result<()> {
        self.each(page, from.count, |chunk, at, count, done| {
            if matches!(chunk, Chunk::Absent) {
                *chunk = Chunk::There(fresh(at, count)?);
            }
            let Chunk::There(run) = chunk else { return Err(Errno::EIO) };
            let part = FrameSpan::new(from.start.add(done), count);
            mm().hardware().copy(run, at, part).map_err(|_| Errno::EIO)
        })
    }

    fn load(&self, page: u64, read: &mut cache::Read) -> Result<Away> {
        let to = read.frames();
        let done = self.each(page, to.count(), |chunk, at, count, done| match chunk {
            Chunk::There(run) => {
                let part = FrameSpan::new(run.start().add(at), count);
                mm().hardware().copy(to, done, part).map_err(|_| Errno::EIO)
            }
            Chunk::Absent => {
                mm().hardware().clear(to, done..done + count, Reuse::Soon);
                Ok(())
            }
            Chunk::Away => Err(Errno::EIO),
        });
        done.map(|()| Away::default())
    }
}

impl Stored for Ram {
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
            let (number, at) = ((offset + done as u64) / CHUNK_BYTES, offset + done as u64);
            let count = (CHUNK_BYTES - at % CHUNK_BYTES).min((there - done) as u64) as usize;
            let bytes = &mut into[done..done + count];
            let run = self.take(number)?;
            match &run {
                Some(run) => device::copy(run, at % CHUNK_BYTES, bytes),
                None => bytes.fill(0),
            }
            self.put(number, run);
            done += count;
        }
        Ok(there)
    }
}

impl Block for Ram {
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
        let (number, at) = (offset / CHUNK_BYTES, offset % CHUNK_BYTES);
        let room = (CHUNK_BYTES - at).min(self.length.saturating_sub(offset));
        let count = room.min(source.left() as u64) as usize;
        let (mut run, was_absent) = match self.take(number)? {
            Some(run) => (run, false),
            None => match fresh(0, 0) {
                Ok(run) => (run, true),
                Err(error) => {
                    self.put(number, None);
                    return Err(error);
                }
            },
        };
        let taken = device::fill(&mut run, at, count, source);
        if was_absent && !matches!(taken, Ok(1..)) {
            mm().phys().free(run);
            self.put(number, None);
        } else {
            self.put(number, Some(run));
        }
        taken
    }

    fn sync(&self, _: &Caller<'_>) -> Result<()> {
        Ok(())
    }
}
