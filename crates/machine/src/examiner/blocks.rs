//! Judging contiguous blocks as they are made, changed and split: rule 6.
//!
//! A change of a block takes several stores, so most flaws can be judged only when the change is
//! over: at a flush by the CPU that changes it, and when the operation ends. Flaws that must not
//! exist even for a moment are judged at the store, by a look at the nearest neighbour; the farther
//! ones agreed with that neighbour before.

use std::collections::BTreeSet;

use quire_hw::{DirectMap, Flush};
use quire_units::{CpuId, Order, PageSpan, Pfn};

use super::ledger::Ledger;
use super::{Place, Rule, Why};
use crate::mmu::{Block, Flaw, Leaf, Meaning, survey};

/// A block: its table, and its first entry.
pub(super) type BlockId = (Pfn, u16);

fn claims(meaning: Meaning) -> bool {
    matches!(meaning, Meaning::Leaf(leaf) if leaf.is_contiguous())
}

impl Ledger {
    /// The block around `at`.
    pub(super) fn block_of(&self, at: Place) -> BlockId {
        (at.table, (at.index & !(self.isa.contiguous_entries(at.level) - 1)) as u16)
    }

    /// A store changed a live entry from `was` to `now`. Returns whether it is the operation's
    /// first into the block.
    pub(super) fn stored_in_block(
        &mut self,
        ram: &DirectMap<'_>,
        cpu: CpuId,
        at: Place,
        (was, now): (Meaning, Meaning),
        words: (u64, u64),
    ) -> bool {
        let (left, joined) = (claims(was), claims(now));
        self.live.count_joined(at.table, usize::from(joined), usize::from(left));
        let first = (left || joined) && self.note_block(cpu, self.block_of(at));
        if let Meaning::Leaf(leaf) = now
            && (joined || self.live.has_joined(at.table))
            && let Some(flaw) = self.neighbour_flaw(ram, at, &leaf)
        {
            self.report(Rule::TornBlock, Why::Flaw(flaw), cpu, None, Some(at), words);
        }
        first
    }

    fn note_block(&mut self, cpu: CpuId, block: BlockId) -> bool {
        let operation = &mut self.operations[cpu.index()];
        operation.unflushed.insert(block);
        operation.blocks.insert(block)
    }

    /// A flaw that is forbidden even on the way, between the new `leaf` and the nearest entry of
    /// its block.
    fn neighbour_flaw(&self, ram: &DirectMap<'_>, at: Place, leaf: &Leaf) -> Option<Flaw> {
        let entries = self.isa.contiguous_entries(at.level);
        if !self.isa.breaks_before_make() || entries == 1 {
            return None;
        }
        let first = at.index & !(entries - 1);
        // Counted from the entry's own frame; it wraps where the claim reaches below frame 0.
        let frame_at = |from: &Leaf, own: usize, index: usize| {
            let steps = (index as u64).wrapping_sub(own as u64);
            Pfn::new(from.frame.get().wrapping_add(steps.wrapping_mul(from.order.pages())))
        };
        if leaf.is_contiguous() && !frame_at(leaf, at.index, first).is_aligned(leaf.block.pages()) {
            return Some(Flaw::BlockMisaligned);
        }
        let block = first..first + entries;
        let (index, near) = (1..entries)
            .flat_map(|distance| [at.index.checked_sub(distance), Some(at.index + distance)])
            .flatten()
            .filter(|index| block.contains(index))
            .map(|index| (index, self.config.decode(ram.load(at.table, index), at.level, index)))
            .find(|(_, meaning)| *meaning != Meaning::Absent)?;
        let found = match near {
            _ if leaf.is_contiguous() => {
                Block::compare(leaf, frame_at(leaf, at.index, index), near)
            }
            Meaning::Leaf(near) if near.is_contiguous() => {
                Block::compare(&near, frame_at(&near, index, at.index), Meaning::Leaf(*leaf))
            }
            _ => return None,
        };
        found.flaw_on_the_way(self.isa, self.config.relaxed())
    }

    /// Blocks of a table that just became live.
    pub(super) fn inspect_blocks(&mut self, ram: &DirectMap<'_>, cpu: CpuId, table: Pfn) {
        let joined: Vec<_> = self
            .live
            .entries(ram, table)
            .filter_map(|(place, _, meaning)| claims(meaning).then_some(self.block_of(place)))
            .collect();
        self.live.count_joined(table, joined.len(), 0);
        let (isa, relaxed) = (self.isa, self.config.relaxed());
        for block in joined.into_iter().collect::<BTreeSet<_>>() {
            self.note_block(cpu, block);
            self.judge_block(ram, cpu, block, |found| found.flaw_on_the_way(isa, relaxed));
        }
    }

    /// `cpu` asks for a flush: its changes to the blocks in reach must be complete.
    pub(crate) fn flushing(&mut self, ram: &DirectMap<'_>, cpu: CpuId, flush: &Flush<'_>) {
        let operation = &self.operations[cpu.index()];
        if operation.number == 0 || operation.unflushed.is_empty() {
            return;
        }
        let reached: Vec<_> =
            operation.unflushed.iter().copied().filter(|id| self.is_in(*id, flush)).collect();
        let (isa, relaxed) = (self.isa, self.config.relaxed());
        for block in reached {
            self.operations[cpu.index()].unflushed.remove(&block);
            self.judge_block(ram, cpu, block, |found| found.flaw_at_flush(isa, relaxed));
        }
    }

    fn is_in(&self, (table, first): BlockId, flush: &Flush<'_>) -> bool {
        let Some(at) = self.live.place(table, first.into()) else { return true };
        let joins = self.isa.contiguous_entries(at.level).ilog2() as u8;
        let order = Order::new(self.geometry.order(at.level).get() + joins);
        flush.pages.is_none_or(|pieces| pieces.span().overlaps(PageSpan::block(at.page, order)))
    }

    /// The operation of `cpu` ends: all blocks that it has changed must be whole, or none.
    pub(super) fn end_blocks(&mut self, ram: &DirectMap<'_>, cpu: CpuId) {
        let operation = &mut self.operations[cpu.index()];
        operation.unflushed.clear();
        for block in std::mem::take(&mut operation.blocks) {
            self.judge_block(ram, cpu, block, Block::flaw);
        }
    }

    /// Reports the flaws that `judge` finds in a block. A block that another CPU is changing as
    /// well is judged when the last of them is done.
    fn judge_block(
        &mut self,
        ram: &DirectMap<'_>,
        cpu: CpuId,
        block: BlockId,
        judge: impl Fn(Block) -> Option<Flaw>,
    ) {
        let (table, first) = (block.0, usize::from(block.1));
        let Some(start) = self.live.place(table, first) else { return };
        let others = self.operations.iter().enumerate().filter(|(other, _)| *other != cpu.index());
        if others.map(|(_, operation)| operation).any(|other| other.blocks.contains(&block)) {
            return;
        }
        for index in first..first + self.isa.contiguous_entries(start.level) {
            let word = ram.load(table, index);
            let Meaning::Leaf(leaf) = self.config.decode(word, start.level, index) else {
                continue;
            };
            if !leaf.is_contiguous() {
                continue;
            }
            let found = survey(self.isa, ram, (table, index, start.level), &leaf);
            if let Some(flaw) = judge(found) {
                let place = self.live.place(table, index);
                let why = Why::Flaw(flaw);
                self.report(Rule::TornBlock, why, cpu, None, place, (word, word));
            }
            return;
        }
    }
}
