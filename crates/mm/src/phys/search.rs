//! A zone's memory of the search for groups that are cheap to empty (row E7).
//!
//! ```text
//!   groups   | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |      next: 4, cheap: 1 and 6
//!                  ▲           └ window ┘▲          a search looks at 4, 5, 6, and 1
//! ```
//!
//! A search looks at the groups that were cheap when they were seen last, and at the next few. So
//! it costs the same in a zone of any size, and one after the other they see all groups.

use arrayvec::ArrayVec;
use quire_units::{FrameSpan, Pfn};

use crate::limits::GROUP_ORDER;

/// How many groups of each zone a search looks at besides those that the zone remembers.
pub(super) const WINDOW: u64 = 16;
/// How many groups a zone remembers of each kind.
pub(super) const CHEAP: usize = 16;
const REFUSED: usize = 32;

/// The groups of a zone that a search looks at next.
pub(super) struct Search {
    /// The number of the group that comes next.
    next: u64,
    /// The groups that were cheap to empty when a search looked at them last.
    pub(super) cheap: ArrayVec<Pfn, CHEAP>,
    /// The groups that could not be emptied last, the oldest first.
    pub(super) refused: ArrayVec<Pfn, REFUSED>,
}

/// The groups that one search looks at in one zone.
pub(super) type Looks = ArrayVec<Pfn, { CHEAP + WINDOW as usize }>;

impl Search {
    pub(super) const fn new() -> Self {
        Self { next: 0, cheap: ArrayVec::new_const(), refused: ArrayVec::new_const() }
    }

    /// The groups to look at now, of all `groups` of the zone.
    pub(super) fn advance(&mut self, groups: FrameSpan) -> Looks {
        let mut looks: Looks = self.cheap.take().into_iter().collect();
        let all = groups.count / GROUP_ORDER.pages();
        for _ in 0..WINDOW.min(all) {
            self.next = if self.next < all { self.next } else { 0 };
            let group = groups.start.add(self.next << GROUP_ORDER.get());
            if !looks.contains(&group) {
                looks.push(group);
            }
            self.next += 1;
        }
        looks.retain(|group| !self.refused.contains(group));
        looks
    }
}
