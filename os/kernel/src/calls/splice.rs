//! `vmsplice`: bytes of memory into a pipe, or out of one.
//!
//! Linux lets the pipe refer to the pages. Here the call copies them, so a reader finds the bytes
//! as they were then; the call's contract allows that.

use linux_raw_sys::general as abi;
use quire_linux::Errno;
use quire_linux::files::Halt;
use quire_linux::signal::{Info, Signal};

use super::files;
use super::pieces::Pieces;
use crate::task::tree::with_calls;
use crate::task::{Answer, Stop, Thread, send};

/// The flags (linux/splice.h): move, do not wait, more comes, take the pages.
const MOVE: u32 = 1;
const NONBLOCK: u32 = 2;
const MORE: u32 = 4;
const GIFT: u32 = 8;

pub(super) fn vmsplice(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [fd, array, count, flags, ..] = args;
    if flags as u32 & !(MOVE | NONBLOCK | MORE | GIFT) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let open = with_calls(thread, |calls| calls.open_file(fd as u32))?;
    if open.end().is_none() {
        return Err(Errno::EBADF.into());
    }
    let done = match open.flags() & abi::O_ACCMODE {
        abi::O_RDONLY => files::readv(thread, [fd, array, count, 0, 0, 0]),
        _ => put(thread, fd as u32, Pieces::array(array, count)?),
    };
    match done {
        Err(Stop::Wait(_)) if flags as u32 & NONBLOCK != 0 => Err(Errno::EAGAIN.into()),
        other => other,
    }
}

/// Puts as many bytes into the pipe as have room there; unlike `write`, it does not wait for more
/// room.
fn put(thread: &Thread, fd: u32, mut from: Pieces) -> Answer {
    let done = with_calls(thread, |calls| calls.write(fd, &mut from));
    if matches!(done, Err(Halt::Failed(Errno::EPIPE))) {
        // With too many signals pending, the errno alone must do.
        let _ = send::to_task(&thread.task, Info::kernel(Signal::PIPE));
    }
    files::answer(done)
}
