//! Changing what leaves grant, in place: contiguous blocks keep their form, and the duty to flush
//! is a value.

use quire_arch::{Arch, Attrs, Entry, Transition};
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Pfn};

use super::grant::Regrant;
use super::run::Stretch;
use super::visit::Found;
use super::word::is_settled;
use super::word::plain;
use super::{Gather, Locked, Run, What};

/// The flush that a change owes: other CPUs may hold the old translations.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use = "note it in a gather, or say why no flush is needed"]
pub(super) enum Owed {
    /// Nothing.
    Nothing,
    /// A flush.
    Flush,
}

impl Owed {
    /// Notes in `gather` what is owed for `pages`, which entries of `stride` map.
    #[inline]
    pub(super) fn note(self, gather: &mut Gather, pages: PageSpan, stride: Order) {
        if self == Owed::Flush {
            gather.flush(pages, stride);
        }
    }

    /// The change only granted more, or its caller flushes these pages in any case.
    #[inline]
    pub(super) fn waive(self) {}
}

impl<A: Arch, H: Hardware> Found<'_, '_, A, H> {
    /// Gives the leaves of the run, whose attributes are `attrs`, those that `change` makes of
    /// theirs. How many entries were written.
    #[inline]
    pub(super) fn regrant(mut self, attrs: Attrs, change: Regrant, gather: &mut Gather) -> u64 {
        if change.of(attrs) == attrs {
            return 0;
        }
        debug_assert!(!self.is_cut(), "the caller has split what reaches beyond the span");
        let (table, count) = (self.table, self.run.count);
        table.part_run(&mut self.run);
        let owed = table.regrant(&self.run, count, Owed::Nothing, change);
        owed.note(gather, self.pages, self.leaf_order());
        table.refold_ends(self.run.index, count);
        count as u64
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Gives the first `count` leaves of a run, which cut no block, the attributes that `change`
    /// makes of theirs: block for block in place, without unfolding. A caller that flushes in any
    /// case says so with `owed`. The caller folds what may have become foldable at the ends.
    #[inline(always)]
    pub(super) fn regrant(&self, run: &Run, count: usize, owed: Owed, change: Regrant) -> Owed {
        let What::Leaf { attrs, .. } = run.what else { return owed };
        if self.folded() > 0 && !change.of(attrs).intersects(Attrs::RIGHTS) {
            self.hide(run, count, change);
            return Owed::Flush;
        }
        if run.uniform {
            let folded = A::is_folded(run.raw, self.level());
            let s = Stretch { index: run.index, count, raw: run.raw, folded };
            return self.regrant_stretch(&s, owed, change);
        }
        self.regrant_stretches(run, count, owed, change)
    }

    #[inline(never)]
    fn regrant_stretches(&self, run: &Run, count: usize, owed: Owed, change: Regrant) -> Owed {
        self.stretches(run, count).fold(owed, |owed, s| self.regrant_stretch(&s, owed, change))
    }

    /// Takes all rights from leaves. Their blocks are unfolded: leaves without rights form none.
    #[inline(never)]
    fn hide(&self, run: &Run, count: usize, change: Regrant) {
        let (level, settled) = (self.level(), run.is_settled());
        let (mut at, end) = (run.index, run.index + count);
        while at < end {
            let raw = self.raw(at);
            if !A::is_folded(raw, level) {
                let stretch = self.stretch(at, end, raw);
                self.regrant_stretch(&stretch, Owed::Flush, change).waive();
                at += stretch.count;
                continue;
            }
            match A::decode(plain::<A>(raw, level, at), level) {
                Entry::Leaf { frame, attrs } if settled => {
                    let hidden = A::leaf(frame, level, change.of(attrs | self.gathered(at)));
                    self.fill(at, self.width(), hidden, A::step(level));
                }
                _ => self.convert(at, false, change),
            }
            self.add(0, -1);
            at += self.width();
        }
    }

    #[inline(always)]
    fn regrant_stretch(&self, s: &Stretch, owed: Owed, change: Regrant) -> Owed {
        let level = self.level();
        let Entry::Leaf { frame, attrs } = self.meaning(plain::<A>(s.raw, level, s.index)) else {
            return owed;
        };
        let now = change.of(attrs);
        if !attrs.intersects(Attrs::RIGHTS) {
            self.show(s, frame, now);
            return owed;
        }
        let new = self.spelled(frame, now);
        let new = if s.folded { A::fold(new, level) } else { new };
        if is_settled(attrs) {
            self.fill_stretch(&Stretch { raw: new, ..*s });
        } else {
            for index in s.index..s.index + s.count {
                self.exchange_leaf(index, None, change);
            }
        }
        if owed == Owed::Nothing { self.owed(s.raw, new) } else { owed }
    }

    /// Gives leaves that the hardware does not see, and that map the frames from `frame` on, the
    /// attributes `attrs`.
    #[inline(never)]
    fn show(&self, s: &Stretch, frame: Pfn, attrs: Attrs) {
        let (first, step) = (self.spelled(frame, attrs), A::step(self.level()));
        self.each_piece(s.index, s.count, frame, attrs, |at, entries, frame, each| {
            if self.may_fold_in(each) {
                let folded = self.spell_blocks(at, entries, frame, attrs);
                self.add(0, folded as i64);
            } else {
                let word = first.wrapping_add(step.wrapping_mul((at - s.index) as u64));
                self.fill(at, entries, word, step);
            }
        });
        self.refold(s.index, s.count);
    }

    /// The flush that the change of a leaf from `old` to `new` owes.
    #[inline]
    pub(super) fn owed(&self, old: u64, new: u64) -> Owed {
        match A::transition(old, new, self.level(), self.tables.is_relaxed()) {
            Transition::Nothing => Owed::Nothing,
            _ => Owed::Flush,
        }
    }
}
