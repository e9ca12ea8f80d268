//! Ending the time of a folio in its file.

use quire_arch::Arch;
use quire_hw::Hardware;

use super::OpenFile;
use crate::cache::{Note, identity};
use crate::folio::Folio;
use crate::sync::spin_loop;

impl<A: Arch, H: Hardware> OpenFile<'_, A, H> {
    /// Takes a folio out of its file, whatever references it has; waits while another CPU is about
    /// to move its pages to other folios. Returns whether it was there: the CPU that ends its
    /// identity releases the index's reference.
    pub(crate) fn drop_folio(&self, page: u64, folio: Folio) -> bool {
        let folios = self.base().folios();
        loop {
            match self.cached(page, folio) {
                Some(cached) => break cached.disclaim(),
                None if folios.is_secluded(folio) => spin_loop(),
                None => return false,
            }
        }
        self.base().take_out(&self.index, page, folio, None);
        self.base().put(folio);
        true
    }

    /// Takes a folio out of its index, leaves `note` there, and ends its identity. A CPU that was
    /// about to drop it may have ended it already; then that CPU releases the index's reference.
    /// Returns whether it was there.
    pub(crate) fn forget_folio(&self, page: u64, folio: Folio, note: Option<Note>) -> bool {
        let removed = self.base().take_out(&self.index, page, folio, note);
        if removed {
            let cached = self.base().folios().cached(folio.head, identity(self.index.id, page));
            self.base().free(cached.and_then(|cached| cached.forget()));
        }
        removed
    }
}
