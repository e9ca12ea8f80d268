//! The examiner's records: shadows, live tables, operations, violations.

use std::collections::{BTreeMap, BTreeSet};

use quire_hw::{DirectMap, Flush, Pieces};
use quire_units::{Asid, CpuId, PageSpan, Pfn, Prot, Vpn};

use super::blocks::BlockId;
use super::dirty::Debts;
use super::frames::Frames;
use super::live::LiveTables;
use super::{Place, Rule, Violation, Why};
use crate::config::Config;
use crate::mmu::{Flaw, Geometry, Isa, Meaning};
use crate::tlb::{reaches, reaches_tables};

/// How many violations are kept; the first one matters most.
const KEPT: usize = 64;

/// Names one entry in one CPU's shadow. The order makes the pages of one space at one level a
/// range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(crate) cpu: u16,
    pub(crate) asid: u16,
    pub(crate) level: u8,
    /// First page of the entry itself, not of its contiguous block.
    pub(crate) page: Vpn,
    pub(crate) table: Pfn,
    pub(crate) index: u16,
}

impl Key {
    pub(super) fn place(&self) -> Place {
        Place { table: self.table, index: self.index as usize, level: self.level, page: self.page }
    }

    pub(super) fn holder(&self) -> CpuId {
        CpuId::new(self.cpu as usize)
    }
}

/// A translation or pointer that a CPU may have cached, made from one entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    /// The entry's word as the walk left it.
    pub(crate) word: u64,
    /// The pages of the translation: of the entry, or of the contiguous block around it.
    pub(crate) pages: PageSpan,
    /// The rights that all levels together granted.
    pub(crate) prot: Prot,
    /// Stores need no walk.
    pub(crate) dirty: bool,
    /// It belongs to all address spaces, and a flush of one does not drop it.
    pub(crate) global: bool,
    pub(crate) stale: Option<Stale>,
}

/// The mark of a translation that must be flushed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stale {
    pub(super) why: Why,
    pub(super) operation: Option<&'static str>,
    pub(super) number: u64,
    pub(super) cpu: CpuId,
    pub(super) new: u64,
}

/// The operation that a CPU has announced.
#[derive(Default)]
pub(super) struct Operation {
    pub(super) name: Option<&'static str>,
    depth: u32,
    /// The number of the operation among all, counted from 1; 0 outside of any.
    pub(super) number: u64,
    /// Translations that its stores made stale.
    pub(super) marked: Vec<Key>,
    /// The contiguous blocks it has changed.
    pub(super) blocks: BTreeSet<BlockId>,
    /// Those that it has changed since its last flush of them.
    pub(super) unflushed: BTreeSet<BlockId>,
    /// The dirty flags it has to account for.
    pub(super) debts: Debts,
}

/// The examiner's book.
pub(crate) struct Ledger {
    pub(super) isa: Isa,
    pub(super) geometry: Geometry,
    pub(super) config: Config,
    pub(super) held: BTreeMap<Key, Holding>,
    /// The keys of `held` by the entry they were made from.
    pub(super) words: Frames<BTreeMap<u16, Vec<Key>>>,
    /// How many of `held` lead to a block of frames: (order, first frame).
    pub(super) targets: BTreeMap<(u8, Pfn), u32>,
    pub(super) live: LiveTables,
    /// The root of each CPU, with its tag.
    pub(super) installed: Vec<Option<(Pfn, Asid)>>,
    pub(super) operations: Vec<Operation>,
    /// Entries that were dirty and are read-only now, with their frames. Where the library keeps
    /// the flag meanwhile is its own affair.
    pub(super) saved_dirty: BTreeMap<(Pfn, u16), Pfn>,
    /// The frames that were published and not written since, but by programs.
    pub(super) code: Frames<()>,
    number: u64,
    violations: Vec<Violation>,
}

impl Ledger {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            isa: config.isa,
            geometry: config.isa.geometry(),
            config: *config,
            held: BTreeMap::new(),
            words: Frames::default(),
            targets: BTreeMap::new(),
            live: LiveTables::new(config),
            installed: vec![None; config.cpus],
            operations: (0..config.cpus).map(|_| Operation::default()).collect(),
            saved_dirty: BTreeMap::new(),
            code: Frames::default(),
            number: 0,
            violations: Vec::new(),
        }
    }

    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub(crate) fn begin(&mut self, cpu: CpuId, name: &'static str) {
        self.number += 1;
        let number = self.number;
        let operation = &mut self.operations[cpu.index()];
        if operation.depth == 0 {
            operation.name = Some(name);
            operation.number = number;
            // Changes before the announcement do not count as part of this operation.
            operation.blocks.clear();
            operation.unflushed.clear();
        }
        operation.depth += 1;
    }

    /// Rule 1: the translations that the operation marked must have been flushed. Rules 6 and 7:
    /// the entries that it left must be in order.
    pub(crate) fn end(&mut self, ram: &DirectMap<'_>, cpu: CpuId) {
        let operation = &mut self.operations[cpu.index()];
        operation.depth -= 1;
        if operation.depth > 0 {
            return;
        }
        let marked = std::mem::take(&mut operation.marked);
        let number = operation.number;
        for key in marked {
            let Some(holding) = self.held.get(&key).filter(|_| self.is_in_use(&key)) else {
                continue;
            };
            if let Some(stale) = holding.stale.filter(|stale| stale.number == number) {
                self.report_stale(key, holding.word, stale);
            }
        }
        self.end_blocks(ram, cpu);
        self.end_debts(ram, cpu);
        let operation = &mut self.operations[cpu.index()];
        operation.number = 0;
        operation.name = None;
    }

    pub(super) fn report_stale(&mut self, key: Key, word: u64, stale: Stale) {
        self.keep(Violation {
            rule: Rule::StaleTranslation,
            why: stale.why,
            operation: stale.operation,
            cpu: stale.cpu,
            holder: Some(key.holder()),
            place: Some(key.place()),
            old: word,
            new: stale.new,
        });
    }

    /// Records a violation by the operation that `cpu` is in.
    pub(super) fn report(
        &mut self,
        rule: Rule,
        why: Why,
        cpu: CpuId,
        holder: Option<CpuId>,
        place: Option<Place>,
        words: (u64, u64),
    ) {
        let operation = self.operations[cpu.index()].name;
        let (old, new) = words;
        self.keep(Violation { rule, why, operation, cpu, holder, place, old, new });
    }

    fn keep(&mut self, violation: Violation) {
        assert!(!self.config.panics, "{violation}");
        if self.violations.len() < KEPT {
            self.violations.push(violation);
        }
    }

    /// A walk met a malformed word.
    pub(crate) fn met_malformed(&mut self, cpu: CpuId, place: Place, word: u64, flaw: Flaw) {
        self.report(Rule::Malformed, Why::Flaw(flaw), cpu, None, Some(place), (word, word));
    }

    /// A walk met a contiguous block that is forbidden even on the way.
    pub(crate) fn met_torn_block(&mut self, cpu: CpuId, place: Place, word: u64, flaw: Flaw) {
        self.report(Rule::TornBlock, Why::Flaw(flaw), cpu, None, Some(place), (word, word));
    }

    /// A walk read an entry and may have cached it.
    pub(crate) fn hold(&mut self, key: Key, holding: Holding) {
        // A stale copy may survive beside the new one until it is flushed.
        let old = self.held.get(&key);
        if old.is_some_and(|old| old.stale.is_some()) {
            return;
        }
        let dirty = holding.dirty || old.is_some_and(|old| old.dirty);
        self.drop_key(&key);
        if let Some(target) = self.target(&key, holding.word) {
            *self.targets.entry(target).or_default() += 1;
        }
        self.held.insert(key, Holding { dirty, ..holding });
        self.words.entry(key.table).or_default().entry(key.index).or_default().push(key);
    }

    pub(super) fn drop_key(&mut self, key: &Key) {
        let Some(holding) = self.held.remove(key) else { return };
        if let Some(target) = self.target(key, holding.word)
            && let Some(count) = self.targets.get_mut(&target)
        {
            *count -= 1;
            if *count == 0 {
                self.targets.remove(&target);
            }
        }
        let Some(entries) = self.words.get_mut(&key.table) else { return };
        if let Some(keys) = entries.get_mut(&key.index) {
            keys.retain(|other| other != key);
            if keys.is_empty() {
                entries.remove(&key.index);
            }
        }
        if entries.is_empty() {
            self.words.remove(&key.table);
        }
    }

    /// The block of frames that the holding leads to.
    pub(super) fn target(&self, key: &Key, word: u64) -> Option<(u8, Pfn)> {
        match self.config.decode(word, key.level, key.index as usize) {
            Meaning::Table(table) => Some((0, table.frame)),
            Meaning::Leaf(leaf) => Some((leaf.order.get(), leaf.frame)),
            _ => None,
        }
    }

    /// A flush reached `cpu`.
    pub(crate) fn flushed(&mut self, cpu: CpuId, flush: &Flush<'_>) {
        for level in 0..self.geometry.levels {
            for key in self.in_reach(cpu, flush, level) {
                self.drop_key(&key);
            }
        }
    }

    fn in_reach(&self, cpu: CpuId, flush: &Flush<'_>, level: u8) -> Vec<Key> {
        let (mut from, mut to) = (Vpn::new(0), Vpn::new(u64::MAX));
        if let Some(span) = flush.pages.map(Pieces::span) {
            // Entries that begin before the span may still cover its first page.
            from = span.start.align_down(self.geometry.order(level).pages() << 8);
            to = span.end.align_up(self.geometry.order(level).pages() << 8).unwrap_or(to);
        }
        let (cpu, asid) = (cpu.index() as u16, flush.asid.0);
        let first = Key { cpu, asid, level, page: from, table: Pfn::new(0), index: 0 };
        let table = Pfn::new(u64::MAX);
        let last = Key { cpu, asid, level, page: to, table, index: u16::MAX };
        let reached = |(key, holding): (&Key, &Holding)| {
            let table = matches!(
                self.config.decode(holding.word, level, key.index as usize),
                Meaning::Table(_)
            );
            let gone = if table {
                reaches_tables(flush, holding.pages)
            } else {
                !holding.global && reaches(flush, holding.pages)
            };
            gone.then_some(*key)
        };
        self.held.range(first..=last).filter_map(reached).collect()
    }

    /// `cpu` installed a root with a tag, or no root.
    pub(crate) fn install(&mut self, ram: &DirectMap<'_>, cpu: CpuId, root: Option<(Pfn, Asid)>) {
        self.installed[cpu.index()] = root;
        let mut fresh = Vec::new();
        if let Some((root, _)) = root {
            self.live.install(ram, root, &mut fresh);
        }
        self.inspect(ram, cpu, &fresh);
    }
}
