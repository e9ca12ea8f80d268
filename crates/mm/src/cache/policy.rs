//! In what sizes files are read, and how far ahead.

use quire_arch::Arch;
use quire_units::Order;

use super::{Bounds, Preference};
use crate::sync::{AtomicU32, Ordering};

/// The system's policy for files. May be changed while it is in use.
#[derive(Debug)]
pub struct FilePolicy {
    window: AtomicU32,
    around: AtomicU32,
    sizes: AtomicU32,
    exec: AtomicU32,
    huge: AtomicU32,
}

impl FilePolicy {
    /// Linux's defaults: 128 KiB ahead, 64 KiB mapped around a fault, folios up to a block.
    pub fn new<A: Arch>() -> Self {
        let pages = |bytes: u32| AtomicU32::new((bytes >> A::PAGE_SHIFT).max(1));
        Self {
            window: pages(128 << 10),
            around: pages(64 << 10),
            sizes: AtomicU32::new((2 << A::block_order().get()) - 1),
            exec: AtomicU32::new(0),
            huge: AtomicU32::new(A::block_order().get().into()),
        }
    }

    /// What bounds reading in a file of `end` pages whose folios have at least order `smallest`.
    pub fn bounds(&self, end: u64, smallest: Order) -> Bounds {
        let window = self.window.load(Ordering::Relaxed).into();
        Bounds { end, window, smallest, sizes: self.sizes.load(Ordering::Relaxed) }
    }

    /// What faults would like to have.
    pub fn preference(&self) -> Preference {
        let huge = Order::new(self.huge.load(Ordering::Relaxed) as u8);
        Preference { exec: self.exec.load(Ordering::Relaxed), huge }
    }

    /// How many pages are mapped around a fault: a power of two.
    pub fn around(&self) -> Order {
        Order::fitting(self.around.load(Ordering::Relaxed).into()).unwrap_or_default()
    }
}
