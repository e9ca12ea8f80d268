//! A board of frames for models of threads: the first words of each frame, and nothing else.

use std::ops::Range;

use loom::sync::atomic::{AtomicU64, Ordering};
use quire_hw::{
    Flush, FrameRun, Hardware, Memory, MemoryTypes, Poisoned, Profile, Reuse, TableFrame,
    Transitions,
};
use quire_units::{CpuId, FrameSpan, Pfn};

/// The first words of each frame; all others are zero for ever. More would only take time.
pub(crate) struct Board<const FRAMES: usize, const WORDS: usize>([[AtomicU64; WORDS]; FRAMES]);

impl<const FRAMES: usize, const WORDS: usize> Board<FRAMES, WORDS> {
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| core::array::from_fn(|_| AtomicU64::new(0))))
    }

    fn word(&self, frame: Pfn, index: usize) -> Option<&AtomicU64> {
        self.0.get(frame.get() as usize)?.get(index)
    }
}

impl<const FRAMES: usize, const WORDS: usize> Memory for Board<FRAMES, WORDS> {
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.word(frame, index).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        for at in 0..count {
            let new = first.wrapping_add(step.wrapping_mul(at as u64));
            match self.word(table.frame(), index + at) {
                Some(word) => word.store(new, Ordering::Release),
                None => assert_eq!(new, 0, "the models use no more words"),
            }
        }
    }

    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        let word = self.word(table.frame(), index).expect("the models use no more words");
        word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    fn clear(&self, _: &FrameRun, _: Range<u64>, _: Reuse) {}

    fn copy(&self, _: &FrameRun, _: u64, from: FrameSpan) -> Result<(), Poisoned> {
        Err(Poisoned { frame: from.start })
    }
}

impl<const FRAMES: usize, const WORDS: usize> Hardware for Board<FRAMES, WORDS> {
    fn flush(&self, _: &Flush<'_>) {}

    fn publish_code(&self, _: FrameSpan) {}

    fn cpu(&self) -> CpuId {
        CpuId::new(0)
    }

    fn profile(&self) -> Profile {
        Profile {
            transitions: Transitions::Base,
            contiguous: true,
            memory_types: MemoryTypes::ENTRIES,
            near_cache_bytes: 0,
            clear_unit_bytes: 0,
        }
    }
}
