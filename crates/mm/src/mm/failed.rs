//! Memory that fails: one frame of a folio is lost, and the others are not (row D4).
//!
//! ```text
//!   anonymous   | A+0 | A+1 | A+2 ✗ | A+3 |   ──►   | A+0 | A+1 | marker | A+3 |
//!   of a file, and its store has it            ──►   out of the cache: read again
//!   of a file, and nobody else has it          ──►   in the cache, and nobody may look
//! ```
//!
//! The frame never becomes free again: somebody refers to its folio for ever. So an anonymous
//! folio is divided around it first, if nobody else has that.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::Pfn;

use super::Mm;
use crate::base::{AllSpaces, Error};
use crate::folio::Folios;
use crate::spaces::Loss;

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// Tells that the memory of `frame` has failed: it reported an error that cannot be corrected,
    /// or too many that could. What programs have of it, in `spaces`, which are all there are, they
    /// have no more; it is not used for anything again, nor is the rest of its folio once that is
    /// given back, where it could not be divided.
    ///
    /// # Errors
    /// [`Error::NoMemory`] when a leaf must be split and there is no frame for its table: some may
    /// have lost it by then, and others not. Repeat the call.
    pub fn memory_failed(
        &self,
        frame: Pfn,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<Loss, Error> {
        if let Some(loss) = self.files().fail_in_file(frame, spaces) {
            return loss;
        }
        let (mut keeps, mut done) = (false, Ok(()));
        spaces.visit(&mut |space| {
            done = done.and_then(|()| self.spaces().fail_in_space(space, frame, &mut keeps));
        });
        done.map(|()| if keeps { Loss::Content } else { Loss::Elsewhere })
    }

    /// Takes a frame into use again that [failed](Self::memory_failed), as anonymous memory or a
    /// file's that was dropped, and with it all others of the same folio: it was replaced, or the
    /// report was wrong. Whether it had. What was lost stays lost.
    pub fn memory_mended(&self, frame: Pfn) -> bool {
        let folios = Folios::new(self.base().phys.meta());
        let mended = folios.of(frame).filter(|folio| folios.mend(*folio));
        if let Some(run) = mended.and_then(|folio| folios.put(folio)) {
            self.base().free(run);
        }
        mended.is_some()
    }
}
