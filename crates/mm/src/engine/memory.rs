//! Bringing what a step lacks.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::Order;

use super::error::Error;
use super::mm::Mm;
use crate::folio::clear;
use crate::limits::CACHED_ORDER_MAX;
use crate::space::{Need, Section, Space};
use crate::stats::Event;

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// A block of `order`: what is at hand, or with `hard` what can be got at all. One that no
    /// CPU's cache keeps leaves others the frames that are to spare.
    #[inline(always)]
    pub(super) fn frames(&self, order: Order, hard: bool) -> Result<FrameRun, Error> {
        if order > CACHED_ORDER_MAX && !self.has_spare(order) {
            return Err(Error::NoMemory(order));
        }
        let cpu = self.hw.cpu();
        let run = match hard {
            true => self.phys.alloc(cpu, order),
            false => self.phys.try_alloc(cpu, order),
        };
        run.ok_or(Error::NoMemory(order))
    }

    /// How many frames there are, taken or free, with those that lie between zones.
    pub(super) fn all_frames(&self) -> u64 {
        self.phys.meta().span().count
    }

    /// Whether a block of `order` leaves the frames free that are to be.
    fn has_spare(&self, order: Order) -> bool {
        let spare = self.policy.spare();
        spare == 0 || self.phys.has_free(spare.saturating_add(order.pages()))
    }

    /// Gives frames back that nothing maps.
    pub(super) fn free(&self, run: FrameRun) {
        self.phys().free(run);
    }

    /// Zeroes a run for a program that touches page `fault` of it (counted from its first).
    #[inline(always)]
    pub(super) fn clear(&self, run: &FrameRun, fault: u64, resched: &mut dyn FnMut()) {
        let bytes = run.count() << A::PAGE_SHIFT;
        if run.is_zeroed() {
            return self.count(Event::BytesKnownZero, bytes);
        }
        clear::zero(self.hw, run, fault, self.pace, resched);
        self.count(Event::BytesCleared, bytes);
    }

    /// Repeats `step` and brings what it lacks, until it is done or there is no memory.
    pub(super) fn complete(
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

    /// Makes a change of `space`: begins it, lets `steps` make it, and ends it, whatever it came
    /// to.
    #[inline]
    pub(super) fn change<'a, T>(
        &'a self,
        space: &'a Space<A>,
        steps: impl FnOnce(&mut Section<'a, A, H>) -> T,
    ) -> T {
        let mut section = Section::begin(self.view(space));
        let done = steps(&mut section);
        self.finish(space, &mut section);
        done
    }

    /// Ends a change: settles what is left, frees what was not needed, counts.
    ///
    /// The flush comes before the next change may begin: what this one took out the next would not
    /// find, and return before the flush that makes its own promise true. And a place that is free
    /// again must not be given away while a CPU still reaches the old memory there.
    ///
    /// And what others have taken out, and not flushed yet, this change took for gone: a child must
    /// not see what its parent goes on writing through what a CPU remembers.
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
}
