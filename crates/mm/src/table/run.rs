//! Runs: maximal stretches of consecutive entries in one state.

use quire_arch::{Arch, Attrs, Entry};
use quire_hw::Hardware;
use quire_units::{PageSpan, Pfn};

use super::Locked;

/// A maximal stretch of consecutive entries of one table that are in one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Its first entry.
    pub index: usize,
    /// How many entries.
    pub count: usize,
    /// Their state.
    pub what: What,
}

/// The state of a run's entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Nothing there.
    Absent,
    /// Blocks of consecutive frames with equal rights.
    Leaf {
        /// The first frame.
        frame: Pfn,
        /// Their rights; young and dirty if any of them is.
        attrs: Attrs,
        /// Whether all words are one arithmetic sequence, and the hardware cannot change them:
        /// they are young already, and dirty or not writable.
        settled: bool,
    },
    /// A lower table; such a run has one entry.
    Table(Pfn),
    /// A marker; such a run has one entry.
    Marker(u64),
}

/// What the hardware notes by itself, and a run therefore need not have in common.
const NOTED: Attrs = Attrs::YOUNG.union(Attrs::DIRTY);

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// The run that begins at entry `index`, ended by entry `end` (exclusive) at the latest.
    pub fn run(&self, index: usize, end: usize) -> Run {
        let word = self.word(index);
        let (count, what) = match A::decode(word, self.level()) {
            Entry::Absent => (self.absent(index, end), What::Absent),
            Entry::Leaf { frame, attrs } => self.leaves(index, end, word, frame, attrs),
            Entry::Table(frame) => (1, What::Table(frame)),
            Entry::Marker(payload) => (1, What::Marker(payload)),
            // Nothing this library writes; the examiner of a hosted machine reports it.
            Entry::Malformed => (1, What::Marker(0)),
        };
        Run { index, count, what }
    }

    #[inline]
    fn absent(&self, index: usize, end: usize) -> usize {
        self.count_run(index, end, 0, 0)
    }

    #[inline]
    fn leaves(
        &self,
        index: usize,
        end: usize,
        first: u64,
        frame: Pfn,
        mut attrs: Attrs,
    ) -> (usize, What) {
        let level = self.level();
        let step = A::step(level);
        let pages = A::order(level).pages();
        let fixed = attrs.difference(NOTED);
        let mut exact = true;
        let mut count = 1 + self.count_run(index + 1, end, first.wrapping_add(step), step);
        // From here on the words differ in what the hardware notes, if the run goes on at all.
        while index + count < end {
            let next = frame.add(pages * count as u64);
            match A::decode(self.word(index + count), level) {
                Entry::Leaf { frame, attrs: also }
                    if frame == next && also.difference(NOTED) == fixed =>
                {
                    attrs |= also;
                }
                _ => break,
            }
            exact = false;
            count += 1;
        }
        let quiet = attrs.contains(Attrs::YOUNG)
            && (attrs.contains(Attrs::DIRTY) || !attrs.contains(Attrs::WRITE));
        (count, What::Leaf { frame, attrs, settled: exact && quiet })
    }

    /// The pages of a run.
    #[inline]
    pub fn pages(&self, run: &Run) -> PageSpan {
        PageSpan::new(self.page(run.index), self.page(run.index + run.count))
    }
}
