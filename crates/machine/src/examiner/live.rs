//! Which frames are live tables: reachable from a root that some CPU has installed.
//!
//! Kept up to date entry by entry, so that every store into a table is judged at once, also one
//! that no walk has met yet: real walkers read tables ahead of the program and cache what they
//! like, so an entry that *can* be walked counts as walked.

use std::collections::HashMap;

use quire_hw::DirectMap;
use quire_units::{Pfn, Vpn};

use super::Place;
use crate::mmu::{Geometry, Isa, Meaning};

/// A live table.
#[derive(Clone, Copy, Debug)]
struct Live {
    level: u8,
    /// First page that the table translates; counted from 0 also in the upper half.
    page: Vpn,
    /// How many entries and installed roots lead here; tables of the kernel have several.
    links: u32,
}

/// All live tables.
pub(super) struct LiveTables {
    isa: Isa,
    geometry: Geometry,
    tables: HashMap<Pfn, Live>,
    /// How many entries of each table claim to be part of a contiguous block, where any do.
    joined: HashMap<Pfn, usize>,
}

impl LiveTables {
    pub(super) fn new(isa: Isa) -> Self {
        Self { isa, geometry: isa.geometry(), tables: HashMap::new(), joined: HashMap::new() }
    }

    /// Where entry `index` of `table` stands, if that is live.
    pub(super) fn place(&self, table: Pfn, index: usize) -> Option<Place> {
        let live = self.tables.get(&table)?;
        if index >= self.geometry.entries(live.level) {
            return None;
        }
        let page = live.page.add((index as u64) << self.geometry.order(live.level).get());
        Some(Place { table, index, level: live.level, page })
    }

    pub(super) fn contains(&self, table: Pfn) -> bool {
        self.tables.contains_key(&table)
    }

    /// All live tables.
    pub(super) fn iter(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.tables.keys().copied()
    }

    /// Makes `root` live with all below it; the tables that were not live before are appended to
    /// `fresh`.
    pub(super) fn install(&mut self, ram: &DirectMap<'_>, root: Pfn, fresh: &mut Vec<Pfn>) {
        if !self.contains(root) {
            self.link(ram, root, self.geometry.root_level(), Vpn::new(0), fresh);
        }
    }

    /// One more entry leads to `table`.
    pub(super) fn link(
        &mut self,
        ram: &DirectMap<'_>,
        table: Pfn,
        level: u8,
        page: Vpn,
        fresh: &mut Vec<Pfn>,
    ) {
        if let Some(live) = self.tables.get_mut(&table) {
            live.links += 1;
            return;
        }
        self.tables.insert(table, Live { level, page, links: 1 });
        fresh.push(table);
        for (place, child) in self.children(ram, table) {
            self.link(ram, child, level - 1, place.page, fresh);
        }
    }

    /// One entry less leads to `table`; those that nothing leads to any more are appended to
    /// `gone`.
    pub(super) fn unlink(&mut self, ram: &DirectMap<'_>, table: Pfn, gone: &mut Vec<Pfn>) {
        let Some(live) = self.tables.get_mut(&table) else { return };
        live.links -= 1;
        if live.links > 0 {
            return;
        }
        for (_, child) in self.children(ram, table) {
            self.unlink(ram, child, gone);
        }
        self.tables.remove(&table);
        self.joined.remove(&table);
        gone.push(table);
    }

    /// `more` and `fewer` entries of `table` claim to be part of a contiguous block.
    pub(super) fn count_joined(&mut self, table: Pfn, more: usize, fewer: usize) {
        if more == fewer {
            return;
        }
        let joined = self.joined.entry(table).or_default();
        *joined = (*joined + more).saturating_sub(fewer);
        if *joined == 0 {
            self.joined.remove(&table);
        }
    }

    /// Whether an entry of `table` claims to be part of a contiguous block.
    pub(super) fn has_joined(&self, table: Pfn) -> bool {
        !self.joined.is_empty() && self.joined.contains_key(&table)
    }

    /// Appends `table` and all live ones below it to `found`.
    pub(super) fn subtree(&self, ram: &DirectMap<'_>, table: Pfn, found: &mut Vec<Pfn>) {
        found.push(table);
        for (_, child) in self.children(ram, table) {
            self.subtree(ram, child, found);
        }
    }

    /// The entries of `table` that lead to lower tables.
    fn children(&self, ram: &DirectMap<'_>, table: Pfn) -> Vec<(Place, Pfn)> {
        match self.tables.get(&table) {
            Some(live) if live.level > 0 => {}
            _ => return Vec::new(),
        }
        let down = |(place, _, meaning)| match meaning {
            Meaning::Table(lower) if ram.span().contains(lower.frame) => Some((place, lower.frame)),
            _ => None,
        };
        self.entries(ram, table).filter_map(down).collect()
    }

    /// Every entry of a live table with its word and meaning.
    pub(super) fn entries<'a>(
        &'a self,
        ram: &'a DirectMap<'_>,
        table: Pfn,
    ) -> impl Iterator<Item = (Place, u64, Meaning)> + 'a {
        (0..).map_while(move |index| {
            let place = self.place(table, index)?;
            let word = ram.load(table, index);
            Some((place, word, self.isa.decode(word, place.level, index)))
        })
    }
}
