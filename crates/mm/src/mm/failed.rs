//! Memory that fails: one frame of a folio is lost, and the others are not (row D4).
//!
//! ```text
//!   anonymous   | A+0 | A+1 | A+2 ✗ | A+3 |   ──►   | A+0 | A+1 | marker | A+3 |
//!   of a file, and its store has it            ──►   out of the cache: read again
//!   of a file, and no other copy exists        ──►   in the cache, and no access is allowed
//! ```
//!
//! The frame never becomes free again: its folio keeps one reference for ever. So an anonymous
//! folio is first split around the frame, if it has no other reference.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::Pfn;

use super::Mm;
use crate::base::{AllSpaces, Error};
use crate::spaces::Loss;

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// Reports that the memory of `frame` has failed with an uncorrectable error, or with too many
    /// correctable ones. Programs lose its contents, in `spaces`, which must be all spaces. The
    /// frame is not used again, nor is the rest of its folio once that is freed, where the folio
    /// could not be split.
    ///
    /// # Errors
    /// [`Error::NoMemory`] when a leaf must be split and there is no frame for its table: some
    /// spaces may have lost the page by then, and others not. Repeat the call.
    pub fn memory_failed(
        &self,
        frame: Pfn,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<Loss, Error> {
        #[cfg(feature = "files")]
        if let Some(loss) = self.files().fail_in_file(frame, spaces) {
            return loss;
        }
        let (mut keeps, mut done) = (false, Ok(()));
        spaces.visit(&mut |space| {
            done = done.and_then(|()| self.spaces().fail_in_space(space, frame, &mut keeps));
        });
        done.map(|()| if keeps { Loss::Content } else { Loss::Elsewhere })
    }

    /// Takes a frame that [failed](Self::memory_failed) into use again, anonymous memory or a
    /// dropped page of a file, with all others of the same folio: it was replaced, or the report
    /// was wrong. Returns whether it had failed. Lost contents stay lost.
    pub fn memory_mended(&self, frame: Pfn) -> bool {
        let folios = self.base().folios();
        let mended = folios.of(frame).filter(|folio| folios.mend(*folio));
        self.base().free(mended.and_then(|folio| folios.put(folio)));
        mended.is_some()
    }
}
