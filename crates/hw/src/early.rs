//! RAM before there is a memory manager.
//!
//! ```text
//!   firmware says   ├────────────────── RAM ──────────────────┤   hole   ├──── RAM ────┤
//!   kept            ├ firmware ┼ image ┤     ├ device tree ┤
//!   taken                                                   ├ slots ┤
//!   banks                            ├──────┤               ·       ├─┤  ├─────────────┤
//! ```
//!
//! A kernel adds the RAM that its firmware names, keeps what is in use, takes arrays for the
//! library's records and for tables of its own, and hands all that is left over as banks. Memory
//! that was taken never goes back.
#![allow(unsafe_code)]

use core::ops::Range;
use core::{ptr, slice};

use quire_units::{FrameSpan, Pfn, PhysAddr};

use crate::{Banks, DirectMap, FrameRun, SetupError};

/// RAM in up to `MOST` pieces, by physical address, half-open, whole pages.
pub struct Early<const MOST: usize> {
    /// Disjoint; where the end is not after the start, the piece is not used.
    pieces: [(u64, u64); MOST],
    direct: usize,
    reach: u64,
    page_shift: u32,
    /// Whether memory was kept or taken: what is added later could be the same.
    begun: bool,
}

impl<const MOST: usize> Early<MOST> {
    /// No RAM yet. Physical address 0 is visible at address `direct`, and so are all others,
    /// exclusively up to `reach` already now. Pages have `1 << page_shift` bytes.
    ///
    /// # Safety
    /// 1. All memory that is [added](Self::add) and not [kept](Self::keep) before the first call
    ///    of [`take`](Self::take), [`array`](Self::array) or [`banks`](Self::banks) is RAM that
    ///    nothing else uses, from then on until the system ends.
    /// 2. The part of it below `reach` is visible there for reads and writes from now on, the rest
    ///    from the first access through a bank on; both for ever.
    #[must_use]
    pub const unsafe fn new(direct: usize, reach: u64, page_shift: u32) -> Self {
        Self { pieces: [(0, 0); MOST], direct, reach, page_shift, begun: false }
    }

    /// Adds the whole pages in `bytes`: all RAM is added before any is kept or taken.
    ///
    /// # Errors
    /// [`SetupError::Added`] for a page that was added before, [`SetupError::Begun`] once memory
    /// was kept or taken, [`SetupError::Pieces`]. Nothing is added then.
    pub fn add(&mut self, bytes: Range<u64>) -> Result<(), SetupError> {
        let page = 1 << self.page_shift;
        let start = bytes.start.checked_next_multiple_of(page).unwrap_or(bytes.end);
        let end = bytes.end & !(page - 1);
        if self.begun {
            return Err(SetupError::Begun);
        }
        // Two pieces with one page would be two rights to it.
        let (first, past) = (start >> self.page_shift, end >> self.page_shift);
        let had = |piece: &FrameSpan| piece.start.get() < past && first < piece.end().get();
        match self.pieces().find(|piece| start < end && had(piece)) {
            Some(other) => Err(SetupError::Added { other }),
            None => self.put(start, end),
        }
    }

    /// Takes all pages with a byte in `bytes` out of the pieces: they are in use.
    ///
    /// # Errors
    /// [`SetupError::Pieces`]; then more than these may be out.
    pub fn keep(&mut self, bytes: Range<u64>) -> Result<(), SetupError> {
        self.begun = true;
        let page = 1 << self.page_shift;
        let end = bytes.end.checked_next_multiple_of(page).unwrap_or(u64::MAX);
        let start = bytes.start & !(page - 1);
        for at in 0..MOST {
            let (from, to) = self.pieces[at];
            if !bytes.is_empty() && from < to && from < end && start < to {
                self.pieces[at] = (from, start.max(from));
                self.put(end.min(to), to)?;
            }
        }
        Ok(())
    }

    fn put(&mut self, start: u64, end: u64) -> Result<(), SetupError> {
        if start < end {
            let free = self.pieces.iter_mut().find(|piece| piece.0 >= piece.1);
            *free.ok_or(SetupError::Pieces { most: MOST })? = (start, end);
        }
        Ok(())
    }

    /// Takes `bytes` within reach, rounded up to pages, where a multiple of `align` is: out of the
    /// piece with the most room.
    ///
    /// # Errors
    /// [`SetupError::Short`], and [`SetupError::Pieces`], which loses memory.
    pub fn take(&mut self, bytes: u64, align: u64) -> Result<PhysAddr, SetupError> {
        let page = 1_u64 << self.page_shift;
        let short = SetupError::Short { bytes };
        let count = bytes.checked_next_multiple_of(page).ok_or(short)?;
        let place = |piece: &(u64, u64)| {
            let start = piece.0.checked_next_multiple_of(align.max(page))?;
            let room = piece.1.min(self.reach).checked_sub(start)?;
            (room >= count).then_some((room, start))
        };
        let (_, start) = self.pieces.iter().filter_map(place).max().ok_or(short)?;
        self.keep(start..start + count)?;
        Ok(PhysAddr::new(start))
    }

    /// Takes memory for `values`, as long as the system runs.
    ///
    /// # Errors
    /// As for [`take`](Self::take).
    pub fn array<T, I>(&mut self, values: I) -> Result<&'static mut [T], SetupError>
    where
        I: IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
    {
        let values = values.into_iter();
        let most = values.len();
        let short = SetupError::Short { bytes: u64::MAX };
        let bytes = size_of::<T>().checked_mul(most).ok_or(short)?;
        let start = self.take(bytes as u64, align_of::<T>() as u64)?;
        let first = self.visible(start).cast::<T>();
        let mut count = 0;
        for value in values.take(most) {
            // SAFETY: `take` has found room for `most` of them, aligned, within reach, and nothing
            // else uses it (condition 1 of `new`).
            unsafe { first.wrapping_add(count).write(value) };
            count += 1;
        }
        // SAFETY: as above; the first `count` are written, and the memory never goes back.
        Ok(unsafe { slice::from_raw_parts_mut(first, count) })
    }

    /// The frame where `value`, a value in an array that was taken, begins.
    pub fn frame_of<T>(&self, value: &T) -> Pfn {
        let physical = ptr::from_ref(value).addr().wrapping_sub(self.direct);
        Pfn::new(physical as u64 >> self.page_shift)
    }

    fn visible(&self, address: PhysAddr) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.direct.wrapping_add(address.get() as usize))
    }

    /// The pieces that are left, ascending.
    pub fn pieces(&self) -> impl Iterator<Item = FrameSpan> + use<MOST> {
        let (mut pieces, shift) = (self.pieces, self.page_shift);
        pieces.sort_unstable();
        let used = pieces.into_iter().filter(|piece| piece.0 < piece.1);
        used.map(move |(start, end)| {
            FrameSpan::new(Pfn::new(start >> shift), (end - start) >> shift)
        })
    }

    /// From the first frame that is left to the last, holes included: the frames that need slots,
    /// if it is asked before anything is taken. Empty without RAM.
    pub fn span(&self) -> FrameSpan {
        let start = self.pieces().next().map_or(Pfn::new(0), |piece| piece.start);
        let end = self.pieces().last().map_or(start, |piece| piece.end());
        FrameSpan::new(start, end.offset_from(start))
    }

    /// All that is left, as banks, and the right to the frames of each. Neighbours are one bank.
    ///
    /// # Errors
    /// Those of [`DirectMap::new`], for a piece that cannot be a bank.
    #[allow(clippy::type_complexity)]
    pub fn banks(self) -> Result<(Banks<'static, MOST>, [Option<FrameRun>; MOST]), SetupError> {
        let (mut banks, mut rights) = (Banks::new(), [const { None }; MOST]);
        let mut pieces = self.pieces().peekable();
        for right in &mut rights {
            let Some(mut piece) = pieces.next() else { break };
            while let Some(next) = pieces.next_if(|next| next.start == piece.end()) {
                piece.count += next.count;
            }
            let first = self.visible(piece.start.addr(self.page_shift));
            let bytes = (piece.count << self.page_shift) as usize;
            // SAFETY: nothing else uses the memory (condition 1 of `new`), no array has it, and
            // `self` ends here, so that no other bank does; it is visible when it is accessed
            // (condition 2).
            let memory = unsafe { slice::from_raw_parts_mut(first, bytes) };
            let (bank, run) = DirectMap::new(memory, piece.start, self.page_shift)?;
            banks.add(bank)?;
            *right = Some(run);
        }
        Ok((banks, rights))
    }
}

#[cfg(test)]
mod tests;
