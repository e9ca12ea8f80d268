//! Rows of an index, as steps of the index's own property test.

use super::*;
use crate::cache::Row;

impl<A: Arch> Pair<'_, '_, '_, A> {
    /// The row of dirty folios is a part of that of the model, from its first folio on.
    pub(super) fn dirty_row(&self, pages: FilePages) {
        let Some(row) = self.index.dirty_row(pages, 5) else {
            return assert!(self.naive.next_here(pages, true).is_none());
        };
        assert!((1..=5).contains(&row.len()));
        assert_eq!(row.iter().next(), self.naive.next_here(pages, true));
        for (folio, at) in row.iter() {
            assert_eq!(self.naive.at(at.start), Some((at, folio, true)));
            assert!(at.start < pages.end && !self.naive.away.contains(&at.start));
        }
    }

    /// Does the same to a row of folios, and to one after the other in the model. A row ends where
    /// the index says, which must be before the first folio that it cannot be done to.
    pub(super) fn row(&mut self, page: u64, order: Order, count: usize, act: RowAct) {
        let start = FilePages::block(page, order).start;
        if start + ((count as u64) << order.get()) > FILE_PAGES_MAX {
            return;
        }
        match act {
            RowAct::Insert => self.insert_row(start, order, count),
            RowAct::Remove => {
                let row = self.row_at(start, order, count);
                let gone =
                    if row.is_empty() { 0 } else { self.index.remove_row(&row, 0..row.len()) };
                let due = self.there(&row);
                assert!(gone <= due, "{gone} of {due} in {row:?}");
                for (_, at) in row.iter().take(gone) {
                    self.naive.folios.remove(&at.start);
                }
            }
            RowAct::Dirty(dirty) => {
                let row = self.row_at(start, order, count);
                assert_eq!(self.index.set_dirty_row(&row, dirty), self.there(&row));
                for (folio, at) in row.iter().take(self.there(&row)) {
                    self.naive.folios.insert(at.start, (folio, dirty));
                }
            }
        }
    }

    fn insert_row(&mut self, start: u64, order: Order, count: usize) {
        let mut row = Row::new(start, order);
        for _ in 0..count {
            self.heads += 1;
            row.push(Pfn::new(self.heads << 13));
        }
        let is_free = |naive: &Naive, at: usize| naive.next(row.part(at, at + 1), false).is_none();
        let due = (0..count).take_while(|&at| is_free(&self.naive, at)).count();
        let bare = self.index.bare_from(start, order, count);
        assert!(bare <= count && (0..bare).all(|at| self.naive.at(row.page(at)).is_none()));
        let done = self.index.insert_row(&row, 0);
        assert!(done <= due, "{done} of {due} in {row:?}");
        for (folio, at) in row.iter().take(done) {
            self.naive.folios.insert(at.start, (folio, false));
        }
    }

    /// The folios of the model of `order` from page `start` on, one behind the other; a stranger
    /// where there is another.
    fn row_at(&self, start: u64, order: Order, count: usize) -> Row {
        let mut row = Row::new(start, order);
        for _ in 0..count {
            let head = match self.naive.at(row.pages().end) {
                Some((at, folio, _)) if (at.start, folio.order) == (row.pages().end, order) => {
                    folio.head
                }
                _ => Pfn::new(1),
            };
            row.push(head);
        }
        row
    }

    /// How many of a row's first folios are in memory at their places.
    fn there(&self, row: &Row) -> usize {
        let is_there = |(folio, at): &(Folio, FilePages)| {
            let there = self.naive.at(at.start);
            !self.naive.away.contains(&at.start)
                && there.is_some_and(|(here, it, _)| here == *at && it == *folio)
        };
        row.iter().take_while(is_there).count()
    }
}
