//! What a call may fail with, and Linux's number for it.

use core::fmt;

use quire_hw::Poisoned;
use quire_units::{Access, Order, Pfn, Prot, Vpn};

use crate::space::{Area, MapError};

/// Why a call failed. The state is as before, or as the call documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// No free block of this order, after all that could be tried.
    NoMemory(Order),
    /// No pages, more than there are, or beyond what a program may map.
    Invalid,
    /// This area is there already.
    Exists(Area),
    /// There is no free stretch of so many pages.
    NoRoom(u64),
    /// No area holds this page.
    NoArea(Vpn),
    /// The area at this page has these rights, which do not allow the access.
    Denied(Vpn, Access, Prot),
    /// The area at this page may never have these rights.
    Forbidden(Vpn, Prot),
    /// The page is marked as not to be used, with this payload.
    Marked(Vpn, u64),
    /// The page is one of an object, beyond its end.
    Missing(Vpn),
    /// The memory in this frame is lost: it reported an error that cannot be corrected.
    Poisoned(Pfn),
}

/// A number of Linux's `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// Try again.
    pub const EAGAIN: Errno = Errno(11);
    /// Out of memory, or address space, or no mapping in a range that must have one.
    pub const ENOMEM: Errno = Errno(12);
    /// Permission denied.
    pub const EACCES: Errno = Errno(13);
    /// Bad address.
    pub const EFAULT: Errno = Errno(14);
    /// It is there already.
    pub const EEXIST: Errno = Errno(17);
    /// Invalid argument.
    pub const EINVAL: Errno = Errno(22);
    /// The memory page has a hardware error.
    pub const EHWPOISON: Errno = Errno(133);
}

impl Error {
    /// What Linux returns where this happens in a memory system call. A fault that fails with
    /// [`NoArea`](Error::NoArea) or [`Denied`](Error::Denied) is a signal there instead: SIGSEGV
    /// with `SEGV_MAPERR` or `SEGV_ACCERR`; with [`Poisoned`](Error::Poisoned) and
    /// [`Missing`](Error::Missing) it is SIGBUS.
    pub const fn errno(self) -> Errno {
        match self {
            Error::NoMemory(_) | Error::NoRoom(_) | Error::NoArea(_) => Errno::ENOMEM,
            Error::Invalid => Errno::EINVAL,
            Error::Exists(_) => Errno::EEXIST,
            Error::Denied(..) | Error::Marked(..) | Error::Missing(_) => Errno::EFAULT,
            Error::Poisoned(_) => Errno::EHWPOISON,
            Error::Forbidden(..) => Errno::EACCES,
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
            Error::NoArea(page) => write!(f, "no area holds {page}"),
            Error::Denied(page, access, prot) => {
                write!(f, "{access:?} at {page}: its area allows {prot:?}")
            }
            Error::Missing(page) => write!(f, "{page} lies beyond the end of its object"),
            Error::Marked(page, payload) => {
                write!(f, "{page} is marked as not to be used ({payload:#x})")
            }
            Error::Poisoned(frame) => Poisoned { frame: *frame }.fmt(f),
            Error::Forbidden(page, prot) => write!(f, "{page} may never be made {prot:?}"),
        }
    }
}

impl core::error::Error for Error {}
