//! Watched areas: another program, the watcher, answers faults there (Linux: userfaultfd).

use core::num::NonZeroU8;

use bitflags::bitflags;
use quire_units::{Access, Vpn};

bitflags! {
    /// The events of an area that its watcher answers.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct WatchFor: u8 {
        /// An access to a page that does not exist: of anonymous memory, or of a file in memory.
        const MISSING = 1 << 0;
        /// An access to a page that the area's file has in memory and the area does not map.
        const MINOR = 1 << 1;
        /// A write to a page that is [protected](crate::Spaces::write_protect).
        const WRITE = 1 << 2;
        /// With `WRITE`: the write ends the protection of its page by itself, and no watcher is
        /// told. Pages that were written since are those that are no longer protected.
        const ASYNC = 1 << 3;
        /// No event: the watch, and the protection of pages, go with what [`remap`] moves.
        ///
        /// [`remap`]: crate::Mm::remap
        const MOVED = 1 << 4;
        /// No event: children inherit the watch, and the protection of pages.
        const FORKED = 1 << 5;
    }
}

/// The number of a watcher in one space, 1 to 63. The embedder gives them out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Watcher(NonZeroU8);

impl Watcher {
    /// The highest number.
    pub const MAX: u8 = 63;

    /// The watcher with this number; `None` for 0, and beyond [`MAX`](Self::MAX).
    #[inline]
    pub const fn new(number: u8) -> Option<Self> {
        match NonZeroU8::new(number) {
            Some(number) if number.get() <= Self::MAX => Some(Self(number)),
            _ => None,
        }
    }

    /// Its number.
    #[inline]
    pub const fn get(self) -> u8 {
        self.0.get()
    }
}

/// A watcher of an area, and the events that it answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Watch {
    /// Which watcher.
    pub watcher: Watcher,
    /// Which events.
    pub events: WatchFor,
}

/// An access that waits for a watcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watched {
    /// Which watcher.
    pub watcher: Watcher,
    /// The page.
    pub page: Vpn,
    /// The one event that happened.
    pub event: WatchFor,
    /// The access.
    pub access: Access,
}
