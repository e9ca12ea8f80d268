//! Another process's memory, read and written by its number: `process_vm_readv` and its like.
//!
//! Bytes go through the kernel: pins (see `memory`) reach the other side, and the caller's own side
//! is reached as in any call. A bad address undoes nothing: the call returns the bytes moved before
//! it.

use alloc::sync::Arc;

use quire_linux::files::{Sink, Source};
use quire_linux::{Errno, Result};

use super::pieces::{MOST, Pieces};
use crate::memory::{Memory, Reach, user};
use crate::task::{Answer, Thread, find};

/// Pieces that one side may name (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

/// Bytes that are moved at a time.
const STEP: usize = 1024;

pub(super) fn process_vm_readv(thread: &mut Thread, args: [usize; 6]) -> Answer {
    both_sides(thread, args, |memory, at, most, own| {
        let mut bytes = [0; STEP];
        let count = own.room(most.min(STEP));
        let got = memory.reach(at, &mut bytes[..count], Reach::Read);
        own.put(&bytes[..got]).map(|()| got)
    })
}

pub(super) fn process_vm_writev(thread: &mut Thread, args: [usize; 6]) -> Answer {
    both_sides(thread, args, |memory, at, most, own| {
        let mut bytes = [0; STEP];
        let count = own.room(most.min(STEP));
        let count = own.take(&mut bytes[..count])?;
        Ok(memory.reach(at, &mut bytes[..count], Reach::Write))
    })
}

/// Goes over the pieces of both sides. `step` moves bytes for an address of the other side, as many
/// as it can at once but no more than the given number, and returns how many.
fn both_sides(
    thread: &Thread,
    [pid, own, own_count, others, other_count, flags]: [usize; 6],
    step: impl Fn(&Memory, u64, usize, &mut Pieces) -> Result<usize>,
) -> Answer {
    if flags != 0 || other_count > PIECES_MAX {
        return Err(Errno::EINVAL.into());
    }
    let mut own = Pieces::array(own, own_count)?;
    let wanted = total(others, other_count)?;
    if own.left() == 0 || wanted == 0 {
        return Ok(0);
    }
    let process = find(pid as u32).ok_or(Errno::ESRCH)?;
    let memory = process.memory().ok_or(Errno::ESRCH)?;
    if !thread.process().may().may_trace(&process.may()) {
        return Err(Errno::EPERM.into());
    }
    match move_all(&memory, others, other_count, &mut own, step) {
        (0, Some(error)) => Err(error.into()),
        (done, _) => Ok(done),
    }
}

/// The bytes of all pieces of the other side.
///
/// # Errors
/// `EFAULT`; `EINVAL` when a piece has more than can be.
fn total(pieces: usize, count: usize) -> Result<usize> {
    (0..count).try_fold(0_usize, |sum, at| match piece(pieces, at)? {
        [_, bytes] if bytes > isize::MAX as usize => Err(Errno::EINVAL),
        [_, bytes] => Ok(sum.saturating_add(bytes)),
    })
}

fn piece(pieces: usize, at: usize) -> Result<[usize; 2]> {
    user::read(pieces.wrapping_add(16 * at) as u64)
}

/// How many bytes were moved, and why not more.
fn move_all(
    memory: &Arc<Memory>,
    pieces: usize,
    count: usize,
    own: &mut Pieces,
    step: impl Fn(&Memory, u64, usize, &mut Pieces) -> Result<usize>,
) -> (usize, Option<Errno>) {
    let mut done = 0;
    for at in 0..count {
        let [start, bytes] = match piece(pieces, at) {
            Ok(piece) => piece,
            Err(error) => return (done, Some(error)),
        };
        let mut left = bytes;
        while left > 0 && own.left() > 0 && done < MOST {
            let address = (start as u64).saturating_add((bytes - left) as u64);
            match step(memory, address, left, own) {
                Ok(0) => return (done, Some(Errno::EFAULT)),
                Err(error) => return (done, Some(error)),
                Ok(moved) => (left, done) = (left - moved, done + moved),
            }
        }
    }
    (done, None)
}
