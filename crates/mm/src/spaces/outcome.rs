//! The ends of a fault, and of populating.

use quire_units::{Access, Order, PageSpan};

use crate::base::Stop;
#[cfg(feature = "files")]
use crate::cache::Reads;
use crate::fault::plan::Reach;
use crate::fault::{FilePage, Installed, MarkedPage};

/// A page that a fault lacks and another service has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lack {
    /// A page of a file, to be mapped.
    File(FilePage),
    /// A page that is on a swap device.
    Swap(MarkedPage),
}

/// A fault, or one of many that populating makes up.
pub(crate) struct Fault<'f> {
    pub(crate) access: Access,
    pub(crate) reach: Reach,
    /// Called between two units of a long clear, without locks held.
    pub(crate) resched: &'f mut dyn FnMut(),
}

/// The result of a service: `None` where the fault must be decided anew.
pub(crate) type Served = Result<Option<Resolved>, Stop>;

/// The result of populating.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Populated {
    /// Pages that were mapped now.
    pub pages: u64,
    /// The folios that they are in.
    pub folios: u64,
}

/// How a fault ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Resolved {
    /// These pages were mapped, as one folio or, by populating, several.
    Mapped(Installed),
    /// These pages of a file were mapped. Some between the first and the last may have been mapped
    /// before.
    #[cfg(feature = "files")]
    Paged {
        /// The pages.
        pages: PageSpan,
        /// The next pages that are worth reading.
        ahead: Option<Reads>,
    },
    /// A leaf was present; the access is recorded in it.
    Noted,
    /// A shared leaf was present; these pages are exclusive now.
    Unshared {
        /// The pages.
        pages: PageSpan,
        /// The folio they were copied into; `None` where no other space had theirs any more.
        copied: Option<Order>,
    },
    /// Other CPUs kept changing the space. The program tries again, and faults again.
    Again,
}

/// Which pages wait for a watcher before they are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shield {
    /// None.
    Off,
    /// Those that are there, in memory or on a swap device. Absent pages stay as they are.
    Present,
    /// All: an absent page that is read becomes a page of zeroes that is protected.
    All,
}

/// How far a watcher's answer got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "an answer may have ended early"]
pub struct Answered {
    /// How many pages were mapped, from the first on.
    pub pages: u64,
    /// Why it ended before the end of the span, if it did.
    pub end: Result<(), Stop>,
}
