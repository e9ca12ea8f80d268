//! Contiguous blocks: neighbouring leaves that the CPU may keep as one translation.
//!
//! arm64 and riscv64 let an aligned block of leaves say that it maps an aligned block of frames
//! with equal rights (arm64: the contiguous bit; riscv64: Svnapot). The CPU then keeps one TLB
//! entry for all of it. Here this is called *folding*, and nobody outside of this room sees it:
//! words are read in their plain form, and written by operations that keep blocks whole.
//!
//! ```text
//!   plain:     | A+0  | A+1  | A+2  | ...  | A+15 |     sixteen translations
//!                     fold │   ▲ unfold
//!                          ▼   │
//!   folded:    | A+0 c| A+1 c| A+2 c| ...  |A+15 c|     one translation
//! ```
//!
//! Three rules, and all else follows from them:
//!
//! 1. **All or nothing.** A block is folded only if all its entries map consecutive frames of one
//!    folio with equal rights (I4). So whoever changes a part of a block unfolds it first
//!    ([`part`](Locked::part)), and only that one: a change of many entries meets at most two
//!    blocks that it covers in part, at its head and at its tail.
//! 2. **Whole blocks change in place.** What covers a block changes it without unfolding: every
//!    word gets the new rights, and stays folded. Until the flush a CPU may see either right, as
//!    with any entry.
//! 3. **Fold as soon as possible.** Where nothing was, whole blocks are written folded at once.
//!    Whatever else makes a block foldable ends with [`refold_ends`](Locked::refold_ends): the last
//!    missing entry, in whatever order they come, or rights that have become equal again.
//!
//! *Noted* flags. The hardware may note an access to any page of a block in the word of any of its
//! entries (Arm ARM D8.7.1; the Svnapot chapter of the RISC-V manual allows the same). So what is
//! noted anywhere in a block holds for all of it, and taking it apart tells every entry (I5).
//!
//! Changing the form of a live block goes through zero with a flush, where the CPU demands that
//! (arm64 without FEAT_BBM level 2). Faults that meet the hole find, under this table's lock, that
//! it is none.

use quire_arch::{Arch, Attrs, Entry, Level, Transition};
use quire_hw::Hardware;
use quire_units::{FrameSpan, PageSpan, Pfn};

use super::map::FOREIGN;
use super::run::{NOTED, Stretch, is_settled};
use super::{Locked, Run, What};
use crate::folio::Folios;
use crate::stats::Event;

/// The word of entry `index` as it would be outside of a contiguous block.
#[inline]
pub(crate) fn plain<A: Arch>(raw: u64, level: Level, index: usize) -> u64 {
    if A::is_folded(raw, level) { A::unfold(raw, level, index) } else { raw }
}

/// The word of a leaf, as part of a contiguous block or not.
#[inline]
fn word<A: Arch>(frame: Pfn, level: Level, attrs: Attrs, folded: bool) -> u64 {
    let word = A::leaf(frame, level, attrs);
    if folded { A::fold(word, level) } else { word }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// How many entries a contiguous block of this level has; 1 where there are none.
    #[inline]
    pub(super) fn width(&self) -> usize {
        1 << A::LEVELS[self.level().index()].contiguous
    }

    /// The first entry of the block that entry `index` is in.
    #[inline]
    pub(super) fn block_at(&self, index: usize) -> usize {
        index & !(self.width() - 1)
    }

    /// How many contiguous blocks lie in these entries, which cut none.
    pub(super) fn folded_in(&self, index: usize, count: usize) -> usize {
        if self.folded() == 0 {
            return 0;
        }
        let first = index.next_multiple_of(self.width());
        let blocks = (first..index + count).step_by(self.width());
        blocks.filter(|&at| A::is_folded(self.raw(at), self.level())).count()
    }

    /// Unfolds the blocks that reach across an end of a run: at most two.
    #[inline]
    pub(super) fn part_run(&self, run: &mut Run) {
        run.uniform &= !self.part(run.index, run.count);
    }

    /// Unfolds the blocks that reach across an end of these entries; whether there were any.
    #[inline]
    pub(super) fn part(&self, index: usize, count: usize) -> bool {
        if self.folded() == 0 {
            return false;
        }
        let before = self.folded();
        for edge in [index, index + count] {
            if edge & (self.width() - 1) != 0 && A::is_folded(self.raw(edge), self.level()) {
                self.regroup(self.block_at(edge), false);
                self.add(0, -1);
                self.tables.count(Event::Unfold, 1);
            }
        }
        self.folded() < before
    }

    /// Folds the blocks at the ends of these entries, where they cover a block in part and that has
    /// become foldable. Blocks that they cover whole, and that were in one state, are folded if
    /// they can be: nothing ever leaves a block plain that may be folded (C1).
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

    /// Folds every block that these entries have a part in, where that has become possible.
    fn refold(&self, index: usize, count: usize) {
        if self.width() > 1 {
            let blocks = (self.block_at(index)..index + count).step_by(self.width());
            blocks.for_each(|first| self.refold_block(first));
        }
    }

    fn refold_block(&self, first: usize) {
        if self.is_foldable(first) {
            self.regroup(first, true);
            self.add(0, 1);
            self.tables.count(Event::Refold, 1);
        }
    }

    /// Whether the block that begins at entry `first` is not folded and may be.
    fn is_foldable(&self, first: usize) -> bool {
        let raw = self.raw(first);
        if A::is_folded(raw, self.level()) {
            return false;
        }
        let Entry::Leaf { frame, attrs } = A::decode(raw, self.level()) else { return false };
        // What is cheap to find out and mostly wrong comes first.
        if !self.may_fold(frame, attrs) {
            return false;
        }
        let run = self.run(first, first + self.width());
        run.count == self.width()
    }

    /// Whether the leaves of a block that begins with `frame` may be folded.
    fn may_fold(&self, frame: Pfn, attrs: Attrs) -> bool {
        let Some(block) = A::fold_order(self.level()) else { return false };
        let one_folio = || {
            attrs.contains(FOREIGN)
                || Folios::new(self.tables.meta).of(frame).is_some_and(|f| f.order >= block)
        };
        frame.is_aligned(block.pages()) && attrs.intersects(Attrs::RIGHTS) && one_folio()
    }

    /// Writes leaves over words that the hardware does not see. Whole blocks are folded where
    /// `folds` says that the folios allow it. How many are.
    pub(super) fn spell(
        &self,
        index: usize,
        count: usize,
        frame: Pfn,
        attrs: Attrs,
        folds: bool,
    ) -> usize {
        let (level, width) = (self.level(), self.width());
        let end = index + count;
        let (head, tail) = (index.next_multiple_of(width), end & !(width - 1));
        let at = |index_of: usize| frame.add(((index_of - index) as u64) << A::order(level).get());
        let plain = |from: usize, to: usize| {
            if from < to {
                self.fill(from, to - from, A::leaf(at(from), level, attrs), A::step(level));
            }
        };
        let aligned = || A::fold_order(level).is_some_and(|b| at(head).is_aligned(b.pages()));
        if !folds || head >= tail || !attrs.intersects(Attrs::RIGHTS) || !aligned() {
            plain(index, end);
            return 0;
        }
        plain(index, head);
        self.spell_folded(head, tail, at(head), attrs);
        plain(tail, end);
        (tail - head) / width
    }

    /// Writes whole blocks, folded.
    fn spell_folded(&self, head: usize, tail: usize, frame: Pfn, attrs: Attrs) {
        let raw = word::<A>(frame, self.level(), attrs, true);
        self.fill_stretch(&Stretch { index: head, count: tail - head, raw, folded: true });
    }

    /// Writes the words of a stretch. Where all words of a block are equal, block by block.
    pub(super) fn fill_stretch(&self, s: &Stretch) {
        let step = A::step(self.level());
        let block_step = if s.folded { A::fold_step(self.level()) } else { step };
        if block_step == step {
            return self.fill(s.index, s.count, s.raw, step);
        }
        let (mut at, mut raw, end) = (s.index, s.raw, s.index + s.count);
        while at < end {
            let next = (self.block_at(at) + self.width()).min(end);
            self.fill(at, next - at, raw, block_step);
            raw = raw.wrapping_add(step.wrapping_mul(self.width() as u64));
            at = next;
        }
    }

    /// Turns the block that begins at entry `first`, all of it leaves, into the other form.
    fn regroup(&self, first: usize, fold: bool) {
        let (level, width) = (self.level(), self.width());
        let raw = self.raw(first);
        let Entry::Leaf { frame, attrs } = A::decode(plain::<A>(raw, level, first), level) else {
            return;
        };
        let new = word::<A>(frame, level, attrs, fold);
        let demand = A::transition(raw, new, level, self.tables.is_relaxed());
        let pages = PageSpan::new(self.page(first), self.page(first + width));
        if demand == Transition::BreakBeforeMake {
            let noted = self.break_block(first);
            self.tables.broken(pages, A::order(level));
            let folded = self.spell(first, width, frame, attrs | noted, fold);
            debug_assert_eq!(folded, fold as usize);
        } else {
            self.convert(first, fold, |attrs| attrs);
            self.tables.flush(pages, A::order(level));
        }
    }

    /// Zeroes the words of a block; what the hardware had noted in them.
    fn break_block(&self, first: usize) -> Attrs {
        let entries = first..first + self.width();
        entries
            .fold(Attrs::empty(), |noted, index| noted | self.noted_in(self.swap_out(index), index))
    }

    /// Gives each leaf of the block that begins at entry `first` other attributes, and another
    /// form, without a moment at which one is missing. What was noted in any of them is noted in
    /// all afterwards.
    pub(super) fn convert(&self, first: usize, fold: bool, change: impl Fn(Attrs) -> Attrs) {
        let mut noted = self.gathered(first);
        loop {
            let known = noted;
            for index in first..first + self.width() {
                let old = self.exchange_leaf(index, Some(fold), |attrs| change(attrs | known));
                noted |= old.intersection(NOTED);
            }
            // The hardware may have noted more in a word whose turn had not come yet.
            if noted == known {
                return;
            }
        }
    }

    /// Gives one leaf other attributes, and another form if one is given, and loses nothing that
    /// the hardware notes meanwhile. The attributes that it had.
    pub(super) fn exchange_leaf(
        &self,
        index: usize,
        form: Option<bool>,
        change: impl Fn(Attrs) -> Attrs,
    ) -> Attrs {
        let level = self.level();
        let mut raw = self.raw(index);
        loop {
            let was = A::is_folded(raw, level);
            let Entry::Leaf { frame, attrs } = A::decode(plain::<A>(raw, level, index), level)
            else {
                return Attrs::empty();
            };
            let new = word::<A>(frame, level, change(attrs), form.unwrap_or(was));
            if new == raw {
                return attrs;
            }
            match self.exchange(index, raw, new) {
                Ok(()) => return attrs,
                Err(now) => raw = now,
            }
        }
    }

    /// Gives the first `count` leaves of a run, which cut no block, the attributes that `change`
    /// makes of theirs: block for block in place, without unfolding. `change` alters rights and the
    /// library's own flags, in one way for the whole run. Whether that needs a flush. What may have
    /// become foldable at the ends is for the caller to fold.
    pub(super) fn regrant(
        &self,
        run: &Run,
        count: usize,
        change: impl Fn(Attrs) -> Attrs + Copy,
    ) -> bool {
        let What::Leaf { attrs, .. } = run.what else { return false };
        if self.folded() > 0 && !change(attrs).intersects(Attrs::RIGHTS) {
            self.hide(run.index, count, change);
            return true;
        }
        let regrant = |flush, stretch| self.regrant_stretch(&stretch, change) | flush;
        self.stretches(run, count).fold(false, regrant)
    }

    /// Takes all rights from leaves that the hardware sees: there is no block where it sees none.
    fn hide(&self, index: usize, count: usize, change: impl Fn(Attrs) -> Attrs + Copy) {
        let mut at = index;
        while at < index + count {
            if A::is_folded(self.raw(at), self.level()) {
                self.convert(at, false, change);
                self.add(0, -1);
                at += self.width();
            } else {
                self.exchange_leaf(at, None, change);
                at += 1;
            }
        }
    }

    fn regrant_stretch(&self, s: &Stretch, change: impl Fn(Attrs) -> Attrs + Copy) -> bool {
        let level = self.level();
        let Entry::Leaf { frame, attrs } = A::decode(plain::<A>(s.raw, level, s.index), level)
        else {
            return false;
        };
        let now = change(attrs);
        let seen = |attrs: Attrs| attrs.intersects(Attrs::RIGHTS);
        if !seen(attrs) {
            // Nothing that the hardware holds changes: as if it were mapped anew.
            self.each_piece((s.index, s.count), frame, now, |at, entries, frame, folds| {
                let folded = self.spell(at, entries, frame, now, folds);
                self.add(0, folded as i64);
            });
            self.refold(s.index, s.count);
            return false;
        }
        let new = word::<A>(frame, level, now, s.folded);
        if is_settled(attrs) {
            self.fill_stretch(&Stretch { raw: new, ..*s });
        } else {
            for index in s.index..s.index + s.count {
                self.exchange_leaf(index, None, change);
            }
        }
        A::transition(s.raw, new, level, self.tables.is_relaxed()) != Transition::Nothing
    }

    /// Cuts leaves from `frame` on where it begins or ends to be true that whole blocks of them may
    /// be folded; calls `act` with the first entry, how many, the first frame, and whether.
    fn each_piece(
        &self,
        (index, count): (usize, usize),
        frame: Pfn,
        attrs: Attrs,
        mut act: impl FnMut(usize, usize, Pfn, bool),
    ) {
        let order = A::order(self.level()).get();
        let block = A::fold_order(self.level()).filter(|_| attrs.intersects(Attrs::RIGHTS));
        let Some(block) = block.filter(|_| !attrs.contains(FOREIGN)) else {
            return act(index, count, frame, block.is_some());
        };
        let mut at = index;
        let frames = FrameSpan::new(frame, (count as u64) << order);
        Folios::new(self.tables.meta).each(frames, |folio, piece| {
            let entries = (piece.count >> order) as usize;
            act(at, entries, piece.start, folio.order >= block);
            at += entries;
            true
        });
    }

    /// Maps `count` entries from `index` on, which are zero, to the frames from `frame` on, with
    /// whole blocks folded where the folios behind them allow it.
    pub(super) fn put_any(&self, index: usize, count: usize, frame: Pfn, attrs: Attrs) {
        self.each_piece((index, count), frame, attrs, |at, entries, frame, folds| {
            self.put_piece(at, entries, frame, attrs, folds);
        });
    }

    /// The same where `folds` says whether they allow it.
    #[inline]
    pub(super) fn put_piece(
        &self,
        index: usize,
        count: usize,
        frame: Pfn,
        attrs: Attrs,
        folds: bool,
    ) {
        debug_assert!((index..index + count).all(|at| self.raw(at) == 0));
        let folded = self.spell(index, count, frame, attrs, folds);
        self.add(count as i64, folded as i64);
        if self.width() > 1 && folds {
            self.tables.count(Event::Fold, folded as u64);
            // A block that was begun before may be complete now.
            self.refold_ends(index, count);
        }
    }

    /// The leaf at entry `index`.
    #[inline]
    pub(super) fn leaf_at(&self, index: usize) -> Option<(Pfn, Attrs)> {
        match self.run(index, index + 1).what {
            What::Leaf { frame, attrs, .. } => Some((frame, attrs)),
            _ => None,
        }
    }
}
