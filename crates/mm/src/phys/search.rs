//! A zone's memory of the search for groups that are cheap to empty (row E7).
//!
//! ```text
//!   groups   | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |      next: 4, cheap: 1 and 6
//!                  ▲           └ window ┘▲          a search looks at 4, 5, 6, and 1
//! ```
//!
//! A search looks at the next few groups, and again at those that were cheap when they were seen
//! last, the cheapest first, until none of the rest was cheaper. So it costs the same in a zone of
//! any size, and one after the other they see all groups.

use arrayvec::ArrayVec;
use quire_units::{FrameSpan, Pfn};

use crate::limits::GROUP_ORDER;

/// How many groups of each zone a search looks at besides those that the zone remembers.
pub(super) const WINDOW: u64 = 16;
/// How many groups a zone remembers of each kind.
const CHEAP: usize = 16;
const REFUSED: usize = 32;

/// Groups, and what each cost to empty when a search looked at it last: the cheapest first.
type Cheap = ArrayVec<(u64, Pfn), CHEAP>;

/// The groups of a zone that a search looks at next.
pub(super) struct Search {
    /// The number of the group that comes next.
    next: u64,
    pub(super) cheap: Cheap,
    /// The groups that could not be emptied last, the oldest first.
    refused: ArrayVec<Pfn, REFUSED>,
}

/// The groups that one search looks at in one zone.
pub(super) struct Looks {
    window: ArrayVec<Pfn, { WINDOW as usize }>,
    cheap: Cheap,
}

impl Search {
    pub(super) const fn new() -> Self {
        Self { next: 0, cheap: ArrayVec::new_const(), refused: ArrayVec::new_const() }
    }

    /// The groups to look at now, of all `groups` of the zone.
    pub(super) fn advance(&mut self, groups: FrameSpan) -> Looks {
        let (mut window, mut cheap) = (ArrayVec::new(), self.cheap.clone());
        let all = groups.count / GROUP_ORDER.pages();
        for _ in 0..WINDOW.min(all) {
            self.next = if self.next < all { self.next } else { 0 };
            window.push(groups.start.add(self.next << GROUP_ORDER.get()));
            self.next += 1;
        }
        window.retain(|group| !self.refused.contains(group));
        cheap.retain(|(_, group)| !self.refused.contains(group) && !window.contains(group));
        Looks { window, cheap }
    }

    /// Leaves a group out.
    pub(super) fn refuse(&mut self, group: Pfn) {
        if self.refused.is_full() {
            self.refused.remove(0);
        }
        self.refused.push(group);
    }

    /// Leaves no group out any more.
    pub(super) fn forgive(&mut self) {
        self.refused.clear();
    }
}

impl Looks {
    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = Pfn> {
        self.window.iter().copied().chain(self.cheap.iter().map(|(_, group)| *group))
    }

    /// Asks for the cost of those that may be the cheapest, and returns the cheapest ones, with
    /// the last known cost of each.
    pub(super) fn cheapest(self, cost: &mut dyn FnMut(Pfn) -> Option<u64>) -> Cheap {
        let fresh = self.window.into_iter().filter_map(|group| Some((cost(group)?, group)));
        let mut known: ArrayVec<(u64, Pfn), { WINDOW as usize + CHEAP }> = fresh.collect();
        let mut best = known.iter().map(|known| known.0).min().unwrap_or(u64::MAX);
        for (then, group) in self.cheap {
            let now = if then < best { cost(group) } else { Some(then) };
            if let Some(now) = now {
                best = best.min(now);
                known.push((now, group));
            }
        }
        known.sort_unstable();
        known.into_iter().take(CHEAP).collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
