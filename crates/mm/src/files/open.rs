//! An open file: its index, and the services for it.

use core::ops::Deref;

use quire_arch::Arch;
use quire_hw::Hardware;

use super::Files;
use crate::base::Base;
use crate::cache::{Bounds, File, Index};
use crate::folio::Folio;
use crate::folio::cached::Cached;
use crate::spaces::Spaces;

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
    pub(super) fn cached(&self, page: u64, folio: Folio) -> Option<Cached<'a>> {
        self.base().cached(self.index.id, page, folio)
    }

    /// The sizes and lengths in which the file is read now.
    pub(crate) fn bounds(&self) -> Bounds {
        self.base().file_policy.bounds(self.pages(), self.smallest())
    }
}
