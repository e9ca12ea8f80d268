//! Regular files on a read-only disk.

use super::call::{Caller, Sink, moved, zeroes};
use crate::{Errno, Result};

/// Bytes that are copied in one step.
const STEP: usize = 4096;

/// Bytes that are requested ahead of the copy.
const AHEAD: u64 = 1 << 20;

/// A regular file that is not in memory as a whole, and cannot be written.
pub trait Stored: Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> u64;

    /// Bytes that it takes on its disk.
    fn held_bytes(&self) -> u64;

    /// Brings `bytes` bytes from `offset` on into memory, or begins to: all missing pages are
    /// requested. Bytes beyond its end are no error.
    ///
    /// # Errors
    /// [`Errno::BLOCKED`] when something is missing; [`Errno::EIO`] and the like when it cannot be
    /// read, [`Errno::ENOMEM`].
    fn want(&self, who: &Caller<'_>, offset: u64, bytes: u64) -> Result<()>;

    /// Copies bytes from `offset` on into `into`, and says how many there were: fewer only at its
    /// end.
    ///
    /// # Errors
    /// As [`want`](Self::want).
    fn read_at(&self, who: &Caller<'_>, offset: u64, into: &mut [u8]) -> Result<usize>;

    /// The number under which the memory manager has its pages, so that areas can show them; for as
    /// long as the file is in use. `None` when it has none: bytes are copied.
    fn object(&self) -> Option<u32> {
        None
    }
}

/// Puts at most `count` bytes from `offset` on into `sink`, and says how many these were. When some
/// are missing it gives those before them; a call for more goes on behind these.
///
/// # Errors
/// Those of [`Stored::read_at`] and the sink's, when the sink took nothing.
pub(super) fn read_to(
    who: &Caller<'_>,
    file: &dyn Stored,
    offset: u64,
    count: usize,
    sink: &mut dyn Sink,
) -> Result<usize> {
    let there = file.length().saturating_sub(offset).min(count as u64) as usize;
    let mut bytes = zeroes(STEP.min(there))?;
    let mut done = 0;
    while done < there {
        let at = offset + done as u64;
        // Up to a multiple, so that pages are read whole.
        let step = (STEP - (at % STEP as u64) as usize).min(there - done);
        if let Err(errno) = read_step(who, file, at, &mut bytes[..step], there - done, sink) {
            return moved(done, Some(errno));
        }
        done += step;
    }
    Ok(done)
}

/// One step of it. When its bytes are missing, it requests those of later steps, too.
fn read_step(
    who: &Caller<'_>,
    file: &dyn Stored,
    at: u64,
    bytes: &mut [u8],
    ahead: usize,
    sink: &mut dyn Sink,
) -> Result<()> {
    match file.read_at(who, at, bytes) {
        Ok(count) if count == bytes.len() => sink.put(bytes),
        Ok(_) => Err(Errno::EIO),
        Err(Errno::BLOCKED) => {
            // An error of these does not matter: the first of them is on its way.
            let _ = file.want(who, at, AHEAD.min(ahead as u64));
            Err(Errno::BLOCKED)
        }
        Err(errno) => Err(errno),
    }
}
