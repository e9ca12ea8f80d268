//! Folios that leave a space's tables, and folios that are split in place so that a part can.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Vpn};

use super::Spaces;
use crate::base::Error;
use crate::folio::Folio;
use crate::space::Space;
use crate::stats::Event;
use crate::table::{Divided, Division, Gather};

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// Splits the anonymous folio that `page` of a space maps into smaller ones, in place: programs
    /// see no change. Pages of it that are no longer mapped are free then. Only a folio without
    /// another mapping, reference or pin, mapped by one table, can be split.
    ///
    /// # Errors
    /// [`Error::NoMemory`] when a leaf must be split and there is no frame for its table;
    /// [`Error::Invalid`] for a page that programs may not map, and for a reserved folio.
    pub fn divide(&self, space: &Space<A>, page: Vpn, how: Division) -> Result<Divided, Error> {
        let span = PageSpan::new(page, page.add(1));
        Self::mappable(span)?;
        if self.areas(space, span).any(|area| self.base.whole(area.backing).is_some()) {
            return Err(Error::Invalid);
        }
        let tables = self.tables(space);
        let mut gather = Gather::new();
        let done = loop {
            match tables.divide(page, how, &mut gather) {
                Divided::Leaf => self.split_leaf(space, page, A::block_order())?,
                done => break done,
            }
        };
        self.base.settle(space, &mut gather);
        let event = match done {
            Divided::Parts { .. } => Event::FolioSplit,
            _ => Event::FolioSplitFailed,
        };
        self.base.count(event, 1);
        Ok(done)
    }

    /// Splits the leaf of order `leaf`, or the marker for as many pages, at `page` into entries of
    /// the next level. Where it needs a table of the level below as well, the next try brings it.
    pub(crate) fn split_leaf(&self, space: &Space<A>, page: Vpn, leaf: Order) -> Result<(), Error> {
        let mut spare = Some(self.base.table_frame()?);
        let mut due = None;
        let tables = self.tables(space);
        // One boundary within it is enough: a split there splits all of it.
        let inside = PageSpan::block(page, leaf).start.add(1);
        let split = tables.isolate(inside, inside, &mut spare, &mut due);
        self.base.free(spare);
        self.base.flush(space, due);
        self.base.count(Event::LeafSplit, split.map_or(1, |split| split.splits));
        Ok(())
    }

    /// Takes the mappings of folios for which `such` is true out of `span` of a space, into
    /// `gather`, which is flushed and freed when it is full.
    pub(crate) fn detach(
        &self,
        space: &Space<A>,
        span: PageSpan,
        gather: &mut Gather,
        such: &impl Fn(Folio) -> bool,
    ) {
        let (tables, mut at) = (self.tables(space), span.start);
        while let Some(page) = tables.detach(PageSpan::new(at, span.end), gather, such) {
            self.base.settle(space, gather);
            at = page;
        }
    }
}
