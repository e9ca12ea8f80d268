//! Memory for objects of any length: each is a chain of pieces in any pages that have room.
//!
//! There are no size classes. An object goes into a page that has just enough room for it. Where
//! there is none, the object is cut: its front fills the page that has most room, or a fresh one.
//! So pages have less than `ROOM_MIN` free bytes, whatever the lengths, and each piece costs
//! `OVERHEAD` bytes. The price is a copy when an object in several pieces is read; it is small
//! beside decompression.
//!
//! Measured (`tests/density.rs`) on text in units of 4 KiB, with the tree: 3 % of the compressed
//! bytes are wasted in a pool that is filled, 6 % after it was overwritten three times in any
//! order. Size classes as in zsmalloc waste 4 % in a pool of 128 MiB and 30 % in one of 8 MiB,
//! where most classes have a group that is hardly used; and an object cannot exceed a page.
//!
//! Pages with room are kept in 32 lists by their room. A page without pieces is given back.

use quire_units::Order;

use crate::entry::Link;
use crate::page::{self, ROOM_MIN};
use crate::{Lender, PageId};

const LISTS: usize = 32;

/// The owner of a piece: the unit's first slot and its order, in one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner(u64);

impl Owner {
    /// The unit of this order that begins at this slot.
    pub(crate) fn new(base: u64, order: Order) -> Self {
        Self(base << 4 | u64::from(order.get()))
    }

    /// As a number, below 2^60.
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// From that number: the unit's first slot, and its order.
    pub(crate) fn unit(bits: u64) -> (u64, Order) {
        (bits >> 4, Order::new((bits & 15) as u8))
    }
}

/// The data pages of one pool.
#[derive(Debug)]
pub(crate) struct Heap {
    page_bytes: usize,
    /// The first page of each list, by number.
    heads: [u32; LISTS],
    /// The lists that are not empty, as bits.
    filled: u32,
    /// The room of all listed pages together, in bytes.
    room: u64,
    /// How many pages there are, listed or not.
    pub(crate) pages: u64,
}

/// A chain of pieces: the first and the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(crate) first: Link,
    pub(crate) last: Link,
}

/// The pages that a chain may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// Pages with room, and fresh ones.
    Any,
    /// Pages with room, but not this one.
    Without(PageId),
}

impl Heap {
    /// Without any page.
    pub(crate) fn new(page_bytes: usize) -> Self {
        Self { page_bytes, heads: [0; LISTS], filled: 0, room: 0, pages: 0 }
    }

    /// How many fresh pages an object of `bytes` takes at most.
    pub(crate) fn pages_max(&self, bytes: u64) -> u64 {
        // Each page but the last is filled up to less than `ROOM_MIN`, and pieces that go to other
        // pages save fresh ones.
        let least = page::payload_max(self.page_bytes) - ROOM_MIN - page::OVERHEAD;
        bytes.div_ceil(least as u64)
    }

    /// Stores an object; `None`, and nothing is changed, when there is no page for it.
    pub(crate) fn insert(
        &mut self,
        lender: &mut impl Lender,
        owner: Owner,
        bytes: &[u8],
        source: Source,
    ) -> Option<Chain> {
        let mut chain: Option<Chain> = None;
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some((link, length)) = self.insert_piece(lender, owner, rest, source) else {
                self.remove(lender, owner, chain.map(|chain| chain.first));
                return None;
            };
            rest = rest.get(length..)?;
            match &mut chain {
                None => chain = Some(Chain { first: link, last: link }),
                Some(chain) => {
                    page::set_next(lender.bytes_mut(chain.last.page), chain.last.index, Some(link));
                    chain.last = link;
                }
            }
        }
        chain
    }

    /// Stores as much of `bytes` as one page can take; returns the place and the length.
    fn insert_piece(
        &mut self,
        lender: &mut impl Lender,
        owner: Owner,
        bytes: &[u8],
        source: Source,
    ) -> Option<(Link, usize)> {
        let page = self.pick(lender, bytes.len(), source)?;
        let length = bytes.len().min(page::room(lender.bytes(page)));
        let piece = bytes.get(..length).filter(|piece| !piece.is_empty())?;
        let index = self.change(lender, page, |page| page::push(page, owner.bits(), piece))?;
        Some((Link { page, index }, length))
    }

    /// The page for the next piece of an object with `rest` bytes left.
    fn pick(&mut self, lender: &mut impl Lender, rest: usize, source: Source) -> Option<PageId> {
        let except = match source {
            Source::Any => None,
            Source::Without(page) => Some(page),
        };
        let is_long = rest >= page::payload_max(self.page_bytes);
        let fitting = if is_long { None } else { self.fitting(lender, rest, except) };
        let fresh = |heap: &mut Self, lender| match source {
            Source::Any => heap.fresh(lender),
            Source::Without(_) => None,
        };
        match fitting {
            Some(page) => Some(page),
            // Whole pages of a long object need no cutting, and leave no hole when they are
            // removed.
            None if is_long => fresh(self, lender).or_else(|| self.roomiest(lender, except)),
            None => self.roomiest(lender, except).or_else(|| fresh(self, lender)),
        }
    }

    /// A page with room for `bytes`, with as little more as the lists show.
    fn fitting(
        &self,
        lender: &impl Lender,
        bytes: usize,
        except: Option<PageId>,
    ) -> Option<PageId> {
        let lowest = self.list(bytes.max(ROOM_MIN))?;
        let mut lists = self.filled & (u32::MAX << lowest);
        while lists != 0 {
            let page = self.head(lender, lists.trailing_zeros() as usize, except);
            let page = page.filter(|&page| page::room(lender.bytes(page)) >= bytes);
            if page.is_some() {
                return page;
            }
            lists &= lists - 1;
        }
        None
    }

    /// The page with most room, as far as the lists show.
    pub(crate) fn roomiest(&self, lender: &impl Lender, except: Option<PageId>) -> Option<PageId> {
        let mut lists = self.filled;
        while let Some(highest) = lists.checked_ilog2() {
            let page = self.head(lender, highest as usize, except);
            if page.is_some() {
                return page;
            }
            lists &= !(1 << highest);
        }
        None
    }

    /// The room of all pages but this one, in bytes.
    pub(crate) fn room_without(&self, lender: &impl Lender, page: PageId) -> u64 {
        self.room.saturating_sub(page::room(lender.bytes(page)) as u64)
    }

    /// A new page in its list.
    fn fresh(&mut self, lender: &mut impl Lender) -> Option<PageId> {
        let page = lender.take()?;
        page::init(lender.bytes_mut(page));
        self.pages += 1;
        self.link(lender, page);
        Some(page)
    }

    /// An object of `length` bytes in place, if it is in one piece.
    pub(crate) fn whole(
        lender: &impl Lender,
        owner: Owner,
        first: Option<Link>,
        length: usize,
    ) -> Option<&[u8]> {
        let link = first?;
        let page = lender.bytes(link.page);
        let piece = page::piece(page, link.index).filter(|piece| piece.owner == owner.bits())?;
        page.get(piece.range).filter(|bytes| bytes.len() == length)
    }

    /// Copies an object to `out`, which has its length; `None` when its chain is damaged.
    pub(crate) fn read(
        lender: &impl Lender,
        owner: Owner,
        first: Option<Link>,
        out: &mut [u8],
    ) -> Option<()> {
        let mut rest = out;
        let mut next = first;
        while !rest.is_empty() {
            let link = next?;
            let page = lender.bytes(link.page);
            let piece =
                page::piece(page, link.index).filter(|piece| piece.owner == owner.bits())?;
            let bytes = page.get(piece.range).filter(|bytes| !bytes.is_empty())?;
            let (now, later) = rest.split_at_mut_checked(bytes.len())?;
            now.copy_from_slice(bytes);
            (rest, next) = (later, piece.next);
        }
        next.is_none().then_some(())
    }

    /// Removes an object, as far as its pieces belong to it.
    pub(crate) fn remove(&mut self, lender: &mut impl Lender, owner: Owner, first: Option<Link>) {
        let mut next = first;
        while let Some(link) = next {
            let piece = page::piece(lender.bytes(link.page), link.index);
            let Some(piece) = piece.filter(|piece| piece.owner == owner.bits()) else { return };
            next = piece.next;
            self.remove_piece(lender, link);
        }
    }

    /// Removes a piece, and the page as well when it was the last.
    pub(crate) fn remove_piece(&mut self, lender: &mut impl Lender, link: Link) {
        self.change(lender, link.page, |page| page::remove(page, link.index));
        if page::is_empty(lender.bytes(link.page)) {
            self.unlink(lender, link.page);
            self.pages = self.pages.saturating_sub(1);
            lender.give(link.page);
        }
    }

    /// Changes a page, and moves it to the list for its new room.
    fn change<R>(
        &mut self,
        lender: &mut impl Lender,
        page: PageId,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        let before = page::room(lender.bytes(page));
        let result = change(lender.bytes_mut(page));
        let after = page::room(lender.bytes(page));
        if self.list(before) == self.list(after) {
            if self.list(after).is_some() {
                self.room = (self.room + after as u64).saturating_sub(before as u64);
            }
        } else {
            self.unlink_from(lender, page, before);
            self.link(lender, page);
        }
        result
    }

    /// The list of pages with this room; `None` for those that are in no list.
    fn list(&self, room: usize) -> Option<usize> {
        (room >= ROOM_MIN).then_some((room * LISTS / self.page_bytes).min(LISTS - 1))
    }

    /// The first page of a list, or the second where the first is `except`.
    fn head(&self, lender: &impl Lender, list: usize, except: Option<PageId>) -> Option<PageId> {
        let first = PageId::new(self.heads[list])?;
        if Some(first) != except {
            return Some(first);
        }
        PageId::new(page::neighbours(lender.bytes(first)).1)
    }

    fn link(&mut self, lender: &mut impl Lender, page: PageId) {
        let room = page::room(lender.bytes(page));
        let Some(list) = self.list(room) else { return };
        let behind = self.heads[list];
        page::set_before(lender.bytes_mut(page), 0);
        page::set_behind(lender.bytes_mut(page), behind);
        if let Some(behind) = PageId::new(behind) {
            page::set_before(lender.bytes_mut(behind), page.number());
        }
        self.heads[list] = page.number();
        self.filled |= 1 << list;
        self.room += room as u64;
    }

    fn unlink(&mut self, lender: &mut impl Lender, page: PageId) {
        let room = page::room(lender.bytes(page));
        self.unlink_from(lender, page, room);
    }

    /// Removes a page from the list that holds pages with `room`.
    fn unlink_from(&mut self, lender: &mut impl Lender, page: PageId, room: usize) {
        let Some(list) = self.list(room) else { return };
        let (before, behind) = page::neighbours(lender.bytes(page));
        match PageId::new(before) {
            Some(before) => page::set_behind(lender.bytes_mut(before), behind),
            None => self.heads[list] = behind,
        }
        if let Some(behind) = PageId::new(behind) {
            page::set_before(lender.bytes_mut(behind), before);
        }
        if self.heads[list] == 0 {
            self.filled &= !(1 << list);
        }
        self.room = self.room.saturating_sub(room as u64);
    }
}
