//! RAM of words only, for the tests of the area tree.

use std::vec::Vec;

use quire_hw::{
    Flush, FrameRun, Hardware, Memory, MemoryTypes, Poisoned, Profile, Reuse, TableFrame,
};
use quire_units::{CpuId, FrameSpan, Pfn};

use crate::phys::{Meta, Slot};
use crate::sync::{AtomicU64, Ordering};

/// The first frame: not 0, so that garbage frame numbers miss more often than not.
pub(super) const FIRST: Pfn = Pfn::new(16);

/// Hardware that is words only.
pub(super) struct Words {
    words: usize,
    pub(super) ram: Vec<AtomicU64>,
}

impl Words {
    fn new(frames: usize, words: usize) -> Self {
        Self { words, ram: (0..frames * words).map(|_| AtomicU64::new(!0)).collect() }
    }

    pub(super) fn word(&self, frame: Pfn, index: usize) -> &AtomicU64 {
        assert!(index < self.words, "word {index} is outside of the node");
        &self.ram[frame.offset_from(FIRST) as usize * self.words + index]
    }
}

impl Memory for Words {
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.word(frame, index).load(Ordering::Acquire)
    }

    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        for at in 0..count {
            let value = first.wrapping_add(step.wrapping_mul(at as u64));
            self.word(table.frame(), index + at).store(value, Ordering::Release);
        }
    }

    fn compare_exchange(&self, _: &TableFrame, _: usize, _: u64, _: u64) -> Result<(), u64> {
        unreachable!("the tree exchanges nothing")
    }

    fn clear(&self, _: &FrameRun, _: core::ops::Range<u64>, _: Reuse) {}

    fn copy(&self, _: &FrameRun, _: u64, _: FrameSpan) -> Result<(), Poisoned> {
        Ok(())
    }
}

impl Hardware for Words {
    fn flush(&self, _: &Flush<'_>) {}

    fn publish_code(&self, _: FrameSpan) {}

    fn cpu(&self) -> CpuId {
        CpuId::new(0)
    }

    fn profile(&self) -> Profile {
        Profile { contiguous: true, memory_types: MemoryTypes::ENTRIES, ..Profile::BASE }
    }
}

/// RAM of `frames` frames with its metadata.
pub(super) struct Ram {
    pub(super) hw: Words,
    pub(super) slots: Vec<Slot>,
}

impl Ram {
    pub(super) fn new(frames: usize, words: usize) -> Self {
        let slots = (0..frames).map(|_| Slot::default()).collect();
        Self { hw: Words::new(frames, words), slots }
    }

    pub(super) fn meta(&self) -> Meta<'_> {
        Meta::new(FIRST, &self.slots)
    }

    /// All frames, as one run. Called once.
    pub(super) fn run(&self) -> FrameRun {
        let meta = self.meta();
        meta.forge(meta.span(), false)
    }
}
