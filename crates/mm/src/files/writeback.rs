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

use super::{Files, OpenFile};
use crate::base::AllSpaces;
use crate::base::{Error, Need, Stop};
use crate::cache::{FileId, FilePages, Row, Store};
use crate::folio::{Folio, FolioFlags};
use crate::limits::ROW_MOST;
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

/// Folios of one size at consecutive pages that are being written to their file's store, until
/// [`Files::writes_done`]. Their frames lie anywhere.
#[derive(Debug)]
#[must_use = "the folios stay in memory and are never written again: give it to `writes_done`"]
pub struct WriteRun {
    file: FileId,
    row: Row,
}

impl WriteRun {
    /// The file.
    pub fn file(&self) -> FileId {
        self.file
    }

    /// All pages of the run. Those beyond the file's end must not be written.
    pub fn pages(&self) -> FilePages {
        self.row.pages()
    }

    /// Its folios in order: the pages of each, and the frames that hold them. Programs may write
    /// them again meanwhile.
    pub fn parts(&self) -> impl Iterator<Item = (FilePages, FrameSpan)> + '_ {
        self.row.iter().map(|(folio, at)| (at, folio.span()))
    }

    /// The writes of its folios, each of which ends by itself.
    pub fn into_writes(self) -> impl Iterator<Item = Write> {
        let Self { file, row } = self;
        (0..row.len()).map_while(move |at| {
            let pages = row.part(at, at + 1);
            row.folio(at).map(|folio| Write { file, pages, folio })
        })
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
        let row = self.next_row(id, pages, 1, &spaces)?;
        Ok(row.and_then(|row| WriteRun { file: id, row }.into_writes().next()))
    }

    /// The same with the dirty folios of its size right behind it, up to 16: what left memory side
    /// by side is written as one, at less cost for each.
    ///
    /// # Errors
    /// See [`next_write`](Self::next_write).
    pub fn next_writes(
        &self,
        id: FileId,
        pages: &mut FilePages,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<Option<WriteRun>, Stop> {
        let row = self.next_row(id, pages, ROW_MOST, &spaces)?;
        Ok(row.map(|row| WriteRun { file: id, row }))
    }

    /// The next row of dirty folios, which is marked clean and being written.
    fn next_row(
        &self,
        id: FileId,
        pages: &mut FilePages,
        most: usize,
        spaces: &dyn AllSpaces<A>,
    ) -> Result<Option<Row>, Stop> {
        let file = self.opened(id)?;
        while let Some(mut row) = file.index.dirty_row(*pages, most) {
            match file.begin_writes(&mut row) {
                Begun::Some => {}
                Begun::Gone => {
                    // Another CPU has ended its identity, and is about to take it out of the index.
                    spin_loop();
                    continue;
                }
                Begun::Lost => {
                    *pages = FilePages::new(row.page(1), pages.end);
                    continue;
                }
                Begun::Busy => return Err(Need::Wait(id).into()),
            }
            let cleaned = file.index.set_dirty_row(&row, false);
            *pages = FilePages::new(row.page((cleaned + 1).min(row.len())), pages.end);
            for (folio, at) in row.iter().skip(cleaned) {
                // The first of them is out of the file by now; the others come next.
                self.end_row(id, &Row::of(at.start, folio));
            }
            row.truncate(cleaned);
            if row.is_empty() {
                continue;
            }
            if file.store() != Some(Store::Swap) {
                file.withhold(&row, spaces);
            }
            self.base().count(Event::FilePagesWritten, row.pages().count());
            return Ok(Some(row));
        }
        Ok(None)
    }

    /// Ends a write. If the store failed, the folio is dirty again. Callers that got [`Need::Wait`]
    /// for this file can go on: wake them after this, even where the store answers at once, as
    /// another CPU may have met the folio meanwhile.
    pub fn write_done(&self, write: Write, done: Result<(), WriteFailed>) {
        let row = Row::of(write.pages.start, write.folio);
        self.writes_done(WriteRun { file: write.file, row }, done);
    }

    /// Ends the writes of a run: the store took all of it, or all of it is dirty again. As for
    /// [`write_done`](Self::write_done).
    pub fn writes_done(&self, run: WriteRun, done: Result<(), WriteFailed>) {
        // A planted mistake that the simulator must find: a refused write is forgotten.
        #[cfg(all(feature = "inject", quire_canary))]
        let done = done.or(Ok::<_, WriteFailed>(()));
        let WriteRun { file: id, row } = run;
        if let (Err(WriteFailed), Ok(file)) = (done, self.opened(id)) {
            file.index.set_dirty_row(&row, true);
        }
        self.end_row(id, &row);
    }

    /// The folios of a row are not being written any more.
    fn end_row(&self, id: FileId, row: &Row) {
        for (folio, at) in row.iter() {
            if let Some(cached) = self.base().cached(id, at.start, folio) {
                cached.learn(cached.known() - FolioFlags::WRITING);
            }
            self.base().put(folio);
        }
        self.base().write_ended(id, row);
    }
}

/// Whether a row can be written.
enum Begun {
    /// The folios that it has now can.
    Some,
    /// Its first folio is on its way out of the file.
    Gone,
    /// The contents of its first folio are lost.
    Lost,
    /// Its first folio is being written.
    Busy,
}

impl<A: Arch, H: Hardware> OpenFile<'_, A, H> {
    /// Marks the folios of `row` as being written, with a reference to each, up to one that cannot
    /// be; the row ends there.
    fn begin_writes(&self, row: &mut Row) -> Begun {
        let (mut begun, mut count) = (Begun::Some, 0);
        for (folio, at) in row.iter() {
            begun = match self.cached(at.start, folio) {
                None => Begun::Gone,
                // No program may read the frame.
                Some(cached) if cached.known().contains(FolioFlags::POISONED) => Begun::Lost,
                Some(cached) if cached.known().contains(FolioFlags::WRITING) => Begun::Busy,
                Some(cached) if !cached.hold() => Begun::Busy,
                Some(cached) => {
                    cached.learn(cached.known() | FolioFlags::WRITING);
                    count += 1;
                    continue;
                }
            };
            break;
        }
        if count > 0 {
            row.truncate(count);
            begun = Begun::Some;
        }
        begun
    }

    /// Takes the right to write the pages of `row` from all spaces.
    fn withhold(&self, row: &Row, spaces: &dyn AllSpaces<A>) {
        for (folio, at) in row.iter() {
            spaces.visit(&mut |space| {
                let _ = self.where_shown(space, at, |change, span| {
                    change.withhold(span, folio.span());
                    Ok(())
                });
            });
        }
    }
}
