//! The search for cold units, so that the embedder may write them to a disk.
//!
//! A hand goes around over the slots, as in the clock algorithm. A unit that was stored or loaded
//! since the hand last came by gets a second chance and loses its mark; the rest is cold. That
//! needs one bit for each unit; a list in order of use would need two links, and an access to two
//! other units with every load.

use crate::entry::{Content, Entry, Unit};
use crate::pool::Found;
use crate::{Lender, Pool};

/// Slots that one object holds, consecutive, and cold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ColdRun {
    /// The first slot.
    pub first: u64,
    /// How many.
    pub count: u64,
}

impl<L: Lender> Pool<'_, L> {
    /// Fills `runs` with the slots whose last store or load is longest ago, as far as one bit for
    /// each unit shows, and returns how many runs there are. None of them overlap. Zero means that
    /// no unit takes memory, or that `runs` is empty.
    ///
    /// A run is the remainder of one unit, or a part of it where slots between were freed. Units
    /// that repeat one word are never returned: writing them out would free no memory.
    ///
    /// Only marks change. For each run, [`load`](Self::load) it, write it out, and
    /// [`free`](Self::free) it when that is done. Slots that are not freed are returned again when
    /// the hand comes by again. The search goes around twice at most.
    pub fn coldest(&mut self, runs: &mut [ColdRun]) -> usize {
        let mut found = 0;
        for _ in 0..2 {
            let start = self.hand;
            self.sweep(self.config.slots, runs, &mut found);
            if self.hand >= self.config.slots {
                self.hand = 0;
                self.sweep(start, runs, &mut found);
            }
            if found > 0 {
                break;
            }
        }
        found
    }

    /// Moves the hand towards `end` until all of `runs` are `found`.
    fn sweep(&mut self, end: u64, runs: &mut [ColdRun], found: &mut usize) {
        while self.hand < end {
            let Some(run) = runs.get_mut(*found) else { return };
            match self.tree.next_leaf(&self.lender, self.hand) {
                Some(next) if next < end => self.hand = next,
                _ => {
                    self.hand = end;
                    return;
                }
            }
            if let Some(cold) = self.visit(end) {
                *run = cold;
                *found += 1;
            }
        }
    }

    /// Looks at the slot under the hand and moves the hand on. Returns a cold run.
    fn visit(&mut self, end: u64) -> Option<ColdRun> {
        let zero = self.config.first;
        let slot = zero + self.hand;
        let Ok(Some(found)) = self.find(slot) else {
            self.hand += 1;
            return None;
        };
        let stop = self.part_end(&found, slot, zero + end);
        self.hand = stop - zero;
        if let Content::Same(_) = found.unit.content {
            return None;
        }
        if found.unit.is_touched {
            self.forget(&found, stop);
            return None;
        }
        Some(ColdRun { first: slot, count: stop - slot })
    }

    /// Takes a unit's mark away when no slot of it lies behind `stop`. So all of its parts get
    /// their second chance in the same round.
    fn forget(&mut self, found: &Found, stop: u64) {
        if self.next_of(stop, found.end(), found.unit.order, true).is_none() {
            let untouched = Unit { is_touched: false, ..found.unit };
            self.set_entry(found.head, Entry::Head(untouched));
        }
    }
}
