//! Writing dirty pages of files back to their store.
//!
//! ```text
//!   index: dirty ──► clean ──► no space may write it ──► the embedder writes it ──► done
//!                     ▲               │ a program writes                      │ failed
//!                     │               ▼                                       ▼
//!                  (first)     fault: dirty again, for the next round     dirty again
//! ```
//!
//! Writeback clears the dirty mark first and write-protects second; a fault that grants the write
//! marks first and grants second, both under a table's lock. So a write after the mark was cleared
//! marks anew.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::FrameSpan;

use super::Files;
use crate::base::AllSpaces;
use crate::base::{Error, Need, Stop};
use crate::cache::{FileId, FilePages, Store};
use crate::folio::{Folio, FolioFlags};
use crate::stats::Event;
use crate::sync::spin_loop;

/// The store did not take the pages of a [`Write`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteFailed;

/// A folio that is being written to its file's store, until [`Files::write_done`].
#[derive(Debug)]
#[must_use = "the folio stays in memory and is never written again: give it to `write_done`"]
pub struct Write {
    file: FileId,
    pages: FilePages,
    folio: Folio,
}

impl Write {
    /// The file.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// Its pages. Those beyond the file's end must not be written.
    pub fn pages(&self) -> FilePages {
        self.pages
    }

    /// The frames that hold them. Programs may write them again meanwhile.
    pub fn frames(&self) -> FrameSpan {
        self.folio.span()
    }
}

impl<A: Arch, H: Hardware> Files<'_, A, H> {
    /// Records that the embedder wrote pages held by [`read`](Self::read): `at` is one of them.
    /// Where programs execute them, they fetch the new bytes from now on. Pages of a file without
    /// a store are never dirty.
    ///
    /// # Errors
    /// [`Error::NoFile`]; [`Error::Invalid`] when the page is not in memory any more, or the file
    /// cannot be written.
    pub fn mark_dirty(&self, id: FileId, at: u64) -> Result<(), Error> {
        let file = self.opened(id)?;
        let found = file.index.next(FilePages::new(at, at + 1));
        if let Some((folio, _)) = found {
            self.base().folios().publish_again(self.base().hw, folio);
        }
        if file.is_memory() {
            return Ok(());
        }
        let (folio, pages) = found.ok_or(Error::Invalid)?;
        let may = file.store() == Some(Store::ReadWrite);
        if may && file.index.set_dirty(pages.start, folio, true) {
            Ok(())
        } else {
            Err(Error::Invalid)
        }
    }

    /// The next dirty folio of `pages`, which shrinks; the folio is marked clean, for the embedder
    /// to write. `None` when there is none. From now on a write in any space faults first.
    ///
    /// # Errors
    /// [`Error::NoFile`]; [`Need::Wait`] when the next one is being written already: continue when
    /// that write is done.
    pub fn next_write(
        &self,
        id: FileId,
        pages: &mut FilePages,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<Option<Write>, Stop> {
        let file = self.opened(id)?;
        while let Some((folio, at)) = file.index.next_dirty(*pages) {
            let Some(cached) = file.cached(at.start, folio) else {
                // Another CPU has ended its identity, and is about to take it out of the index.
                spin_loop();
                continue;
            };
            if cached.known().contains(FolioFlags::POISONED) {
                // Its contents are lost, and no program may read the frame.
                *pages = FilePages::new(at.end, pages.end);
                continue;
            }
            if cached.known().contains(FolioFlags::WRITING) || !cached.hold() {
                return Err(Need::Wait(id).into());
            }
            cached.learn(cached.known() | FolioFlags::WRITING);
            drop(cached);
            *pages = FilePages::new(at.end, pages.end);
            let write = Write { file: id, pages: at, folio };
            if !file.index.set_dirty(at.start, folio, false) {
                self.end_write(&write);
                continue;
            }
            if file.store() != Some(Store::Swap) {
                spaces.visit(&mut |space| {
                    let _ = file.where_shown(space, at, |change, span| {
                        change.withhold(span, folio.span());
                        Ok(())
                    });
                });
            }
            self.base().count(Event::FilePagesWritten, at.count());
            return Ok(Some(write));
        }
        Ok(None)
    }

    /// Ends a write. If the store failed, the folio is dirty again. Callers that got [`Need::Wait`]
    /// for this file can go on: wake them after this, even where the store answers at once, as
    /// another CPU may have met the folio meanwhile.
    pub fn write_done(&self, write: Write, done: Result<(), WriteFailed>) {
        // A planted mistake that the simulator must find: a refused write is forgotten.
        #[cfg(all(feature = "inject", quire_canary))]
        let done = done.or(Ok::<_, WriteFailed>(()));
        if let (Err(WriteFailed), Ok(file)) = (done, self.opened(write.file)) {
            file.index.set_dirty(write.pages.start, write.folio, true);
        }
        self.end_write(&write);
    }

    fn end_write(&self, write: &Write) {
        if let Some(cached) = self.base().cached(write.file, write.pages.start, write.folio) {
            cached.learn(cached.known() - FolioFlags::WRITING);
        }
        self.base().put(write.folio);
        self.base().drop_idle_swapped(write.file, write.folio, write.pages);
    }
}
