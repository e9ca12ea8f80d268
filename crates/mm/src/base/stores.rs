//! Files by number.

use quire_arch::Arch;
use quire_hw::Hardware;

use super::{Base, Error};
use crate::cache::{File, FileId, Index, Store};
use crate::folio::{Folio, FolioFlags};

impl<'m, A: Arch, H: Hardware> Base<'m, A, H> {
    /// The file with this number, if it is in use.
    pub(crate) fn file(&self, id: FileId) -> Option<&'m File> {
        self.files.get(id.0 as usize).filter(|file| file.store().is_some())
    }

    pub(crate) fn index(&self, id: FileId) -> Result<Index<'_, A, H>, Error> {
        let file = self.file(id).ok_or(Error::NoFile)?;
        Ok(Index::new(self.hw, self.phys.meta(), file, id))
    }

    /// The store of a folio's file, if a file has the folio.
    pub(crate) fn store_of(&self, folio: Folio) -> Option<Store> {
        let (known, owner) = self.folios().known(folio);
        let file = known.contains(FolioFlags::CACHED).then(|| crate::cache::file_of(owner))?;
        self.file(file)?.store()
    }
}
