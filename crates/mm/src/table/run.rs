//! Runs: maximal stretches of consecutive entries in one state.

use quire_arch::{Arch, Attrs, Entry};
use quire_hw::Hardware;
use quire_units::{PageSpan, Pfn};

use super::Locked;
use super::mark::{Marks, ascent};
use super::word::{NOTED, is_settled};

/// A maximal stretch of consecutive entries of one table that are in one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its first entry.
    pub index: usize,
    /// How many entries.
    pub count: usize,
    /// Their state.
    pub what: What,
    /// Its first word, as it is.
    pub(super) raw: u64,
    /// The first word determines the rest: all are folded or none, and their accessed and dirty
    /// bits are equal. (In a block that has both bits set, the other words are not read.)
    pub(super) uniform: bool,
}

impl Run {
    /// Whether they are leaves that the hardware cannot change.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.what, What::Leaf { settled: true, .. })
    }
}

/// The state of a run's entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Nothing there.
    Absent,
    /// Blocks of consecutive frames with equal rights, in contiguous blocks or not.
    Leaf {
        /// The first frame.
        frame: Pfn,
        /// Their rights; the accessed and dirty bits if any of them, or of its block, has them.
        attrs: Attrs,
        /// The hardware cannot change the words: they are accessed already, and dirty or not
        /// writable.
        settled: bool,
    },
    /// A lower table; such a run has one entry.
    Table(Pfn),
    /// Markers with equal payloads, or each with the next one's: guards, say, or swap slots.
    Marker(Marks),
}

/// Consecutive leaves whose first word determines the rest. A run consists of such stretches, and
/// mostly of one. A stretch may begin or end within a block whose words differ in noted bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) index: usize,
    pub(super) count: usize,
    /// The first word as it is.
    pub(super) raw: u64,
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// The run that begins at entry `index`, ended by entry `end` (exclusive) at the latest.
    pub fn run(&self, index: usize, end: usize) -> Run {
        let raw = self.raw(index);
        let mut uniform = true;
        let (count, what) = match self.meaning(raw, index) {
            Entry::Absent if index + 1 == end => (1, What::Absent),
            Entry::Absent => (self.count_run(index, end, 0, 0), What::Absent),
            Entry::Leaf { frame, attrs } => {
                let first = self.stretch(index, end, raw).count;
                let all = self.leaves(index, end, first, frame, attrs);
                uniform = first == all.0;
                all
            }
            Entry::Table(frame) => (1, What::Table(frame)),
            Entry::Marker(payload) => self.marks(index, end, raw, payload),
            // This library writes no such word; the examiner of a hosted machine reports it.
            Entry::Malformed => (1, What::Marker(Marks { first: 0, ascending: false })),
        };
        Run { index, count, what, raw, uniform }
    }

    /// The run of leaves that begins at entry `index` with a stretch of `count` entries.
    #[inline]
    fn leaves(
        &self,
        index: usize,
        end: usize,
        mut count: usize,
        frame: Pfn,
        mut attrs: Attrs,
    ) -> (usize, What) {
        let pages = self.unit().pages();
        let fixed = attrs.difference(NOTED);
        let mut settled = is_settled(attrs);
        // The words beyond differ in their accessed and dirty bits, or in whether they are folded,
        // if the run goes on at all.
        while index + count < end {
            let at = index + count;
            let raw = self.raw(at);
            let next = frame.add(pages * count as u64);
            match self.meaning(raw, at) {
                Entry::Leaf { frame, attrs: also }
                    if frame == next && also.difference(NOTED) == fixed =>
                {
                    attrs |= also;
                    settled &= is_settled(also);
                }
                _ => break,
            }
            count += self.stretch(at, end, raw).count;
        }
        if self.folded() > 0 && !attrs.contains(NOTED) {
            attrs |= self.noted_around(index, index + count);
        }
        (count, What::Leaf { frame, attrs, settled })
    }

    fn marks(&self, index: usize, end: usize, raw: u64, first: u64) -> (usize, What) {
        let equal = self.count_run(index, end, raw, 0);
        let ascending = match ascent::<A>(first) {
            Some(step) => self.count_run(index, end, raw, step),
            None => 1,
        };
        (equal.max(ascending), What::Marker(Marks { first, ascending: ascending > 1 }))
    }

    /// The stretch that begins at entry `index`, whose word is `raw`, and ends before entry `end`.
    #[inline(always)]
    pub(super) fn stretch(&self, index: usize, end: usize, raw: u64) -> Stretch {
        let count = if self.is_folded(raw) {
            self.blocks(index, end, raw)
        } else {
            let step = A::step(self.level());
            let (at, next) = (index + 1, raw.wrapping_add(step));
            // Loading a word costs less than counting a run of none.
            let goes_on = at < end && self.raw(at) == next;
            1 + if goes_on { self.count_run(at, end, next, step) } else { 0 }
        };
        Stretch { index, count, raw }
    }

    /// The same, for callers that seldom come here.
    #[inline(never)]
    pub(super) fn stretch_of(&self, index: usize, end: usize, raw: u64) -> Stretch {
        self.stretch(index, end, raw)
    }

    /// The run that entry `index` is by itself.
    #[inline]
    pub fn entry(&self, index: usize) -> Run {
        let raw = self.raw(index);
        // A bit that is set anywhere in a contiguous block holds for each entry: `run` collects it.
        if !self.is_folded(raw)
            && let Entry::Leaf { frame, attrs } = self.meaning(raw, index)
        {
            let what = What::Leaf { frame, attrs, settled: is_settled(attrs) };
            return Run { index, count: 1, what, raw, uniform: true };
        }
        self.run(index, index + 1)
    }

    /// How many entries from `index` on, whose word is `raw`, are in contiguous blocks in step.
    fn blocks(&self, index: usize, end: usize, raw: u64) -> usize {
        let (level, width) = (self.level(), self.width());
        let (step, inner) = (A::step(level), A::fold_step(level));
        let entry = self.meaning(raw, index);
        // A block has one state: with both bits set in one word, the others are not read.
        let settled = matches!(entry, Entry::Leaf { attrs, .. } if attrs.contains(NOTED));
        if !settled && inner == step {
            return self.count_run(index, end, raw, step);
        }
        let mut at = self.block_at(index);
        let mut first = raw.wrapping_sub(inner.wrapping_mul((index - at) as u64));
        loop {
            let (from, next) = (at.max(index), end.min(at + width));
            if !settled {
                let alike = self.count_run(from, next, first, inner);
                if from + alike < next {
                    return from + alike - index;
                }
            }
            (at, first) = (at + width, first.wrapping_add(step.wrapping_mul(width as u64)));
            if at >= end || settled && self.raw(at) != first {
                return next - index;
            }
        }
    }

    /// The stretches of the first `count` entries of a run of leaves.
    #[inline]
    pub(super) fn stretches(&self, run: &Run, count: usize) -> impl Iterator<Item = Stretch> {
        let (end, uniform) = (run.index + count, run.uniform);
        let mut at = run.index;
        core::iter::from_fn(move || {
            if at == end {
                return None;
            }
            let (index, raw) = (at, self.raw(at));
            let stretch = match uniform {
                true => Stretch { index, count: end - index, raw },
                false => self.stretch_of(index, end, raw),
            };
            at += stretch.count;
            Some(stretch)
        })
    }

    /// The bits noted outside of `start..end`, in contiguous blocks that reach in.
    fn noted_around(&self, start: usize, end: usize) -> Attrs {
        let mut noted = Attrs::empty();
        for (edge, inside) in [(start, start), (end, end.wrapping_sub(1))] {
            if edge & (self.width() - 1) != 0 && self.is_folded(self.raw(inside)) {
                noted |= self.gathered(self.block_at(inside));
            }
        }
        noted
    }

    /// The bits noted in any word of the block that begins at entry `first`.
    pub(super) fn gathered(&self, first: usize) -> Attrs {
        let (mut at, end) = (first, first + self.width());
        let mut noted = Attrs::empty();
        while at < end && !noted.contains(NOTED) {
            let raw = self.raw(at);
            noted |= self.leaf_attrs(raw, at).intersection(NOTED);
            at += self.stretch_of(at, end, raw).count;
        }
        noted
    }

    /// The attributes of a leaf whose word at entry `index` is `raw`.
    pub(super) fn leaf_attrs(&self, raw: u64, index: usize) -> Attrs {
        match self.meaning(raw, index) {
            Entry::Leaf { attrs, .. } => attrs,
            _ => Attrs::empty(),
        }
    }

    /// The pages of a run.
    #[inline]
    pub fn pages(&self, run: &Run) -> PageSpan {
        self.span(run.index, run.count)
    }
}
