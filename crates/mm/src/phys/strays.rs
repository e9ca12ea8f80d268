//! Frames in custody: out of use, and not free before the flush.
//!
//! They are chained through their own slots, as runs, so that any number of them needs no memory.
//! A run's record is in the slot of its first frame: `counts` is its length, `links[0]` names the
//! run that was taken before it. The run that still grows is recorded when the next one begins.

use quire_hw::{Flush, FrameRun, Hardware};
use quire_units::{FrameSpan, Pfn};

use super::list::END;
use super::meta::{Kind, Meta, Ownerless, State, WordsLock};
use crate::sync::Ordering;

/// Flag of a run: all its words are zero.
const ZEROED: u32 = 1;

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
    open: Ownerless,
    /// The run before it.
    last: u32,
}

impl Strays {
    /// None.
    #[inline]
    pub(crate) const fn new() -> Self {
        Self { open: Ownerless { span: FrameSpan::new(Pfn::new(0), 0), zeroed: false }, last: END }
    }

    /// Whether there are none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.open.span.count == 0
    }

    /// Takes a table that has left its tree. Where all its words are zero (`zeroed`), it need not
    /// be cleared for its next use.
    pub(crate) fn take_table(&mut self, meta: Meta<'_>, table: WordsLock<'_>, zeroed: bool) {
        self.take(meta, Ownerless { span: FrameSpan::new(table.frame(), 1), zeroed });
    }

    /// Takes frames: as part of the last run where they follow that and are alike zeroed.
    #[inline(always)]
    pub(crate) fn take(&mut self, meta: Meta<'_>, gone: Ownerless) {
        let open = &mut self.open;
        let slot = meta.at(gone.span.start);
        if open.span.end() == gone.span.start && open.zeroed == gone.zeroed {
            open.span.count += gone.span.count;
            slot.set_state(State::NONE);
            return;
        }
        self.close(meta);
        slot.set_state(State::new(Kind::Stray, 0).with_flags(gone.zeroed as u32 * ZEROED));
        self.open = gone;
    }

    /// Records the run that has grown.
    fn close(&mut self, meta: Meta<'_>) {
        let span = self.open.span;
        if span.count > 0 {
            let slot = meta.at(span.start);
            slot.counts.store(span.count, Ordering::Relaxed);
            slot.links[0].store(self.last, Ordering::Relaxed);
            self.last = meta.index(span.start);
        }
    }

    /// Hands every run to `free`; none is in custody then.
    #[inline]
    pub(crate) fn free(&mut self, meta: Meta<'_>, _: &Flushed, mut free: impl FnMut(FrameRun)) {
        self.close(meta);
        let mut next = self.last;
        *self = Self::new();
        while next != END {
            let start = meta.frame(next);
            let slot = meta.at(start);
            let span = FrameSpan::new(start, slot.counts.load(Ordering::Relaxed));
            next = slot.links[0].load(Ordering::Relaxed);
            let zeroed = slot.state().flags() & ZEROED != 0;
            slot.set_state(State::NONE);
            free(meta.mint(Ownerless { span, zeroed }));
        }
    }
}
