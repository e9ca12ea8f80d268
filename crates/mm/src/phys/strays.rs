//! Frames in custody: out of use, and not free before the flush.
//!
//! They are chained through their own slots, as runs, so that any number of them needs no memory.
//! A run's record is in the slot of its first frame: `counts` is its length, `links[0]` names the
//! run that was taken before it. The run that still grows is recorded when the next one begins.

use quire_hw::{Flush, FrameRun, Hardware};
use quire_units::{FrameSpan, Pfn};

use super::list::END;
use super::meta::{Kind, Meta, Ownerless, State, WordsLock};
use super::mobility::Mobility;
use crate::sync::Ordering;

/// Flag of a run: all its words are zero.
const ZEROED: u32 = 1;
/// Flag of a run: its frames were page tables.
const TABLES: u32 = 2;

/// Proof that what had to be flushed has been.
#[derive(Debug)]
pub(crate) struct Flushed(());

impl Flushed {
    /// Flushes, if there is anything to flush.
    #[inline]
    pub(crate) fn by<H: Hardware>(hw: &H, flush: Option<&Flush<'_>>) -> Self {
        if let Some(flush) = flush {
            hw.flush(flush);
        }
        Self(())
    }
}

/// A chain of frames in custody. Dropping it leaks them.
#[must_use = "its frames are in custody until the flush"]
#[derive(Debug)]
pub(crate) struct Strays {
    /// The run that still grows; no frames at first.
    open: FrameSpan,
    /// The flags of that run.
    flags: u32,
    /// The run before it.
    last: u32,
}

impl Strays {
    /// None.
    #[inline]
    pub(crate) const fn new() -> Self {
        Self { open: FrameSpan::new(Pfn::new(0), 0), flags: 0, last: END }
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.open.count == 0
    }

    /// Takes a table that has left its tree. Where all its words are zero (`zeroed`), it need not
    /// be cleared for its next use.
    pub(crate) fn take_table(&mut self, meta: Meta<'_>, table: WordsLock<'_>, zeroed: bool) {
        let gone = Ownerless { span: FrameSpan::new(table.frame(), 1), zeroed };
        self.take_as(meta, gone, TABLES);
    }

    /// Takes frames: as part of the last run where they follow that and are alike zeroed.
    #[inline(always)]
    pub(crate) fn take(&mut self, meta: Meta<'_>, gone: Ownerless) {
        self.take_as(meta, gone, 0);
    }

    #[inline(always)]
    fn take_as(&mut self, meta: Meta<'_>, Ownerless { span, zeroed }: Ownerless, kind: u32) {
        let flags = kind | (zeroed as u32 * ZEROED);
        let slot = meta.at(span.start);
        if self.open.end() == span.start && self.flags == flags {
            self.open.count += span.count;
            slot.set_state(State::NONE);
            return;
        }
        self.close(meta);
        slot.set_state(State::new(Kind::Stray, 0).with_flags(flags));
        (self.open, self.flags) = (span, flags);
    }

    /// Records the run that has grown.
    fn close(&mut self, meta: Meta<'_>) {
        let span = self.open;
        if span.count > 0 {
            let slot = meta.at(span.start);
            slot.counts.store(span.count, Ordering::Relaxed);
            slot.links[0].store(self.last, Ordering::Relaxed);
            self.last = meta.index(span.start);
        }
    }

    /// Hands every run to `free`, with the mobility that its use had; none is in custody then.
    #[inline]
    pub(crate) fn free(
        &mut self,
        meta: Meta<'_>,
        _: &Flushed,
        mut free: impl FnMut(FrameRun, Mobility),
    ) {
        self.close(meta);
        let mut next = self.last;
        *self = Self::new();
        while next != END {
            let start = meta.frame(next);
            let slot = meta.at(start);
            let span = FrameSpan::new(start, slot.counts.load(Ordering::Relaxed));
            next = slot.links[0].load(Ordering::Relaxed);
            let flags = slot.state().flags();
            slot.set_state(State::NONE);
            let run = meta.mint(Ownerless { span, zeroed: flags & ZEROED != 0 });
            let is_table = flags & TABLES != 0;
            free(run, if is_table { Mobility::Unmovable } else { Mobility::Movable });
        }
    }
}
