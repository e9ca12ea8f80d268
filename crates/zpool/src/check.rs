//! A walk over everything that checks the pool's own rules. Not needed for correctness; for tests,
//! and for embedders that search for the code that damages memory.

use crate::entry::Entry;
use crate::heap::Heap;
use crate::pool::Found;
use crate::{Counters, Lender, Pool};

/// A rule that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The slot where it was noticed.
    pub slot: u64,
    /// The rule, as a sentence.
    pub rule: &'static str,
}

impl<L: Lender> Pool<'_, L> {
    /// Walks over all units and their objects, and compares with the counters. Contents are not
    /// verified; [`load`](Self::load) does that.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn check(&mut self) -> Result<(), Broken> {
        let mut counted = Counters::default();
        let (zero, mut at) = (self.config.first, 0);
        while let Some(next) = self.tree.next_leaf(&self.lender, at) {
            at = self.tree.leaf_end(next).min(self.config.slots);
            for slot in zero + next..zero + at {
                self.check_slot(slot, &mut counted)?;
            }
        }
        let now = &self.counters;
        let is_equal = counted.slots == now.slots
            && counted.same_units == now.same_units
            && counted.raw_units == now.raw_units
            && counted.packed_units == now.packed_units
            && counted.object_bytes == now.object_bytes;
        let rule = "the counters match the contents";
        if is_equal { Ok(()) } else { Err(Broken { slot: zero, rule }) }
    }

    fn check_slot(&mut self, slot: u64, counted: &mut Counters) -> Result<(), Broken> {
        let broken = |rule| Err(Broken { slot, rule });
        let entry = self.entry(slot);
        if entry == Entry::Empty {
            return Ok(());
        }
        counted.slots += 1;
        let Ok(Some(found)) = self.find(slot) else { return broken("each tail has a head") };
        if found.unit.order > self.config.unit_order {
            return broken("no unit is larger than was configured");
        }
        if let Entry::Tail(_) = entry {
            return Ok(());
        }
        counted.add(&found.unit.content);
        let head = self.head_of(found.base, found.unit.order).map(|found| found.head);
        if head != Some(slot) {
            return broken("a unit's head is its first slot, and no other of its order is there");
        }
        if self.check_object(&found).is_none() {
            return broken("the pieces of an object are its own, and as long as it together");
        }
        Ok(())
    }

    fn check_object(&mut self, found: &Found) -> Option<()> {
        let Some((length, first)) = found.unit.content.object() else { return Some(()) };
        Heap::read(&self.lender, found.owner(), first, self.packed.get_mut(..length as usize)?)
    }
}
