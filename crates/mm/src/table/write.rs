//! Writing leaves: where nothing was, and over what is there. Both keep contiguous blocks whole,
//! and fold what becomes foldable; [`fold`](super::fold) has the rules.

use quire_arch::{Arch, Attrs, Entry, Transition};
use quire_hw::Hardware;
use quire_units::{FrameSpan, Pfn};

use super::fold::{plain, word};
use super::map::FOREIGN;
use super::run::{Stretch, is_settled};
use super::{Locked, Run, What};
use crate::folio::Folios;
use crate::stats::Event;

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
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
    #[inline(always)]
    pub(super) fn fill_stretch(&self, s: &Stretch) {
        let step = A::step(self.level());
        let block_step = if s.folded { A::fold_step(self.level()) } else { step };
        if block_step == step {
            self.fill(s.index, s.count, s.raw, step);
        } else {
            self.fill_blocks(s, step, block_step);
        }
    }

    fn fill_blocks(&self, s: &Stretch, step: u64, block_step: u64) {
        let (mut at, mut raw, end) = (s.index, s.raw, s.index + s.count);
        while at < end {
            let next = (self.block_at(at) + self.width()).min(end);
            self.fill(at, next - at, raw, block_step);
            raw = raw.wrapping_add(step.wrapping_mul(self.width() as u64));
            at = next;
        }
    }

    /// Gives the first `count` leaves of a run, which cut no block, the attributes that `change`
    /// makes of theirs: block for block in place, without unfolding. `change` alters rights and the
    /// library's own flags, in one way for the whole run. Whether that needs a flush, or `flushes`
    /// says that there will be one. What may have become foldable at the ends is for the caller to
    /// fold.
    pub(super) fn regrant(
        &self,
        run: &Run,
        count: usize,
        flushes: bool,
        change: impl Fn(Attrs) -> Attrs + Copy,
    ) -> bool {
        let What::Leaf { attrs, .. } = run.what else { return false };
        if self.folded() > 0 && !change(attrs).intersects(Attrs::RIGHTS) {
            self.hide(run, count, change);
            return true;
        }
        let regrant = |flushes, stretch| self.regrant_stretch(&stretch, flushes, change);
        self.stretches(run, count).fold(flushes, regrant)
    }

    /// Takes all rights from leaves that the hardware sees: there is no block where it sees none.
    fn hide(&self, run: &Run, count: usize, change: impl Fn(Attrs) -> Attrs + Copy) {
        let (level, settled) = (self.level(), run.is_settled());
        let (mut at, end) = (run.index, run.index + count);
        while at < end {
            let raw = self.raw(at);
            if !A::is_folded(raw, level) {
                let stretch = self.stretch(at, end, raw);
                self.regrant_stretch(&stretch, true, change);
                at += stretch.count;
                continue;
            }
            match A::decode(plain::<A>(raw, level, at), level) {
                Entry::Leaf { frame, attrs } if settled => {
                    let hidden = A::leaf(frame, level, change(attrs | self.gathered(at)));
                    self.fill(at, self.width(), hidden, A::step(level));
                }
                _ => self.convert(at, false, change),
            }
            self.add(0, -1);
            at += self.width();
        }
    }

    #[inline]
    fn regrant_stretch(
        &self,
        s: &Stretch,
        flushes: bool,
        change: impl Fn(Attrs) -> Attrs + Copy,
    ) -> bool {
        let level = self.level();
        let Entry::Leaf { frame, attrs } = self.meaning(plain::<A>(s.raw, level, s.index)) else {
            return flushes;
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
            return flushes;
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
        flushes || self.must_flush(s.raw, new)
    }

    /// Whether a leaf that was `old` and is `new` must be flushed.
    pub(super) fn must_flush(&self, old: u64, new: u64) -> bool {
        let relaxed = self.tables.is_relaxed();
        A::transition(old, new, self.level(), relaxed) != Transition::Nothing
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
    pub(crate) fn leaf_at(&self, index: usize) -> Option<(Pfn, Attrs)> {
        match self.run(index, index + 1).what {
            What::Leaf { frame, attrs, .. } => Some((frame, attrs)),
            _ => None,
        }
    }
}
