//! Contiguous blocks: neighbouring leaves that the CPU may keep as one translation.
//!
//! An aligned block of leaves may say that it maps an aligned block of frames with equal rights
//! (arm64: the contiguous bit; riscv64: Svnapot). The CPU then keeps one TLB entry for all of it.
//! Here this is called *folding* (Linux: contpte), and no other room sees it: words are read in
//! their plain form.
//!
//! ```text
//!   plain:     | A+0  | A+1  | A+2  | ...  | A+15 |     sixteen translations
//!                     fold │   ▲ unfold
//!                          ▼   │
//!   folded:    | A+0 c| A+1 c| A+2 c| ...  |A+15 c|     one translation
//! ```
//!
//! Three rules:
//!
//! 1. **All or nothing.** A block is folded only if all its entries map consecutive frames of one
//!    folio with equal rights (I4). A change of a part unfolds the block first
//!    ([`part`](Locked::part)), at most at its head and at its tail.
//! 2. **Whole blocks change in place.** Every word gets the new rights, and stays folded. Until the
//!    flush a CPU may see the old rights or the new ones, as with any entry.
//! 3. **Fold as soon as possible.** In empty entries, whole blocks are written folded at once. All
//!    other changes that can make a block foldable end with [`refold_ends`](Locked::refold_ends).
//!
//! *Noted* flags: the accessed and dirty bits. The hardware may set them in the word of any entry
//! of a block for an access to any of its pages (Arm ARM D8.7.1; the Svnapot chapter of the RISC-V
//! manual allows the same). So a bit that is set anywhere in a block holds for all of it, and
//! unfolding sets it in every entry (I5).
//!
//! Where the CPU demands it (arm64 without FEAT_BBM level 2), the words of a live block are zero,
//! with a flush, between its two forms. A fault that meets the hole takes this table's lock, and
//! finds the block complete.

use quire_arch::{Arch, Attrs, Entry, Transition};
use quire_hw::Hardware;
use quire_units::{Order, Pfn};

use super::grant::Regrant;
use super::run::Stretch;
use super::word::{NOTED, is_foreign, is_settled, word};
use super::{Locked, Run};
use crate::folio::Folios;
use crate::stats::Event;

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Maps `count` entries from `index` on, which are zero, to the frames from `frame` on, which
    /// belong to folios of order `each`.
    #[inline(always)]
    pub(crate) fn put(&self, index: usize, count: usize, frame: Pfn, attrs: Attrs, each: Order) {
        debug_assert!((index..index + count).all(|at| self.raw(at) == 0));
        self.publish(frame, count, Attrs::empty(), attrs);
        let folded = self.spell(index, count, frame, attrs, each);
        self.add(count as i64, folded as i64);
        if self.may_fold_in(each) {
            self.tables.count(Event::Fold, folded as u64);
            // A block that was begun before may be complete now.
            self.refold_ends(index, count);
        }
    }

    /// The same for one of several runs with the same attributes. It stands apart, since one
    /// function for both made unmapping dearer by 900 instructions.
    #[inline(always)]
    pub(crate) fn put_alike(
        &self,
        index: usize,
        count: usize,
        frame: Pfn,
        attrs: Attrs,
        each: Order,
    ) {
        if self.may_fold_in(each) {
            return self.put(index, count, frame, attrs, each);
        }
        self.publish(frame, count, Attrs::empty(), attrs);
        self.fill(index, count, self.spelled(frame, attrs), A::step(self.level()));
        self.add(count as i64, 0);
    }

    /// The same where folios of several orders may stand behind them.
    pub(super) fn put_any(&self, index: usize, count: usize, frame: Pfn, attrs: Attrs) {
        self.each_piece(index, count, frame, attrs, |at, entries, frame, each| {
            self.put(at, entries, frame, attrs, each);
        });
    }

    /// Unfolds the blocks that reach across an end of a run: at most two.
    #[inline]
    pub(super) fn part_run(&self, run: &mut Run) {
        run.uniform &= !self.part(run.index, run.count);
    }

    /// The same for these entries. Returns whether there were any.
    #[inline]
    pub(super) fn part(&self, index: usize, count: usize) -> bool {
        if self.folded() == 0 {
            return false;
        }
        let before = self.folded();
        for edge in [index, index + count] {
            if edge & (self.width() - 1) != 0 {
                self.unfold_at(edge);
            }
        }
        self.folded() < before
    }

    /// Unfolds the block that entry `index` is in, if it is folded.
    pub(super) fn unfold_at(&self, index: usize) {
        if self.is_folded(self.raw(index)) {
            self.regroup(self.block_at(index), false);
        }
    }

    /// Folds the blocks that these entries cover in part, if these have become foldable. Of entries
    /// that were in one state, no block that they cover whole has (C1).
    #[inline]
    pub(super) fn refold_ends(&self, index: usize, count: usize) {
        if self.width() == 1 {
            return;
        }
        let end = index + count;
        let (head, tail) = (self.block_at(index), self.block_at(end - 1));
        let partial = |first: usize| index > first || end < first + self.width();
        if partial(head) {
            self.refold_block(head);
        }
        if tail != head && partial(tail) {
            self.refold_block(tail);
        }
    }

    /// Folds every block that these entries have a part in, if it has become foldable.
    pub(super) fn refold(&self, index: usize, count: usize) {
        if self.width() > 1 {
            let blocks = (self.block_at(index)..index + count).step_by(self.width());
            blocks.for_each(|first| self.refold_block(first));
        }
    }

    fn refold_block(&self, first: usize) {
        if self.is_foldable(first) {
            self.regroup(first, true);
        }
    }

    /// Whether the block that begins at entry `first` is not folded and may be.
    fn is_foldable(&self, first: usize) -> bool {
        let (raw, width) = (self.raw(first), self.width());
        let Some(block) = self.fold_order() else { return false };
        if self.is_folded(raw) {
            return false;
        }
        let Entry::Leaf { frame, attrs } = self.meaning(raw, first) else { return false };
        let folio = || Folios::new(self.tables.meta).of(frame);
        // The checks of the first leaf are cheap and mostly fail.
        frame.is_aligned(block.pages())
            && attrs.intersects(Attrs::RIGHTS)
            && (is_foreign(attrs) || folio().is_some_and(|folio| folio.order >= block))
            && self.run(first, first + width).count == width
    }

    /// Turns the block of leaves at entry `first` into the other form, and counts it.
    fn regroup(&self, first: usize, fold: bool) {
        let (level, width) = (self.level(), self.width());
        let raw = self.raw(first);
        let Entry::Leaf { frame, attrs } = self.decode(raw, first) else { return };
        let new = word::<A>(frame, level, attrs, fold);
        let demand = A::transition(raw, new, level, self.tables.is_relaxed());
        let pages = self.span(first, width);
        if demand == Transition::BreakBeforeMake {
            let noted = self.clear_noted(first, width);
            self.tables.broken(pages, self.unit());
            let raw = word::<A>(frame, level, attrs | noted, fold);
            self.fill_stretch(&Stretch { index: first, count: width, raw });
        } else {
            self.convert(first, fold, Regrant::NONE);
            self.tables.flush(pages, self.unit());
        }
        let (more, event) = if fold { (1, Event::Refold) } else { (-1, Event::Unfold) };
        self.add(0, more);
        self.tables.count(event, 1);
    }

    /// Zeroes leaves that the hardware may still change. Returns the bits noted in any of them. The
    /// caller keeps the counts.
    pub(super) fn clear_noted(&self, index: usize, count: usize) -> Attrs {
        let (mut all, mut alike) = (Attrs::empty(), None);
        for at in index..index + count {
            let mut word = self.raw(at);
            while let Err(now) = self.exchange(at, word, 0) {
                word = now;
            }
            // Mostly the words have the same bits, and only the first is decoded.
            if alike != Some(word) {
                all |= self.leaf_attrs(word, at);
            }
            alike = Some(word.wrapping_add(self.step_after(word)));
        }
        all.intersection(NOTED)
    }

    /// Gives each leaf of the block at entry `first` other attributes, and another form, without a
    /// moment at which one is missing. Bits noted in any of them are set in all afterwards.
    pub(super) fn convert(&self, first: usize, fold: bool, change: Regrant) {
        let (raw, width) = (self.raw(first), self.width());
        if let Entry::Leaf { frame, attrs } = self.meaning(raw, first)
            && is_settled(attrs)
            && self.stretch(first, first + width, raw).count == width
        {
            // The hardware has no more bit to set in any of them.
            let raw = word::<A>(frame, self.level(), change.of(attrs), fold);
            return self.fill_stretch(&Stretch { index: first, count: width, raw });
        }
        let mut noted = self.gathered(first);
        loop {
            let known = noted;
            for index in first..first + width {
                let old = self.exchange_leaf(index, Some(fold), change.with(change.of(known)));
                noted |= old.intersection(NOTED);
            }
            // The hardware may have set more bits in a word whose turn had not come yet.
            if noted == known {
                return;
            }
        }
    }

    /// Gives one leaf other attributes, and another form if one is given, and loses no bit that the
    /// hardware sets meanwhile. Returns the attributes that it had.
    #[inline(always)]
    pub(super) fn exchange_leaf(&self, index: usize, form: Option<bool>, change: Regrant) -> Attrs {
        let level = self.level();
        let mut raw = self.raw(index);
        loop {
            let was = self.is_folded(raw);
            let Entry::Leaf { frame, attrs } = self.decode(raw, index) else {
                return Attrs::empty();
            };
            let new = word::<A>(frame, level, change.of(attrs), form.unwrap_or(was));
            if new == raw {
                return attrs;
            }
            match self.exchange(index, raw, new) {
                Ok(()) => return attrs,
                Err(now) => raw = now,
            }
        }
    }
}
