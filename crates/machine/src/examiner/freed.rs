//! Judging frames that leave use: rule 4.

use quire_hw::DirectMap;
use quire_units::{CpuId, FrameSpan, Pfn};

use super::ledger::{Holding, Key, Ledger};
use super::{Rule, Why};
use crate::config::Examine;
use crate::mmu::Meaning;

impl Ledger {
    /// Rule 4.
    pub(crate) fn freed(&mut self, ram: &DirectMap<'_>, cpu: CpuId, frames: FrameSpan) {
        self.forgive(frames);
        self.rewritten(frames);
        self.freed_tables(ram, cpu, frames);
        if self.is_target(frames) {
            let overlaps = |(key, holding): (&Key, &Holding)| {
                let (order, start) = self.target(key, holding.word)?;
                let end = start.get() + (1 << order);
                let hit = start < frames.end() && frames.start.get() < end;
                (hit && self.is_in_use(key)).then_some((*key, holding.word))
            };
            if let Some((key, word)) = self.held.iter().find_map(overlaps) {
                let (holder, place) = (Some(key.holder()), Some(key.place()));
                let rule = Rule::FreedWhileCached;
                self.report(rule, Why::Freed, cpu, holder, place, (word, word));
            }
        }
        if self.config.examine == Examine::Thorough {
            self.freed_mapped(ram, cpu, frames);
        }
    }

    /// Whether anything cached leads to a frame of `frames`.
    fn is_target(&self, frames: FrameSpan) -> bool {
        (0..self.geometry.levels).any(|level| {
            let order = self.geometry.order(level);
            let first = (order.get(), frames.start.align_down(order.pages()));
            self.targets.range(first..(order.get(), frames.end())).next().is_some()
        })
    }

    /// Tables among the freed frames: no CPU may be able to walk them. The tables of a space that
    /// no CPU runs any more may be freed while still linked.
    fn freed_tables(&mut self, ram: &DirectMap<'_>, cpu: CpuId, frames: FrameSpan) {
        let freed: Vec<_> = self.live.iter().filter(|table| frames.contains(*table)).collect();
        for table in freed {
            let Some(place) = self.live.place(table, 0) else { continue };
            if self.is_walkable(ram, table) {
                let rule = Rule::FreedWhileMapped;
                self.report(rule, Why::Freed, cpu, None, Some(place), (0, 0));
            }
            let mut gone = Vec::new();
            self.live.unlink(ram, table, &mut gone);
            self.forget_saved(&gone);
        }
    }

    /// Whether the walker of some CPU can get to `table` now.
    fn is_walkable(&self, ram: &DirectMap<'_>, table: Pfn) -> bool {
        let mut found = Vec::new();
        for (root, _) in self.installed.iter().flatten() {
            self.live.subtree(ram, *root, &mut found);
        }
        found.contains(&table)
    }

    /// Leaves of live tables that lead to the freed frames.
    fn freed_mapped(&mut self, ram: &DirectMap<'_>, cpu: CpuId, frames: FrameSpan) {
        let maps = |(place, word, meaning)| match meaning {
            Meaning::Leaf(leaf) => {
                let end = leaf.frame.get() + leaf.order.pages();
                let hit = leaf.frame < frames.end() && frames.start.get() < end;
                hit.then_some((place, word))
            }
            _ => None,
        };
        let mut tables = self.live.iter();
        let found = tables.find_map(|table| self.live.entries(ram, table).find_map(maps));
        drop(tables);
        if let Some((place, word)) = found {
            let rule = Rule::FreedWhileMapped;
            self.report(rule, Why::Freed, cpu, None, Some(place), (word, word));
        }
    }
}
