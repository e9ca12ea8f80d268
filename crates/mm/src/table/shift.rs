//! Moving leaves to other pages (`mremap`): words are moved, memory is not.
//!
//! In two passes, so that the second cannot fail: [`pave`](Tables::pave) makes the tables at the
//! new place and splits leaves that are aligned there less than here; [`shift`](Tables::shift)
//! moves run after run. The caller keeps faults out of both places meanwhile.

use quire_arch::{Arch, Entry, Level};
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, PageSpan, Vpn};

use super::gather::Target;
use super::walk::Step;
use super::{Gather, Lack, Locked, Run, Tables, What};

impl<A: Arch, H: Hardware> Tables<'_, A, H> {
    /// Makes everything ready to [`shift`](Self::shift) the leaves of `from` to `to`: nothing a
    /// program could see changes.
    ///
    /// # Errors
    /// [`Lack::Table`] when a table is needed and `spare` is empty: repeat with one. [`Lack::Room`]
    /// when something is mapped at the new place.
    pub fn pave(
        &self,
        from: PageSpan,
        to: Vpn,
        spare: &mut Option<FrameRun>,
        target: Target<'_>,
        gather: &mut Gather,
    ) -> Result<(), Lack> {
        let mut at = from.start;
        while let Some((pages, level)) = self.next_leaves(PageSpan::new(at, from.end)) {
            let new = to.add(pages.start.offset_from(from.start));
            let aligned = Order::new(new.get().trailing_zeros().min(63) as u8);
            if aligned < A::order(level) {
                self.isolate(pages.start.add(aligned.pages()), spare, target, gather)?;
                at = pages.start;
                continue;
            }
            let reach = Self::reach(new, level);
            let count = pages.count().min(reach.end.offset_from(new));
            self.reach_down(new, level, spare)?;
            at = pages.start.add(count);
        }
        Ok(())
    }

    /// Moves the leaves of `from` to as many pages from `to` on, which [`pave`](Self::pave) has
    /// made ready. The old translations are to be flushed with `gather`. How many entries moved.
    pub fn shift(&self, from: PageSpan, to: Vpn, gather: &mut Gather) -> u64 {
        let mut at = from.start;
        let mut moved = 0;
        while let Some((pages, level)) = self.next_leaves(PageSpan::new(at, from.end)) {
            let new = to.add(pages.start.offset_from(from.start));
            let reach = Self::reach(new, level);
            let count = pages.count().min(reach.end.offset_from(new));
            let part = PageSpan::new(pages.start, pages.start.add(count));
            moved += self.shift_part(part, new, level);
            gather.flush(part, A::order(level));
            at = part.end;
        }
        moved
    }

    /// The first run of leaves in `span`, with its level.
    fn next_leaves(&self, span: PageSpan) -> Option<(PageSpan, Level)> {
        self.each(span, |locked, part| {
            let mut at = part.start;
            while at < part.end {
                let (run, end) = locked.run_in(at, part.end);
                match run.what {
                    What::Table(_) => return Step::To(at),
                    What::Leaf { .. } => {
                        return Step::Stop((PageSpan::new(at, end), locked.level()));
                    }
                    What::Absent | What::Marker(_) => at = end,
                }
            }
            Step::To(at)
        })
    }

    /// Makes the tables down to `level` that translate `page`.
    fn reach_down(
        &self,
        page: Vpn,
        level: Level,
        spare: &mut Option<FrameRun>,
    ) -> Result<(), Lack> {
        loop {
            let place = self.walk(page, level);
            if place.level == level {
                return Ok(());
            }
            if let Entry::Leaf { .. } = A::decode(place.word, place.level) {
                return Err(Lack::Room(page));
            }
            let run = spare.take().ok_or(Lack::Table)?;
            *spare = self.link(place, page, run).err();
        }
    }

    /// Moves leaves of one table to another (or the same), both locked, the one that translates
    /// the lower pages first.
    fn shift_part(&self, pages: PageSpan, new: Vpn, level: Level) -> u64 {
        loop {
            let (old_at, new_at) = (self.walk(pages.start, level), self.walk(new, level));
            let same = old_at.frame == new_at.frame;
            let lock_old = || self.lock(old_at.frame, old_at.level, pages.start);
            let lock_new = || self.lock(new_at.frame, new_at.level, new);
            let (old, target) = match (same, pages.start < new) {
                (true, _) => (lock_old(), None),
                (false, true) => {
                    let old = lock_old();
                    (old, lock_new())
                }
                (false, false) => {
                    let target = lock_new();
                    (lock_old(), target)
                }
            };
            let Some(old) = old else { continue };
            if same || target.is_some() {
                return old.hand_over(pages, target.as_ref().unwrap_or(&old), new);
            }
        }
    }
}

impl<A: Arch, H: Hardware> Locked<'_, A, H> {
    /// Moves the leaves of `pages`, runs of this table, to `new` in `target`. What the hardware
    /// notes in them until they are gone moves with them.
    fn hand_over(&self, pages: PageSpan, target: &Self, new: Vpn) -> u64 {
        let mut at = pages.start;
        let mut moved = 0;
        while at < pages.end {
            let (run, end) = self.run_in(at, pages.end);
            let index = target.index(new.add(at.offset_from(pages.start)));
            if let What::Leaf { frame, attrs, settled } = run.what {
                if settled {
                    self.clear(run.index, run.count);
                    target.put(index, run.count, frame, attrs);
                } else {
                    self.hand_over_each(&run, target, index);
                }
                moved += run.count as u64;
            }
            at = end;
        }
        moved
    }

    fn hand_over_each(&self, run: &Run, target: &Self, index: usize) {
        for offset in 0..run.count {
            let mut word = self.word(run.index + offset);
            while let Err(now) = self.unmake(run.index + offset, word) {
                word = now;
            }
            if let Entry::Leaf { frame, attrs } = A::decode(word, self.level()) {
                target.put(index + offset, 1, frame, attrs);
            }
        }
    }
}
