//! Splitting a large leaf into a table of smaller ones.

use quire_arch::{Arch, Entry, Level, Transition};
use quire_hw::{Flush, FrameRun, Hardware, Transitions};
use quire_units::{PageSpan, Pfn, Vpn};

use super::gather::Target;
use super::{Gather, Lack, Locked, Tables};

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Makes sure that no leaf reaches across the boundary before `page`, splitting what does.
    /// Changes nothing that a program could see, so that a later failure needs no undoing. What
    /// must be flushed goes into `gather`, but for the flush inside a break-before-make, which
    /// happens here. How many leaves were split.
    ///
    /// # Errors
    /// [`Lack::Table`] when a split needs a table and `spare` is empty. Repeat with one.
    pub fn isolate(
        &self,
        page: Vpn,
        spare: &mut Option<FrameRun>,
        target: Target<'_>,
        gather: &mut Gather,
    ) -> Result<u64, Lack> {
        let mut splits = 0;
        while page.get() < A::USER_PAGES {
            let place = self.walk(page, Level::LAST);
            let block = PageSpan::block(page, A::order(place.level));
            let leaf = matches!(A::decode(place.word, place.level), Entry::Leaf { .. });
            let Some(lower) = place.level.child().filter(|_| leaf && block.start < page) else {
                break;
            };
            let run = spare.take().ok_or(Lack::Table)?;
            let Some(locked) = self.lock(place.frame, place.level, page) else {
                *spare = Some(run);
                continue;
            };
            match self.split(&locked, page, lower, run, target) {
                Ok(()) => {
                    gather.flush(block, A::order(place.level));
                    splits += 1;
                }
                Err(run) => *spare = Some(run),
            }
        }
        Ok(splits)
    }

    /// Replaces the leaf that maps `page` by a table of `lower` leaves that say the same.
    fn split(
        &self,
        locked: &Locked<'_, A, H>,
        page: Vpn,
        lower: Level,
        run: FrameRun,
        target: Target<'_>,
    ) -> Result<(), FrameRun> {
        let index = locked.index(page);
        let mut old = locked.word(index);
        if !matches!(A::decode(old, locked.level()), Entry::Leaf { .. }) {
            return Err(run);
        }
        let table = self.adopt(run, lower, Self::base(page, lower));
        let new = A::table(table);
        let relaxed = self.hw.profile().transitions == Transitions::BbmLevel2;
        let broken =
            A::transition(old, new, locked.level(), relaxed) == Transition::BreakBeforeMake;
        loop {
            // The hardware may note an access in the old leaf until it is gone; what is written
            // into the new table is what the old leaf said last.
            self.fill_split(table, old, lower, locked);
            let swapped =
                if broken { locked.unmake(index, old) } else { locked.exchange(index, old, new) };
            match swapped {
                Ok(()) => break,
                Err(now) => old = now,
            }
        }
        if broken {
            let block = A::order(locked.level());
            self.hw.flush(&Flush {
                asid: target.asid,
                root: target.root,
                pages: Some(PageSpan::block(page, block)),
                stride: block,
                tables: false,
                cpus: target.cpus,
            });
            locked.make(index, 1, new, 0);
        }
        Ok(())
    }

    /// Fills `table`, which nobody else knows yet, with what the leaf `old` of the level above
    /// says.
    fn fill_split(&self, table: Pfn, old: u64, lower: Level, upper: &Locked<'_, A, H>) {
        let Entry::Leaf { frame, attrs } = A::decode(old, upper.level()) else { return };
        let Some(words) = self.meta.lock(table).and_then(|lock| lock.words()) else { return };
        let count = A::entries(lower);
        let step = A::step(lower);
        self.hw.fill(words.words(), 0, count, A::leaf(frame, lower, attrs), step);
        words.slot().counts.store(count as u64, crate::sync::Ordering::Relaxed);
    }
}
