//! The hardware of a program that sees all RAM at one place, and whose CPU has no translations.

use core::hint::black_box;

use quire::hw::{DirectMap, Flush, Hardware, HasMemory, Profile, Ram};
use quire::units::{CpuId, FrameSpan};

/// The hardware of a kernel that maps all RAM at one place.
pub struct Board<'r> {
    /// All RAM, and the ways to clear and to copy.
    pub ram: Ram<DirectMap<'r>>,
    /// The abilities of its CPU.
    pub profile: Profile,
}

impl<'r> HasMemory for Board<'r> {
    type Memory = Ram<DirectMap<'r>>;

    fn memory(&self) -> &Self::Memory {
        &self.ram
    }
}

impl Hardware for Board<'_> {
    fn flush(&self, flush: &Flush<'_>) {
        black_box(flush.pages);
    }

    fn publish_code(&self, frames: FrameSpan) {
        black_box(frames);
    }

    fn cpu(&self) -> CpuId {
        black_box(CpuId::new(0))
    }

    fn profile(&self) -> Profile {
        self.profile
    }
}
