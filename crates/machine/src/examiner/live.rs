//! The live tables: those reachable from a root that some CPU has installed.
//!
//! They are kept up to date entry by entry, so that every store into a table is judged at once,
//! also one that no walk has met yet: real walkers read tables ahead of the program and may cache
//! any entry, so an entry that *can* be walked counts as walked.

use std::iter;

use quire_hw::DirectMap;
use quire_units::{Pfn, Vpn};

use super::Place;
use super::frames::Frames;
use crate::config::Config;
use crate::mmu::{Geometry, Meaning};

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
    config: Config,
    geometry: Geometry,
    tables: Frames<Live>,
    /// How many entries of each table claim to be part of a contiguous block, where any do.
    joined: Frames<usize>,
}

impl LiveTables {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            config: *config,
            geometry: config.isa.geometry(),
            tables: Frames::default(),
            joined: Frames::default(),
        }
    }

    /// The place of entry `index` of `table`, if that is live.
    pub(super) fn place(&self, table: Pfn, index: usize) -> Option<Place> {
        let live = *self.tables.get(&table)?;
        (index < self.geometry.entries(live.level)).then(|| self.place_in(live, table, index))
    }

    fn place_in(&self, live: Live, table: Pfn, index: usize) -> Place {
        let page = live.page.add((index as u64) << self.geometry.order(live.level).get());
        Place { table, index, level: live.level, page }
    }

    pub(super) fn contains(&self, table: Pfn) -> bool {
        self.tables.contains_key(&table)
    }

    /// All live tables.
    pub(super) fn iter(&self) -> impl Iterator<Item = Pfn> + '_ {
        self.tables.keys().copied()
    }

    /// Makes `root` live with all below it; appends the tables that were not live before to
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

    /// One entry less leads to `table`; appends the tables that no entry leads to any more to
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

    /// Every entry of a live table that is not zero, with its word and meaning.
    pub(super) fn entries<'a>(
        &'a self,
        ram: &'a DirectMap<'_>,
        table: Pfn,
    ) -> impl Iterator<Item = (Place, u64, Meaning)> + 'a {
        let live = self.tables.get(&table).copied();
        let count = live.map_or(0, |live| self.geometry.entries(live.level));
        let live = live.unwrap_or(Live { level: 0, page: Vpn::new(0), links: 0 });
        let mut next = 0;
        iter::from_fn(move || {
            // Most of a table is empty.
            next += ram.count_run(table, next, count - next, 0, 0);
            let index = next;
            next += 1;
            (index < count).then(|| {
                let place = self.place_in(live, table, index);
                let word = ram.load(table, index);
                (place, word, self.config.decode(word, place.level, index))
            })
        })
        .fuse()
    }
}
