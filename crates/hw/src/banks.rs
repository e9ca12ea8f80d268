//! RAM with holes: several direct maps as one.
//!
//! ```text
//!   frames   [ bank 0 ]   hole   [     bank 1     ]   the kernel's image   [ bank 2 ]
//! ```
//!
//! A machine's RAM has holes, and a kernel cuts more: its own image, the memory that it lends to
//! the library, the pieces that firmware reserves. A few banks are left, each a
//! [`DirectMap`]. A frame belongs to one bank at most, so each access goes to that one.

use core::fmt;

use quire_units::{FrameSpan, Pfn};

use crate::{DirectMap, SetupError};

/// Up to `MOST` banks of RAM: [`Ram`](crate::Ram) makes one memory of them.
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
}

impl<const MOST: usize> fmt::Debug for Banks<'_, MOST> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
