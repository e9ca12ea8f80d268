//! Splitting a large leaf into a table of smaller ones.

use quire_arch::{Arch, Entry, Level, Transition};
use quire_hw::{FrameRun, Hardware, Pieces};
use quire_units::{PageSpan, Vpn};

use super::{Gather, Lack, Locked, Marks, Place, Tables};
use crate::limits::ORDER_MAX;

/// The boundary before a page, which no leaf reaches across.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Isolated {
    /// Leaves that were split for that.
    pub splits: u64,
    /// The page's table, for a later [lock](Tables::lock_lowest_from).
    pub place: Place,
    /// No leaf reaches across a later boundary either, up to and including that before this page.
    pub whole: Vpn,
    /// The pages from this one on that are absent in a table that has other entries. They stay
    /// absent as long as faults wait.
    pub vacant: PageSpan,
}

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Splits the leaf that reaches across the boundary before `page`, if one does. Changes nothing
    /// that a program could see, so that a later failure needs no undoing. `due` takes the
    /// flush, but for that inside a break-before-make, which happens here. Looks for absent pages
    /// up to `end`.
    ///
    /// # Errors
    /// [`Lack::Table`] when a split needs a table and `spare` is empty. Repeat with one.
    pub fn isolate(
        &self,
        page: Vpn,
        end: Vpn,
        spare: &mut Option<FrameRun>,
        due: &mut Option<Pieces>,
    ) -> Result<Isolated, Lack> {
        let mut splits = 0;
        if page.get() >= A::USER_PAGES {
            let place = Place { frame: self.root(), level: A::ROOT, word: 0 };
            return Ok(Isolated { splits, place, whole: page, vacant: PageSpan::new(page, page) });
        }
        loop {
            let locked = self.lock_lowest(page, Level::LAST);
            let level = locked.level();
            let block = PageSpan::block(page, A::order(level));
            let place = locked.place(page);
            let is_absent = place.word == 0;
            if let Some(lower) = level.child()
                && !is_absent
                && block.start < page
                && matches!(A::decode(place.word, level), Entry::Leaf { .. } | Entry::Marker(_))
            {
                let run = spare.take().ok_or(Lack::Table)?;
                self.split(&locked, page, lower, run);
                Gather::add(due, block, locked.unit());
                splits += 1;
                continue;
            }
            let absent = match is_absent && page < end {
                true => {
                    let entries = locked.entries(PageSpan::new(page, end));
                    let absent = locked.count_run(entries.start, entries.end, 0, 0);
                    locked.page(entries.start + absent).min(end)
                }
                false => page,
            };
            let whole = if level.is_last() { locked.reach().end } else { absent };
            let upto = if locked.present() > 0 { absent } else { page };
            return Ok(Isolated { splits, place, whole, vacant: PageSpan::new(page, upto) });
        }
    }

    /// Replaces the leaf or marker at `page` by a table of `lower` ones that say the same.
    #[inline(never)]
    fn split(&self, locked: &Locked<'_, A, H>, page: Vpn, lower: Level, run: FrameRun) {
        let index = locked.index(page);
        locked.part(index, 1);
        let mut old = locked.raw(index);
        let table = self.adopt(run, lower, Self::base(page, lower));
        let new = A::table(table);
        let demand = A::transition(old, new, locked.level(), self.is_relaxed());
        let breaks = demand == Transition::BreakBeforeMake;
        loop {
            // The hardware may set bits in the old leaf until it is gone; the new table gets the
            // last word of the old leaf.
            let Some(lower) = self.lock(table, lower, page) else { return };
            lower.fill_split(A::decode(old, locked.level()));
            drop(lower);
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
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Fills this table, which no entry leads to yet, with what `old` of the level above maps. That
    /// is one folio, so that all blocks may be folded.
    fn fill_split(&self, old: Entry) {
        let count = A::entries(self.level());
        if self.present() > 0 {
            self.clear(0, count);
        }
        match old {
            Entry::Leaf { frame, attrs } => self.put(0, count, frame, attrs, ORDER_MAX),
            // A marker of a block becomes one for each page, ascending from its payload.
            Entry::Marker(first) => self.mark(0, count, Marks { first, ascending: true }),
            Entry::Absent | Entry::Table(_) | Entry::Malformed => {}
        }
    }
}
