//! Calls on descriptors: bytes to and from a program's memory, and the state of an open file. Calls
//! on paths are in [`names`](super::names); the work itself is in [`quire_linux::files`].
//!
//! A call that must wait is left, and made again from the start. Two keep their progress: a write
//! to a pipe that took a part, and a read or write of a file when a part of the bytes was in
//! memory. Their count is in [`Resume::Moved`], and they go on behind it.

use alloc::sync::Arc;

use linux_raw_sys::general as abi;
use quire_linux::files::{Body, Calls, Device, Halt, LENGTH_MAX, Outcome, Source};
use quire_linux::signal::{Info, Signal};
use quire_linux::{Errno, Result};

use super::pieces::{MOST, Pieces};
use super::watch;
use crate::isa;
use crate::memory::user;
use crate::task::tree::with_calls;
use crate::task::{Answer, Resume, Stop, Thread, send};

/// Bytes of the largest structure that an `ioctl` moves.
const IOCTL_BYTES: usize = 4096;

/// The answer of a call that may have to wait.
pub(super) fn answer(outcome: Outcome<usize>) -> Answer {
    outcome.map_err(|halt| match halt {
        Halt::Blocked => Stop::Wait(None),
        Halt::Failed(errno) => errno.into(),
    })
}

/// How many bytes the call that waits has moved, if any: it ends with that, not with `EINTR`.
pub(super) fn moved(thread: &Thread) -> Option<usize> {
    match thread.resume {
        Resume::Moved(count) | Resume::Within(count, _) => Some(count),
        _ => None,
    }
}

/// Sends SIGPIPE where the pipe has no reader: the writer gets `EPIPE` and the signal.
fn report_pipe<T>(thread: &Thread, outcome: &Outcome<T>) {
    if matches!(outcome, Err(Halt::Failed(Errno::EPIPE))) {
        // With too many signals pending, the errno alone must do.
        let _ = send::to_task(&thread.task, Info::kernel(Signal::PIPE));
    }
}

/// Sends SIGXFSZ where a file would become longer than the process may make one.
pub(super) fn report_size<T>(thread: &Thread, errno: Option<Errno>, outcome: T) -> T {
    let is_limited = thread.process().limits.soft(abi::RLIMIT_FSIZE) < LENGTH_MAX;
    if errno == Some(Errno::EFBIG) && is_limited {
        let _ = send::to_task(&thread.task, Info::kernel(Signal::XFSZ));
    }
    outcome
}

fn read_to(thread: &mut Thread, fd: usize, to: Pieces) -> Answer {
    let all = Bytes::new(fd, to, false);
    move_all(thread, all, |calls, _, to| calls.read(fd as u32, to.left(), to))
}

fn write_from(thread: &mut Thread, fd: usize, from: Pieces) -> Answer {
    let all = Bytes::new(fd, from, true);
    move_all(thread, all, |calls, _, from| calls.write(fd as u32, from))
}

fn read_at(thread: &mut Thread, fd: usize, offset: usize, to: Pieces) -> Answer {
    let all = Bytes::new(fd, to, false);
    move_all(thread, all, |calls, done, to| {
        // A negative offset stays one: nothing is done then.
        calls.pread64(fd as u32, (offset as i64).saturating_add(done as i64), to.left(), to)
    })
}

fn write_at(thread: &mut Thread, fd: usize, offset: usize, from: Pieces) -> Answer {
    let all = Bytes::new(fd, from, true);
    move_all(thread, all, |calls, done, from| {
        calls.pwrite64(fd as u32, (offset as i64).saturating_add(done as i64), from)
    })
}

/// Whether a read of `fd` is to go on when a part was read: other parts may be on a disk.
fn reads_all(calls: &Calls<'_>, fd: u32) -> quire_linux::Result<bool> {
    calls.is_regular(fd)
}

/// Whether a write to `fd` is to go on when a part was written: a pipe may wait for room, a file
/// for the source's bytes.
fn takes_all(calls: &Calls<'_>, fd: u32) -> quire_linux::Result<bool> {
    Ok(calls.is_regular(fd)? || calls.must_go_on(fd)?)
}

/// The bytes that a call moves.
pub(super) struct Bytes {
    pub(super) fd: u32,
    pub(super) pieces: Pieces,
    /// Whether the call goes on when less was moved than it asked for. Else that is its end, as it
    /// is when nothing more is moved.
    pub(super) all_of: fn(&Calls<'_>, u32) -> quire_linux::Result<bool>,
    /// Whether they come from the program.
    pub(super) writes: bool,
    /// Whether no signal tells that there is no reader.
    pub(super) is_quiet: bool,
}

impl Bytes {
    /// All that there are, by a plain read or write.
    fn new(fd: usize, pieces: Pieces, writes: bool) -> Self {
        let all_of = if writes { takes_all } else { reads_all };
        Self { fd: fd as u32, pieces, all_of, writes, is_quiet: false }
    }
}

/// Moves bytes until all are moved. `step` gets the number of bytes before.
///
/// The call is left where it lacks a page of a disk, of the file or of the program's memory. Pipes
/// and devices wait for the page in place, as they may have changed when the call is made again.
pub(super) fn move_all(
    thread: &mut Thread,
    mut all: Bytes,
    mut step: impl FnMut(&Calls<'_>, usize, &mut Pieces) -> Outcome<usize>,
) -> Answer {
    let mut done = moved(thread).unwrap_or(0);
    let pieces = &mut all.pieces;
    pieces.skip(done);
    loop {
        let outcome = with_calls(thread, |calls| {
            if calls.is_regular(all.fd)? {
                pieces.wait_as(calls.who);
            }
            let wanted = pieces.left();
            let count = step(calls, done, pieces)?;
            Ok((count, 0 < count && count < wanted && (all.all_of)(calls, all.fd)?))
        });
        if !all.is_quiet {
            report_pipe(thread, &outcome);
        }
        if let (0, Err(Halt::Failed(errno))) = (done, &outcome) {
            report_size(thread, Some(*errno), ());
        }
        match outcome {
            Ok((count, true)) => done += count,
            Ok((count, false)) => return Ok(done + count),
            Err(Halt::Failed(error)) if done > 0 && error != Errno::BLOCKED => return Ok(done),
            Err(Halt::Blocked) => return wait_within(thread, all.fd, all.writes, done),
            Err(halt) => {
                if done > 0 {
                    thread.resume = Resume::Moved(done);
                }
                return answer(Err(halt));
            }
        }
    }
}

/// Waits, but no longer than the file's patience, which begins with the first wait.
fn wait_within(thread: &mut Thread, fd: u32, writes: bool, done: usize) -> Answer {
    let now = isa::now();
    let hour = match thread.resume {
        Resume::Within(_, hour) => Some(hour),
        _ => with_calls(thread, |calls| calls.patience(fd, writes))?.map(|ns| now + ns),
    };
    match hour {
        Some(hour) if hour <= now && done > 0 => return Ok(done),
        Some(hour) if hour <= now => return Err(Errno::EAGAIN.into()),
        Some(hour) => thread.resume = Resume::Within(done, hour),
        None if done > 0 => thread.resume = Resume::Moved(done),
        None => {}
    }
    Err(Stop::Wait(hour))
}

pub(super) fn read(thread: &mut Thread, [fd, to, count, ..]: [usize; 6]) -> Answer {
    read_to(thread, fd, Pieces::one(to, count)?)
}

pub(super) fn write(thread: &mut Thread, [fd, from, count, ..]: [usize; 6]) -> Answer {
    write_from(thread, fd, Pieces::one(from, count)?)
}

pub(super) fn readv(thread: &mut Thread, [fd, array, count, ..]: [usize; 6]) -> Answer {
    read_to(thread, fd, Pieces::array(array, count)?)
}

pub(super) fn writev(thread: &mut Thread, [fd, array, count, ..]: [usize; 6]) -> Answer {
    write_from(thread, fd, Pieces::array(array, count)?)
}

pub(super) fn pread64(thread: &mut Thread, [fd, to, count, offset, ..]: [usize; 6]) -> Answer {
    read_at(thread, fd, offset, Pieces::one(to, count)?)
}

pub(super) fn pwrite64(thread: &mut Thread, [fd, from, count, offset, ..]: [usize; 6]) -> Answer {
    write_at(thread, fd, offset, Pieces::one(from, count)?)
}

pub(super) fn preadv(thread: &mut Thread, [fd, array, count, offset, ..]: [usize; 6]) -> Answer {
    read_at(thread, fd, offset, Pieces::array(array, count)?)
}

pub(super) fn pwritev(thread: &mut Thread, [fd, array, count, offset, ..]: [usize; 6]) -> Answer {
    write_at(thread, fd, offset, Pieces::array(array, count)?)
}

/// The offset that stands for the description's own.
const OWN_OFFSET: usize = usize::MAX;

pub(super) fn preadv2(thread: &mut Thread, args: [usize; 6]) -> Answer {
    match args {
        [.., flags] if flags as u32 != 0 => Err(Errno::EOPNOTSUPP.into()),
        [.., OWN_OFFSET, _, _] => readv(thread, args),
        _ => preadv(thread, args),
    }
}

pub(super) fn pwritev2(thread: &mut Thread, args: [usize; 6]) -> Answer {
    match args {
        [.., flags] if flags as u32 != 0 => Err(Errno::EOPNOTSUPP.into()),
        [.., OWN_OFFSET, _, _] => writev(thread, args),
        _ => pwritev(thread, args),
    }
}

pub(super) fn lseek(thread: &mut Thread, [fd, offset, whence, ..]: [usize; 6]) -> Answer {
    let to = with_calls(thread, |calls| calls.lseek(fd as u32, offset as i64, whence as u32))?;
    Ok(to as usize)
}

pub(super) fn sendfile(thread: &mut Thread, [to, from, place, count, ..]: [usize; 6]) -> Answer {
    let offset = match place {
        0 => None,
        _ => {
            let offset = user::read::<i64>(place as u64)?;
            Some(u64::try_from(offset).map_err(|_| Errno::EINVAL)?)
        }
    };
    let count = count.min(MOST);
    let sent = with_calls(thread, |calls| calls.sendfile(to as u32, from as u32, offset, count));
    report_pipe(thread, &sent);
    if let (Ok(count), Some(offset)) = (&sent, offset) {
        user::write(place as u64, &(offset + *count as u64))?;
    }
    answer(sent)
}

pub(super) fn close(thread: &mut Thread, [fd, ..]: [usize; 6]) -> Answer {
    with_calls(thread, |calls| calls.close(fd as u32))?;
    Ok(0)
}

/// With `CLOSE_RANGE_UNSHARE`, the whole process stops sharing its descriptors with others; its
/// own threads always share them here.
pub(super) fn close_range(thread: &mut Thread, [first, last, flags, ..]: [usize; 6]) -> Answer {
    let (first, last, flags) = (first as u32, last as u32, flags as u32);
    // Linux's numbers (linux/close_range.h).
    const UNSHARE: u32 = 1 << 1;
    const CLOEXEC: u32 = 1 << 2;
    if flags & UNSHARE != 0 && flags & !(UNSHARE | CLOEXEC) == 0 && first <= last {
        let process = thread.process();
        let own = Arc::new(process.files().duplicate()?);
        // The table that it shared may be dropped by this; that must not happen under the lock.
        let shared = core::mem::replace(&mut *process.files.lock(), own);
        drop(shared);
    }
    with_calls(thread, |calls| calls.close_range(first, last, flags))?;
    Ok(0)
}

pub(super) fn dup(thread: &mut Thread, [fd, ..]: [usize; 6]) -> Answer {
    Ok(with_calls(thread, |calls| calls.dup(fd as u32))? as usize)
}

#[cfg(target_arch = "x86_64")]
pub(super) fn dup2(thread: &mut Thread, [from, to, ..]: [usize; 6]) -> Answer {
    Ok(with_calls(thread, |calls| calls.dup2(from as u32, to as u32))? as usize)
}

pub(super) fn dup3(thread: &mut Thread, [from, to, flags, ..]: [usize; 6]) -> Answer {
    Ok(with_calls(thread, |calls| calls.dup3(from as u32, to as u32, flags as u32))? as usize)
}

pub(super) fn fcntl(thread: &mut Thread, [fd, command, argument, ..]: [usize; 6]) -> Answer {
    let (fd, command) = (fd as u32, command as u32);
    if matches!(command, abi::F_GETLK | abi::F_OFD_GETLK) {
        with_calls(thread, |calls| calls.open_file(fd).map(drop))?;
        // The kind of lock stands first in the structure: no process holds one.
        user::write(argument as u64, &(abi::F_UNLCK as u16))?;
        return Ok(0);
    }
    Ok(with_calls(thread, |calls| calls.fcntl(fd, command, argument as u64))? as usize)
}

pub(super) fn flock(thread: &mut Thread, [fd, ..]: [usize; 6]) -> Answer {
    with_calls(thread, |calls| calls.flock(fd as u32))?;
    Ok(0)
}

pub(super) fn ioctl(thread: &mut Thread, [fd, request, argument, ..]: [usize; 6]) -> Answer {
    if request as u32 == watch::NEW && with_calls(thread, |calls| makes_watchers(calls, fd))? {
        return watch::make(thread, argument as u32);
    }
    let mut input = Pieces::unchecked(argument, IOCTL_BYTES);
    let mut output = Pieces::unchecked(argument, IOCTL_BYTES);
    let value = with_calls(thread, |calls| {
        calls.ioctl(fd as u32, request as u32, argument as u64, &mut input, &mut output)
    })?;
    Ok(value as usize)
}

fn makes_watchers(calls: &Calls<'_>, fd: usize) -> Result<bool> {
    Ok(matches!(calls.open_file(fd as u32)?.node().body(), Body::Device(Device::Watchers)))
}

pub(super) fn pipe2(thread: &mut Thread, [out, flags, ..]: [usize; 6]) -> Answer {
    with_calls(thread, |calls| {
        let ends = calls.pipe2(flags as u32)?;
        let told = user::write(out as u64, &ends);
        if told.is_err() {
            // Another thread may have closed them already.
            let _ = ends.map(|end| calls.close(end));
        }
        told
    })?;
    Ok(0)
}

#[cfg(target_arch = "x86_64")]
pub(super) fn pipe(thread: &mut Thread, [out, ..]: [usize; 6]) -> Answer {
    pipe2(thread, [out, 0, 0, 0, 0, 0])
}

/// `fsync`, `fdatasync`.
pub(super) fn fsync(thread: &mut Thread, [fd, ..]: [usize; 6]) -> Answer {
    with_calls(thread, |calls| calls.fsync(fd as u32))?;
    Ok(0)
}

pub(super) fn syncfs(thread: &mut Thread, [fd, ..]: [usize; 6]) -> Answer {
    with_calls(thread, |calls| calls.open_file(fd as u32).map(drop))?;
    Ok(0)
}

pub(super) fn fadvise64(thread: &mut Thread, [fd, _, bytes, advice, ..]: [usize; 6]) -> Answer {
    let open = with_calls(thread, |calls| calls.open_file(fd as u32))?;
    if open.end().is_some() {
        return Err(Errno::ESPIPE.into());
    }
    if advice > abi::POSIX_FADV_NOREUSE as usize || (bytes as isize) < 0 {
        return Err(Errno::EINVAL.into());
    }
    Ok(0)
}

pub(super) fn fstat(thread: &mut Thread, [fd, out, ..]: [usize; 6]) -> Answer {
    let about = with_calls(thread, |calls| calls.fstat(fd as u32))?;
    user::write_bytes(out as u64, &about)?;
    Ok(0)
}

pub(super) fn fstatfs(thread: &mut Thread, [fd, out, ..]: [usize; 6]) -> Answer {
    let about = with_calls(thread, |calls| calls.fstatfs(fd as u32))?;
    user::write_bytes(out as u64, &about)?;
    Ok(0)
}

pub(super) fn getdents64(thread: &mut Thread, [fd, out, count, ..]: [usize; 6]) -> Answer {
    // The count is an unsigned int.
    let count = count as u32 as usize;
    let mut to = Pieces::unchecked(out, count);
    Ok(with_calls(thread, |calls| calls.getdents64(fd as u32, count, &mut to))?)
}

pub(super) fn ftruncate(thread: &mut Thread, [fd, length, ..]: [usize; 6]) -> Answer {
    let done = with_calls(thread, |calls| calls.ftruncate(fd as u32, length as i64));
    report_size(thread, done.err(), done)?;
    Ok(0)
}

pub(super) fn fallocate(thread: &mut Thread, [fd, mode, offset, length, ..]: [usize; 6]) -> Answer {
    let done = with_calls(thread, |calls| {
        calls.fallocate(fd as u32, mode as u32, offset as i64, length as i64)
    });
    report_size(thread, done.err(), done)?;
    Ok(0)
}

pub(super) fn fchmod(thread: &mut Thread, [fd, mode, ..]: [usize; 6]) -> Answer {
    with_calls(thread, |calls| calls.fchmod(fd as u32, mode as u32))?;
    Ok(0)
}

pub(super) fn fchown(thread: &mut Thread, [fd, uid, gid, ..]: [usize; 6]) -> Answer {
    with_calls(thread, |calls| {
        // Else the number that stands for the working directory would be accepted.
        calls.open_file(fd as u32)?;
        calls.fchownat(fd as i32, b"", uid as u32, gid as u32, abi::AT_EMPTY_PATH)
    })?;
    Ok(0)
}

pub(super) fn fchdir(thread: &mut Thread, [fd, ..]: [usize; 6]) -> Answer {
    with_calls(thread, |calls| calls.fchdir(fd as u32))?;
    Ok(0)
}
