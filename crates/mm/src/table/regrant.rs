//! Changing what leaves grant, in place: contiguous blocks keep their form.

use quire_arch::rules::must_flush;
use quire_arch::{Arch, Attrs, Entry};
use quire_hw::Hardware;
use quire_units::Pfn;

use super::grant::Regrant;
use super::run::Stretch;
use super::scattered::LONG;
use super::visit::Found;
use super::word::is_settled;
use super::{Gather, Locked, Run, What};

impl<A: Arch, H: Hardware> Found<'_, '_, A, H> {
    /// Gives the leaves of the run, the first of which maps `frame` with `attrs`, the attributes
    /// that `change` makes of theirs, which is another value. Unless the caller goes `BY_FRAME`, a
    /// short run goes on with leaves like it, wherever their frames lie. How many there were.
    #[inline]
    pub(super) fn regrant<const BY_FRAME: bool>(
        self,
        (frame, attrs): (Pfn, Attrs),
        change: Regrant,
        gather: &mut Gather,
    ) -> usize {
        debug_assert!(!self.is_cut(), "the caller has split what reaches beyond the span");
        let (table, index, now) = (self.table, self.run.index, change.of(attrs));
        let mut count = match self.run.count {
            1..LONG if !BY_FRAME && self.run.uniform => {
                table.regrant_scattered(self.run, self.end, frame, now)
            }
            _ => 0,
        };
        let mut flushes = must_flush(attrs, now);
        if count == 0 {
            count = self.run.count;
            table.part_run(self.run);
            flushes = table.regrant(self.run, count, false, change);
        }
        if flushes {
            gather.flush(table.span(index, count), table.unit());
        }
        table.refold_ends(index, count);
        count
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Gives the first `count` leaves of a run, which cut no block, the attributes that `change`
    /// makes of theirs: block for block in place, without unfolding. The caller folds what may have
    /// become foldable at the ends. Returns whether the leaves must be flushed, because other CPUs
    /// may hold the old translations; it does not ask where the caller `flushes` in any case.
    #[inline(always)]
    #[must_use = "note the flush in a gather, or say why none is needed"]
    pub(super) fn regrant(&self, run: &Run, count: usize, flushes: bool, change: Regrant) -> bool {
        let What::Leaf { frame, attrs, .. } = run.what else { return flushes };
        self.publish(frame, count, attrs, change.of(attrs));
        if self.folded() > 0 && !change.of(attrs).intersects(Attrs::RIGHTS) {
            self.hide(run, count, change);
            return true;
        }
        if run.uniform {
            let s = Stretch { index: run.index, count, raw: run.raw };
            return self.regrant_stretch(&s, flushes, change);
        }
        self.regrant_stretches(run, count, flushes, change)
    }

    /// Gives a leaf that maps `frame`, and those behind it that are like it, the attributes `now`;
    /// none where that takes more than a plain store. How many there were.
    #[inline(never)]
    fn regrant_scattered(&self, run: &Run, end: usize, frame: Pfn, now: Attrs) -> usize {
        let What::Leaf { attrs, settled: true, .. } = run.what else { return 0 };
        // Code is published by folios.
        if now.difference(attrs).contains(Attrs::EXEC) {
            return 0;
        }
        let more = self.change_of(run.raw, frame, now);
        let change = |_, word: &mut u64| {
            *word = word.wrapping_add(more);
            true
        };
        self.scattered(run, end, change, |at, words| self.store_batch(at, words))
    }

    #[inline(never)]
    fn regrant_stretches(&self, run: &Run, count: usize, owes: bool, change: Regrant) -> bool {
        self.stretches(run, count).fold(owes, |owes, s| self.regrant_one(&s, owes, change))
    }

    /// A stretch of several: one instance for them.
    #[inline(never)]
    fn regrant_one(&self, s: &Stretch, owes: bool, change: Regrant) -> bool {
        self.regrant_stretch(s, owes, change)
    }

    /// Takes all rights from leaves, and unfolds their blocks: leaves without rights form none.
    #[inline(never)]
    fn hide(&self, run: &Run, count: usize, change: Regrant) {
        let (level, settled) = (self.level(), run.is_settled());
        let (mut at, end) = (run.index, run.index + count);
        while at < end {
            let raw = self.raw(at);
            if !self.is_folded(raw) {
                let stretch = self.stretch_of(at, end, raw);
                self.regrant_one(&stretch, true, change);
                at += stretch.count;
                continue;
            }
            match self.decode(raw, at) {
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
    fn regrant_stretch(&self, s: &Stretch, flushes: bool, change: Regrant) -> bool {
        let Entry::Leaf { frame, attrs } = self.meaning(s.raw, s.index) else { return flushes };
        let now = change.of(attrs);
        if !attrs.intersects(Attrs::RIGHTS) {
            self.show(s, frame, now);
            return flushes;
        }
        let new = self.respelled(s.raw, frame, now);
        if is_settled(attrs) {
            self.fill_stretch(&Stretch { raw: new, ..*s });
        } else {
            for index in s.index..s.index + s.count {
                self.exchange_leaf(index, None, change);
            }
        }
        flushes || must_flush(attrs, now)
    }

    /// The word of a leaf in the form of `old`: as part of a contiguous block or not.
    #[inline(always)]
    pub(super) fn respelled(&self, old: u64, frame: Pfn, attrs: Attrs) -> u64 {
        let new = self.spelled(frame, attrs);
        if self.is_folded(old) { A::fold(new, self.level()) } else { new }
    }

    /// Gives leaves without rights, which the hardware does not see, the attributes `attrs`.
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
}
