//! Putting folios into files.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::Order;

use super::OpenFile;
use crate::base::Error;
use crate::cache::{FilePages, InsertLack, identity};
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
        let folios = self.base().folios();
        let folio = folios.adopt_cached(&run, order, identity(self.index.id, page), known);
        let done = self.insert(page, folio);
        if done != Ok(true) {
            folios.unadopt(folio);
            self.base().free(run);
            return done.map(|_| None);
        }
        // Insert first, then read the file's length: a truncation writes the length first, and then
        // searches the index.
        fence(Ordering::SeqCst);
        if page < self.pages() {
            return Ok(Some((folio, run)));
        }
        self.drop_folio(page, folio);
        // The CPU that fills it holds a reference.
        let held = !known.contains(FolioFlags::UPTODATE);
        self.base().free(held.then(|| folios.put(folio)).flatten());
        Ok(None)
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
}
