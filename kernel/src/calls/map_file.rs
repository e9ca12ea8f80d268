//! `mmap` of files.
//!
//! Files of a disk are shown: the memory manager has their pages, and knows where they end. Files
//! in memory are copied: a mapping is memory of its own, into which the bytes go when it is made.
//! So
//! - a mapping never sees what is written to the file later;
//! - where the file ends is decided then, too: pages wholly beyond it give SIGBUS for ever;
//! - a shared mapping that could be written cannot be had: what is written there would be lost.

use alloc::sync::Arc;

use linux_raw_sys::general as abi;
use quire::space::{AreaFlags, At, Backing, Request};
use quire::units::{PageSpan, Prot};
use quire_linux::files::{Body, Description, Device, Halt, LENGTH_MAX, Sink};
use quire_linux::{Errno, Result};

use crate::memory::{self, Memory, PAGE, errno, mm, user};
use crate::task::Thread;
use crate::task::tree::with_calls;

/// The file to be mapped; `None` for `/dev/zero`, which is anonymous memory.
///
/// # Errors
/// `EBADF`; `EACCES` when the file was not opened to be read, or a shared mapping is to be written
/// and the file was not opened for that; `ENODEV` when it is no regular file.
pub(super) fn open(
    thread: &Thread,
    fd: usize,
    flags: usize,
    prot: Prot,
) -> Result<Option<Arc<Description>>> {
    let file = with_calls(thread, |calls| calls.open_file(fd as u32))?;
    if file.flags() & abi::O_PATH != 0 {
        return Err(Errno::EBADF);
    }
    let is_written = is_shared(flags) && prot.contains(Prot::WRITE);
    if !file.may_read() || is_written && !file.may_write() {
        return Err(Errno::EACCES);
    }
    match file.node().body() {
        Body::Device(Device::Zero) => Ok(None),
        Body::File(_) | Body::Stored(_) => Ok(Some(file)),
        _ => Err(Errno::ENODEV),
    }
}

fn is_shared(flags: usize) -> bool {
    matches!(flags as u32 & abi::MAP_TYPE, abi::MAP_SHARED | abi::MAP_SHARED_VALIDATE)
}

/// Maps `file` from `offset` on (in bytes, whole pages) into `memory`, which is the thread's own;
/// which pages it got.
///
/// # Errors
/// `ENODEV` for a shared mapping that is to be written; `EOVERFLOW` beyond what a file can have;
/// `ENOMEM`, also when its bytes find no memory; what `mmap` of memory gives. Nothing is mapped
/// then; but what was there under a fixed address is gone if there was no memory for the bytes.
pub(super) fn map(
    thread: &Thread,
    memory: &Memory,
    request: &Request,
    file: &Description,
    offset: u64,
) -> Result<PageSpan> {
    let is_shared = request.flags.contains(AreaFlags::SHARED);
    if is_shared && request.prot.contains(Prot::WRITE) {
        return Err(Errno::ENODEV);
    }
    let bytes = request.pages.checked_mul(PAGE).ok_or(Errno::ENOMEM)?;
    if offset.checked_add(bytes).is_none_or(|end| end > LENGTH_MAX) {
        return Err(Errno::EOVERFLOW);
    }
    if let Some(id) = file.node().object() {
        let most = if is_shared { request.most & !Prot::WRITE } else { request.most };
        let backing = Backing::Object { id, page: offset / PAGE };
        return mm().map(memory.space(), &Request { most, backing, ..*request }).map_err(errno);
    }
    // A call that lacks pages of a disk is left here, before it has done anything.
    with_calls(thread, |calls| file.node().want(calls.who, offset, bytes))?;
    let space = memory.space();
    // It is written once, now. What is shared may never be again (`mprotect` gives EACCES).
    let most = if is_shared { request.most & !Prot::WRITE } else { request.most };
    let writable = Request { prot: Prot::RW, most, ..*request };
    let span = mm().map(space, &writable).map_err(errno)?;
    let done = fill(thread, span, file, offset)
        .and_then(|()| mm().protect(space, span, request.prot).map_err(errno))
        .and_then(|()| end_at(memory, span, request, file, offset));
    if let Err(errno) = done {
        // With no frame to split an area, it stays; it ends with the space.
        let _ = mm().unmap(space, span);
        return Err(errno);
    }
    Ok(span)
}

/// Puts pages that lie wholly beyond the file's end out of reach: to touch them is SIGBUS.
fn end_at(
    memory: &Memory,
    span: PageSpan,
    request: &Request,
    file: &Description,
    offset: u64,
) -> Result<()> {
    let there = file.node().length()?.saturating_sub(offset).div_ceil(PAGE);
    let end = span.start.add(there.min(span.count()));
    if end == span.end {
        return Ok(());
    }
    let beyond = Request {
        pages: span.end.offset_from(end),
        at: At::Fixed(end),
        backing: Backing::Object { id: BEYOND, page: (offset / PAGE).saturating_add(there) },
        ..*request
    };
    mm().map(memory.space(), &beyond).map(drop).map_err(errno)
}

/// The object that has no pages: no file has this number.
const BEYOND: u32 = memory::FILES as u32;

/// Copies the file into `span`, which is mapped to be written.
fn fill(thread: &Thread, span: PageSpan, file: &Description, offset: u64) -> Result<()> {
    let mut sink = Fill { next: span.start.get() * PAGE, is_short: false };
    let count = file.node().length()?.saturating_sub(offset).min(span.count() * PAGE);
    let mut done = 0;
    while done < count {
        let (at, left) = (offset + done, (count - done) as usize);
        let moved = with_calls(thread, |calls| file.read_at(calls.who, at, left, &mut sink));
        match moved {
            _ if sink.is_short => return Err(Errno::ENOMEM),
            // Someone has made the file shorter meanwhile.
            Ok(0) => break,
            Ok(moved) => done += moved as u64,
            Err(Halt::Failed(errno)) => return Err(errno),
            // Regular files never wait so.
            Err(Halt::Blocked) => return Err(Errno::EAGAIN),
        }
    }
    Ok(())
}

/// New memory, from `next` on.
struct Fill {
    /// The address where the next byte goes.
    next: u64,
    /// There was no memory for some of it.
    is_short: bool,
}

impl Sink for Fill {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let put = user::write_bytes(self.next, bytes);
        self.is_short |= put.is_err();
        self.next += bytes.len() as u64;
        put
    }
}
