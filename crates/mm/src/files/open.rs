//! An open file: its index, and the services for it.

use core::ops::Deref;

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::Pfn;

use super::Files;
use crate::base::{Base, Error, Need, Stop};
use crate::cache::{Bounds, Entry, File, FileId, Index, Note};
use crate::folio::cached::Cached;
use crate::folio::{Folio, FolioFlags};
use crate::spaces::Spaces;

impl<A: Arch, H: Hardware> Files<'_, A, H> {
    /// The file with this number.
    pub(crate) fn opened(&self, id: FileId) -> Result<OpenFile<'_, A, H>, Error> {
        Ok(self.with(&self.base().index(id)?))
    }

    /// The file of `index`.
    pub(crate) fn with<'a>(&'a self, index: &Index<'a, A, H>) -> OpenFile<'a, A, H> {
        OpenFile { files: self, index: *index }
    }
}

impl<A, H> Clone for OpenFile<'_, A, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, H> Copy for OpenFile<'_, A, H> {}

/// A file at work.
pub(crate) struct OpenFile<'a, A, H> {
    pub(super) files: &'a Files<'a, A, H>,
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
    pub(super) fn base(&self) -> &'a Base<'a, A, H> {
        self.files.base()
    }

    #[inline(always)]
    pub(super) fn spaces(&self) -> &'a Spaces<'a, A, H> {
        self.files.spaces()
    }

    /// The slot of `folio`, locked, if it holds the file's pages from `page` on and is not
    /// secluded.
    #[inline]
    pub(crate) fn cached(&self, page: u64, folio: Folio) -> Option<Cached<'a>> {
        self.base().cached(self.index.id, page, folio)
    }

    /// The sizes and lengths in which the file is read now.
    pub(crate) fn bounds(&self) -> Bounds {
        self.base().file_policy.bounds(self.pages(), self.smallest())
    }

    /// Reports to the caller that wants `page`, once, that it could not be read.
    pub(crate) fn take_read_error(&self, entry: Entry, page: u64) -> Result<(), Error> {
        if matches!(entry, Entry::Note { note: Note::Failed, .. }) {
            self.index.note(page, self.smallest(), Note::Small);
            return Err(Error::Failed(self.index.id, page));
        }
        Ok(())
    }
}

/// Whether a program may read memory that has `known`; `frame` is the wanted part of it.
pub(crate) fn usable(known: FolioFlags, file: FileId, frame: Pfn) -> Result<(), Stop> {
    if known.contains(FolioFlags::POISONED) {
        Err(Error::Poisoned(frame).into())
    } else if known.contains(FolioFlags::UPTODATE) {
        Ok(())
    } else {
        Err(Need::Wait(file).into())
    }
}
