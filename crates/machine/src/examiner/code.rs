//! Judging instruction fetches: rule 9.

use quire_hw::DirectMap;
use quire_units::{CpuId, FrameSpan, Pfn, Prot};

use super::ledger::Ledger;
use super::{Place, Rule, Why};
use crate::mmu::{Leaf, Meaning};

impl Ledger {
    /// Fetches from `frames` see what was stored there before.
    pub(crate) fn published(&mut self, frames: FrameSpan) {
        let all = frames.start.get()..frames.end().get();
        self.code.extend(all.map(|frame| (Pfn::new(frame), ())));
    }

    /// `frames` were written, or leave use.
    pub(crate) fn rewritten(&mut self, frames: FrameSpan) {
        if self.code.is_empty() {
            return;
        }
        for frame in frames.start.get()..frames.end().get() {
            self.code.remove(&Pfn::new(frame));
        }
    }

    /// A program fetched from `frame`.
    pub(crate) fn fetched(&mut self, cpu: CpuId, frame: Pfn) {
        if !self.config.coherent_code && !self.code.contains_key(&frame) {
            self.report(Rule::StaleCode, Why::Unpublished(frame), cpu, None, None, (0, 0));
        }
    }

    /// The first frame that an executable leaf shows and that is not published.
    pub(super) fn unpublished(&self, ram: &DirectMap<'_>, meaning: Meaning) -> Option<Pfn> {
        let Meaning::Leaf(Leaf { frame, order, prot, .. }) = meaning else { return None };
        if self.config.coherent_code || !prot.contains(Prot::EXEC) {
            return None;
        }
        let frames = (0..order.pages()).map(|ahead| frame.add(ahead));
        let mut inside = frames.filter(|frame| ram.span().contains(*frame));
        inside.find(|frame| !self.code.contains_key(frame))
    }

    /// A store made a leaf of a live table out of what `was` there.
    pub(super) fn stored_code(
        &mut self,
        ram: &DirectMap<'_>,
        cpu: CpuId,
        at: Place,
        (was, now): (Meaning, Meaning),
        words: (u64, u64),
    ) {
        let shown = |meaning| match meaning {
            Meaning::Leaf(leaf) if leaf.prot.contains(Prot::EXEC) => Some((leaf.frame, leaf.order)),
            _ => None,
        };
        if shown(was) != shown(now)
            && let Some(frame) = self.unpublished(ram, now)
        {
            self.report(Rule::StaleCode, Why::Unpublished(frame), cpu, None, Some(at), words);
        }
    }
}
