//! Judging stores into tables: rules 1 to 3, and the calls of the other rules.

use quire_hw::DirectMap;
use quire_units::{CpuId, Pfn};

use super::ledger::{Key, Ledger, Stale};
use super::rules::{excess, must_break};
use super::{Place, Rule, Why};
use crate::mmu::{Flaw, Meaning};

impl Ledger {
    /// A store changed word `index` of `table` from `old` to `new`.
    pub(crate) fn stored(
        &mut self,
        ram: &DirectMap<'_>,
        cpu: CpuId,
        (table, index): (Pfn, usize),
        (old, new): (u64, u64),
    ) {
        if old == new {
            return;
        }
        if let Some(place) = self.live.place(table, index) {
            self.stored_live(ram, cpu, place, old, new);
        }
        let index = index as u16;
        let keys = self.words.get(&table).and_then(|entries| entries.get(&index));
        for key in keys.cloned().unwrap_or_default() {
            self.judge(ram, cpu, key, old, new);
        }
    }

    /// Rules 2, 3, 6 and 7 for a store into a live table, and the tables that it links and unlinks.
    fn stored_live(&mut self, ram: &DirectMap<'_>, cpu: CpuId, at: Place, old: u64, new: u64) {
        let (was, now) = (
            self.config.decode(old, at.level, at.index),
            self.config.decode(new, at.level, at.index),
        );
        if let Meaning::Malformed(flaw) = now {
            self.report(Rule::Malformed, Why::Flaw(flaw), cpu, None, Some(at), (old, new));
        }
        if let Some(why) = self.must_break(ram, at, was, now) {
            self.report(Rule::BreakBeforeMake, why, cpu, None, Some(at), (old, new));
        }
        let first = self.stored_in_block(ram, cpu, at, (was, now), (old, new));
        self.stored_over_dirty(ram, cpu, at, (was, now), first);
        self.stored_code(ram, cpu, at, (was, now), (old, new));
        let mut below = Vec::new();
        match (was, now) {
            (Meaning::Table(was), Meaning::Table(now)) if was.frame == now.frame => {
                if !now.limits.contains(was.limits) {
                    self.live.subtree(ram, was.frame, &mut below);
                }
            }
            _ => {
                if let Meaning::Table(now) = now {
                    self.link(ram, cpu, at, now.frame, new);
                }
                if let Meaning::Table(was) = was {
                    self.live.unlink(ram, was.frame, &mut below);
                    self.forget_saved(&below);
                }
            }
        }
        self.mark_below(cpu, &below, new);
    }

    /// Makes the table that entry `at` now leads to live, and inspects its contents.
    fn link(&mut self, ram: &DirectMap<'_>, cpu: CpuId, at: Place, lower: Pfn, word: u64) {
        if !ram.span().contains(lower) {
            let why = Why::Flaw(Flaw::OutsideRam);
            self.report(Rule::Malformed, why, cpu, None, Some(at), (word, word));
            return;
        }
        let mut fresh = Vec::new();
        self.live.link(ram, lower, at.level - 1, at.page, &mut fresh);
        self.inspect(ram, cpu, &fresh);
    }

    /// Rules 3, 6 and 8 for tables that just became live.
    pub(super) fn inspect(&mut self, ram: &DirectMap<'_>, cpu: CpuId, fresh: &[Pfn]) {
        for &table in fresh {
            let bad = self.live.entries(ram, table).find_map(|(place, word, meaning)| {
                if let Meaning::Malformed(flaw) = meaning {
                    Some((place, word, flaw))
                } else {
                    None
                }
            });
            if let Some((place, word, flaw)) = bad {
                self.met_malformed(cpu, place, word, flaw);
            }
            let stale = self.live.entries(ram, table).find_map(|(place, word, meaning)| {
                Some((place, word, self.unpublished(ram, meaning)?))
            });
            if let Some((place, word, frame)) = stale {
                let why = Why::Unpublished(frame);
                self.report(Rule::StaleCode, why, cpu, None, Some(place), (word, word));
            }
            self.inspect_blocks(ram, cpu, table);
        }
    }

    fn must_break(
        &self,
        ram: &DirectMap<'_>,
        at: Place,
        was: Meaning,
        now: Meaning,
    ) -> Option<Why> {
        if !self.isa.breaks_before_make() {
            return None;
        }
        let relaxed = self.config.relaxed();
        must_break(was, now, relaxed, || self.same_memory(ram, at.level, was, now))
    }

    /// Whether a leaf of `level` and the table in whose place it is, or was, map the same frames.
    fn same_memory(&self, ram: &DirectMap<'_>, level: u8, one: Meaning, other: Meaning) -> bool {
        let (leaf, table) = match (one, other) {
            (Meaning::Leaf(leaf), Meaning::Table(table))
            | (Meaning::Table(table), Meaning::Leaf(leaf)) => (leaf, table),
            _ => return false,
        };
        let step = self.geometry.order(level - 1).pages();
        (0..self.geometry.entries(level - 1)).all(|index| {
            let frame = leaf.frame.add(index as u64 * step);
            let word = ram.load(table.frame, index);
            matches!(self.config.decode(word, level - 1, index),
                Meaning::Leaf(lower) if lower.frame == frame && lower.memory == leaf.memory)
        })
    }

    /// Marks all that was cached of tables that are no longer reachable as they were.
    fn mark_below(&mut self, cpu: CpuId, tables: &[Pfn], new: u64) {
        for table in tables {
            let Some(entries) = self.words.get(table) else { continue };
            for key in entries.values().flatten().copied().collect::<Vec<_>>() {
                self.mark(cpu, key, Why::Above, new);
            }
        }
    }

    /// Rules 1 and 2 for one shadow of a word that was stored to.
    fn judge(&mut self, ram: &DirectMap<'_>, cpu: CpuId, key: Key, old: u64, new: u64) {
        let Some(holding) = self.held.get(&key).copied() else { return };
        let decode = |word| self.config.decode(word, key.level, key.index as usize);
        let (cached, was, now) = (decode(holding.word), decode(old), decode(new));
        if !was.is_valid()
            && self.is_in_use(&key)
            && let Some(why) = self.must_break(ram, key.place(), cached, now)
        {
            let words = (holding.word, new);
            let place = Some(key.place());
            self.report(Rule::FlushBeforeMake, why, cpu, Some(key.holder()), place, words);
        }
        match excess(cached, holding.dirty, now, !self.isa.breaks_before_make()) {
            Some(why) => self.mark(cpu, key, why, new),
            None => {
                // The word again grants what is cached; a change above it still counts.
                if let Some(holding) = self.held.get_mut(&key) {
                    holding.stale = holding.stale.filter(|stale| stale.why == Why::Above);
                }
            }
        }
    }

    /// Marks a translation as stale. The operation that made it stale first has to flush it.
    fn mark(&mut self, cpu: CpuId, key: Key, why: Why, new: u64) {
        let operation = &mut self.operations[cpu.index()];
        let Some(holding) = self.held.get_mut(&key) else { return };
        if holding.stale.is_none() {
            let (name, number) = (operation.name, operation.number);
            holding.stale = Some(Stale { why, operation: name, number, cpu, new });
            if number != 0 {
                operation.marked.push(key);
            }
        }
    }
}
