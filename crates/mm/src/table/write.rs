//! Writing leaves where the hardware sees none. Whole blocks are written folded at once, and a
//! block that becomes foldable at an end is folded; [`fold`](super::fold) has the rules.
//!
//! ```text
//!   put ─► spell ─► fill                                   where no block may be folded
//!            └─► spell_blocks ─► fill_stretch ─► fill      head | folded blocks | tail
//! ```

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{Order, Pfn};

use super::mark::Marks;
use super::run::Stretch;
use super::word::is_foreign;
use super::word::word;
use super::{Locked, What};
use crate::folio::Folios;
use crate::limits::ORDER_MAX;

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Writes `marks` over `count` entries from `index` on; the caller keeps the counts. An entry
    /// that stands for a block has the payload of its first page.
    pub(super) fn overwrite(&self, index: usize, count: usize, marks: Marks) {
        let block = self.unit();
        if block == Order::ZERO || !marks.ascending {
            let (first, step) = (A::marker(marks.first), marks.step::<A>());
            let ahead = if marks.ascending { count as u64 - 1 } else { 0 };
            debug_assert_eq!(first.wrapping_add(step * ahead), A::marker(marks.first + ahead));
            return self.fill(index, count, first, step);
        }
        for at in 0..count {
            let payload = marks.first + ((at as u64) << block.get());
            self.fill(index + at, 1, A::marker(payload), 0);
        }
    }

    /// Whether folios of order `each` are large enough for contiguous blocks of this level.
    #[inline]
    pub(super) fn may_fold_in(&self, each: Order) -> bool {
        self.fold_order().is_some_and(|block| each >= block)
    }

    /// Writes leaves over words that the hardware does not see, whole blocks of a folio of order
    /// `each` folded. How many blocks.
    #[inline(always)]
    pub(super) fn spell(
        &self,
        index: usize,
        count: usize,
        frame: Pfn,
        attrs: Attrs,
        each: Order,
    ) -> usize {
        if self.may_fold_in(each) {
            return self.spell_blocks(index, count, frame, attrs);
        }
        let level = self.level();
        self.fill(index, count, A::leaf(frame, level, attrs), A::step(level));
        0
    }

    /// The same where folios may be folded.
    pub(super) fn spell_blocks(
        &self,
        index: usize,
        count: usize,
        frame: Pfn,
        attrs: Attrs,
    ) -> usize {
        let (level, end) = (self.level(), index + count);
        let from = |at: usize| self.frames(frame, at - index).end();
        let (mut head, mut tail) = (index.next_multiple_of(self.width()), self.block_at(end));
        let block = self.fold_order().unwrap_or_default();
        let whole = head < tail && from(head).is_aligned(block.pages());
        if !whole || !attrs.intersects(Attrs::RIGHTS) {
            (head, tail) = (end, end);
        }
        for (at, end, folded) in [(index, head, false), (head, tail, true), (tail, end, false)] {
            if at < end {
                let raw = word::<A>(from(at), level, attrs, folded);
                self.fill_stretch(&Stretch { index: at, count: end - at, raw });
            }
        }
        (tail - head) / self.width()
    }

    /// The difference between `raw`, the word of a leaf, and the next word of its block or run.
    #[inline]
    pub(super) fn step_after(&self, raw: u64) -> u64 {
        let level = self.level();
        if self.is_folded(raw) { A::fold_step(level) } else { A::step(level) }
    }

    /// Writes the words of a stretch.
    #[inline]
    pub(super) fn fill_stretch(&self, s: &Stretch) {
        let (step, block_step) = (A::step(self.level()), self.step_after(s.raw));
        if block_step == step {
            return self.fill(s.index, s.count, s.raw, step);
        }
        // All words of a block are equal.
        let (mut at, mut raw, end) = (s.index, s.raw, s.index + s.count);
        while at < end {
            let next = (self.block_at(at) + self.width()).min(end);
            self.fill(at, next - at, raw, block_step);
            raw = raw.wrapping_add(step.wrapping_mul(self.width() as u64));
            at = next;
        }
    }

    /// Whether a contiguous block may hold a leaf at entry `index` that maps `frame`: blocks are
    /// aligned in the frames as in the entries.
    fn is_in_step(&self, index: usize, frame: Pfn) -> bool {
        let ahead = index.next_multiple_of(self.width()) - index;
        let first = self.frames(frame, ahead).end();
        self.fold_order().is_some_and(|block| first.is_aligned(block.pages()))
    }

    /// Calls `act` with leaves from `frame` on: first entry, how many, first frame, and order of
    /// their folio. Cuts them where folios end only if that decides which blocks may be folded.
    pub(super) fn each_piece(
        &self,
        index: usize,
        count: usize,
        frame: Pfn,
        attrs: Attrs,
        mut act: impl FnMut(usize, usize, Pfn, Order),
    ) {
        let never = !attrs.intersects(Attrs::RIGHTS) || !self.is_in_step(index, frame);
        if never || is_foreign(attrs) {
            return act(index, count, frame, if never { Order::ZERO } else { ORDER_MAX });
        }
        let mut at = index;
        Folios::new(self.tables.meta).each(self.frames(frame, count), |folio, piece| {
            let entries = (piece.count >> self.unit().get()) as usize;
            act(at, entries, piece.start, folio.order);
            at += entries;
            true
        });
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
