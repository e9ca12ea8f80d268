//! Page-at-a-time over contiguous blocks: counted, not timed.
//!
//! A block of folded entries is one translation for the CPU, so that none of its entries may
//! change alone. A kernel that forks page by page therefore unfolds the parent's block when it
//! write-protects the first page: all entries to zero, a flush, all entries again (break before
//! make, as the arm64 manual demands, section "TLB maintenance requirements"). And it folds the
//! child's block when the last page is in, in the same three steps. This made fork 37 times as slow
//! on one arm64 machine, before kernels forked by runs.
//!
//! The loops run on words of the real format, so that they count the words that must be written. A
//! hosted machine cannot time a flush that all CPUs wait for: hence no times.

use quire_arch::{Arch, Attrs, Entry, Level};
use quire_units::Pfn;

/// Counts of a fork.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Work {
    /// Words written in the parent's tables.
    pub(super) parent: u64,
    /// Words written in the child's tables.
    pub(super) child: u64,
    /// Blocks unfolded.
    pub(super) unfolds: u64,
    /// Blocks that became folded in three steps.
    pub(super) folds: u64,
    /// Flushes between a break and a make.
    pub(super) breaks: u64,
    /// All flushes.
    pub(super) flushes: u64,
}

/// Forks `entries` entries of last-level tables, all folded, page by page. `None` where the format
/// has no contiguous blocks.
pub(super) fn fork<A: Arch>(entries: u64) -> Option<Work> {
    let block = A::fold_order(Level::LAST)?.pages();
    let mut work = Work::default();
    for at in (0..entries).step_by(usize::try_from(block).ok()?) {
        // Frames from 0 on: which ones they are makes no difference.
        let mut from = folded::<A>(at, block);
        let mut to = vec![0; from.len()];
        for index in 0..from.len() {
            if A::is_folded(from[index], Level::LAST) {
                let count = unfold::<A>(&mut from);
                work.parent += count;
                work.unfolds += 1;
                work.breaks += 1;
            }
            from[index] = shared::<A>(from[index]);
            to[index] = from[index];
            work.parent += 1;
            work.child += 1;
        }
        work.child += fold::<A>(&mut to);
        work.folds += 1;
        work.breaks += 1;
    }
    work.flushes = work.breaks + 1;
    Some(work)
}

fn plain<A: Arch>(page: u64) -> u64 {
    let attrs = Attrs::READ | Attrs::WRITE | Attrs::USER | Attrs::YOUNG | Attrs::DIRTY;
    A::leaf(Pfn::new(page), Level::LAST, attrs)
}

fn folded<A: Arch>(first: u64, block: u64) -> Vec<u64> {
    (first..first + block).map(|page| A::fold(plain::<A>(page), Level::LAST)).collect()
}

/// The word of the same page, shared and not writable.
fn shared<A: Arch>(word: u64) -> u64 {
    match A::decode(word, Level::LAST) {
        Entry::Leaf { frame, attrs } => {
            let shared = attrs.difference(Attrs::WRITE) | Attrs::COW;
            A::leaf(frame, Level::LAST, shared)
        }
        _ => word,
    }
}

/// Unfolds a block; returns the number of words written.
fn unfold<A: Arch>(block: &mut [u64]) -> u64 {
    let broken = block.to_vec();
    block.fill(0);
    for (index, (word, old)) in block.iter_mut().zip(broken).enumerate() {
        *word = A::unfold(old, Level::LAST, index);
    }
    2 * block.len() as u64
}

/// Folds a block; returns the number of words written.
fn fold<A: Arch>(block: &mut [u64]) -> u64 {
    let broken = block.to_vec();
    block.fill(0);
    for (word, old) in block.iter_mut().zip(broken) {
        *word = A::fold(old, Level::LAST);
    }
    2 * block.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_arch::{Arm4k, Arm16k, Sv48, X86_64};

    #[test]
    fn c5_page_at_a_time_breaks_each_block_of_both_sides_and_writes_its_words_three_times() {
        let work = fork::<Arm4k>(512).unwrap();
        assert_eq!((work.parent, work.child), (3 * 512, 3 * 512));
        assert_eq!((work.unfolds, work.folds, work.breaks, work.flushes), (32, 32, 64, 65));
        assert_eq!(fork::<Arm16k>(2048).unwrap().unfolds, 16);
        assert_eq!(fork::<Sv48>(512).unwrap().breaks, 64);
    }

    #[test]
    fn c5_formats_without_contiguous_blocks_have_nothing_to_unfold() {
        assert_eq!(fork::<X86_64>(512), None);
    }

    #[test]
    fn c5_unfolding_and_folding_give_the_same_words_again() {
        let mut words = folded::<Sv48>(32, 16);
        let before = words.clone();
        assert_eq!(unfold::<Sv48>(&mut words), 32);
        assert!(words.iter().zip(32..).all(|(word, page)| *word == plain::<Sv48>(page)));
        assert_eq!(fold::<Sv48>(&mut words), 32);
        assert_eq!(words, before);
    }
}
