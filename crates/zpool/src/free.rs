//! Freeing: of whole units, and of parts of them.

use crate::entry::Entry;
use crate::pool::Found;
use crate::{Error, Lender, Pool};

impl<L: Lender> Pool<'_, L> {
    /// Frees the `count` slots from `first` on, empty or not, and returns how many of them stored
    /// data. A unit with a slot left keeps its memory until that slot is freed, too.
    ///
    /// This never takes a page. Pages that become empty are given back at once;
    /// [`compact`](Self::compact) empties others.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]: nothing was done.
    pub fn free(&mut self, first: u64, count: u64) -> Result<u64, Error> {
        self.check_range(first, count)?;
        let freed = self.erase(first, first + count);
        self.prune(first, first + count);
        Ok(freed)
    }

    /// Frees all slots, so that all pages are given back. (Where other code damaged the pool's
    /// memory, pages of damaged units may be missing.)
    pub fn clear(&mut self) {
        let (first, end) = (self.config.first, self.config.first + self.config.slots);
        self.erase(first, end);
        self.prune(first, end);
    }

    /// Empties the slots from `first` to `end`, exclusive. Nodes of the tree stay.
    pub(crate) fn erase(&mut self, first: u64, end: u64) -> u64 {
        let zero = self.config.first;
        let mut slot = first;
        let mut freed = 0;
        while slot < end {
            let stop = match self.find(slot) {
                Ok(None) => match self.tree.next_leaf(&self.lender, slot + 1 - zero) {
                    Some(next) => {
                        slot = zero + next;
                        continue;
                    }
                    None => break,
                },
                Ok(Some(found)) => self.erase_part(&found, slot, end),
                // A tail whose head was damaged: its object cannot be found any more.
                Err(_) => slot + 1,
            };
            self.fill_entries(slot, stop, Entry::Empty);
            freed += stop - slot;
            slot = stop;
        }
        self.counters.slots = self.counters.slots.saturating_sub(freed);
        freed
    }

    /// Prepares a unit for losing its consecutive slots from `slot` on, before `end`; returns the
    /// first one that stays.
    fn erase_part(&mut self, found: &Found, slot: u64, end: u64) -> u64 {
        let order = found.unit.order;
        let stop = self.part_end(found, slot, end);
        if found.head < slot {
            return stop;
        }
        match self.next_of(stop, found.end(), order, true) {
            Some(heir) => self.set_entry(heir, Entry::Head(found.unit)),
            None => {
                let object = found.unit.content.object().and_then(|(_, first)| first);
                self.heap.remove(&mut self.lender, found.owner(), object);
                self.counters.subtract(&found.unit.content);
            }
        }
        stop
    }

    /// The first slot behind `slot` that is not of this unit, or else `end`.
    pub(crate) fn part_end(&self, found: &Found, slot: u64, end: u64) -> u64 {
        let end = end.min(found.end());
        self.next_of(slot, end, found.unit.order, false).unwrap_or(end)
    }

    /// Gives back the nodes of the tree that the slots from `first` to `end`, exclusive, left
    /// empty.
    pub(crate) fn prune(&mut self, first: u64, end: u64) {
        let zero = self.config.first;
        self.tree.prune(&mut self.lender, first - zero, end - zero);
    }
}
