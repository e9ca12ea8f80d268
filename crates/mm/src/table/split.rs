//! Splitting a large leaf into a table of smaller ones.

use quire_arch::{Arch, Entry, Level, Transition};
use quire_hw::{FrameRun, Hardware};
use quire_units::{PageSpan, Pfn, Vpn};

use super::{Gather, Lack, Locked, Marks, Tables};
use crate::limits::ORDER_MAX;

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Splits the leaf that reaches across the boundary before `page`, if one does. Changes nothing
    /// that a program could see, so that a later failure needs no undoing. `gather` takes the
    /// flush, but for that inside a break-before-make, which happens here. Returns how many leaves
    /// were split, and the block around `page` that an absent entry covers, if its table has
    /// others: nothing is mapped there as long as faults wait.
    ///
    /// # Errors
    /// [`Lack::Table`] when a split needs a table and `spare` is empty. Repeat with one.
    pub fn isolate(
        &self,
        page: Vpn,
        spare: &mut Option<FrameRun>,
        gather: &mut Gather,
    ) -> Result<(u64, PageSpan), Lack> {
        let mut splits = 0;
        let mut vacant = PageSpan::new(page, page);
        while page.get() < A::USER_PAGES {
            let locked = self.lock_lowest(page, Level::LAST);
            let level = locked.level();
            let block = PageSpan::block(page, A::order(level));
            let word = locked.word(locked.index(page));
            if word == 0 && locked.present() > 0 {
                vacant = block;
            }
            let leaf = matches!(A::decode(word, level), Entry::Leaf { .. } | Entry::Marker(_));
            let Some(lower) = level.child().filter(|_| leaf && block.start < page) else { break };
            let run = spare.take().ok_or(Lack::Table)?;
            match self.split(&locked, page, lower, run) {
                Ok(()) => {
                    gather.flush(block, A::order(level));
                    splits += 1;
                }
                Err(run) => *spare = Some(run),
            }
        }
        Ok((splits, vacant))
    }

    /// Replaces the leaf that maps `page` by a table of `lower` leaves that map the same.
    fn split(
        &self,
        locked: &Locked<'_, A, H>,
        page: Vpn,
        lower: Level,
        run: FrameRun,
    ) -> Result<(), FrameRun> {
        let index = locked.index(page);
        locked.part(index, 1);
        let mut old = locked.raw(index);
        if !matches!(A::decode(old, locked.level()), Entry::Leaf { .. } | Entry::Marker(_)) {
            return Err(run);
        }
        let table = self.adopt(run, lower, Self::base(page, lower));
        let new = A::table(table);
        let demand = A::transition(old, new, locked.level(), self.is_relaxed());
        let breaks = demand == Transition::BreakBeforeMake;
        loop {
            // The hardware may set bits in the old leaf until it is gone; the new table gets the
            // last word of the old leaf.
            self.fill_split(table, old, page, locked);
            match locked.exchange(index, old, if breaks { 0 } else { new }) {
                Ok(()) => break,
                Err(now) => old = now,
            }
        }
        if breaks {
            let block = locked.unit();
            self.broken(PageSpan::block(page, block), block);
            locked.fill(index, 1, new, 0);
        }
        Ok(())
    }

    /// Fills `table`, which no entry leads to yet, with what the leaf `old` of the level above
    /// maps. Such a leaf maps one folio, so that all blocks of the table may be folded.
    fn fill_split(&self, table: Pfn, old: u64, page: Vpn, upper: &Locked<'_, A, H>) {
        let old = A::decode(old, upper.level());
        let Some(lower) = upper.level().child() else { return };
        let Some(locked) = self.lock(table, lower, page) else { return };
        let count = A::entries(lower);
        if locked.present() > 0 {
            locked.clear(0, count);
        }
        match old {
            Entry::Leaf { frame, attrs } => locked.put(0, count, frame, attrs, ORDER_MAX),
            // A marker of a block becomes one for each page, ascending from its payload.
            Entry::Marker(first) => locked.mark(0, count, Marks { first, ascending: true }),
            Entry::Absent | Entry::Table(_) | Entry::Malformed => {}
        }
    }
}
