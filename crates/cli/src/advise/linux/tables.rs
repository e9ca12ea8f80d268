//! Which page is mapped by what: tables of 512 entries, each for one block of 2 MiB.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::folios::FolioId;
use super::rules::BLOCK;
use super::slots::Slot;

/// Pages of a block.
pub(in crate::advise) const PAGES: u64 = 1 << BLOCK;

/// The bit of an entry whose page is on the swap device.
const SWAPPED: u32 = 1 << 31;

/// One entry: nothing, the zero page, a page of a folio, or one that is on the swap device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::advise) struct Entry(u32);

impl Entry {
    pub(in crate::advise) const NONE: Entry = Entry(0);
    /// The page of zeroes that all reads share.
    pub(in crate::advise) const ZERO: Entry = Entry(1);

    /// A page of a folio; `own` when it may be written.
    pub(in crate::advise) fn of(folio: FolioId, own: bool) -> Entry {
        Entry((folio + 1) << 1 | u32::from(own))
    }

    pub(in crate::advise) fn is_none(self) -> bool {
        self == Entry::NONE
    }

    /// A page in a slot; `own` when no other space had it.
    pub(super) fn swapped(slot: Slot, own: bool) -> Entry {
        Entry(SWAPPED | slot << 1 | u32::from(own))
    }

    /// The folio, if it is in memory and not the zero page.
    pub(in crate::advise) fn folio(self) -> Option<FolioId> {
        (self.0 >= 2 && self.0 & SWAPPED == 0).then(|| (self.0 >> 1) - 1)
    }

    /// The slot, if it is on the device.
    pub(super) fn slot(self) -> Option<Slot> {
        (self.0 & SWAPPED != 0).then_some((self.0 & !SWAPPED) >> 1)
    }

    /// Whether it is of this space alone: in memory, it may be written without a copy.
    pub(in crate::advise) fn is_own(self) -> bool {
        self.0 >= 2 && self.0 & 1 != 0
    }
}

/// The pages of a block.
#[derive(Clone)]
pub(in crate::advise) enum Body {
    /// One entry maps all of it.
    Block(Entry),
    /// A table: each page has an entry.
    Pages(Box<[Entry; PAGES as usize]>),
}

/// A block that is not empty.
#[derive(Clone)]
pub(in crate::advise) struct Table {
    pub(in crate::advise) body: Body,
    /// Which pages the program has touched, as bits.
    pub(in crate::advise) touched: [u64; PAGES as usize / 64],
}

impl Table {
    pub(in crate::advise) fn new(body: Body) -> Table {
        Table { body, touched: [0; PAGES as usize / 64] }
    }

    /// A table whose pages are all empty.
    pub(in crate::advise) fn empty() -> Table {
        Table::new(Body::Pages(Box::new([Entry::NONE; PAGES as usize])))
    }

    /// The entry of the page at this place.
    pub(in crate::advise) fn entry(&self, at: usize) -> Entry {
        match &self.body {
            Body::Block(entry) => *entry,
            Body::Pages(all) => all[at],
        }
    }

    /// Its entries, once each page has one: a block is split.
    pub(in crate::advise) fn pages(&mut self) -> &mut [Entry; PAGES as usize] {
        if let Body::Block(entry) = self.body {
            self.body = Body::Pages(Box::new([entry; PAGES as usize]));
        }
        let Body::Pages(all) = &mut self.body else { unreachable!("it was split") };
        all
    }

    /// Its folios, each with the place of its first page here.
    pub(super) fn folios(&self) -> Vec<(FolioId, u64)> {
        let all = match &self.body {
            Body::Block(entry) => std::slice::from_ref(entry),
            Body::Pages(all) => &all[..],
        };
        let mut found: Vec<(FolioId, u64)> = Vec::new();
        for (at, entry) in all.iter().enumerate() {
            if let Some(folio) = entry.folio()
                && found.last().is_none_or(|(last, _)| *last != folio)
            {
                found.push((folio, at as u64));
            }
        }
        found
    }

    pub(in crate::advise) fn touch(&mut self, at: usize) {
        self.touched[at / 64] |= 1 << (at % 64);
    }

    pub(in crate::advise) fn is_touched(&self, at: usize) -> bool {
        self.touched[at / 64] >> (at % 64) & 1 != 0
    }

    pub(in crate::advise) fn forget(&mut self, at: usize) {
        self.touched[at / 64] &= !(1 << (at % 64));
    }

    /// Whether no page of it is mapped.
    pub(in crate::advise) fn is_empty(&self) -> bool {
        match &self.body {
            Body::Block(_) => false,
            Body::Pages(all) => all.iter().all(|entry| entry.is_none()),
        }
    }
}

/// Tables by the numbers of their blocks.
#[derive(Clone, Default)]
pub(in crate::advise) struct Tables {
    places: HashMap<u64, u32, BuildHasherDefault<Mix>>,
    all: Vec<Table>,
    free: Vec<u32>,
    /// The block that was found last, with its place.
    last: Option<(u64, u32)>,
}

impl Tables {
    fn place(&mut self, block: u64) -> Option<usize> {
        if let Some((_, place)) = self.last.filter(|(last, _)| *last == block) {
            return Some(place as usize);
        }
        let place = *self.places.get(&block)?;
        self.last = Some((block, place));
        Some(place as usize)
    }

    pub(in crate::advise) fn get(&mut self, block: u64) -> Option<&mut Table> {
        let place = self.place(block)?;
        self.all.get_mut(place)
    }

    /// Puts a table where none is.
    pub(in crate::advise) fn put(&mut self, block: u64, table: Table) {
        let place = match self.free.pop() {
            Some(place) => {
                self.all[place as usize] = table;
                place
            }
            None => {
                self.all.push(table);
                self.all.len() as u32 - 1
            }
        };
        self.places.insert(block, place);
        self.last = Some((block, place));
    }

    /// The table of a block, made if there is none.
    pub(in crate::advise) fn at(&mut self, block: u64) -> &mut Table {
        if self.place(block).is_none() {
            self.put(block, Table::empty());
        }
        let place = self.place(block).unwrap_or_default();
        &mut self.all[place]
    }

    /// Removes a table, whose pages are not mapped.
    pub(in crate::advise) fn remove(&mut self, block: u64) {
        self.last = None;
        if let Some(place) = self.places.remove(&block) {
            self.all[place as usize] = Table::new(Body::Block(Entry::NONE));
            self.free.push(place);
        }
    }

    /// How many tables there are.
    pub(in crate::advise) fn count(&self) -> u64 {
        self.places.len() as u64
    }

    /// The numbers of all blocks with tables, ascending.
    pub(in crate::advise) fn blocks(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.places.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// The numbers of the blocks from `first` on, before `end`, that have tables.
    pub(in crate::advise) fn between(&self, first: u64, end: u64) -> Vec<u64> {
        if end.saturating_sub(first) < self.count() {
            return (first..end).filter(|block| self.places.contains_key(block)).collect();
        }
        let mut all = self.blocks();
        all.retain(|block| (first..end).contains(block));
        all
    }
}

/// A hash of one number: blocks are near each other, so a multiplication mixes them well enough.
#[derive(Default)]
pub(in crate::advise) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}
