//! What reclaiming has cost: what came back too soon, and which kind of memory had better stay.
//!
//! ```text
//!   a folio of a file leaves    its place in the index notes the clock      clock: pages that left
//!   it is read again            as many pages left since as there is memory, or fewer:
//!                               with that much more room it would have stayed: a cost of files
//!   anonymous memory leaves,    written, and read again: both are costs of its kind
//!   and comes back
//! ```
//!
//! The notes are Linux's shadow entries, and the two costs its `lru_note_cost` (mm/workingset.c and
//! mm/swap.c are the reference for the behaviour). The kind that has cost less gives more, and what
//! was long ago counts less.

use crate::cache::Note;
use crate::fault::SWAPPINESS_MOST;
use crate::sync::{AtomicU64, Ordering};

/// The two kinds of memory that can be had back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Pages of files that have a store.
    File,
    /// Anonymous memory, by way of swap devices.
    Anon,
}

/// Costs are forgotten by halves when they come to so many parts of all memory.
const FORGET: u64 = 4;

/// A cost is looked at beside this part of both: so the kind that has cost everything still gives a
/// fifth of what the other does, and may show that it costs no more.
const ODDS: u64 = 4;

/// The clock, and the costs, in pages. Of two who count at the same time, one may not be heard.
pub(crate) struct Balance {
    clock: AtomicU64,
    costs: [AtomicU64; 2],
}

impl Balance {
    pub(crate) fn new() -> Self {
        Self { clock: AtomicU64::new(0), costs: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    /// What is noted of a folio that leaves now.
    pub(crate) fn note(&self) -> Note {
        Note::Left(self.clock.load(Ordering::Relaxed))
    }

    /// So many pages have left.
    pub(crate) fn left(&self, pages: u64) {
        self.clock.fetch_add(pages, Ordering::Relaxed);
    }

    /// Whether what left with that note was gone for so short that it had stayed if it had had all
    /// of `frames`.
    pub(crate) fn is_recent(&self, note: Note, frames: u64) -> bool {
        let now = self.clock.load(Ordering::Relaxed);
        matches!(note, Note::Left(at) if now.wrapping_sub(at) <= frames)
    }

    /// So many pages were moved because memory of that kind had left; there are `frames`.
    pub(crate) fn cost(&self, kind: Kind, pages: u64, frames: u64) {
        self.costs[kind as usize].fetch_add(pages, Ordering::Relaxed);
        let all = self.costs.each_ref().map(|cost| cost.load(Ordering::Relaxed));
        if all[0].saturating_add(all[1]) > frames / FORGET {
            for (cost, now) in self.costs.iter().zip(all) {
                cost.store(now / 2, Ordering::Relaxed);
            }
        }
    }

    /// How many of `pages` files are to give, where the policy's `swappiness` is that.
    pub(crate) fn share_of_files(&self, pages: u64, swappiness: u32) -> u64 {
        let [file, anon] = self.costs.each_ref().map(|cost| cost.load(Ordering::Relaxed));
        let odds = (file + anon) / ODDS + 1;
        let file_gives = u64::from(SWAPPINESS_MOST.saturating_sub(swappiness)) * (anon + odds);
        let anon_gives = u64::from(swappiness) * (file + odds);
        // One of them is more than nothing. Wider, as pages may be all there are.
        (u128::from(pages) * u128::from(file_gives)).div_ceil((file_gives + anon_gives).into())
            as u64
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn d6_the_kind_that_costs_more_gives_less() {
        let balance = Balance::new();
        assert_eq!(balance.share_of_files(1000, 100), 500);
        assert_eq!(balance.share_of_files(1000, 60), 700);
        assert_eq!(balance.share_of_files(1000, 0), 1000);
        assert_eq!(balance.share_of_files(1000, 200), 0);
        assert_eq!(balance.share_of_files(u64::MAX, 0), u64::MAX);
        balance.cost(Kind::File, 10_000, 1 << 20);
        let files = balance.share_of_files(1000, 100);
        assert!((150..=170).contains(&files), "{files}");
        balance.cost(Kind::Anon, 10_000, 1 << 20);
        assert_eq!(balance.share_of_files(1000, 100), 500);
        balance.cost(Kind::Anon, 10_000, 1 << 20);
        assert!(balance.share_of_files(1000, 100) > 550);
    }

    #[test]
    fn d6_what_was_long_ago_counts_less() {
        let balance = Balance::new();
        let frames = 4096;
        (0..64).for_each(|_| balance.cost(Kind::File, 64, frames));
        assert!(balance.share_of_files(1000, 100) < 200);
        (0..64).for_each(|_| balance.cost(Kind::Anon, 64, frames));
        assert!(balance.share_of_files(1000, 100) > 800);
    }

    #[test]
    fn b1_what_left_long_ago_is_not_missed() {
        let balance = Balance::new();
        balance.left(7);
        let note = balance.note();
        balance.left(100);
        assert!(balance.is_recent(note, 100) && !balance.is_recent(note, 99));
        assert!(!balance.is_recent(Note::Small, 100) && !balance.is_recent(Note::Failed, 100));
    }
}
