//! RAM that the embedder sees, and the ways to clear it.

use core::fmt;
use core::ops::Range;
use core::sync::atomic::AtomicU64;

use quire_units::{FrameSpan, Pfn};

use crate::direct::foreign;
use crate::{Banks, Chosen, DirectMap, FrameRun, Memory, Poisoned, Reuse, TableFrame};

/// Direct maps by frame: one, or several with holes between them.
pub trait Maps: Sync {
    /// The map that has `frame`.
    fn map_of(&self, frame: Pfn) -> Option<&DirectMap<'_>>;
}

impl Maps for DirectMap<'_> {
    #[inline]
    fn map_of(&self, frame: Pfn) -> Option<&DirectMap<'_>> {
        self.index_of(frame).map(|_| self)
    }
}

impl<const MOST: usize> Maps for Banks<'_, MOST> {
    #[inline]
    fn map_of(&self, frame: Pfn) -> Option<&DirectMap<'_>> {
        self.iter().find(|bank| bank.span().contains(frame))
    }
}

/// RAM in a [`DirectMap`], or with holes in [`Banks`], and the ways to clear and copy each size:
/// [`Memory`] for an embedder that needs no more than that.
///
/// It does not order stores against a CPU's own table walker: an embedder whose ISA asks for a
/// barrier (arm64) has a `fill` and a `compare_exchange` of its own.
#[derive(Clone, Copy)]
pub struct Ram<M> {
    maps: M,
    chosen: Chosen,
}

impl<M: Maps> Ram<M> {
    /// The RAM of `maps`, cleared and copied as `chosen` says.
    pub const fn new(maps: M, chosen: Chosen) -> Self {
        Self { maps, chosen }
    }

    /// Its direct map or maps.
    pub const fn maps(&self) -> &M {
        &self.maps
    }

    /// The words of `run`, as [`DirectMap::words`].
    ///
    /// # Panics
    /// When no map has the run.
    #[inline]
    pub fn words<'a>(&'a self, run: &'a FrameRun) -> &'a [AtomicU64] {
        self.owner(run.start()).words(run)
    }

    /// The map of a capability.
    #[inline]
    fn owner(&self, frame: Pfn) -> &DirectMap<'_> {
        let Some(map) = self.maps.map_of(frame) else { foreign(frame) };
        map
    }
}

/// The two sides of a copy may lie in different banks. A run of frames lies in one, so that a copy
/// from a span that reaches into a hole fails at the first frame that is missing.
impl<M: Maps> Memory for Ram<M> {
    #[inline]
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.maps.map_of(frame).map_or(0, |map| map.load(frame, index))
    }

    #[inline]
    fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        let map = self.maps.map_of(frame);
        map.map_or(0, |map| map.count_run(frame, index, most, first, step))
    }

    #[inline]
    fn load_words(&self, frame: Pfn, index: usize, words: &mut [u64]) {
        match self.maps.map_of(frame) {
            Some(map) => map.load_words(frame, index, words),
            None => words.fill(0),
        }
    }

    #[inline]
    fn store_words(&self, table: &TableFrame, index: usize, words: &[u64]) {
        self.owner(table.frame()).store_words(table, index, words);
    }

    #[inline]
    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        self.owner(table.frame()).fill(table, index, count, first, step);
    }

    #[inline]
    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        self.owner(table.frame()).compare_exchange(table, index, current, new)
    }

    #[inline]
    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse) {
        self.owner(frames.start()).clear(frames, pages, &self.chosen, reuse);
    }

    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        let end = at.saturating_add(from.count);
        let to = self.owner(to.start()).owned(to, at, end);
        match self.maps.map_of(from.start) {
            Some(map) => map.copy_into(to, from, &self.chosen, Reuse::Soon),
            None if from.count == 0 => Ok(()),
            None => Err(Poisoned { frame: from.start }),
        }
    }
}

impl<M: fmt::Debug> fmt::Debug for Ram<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.maps.fmt(f)
    }
}
