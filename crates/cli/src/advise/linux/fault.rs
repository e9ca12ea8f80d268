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

use super::folios::Folios;
use super::rules::{BLOCK, LEAST, Setting};
use super::space::{Space, split};
use super::tables::{Body, Entry, PAGES, Table};
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
        self.folios.iter().sum::<u64>() + self.zero + self.copies + self.kept + self.file
    }
}

/// Memory in which large folios may be hard to find.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Memory {
    /// The share of attempts for a block that fail, from 0 to 1; smaller orders fail less often.
    pub(crate) fragmented: f64,
    seed: u64,
}

impl Memory {
    pub(crate) fn new(fragmented: f64) -> Memory {
        Memory { fragmented, seed: 1 }
    }

    /// Whether there is a free folio of `order`: the chance falls with each order, so that it is
    /// certain for pages and as given for blocks.
    fn has(&mut self, order: u8) -> bool {
        if order == 0 || self.fragmented <= 0.0 {
            return true;
        }
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let chance = 1.0 - (1.0 - self.fragmented).powf(f64::from(order) / f64::from(BLOCK));
        (self.seed >> 11) as f64 / (1_u64 << 53) as f64 >= chance
    }
}

/// The parts of the machine that a fault needs besides its space.
pub(super) struct Around<'a> {
    pub(super) setting: &'a Setting,
    pub(super) folios: &'a mut Folios,
    pub(super) memory: &'a mut Memory,
    pub(super) counts: &'a mut Counts,
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
        if entry.folio().is_some() {
            if write && !entry.is_own() {
                self.share_ends(space, page, entry);
            }
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
            self.bring(space, &area, page);
        } else {
            self.bring_zero(space, &area, page);
        }
        space.touch(page);
        Touched::Served
    }

    /// All pages of `span` come in to be written.
    pub(super) fn populate(&mut self, space: &mut Space, span: Span) {
        for area in space.areas.within(span) {
            let access = if area.rights.write { Access::Write } else { Access::Read };
            // Pages of files come as they were recorded.
            if area.is_anon() && area.rights.allow(access) {
                for page in area.span.start..area.span.end {
                    let (block, at) = split(page);
                    let entry = space.tables.get(block).map_or(Entry::NONE, |it| it.entry(at));
                    if entry.folio().is_none() {
                        self.touch(space, page, access);
                    }
                }
            }
        }
    }

    /// One page of its own.
    fn one(&mut self, space: &mut Space, page: u64) {
        let (block, at) = split(page);
        let folio = self.folios.make(0, space.number, 1);
        space.tables.at(block).pages()[at] = Entry::of(folio, true);
        space.came(1);
    }

    fn replace_zero(&mut self, space: &mut Space, page: u64) {
        let block = split(page).0;
        let whole = space.tables.get(block).is_some_and(|it| matches!(it.body, Body::Block(_)));
        if whole && self.memory.has(BLOCK) {
            self.block(space, block);
            return;
        }
        self.counts.folios[0] += 1;
        self.counts.cleared += 1;
        self.one(space, page);
    }

    /// A block of its own where there is none, or only zeroes.
    fn block(&mut self, space: &mut Space, block: u64) {
        let folio = self.folios.make(BLOCK, space.number, PAGES as u32);
        let body = Body::Block(Entry::of(folio, true));
        match space.tables.get(block) {
            Some(table) => table.body = body,
            None => space.tables.put(block, Table::new(body)),
        }
        self.counts.folios[BLOCK as usize] += 1;
        self.counts.cleared += PAGES;
        space.came(PAGES);
    }

    /// A write to an empty page.
    fn bring(&mut self, space: &mut Space, area: &Area, page: u64) {
        let orders = self.setting.orders(area);
        let block = split(page).0;
        if orders >> BLOCK & 1 != 0 {
            if !area.span.covers(Span::of(block * PAGES, PAGES)) {
                self.counts.bounds[BLOCK as usize] += 1;
            } else if space.tables.get(block).is_some() {
                self.counts.taken[BLOCK as usize] += 1;
            } else if !self.memory.has(BLOCK) {
                self.counts.scarce[BLOCK as usize] += 1;
            } else {
                self.block(space, block);
                return;
            }
        }
        let mut order = if orders == 0 { 0 } else { self.fitting(space, area, page, orders) };
        while order > 0 && !self.memory.has(order) {
            self.counts.scarce[order as usize] += 1;
            order = (LEAST..order).rev().find(|lower| orders >> lower & 1 != 0).unwrap_or(0);
        }
        self.counts.folios[order as usize] += 1;
        self.counts.cleared += 1 << order;
        let span = around(page, order);
        let folio = self.folios.make(order, space.number, 1 << order);
        let at = split(span.start).1;
        let entries = &mut space.tables.at(block).pages()[at..at + (1 << order)];
        entries.fill(Entry::of(folio, true));
        space.came(1 << order);
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
fn around(page: u64, order: u8) -> Span {
    Span::of(page >> order << order, 1 << order)
}
