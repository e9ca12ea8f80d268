//! The base: frames, and changes of a space with all that their steps need.

use core::marker::PhantomData;

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware, Reuse};
use quire_units::Order;

use super::{Error, Groups};
#[cfg(feature = "files")]
use crate::cache::{File, FilePolicy};
use crate::fault::Policy;
use crate::folio::clear::{self, Pace};
use crate::limits::CACHED_ORDER_MAX;
use crate::phys::Phys;
use crate::space::{Need, Section, Space, View};
use crate::stats::{Counters, Event};
#[cfg(feature = "swap")]
use crate::swap::Swap;
use crate::sync::{AtomicU64, Ordering};
use crate::table::Gather;

/// The state and functions under every service.
pub(crate) struct Base<'m, A, H> {
    pub(crate) hw: &'m H,
    pub(crate) phys: Phys<'m>,
    pub(crate) counters: &'m [Counters],
    pub(crate) pace: Pace,
    pub(crate) policy: Policy,
    #[cfg(feature = "files")]
    pub(crate) file_policy: FilePolicy,
    pub(crate) groups: Groups,
    #[cfg(feature = "files")]
    pub(crate) files: &'m [File],
    #[cfg(feature = "swap")]
    pub(crate) swaps: &'m [Swap],
    pub(crate) arch: PhantomData<A>,
}

/// A place in all spaces: the root of one, and a page in it. The last write wins.
pub(crate) struct Hand {
    root: AtomicU64,
    page: AtomicU64,
}

impl Hand {
    pub(crate) fn new() -> Self {
        Self { root: AtomicU64::new(0), page: AtomicU64::new(0) }
    }

    pub(crate) fn load(&self) -> (u64, u64) {
        (self.root.load(Ordering::Relaxed), self.page.load(Ordering::Relaxed))
    }

    pub(crate) fn store(&self, root: u64, page: u64) {
        self.root.store(root, Ordering::Relaxed);
        self.page.store(page, Ordering::Relaxed);
    }
}

impl<A: Arch, H: Hardware> Base<'_, A, H> {
    /// A block of `order`: from the free lists, or with `hard` by all means. A block too large for
    /// the CPU caches must leave the spare frames of the policy free.
    #[inline(always)]
    pub(crate) fn frames(&self, order: Order, hard: bool) -> Result<FrameRun, Error> {
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

    /// The number of frames, taken or free, including those between zones.
    pub(crate) fn all_frames(&self) -> u64 {
        self.phys.meta().span().count
    }

    /// Whether a block of `order` leaves the spare frames free.
    fn has_spare(&self, order: Order) -> bool {
        let spare = self.policy.spare();
        spare == 0 || self.phys.has_free(spare.saturating_add(order.pages()))
    }

    /// Frees frames that no entry maps.
    pub(crate) fn free(&self, run: FrameRun) {
        self.hw.freed(run.span());
        self.phys.free(self.hw.cpu(), run);
    }

    /// Zeroes a run for a program that touches page `fault` of it (counted from its first).
    #[inline(always)]
    pub(crate) fn clear(&self, run: &FrameRun, fault: u64, resched: &mut dyn FnMut()) {
        let bytes = run.count() << A::PAGE_SHIFT;
        if run.is_zeroed() {
            return self.count(Event::BytesKnownZero, bytes);
        }
        clear::zero(self.hw, run, fault, self.pace, resched);
        self.count(Event::BytesCleared, bytes);
    }

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

    /// The space as seen through this memory manager.
    #[inline]
    pub(crate) fn view<'a>(&'a self, space: &'a Space<A>) -> View<'a, A, H> {
        View { hw: self.hw, meta: self.phys.meta(), counters: self.counters, space }
    }

    /// Counts for the CPU that runs this.
    #[inline]
    pub(crate) fn count(&self, event: Event, count: u64) {
        if let Some(own) = self.counters.get(self.hw.cpu().index()) {
            own.add(event, count);
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

    /// One zeroed frame for a table.
    pub(crate) fn table_frame(&self) -> Result<FrameRun, Error> {
        let run = self.frames(Order::ZERO, true)?;
        if !run.is_zeroed() {
            self.hw.clear(&run, 0..1, Reuse::Soon);
        }
        Ok(run)
    }
}
