//! `mmap` of files: areas show them. The memory manager has their pages, and knows where they end;
//! a space keeps what it shows (see `memory`).
//!
//! A write through a shared area of a file in memory is a write to the file. Files of a disk can
//! only be read: a shared area of one is never written.

use alloc::sync::Arc;

use linux_raw_sys::general as abi;
use quire::space::{AreaFlags, Backing, FileId, Request};
use quire::units::{Order, PageSpan, Prot};
use quire_linux::files::{Body, Description, Device, LENGTH_MAX, Reserved};
use quire_linux::{Errno, Result};

use crate::isa;
use crate::memory::{Memory, PAGE, PAGE_SHIFT, errno, mm, reserved};
use crate::task::Thread;
use crate::task::tree::with_calls;

/// The thing to be mapped.
pub(super) enum Shown {
    /// `/dev/zero`: anonymous memory.
    Zeroes,
    /// `/dev/mem`: registers.
    Memory,
    /// A file.
    File(Arc<Description>),
}

/// The file to be mapped.
///
/// # Errors
/// `EBADF`; `EACCES` when the file was not opened to be read, or a shared mapping is to be written
/// and the file was not opened for that; `ENODEV` when it is no regular file.
pub(super) fn open(thread: &Thread, fd: usize, flags: usize, prot: Prot) -> Result<Shown> {
    let file = with_calls(thread, |calls| calls.open_file(fd as u32))?;
    if file.flags() & abi::O_PATH != 0 {
        return Err(Errno::EBADF);
    }
    let is_written = is_shared(flags) && prot.contains(Prot::WRITE);
    if !file.may_read() || is_written && !file.may_write() {
        return Err(Errno::EACCES);
    }
    match file.node().body() {
        Body::Device(Device::Zero) => Ok(Shown::Zeroes),
        Body::Device(Device::Memory) => Ok(Shown::Memory),
        Body::File(_) | Body::Stored(_) => {
            with_calls(thread, |calls| file.note_access(calls.who));
            Ok(Shown::File(file))
        }
        _ => Err(Errno::ENODEV),
    }
}

/// The order of the reserved folios that are to be mapped: those of a file, or those that the flags
/// ask for where there is no file.
///
/// # Errors
/// `EINVAL` for flags that ask for them and a file that is in none, or a size that there is not.
pub(super) fn whole(shown: &Shown, flags: u32) -> Result<Option<Order>> {
    let asks = flags & abi::MAP_HUGETLB != 0;
    let order = match shown {
        Shown::File(file) => match file.node().body() {
            Body::File(data) if data.is_reserved() => {
                Order::of_bytes(data.block_bytes(), PAGE_SHIFT)
            }
            _ => None,
        },
        Shown::Zeroes if asks => reserved::order_of(Reserved::of_flags(flags)),
        Shown::Zeroes | Shown::Memory => None,
    };
    if asks && order.is_none() { Err(Errno::EINVAL) } else { Ok(order) }
}

fn is_shared(flags: usize) -> bool {
    matches!(flags as u32 & abi::MAP_TYPE, abi::MAP_SHARED | abi::MAP_SHARED_VALIDATE)
}

/// Maps registers at physical address `offset`: those that the kernel lets programs read.
///
/// # Errors
/// `EPERM` for other memory, to write, and for a private area; what `mmap` of memory gives.
pub(super) fn map_device(memory: &Memory, request: &Request, offset: u64) -> Result<PageSpan> {
    let clock = isa::clock_page().filter(|_| request.flags.contains(AreaFlags::SHARED));
    let part = clock.and_then(|clock| {
        let first = (offset / PAGE).checked_sub(clock.span().start.get())?;
        clock.part(first..first.checked_add(request.pages)?)
    });
    let part = part.filter(|_| !request.prot.contains(Prot::WRITE)).ok_or(Errno::EPERM)?;
    let request = Request { max_prot: request.max_prot - Prot::WRITE, ..*request };
    mm().spaces().map_frames(memory.space(), &request, part).map_err(errno)
}

/// Maps `file` from `offset` on (in bytes, whole pages) into `memory`; which pages it got.
///
/// # Errors
/// `EOVERFLOW` beyond what a file can have; `EPERM` when its seals forbid it; `ENFILE` when too
/// many files are in use; what `mmap` of memory gives. Nothing is mapped then.
pub(super) fn map(
    memory: &Memory,
    request: &Request,
    file: &Arc<Description>,
    offset: u64,
) -> Result<PageSpan> {
    let is_shared = request.flags.contains(AreaFlags::SHARED);
    let writes = request.prot.contains(Prot::WRITE);
    let bytes = request.pages.checked_mul(PAGE).ok_or(Errno::ENOMEM)?;
    if offset.checked_add(bytes).is_none_or(|end| end > LENGTH_MAX) {
        return Err(Errno::EOVERFLOW);
    }
    if let Body::File(data) = file.node().body()
        && data.is_reserved()
        && request.prot.contains(Prot::WRITE)
    {
        data.reach(offset + bytes)?;
    }
    file.node().show(is_shared, writes, |id, may_write| {
        let id = id.ok_or(Errno::ENFILE)?;
        if reserved::of_file(FileId(id)).is_some() {
            reserved::promise(request, FileId(id), offset / PAGE)?;
        }
        let may_write = !is_shared || may_write && file.may_write();
        let max_prot = if may_write { request.max_prot } else { request.max_prot & !Prot::WRITE };
        let backing = Backing::File { id: FileId(id), page: offset / PAGE };
        memory.show(id, file.clone(), &Request { max_prot, backing, ..*request })
    })
}
