//! A program's memory as bytes, and its dirty and accessed bits.

use core::ops::Range;

use quire_linux::files::{Caller, Sink};
use quire_linux::text::number;
use quire_linux::{Errno, Result};

use super::maps;
use super::process::Subject;
use crate::memory::{Memory, Reach, mm};

/// Bytes that are copied at a time.
const PIECE: usize = 1024;

/// `mem`.
///
/// # Errors
/// `EIO` where there is no memory.
pub(super) fn read(of: &Subject, offset: u64, count: usize, sink: &mut dyn Sink) -> Result<usize> {
    let Some(memory) = of.memory() else { return Ok(0) };
    match copy(&memory, offset, count, sink)? {
        0 if count > 0 => Err(Errno::EIO),
        done => Ok(done),
    }
}

/// Writes to `mem`: as the program itself could, and also to private memory that it may only read.
///
/// # Errors
/// `EIO` where it could not.
pub(super) fn write(of: &Subject, offset: u64, bytes: &[u8]) -> Result<usize> {
    let Some(memory) = of.memory() else { return Ok(0) };
    let mut own = [0; PIECE];
    let mut done = 0;
    for piece in bytes.chunks(PIECE) {
        own[..piece.len()].copy_from_slice(piece);
        let at = offset.checked_add(done as u64).ok_or(Errno::EIO)?;
        let moved = memory.reach(at, &mut own[..piece.len()], Reach::Change);
        done += moved;
        if moved < piece.len() {
            break;
        }
    }
    if done == 0 && !bytes.is_empty() { Err(Errno::EIO) } else { Ok(done) }
}

/// `cmdline`: the arguments, each with the zero that ends it.
///
/// # Errors
/// `EFAULT`.
pub(super) fn cmdline(
    of: &Subject,
    offset: u64,
    count: usize,
    sink: &mut dyn Sink,
) -> Result<usize> {
    let range = of.process.program.lock().args.clone();
    part(of, range, offset, count, sink)
}

/// `environ`: the environment, in the same way.
///
/// # Errors
/// `EFAULT`.
pub(super) fn environ(
    of: &Subject,
    offset: u64,
    count: usize,
    sink: &mut dyn Sink,
) -> Result<usize> {
    let range = of.process.program.lock().envs.clone();
    part(of, range, offset, count, sink)
}

/// Bytes of a part of the program's memory.
fn part(
    of: &Subject,
    range: Range<u64>,
    offset: u64,
    count: usize,
    sink: &mut dyn Sink,
) -> Result<usize> {
    let Some(memory) = of.memory() else { return Ok(0) };
    let left = (range.end - range.start.min(range.end)).saturating_sub(offset);
    let count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
    if count == 0 {
        return Ok(0);
    }
    copy(&memory, range.start + offset, count, sink)
}

/// Copies up to `count` bytes of memory; how many there were.
fn copy(memory: &Memory, start: u64, count: usize, sink: &mut dyn Sink) -> Result<usize> {
    let mut own = [0; PIECE];
    let mut done = 0;
    while done < count {
        let Some(at) = start.checked_add(done as u64) else { break };
        let piece = PIECE.min(count - done);
        let moved = memory.reach(at, &mut own[..piece], Reach::Read);
        if moved == 0 {
            break;
        }
        match sink.put(&own[..moved]) {
            Ok(()) => done += moved,
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// `clear_refs`: 1 to 3 forget which pages were touched (all, private ones, those of files), and 4
/// which were written. 5 would reset the peak of its memory, which is not tracked.
///
/// # Errors
/// `EINVAL` for other numbers, `ESRCH` when it has ended, `ENOMEM`.
pub(super) fn clear_refs(of: &Subject, _: &Caller<'_>, bytes: &[u8]) -> Result<()> {
    let which = number(bytes)?;
    if !(1..=5).contains(&which) {
        return Err(Errno::EINVAL);
    }
    let memory = of.memory().ok_or(Errno::ESRCH)?;
    match which {
        1 | 2 => drop(mm().spaces().clear_young(memory.space(), maps::all())),
        4 => mm().spaces().track(memory.space(), maps::all()).map_err(|_| Errno::ENOMEM)?,
        _ => {}
    }
    Ok(())
}
