//! Putting folios into files.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::Order;

use super::OpenFile;
use crate::base::Error;
use crate::cache::{FilePages, InsertLack, Row, identity};
use crate::folio::{Folio, FolioFlags};
use crate::sync::{Ordering, fence};

impl<A: Arch, H: Hardware> OpenFile<'_, A, H> {
    /// Inserts `run` into a file at `page` as one folio, which comes back with the run for its
    /// filler; `None`, and the run is free, when there is a folio already or the file ends before.
    pub(crate) fn enter(
        &self,
        page: u64,
        run: FrameRun,
        order: Order,
        known: FolioFlags,
    ) -> Result<Option<(Folio, FrameRun)>, Error> {
        let mut entered = None;
        let enter = &mut |_, folio, run| entered = Some((folio, run));
        self.enter_row(page, order, &mut [Some(run)], &|_| known, enter)?;
        Ok(entered)
    }

    /// The same for folios made of `runs`, all of `order`, at the pages from `at` on: `known` has
    /// the facts about the one that gets these pages. `entered` gets the first page of each, the
    /// folio and its run, up to one where there is a folio already, or where the file ends.
    ///
    /// # Errors
    /// [`Error::NoMemory`] when there is no frame for the index; none has entered then.
    pub(super) fn enter_row(
        &self,
        at: u64,
        order: Order,
        runs: &mut [Option<FrameRun>],
        known: &dyn Fn(FilePages) -> FolioFlags,
        entered: &mut dyn FnMut(u64, Folio, FrameRun),
    ) -> Result<(), Error> {
        let (folios, mut row) = (self.base().folios(), Row::new(at, order));
        for run in runs.iter().flatten() {
            let block = row.part(row.len(), row.len() + 1);
            let owner = identity(self.index.id, block.start);
            row.push(folios.adopt_cached(run, order, owner, known(block)).head);
        }
        let (count, lack) = self.insert_row(&row);
        // Insert first, then read the file's length: a truncation writes the length first, and then
        // searches the index.
        fence(Ordering::SeqCst);
        let end = self.pages();
        for ((run, (folio, block)), number) in runs.iter_mut().zip(row.iter()).zip(0..) {
            let Some(run) = run.take() else { continue };
            if number >= count {
                folios.unadopt(folio);
                self.base().free(run);
            } else if block.start < end {
                entered(block.start, folio, run);
            } else {
                // The CPU that fills it holds a reference.
                let held = !folios.known(folio).0.contains(FolioFlags::UPTODATE);
                self.drop_folio(block.start, folio);
                self.base().free(held.then(|| folios.put(folio)).flatten());
            }
        }
        lack
    }

    /// Inserts a folio into the index at `page`; returns whether there was none.
    pub(crate) fn insert(&self, page: u64, folio: Folio) -> Result<bool, Error> {
        let mut pruned = folio.order <= A::block_order();
        let done = self.base().with_spare(|spare| {
            loop {
                match self.index.insert(page, folio, spare) {
                    Err(InsertLack::Room) if !pruned => {
                        // A lower node may be empty by now.
                        let block = FilePages::block(page, folio.order);
                        self.index.prune(block, &mut |run| self.base().free(run));
                        pruned = true;
                    }
                    Err(InsertLack::Room) => break Ok(false),
                    inserted => break inserted.map(|()| true),
                }
            }
        });
        if done == Ok(true) {
            self.count_cached(folio.order.pages() as i64);
        }
        done
    }

    /// Inserts the folios of a row into the index, up to one where there is a folio already, or
    /// where there is no frame for a node. Returns how many, and an error if that is none.
    pub(crate) fn insert_row(&self, row: &Row) -> (usize, Result<(), Error>) {
        let mut done = 0;
        while let Some(folio) = row.folio(done) {
            let more = self.index.insert_row(row, done);
            self.count_cached(row.part(done, done + more).count() as i64);
            done += more;
            if more == 0 {
                match self.insert(row.page(done), folio) {
                    Ok(true) => done += 1,
                    Err(error) if done == 0 => return (0, Err(error)),
                    Ok(false) | Err(_) => break,
                }
            }
        }
        (done, Ok(()))
    }
}
