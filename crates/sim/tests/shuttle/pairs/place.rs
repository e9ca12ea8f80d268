//! The memory of a scenario.

use quire::cache::FileId;
use quire_units::{PageSpan, Vpn};

use crate::scene::FOLIO;

/// The kinds of memory that a call works on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum On {
    Anon,
    File,
    Both,
}

impl On {
    pub(super) fn has(self, kind: On) -> bool {
        self == On::Both || self == kind
    }
}

/// The memory of a scenario: an area, and its file.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) start: Vpn,
    pub(super) pages: u64,
    pub(super) kind: On,
    pub(super) file: FileId,
}

impl Place {
    pub(super) fn span(self) -> PageSpan {
        PageSpan::new(self.start, self.start.add(self.pages))
    }

    pub(super) fn all(self) -> impl Iterator<Item = (u64, Vpn)> {
        (0..self.pages).map(move |at| (at, self.start.add(at)))
    }

    /// The word of a page at first. Half of an anonymous area is zero.
    pub(super) fn first(self, at: u64) -> u64 {
        if self.kind == On::Anon && at >= FOLIO { 0 } else { 10 + at }
    }
}
