//! The hardware as Quire sees it.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use quire::hw::{
    Chosen, DirectMap, Flush, FrameRun, Hardware, Memory, Poisoned, Profile, Reuse, TableFrame,
    count_words, fill_words, load_words, store_words,
};
use quire::units::{CpuId, FrameSpan, Pfn};

use super::{PAGE, PAGE_SHIFT, canary};
use crate::isa;

/// All RAM through the direct map, and this ISA's flushes.
///
/// Words of tables are loaded and stored without the checks of [`DirectMap`] but one: a table walk
/// does little else.
pub(crate) struct Board {
    ram: DirectMap<'static>,
    /// How many frames there are from [`FIRST`] to the last of RAM.
    frames: u64,
    clears: Chosen,
    profile: Profile,
}

/// The board, and the right to all of `span`.
pub(super) fn take(span: FrameSpan) -> (Board, FrameRun) {
    let address = isa::DIRECT + (span.start.get() << PAGE_SHIFT);
    let bytes = (span.count * PAGE) as usize;
    // SAFETY: the direct map shows all of the span, and stays. The library never gets the parts
    // with the kernel's image, its early memory and the initramfs (see `give`), so that it writes
    // only words that nothing else refers to; table walkers load others at most, as atomic words,
    // and validate them.
    let memory = unsafe { core::slice::from_raw_parts_mut(address as *mut u8, bytes) };
    let (ram, all) = DirectMap::new(memory, span.start, PAGE_SHIFT)
        .unwrap_or_else(|error| panic!("the direct map: {error}"));
    let board = Board {
        ram,
        frames: span.end().get() - FIRST,
        clears: isa::clears(),
        profile: isa::profile(),
    };
    (board, all)
}

/// The first frame that the direct map may show to walkers.
const FIRST: u64 = isa::RAM_START >> PAGE_SHIFT;

/// Words of a frame.
const WORDS: usize = PAGE as usize / 8;

impl Board {
    /// Word `index` of `frame`.
    ///
    /// # Safety
    /// The frame lies between the beginning and the end of RAM.
    #[inline(always)]
    unsafe fn word(&self, frame: Pfn, index: usize) -> &AtomicU64 {
        debug_assert!(index < WORDS, "a frame has no word {index}");
        let words = self.address(frame).cast::<AtomicU64>();
        // SAFETY: the direct map shows all from the beginning to the end of RAM, and zeroes where
        // there is none in between; to the library these are all atomic words (see `take`).
        unsafe { &*words.add(index % WORDS) }
    }

    /// Whether `frame` lies between the beginning and the end of RAM.
    #[inline(always)]
    fn shows(&self, frame: Pfn) -> bool {
        frame.get().wrapping_sub(FIRST) < self.frames
    }

    /// Words `index..index + count` of `frame`.
    ///
    /// # Safety
    /// As for [`word`](Self::word).
    ///
    /// # Panics
    /// When a frame has fewer words.
    #[inline(always)]
    unsafe fn words(&self, frame: Pfn, index: usize, count: usize) -> &[AtomicU64] {
        assert!(index <= WORDS && count <= WORDS - index, "a frame has {WORDS} words");
        let words = self.address(frame).cast::<AtomicU64>();
        // SAFETY: as in `word`; within the frame, as was just looked at.
        unsafe { core::slice::from_raw_parts(words.add(index), count) }
    }

    /// All words of `frame`; none where there is no RAM.
    pub(crate) fn all_words(&self, frame: Pfn) -> &[AtomicU64] {
        match self.shows(frame) {
            // SAFETY: just looked at.
            true => unsafe { self.words(frame, 0, WORDS) },
            false => &[],
        }
    }

    /// Where `frame` is visible.
    #[inline(always)]
    pub(crate) fn address(&self, frame: Pfn) -> *mut u8 {
        (isa::DIRECT + (frame.get() << PAGE_SHIFT)) as *mut u8
    }
}

/// Not inlined: it is larger than the rest of its caller.
#[inline(never)]
fn count(words: &[AtomicU64], first: u64, step: u64) -> usize {
    count_words(words, first, step)
}

/// As for [`count`].
#[inline(never)]
fn fill(words: &[AtomicU64], first: u64, step: u64) {
    fill_words(words, first, step);
}

impl Memory for Board {
    #[inline(always)]
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        if self.shows(frame) {
            // SAFETY: just looked at.
            unsafe { self.word(frame, index) }.load(Ordering::Acquire)
        } else {
            // Outside RAM there is nothing: a stray walker reads zero, and validates.
            0
        }
    }

    #[inline(always)]
    fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        // A walker may be stray, as in `load`.
        if !self.shows(frame) {
            return 0;
        }
        // SAFETY: just looked at.
        count(unsafe { self.words(frame, index, most) }, first, step)
    }

    #[inline(always)]
    fn load_words(&self, frame: Pfn, index: usize, words: &mut [u64]) {
        match self.shows(frame) {
            // SAFETY: just looked at.
            true => load_words(unsafe { self.words(frame, index, words.len()) }, words),
            // As in `load`.
            false => words.fill(0),
        }
    }

    #[inline(always)]
    fn store_words(&self, table: &TableFrame, index: usize, words: &[u64]) {
        if canary::is_on() {
            for (at, word) in words.iter().enumerate() {
                canary::look_at_shown(self, (table.frame(), index + at), 1, (*word, 0));
            }
        }
        // SAFETY: capabilities are for frames of RAM alone.
        store_words(unsafe { self.words(table.frame(), index, words.len()) }, words);
        isa::publish();
    }

    #[inline(always)]
    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        if canary::is_on() {
            canary::look_at_shown(self, (table.frame(), index), count, (first, step));
        }
        // SAFETY: capabilities are for frames of RAM alone.
        unsafe {
            if count == 1 {
                self.word(table.frame(), index).store(first, Ordering::Release);
            } else {
                fill(self.words(table.frame(), index, count), first, step);
            }
        }
        isa::publish();
    }

    #[inline(always)]
    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        if canary::is_on() {
            canary::look_at_shown(self, (table.frame(), index), 1, (new, 0));
        }
        // SAFETY: capabilities are for frames of RAM alone.
        let word = unsafe { self.word(table.frame(), index) };
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)?;
        isa::publish();
        Ok(())
    }

    #[inline(always)]
    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse) {
        if canary::is_on() {
            let count = pages.end - pages.start;
            canary::look_at_free(self, FrameSpan::new(frames.start().add(pages.start), count));
        }
        self.ram.clear(frames, pages, &self.clears, reuse);
    }

    #[inline]
    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        if canary::is_on() {
            canary::look_at_free(self, FrameSpan::new(to.start().add(at), from.count));
        }
        self.ram.copy(to, at, from, &self.clears, Reuse::Soon)
    }
}

impl Hardware for Board {
    #[inline]
    fn flush(&self, flush: &Flush<'_>) {
        isa::flush(flush);
    }

    #[inline]
    fn publish_code(&self, frames: FrameSpan) {
        isa::publish_code(frames);
    }

    #[inline]
    fn freed(&self, frames: FrameSpan) {
        if canary::is_on() {
            canary::lay_again(self, frames);
        }
    }

    #[inline]
    fn cpu(&self) -> CpuId {
        isa::cpu()
    }

    #[inline]
    fn profile(&self) -> Profile {
        self.profile
    }
}
