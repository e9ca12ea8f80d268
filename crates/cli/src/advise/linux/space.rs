//! One process: its areas, its tables, and how many of its pages are resident.

use super::areas::Areas;
use super::folios::{FolioId, Folios};
use super::tables::{Body, Entry, PAGES, Table, Tables};
use crate::tape::{Area, Backing, Span};

/// An address space.
#[derive(Default)]
pub(super) struct Space {
    pub(super) number: u32,
    pub(super) areas: Areas,
    pub(super) tables: Tables,
    /// Mapped pages of private memory.
    pub(super) own: u64,
    /// Mapped pages of files and of shared memory, as recorded.
    pub(super) held: i64,
    /// The most resident pages that it has had.
    pub(super) peak: u64,
    /// Its mapped pages of private memory that it has touched.
    pub(super) touched: u64,
    /// The most tables that it has had, and how many count in the memory of all.
    pub(super) most_tables: u64,
    counted_tables: u64,
}

/// Pages of the kernel for a process besides its tables of entries for pages: upper tables, the
/// stack of a thread, structures. Measured: 8 to 12 of a process that sleeps.
const KERNEL: u64 = 10;

/// The block of a page, and its place in it.
pub(super) fn split(page: u64) -> (u64, usize) {
    (page / PAGES, (page % PAGES) as usize)
}

impl Space {
    pub(super) fn new(number: u32) -> Space {
        Space { number, ..Space::default() }
    }

    /// `count` pages of private memory were mapped.
    pub(super) fn came(&mut self, count: u64) {
        self.own += count;
        self.note();
    }

    /// Pages of files came or went.
    pub(super) fn hold(&mut self, pages: i64) {
        self.held += pages;
        self.note();
    }

    /// Resident pages.
    pub(super) fn resident(&self) -> u64 {
        self.own + self.held.max(0) as u64
    }

    fn note(&mut self) {
        self.peak = self.peak.max(self.resident());
        self.most_tables = self.most_tables.max(self.tables.count());
    }

    /// A page was touched; returns its folio, if it has one.
    pub(super) fn touch(&mut self, page: u64) -> Option<FolioId> {
        let (block, at) = split(page);
        let table = self.tables.get(block)?;
        let folio = table.entry(at).folio()?;
        if !table.is_touched(at) {
            table.touch(at);
            self.touched += 1;
        }
        Some(folio)
    }

    /// A page of private memory has left; its entry is `entry` now.
    pub(super) fn left(&mut self, page: u64, entry: Entry) {
        let (block, at) = split(page);
        let table = self.tables.at(block);
        if table.is_touched(at) {
            table.forget(at);
            self.touched -= 1;
        }
        table.pages()[at] = entry;
        self.own -= 1;
    }

    /// Tables and other pages of the kernel that are new since the last call; a wrapped number
    /// where there are fewer.
    pub(super) fn table_change(&mut self) -> u64 {
        let count = self.tables.count() + KERNEL;
        count.wrapping_sub(std::mem::replace(&mut self.counted_tables, count))
    }

    /// Forgets the content of all pages of `span`. Tables that are empty afterwards go where
    /// `tables` says so.
    pub(super) fn forget(&mut self, span: Span, folios: &mut Folios, tables: bool) {
        let blocks = self.tables.between(span.start / PAGES, span.end.div_ceil(PAGES));
        for block in blocks {
            let own = Span::of(block * PAGES, PAGES);
            let part = own.with(span);
            let Some(table) = self.tables.get(block) else { continue };
            let mut gone = 0;
            let touched;
            match table.body {
                Body::Block(entry) if part == own => {
                    if let Some(folio) = entry.folio() {
                        folios.unmap(folio, self.number, PAGES as u32);
                        gone = PAGES;
                    }
                    touched = table.touched.iter().map(|word| u64::from(word.count_ones())).sum();
                    self.tables.remove(block);
                }
                _ => {
                    (gone, touched) = forget_pages(table, part, self.number, folios);
                    if tables && table.is_empty() {
                        self.tables.remove(block);
                    }
                }
            }
            self.own -= gone;
            self.touched -= touched.min(self.touched);
        }
    }

    /// Unmaps `span`: its content, its areas, and the tables that no area needs.
    pub(super) fn unmap(&mut self, span: Span, folios: &mut Folios) {
        if !self.areas.any(span) {
            return;
        }
        self.forget(span, folios, false);
        self.areas.cut(span);
        for block in self.tables.between(span.start / PAGES, span.end.div_ceil(PAGES)) {
            if !self.areas.any(Span::of(block * PAGES, PAGES)) {
                self.tables.remove(block);
            }
        }
    }

    /// Maps an area; what was there is gone.
    pub(super) fn map(&mut self, area: Area, folios: &mut Folios) {
        if area.span.count() > 0 {
            self.unmap(area.span, folios);
            self.areas.add(Area { populate: false, ..area });
        }
    }

    /// Moves `from` to `to`, with all that is in it.
    pub(super) fn relocate(&mut self, from: Span, to: Span, keep: bool, folios: &mut Folios) {
        if to.count() < from.count() {
            self.unmap(Span { start: from.start + to.count(), end: from.end }, folios);
        }
        if from.start == to.start {
            let more = Span { start: from.end, end: to.end };
            if more.count() > 0 {
                self.unmap(more, folios);
            }
            self.areas.relocate(from, to, keep);
            return;
        }
        self.unmap(to, folios);
        self.areas.relocate(from, to, keep);
        let moved = Span::of(from.start, from.count().min(to.count()));
        self.carry(moved, to.start, folios);
        for block in self.tables.between(from.start / PAGES, from.end.div_ceil(PAGES)) {
            if !self.areas.any(Span::of(block * PAGES, PAGES)) {
                self.tables.remove(block);
            }
        }
    }

    /// Moves the entries of `from` to the pages from `to` on, where none are.
    fn carry(&mut self, from: Span, to: u64, folios: &mut Folios) {
        for block in self.tables.between(from.start / PAGES, from.end.div_ceil(PAGES)) {
            let own = Span::of(block * PAGES, PAGES);
            let part = own.with(from);
            let target = to + (part.start - from.start);
            let whole = part == own && target.is_multiple_of(PAGES);
            let Some(table) = self.tables.get(block) else { continue };
            if whole {
                let table = table.clone();
                for (folio, at) in table.folios() {
                    folios.moved(folio, part.start + at, target + at);
                }
                self.tables.remove(block);
                self.tables.put(target / PAGES, table);
                continue;
            }
            let mut moving = Vec::new();
            for page in part.start..part.end {
                let at = split(page).1;
                let touched = table.is_touched(at);
                let entry = std::mem::replace(&mut table.pages()[at], Entry::NONE);
                table.forget(at);
                if !entry.is_none() {
                    moving.push((target + (page - part.start), entry, touched));
                }
            }
            for (page, entry, touched) in moving {
                if let Some(folio) = entry.folio() {
                    folios.moved(folio, page - target + part.start, page);
                }
                let (block, at) = split(page);
                let table = self.tables.at(block);
                table.pages()[at] = entry;
                if touched {
                    table.touch(at);
                }
            }
        }
    }

    /// A copy for a child: each page of private memory is shared until one of both writes it.
    pub(super) fn fork(&mut self, number: u32, folios: &mut Folios) -> Space {
        let mut child = Space::new(number);
        let areas: Vec<Area> = self.areas.iter().filter(|area| !area.alone).copied().collect();
        for area in areas {
            child.areas.add(area);
            if area.shared || area.backing == Backing::Other {
                continue;
            }
            let blocks = area.span.start / PAGES..area.span.end.div_ceil(PAGES);
            for block in self.tables.between(blocks.start, blocks.end) {
                let part = Span::of(block * PAGES, PAGES).with(area.span);
                let Some(table) = self.tables.get(block) else { continue };
                let count = share(table, part, (block, number), folios, &mut child.tables);
                child.own += count;
            }
        }
        child.touched = child.own;
        child.note();
        child
    }

    /// Ends it.
    pub(super) fn exit(&mut self, folios: &mut Folios) {
        self.forget(Span { start: 0, end: u64::MAX }, folios, false);
        folios.tables = folios.tables.wrapping_sub(self.counted_tables);
        *self = Space { peak: self.peak, most_tables: self.most_tables, ..Space::new(self.number) };
    }
}

/// Clears the entries of `part`; how many pages went, and how many of them were touched.
fn forget_pages(table: &mut Table, part: Span, space: u32, folios: &mut Folios) -> (u64, u64) {
    let first = split(part.start).1;
    let range = first..first + part.count() as usize;
    let (mut gone, mut touched) = (0, 0);
    let mut run = (None, 0);
    for at in range {
        let entry = std::mem::replace(&mut table.pages()[at], Entry::NONE);
        if table.is_touched(at) {
            touched += 1;
            table.forget(at);
        }
        if let Some(slot) = entry.slot() {
            folios.device.release(slot);
        }
        let Some(folio) = entry.folio() else { continue };
        gone += 1;
        if run.0 == Some(folio) {
            run.1 += 1;
        } else {
            if let (Some(before), count) = run {
                folios.unmap(before, space, count);
            }
            run = (Some(folio), 1);
        }
    }
    if let (Some(before), count) = run {
        folios.unmap(before, space, count);
    }
    (gone, touched)
}

/// Shares the pages of `part` with the space of these tables; how many they are.
fn share(
    table: &mut Table,
    part: Span,
    (block, number): (u64, u32),
    folios: &mut Folios,
    tables: &mut Tables,
) -> u64 {
    if let Body::Block(entry) = table.body
        && part.count() == PAGES
    {
        let shared = entry.folio().map_or(entry, |folio| Entry::of(folio, false));
        table.body = Body::Block(shared);
        tables.put(block, table.clone());
        return entry.folio().map_or(0, |folio| {
            folios.map(folio, number, PAGES as u32);
            PAGES
        });
    }
    let first = split(part.start).1;
    let mut count = 0;
    let child = tables.at(block);
    for at in first..first + part.count() as usize {
        let entry = table.pages()[at];
        if entry.is_none() {
            continue;
        }
        let shared = match (entry.folio(), entry.slot()) {
            (Some(folio), _) => Entry::of(folio, false),
            (None, Some(slot)) => {
                folios.device.share(slot);
                Entry::swapped(slot, false)
            }
            (None, None) => entry,
        };
        table.pages()[at] = shared;
        child.pages()[at] = shared;
        if table.is_touched(at) {
            child.touch(at);
        }
        if let Some(folio) = entry.folio() {
            folios.map(folio, number, 1);
            count += 1;
        }
    }
    count
}
