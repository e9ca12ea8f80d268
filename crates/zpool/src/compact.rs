//! Compaction: moving the pieces of sparse pages into free room of others, so that pages can be
//! given back.

use quire_units::Order;

use crate::entry::{Entry, Link, Unit};
use crate::heap::{Owner, Source};
use crate::page::{self, Piece};
use crate::pool::Found;
use crate::{Lender, PageId, Pool};

/// A page is worth emptying when at least this part of it (1/8) is room: with less room, much would
/// be copied for little gain, and into many small pieces.
const ROOM_SHIFT: u32 = 3;

/// The predecessor of a piece in its chain.
enum Before {
    /// The entry of its unit.
    Entry(Found),
    /// Another piece.
    Piece(Link),
}

impl<L: Lender> Pool<'_, L> {
    /// Empties up to `pages_max` pages into others and gives them back; returns how many. Fewer
    /// than `pages_max` means that no page has much room, or that the room elsewhere does not
    /// suffice.
    ///
    /// It never takes a page, and copies less than a page for each that it gives back. Stored data
    /// does not change.
    pub fn compact(&mut self, pages_max: u64) -> u64 {
        let mut given = 0;
        while given < pages_max && self.vacate_one() {
            given += 1;
        }
        self.counters.compacted_pages += given;
        given
    }

    /// Empties the page that has most room, if that is worth it.
    fn vacate_one(&mut self) -> bool {
        let Some(victim) = self.heap.roomiest(&self.lender, None) else { return false };
        let room = page::room(self.lender.bytes(victim));
        let page_bytes = self.config.page_bytes();
        let used = page_bytes.saturating_sub(room) as u64;
        // Some of the room is lost to the ends of pages and to the headers of pieces.
        let needed = used + used / 4;
        if room < page_bytes >> ROOM_SHIFT || self.heap.room_without(&self.lender, victim) < needed
        {
            return false;
        }
        let before = self.heap.pages;
        while self.heap.pages == before {
            let count = page::count(self.lender.bytes(victim));
            let Some(last) = count.checked_sub(1) else { return false };
            if !self.move_piece(victim, last as u16) {
                return false;
            }
        }
        true
    }

    /// Moves one piece to other pages; `false` when they have no room for it.
    fn move_piece(&mut self, page: PageId, index: u16) -> bool {
        let link = Link { page, index };
        let bytes = self.lender.bytes(page);
        let Some(piece) = page::piece(bytes, index) else { return false };
        let length = piece.range.len();
        match (bytes.get(piece.range.clone()), self.packed.get_mut(..length)) {
            (Some(from), Some(to)) => to.copy_from_slice(from),
            _ => return false,
        }
        let (base, order) = Owner::unit(piece.owner);
        match self.before(base, order, link) {
            None => self.counters.orphans += 1,
            Some(before) => {
                if self.link_copy(&piece, page, Owner::new(base, order), before).is_none() {
                    return false;
                }
            }
        }
        self.heap.remove_piece(&mut self.lender, link);
        true
    }

    /// Puts the copy of a piece, which is in the scratch memory, in its place in the chain.
    fn link_copy(
        &mut self,
        piece: &Piece,
        page: PageId,
        owner: Owner,
        before: Before,
    ) -> Option<()> {
        let source = Source::Without(page);
        let bytes = self.packed.get(..piece.range.len())?;
        let chain = self.heap.insert(&mut self.lender, owner, bytes, source)?;
        page::set_next(self.lender.bytes_mut(chain.last.page), chain.last.index, piece.next);
        match before {
            Before::Piece(before) => {
                let bytes = self.lender.bytes_mut(before.page);
                page::set_next(bytes, before.index, Some(chain.first));
            }
            Before::Entry(found) => {
                let content = found.unit.content.moved(Some(chain.first));
                self.set_entry(found.head, Entry::Head(Unit { content, ..found.unit }));
            }
        }
        Some(())
    }

    /// The predecessor of this piece of a unit; `None` when there is none.
    fn before(&self, base: u64, order: Order, link: Link) -> Option<Before> {
        let found = self.head_of(base, order)?;
        let (bytes, first) = found.unit.content.object()?;
        if first == Some(link) {
            return Some(Before::Entry(found));
        }
        let mut at = first?;
        // Each piece has a byte at least, so that even a damaged chain ends.
        for _ in 0..bytes {
            let piece = page::piece(self.lender.bytes(at.page), at.index)?;
            if piece.owner != found.owner().bits() {
                return None;
            }
            if piece.next == Some(link) {
                return Some(Before::Piece(at));
            }
            at = piece.next?;
        }
        None
    }
}
