//! Splitting folios in place: for a part that is to leave, or to stay.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{PageSpan, Vpn};

use super::Spaces;
use crate::base::Error;
use crate::fault::Unshare;
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
    /// [`Error::Invalid`] for a page that programs may not map.
    pub fn divide(&self, space: &Space<A>, page: Vpn, how: Division) -> Result<Divided, Error> {
        if !Space::<A>::may_map(PageSpan::new(page, page.add(1))) {
            return Err(Error::Invalid);
        }
        let tables = self.base().view(space).tables();
        let mut gather = Gather::new();
        let done = loop {
            match tables.divide(page, how, &mut gather) {
                Divided::Leaf => self.split_leaf(space, page, &mut gather)?,
                done => break done,
            }
        };
        self.base().settle(space, &mut gather);
        let event = match done {
            Divided::Parts { .. } => Event::FolioSplit,
            _ => Event::FolioSplitFailed,
        };
        self.base().count(event, 1);
        Ok(done)
    }

    /// Copies the folio that `page` of a space maps into one of its own, where
    /// [`divide`](Self::divide) cannot split it: other spaces map it as well, or other tables map
    /// other parts. Programs see no change. Exclusive and pinned pages stay where they are.
    ///
    /// # Errors
    /// As for [`fault`](crate::Mm::fault).
    pub fn unshare_page(&self, space: &Space<A>, page: Vpn) -> Result<(), Error> {
        let pages = PageSpan::new(page, page.add(1));
        let mut change = self.change(space, pages)?;
        change.prepare(pages, 0)?;
        change.lend(pages);
        change.count(Event::EntriesChanged);
        drop(change);
        let view = self.base().view(space);
        match Unshare::of(&view, page) {
            Some(unshare) => self.unshare(&view, &unshare, &mut || {}).map(drop),
            None => Err(Error::NoArea(page)),
        }
    }

    /// Splits the leaf, or the marker for as many pages, at `page` into entries of the next level.
    pub(crate) fn split_leaf(
        &self,
        space: &Space<A>,
        page: Vpn,
        gather: &mut Gather,
    ) -> Result<(), Error> {
        let mut spare = Some(self.base().table_frame()?);
        let tables = self.base().view(space).tables();
        // One boundary within it is enough: a split there splits all of it.
        let inside = page.align_down(A::block_order().pages()).add(1);
        let split = tables.isolate(inside, &mut spare, gather);
        self.base().free(spare);
        self.base().settle(space, gather);
        self.base().count(Event::LeafSplit, split.map_or(1, |(splits, _)| splits));
        Ok(())
    }
}
