//! RAM with holes: several direct maps as one.
//!
//! ```text
//!   frames   [ bank 0 ]   hole   [     bank 1     ]   the kernel's image   [ bank 2 ]
//! ```
//!
//! A machine's RAM has holes, and a kernel cuts more: its own image, the memory that it lends to
//! the library, the pieces that firmware reserves. A few banks are left, each a
//! [`DirectMap`]. A frame belongs to one bank at most, so each call goes to that one.

use core::fmt;
use core::ops::Range;
use core::sync::atomic::AtomicU64;

use quire_units::{FrameSpan, Pfn};

use crate::direct::foreign;
use crate::{Chosen, DirectMap, FrameRun, Poisoned, Reuse, SetupError, TableFrame};

/// Up to `MOST` banks of RAM, and the accesses to them that [`Hardware`](crate::Hardware) is
/// implemented with: those of [`DirectMap`].
#[derive(Clone, Copy)]
pub struct Banks<'r, const MOST: usize> {
    /// Ascending, the first ones in use.
    banks: [Option<DirectMap<'r>>; MOST],
}

impl<const MOST: usize> Default for Banks<'_, MOST> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'r, const MOST: usize> Banks<'r, MOST> {
    /// No bank yet.
    pub const fn new() -> Self {
        Self { banks: [None; MOST] }
    }

    /// Adds a bank. Its pages are as large as those of the others, and a hole of one frame at least
    /// lies between any two: neighbours are one bank, so that a run of frames never spans two.
    ///
    /// # Errors
    /// [`SetupError::Banks`], [`SetupError::Touches`], and [`SetupError::PageShift`] for pages of
    /// another size. Nothing has changed then.
    pub fn add(&mut self, bank: DirectMap<'r>) -> Result<(), SetupError> {
        let (own, page_shift) = (bank.span(), bank.page_shift());
        for other in self.iter() {
            if other.page_shift() != page_shift {
                return Err(SetupError::PageShift { page_shift });
            }
            if own.start <= other.span().end() && other.span().start <= own.end() {
                return Err(SetupError::Touches { other: other.span() });
            }
        }
        let free = self.banks.iter_mut().find(|slot| slot.is_none());
        *free.ok_or(SetupError::Banks { most: MOST })? = Some(bank);
        self.banks
            .sort_unstable_by_key(|slot| slot.map_or(u64::MAX, |bank| bank.span().start.get()));
        Ok(())
    }

    /// The banks, ascending.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &DirectMap<'r>> {
        self.banks.iter().flatten()
    }

    /// From the first frame of all banks to the last, holes included: the frames that need slots.
    /// Empty without a bank.
    pub fn span(&self) -> FrameSpan {
        let start = self.iter().next().map_or(Pfn::new(0), |bank| bank.span().start);
        let end = self.iter().next_back().map_or(start, |bank| bank.span().end());
        FrameSpan::new(start, end.offset_from(start))
    }

    /// The bank that has `frame`.
    #[inline]
    fn bank(&self, frame: Pfn) -> Option<&DirectMap<'r>> {
        self.iter().find(|bank| bank.span().contains(frame))
    }

    /// The bank of a capability.
    #[inline]
    fn owner(&self, frame: Pfn) -> &DirectMap<'r> {
        let Some(bank) = self.bank(frame) else { foreign(frame) };
        bank
    }

    /// As [`DirectMap::load`]; zero in a hole.
    #[inline]
    pub fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.bank(frame).map_or(0, |bank| bank.load(frame, index))
    }

    /// As [`DirectMap::count_run`]; zero in a hole.
    #[inline]
    pub fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        self.bank(frame).map_or(0, |bank| bank.count_run(frame, index, most, first, step))
    }

    /// As [`DirectMap::load_words`]; zeroes in a hole.
    #[inline]
    pub fn load_words(&self, frame: Pfn, index: usize, into: &mut [u64]) {
        match self.bank(frame) {
            Some(bank) => bank.load_words(frame, index, into),
            None => into.fill(0),
        }
    }

    /// As [`DirectMap::store_words`].
    ///
    /// # Panics
    /// When the words are not all within the frame, or no bank has it.
    #[inline]
    pub fn store_words(&self, table: &TableFrame, index: usize, values: &[u64]) {
        self.owner(table.frame()).store_words(table, index, values);
    }

    /// As [`DirectMap::fill`].
    ///
    /// # Panics
    /// When the words are not all within the frame, or no bank has it.
    #[inline]
    pub fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        self.owner(table.frame()).fill(table, index, count, first, step);
    }

    /// As [`DirectMap::compare_exchange`].
    ///
    /// # Errors
    /// The word's value, if it was another.
    ///
    /// # Panics
    /// When the word is not within the frame, or no bank has it.
    #[inline]
    pub fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        self.owner(table.frame()).compare_exchange(table, index, current, new)
    }

    /// As [`DirectMap::clear`].
    ///
    /// # Panics
    /// When `pages` is not within the run, or no bank has it.
    #[inline]
    pub fn clear(&self, frames: &FrameRun, pages: Range<u64>, chosen: &Chosen, reuse: Reuse) {
        self.owner(frames.start()).clear(frames, pages, chosen, reuse);
    }

    /// As [`DirectMap::words`].
    ///
    /// # Panics
    /// When no bank has the run.
    #[inline]
    pub fn words<'a>(&'a self, run: &'a FrameRun) -> &'a [AtomicU64] {
        self.owner(run.start()).words(run)
    }

    /// As [`DirectMap::copy`]; the two sides may lie in different banks.
    ///
    /// # Errors
    /// The first frame of `from` whose memory fails, or that lies in a hole. The frames before it
    /// were copied, no byte from it on.
    ///
    /// # Panics
    /// When the target frames are not within the run, or no bank has it.
    pub fn copy(
        &self,
        to: &FrameRun,
        at: u64,
        from: FrameSpan,
        chosen: &Chosen,
        reuse: Reuse,
    ) -> Result<(), Poisoned> {
        let to = self.owner(to.start()).owned(to, at, at.saturating_add(from.count));
        match self.bank(from.start) {
            Some(bank) => bank.copy_into(to, from, chosen, reuse),
            None if from.count == 0 => Ok(()),
            None => Err(Poisoned { frame: from.start }),
        }
    }
}

impl<const MOST: usize> fmt::Debug for Banks<'_, MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
