//! All of RAM visible at one place, as kernels and the hosted machine have it.
//!
//! ```text
//!   frame   first          first + 1                       first + frames
//!           ├──────────────┼──────────────┼── … ───────────┤
//!   words   0   1   … 511  512            …
//! ```
//!
//! The memory is a slice of atomic words and nothing else: table walkers may load any frame at any
//! time, also one that another CPU clears. So a [`DirectMap`] needs no lock and no `unsafe` for its
//! accesses; the capabilities make them *right*. Three `unsafe` steps remain: the constructor
//! turns bytes into words, and mints the one [`FrameRun`] for all frames; and the words of a frame
//! are found by one comparison, that of its number.
//!
//! It does not order stores against a CPU's own table walker. A kernel adds the barrier that
//! [`Hardware`](crate::Hardware) asks for.
#![allow(unsafe_code)]

use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use quire_units::{FrameSpan, Pfn, PhysAddr};

use crate::words::{exchange, load_word, load_words, store_word, store_words};
use crate::{Chosen, FrameRun, Poisoned, Reuse, TableFrame, count_words, fill_words};

/// The base-two logarithm of a word's bytes.
const WORD_SHIFT: u32 = 3;

/// All of RAM, and the accesses to it that [`Hardware`](crate::Hardware) is implemented with.
#[derive(Clone, Copy)]
pub struct DirectMap<'r> {
    words: &'r [AtomicU64],
    first: Pfn,
    frames: u64,
    /// The base-two logarithm of the words of a frame. There are `frames << word_shift` words.
    word_shift: u32,
    /// One bit per frame: its memory fails. Empty where failures are not simulated.
    poison: &'r [AtomicU64],
}

/// The reason why memory cannot be mapped, or handed out early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetupError {
    /// Base pages of `1 << page_shift` bytes do not exist: the shift must be 12 to 16.
    PageShift {
        /// The shift asked for.
        page_shift: u32,
    },
    /// The memory is empty, or does not begin and end at page boundaries.
    Ragged {
        /// Its address.
        address: usize,
        /// Its length in bytes.
        bytes: usize,
    },
    /// The last frame would have an address of more than 64 bits.
    TooFar {
        /// The number asked for as the first frame's.
        first: Pfn,
    },
    /// A poison map must have one bit per frame.
    PoisonMap {
        /// How many words it must have at least.
        least: usize,
    },
    /// There is no room for one more bank.
    Banks {
        /// How many there may be.
        most: usize,
    },
    /// The memory was added before, in part or whole, as this free piece.
    Added {
        /// That piece.
        other: FrameSpan,
    },
    /// Memory was kept or taken before: no more may be added.
    Begun,
    /// A bank shares a frame with another, or begins where the other ends: then they are one bank.
    Touches {
        /// The other's frames.
        other: FrameSpan,
    },
    /// There is no room for one more piece of early memory.
    Pieces {
        /// How many there may be.
        most: usize,
    },
    /// No piece of early memory has as many bytes in a row.
    Short {
        /// How many.
        bytes: u64,
    },
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PageShift { page_shift } => write!(f, "no base page has 2^{page_shift} bytes"),
            Self::Ragged { address, bytes } => {
                write!(f, "{bytes} bytes at {address:#x} are not whole pages")
            }
            Self::TooFar { first } => write!(f, "frames from {first} on exceed 64-bit addresses"),
            Self::PoisonMap { least } => write!(f, "the poison map needs {least} words"),
            Self::Banks { most } => write!(f, "there is no room for more than {most} banks"),
            Self::Added { other } => write!(f, "the memory of {other:?} was added before"),
            Self::Begun => f.write_str("early memory is in use: no more may be added"),
            Self::Touches { other } => write!(f, "the bank touches the one of {other:?}"),
            Self::Pieces { most } => write!(f, "RAM is in more than {most} pieces"),
            Self::Short { bytes } => write!(f, "no {bytes} bytes in a row are free"),
        }
    }
}

impl core::error::Error for SetupError {}

impl<'r> DirectMap<'r> {
    /// Maps `memory` as the frames from `first` on, pages being `1 << page_shift` bytes, and
    /// returns the right to all of them. The exclusive borrow makes that right true.
    ///
    /// # Errors
    /// [`SetupError::PageShift`], [`SetupError::Ragged`] and [`SetupError::TooFar`].
    pub fn new(
        memory: &'r mut [u8],
        first: Pfn,
        page_shift: u32,
    ) -> Result<(Self, FrameRun), SetupError> {
        Self::build(memory, first, page_shift, false)
    }

    /// As [`new`](Self::new), for memory that is all zero, such as a fresh mapping. The caller
    /// vouches for it; otherwise programs will see its old contents.
    ///
    /// # Errors
    /// As `new`.
    pub fn new_zeroed(
        memory: &'r mut [u8],
        first: Pfn,
        page_shift: u32,
    ) -> Result<(Self, FrameRun), SetupError> {
        Self::build(memory, first, page_shift, true)
    }

    fn build(
        memory: &'r mut [u8],
        first: Pfn,
        page_shift: u32,
        zeroed: bool,
    ) -> Result<(Self, FrameRun), SetupError> {
        if !(12..=16).contains(&page_shift) {
            return Err(SetupError::PageShift { page_shift });
        }
        let (address, bytes) = (memory.as_ptr().addr(), memory.len());
        let page = 1 << page_shift;
        if bytes == 0 || !bytes.is_multiple_of(page) || !address.is_multiple_of(page) {
            return Err(SetupError::Ragged { address, bytes });
        }
        let frames = (bytes >> page_shift) as u64;
        match first.checked_add(frames) {
            Some(end) if end.get() <= u64::MAX >> page_shift => {}
            _ => return Err(SetupError::TooFar { first }),
        }
        // SAFETY: the address is a multiple of 4096 and with it of 8, the length is exact, any
        // bytes are valid words, and the exclusive borrow, consumed for all of 'r, leaves no other
        // way to the bytes, so giving them interior mutability affects no other code.
        let words = unsafe { core::slice::from_raw_parts(memory.as_mut_ptr().cast(), bytes / 8) };
        let span = FrameSpan::new(first, frames);
        // SAFETY: 1. the memory was borrowed exclusively, so no other run of it exists or can be
        // made for 'r; 2. it is readable and writable bytes that hold no other object.
        let run = unsafe { FrameRun::mint(span, zeroed) };
        let word_shift = page_shift - WORD_SHIFT;
        Ok((Self { words, first, frames, word_shift, poison: &[] }, run))
    }

    /// With simulated memory failures: frame `first + n` fails while bit `n` is set, counted from
    /// the lowest bit of the first word.
    ///
    /// # Errors
    /// [`SetupError::PoisonMap`] when there are fewer bits than frames.
    pub fn with_poison(self, bits: &'r [AtomicU64]) -> Result<Self, SetupError> {
        let least = self.frames.div_ceil(64) as usize;
        match bits.get(..least) {
            Some(poison) => Ok(Self { poison, ..self }),
            None => Err(SetupError::PoisonMap { least }),
        }
    }

    /// Makes `frame` fail from now on, or no longer. `false` where it cannot: the frame is not of
    /// this map, or the map is not [`with_poison`](Self::with_poison).
    pub fn set_poisoned(&self, frame: Pfn, fails: bool) -> bool {
        let Some((word, bit)) = self.poison_bit(frame) else { return false };
        if fails {
            word.fetch_or(bit, Ordering::Release);
        } else {
            word.fetch_and(!bit, Ordering::Release);
        }
        true
    }

    /// Whether the memory of `frame` fails.
    pub fn is_poisoned(&self, frame: Pfn) -> bool {
        self.poison_bit(frame).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
    }

    fn poison_bit(&self, frame: Pfn) -> Option<(&AtomicU64, u64)> {
        let at = self.index_of(frame)?;
        Some((self.poison.get((at / 64) as usize)?, 1 << (at % 64)))
    }

    /// The frames that are mapped.
    #[inline]
    pub const fn span(&self) -> FrameSpan {
        FrameSpan::new(self.first, self.frames)
    }

    /// The base-two logarithm of the base page in bytes.
    #[inline]
    pub const fn page_shift(&self) -> u32 {
        self.word_shift + WORD_SHIFT
    }

    /// The frame's number counted from the first; `None` where it is not of this map.
    #[inline]
    pub(crate) fn index_of(&self, frame: Pfn) -> Option<u64> {
        let at = frame.get().wrapping_sub(self.first.get());
        (at < self.frames).then_some(at)
    }

    /// The words of `count` frames, the first of which is number `at` of the map.
    #[inline]
    fn words_of(&self, at: u64, count: u64) -> &'r [AtomicU64] {
        &self.words[(at << self.word_shift) as usize..((at + count) << self.word_shift) as usize]
    }

    /// The words of `frame`; none where it is not of this map.
    // Most of the library's loads come here: a second check of the bounds would cost each of them.
    #[inline]
    fn words_at(&self, frame: Pfn) -> &'r [AtomicU64] {
        let Some(at) = self.index_of(frame) else { return &[] };
        let start = (at << self.word_shift) as usize;
        // SAFETY: `index_of` returned a number below `frames`, and there are
        // `frames << word_shift` words.
        unsafe { self.words.get_unchecked(start..start + (1 << self.word_shift)) }
    }

    #[inline]
    fn table(&self, table: &TableFrame) -> &'r [AtomicU64] {
        let words = self.words_at(table.frame());
        if words.is_empty() {
            foreign(table.frame())
        }
        words
    }

    /// Word `index` of `frame`, with acquire ordering.
    ///
    /// Total: it returns zero, which every ISA reads as "absent", where there is no such frame or
    /// word. A lockless walker may follow a word that was overwritten meanwhile and arrive
    /// anywhere; it notices when it validates.
    #[inline]
    pub fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.words_at(frame).get(index).map_or(0, load_word)
    }

    /// How many words of `frame` from `index` on, `most` at most, are `first`, `first + step`, …
    /// (wrapping). Zero where the frame does not exist or has fewer than `index + most` words.
    #[inline]
    pub fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        let words = self
            .words_at(frame)
            .get(index..)
            .and_then(|words| words.get(..most))
            .unwrap_or_default();
        count_words(words, first, step)
    }

    /// The words of `frame` from `index` on, into `into`; zeroes where the frame does not exist or
    /// has fewer than `index + into.len()` words.
    #[inline]
    pub fn load_words(&self, frame: Pfn, index: usize, into: &mut [u64]) {
        match self.words_at(frame).get(index..).and_then(|words| words.get(..into.len())) {
            Some(words) => load_words(words, into),
            None => into.fill(0),
        }
    }

    /// Writes `values` from word `index` on, each with release ordering after all stores before the
    /// call.
    ///
    /// # Panics
    /// When the words are not all within the frame, or the frame is not of this map.
    #[inline]
    pub fn store_words(&self, table: &TableFrame, index: usize, values: &[u64]) {
        store_words(&self.table(table)[index..index + values.len()], values);
    }

    /// Writes `count` words from `index` on: `first`, `first + step`, … (wrapping), each with
    /// release ordering after all stores before the call.
    ///
    /// # Panics
    /// When the words are not all within the frame, or the frame is not of this map.
    #[inline]
    pub fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        fill_words(&self.table(table)[index..index + count], first, step);
    }

    /// Writes `new` to word `index` if it holds `current`.
    ///
    /// # Errors
    /// The word's value, if it was another.
    ///
    /// # Panics
    /// When the word is not within the frame, or the frame is not of this map.
    #[inline]
    pub fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        exchange(&self.table(table)[index], current, new)
    }

    /// Zeroes frames `pages` of `frames` (counted from its first) as one extent, with the backend
    /// chosen for its size. A part that no access follows soon is one of a folio's that bypass the
    /// caches together: it takes the backend of the whole run's size.
    ///
    /// # Panics
    /// When `pages` is not within the run, or the run is not of this map.
    // `always`: each first touch calls it, with constants, from one place.
    #[inline(always)]
    pub fn clear(&self, frames: &FrameRun, pages: Range<u64>, chosen: &Chosen, reuse: Reuse) {
        let words = self.owned(frames, pages.start, pages.end);
        let bytes = match reuse {
            Reuse::Soon => words.len() as u64 * 8,
            Reuse::Later => frames.count() << self.page_shift(),
        };
        chosen.backend(bytes, reuse).clear_words(words);
    }

    /// The words of `run`, for a caller that fills frames of its own: a root table's, a buffer's.
    /// Their order in memory is that of the frames.
    ///
    /// # Panics
    /// When the run is not of this map.
    #[inline]
    pub fn words<'a>(&'a self, run: &'a FrameRun) -> &'a [AtomicU64] {
        self.owned(run, 0, run.count())
    }

    /// The words of frames `start..end` of a run, counted from its first.
    #[inline]
    pub(crate) fn owned(&self, frames: &FrameRun, start: u64, end: u64) -> &'r [AtomicU64] {
        assert!(start <= end && end <= frames.count(), "not within the run");
        let Some(at) = self.index_of(frames.start()) else { foreign(frames.start()) };
        self.words_of(at + start, end - start)
    }

    /// Copies `from` over the frames of `to` from number `at` (counted from its first) on, with
    /// the backend chosen for the size.
    ///
    /// # Errors
    /// The first frame of `from` whose memory fails, or that is not of this map. The frames before
    /// it were copied, no byte from it on.
    ///
    /// # Panics
    /// When the target frames are not within the run, or the run is not of this map.
    pub fn copy(
        &self,
        to: &FrameRun,
        at: u64,
        from: FrameSpan,
        chosen: &Chosen,
        reuse: Reuse,
    ) -> Result<(), Poisoned> {
        let end = at.saturating_add(from.count);
        self.copy_into(self.owned(to, at, end), from, chosen, reuse)
    }

    /// Copies `from` over the words `to`, which may be another map's.
    ///
    /// # Errors
    /// As for [`copy`](Self::copy).
    pub(crate) fn copy_into(
        &self,
        to: &[AtomicU64],
        from: FrameSpan,
        chosen: &Chosen,
        reuse: Reuse,
    ) -> Result<(), Poisoned> {
        let sound = self.sound(from);
        if let Some(start) = self.index_of(from.start) {
            let from = self.words_of(start, sound);
            let backend = chosen.copy_backend(from.len() as u64 * 8, reuse);
            backend.copy_words(&to[..from.len()], from);
        }
        if sound == from.count { Ok(()) } else { Err(Poisoned { frame: from.start.add(sound) }) }
    }

    /// How many frames from the first of `span` on can be read.
    fn sound(&self, span: FrameSpan) -> u64 {
        let Some(at) = self.index_of(span.start) else { return 0 };
        let end = at + span.count.min(self.frames - at);
        if self.poison.is_empty() {
            return end - at;
        }
        let mut next = at;
        while next < end {
            let word = self.poison[(next / 64) as usize].load(Ordering::Acquire);
            let rest = word >> (next % 64);
            if rest != 0 {
                return (next + u64::from(rest.trailing_zeros())).min(end) - at;
            }
            next = (next / 64 + 1) * 64;
        }
        end - at
    }

    /// The aligned word at `addr`; `None` where there is no RAM or the address is not a multiple
    /// of 8. For simulated programs and table walkers.
    #[inline]
    pub fn read_word(&self, addr: PhysAddr) -> Option<u64> {
        Some(load_word(self.word(addr)?))
    }

    /// Writes the aligned word at `addr`; `None` as for [`read_word`](Self::read_word).
    #[inline]
    pub fn write_word(&self, addr: PhysAddr, value: u64) -> Option<()> {
        store_word(self.word(addr)?, value);
        Some(())
    }

    /// Writes `new` to the aligned word at `addr` if it holds `current`, as a walker sets the
    /// accessed and dirty bits. The inner error is the word's value, if it was another; `None` as
    /// for [`read_word`](Self::read_word).
    #[inline]
    pub fn exchange_word(&self, addr: PhysAddr, current: u64, new: u64) -> Option<Result<(), u64>> {
        let word = self.word(addr)?;
        Some(exchange(word, current, new))
    }

    /// The byte at `addr`; `None` where there is no RAM.
    #[inline]
    pub fn read_byte(&self, addr: PhysAddr) -> Option<u8> {
        let word = self.read_word(addr.align_down(8))?;
        Some(word.to_ne_bytes()[(addr.get() % 8) as usize])
    }

    /// Writes the byte at `addr` atomically, so that concurrent writes to its neighbours are not
    /// lost; `None` where there is no RAM.
    #[inline]
    pub fn write_byte(&self, addr: PhysAddr, value: u8) -> Option<()> {
        let word = self.word(addr.align_down(8))?;
        let with = |old: u64| {
            let mut bytes = old.to_ne_bytes();
            bytes[(addr.get() % 8) as usize] = value;
            Some(u64::from_ne_bytes(bytes))
        };
        word.fetch_update(Ordering::AcqRel, Ordering::Acquire, with).ok().map(drop)
    }

    #[inline]
    fn word(&self, addr: PhysAddr) -> Option<&'r AtomicU64> {
        let bytes = addr.get().checked_sub(self.first.addr(self.page_shift()).get())?;
        if bytes.is_multiple_of(8) {
            self.words.get(usize::try_from(bytes / 8).ok()?)
        } else {
            None
        }
    }
}

impl fmt::Debug for DirectMap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "direct map of {:?}", self.span())
    }
}

/// A capability names a frame of another map: its maker broke the contract of `mint`.
#[cold]
#[track_caller]
pub(crate) fn foreign(frame: Pfn) -> ! {
    panic!("{frame} is not in this direct map")
}

#[cfg(test)]
mod tests;
