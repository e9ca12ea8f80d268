//! Rows: folios of one order at consecutive pages of a file.
//!
//! ```text
//!   node     | .. | f | g | h | k | .. |      a row of four: one walk, one lock, four words
//!                   └─ order ─┘
//! ```
//!
//! Neighbours that go through the same steps do so as a row. Each step then costs one walk to their
//! node and one lock of it. A row that begins in a node may go on in the next; then
//! it is two parts.

use core::ops::Range;

use arrayvec::ArrayVec;
use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, Pfn};

use super::FilePages;
use super::index::Index;
use super::word::Entry;
use crate::folio::Folio;
use crate::limits::ROW_MOST;
use crate::radix::{Node, Tree};

/// Folios of one order at consecutive pages of a file, at least one page each.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    start: u64,
    order: Order,
    heads: ArrayVec<Pfn, ROW_MOST>,
}

impl Row {
    /// A row of none yet that begins at page `start`.
    #[inline]
    pub(crate) const fn new(start: u64, order: Order) -> Self {
        Self { start, order, heads: ArrayVec::new_const() }
    }

    /// The row of `folio` alone, at page `start`.
    pub(crate) fn of(start: u64, folio: Folio) -> Self {
        let mut row = Self::new(start, folio.order);
        row.heads.push(folio.head);
        row
    }

    /// Adds the folio of `head`. The row is not full.
    #[inline]
    pub(crate) fn push(&mut self, head: Pfn) {
        debug_assert!(!self.heads.is_full());
        let _ = self.heads.try_push(head);
    }

    /// Keeps the first `count` folios.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.heads.truncate(count);
    }

    /// Gives its first folio the page `start`, and each other one that behind the one before.
    pub(crate) fn set_start(&mut self, start: u64) {
        self.start = start;
    }

    /// Takes out the folios from number `from` on.
    pub(crate) fn split_off(&mut self, from: usize) -> impl Iterator<Item = Folio> + '_ {
        let order = self.order;
        self.heads.drain(from..).map(move |head| Folio { head, order })
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.heads.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    #[inline]
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// The first page of folio `at`.
    #[inline]
    pub(crate) fn page(&self, at: usize) -> u64 {
        self.start + ((at as u64) << self.order.get())
    }

    /// The pages from folio `from` up to folio `end`.
    #[inline]
    pub(crate) fn part(&self, from: usize, end: usize) -> FilePages {
        FilePages::new(self.page(from), self.page(end))
    }

    /// All pages.
    #[inline]
    pub(crate) fn pages(&self) -> FilePages {
        self.part(0, self.len())
    }

    /// The folios, and the pages of each.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Folio, FilePages)> + '_ {
        let (start, order) = (self.start, self.order);
        self.heads.iter().zip(0_u64..).map(move |(head, at)| {
            let page = start + (at << order.get());
            (Folio { head: *head, order }, FilePages::new(page, page + order.pages()))
        })
    }

    /// Folio number `at`.
    #[inline]
    pub(crate) fn folio(&self, at: usize) -> Option<Folio> {
        self.heads.get(at).map(|head| Folio { head: *head, order: self.order })
    }
}

impl<A: Arch, H: Hardware> Index<'_, A, H> {
    /// The row of dirty folios that begins with the first one that has a page in `pages`, with at
    /// most `most` folios. The others begin in `pages`.
    pub(crate) fn dirty_row(&self, pages: FilePages, most: usize) -> Option<Row> {
        let (folio, at) = self.next_dirty(pages)?;
        let mut row = Row::of(at.start, folio);
        if most > 1 && at.end < pages.end {
            let room = (pages.end - at.start).div_ceil(folio.order.pages());
            self.follow_folios(&mut row, most.min(room as usize), |_, _, dirty| dirty);
        }
        Some(row)
    }

    /// Adds the folios behind those of `row`, as far as one node tells, as `takes` returns true for
    /// a folio and its first page, and until there are `most`.
    pub(crate) fn follow_row(
        &self,
        row: &mut Row,
        most: usize,
        mut takes: impl FnMut(Folio, u64) -> bool,
    ) {
        self.follow_folios(row, most, |folio, page, _| takes(folio, page));
    }

    /// The same; `takes` also hears whether the folio is dirty.
    fn follow_folios(
        &self,
        row: &mut Row,
        most: usize,
        mut takes: impl FnMut(Folio, u64, bool) -> bool,
    ) {
        let most = most.min(ROW_MOST);
        if row.len() < most {
            self.follow(row.pages().end, row.order, |entry| match entry {
                Entry::Folio { folio, dirty }
                    if folio.order == row.order && takes(folio, row.pages().end, dirty) =>
                {
                    row.push(folio.head);
                    row.len() < most
                }
                _ => false,
            });
        }
    }

    /// How many blocks of `order` from page `at` on have nothing at all, as far as one node tells,
    /// at most `most`.
    pub(crate) fn bare_from(&self, at: u64, order: Order, most: usize) -> usize {
        let mut bare = 0;
        if most == 0 || self.find(at).0 != Entry::Empty {
            return 0;
        }
        self.follow(at, order, |entry| {
            let goes_on = bare < most && entry == Entry::Empty;
            bare += usize::from(goes_on);
            goes_on
        });
        bare
    }

    /// Calls `see` with the entries of the blocks of `order` from page `at` on, as far as it
    /// returns true and as the node goes that has one word, or places, for each. Nothing is locked:
    /// an entry may be out of date.
    fn follow(&self, at: u64, order: Order, mut see: impl FnMut(Entry) -> bool) {
        let Some(place) = self.place_of(at, order) else { return };
        if place.node.level != Self::level_of(order) {
            return;
        }
        let places = place.at..1 << Self::BITS;
        for at in places.step_by(Self::places(order, place.node.level)) {
            if !see(self.entry(place.node, at)) {
                return;
            }
        }
    }

    /// Puts the folios of `row` from number `from` on into one node, as far as there is room.
    /// Returns how many: none where there is no node for them yet, or notes are in the way, which
    /// [`insert`](Self::insert) removes.
    pub(crate) fn insert_row(&self, row: &Row, from: usize) -> usize {
        let mut is_first = true;
        self.exchange_row(row, from..row.len(), |node, at, folio| {
            // An entry that covers a later place begins before the first, or between them.
            let is_covered = is_first && self.covering_in(node, at).has_content();
            is_first = false;
            let each = Self::places(row.order, node.level);
            let is_bare = each == 1 || self.tree.hw.count_run(node.frame, at, each, 0, 0) == each;
            let is_free = self.entry(node, at) == Entry::Empty && is_bare && !is_covered;
            is_free.then_some((Entry::Folio { folio, dirty: false }, 1))
        })
        .0
    }

    /// Takes the folios of `row` with the numbers `gone` out, from the first on, as far as one node
    /// has them. Returns how many.
    pub(crate) fn remove_row(&self, row: &Row, gone: Range<usize>) -> usize {
        self.exchange_row(row, gone, |node, at, folio| {
            self.has(node, at, folio).then_some((Entry::Empty, -1))
        })
        .0
    }

    /// [Notes](Self::set_dirty) that the folios of `row` are dirty, or clean, up to one that is not
    /// there. Returns how many.
    pub(crate) fn set_dirty_row(&self, row: &Row, dirty: bool) -> usize {
        let mut done = 0;
        while let Some(folio) = row.folio(done) {
            let (count, level) = self.exchange_row(row, done..row.len(), |node, at, folio| {
                self.has(node, at, folio).then_some((Entry::Folio { folio, dirty }, 0))
            });
            if count > 0 && dirty {
                self.mark_all_above(row.page(done), level);
            }
            if count == 0 && !self.set_dirty(row.page(done), folio, dirty) {
                break;
            }
            done += count.max(1);
        }
        done
    }

    /// The node of the folios of `row`, as far as one has them; a caller that drops content asks it
    /// with [`is_clean_in`](Self::is_clean_in).
    pub(crate) fn node_of(&self, row: &Row) -> Option<Node> {
        self.place_of(row.page(0), row.order).map(|place| place.node)
    }

    /// [`is_clean`](Self::is_clean) for a locked folio with the identity of `page`, sooner where
    /// `node` has it. The folio stays in the index while it is locked, so a node of the index for
    /// its page is the one that has it.
    pub(crate) fn is_clean_in(&self, node: Option<Node>, page: u64, folio: Folio) -> bool {
        let level = Self::level_of(folio.order);
        match node.filter(|node| node.level == level && self.tree.is_node(*node, page)) {
            Some(node) => {
                let place = Tree::<A, H>::place(page, level);
                self.entry(node, place) == Entry::Folio { folio, dirty: false }
            }
            None => self.is_clean(page, folio),
        }
    }

    /// Whether place `at` of a node has `folio`.
    fn has(&self, node: Node, at: usize, folio: Folio) -> bool {
        matches!(self.entry(node, at), Entry::Folio { folio: here, .. } if here == folio)
    }

    /// Writes new entries for the folios of `row` with these numbers, as far as one node has them,
    /// which is locked: `new` returns each, and how many more words are used then; or `None` to end
    /// there. Returns how many, and the node's level.
    fn exchange_row(
        &self,
        row: &Row,
        numbers: Range<usize>,
        mut new: impl FnMut(Node, usize, Folio) -> Option<(Entry, i64)>,
    ) -> (usize, u8) {
        let level = Self::level_of(row.order);
        let Ok((place, lock)) = self.locked(row.page(numbers.start), row.order) else {
            return (0, level);
        };
        if place.node.level != level {
            return (0, level);
        }
        let places = (place.at..1 << Self::BITS).step_by(Self::places(row.order, level));
        let (mut done, mut used) = (0, 0);
        for (at, number) in places.zip(numbers) {
            let Some(folio) = row.folio(number) else { break };
            let Some((entry, more)) = new(place.node, at, folio) else { break };
            self.tree.write(&lock, at, 1, entry.word());
            (done, used) = (done + 1, used + more);
        }
        if used != 0 {
            self.tree.add_used(&lock, used);
        }
        (done, level)
    }
}
