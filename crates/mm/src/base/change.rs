//! A change of a space from its beginning to its flush.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::Order;

use super::{Base, Error};
use crate::space::{Need, Section, Space};
use crate::stats::Event;
use crate::table::Gather;

impl<A: Arch, H: Hardware> Base<'_, A, H> {
    /// Repeats `step`, and brings the frames that it needs, until it is done or memory is out.
    pub(crate) fn complete(
        &self,
        space: &Space<A>,
        section: &mut Section<'_, A, H>,
        mut step: impl FnMut(&mut Section<'_, A, H>) -> Result<(), Need>,
    ) -> Result<(), Error> {
        while let Err(need) = step(section) {
            let run = match need {
                Need::Settle => {
                    self.settle(space, section.gathered());
                    continue;
                }
                Need::Node => self.frames(Order::ZERO, true)?,
                Need::Table => self.table_frame()?,
            };
            if let Err(run) = section.bring(need, run) {
                self.free(run);
            }
        }
        Ok(())
    }

    /// Makes a change of `space`: begins it, runs `steps`, and ends it, also if they failed.
    #[inline]
    pub(crate) fn change<'a, T>(
        &'a self,
        space: &'a Space<A>,
        steps: impl FnOnce(&mut Section<'a, A, H>) -> T,
    ) -> T {
        let mut section = Section::begin(self.view(space));
        let done = steps(&mut section);
        self.finish(space, &mut section);
        done
    }

    /// Ends a change: flushes and frees its gather, frees unused frames, counts.
    ///
    /// The flush comes before the next change may begin: the next change would not find the removed
    /// entries, and could return before the flush that its own promise needs. And a free place must
    /// not be mapped again while a CPU still reaches the old memory there.
    ///
    /// If another CPU has taken leaves out and not flushed yet, this change flushes the whole
    /// space, since it saw those leaves as absent: a child must not see its parent's later writes
    /// through a stale TLB entry.
    fn finish(&self, space: &Space<A>, section: &mut Section<'_, A, H>) {
        if space.is_unflushed() {
            section.gathered().flush_space();
        }
        self.settle(space, section.gathered());
        let ended = section.end();
        if let Some(run) = ended.table {
            self.free(run);
        }
        if ended.splits > 0 {
            self.count(Event::LeafSplit, ended.splits);
        }
    }

    /// Flushes, and frees the frames and slots that a change removed.
    #[inline]
    pub(crate) fn settle(&self, space: &Space<A>, gather: &mut Gather) {
        if !gather.is_empty() {
            self.settle_all(space, gather);
        }
    }

    fn settle_all(&self, space: &Space<A>, gather: &mut Gather) {
        let settled = gather.settle(&self.phys, self.hw, space.target());
        self.count(Event::Flush, settled.flushes);
        self.count(Event::Invalidations, settled.invalidations);
        self.count(Event::FramesFreed, settled.frames);
        for (first, pages) in gather.take_marks() {
            self.release_marks(first, pages);
        }
    }
}
