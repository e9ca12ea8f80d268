//! How far a call of reclaim has come.

use quire_arch::Arch;
use quire_hw::Hardware;

use super::Reclaim;
use crate::base::{AllSpaces, Hand};
use crate::files::Kind;
use crate::paging::PagedOut;
use crate::space::GroupId;

/// The rounds of aging without an access that a folio needs to leave, in the hand's first round and
/// those that follow.
pub(super) const ROUNDS: [u32; 4] = [2, 2, 1, 0];

/// The most pages scanned for each wanted page: after a quarter of them younger folios are taken,
/// and after all of them any.
const LOOKS_MOST: u64 = 64;

/// The pages that a hand scans in its first round for each wanted page: the kind that gives less
/// should also age more slowly. In later rounds it goes around everything.
const LOOKS_FIRST: u64 = 16;

/// The progress of a call of [`Reclaim::reclaim`].
pub(super) struct Quest<'a, A> {
    pub(super) pages: u64,
    /// The pages to free, and the pages to scan, before the other hand continues.
    goal: u64,
    looks: u64,
    pub(super) spaces: &'a dyn AllSpaces<A>,
    /// The group whose spaces are scanned; `None` for all.
    pub(super) group: Option<GroupId>,
    /// The hand that goes around them.
    pub(super) hand: &'a Hand,
    pub(super) done: Reclaimed,
    /// Pages that were scanned.
    pub(super) looked: u64,
    /// Rounds of the hand.
    round: usize,
    /// Not even one frame is left for paging out.
    pub(super) starved: bool,
}

impl<'a, A> Quest<'a, A> {
    pub(super) fn new(pages: u64, spaces: &'a dyn AllSpaces<A>, hand: &'a Hand) -> Self {
        let (group, done, looked, round, starved) = Default::default();
        let (goal, looks) = (pages, u64::MAX);
        Self { pages, goal, looks, spaces, group, hand, done, looked, round, starved }
    }

    /// Begins one hand's part of a round, which should find `pages` pages.
    pub(super) fn begin(&mut self, round: usize, pages: u64) {
        self.round = round;
        self.goal = self.done.pages().saturating_add(pages);
        let first = self.looked.saturating_add(pages.saturating_mul(LOOKS_FIRST));
        self.looks = if round == 0 { first } else { u64::MAX };
    }

    /// How many pages the hand should still find.
    pub(super) fn left(&self) -> u64 {
        self.goal.saturating_sub(self.done.pages())
    }

    pub(super) fn is_over(&self) -> bool {
        self.left() == 0 || self.looked >= self.looks || self.starved
    }

    /// How many pages are still missing in all; zero when no more can be freed.
    pub(super) fn lacks(&self) -> u64 {
        if self.starved { 0 } else { self.pages.saturating_sub(self.done.pages()) }
    }

    /// How many rounds of aging without an access are demanded by now.
    pub(super) fn idle(&self) -> u32 {
        let looks = self.looked / self.pages.max(1);
        let by_looks = match looks {
            0..=16 => 2,
            17..LOOKS_MOST => 1,
            _ => 0,
        };
        ROUNDS[self.round].min(by_looks)
    }
}

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// Counts folios that are leaving for a swap device.
    pub(super) fn count_out(&self, out: &PagedOut, quest: &mut Quest<'_, A>) {
        quest.done.paged_out += out.pages;
        self.files().balance.left(out.pages);
        self.files().balance.cost(Kind::Anon, out.pages, self.base().all_frames());
        quest.starved |= out.starved;
    }
}

/// The result of reclaim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reclaimed {
    /// Pages that are free now: of files, and unused parts of large folios.
    pub dropped: u64,
    /// Anonymous pages that are free as soon as they are written; see
    /// [`Paging::page_out`](crate::Paging::page_out).
    pub paged_out: u64,
}

impl Reclaimed {
    /// All pages.
    pub const fn pages(self) -> u64 {
        self.dropped + self.paged_out
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use quire_arch::X86_64;

    use super::*;
    use crate::space::Space;

    /// The rounds without an access that are demanded for one wanted page, after `looked` pages
    /// were scanned.
    fn idle(round: usize, looked: u64) -> u32 {
        let (none, hand): (&[&Space<X86_64>], _) = (&[], Hand::new());
        let mut quest = Quest::<X86_64>::new(1, &none, &hand);
        quest.begin(round, 1);
        quest.looked = looked;
        quest.idle()
    }

    #[test]
    fn d6_younger_folios_leave_after_much_scanning_or_in_later_rounds() {
        assert_eq!([0, 16, 17, 63, 64].map(|looked| idle(0, looked)), [2, 2, 1, 1, 0]);
        assert_eq!([0, 1, 2, 3].map(|round| idle(round, 0)), [2, 2, 1, 0]);
        assert_eq!(
            [(2, 64), (3, 17), (1, 17)].map(|(round, looked)| idle(round, looked)),
            [0, 0, 1]
        );
    }
}
