//! The hardware as the library sees it: RAM through the direct map, and the firmware's flushes.

use crate::*;

/// The board. RAM has holes, the kernel's own image among them, so that it is several banks.
pub struct Board {
    pub ram: Ram<Banks<'static, PIECES>>,
    /// The firmware's number of each CPU.
    pub harts: [usize; CPUS],
    pub contiguous: bool,
}

/// A release store is enough to show an entry: a walk that is too early faults, the library finds
/// the entry in place and flushes, and the program tries again.
impl HasMemory for Board {
    type Memory = Ram<Banks<'static, PIECES>>;

    fn memory(&self) -> &Self::Memory {
        &self.ram
    }
}

impl Hardware for Board {
    /// The firmware interrupts the harts in machine mode and executes SFENCE.VMA there, so they
    /// obey wherever they are, also while they spin for a lock. This hart may be one of them.
    fn flush(&self, flush: &Flush<'_>) {
        // The tables' new words come before the question which CPUs are in the space.
        fence(Ordering::SeqCst);
        let mask = flush.cpus.iter().fold(0, |mask, cpu| mask | 1 << self.harts[cpu.index()]);
        let (harts, asid) = (HartMask::from_mask_base(mask, 0), flush.asid.0.into());
        // SFENCE.VMA with an address covers leaves alone (privileged manual, section 10.2.1).
        let (start, bytes) = match flush.pages.map(|pages| pages.span()) {
            Some(span) if !flush.tables => (span.start.get() * PAGE, span.count() * PAGE),
            _ => (0, u64::MAX),
        };
        let done = sbi_rt::remote_sfence_vma_asid(harts, start as usize, bytes as usize, asid);
        assert!(done.is_ok(), "the firmware does not flush: {done:?}");
    }

    /// Programs may fetch instructions on any hart, and FENCE.I orders only those of its own.
    fn publish_code(&self, _: FrameSpan) {
        let done = sbi_rt::remote_fence_i(HartMask::all());
        assert!(done.is_ok(), "the firmware does not fence: {done:?}");
    }

    fn cpu(&self) -> CpuId {
        boot::cpu()
    }

    fn profile(&self) -> Profile {
        // A device has its type by its address.
        Profile { contiguous: self.contiguous, ..Profile::BASE }
    }
}
