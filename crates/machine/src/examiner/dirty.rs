//! Tracking the fate of dirty flags: rule 7.
//!
//! An entry that was dirty leaves a debt: its frame. The debt is paid when the frame has left the
//! entry at the end of the operation, or the entry is dirty again, or another entry of its
//! contiguous block is. A read-only entry keeps the debt for later. An entry that is writable and
//! clean does not pay it: no record of the program's earlier stores would be left.

use std::collections::BTreeSet;

use quire_hw::DirectMap;
use quire_units::{CpuId, FrameSpan, Pfn, Prot};

use super::blocks::BlockId;
use super::ledger::Ledger;
use super::{Place, Rule, Why};
use crate::mmu::{Leaf, Meaning};

/// An entry: its table and index.
type EntryId = (Pfn, u16);

/// The debts of one operation.
#[derive(Default)]
pub(super) struct Debts {
    /// The frames of entries that were dirty.
    entries: Vec<(EntryId, Pfn)>,
    /// Blocks all of whose entries stand in `entries`, with the frame of the first.
    blocks: BTreeSet<(BlockId, Pfn)>,
    /// Frames that left use meanwhile. Their contents no longer matter.
    freed: Vec<FrameSpan>,
    /// The operation has announced that it cleans pages.
    cleans: bool,
}

impl Debts {
    /// The freed frames as disjoint half-open spans, in order.
    fn forgiven(&self) -> Vec<(Pfn, Pfn)> {
        let mut spans: Vec<_> = self.freed.iter().map(|span| (span.start, span.end())).collect();
        spans.sort_unstable();
        spans.dedup_by(|next, last| {
            let touches = next.0 <= last.1;
            if touches {
                last.1 = last.1.max(next.1);
            }
            touches
        });
        spans
    }
}

fn id(at: Place) -> EntryId {
    (at.table, at.index as u16)
}

impl Ledger {
    /// A store changed a live entry from `was` to `now`, the operation's first into its block if
    /// `first`.
    pub(super) fn stored_over_dirty(
        &mut self,
        ram: &DirectMap<'_>,
        cpu: CpuId,
        at: Place,
        (was, now): (Meaning, Meaning),
        first: bool,
    ) {
        let saved =
            if self.saved_dirty.is_empty() { None } else { self.saved_dirty.remove(&id(at)) };
        // Operations that were not announced are not judged.
        if self.operations[cpu.index()].number == 0 {
            return;
        }
        if let Some(frame) = saved {
            self.owe(cpu, at, frame);
        }
        let Meaning::Leaf(leaf) = was else { return };
        if leaf.is_contiguous() {
            if leaf.dirty || (first && self.has_dirty_neighbour(ram, at)) {
                self.owe_block(ram, cpu, at, &leaf);
            }
        } else if leaf.dirty {
            let kept = matches!(now, Meaning::Leaf(now) if now.dirty && now.frame == leaf.frame);
            if !kept {
                self.owe(cpu, at, leaf.frame);
            }
        }
    }

    fn owe(&mut self, cpu: CpuId, at: Place, frame: Pfn) {
        self.operations[cpu.index()].debts.entries.push((id(at), frame));
    }

    /// If any entry of a block is dirty, all of its pages count as written. Entries that were split
    /// off already have a flag of their own.
    fn owe_block(&mut self, ram: &DirectMap<'_>, cpu: CpuId, at: Place, leaf: &Leaf) {
        let block = self.block_of(at);
        let first = usize::from(block.1);
        let before = (at.index - first) as u64 * leaf.order.pages();
        let Some(base) = leaf.frame.get().checked_sub(before) else { return };
        if !self.operations[cpu.index()].debts.blocks.insert((block, Pfn::new(base))) {
            return;
        }
        for index in first..first + self.isa.contiguous_entries(at.level) {
            let meaning = self.config.decode(ram.load(at.table, index), at.level, index);
            let parted = matches!(meaning, Meaning::Leaf(leaf) if !leaf.is_contiguous());
            if !parted || index == at.index {
                let frame = Pfn::new(base + (index - first) as u64 * leaf.order.pages());
                self.owe(cpu, Place { index, ..at }, frame);
            }
        }
    }

    /// Whether an entry of the contiguous block around `at` is dirty now.
    fn has_dirty_neighbour(&self, ram: &DirectMap<'_>, at: Place) -> bool {
        let (table, first) = self.block_of(at);
        let first = usize::from(first);
        (first..first + self.isa.contiguous_entries(at.level)).any(|index| {
            matches!(self.config.decode(ram.load(table, index), at.level, index),
                Meaning::Leaf(leaf) if leaf.is_contiguous() && leaf.dirty)
        })
    }

    /// The operation of `cpu` cleans pages on purpose.
    pub(crate) fn cleans(&mut self, cpu: CpuId) {
        self.operations[cpu.index()].debts.cleans = true;
    }

    /// Frames left use: all debts of current operations for them are forgiven.
    pub(super) fn forgive(&mut self, frames: FrameSpan) {
        for operation in &mut self.operations {
            if !operation.debts.entries.is_empty() {
                operation.debts.freed.push(frames);
            }
        }
    }

    /// These tables are no longer reachable, so nothing is saved in them.
    pub(super) fn forget_saved(&mut self, tables: &[Pfn]) {
        for &table in tables {
            let range = (table, 0)..=(table, u16::MAX);
            let saved: Vec<_> = self.saved_dirty.range(range).map(|(entry, _)| *entry).collect();
            for entry in saved {
                self.saved_dirty.remove(&entry);
            }
        }
    }

    /// The operation of `cpu` ends: its debts are due.
    pub(super) fn end_debts(&mut self, ram: &DirectMap<'_>, cpu: CpuId) {
        let mut debts = std::mem::take(&mut self.operations[cpu.index()].debts);
        if debts.cleans {
            return;
        }
        debts.entries.sort_unstable();
        debts.entries.dedup();
        let forgiven = debts.forgiven();
        for ((table, index), frame) in debts.entries {
            // The span that begins last at or before the frame.
            let near = forgiven.partition_point(|(start, _)| *start <= frame);
            let is_forgiven = near > 0 && frame < forgiven[near - 1].1;
            if let Some(place) = self.live.place(table, index.into())
                && !is_forgiven
            {
                self.settle(ram, cpu, place, frame);
            }
        }
    }

    /// Judges the current state of entry `at`, which was dirty with `frame`.
    fn settle(&mut self, ram: &DirectMap<'_>, cpu: CpuId, at: Place, frame: Pfn) {
        let word = ram.load(at.table, at.index);
        match self.config.decode(word, at.level, at.index) {
            Meaning::Leaf(leaf) if leaf.frame == frame => {
                if !leaf.prot.contains(Prot::WRITE) {
                    self.saved_dirty.insert(id(at), frame);
                } else if !(leaf.dirty || leaf.is_contiguous() && self.has_dirty_neighbour(ram, at))
                {
                    let words = (word, word);
                    let (rule, why) = (Rule::LostDirty, Why::DirtyCleared);
                    self.report(rule, why, cpu, None, Some(at), words);
                }
            }
            // A block that was split: every part of it counts as written.
            Meaning::Table(lower) => {
                let step = self.geometry.order(at.level - 1).pages();
                for index in 0..self.geometry.entries(at.level - 1) {
                    if let Some(place) = self.live.place(lower.frame, index) {
                        self.settle(ram, cpu, place, frame.add(index as u64 * step));
                    }
                }
            }
            _ => {}
        }
    }
}
