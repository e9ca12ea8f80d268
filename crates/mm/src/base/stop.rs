//! The two ways in which a call ends before it is done: it needs something, or it refuses.
//!
//! ```text
//! Mm::fault ──► Ok(Resolved)                done
//!           ──► Err(Stop::Need(need))       the embedder brings it, and calls again
//!           ──► Err(Stop::Refuse(error))    the call fails; a program sees a signal or a number
//! ```

use core::fmt;

use quire_hw::Poisoned;
#[cfg(feature = "reclaim")]
use quire_units::Order;

use super::{Errno, Error};
#[cfg(feature = "files")]
use crate::cache::{FileId, Reads};
use crate::space::Watched;

/// The thing that a call needs from the embedder before it can be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Need {
    /// These pages of a file or of a swap device are not in memory: read them, and call again.
    #[cfg(feature = "files")]
    Read(Reads),
    /// Another reader or writer has a page of this file or swap device: call again when it is done.
    #[cfg(feature = "files")]
    Wait(FileId),
    /// A fault wants a folio of this order, and there is none: make room for one
    /// (`Reclaim::compact_for`), and call again, whether that worked or not.
    #[cfg(feature = "reclaim")]
    Compact(Order),
    /// The watcher of the page's area answers the access (`Files::answer`); then the program
    /// tries again.
    Watcher(Watched),
}

/// The reason why a call is not done. The state is as before, or as the call documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The embedder brings what is needed, and calls again. No program sees this.
    Need(Need),
    /// The call fails, and fails again unless something else changes.
    Refuse(Error),
}

impl Stop {
    /// The number that Linux returns in a memory system call: that of the error. A need has EAGAIN,
    /// for an embedder that cannot bring it now.
    pub const fn errno(self) -> Errno {
        match self {
            Stop::Need(_) => Errno::EAGAIN,
            Stop::Refuse(error) => error.errno(),
        }
    }
}

impl From<Need> for Stop {
    fn from(need: Need) -> Self {
        Stop::Need(need)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Refuse(error)
    }
}

impl From<Poisoned> for Stop {
    fn from(poisoned: Poisoned) -> Self {
        Stop::Refuse(poisoned.into())
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(feature = "files")]
            Need::Read(reads) => {
                let (pages, file) = (reads.pages(), reads.file().0);
                write!(f, "pages {}..{} of file {file} must be read", pages.start, pages.end)
            }
            #[cfg(feature = "files")]
            Need::Wait(file) => write!(f, "a page of file {} is being read or written", file.0),
            #[cfg(feature = "reclaim")]
            Need::Compact(order) => write!(f, "a folio of {order} needs room"),
            Need::Watcher(Watched { watcher, page, .. }) => {
                write!(f, "watcher {} must answer for {page}", watcher.get())
            }
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Need(need) => need.fmt(f),
            Stop::Refuse(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Stop {}
