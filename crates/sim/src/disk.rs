//! A disk of the hosted machine: the content of files.
//!
//! One *stamp* stands for a page, and all words of the page derive from it. So any word tells
//! whether a page was read only half, or is another page.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use quire::cache::{FileId, FilePages, Read, ReadRun, Reads};
use quire::space::Space;
use quire::{ReadFailed, Stop, Write, WriteFailed};
use quire_arch::Arch;
use quire_hw::DirectMap;
use quire_units::{FrameSpan, Pfn, PhysAddr};

use crate::system::HostedMm;

/// A disk. Its methods may be called by several threads.
#[derive(Debug, Default)]
pub struct Disk {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stamps: BTreeMap<(u32, u64), u64>,
    bad: BTreeSet<(u32, u64)>,
    reads: Vec<(u32, FilePages)>,
}

/// Words of a page at which its stamp is written and looked for.
const PLACES: [usize; 5] = [0, 1, 7, 300, 511];

/// Word `index` of a page with `stamp`.
#[must_use]
pub fn word(stamp: u64, index: usize) -> u64 {
    if stamp == 0 {
        0
    } else {
        stamp.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(index as u64)
    }
}

impl Disk {
    /// A disk of zeroes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> impl std::ops::DerefMut<Target = State> + '_ {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a page of a file.
    pub fn put(&self, file: u32, page: u64, stamp: u64) {
        self.state().stamps.insert((file, page), stamp);
    }

    /// The stamp of a page of a file.
    #[must_use]
    pub fn stamp(&self, file: u32, page: u64) -> u64 {
        self.state().stamps.get(&(file, page)).copied().unwrap_or(0)
    }

    /// Makes a page unreadable, or readable again.
    pub fn set_bad(&self, file: u32, page: u64, bad: bool) {
        let mut state = self.state();
        if bad {
            state.bad.insert((file, page))
        } else {
            state.bad.remove(&(file, page))
        };
    }

    /// The reads so far, oldest first; they are forgotten.
    pub fn reads(&self) -> Vec<(u32, FilePages)> {
        std::mem::take(&mut self.state().reads)
    }

    /// Carries out all reads of a plan.
    ///
    /// # Errors
    /// Those of `next_read` of the files.
    pub fn serve<A: Arch>(&self, mm: &HostedMm<'_, '_, A>, mut reads: Reads) -> Result<(), Stop> {
        let mut run = ReadRun::new();
        loop {
            mm.files().next_reads(&mut reads, &mut run)?;
            if run.is_empty() {
                return Ok(());
            }
            let done: Vec<_> = run
                .iter_mut()
                .map(|read| self.read(mm.hardware().ram(), A::PAGE_SHIFT, read))
                .collect();
            if done.iter().all(Result::is_ok) {
                mm.files().reads_done(&mut run);
            } else {
                run.drain().zip(done).for_each(|(read, done)| mm.files().read_done(read, done));
            }
        }
    }

    /// Writes the dirty pages of a file or a swap device; `spaces` are all there are.
    ///
    /// # Errors
    /// Those of `next_write` of the files.
    pub fn write_back<A: Arch>(
        &self,
        mm: &HostedMm<'_, '_, A>,
        file: FileId,
        spaces: &[&Space<A>],
    ) -> Result<(), Stop> {
        let end = mm.files().get(file).map_or(0, |file| file.pages());
        let mut left = FilePages::new(0, end);
        while let Some(run) = mm.files().next_writes(file, &mut left, spaces)? {
            let done: Vec<_> = run
                .parts()
                .map(|part| self.store(mm.hardware().ram(), A::PAGE_SHIFT, file, part, end))
                .collect();
            if done.iter().all(Result::is_ok) {
                mm.files().writes_done(run, Ok(()));
            } else {
                let ended = run.into_writes().zip(done);
                ended.for_each(|(write, done)| mm.files().write_done(write, done));
            }
        }
        Ok(())
    }

    /// Carries a read out.
    ///
    /// # Errors
    /// [`ReadFailed`] when one of the pages is unreadable.
    pub fn read(&self, ram: &DirectMap<'_>, shift: u32, read: &Read) -> Result<(), ReadFailed> {
        let (file, pages) = (read.file().0, read.pages());
        let mut state = self.state();
        state.reads.push((file, pages));
        for (at, page) in (pages.start..pages.end).enumerate() {
            if state.bad.contains(&(file, page)) {
                return Err(ReadFailed);
            }
            let stamp = state.stamps.get(&(file, page)).copied().unwrap_or(0);
            fill(ram, shift, read.frames().start().add(at as u64), stamp);
        }
        Ok(())
    }

    /// Carries a write out, of the pages up to `end`, the file's length.
    ///
    /// # Errors
    /// [`WriteFailed`] when one of the pages is unreadable.
    pub fn write(
        &self,
        ram: &DirectMap<'_>,
        shift: u32,
        write: &Write,
        end: u64,
    ) -> Result<(), WriteFailed> {
        self.store(ram, shift, write.file(), (write.pages(), write.frames()), end)
    }

    /// The same for `pages` of a file, which these frames hold.
    fn store(
        &self,
        ram: &DirectMap<'_>,
        shift: u32,
        file: FileId,
        (pages, frames): (FilePages, FrameSpan),
        end: u64,
    ) -> Result<(), WriteFailed> {
        let (file, mut state) = (file.0, self.state());
        for (at, page) in (pages.start..pages.end.min(end)).enumerate() {
            if state.bad.contains(&(file, page)) {
                return Err(WriteFailed);
            }
            let frame = frames.start.add(at as u64);
            let first = ram.read_word(frame.addr(shift)).unwrap_or_default();
            state.stamps.insert((file, page), unstamped(first));
        }
        Ok(())
    }
}

/// The stamp of a page that begins with `first`.
#[must_use]
pub fn unstamped(first: u64) -> u64 {
    // The inverse of the factor in `word`, modulo 2^64.
    first.wrapping_mul(0xf1de_83e1_9937_733d)
}

/// Writes the words of a page with `stamp`.
pub fn fill(ram: &DirectMap<'_>, shift: u32, frame: Pfn, stamp: u64) {
    let base = frame.addr(shift).get();
    for place in PLACES {
        ram.write_word(PhysAddr::new(base + 8 * place as u64), word(stamp, place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_found_again_in_the_first_word() {
        for stamp in [0, 1, 2, 77, u64::MAX, 1 << 63] {
            assert_eq!(unstamped(word(stamp, 0)), stamp);
        }
    }
}
