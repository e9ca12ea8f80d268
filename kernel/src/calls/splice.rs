//! `vmsplice`: bytes of memory into a pipe, or out of one.
//!
//! Linux lets the pipe refer to the pages. Here they are copied when the call is made, so what a
//! reader finds is what was there then; that is within what the call promises.

use linux_raw_sys::general as abi;
use quire_linux::Errno;

use super::files;
use crate::task::tree::with_calls;
use crate::task::{Answer, Resume, Stop, Thread};

/// What may be asked for (linux/splice.h): move, do not wait, more comes, take the pages.
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
    let may_write = open.flags() & abi::O_ACCMODE != abi::O_RDONLY;
    let pieces = [fd, array, count, 0, 0, 0];
    let done = match may_write {
        true => files::writev(thread, pieces),
        false => files::readv(thread, pieces),
    };
    match done {
        Err(Stop::Wait(_)) if flags as u32 & NONBLOCK != 0 => {
            match core::mem::take(&mut thread.resume) {
                Resume::Moved(count @ 1..) => Ok(count),
                _ => Err(Errno::EAGAIN.into()),
            }
        }
        other => other,
    }
}
