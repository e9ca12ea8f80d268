//! Physical memory as an embedder sees it: frames to take, and how many are free.

use quire_hw::{FrameRun, Hardware};
use quire_units::{FrameSpan, Order};

use super::Phys;
use super::check::{Totals, Violation};
use super::mobility::{Borrowed, Mobility};
use super::setup::{Occupied, Zones};
use crate::limits::ORDERS;

/// The frames of a system ([`Mm::phys`](crate::Mm::phys)), for an embedder's own use.
///
/// They are taken from groups of frames that do not [move](Mobility), so that they do not stand in
/// the way of large folios. The library has no record of a run that was taken until it
/// [comes back](Self::free), whole or in parts. Its content is arbitrary unless
/// [`is_zeroed`](FrameRun::is_zeroed) is true.
pub struct Frames<'a, H> {
    hw: &'a H,
    phys: &'a Phys<'a>,
}

impl<H> Clone for Frames<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H> Copy for Frames<'_, H> {}

impl<'a, H: Hardware> Frames<'a, H> {
    pub(crate) fn new(hw: &'a H, phys: &'a Phys<'a>) -> Self {
        Self { hw, phys }
    }

    /// Takes a block of `order`, naturally aligned; `None` when there is none, or the order exceeds
    /// [`ORDER_MAX`](crate::limits::ORDER_MAX). Reclaims nothing.
    #[inline]
    pub fn alloc(&self, order: Order) -> Option<FrameRun> {
        self.phys.alloc_for(self.hw.cpu(), order, Mobility::Unmovable)
    }

    /// As [`alloc`](Self::alloc), from one of `zones`, later ones first.
    pub fn alloc_in(&self, order: Order, zones: Zones) -> Option<FrameRun> {
        self.phys.alloc_in(self.hw.cpu(), order, zones)
    }

    /// Takes up to `most` blocks of `order` that lie side by side, as one run, as many as one place
    /// has. The caller cuts the run with [`split_at`](FrameRun::split_at), and calls again for the
    /// missing blocks. `None` when [`alloc`](Self::alloc) would give none, or for `most` = 0.
    pub fn alloc_run(&self, order: Order, most: u64) -> Option<FrameRun> {
        self.phys.alloc_run(self.hw.cpu(), order, most)
    }

    /// Takes exactly the frames of `span`, from free blocks of any orders.
    ///
    /// # Errors
    /// [`Occupied`] when one of them is taken, or belongs to no zone. Nothing is taken then.
    pub fn take_exact(&self, span: FrameSpan) -> Result<FrameRun, Occupied> {
        self.phys.take_exact(span)
    }

    /// Frees a run that was taken, or any part of it, or several neighbours joined. Its frames may
    /// not be in use any more. Their content counts as unknown.
    #[inline]
    pub fn free(&self, run: FrameRun) {
        // A driver may have written a frame that was zero when it was taken.
        let run = run.dirtied();
        self.hw.freed(run.span());
        self.phys.free_from(self.hw.cpu(), run, Mobility::Unmovable);
    }

    /// The frames that have a slot, including those that lie between zones.
    #[inline]
    pub fn span(&self) -> FrameSpan {
        self.phys.meta().span()
    }

    /// How many frames are free, those in the CPUs' caches included. Each lock is taken in turn,
    /// so the sum is exact only while no other CPU allocates.
    pub fn free_frames(&self) -> u64 {
        self.phys.free_frames()
    }

    /// Whether at least `least` frames are free. This is cheaper than counting them.
    pub fn has_free(&self, least: u64) -> bool {
        self.phys.has_free(least)
    }

    /// How many blocks of each order are free; see [`free_frames`](Self::free_frames).
    pub fn free_by_order(&self) -> [u64; ORDERS] {
        self.phys.free_by_order()
    }

    /// Why there is no free block of `order`, in thousandths: near 0 since memory is short, near
    /// 1000 since it is in pieces. `None` where a block is free. This is the fragmentation index
    /// of Gorman and Healy ("Supporting superpage allocation without additional hardware
    /// support", 2008): one less the free frames by those of as many blocks of `order` as there
    /// are pieces.
    pub fn fragmentation(&self, order: Order) -> Option<u32> {
        self.phys.fragmentation(order)
    }

    /// How many blocks of each order are free in groups of one mobility, those in the CPUs' caches
    /// excluded. Whole free groups, and larger blocks, are for any use and count as movable.
    pub fn free_by_mobility(&self, mobility: Mobility) -> [u64; ORDERS] {
        self.phys.free_by_mobility(mobility)
    }

    /// How often frames came from a group of another mobility.
    pub fn borrowed(&self) -> Borrowed {
        self.phys.borrowed()
    }

    /// Gives all blocks in the caches of all CPUs back to the zones, where they merge.
    pub fn drain(&self) {
        self.phys.drain();
    }

    /// Verifies lists, bitmaps, records and caches, and reads every frame's slot. No CPU may use
    /// the allocator meanwhile, or the walker may see a frame that is on its way.
    ///
    /// # Errors
    /// The first [`Violation`].
    pub fn check(&self) -> Result<Totals, Violation> {
        self.phys.check()
    }
}
