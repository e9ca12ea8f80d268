//! Reclaim: choosing the memory to free, and the pages to collapse into larger folios.
//!
//! ```text
//!   reclaim ──► a hand around spaces: age, thin, page out   ┐ the cheaper kind gives more
//!           └─► a hand around files: age, detach, drop      ┘
//!   relieve ──► the same within a group that is over its limit
//!   scan ─────► collapse: one folio of many
//!   compact ──► folios move, so that larger blocks become free
//! ```
//!
//! **Owns** the positions of the hands. **Key type**: [`Reclaim`].
//!
//! **Never** runs by itself: the embedder calls it. **Next room**: `mm`.

mod collapse;
mod collapse_file;
mod compact;
mod holdings;
mod hands;
mod quest;
mod relieve;
mod scan;
mod shed;
mod thin;
mod zeroes;

pub use collapse::{Collapsed, Hindrance};
pub use compact::{Compacted, Compaction};
pub use hands::Watermarks;
pub use holdings::Holdings;
pub use quest::Reclaimed;
pub use relieve::Relieved;
pub use scan::{ScanCursor, ScanLimits, Scanned};

use quire_arch::Arch;

use crate::base::{Base, Hand};
use crate::files::Files;
use crate::paging::Paging;
use crate::spaces::Spaces;

/// Reclaim, aging, limits of groups, and collapse.
pub struct Reclaim<'m, A, H> {
    paging: Paging<'m, A, H>,
    /// The place where the reclaimer continues.
    hand: Hand,
    /// The same among files: a file's number, and a page in it.
    file_hand: Hand,
    /// The same among files in memory.
    shared_hand: Hand,
}

crate::sync::names!([A, H] Reclaim<'_, A, H>, "reclaim" { hand, file_hand, shared_hand } + paging);

impl<'m, A: Arch, H> Reclaim<'m, A, H> {
    pub(crate) fn new(paging: Paging<'m, A, H>) -> Self {
        Self { paging, hand: Hand::new(), file_hand: Hand::new(), shared_hand: Hand::new() }
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> &Base<'m, A, H> {
        self.paging.base()
    }

    #[inline(always)]
    pub(crate) fn spaces(&self) -> &Spaces<'m, A, H> {
        self.paging.spaces()
    }

    #[inline(always)]
    pub(crate) fn files(&self) -> &Files<'m, A, H> {
        self.paging.files()
    }

    #[inline(always)]
    pub(crate) fn paging(&self) -> &Paging<'m, A, H> {
        &self.paging
    }
}
