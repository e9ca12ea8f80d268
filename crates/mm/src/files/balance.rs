//! The cost of reclaim: early refaults, and the kind of memory that should stay.
//!
//! ```text
//!   a folio of a file leaves    its place in the index keeps the clock      clock: pages that left
//!   it is read again            at most as many pages left since as memory has: with that much
//!                               more room it would have stayed; a cost of files
//!   anonymous memory leaves,    one write, and one read: both are costs of its kind
//!   and comes back
//! ```
//!
//! The notes are Linux's shadow entries, and the two costs its `lru_note_cost` (mm/workingset.c and
//! mm/swap.c are the reference for the behaviour). The kind with the lower cost gives more pages,
//! and old costs count less.

use crate::cache::Note;
use crate::fault::SWAPPINESS_MOST;
use crate::sync::{AtomicU64, Ordering};

/// The two kinds of memory that reclaim takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Pages of files that have a store.
    File,
    /// Anonymous memory, by way of swap devices.
    Anon,
}

/// The costs are halved when their sum exceeds this fraction of all memory.
const FORGET: u64 = 4;

/// This fraction of both costs is added to each: so the kind with all the cost still gives a fifth
/// of the other's pages, and can show that its cost has ended.
const ODDS: u64 = 4;

/// The clock, and the costs, in pages. Concurrent updates may lose a count.
pub(crate) struct Balance {
    clock: AtomicU64,
    costs: [AtomicU64; 2],
}

impl Balance {
    pub(crate) fn new() -> Self {
        Self { clock: AtomicU64::new(0), costs: [AtomicU64::new(0), AtomicU64::new(0)] }
    }

    /// The note for a folio that leaves now.
    pub(crate) fn note(&self) -> Note {
        Note::Left(self.clock.load(Ordering::Relaxed))
    }

    /// Counts pages that have left.
    pub(crate) fn left(&self, pages: u64) {
        self.clock.fetch_add(pages, Ordering::Relaxed);
    }

    /// Whether a page with that note left so recently that it would have stayed with all of
    /// `frames`.
    pub(crate) fn is_recent(&self, note: Note, frames: u64) -> bool {
        let now = self.clock.load(Ordering::Relaxed);
        matches!(note, Note::Left(at) if now.wrapping_sub(at) <= frames)
    }

    /// Counts pages that were read or written because memory of that kind had left; memory has
    /// `frames`.
    pub(crate) fn cost(&self, kind: Kind, pages: u64, frames: u64) {
        self.costs[kind as usize].fetch_add(pages, Ordering::Relaxed);
        let all = self.costs.each_ref().map(|cost| cost.load(Ordering::Relaxed));
        if all[0].saturating_add(all[1]) > frames / FORGET {
            for (cost, now) in self.costs.iter().zip(all) {
                cost.store(now / 2, Ordering::Relaxed);
            }
        }
    }

    /// How many of `pages` files should give under the policy's `swappiness`.
    pub(crate) fn share_of_files(&self, pages: u64, swappiness: u32) -> u64 {
        let [file, anon] = self.costs.each_ref().map(|cost| cost.load(Ordering::Relaxed));
        let odds = (file + anon) / ODDS + 1;
        let file_gives = u64::from(SWAPPINESS_MOST.saturating_sub(swappiness)) * (anon + odds);
        let anon_gives = u64::from(swappiness) * (file + odds);
        // One of the two is above zero. The product is wider, as `pages` may be all of `u64`.
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
