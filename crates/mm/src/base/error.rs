//! The errors of calls, and Linux's number for each.

use core::fmt;

use quire_hw::Poisoned;
use quire_units::{Access, MemoryType, Order, Pfn, Prot, Vpn};

#[cfg(feature = "files")]
use crate::cache::FileId;
use crate::space::{Area, GroupId, MapError};

/// The reason why a call failed. The state is as before, or as the call documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// No free block of this order, after all attempts.
    NoMemory(Order),
    /// No pages, more pages than exist, or pages beyond those that a program may map.
    Invalid,
    /// This area exists already.
    Exists(Area),
    /// The page is there already.
    Present(Vpn),
    /// Other CPUs change the page each time that the call looks: try again.
    Busy(Vpn),
    /// No free stretch has this many pages.
    NoRoom(u64),
    /// No area holds this page.
    NoArea(Vpn),
    /// The area at this page has these rights, which do not allow the access.
    Denied(Vpn, Access, Prot),
    /// The area at this page may never have these rights.
    Forbidden(Vpn, Prot),
    /// The area at this page is sealed.
    Sealed(Vpn),
    /// The page is a guard.
    Guarded(Vpn),
    /// The page is marked as unusable, with a payload that this library does not write.
    Marked(Vpn, u64),
    /// The page lies beyond the end of its object.
    Missing(Vpn),
    /// A slot of this swap device is in use.
    #[cfg(feature = "files")]
    InUse(FileId),
    /// This page of the file could not be read.
    #[cfg(feature = "files")]
    Failed(FileId, u64),
    /// There is no such file, or no room for one more.
    #[cfg(feature = "files")]
    NoFile,
    /// The pool of folios of this order has none that is free and not promised.
    #[cfg(feature = "files")]
    NoReserved(Order),
    /// The group has reached its limit: [relieve](crate::Reclaim::relieve) it, and try again.
    OverLimit(GroupId),
    /// There is no such group, or no room for one more.
    NoGroup,
    /// The library manages this frame, so that it cannot be mapped by its number; or no entry of
    /// the page-table format can name it.
    NotForeign(Pfn),
    /// Mappings cannot get this memory type here ([`Profile`](quire_hw::Profile)).
    NoMemoryType(MemoryType),
    /// The memory in this frame is lost: it reported an error that cannot be corrected.
    Poisoned(Pfn),
}

/// A number of Linux's `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// Not permitted.
    pub const EPERM: Errno = Errno(1);
    /// An input or output failed.
    pub const EIO: Errno = Errno(5);
    /// Try again.
    pub const EAGAIN: Errno = Errno(11);
    /// Out of memory, or address space, or no mapping in a range that must have one.
    pub const ENOMEM: Errno = Errno(12);
    /// Permission denied.
    pub const EACCES: Errno = Errno(13);
    /// Bad address.
    pub const EFAULT: Errno = Errno(14);
    /// A device is in use.
    pub const EBUSY: Errno = Errno(16);
    /// It is there already.
    pub const EEXIST: Errno = Errno(17);
    /// Too many files.
    pub const ENFILE: Errno = Errno(23);
    /// Invalid argument.
    pub const EINVAL: Errno = Errno(22);
    /// The memory page has a hardware error.
    pub const EHWPOISON: Errno = Errno(133);
}

impl Error {
    /// The number that Linux returns for this error in a memory system call. A fault that fails
    /// with [`NoArea`](Error::NoArea) or [`Denied`](Error::Denied) is a signal there instead:
    /// SIGSEGV with `SEGV_MAPERR`, as with [`Guarded`](Error::Guarded), or `SEGV_ACCERR`; with
    /// [`Poisoned`](Error::Poisoned), [`Missing`](Error::Missing), [`Failed`](Error::Failed) and
    /// `NoReserved` it is SIGBUS.
    pub const fn errno(self) -> Errno {
        match self {
            Error::NoMemory(_) | Error::NoRoom(_) | Error::NoArea(_) | Error::OverLimit(_) => {
                Errno::ENOMEM
            }
            Error::Invalid | Error::NotForeign(_) | Error::NoMemoryType(_) => Errno::EINVAL,
            Error::Exists(_) | Error::Present(_) => Errno::EEXIST,
            Error::Busy(_) => Errno::EAGAIN,
            Error::Denied(..) | Error::Guarded(_) | Error::Marked(..) | Error::Missing(_) => {
                Errno::EFAULT
            }
            #[cfg(feature = "files")]
            Error::NoReserved(_) => Errno::ENOMEM,
            #[cfg(feature = "files")]
            Error::InUse(_) => Errno::EBUSY,
            #[cfg(feature = "files")]
            Error::Failed(..) => Errno::EIO,
            #[cfg(feature = "files")]
            Error::NoFile => Errno::ENFILE,
            Error::NoGroup => Errno::ENFILE,
            Error::Poisoned(_) => Errno::EHWPOISON,
            Error::Forbidden(..) => Errno::EACCES,
            Error::Sealed(_) => Errno::EPERM,
        }
    }
}

impl From<Poisoned> for Error {
    fn from(poisoned: Poisoned) -> Self {
        Error::Poisoned(poisoned.frame)
    }
}

impl From<MapError> for Error {
    fn from(error: MapError) -> Self {
        match error {
            MapError::Invalid => Error::Invalid,
            MapError::Exists(area) => Error::Exists(area),
            MapError::NoRoom(pages) => Error::NoRoom(pages),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoMemory(order) => write!(f, "no free block of {order}"),
            Error::Invalid => MapError::Invalid.fmt(f),
            Error::Exists(area) => MapError::Exists(*area).fmt(f),
            Error::NoRoom(pages) => MapError::NoRoom(*pages).fmt(f),
            Error::Present(page) => write!(f, "{page} is there already"),
            Error::Busy(page) => write!(f, "{page} changes all the time"),
            Error::NoArea(page) => write!(f, "no area holds {page}"),
            Error::Denied(page, access, prot) => {
                write!(f, "{access:?} at {page}: its area allows {prot:?}")
            }
            Error::Missing(page) => write!(f, "{page} lies beyond the end of its object"),
            Error::Sealed(page) => write!(f, "the area at {page} is sealed"),
            Error::Guarded(page) => write!(f, "{page} is a guard, and not to be touched"),
            Error::Marked(page, payload) => {
                write!(f, "{page} is marked as not to be used ({payload:#x})")
            }
            #[cfg(feature = "files")]
            Error::InUse(file) => write!(f, "a slot of swap device {} is in use", file.0),
            #[cfg(feature = "files")]
            Error::Failed(file, page) => write!(f, "page {page} of file {} is unreadable", file.0),
            Error::OverLimit(group) => write!(f, "group {} has all it may have", group.get()),
            Error::NoGroup => f.write_str("no such group, or no room for one more"),
            #[cfg(feature = "files")]
            Error::NoFile => f.write_str("no such file, or no room for one more"),
            #[cfg(feature = "files")]
            Error::NoReserved(order) => write!(f, "the pool has no folio of {order} left"),
            Error::NotForeign(frame) => write!(f, "{frame} is the library's, or none that exists"),
            Error::NoMemoryType(memory) => write!(f, "no mapping can be {memory:?} memory here"),
            Error::Poisoned(frame) => Poisoned { frame: *frame }.fmt(f),
            Error::Forbidden(page, prot) => write!(f, "{page} may never be made {prot:?}"),
        }
    }
}

impl core::error::Error for Error {}
