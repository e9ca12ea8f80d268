//! The hardware as the library sees it: RAM through the direct map, and the firmware's flushes.

use core::ops::Range;
use core::sync::atomic::{Ordering, fence};

use quire::hw::{
    Banks, Chosen, Flush, FrameRun, Hardware, MemoryTypes, Poisoned, Profile, Reuse, TableFrame,
    Transitions,
};
use quire::units::{CpuId, FrameSpan, Pfn};
use sbi_rt::HartMask;

use crate::boot::{self, CPUS};
use crate::ram::PIECES;
use crate::{PAGE, PAGE_SHIFT};

/// The board. RAM has holes, the kernel's own image among them, so that it is several banks.
pub struct Board {
    pub ram: Banks<'static, PIECES>,
    /// The ways to clear each size: defaults for this CPU.
    pub clears: Chosen,
    /// The firmware's number of each CPU.
    pub harts: [usize; CPUS],
    pub contiguous: bool,
}

impl Hardware for Board {
    fn load(&self, frame: Pfn, index: usize) -> u64 {
        self.ram.load(frame, index)
    }

    fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        self.ram.count_run(frame, index, most, first, step)
    }

    /// A release store is enough: a walk that is too early faults, the library finds the entry in
    /// place and flushes, and the program tries again.
    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64) {
        self.ram.fill(table, index, count, first, step);
    }

    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64> {
        self.ram.compare_exchange(table, index, current, new)
    }

    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse) {
        self.ram.clear(frames, pages, &self.clears, reuse);
    }

    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        self.ram.copy(to, at, from, &self.clears, Reuse::Soon)
    }

    /// The firmware interrupts the harts in machine mode and executes SFENCE.VMA there, so they
    /// obey wherever they are, also while they spin for a lock. This hart may be one of them.
    fn flush(&self, flush: &Flush<'_>) {
        // The tables' new words come before the question which CPUs are in the space.
        fence(Ordering::SeqCst);
        let harts = flush.cpus.iter().fold(0, |mask, cpu| mask | 1 << self.harts[cpu.index()]);
        if harts == 0 {
            return;
        }
        // SFENCE.VMA with an address covers leaves alone (privileged manual, section 10.2.1).
        let (start, bytes) = match flush.pages {
            Some(pages) if !flush.tables => {
                let span = pages.span();
                (span.start.get() * PAGE, span.count() * PAGE)
            }
            _ => (0, u64::MAX),
        };
        let (harts, asid) = (HartMask::from_mask_base(harts, 0), flush.asid.0.into());
        let done = sbi_rt::remote_sfence_vma_asid(harts, start as usize, bytes as usize, asid);
        assert!(done.is_ok(), "the firmware does not flush: {done:?}");
    }

    /// Programs may fetch instructions on any hart, and FENCE.I orders only those of its own.
    fn publish_code(&self, _: FrameSpan) {
        let harts = self.harts.iter().fold(0, |mask, hart| mask | 1 << hart);
        let done = sbi_rt::remote_fence_i(HartMask::from_mask_base(harts, 0));
        assert!(done.is_ok(), "the firmware does not fence: {done:?}");
    }

    fn cpu(&self) -> CpuId {
        boot::cpu()
    }

    fn profile(&self) -> Profile {
        Profile {
            transitions: Transitions::Base,
            contiguous: self.contiguous,
            // A device has its type by its address.
            memory_types: MemoryTypes::PLATFORM,
            near_cache_bytes: 1 << 20,
            clear_unit_bytes: u64::MAX,
        }
    }
}

const _: () = assert!(1 << PAGE_SHIFT == PAGE);
