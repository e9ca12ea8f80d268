//! The base: frames, and changes of a space with all that their steps need.

use core::marker::PhantomData;

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware, Reuse};
use quire_units::Order;

#[cfg(feature = "files")]
use super::Pools;
use super::{Demand, Error, Groups};
#[cfg(feature = "files")]
use crate::cache::{File, FilePolicy};
use crate::fault::Policy;
use crate::folio::clear::{self, Pace};
use crate::folio::{Folio, Folios};
use crate::limits::CACHED_ORDER_MAX;
use crate::phys::{Mobility, Phys};
use crate::space::{Space, View};
use crate::stats::{Counters, Event, FolioEvent};
#[cfg(feature = "swap")]
use crate::swap::Swap;

/// The state and functions under every service.
pub(crate) struct Base<'m, A, H> {
    pub(crate) hw: &'m H,
    pub(crate) phys: Phys<'m>,
    pub(crate) counters: &'m [Counters],
    pub(crate) pace: Pace,
    pub(crate) policy: Policy,
    #[cfg(feature = "files")]
    pub(crate) file_policy: FilePolicy,
    pub(crate) groups: Groups<'m>,
    pub(crate) demand: Demand,
    #[cfg(feature = "files")]
    pub(crate) pools: Pools,
    #[cfg(feature = "files")]
    pub(crate) files: &'m [File],
    #[cfg(feature = "swap")]
    pub(crate) swaps: &'m [Swap],
    pub(crate) arch: PhantomData<A>,
}

crate::sync::names!([A, H] Base<'_, A, H>, "base" { policy, file_policy, groups, demand }
    + phys + counters + pools + files + swaps);

impl<A: Arch, H: Hardware> Base<'_, A, H> {
    /// A block of `order`: from the free lists, or with `hard` by all means. A block too large for
    /// the CPU caches must leave the spare frames of the policy free.
    #[inline(always)]
    pub(crate) fn frames(&self, order: Order, hard: bool) -> Result<FrameRun, Error> {
        if order > CACHED_ORDER_MAX && !self.has_spare(order) {
            return Err(Error::NoMemory(order));
        }
        self.phys.alloc_movable(self.hw.cpu(), order, hard).ok_or(Error::NoMemory(order))
    }

    /// Whether the lack of a block of `order` is due to pieces more than the policy's threshold, so
    /// that compaction may help.
    #[cfg(feature = "reclaim")]
    #[cold]
    pub(crate) fn is_in_pieces(&self, order: Order) -> bool {
        let threshold = self.policy.extfrag_threshold();
        threshold == 0 || self.phys.fragmentation(order).is_none_or(|index| index > threshold)
    }

    /// A block of one of `orders`, in their order, as far as one is free at once; else one of order
    /// `least` by all means.
    pub(crate) fn first_free(
        &self,
        mut orders: impl Iterator<Item = Order>,
        least: Order,
    ) -> Result<(FrameRun, Order), Error> {
        let free = orders.find_map(|order| Some((self.frames(order, false).ok()?, order)));
        free.map_or_else(|| Ok((self.frames(least, true)?, least)), Ok)
    }

    /// Repeats `step`, and brings the frame for a table or node that it lacks, until it is done or
    /// memory is out.
    pub(crate) fn with_spare<T, E>(
        &self,
        mut step: impl FnMut(&mut Option<FrameRun>) -> Result<T, E>,
    ) -> Result<T, Error> {
        let mut spare = None;
        let done = loop {
            match step(&mut spare).map_err(|_| self.table_frame()) {
                Ok(done) => break Ok(done),
                Err(Ok(run)) => spare = Some(run),
                Err(Err(error)) => break Err(error),
            }
        };
        self.free(spare);
        done
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

    /// Frees frames that no entry maps, if there are any.
    #[inline]
    pub(crate) fn free(&self, run: impl Into<Option<FrameRun>>) {
        if let Some(run) = run.into() {
            self.free_run(run);
        }
    }

    #[inline(never)]
    fn free_run(&self, run: FrameRun) {
        self.hw.freed(run.span());
        self.phys.free(self.hw.cpu(), run);
    }

    /// Drops a reference to a folio, and frees it with the last.
    pub(crate) fn put(&self, folio: Folio) {
        self.free(self.folios().put(folio));
    }

    /// A block of `order` for a folio that moves, in a group that is in use already.
    #[cfg(feature = "swap")]
    pub(crate) fn packed_frames(&self, order: Order) -> Result<FrameRun, Error> {
        self.phys.alloc_packed(order).ok_or(Error::NoMemory(order))
    }

    /// Drops a reference to a folio, and with the last gives its frames to the other free ones of
    /// their group, past the caches of the CPUs.
    #[cfg(feature = "swap")]
    pub(crate) fn put_back(&self, folio: Folio) {
        if let Some(run) = self.folios().put(folio) {
            self.hw.freed(run.span());
            self.phys.give_back(run);
        }
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

    /// The space as seen through this memory manager.
    #[inline]
    pub(crate) fn view<'a>(&'a self, space: &'a Space<A>) -> View<'a, A, H> {
        View { hw: self.hw, meta: self.phys.meta(), counters: self.counters, space }
    }

    /// Counts for the CPU that runs this.
    #[inline]
    pub(crate) fn count(&self, event: Event, count: u64) {
        if let Some(own) = self.own_counters() {
            own.add(event, count);
        }
    }

    /// Counts `count` folios of `order` for the CPU that runs this.
    #[inline]
    pub(crate) fn count_folios(&self, event: FolioEvent, order: Order, count: u64) {
        if let Some(own) = self.own_counters() {
            own.add_folios(event, order, count);
        }
    }

    /// The counters of the CPU that runs this.
    #[inline]
    fn own_counters(&self) -> Option<&Counters> {
        self.counters.get(self.hw.cpu().index())
    }

    /// One frame for the library's own use, which cannot move.
    pub(crate) fn frame_that_stays(&self) -> Result<FrameRun, Error> {
        let run = self.phys.alloc_for(self.hw.cpu(), Order::ZERO, Mobility::Unmovable);
        run.ok_or(Error::NoMemory(Order::ZERO))
    }

    /// One zeroed frame for a table.
    pub(crate) fn table_frame(&self) -> Result<FrameRun, Error> {
        let run = self.frame_that_stays()?;
        if !run.is_zeroed() {
            self.hw.clear(&run, 0..1, Reuse::Soon);
        }
        Ok(run)
    }

    /// All folios.
    #[inline]
    pub(crate) fn folios(&self) -> Folios<'_> {
        Folios::new(self.phys.meta())
    }
}
