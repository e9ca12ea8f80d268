//! One fault, as Linux serves it.
//!
//! | page | access | result |
//! |---|---|---|
//! | of a private area without a file, empty | write | the largest allowed folio that is aligned, inside the area and over empty pages only; a block only where there is no table |
//! | the same | read | the page of zeroes; a block of zeroes where the area may have blocks |
//! | the page of zeroes | write | a page; a block instead of a block of zeroes |
//! | shared since a fork | write | kept, if no other space maps the folio; else one page is copied, and a block is split before |
//! | of a private file | write | one page is copied |
//! | of a file, of shared memory | other | as recorded |
//! | on the swap device | any | it comes back ([`pressure`](super::pressure)) |
//!
//! Where memory is bounded, a large folio is taken only if it fits; for a page, others leave first.

use super::folios::Folios;
use super::rules::{BLOCK, LEAST, Setting};
use super::space::{Space, split};
use super::tables::{Body, Entry, PAGES, Table};
use crate::advise::memory::Memory;
use crate::tape::{Access, Area, Backing, Span};

/// Counts of faults and of work.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counts {
    /// Faults that brought a folio of private memory, by its order.
    pub(crate) folios: [u64; BLOCK as usize + 1],
    /// Faults that mapped the page of zeroes.
    pub(crate) zero: u64,
    /// Faults that copied a page, and that kept one.
    pub(crate) copies: u64,
    pub(crate) kept: u64,
    /// Faults on pages of files and of shared memory.
    pub(crate) file: u64,
    /// Faults that read from the swap device; pages that came back with them, and that left.
    pub(crate) major: u64,
    pub(crate) back: u64,
    pub(crate) out: u64,
    /// Large folios that were split because the device had no place for them, and because parts
    /// of them were no longer mapped.
    pub(crate) cut: u64,
    pub(crate) partial: u64,
    /// How often the bound was raised, since nothing could leave: Linux would end a process.
    pub(crate) short: u64,
    /// Allowed orders, larger than the given one, that did not fit the area; whose pages were not
    /// all empty; for which there was no memory.
    pub(crate) bounds: [u64; BLOCK as usize + 1],
    pub(crate) taken: [u64; BLOCK as usize + 1],
    pub(crate) scarce: [u64; BLOCK as usize + 1],
    /// Pages that were cleared and copied.
    pub(crate) cleared: u64,
    pub(crate) copied: u64,
    /// Blocks that the background made.
    pub(crate) collapsed: u64,
}

impl Counts {
    /// All faults.
    pub(crate) fn faults(&self) -> u64 {
        let served = self.folios.iter().sum::<u64>() + self.zero + self.copies + self.kept;
        served + self.file + self.major
    }

    /// Attempts to take a large folio for which there was no memory.
    pub(crate) fn fallbacks(&self) -> u64 {
        self.scarce.iter().sum()
    }
}

/// The parts of the machine that a fault needs besides its space.
pub(super) struct Around<'a> {
    pub(super) setting: &'a Setting,
    pub(super) folios: &'a mut Folios,
    pub(super) memory: &'a mut Memory,
    pub(super) counts: &'a mut Counts,
    /// The largest order to take, and whether others have left for it already.
    pub(super) most: u8,
    pub(super) waited: bool,
}

/// The result of a touch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Touched {
    /// It is served, with or without a fault.
    Served,
    /// No area is known there.
    Stray,
    /// The area forbids it: the program gets a signal.
    Denied,
    /// Others must leave first, for a folio of this order; nothing has changed.
    Full(u8),
}

impl Around<'_> {
    /// The program touches a page.
    pub(super) fn touch(&mut self, space: &mut Space, page: u64, access: Access) -> Touched {
        let Some(area) = space.areas.find(page).or_else(|| space.areas.grow(page)) else {
            return Touched::Stray;
        };
        if !area.rights.allow(access) {
            return Touched::Denied;
        }
        let (block, at) = split(page);
        let entry = space.tables.get(block).map_or(Entry::NONE, |table| table.entry(at));
        let write = access == Access::Write;
        if !self.folios.have_room(1) && self.takes_page(space, &area, entry, write) {
            return Touched::Full(0);
        }
        let mut full = None;
        if entry.folio().is_some() {
            if write && !entry.is_own() {
                self.share_ends(space, page, entry);
            }
        } else if let Some(slot) = entry.slot() {
            full = self.swap_in(space, &area, page, slot);
        } else if area.shared || area.backing == Backing::Other {
            self.counts.file += 1;
        } else if area.backing != Backing::Anon {
            if write {
                self.counts.copies += 1;
                self.counts.copied += 1;
                self.one(space, page);
            } else {
                self.counts.file += 1;
            }
        } else if entry == Entry::ZERO {
            if write {
                self.replace_zero(space, page);
            }
        } else if write {
            full = self.bring(space, &area, page);
        } else {
            self.bring_zero(space, &area, page);
        }
        if let Some(order) = full {
            return Touched::Full(order);
        }
        if let Some(folio) = space.touch(page) {
            self.folios.access(folio);
        }
        self.folios.tables = self.folios.tables.wrapping_add(space.table_change());
        Touched::Served
    }

    /// Whether a touch takes a page, in place of another.
    fn takes_page(&self, space: &Space, area: &Area, entry: Entry, write: bool) -> bool {
        if let Some(folio) = entry.folio() {
            return write && !entry.is_own() && !self.folios.is_own(folio, space.number);
        }
        let of_file = !area.shared && matches!(area.backing, Backing::File { .. });
        write && entry.slot().is_none() && (of_file || entry == Entry::ZERO)
    }

    /// Whether a folio of `order` fits.
    pub(super) fn has(&mut self, order: u8) -> bool {
        self.memory.has(order) && self.folios.have_room(1 << order)
    }

    /// Whether others leave for a large folio.
    pub(super) fn waits(&self, area: &Area, order: u8) -> bool {
        let limit = self.folios.limit.filter(|_| !self.waited);
        let waits = limit.is_some_and(|limit| limit.waits[usize::from(area.huge == Some(true))]);
        waits && !self.folios.have_room(1 << order)
    }

    /// One page of its own.
    fn one(&mut self, space: &mut Space, page: u64) {
        let (block, at) = split(page);
        let folio = self.folios.make(0, space.number, (page, 1));
        space.tables.at(block).pages()[at] = Entry::of(folio, true);
        space.came(1);
    }

    fn replace_zero(&mut self, space: &mut Space, page: u64) {
        let block = split(page).0;
        let whole = space.tables.get(block).is_some_and(|it| matches!(it.body, Body::Block(_)));
        if whole && self.most >= BLOCK && self.has(BLOCK) {
            self.block(space, block);
            return;
        }
        self.counts.folios[0] += 1;
        self.counts.cleared += 1;
        self.one(space, page);
    }

    /// A block of its own where there is none, or only zeroes.
    fn block(&mut self, space: &mut Space, block: u64) {
        let folio = self.folios.make(BLOCK, space.number, (block * PAGES, PAGES as u32));
        let body = Body::Block(Entry::of(folio, true));
        match space.tables.get(block) {
            Some(table) => table.body = body,
            None => space.tables.put(block, Table::new(body)),
        }
        self.counts.folios[BLOCK as usize] += 1;
        self.counts.cleared += PAGES;
        space.came(PAGES);
    }

    /// A write to an empty page; the order for which others must leave first.
    fn bring(&mut self, space: &mut Space, area: &Area, page: u64) -> Option<u8> {
        let orders = self.setting.orders(area) & ((2 << self.most) - 1);
        let block = split(page).0;
        if orders >> BLOCK & 1 != 0 {
            if !area.span.covers(Span::of(block * PAGES, PAGES)) {
                self.counts.bounds[BLOCK as usize] += 1;
            } else if space.tables.get(block).is_some() {
                self.counts.taken[BLOCK as usize] += 1;
            } else if self.waits(area, BLOCK) {
                return Some(BLOCK);
            } else if !self.has(BLOCK) {
                self.counts.scarce[BLOCK as usize] += 1;
            } else {
                self.block(space, block);
                return None;
            }
        }
        let mut order = if orders == 0 { 0 } else { self.fitting(space, area, page, orders) };
        while order > 0 && !self.has(order) {
            if self.waits(area, order) {
                return Some(order);
            }
            self.counts.scarce[order as usize] += 1;
            order = (LEAST..order).rev().find(|lower| orders >> lower & 1 != 0).unwrap_or(0);
        }
        if !self.folios.have_room(1 << order) {
            return Some(order);
        }
        self.counts.folios[order as usize] += 1;
        self.counts.cleared += 1 << order;
        let span = around(page, order);
        let folio = self.folios.make(order, space.number, (span.start, 1 << order));
        let at = split(span.start).1;
        let entries = &mut space.tables.at(block).pages()[at..at + (1 << order)];
        entries.fill(Entry::of(folio, true));
        space.came(1 << order);
        None
    }

    /// The largest allowed order below a block that lies in the area, over empty pages.
    fn fitting(&mut self, space: &mut Space, area: &Area, page: u64, orders: u16) -> u8 {
        let table = space.tables.at(split(page).0);
        for order in (LEAST..BLOCK).rev().filter(|order| orders >> order & 1 != 0) {
            let span = around(page, order);
            let at = split(span.start).1;
            if !area.span.covers(span) {
                self.counts.bounds[order as usize] += 1;
            } else if !table.pages()[at..at + (1 << order)].iter().all(|entry| entry.is_none()) {
                self.counts.taken[order as usize] += 1;
            } else {
                return order;
            }
        }
        0
    }

    /// A read of an empty page.
    fn bring_zero(&mut self, space: &mut Space, area: &Area, page: u64) {
        self.counts.zero += 1;
        let (block, at) = split(page);
        let blocks = self.setting.orders(area) >> BLOCK & 1 != 0;
        let fits = area.span.covers(Span::of(block * PAGES, PAGES));
        if blocks && fits && space.tables.get(block).is_none() {
            space.tables.put(block, Table::new(Body::Block(Entry::ZERO)));
        } else {
            space.tables.at(block).pages()[at] = Entry::ZERO;
        }
    }

    /// A write to a page that a fork has shared.
    fn share_ends(&mut self, space: &mut Space, page: u64, entry: Entry) {
        let (block, at) = split(page);
        let Some(folio) = entry.folio() else { return };
        let table = space.tables.at(block);
        if self.folios.is_own(folio, space.number) {
            self.counts.kept += 1;
            match &mut table.body {
                Body::Block(entry) => *entry = Entry::of(folio, true),
                Body::Pages(all) => all[at] = Entry::of(folio, true),
            }
            return;
        }
        self.counts.copies += 1;
        self.counts.copied += 1;
        table.pages();
        self.folios.unmap(folio, space.number, 1);
        space.own -= 1;
        self.one(space, page);
    }
}

/// The aligned pages of a folio of `order` around `page`.
pub(super) fn around(page: u64, order: u8) -> Span {
    Span::of(page >> order << order, 1 << order)
}
