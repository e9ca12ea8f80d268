//! Files in memory: opening, reading, showing, writing back, truncating.
//!
//! ```text
//!   fault ──► show ──► mapped, or Error::Unread: what to read
//!   read:   next_read ──► the embedder fills the frames ──► read_done
//!   write:  next_write ──► the embedder stores the frames ──► write_done
//!   truncate, punch ──► hide from all spaces, flush ──► cut folios ──► free
//! ```
//!
//! **Owns** the policy for files, and the costs of reclaim. **Key types**: [`Files`], [`Held`].
//!
//! **Never** chooses victims; talks to a device. **Next room**: `paging`.

mod balance;
mod cut;
mod failed;
mod drop;
mod read;
mod reshape;
mod shown;
mod truncate;
mod writeback;

pub(crate) use balance::Kind;
#[cfg(feature = "swap")]
pub(crate) use read::usable;
pub use read::{Held, ReadFailed};
pub(crate) use reshape::Bound;
pub use writeback::{Write, WriteFailed};

use core::ops::Deref;

use quire_arch::Arch;
use quire_hw::Hardware;

use crate::base::{Base, Error};
use crate::cache::{Bounds, File, FileId, FilePolicy, Index};
use crate::folio::Folio;
use crate::folio::cached::Cached;
use crate::spaces::Spaces;
use crate::sync::AtomicU32;
use balance::Balance;

/// The files with pages in memory.
pub struct Files<'m, A, H> {
    spaces: Spaces<'m, A, H>,
    /// A hint: no file before this one is free.
    free_file: AtomicU32,
    pub(crate) balance: Balance,
}

impl<'m, A: Arch, H> Files<'m, A, H> {
    pub(crate) fn new(spaces: Spaces<'m, A, H>) -> Self {
        Self { spaces, free_file: AtomicU32::new(0), balance: Balance::new() }
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> &Base<'m, A, H> {
        self.spaces.base()
    }

    #[inline(always)]
    pub(crate) fn spaces(&self) -> &Spaces<'m, A, H> {
        &self.spaces
    }

    /// The sizes in which files are read, and the length of readahead. May be changed at any time.
    pub fn policy(&self) -> &FilePolicy {
        &self.base().file_policy
    }

    #[cfg(not(feature = "swap"))]
    #[inline(always)]
    pub(crate) fn files(&self) -> &Self {
        self
    }

    /// The file with this number.
    pub(crate) fn opened(&self, id: FileId) -> Result<OpenFile<'_, A, H>, Error>
    where
        H: Hardware,
    {
        Ok(self.with(&self.base().index(id)?))
    }

    /// The file of `index`.
    pub(crate) fn with<'a>(&'a self, index: &Index<'a, A, H>) -> OpenFile<'a, A, H> {
        OpenFile { files: self, index: *index }
    }
}

/// A file at work.
pub(crate) struct OpenFile<'a, A, H> {
    files: &'a Files<'a, A, H>,
    pub(crate) index: Index<'a, A, H>,
}

impl<A, H> Deref for OpenFile<'_, A, H> {
    type Target = File;

    #[inline(always)]
    fn deref(&self) -> &File {
        self.index.file
    }
}

impl<'a, A: Arch, H: Hardware> OpenFile<'a, A, H> {
    #[inline(always)]
    fn base(&self) -> &'a Base<'a, A, H> {
        self.files.base()
    }

    #[inline(always)]
    fn spaces(&self) -> &'a Spaces<'a, A, H> {
        self.files.spaces()
    }

    /// The slot of `folio`, locked, if it holds the file's pages from `page` on and is not
    /// secluded.
    #[inline]
    fn cached(&self, page: u64, folio: Folio) -> Option<Cached<'a>> {
        self.base().cached(self.index.id, page, folio)
    }

    /// The sizes and lengths in which the file is read now.
    pub(crate) fn bounds(&self) -> Bounds {
        self.base().file_policy.bounds(self.pages(), self.smallest())
    }
}
