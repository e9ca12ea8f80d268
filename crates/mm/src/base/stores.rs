//! Files by number.

use quire_arch::Arch;
use quire_hw::Hardware;

use super::{Base, Error};
#[cfg(feature = "swap")]
use crate::cache::Row;
use crate::cache::{File, FileId, FilePages, Index, Note, Store, file_of, identity};
use crate::folio::cached::Cached;
use crate::folio::{Folio, FolioFlags};

/// The folios of a file that have a page in `pages`, and all pages of each.
pub(crate) fn folios_in<A: Arch, H: Hardware>(
    index: &Index<'_, A, H>,
    pages: FilePages,
) -> impl Iterator<Item = (Folio, FilePages)> {
    let mut left = pages;
    core::iter::from_fn(move || {
        let (folio, at) = index.next(left)?;
        left = FilePages::new(at.end, left.end);
        Some((folio, at))
    })
}

/// The same for those that lie wholly in `pages`.
pub(crate) fn folios_within<A: Arch, H: Hardware>(
    index: &Index<'_, A, H>,
    pages: FilePages,
) -> impl Iterator<Item = (Folio, FilePages)> {
    folios_in(index, pages).filter(move |(_, at)| pages.covers(*at))
}

impl<'m, A: Arch, H: Hardware> Base<'m, A, H> {
    /// The file with this number, if it is in use.
    pub(crate) fn file(&self, id: FileId) -> Option<&'m File> {
        self.files.get(id.0 as usize).filter(|file| file.store().is_some())
    }

    pub(crate) fn index(&self, id: FileId) -> Result<Index<'_, A, H>, Error> {
        let file = self.file(id).ok_or(Error::NoFile)?;
        Ok(Index::new(self.hw, self.phys.meta(), file, id))
    }

    /// The slot of `folio`, locked, if it holds the pages of a file from `page` on and is not
    /// secluded.
    #[inline]
    pub(crate) fn cached(&self, id: FileId, page: u64, folio: Folio) -> Option<Cached<'_>> {
        let cached = self.folios().cached(folio.head, identity(id, page));
        cached.filter(|cached| cached.folio == folio)
    }

    /// Takes a folio out of its index, and leaves `note` there; whether it was there.
    pub(crate) fn take_out(
        &self,
        index: &Index<'_, A, H>,
        page: u64,
        folio: Folio,
        note: Option<Note>,
    ) -> bool {
        let removed = index.remove(page, folio, note);
        if removed {
            index.file.count_cached(-(folio.order.pages() as i64));
        }
        removed
    }

    /// Takes the folios of a row with the numbers `gone` out of their index, which has them.
    #[cfg(feature = "swap")]
    pub(crate) fn take_out_row(
        &self,
        index: &Index<'_, A, H>,
        row: &Row,
        mut gone: core::ops::Range<usize>,
    ) {
        while let Some(folio) = row.folio(gone.start).filter(|_| !gone.is_empty()) {
            let at = gone.start;
            let more = index.remove_row(row, gone.clone());
            index.file.count_cached(-(row.part(at, at + more).count() as i64));
            if more == 0 {
                let removed = self.take_out(index, row.page(at), folio, None);
                debug_assert!(removed, "a folio with an identity is in its index");
            }
            gone.start += more.max(1);
        }
    }

    /// The store of a folio's file, if a file has the folio.
    pub(crate) fn store_of(&self, folio: Folio) -> Option<Store> {
        let (known, owner) = self.folios().known(folio);
        let file = known.contains(FolioFlags::CACHED).then(|| file_of(owner))?;
        self.file(file)?.store()
    }
}
