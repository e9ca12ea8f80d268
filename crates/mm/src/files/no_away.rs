//! Without the feature `swap` no page of a file is elsewhere.

use quire_arch::Arch;
use quire_hw::Hardware;

use super::OpenFile;
use crate::base::{Error, Stop};
use crate::cache::{Entry, FilePages};

impl<A: Arch, H: Hardware> OpenFile<'_, A, H> {
    pub(super) fn cut_away(&self, _: Entry, _: FilePages, _: FilePages) -> Result<bool, Error> {
        Ok(true)
    }

    pub(super) fn drop_away(&self, _: Entry, _: FilePages) -> bool {
        true
    }

    pub(super) fn come_back(&self, _: u64) -> Result<(), Stop> {
        Ok(())
    }
}
