//! The machine as the library's [`Hardware`].
//!
//! Each method pays one predictable branch for the examiner and the counters, none for each word.

use std::ops::Range;
use std::sync::atomic::{Ordering, fence};

use quire_hw::{Flush, FrameRun, Hardware, Memory, Poisoned, Profile, Reuse, TableFrame};
use quire_units::{CpuId, FrameSpan, PageSpan, Pfn};

use crate::counters::add;
use crate::cpu::current;
use crate::lock;
use crate::machine::Machine;
use crate::tlb::{reaches, reaches_tables};

impl Memory for Machine<'_> {
    #[inline]
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.ram.load(frame, index)
    }

    #[inline]
    fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        self.ram.count_run(frame, index, most, first, step)
    }

    #[inline]
    fn load_words(&self, frame: Pfn, index: usize, words: &mut [u64]) {
        self.ram.load_words(frame, index, words);
    }

    #[inline]
    fn store_words(&self, table: &TableFrame, index: usize, words: &[u64]) {
        if self.watched {
            let each = words.iter().enumerate();
            each.for_each(|(at, word)| self.watched_fill(table, index + at, 1, *word, 0));
        } else {
            self.ram.store_words(table, index, words);
        }
    }

    #[inline]
    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        if self.watched {
            self.watched_fill(table, index, count, first, step);
        } else {
            self.ram.fill(table, index, count, first, step);
        }
    }

    #[inline]
    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        if self.watched {
            self.watched_exchange(table, index, current, new)
        } else {
            self.ram.compare_exchange(table, index, current, new)
        }
    }

    #[inline]
    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse) {
        if self.watched {
            let count = pages.end.saturating_sub(pages.start);
            add(&self.own().bytes_cleared, count << self.geometry.page_shift);
            self.rewritten(FrameSpan::new(frames.start().add(pages.start), count));
        }
        self.ram.clear(frames, pages, &self.clears, reuse);
    }

    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        self.moment();
        if self.faults.copy_fails() {
            return Err(Poisoned { frame: from.start });
        }
        if self.watched {
            add(&self.own().bytes_copied, from.count << self.geometry.page_shift);
            self.rewritten(FrameSpan::new(to.start().add(at), from.count));
        }
        // A page is copied because a program is about to write it.
        self.ram.copy(to, at, from, &self.clears, Reuse::Soon)
    }
}

impl Hardware for Machine<'_> {
    fn flush(&self, flush: &Flush<'_>) {
        self.moment();
        // Entries first, then the set of CPUs: the counterpart of the fence in `Cpu::switch`.
        fence(Ordering::SeqCst);
        let flush = &Flush { asid: self.config.tag(flush.asid), ..*flush };
        let counters = self.own();
        add(&counters.flushes, 1);
        if let Some(mut ledger) = self.ledger() {
            ledger.flushing(&self.ram, Hardware::cpu(self), flush);
        }
        for cpu in flush.cpus.iter() {
            match flush.pages {
                Some(pieces) => add(&counters.invalidations, pieces.count()),
                None => add(&counters.full_flushes, 1),
            }
            self.faults.opportunity();
            self.flush_core(cpu, flush);
        }
    }

    fn publish_code(&self, frames: FrameSpan) {
        self.faults.opportunity();
        add(&self.own().code_published, 1);
        if let Some(mut ledger) = self.ledger() {
            ledger.published(frames);
        }
    }

    #[inline]
    fn freed(&self, frames: FrameSpan) {
        if self.watched {
            self.note_freed(frames);
        }
    }

    #[inline]
    fn cpu(&self) -> CpuId {
        // A thread may run as a CPU of another, larger machine.
        let number = current();
        CpuId::new(if number < self.banks.len() { number } else { 0 })
    }

    fn profile(&self) -> Profile {
        Profile {
            transitions: self.config.transitions,
            contiguous: self.config.contiguous,
            memory_types: self.config.memory_types,
            near_cache_bytes: self.config.near_cache_bytes,
            clear_unit_bytes: self.config.clear_unit_bytes,
        }
    }
}

impl Machine<'_> {
    #[cold]
    fn note_freed(&self, frames: FrameSpan) {
        add(&self.own().frames_freed, frames.count);
        if let Some(mut ledger) = self.ledger() {
            ledger.freed(&self.ram, Hardware::cpu(self), frames);
        }
    }

    /// Announces that `frames` were written by the embedder, or by a device: instruction fetches
    /// may see what they held before until they are published. The machine knows of the library's
    /// own clears and copies, and takes frames that come into use for written.
    pub fn rewritten(&self, frames: FrameSpan) {
        if let Some(mut ledger) = self.ledger() {
            ledger.rewritten(frames);
        }
    }

    fn own(&self) -> &crate::counters::Counters {
        &self.bank(Hardware::cpu(self)).counters
    }

    /// Stores word by word, so that walkers may meet half-written tables.
    #[cold]
    fn watched_fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        self.moment();
        add(&self.own().fills, 1);
        add(&self.own().words_filled, count as u64);
        let cpu = Hardware::cpu(self);
        let mut word = first;
        let half = index + count / 2;
        for at in index..index + count {
            if at == half && at > index {
                self.moment();
            }
            self.faults.opportunity();
            let ledger = self.ledger();
            let old = self.ram.load(table.frame(), at);
            self.ram.fill(table, at, 1, word, 0);
            if let Some(mut ledger) = ledger {
                ledger.stored(&self.ram, cpu, (table.frame(), at), (old, word));
            }
            word = word.wrapping_add(step);
        }
    }

    #[cold]
    fn watched_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        self.moment();
        self.faults.opportunity();
        let ledger = self.ledger();
        let result = self.ram.compare_exchange(table, index, current, new);
        let own = self.own();
        match result {
            Ok(()) => add(&own.exchanges, 1),
            Err(_) => add(&own.exchange_failures, 1),
        }
        if let (Some(mut ledger), Ok(())) = (ledger, result) {
            let cpu = Hardware::cpu(self);
            ledger.stored(&self.ram, cpu, (table.frame(), index), (current, new));
        }
        result
    }

    /// One CPU obeys a flush. It holds its own lock during each of its accesses, so no access is
    /// under way with a translation that is being dropped.
    fn flush_core(&self, cpu: CpuId, flush: &Flush<'_>) {
        let Some(bank) = self.banks.get(cpu.index()) else { return };
        let mut core = lock(&bank.core);
        core.tlb.drop_if(|held| {
            held.asid == flush.asid && !held.global && reaches(flush, held.pages())
        });
        core.absences.drop_reached(flush);
        core.walks.drop_if(|held| {
            held.asid == flush.asid && reaches_tables(flush, PageSpan::block(held.page, held.order))
        });
        if let Some(mut ledger) = self.ledger() {
            ledger.flushed(cpu, flush);
        }
    }
}
