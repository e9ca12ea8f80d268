//! The memory manager and its spaces.

use core::marker::PhantomData;

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{FrameSpan, Order, Pfn};

use crate::base::{Base, Groups};
use crate::cache::{File, FilePolicy};
use crate::fault::Policy;
use crate::files::Files;
use crate::folio::clear::Pace;
use crate::limits::COPY_MOST_BYTES;
use crate::paging::Paging;
use crate::phys::{CpuCache, Frames, Phys, SetupError, Slot};
use crate::reclaim::Reclaim;
use crate::spaces::Spaces;
use crate::stats::{Counters, Totals};
use crate::swap::{SWAPS_MAX, Swap};

/// The memory that the embedder lends for the life of the memory manager.
pub struct Parts<'m> {
    /// The frame that the first slot describes.
    pub first: Pfn,
    /// One slot for each frame from `first` on.
    pub slots: &'m mut [Slot],
    /// One cache for each CPU.
    pub caches: &'m mut [CpuCache],
    /// Counters for each CPU.
    pub counters: &'m [Counters],
    /// The zones: later ones are preferred.
    pub zones: &'m [FrameSpan],
    /// The most files that may have pages in memory at once; none for an embedder without files.
    /// Each swap device takes one.
    pub files: &'m [File],
    /// The most swap devices that may be in use at once, [`SWAPS_MAX`] at most; none for an
    /// embedder without swap.
    pub swaps: &'m [Swap],
}

/// A memory manager for one system: `A` is the page-table format, `H` the hardware.
///
/// All methods may be called by several CPUs at once.
pub struct Mm<'m, A, H> {
    reclaim: Reclaim<'m, A, H>,
}

impl<'m, A: Arch, H: Hardware> Mm<'m, A, H> {
    /// A memory manager without RAM; [`add`](Self::add) adds some.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(hw: &'m H, parts: Parts<'m>) -> Result<Self, SetupError> {
        let policy = Policy::new(A::block_order());
        policy.set_copy_most(Order::of_bytes(COPY_MOST_BYTES, A::PAGE_SHIFT).unwrap_or_default());
        let base = Base {
            hw,
            phys: Phys::new(parts.first, parts.slots, parts.caches, parts.zones)?,
            counters: parts.counters,
            pace: Pace::of(hw, A::PAGE_SHIFT),
            policy,
            file_policy: FilePolicy::new::<A>(),
            groups: Groups::new(),
            files: parts.files,
            swaps: &parts.swaps[..parts.swaps.len().min(SWAPS_MAX)],
            arch: PhantomData,
        };
        Ok(Self { reclaim: Reclaim::new(Paging::new(Files::new(Spaces::new(base)))) })
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> &Base<'m, A, H> {
        self.reclaim.base()
    }

    /// Operations on address spaces beside this type's own methods.
    #[inline(always)]
    pub fn spaces(&self) -> &Spaces<'m, A, H> {
        self.reclaim.spaces()
    }

    /// Files in memory.
    #[inline(always)]
    pub fn files(&self) -> &Files<'m, A, H> {
        self.reclaim.files()
    }

    /// Swap devices, and paging to them.
    #[inline(always)]
    pub fn paging(&self) -> &Paging<'m, A, H> {
        self.reclaim.paging()
    }

    /// Reclaim, aging and collapse.
    #[inline(always)]
    pub fn reclaim(&self) -> &Reclaim<'m, A, H> {
        &self.reclaim
    }

    /// Groups of spaces, and their limits.
    pub fn groups(&self) -> &Groups {
        &self.base().groups
    }

    /// The policy of folio sizes. May be changed at any time.
    pub fn policy(&self) -> &Policy {
        &self.base().policy
    }

    /// Adds RAM.
    ///
    /// # Errors
    /// [`NotRam`](crate::phys::NotRam) when a frame of it belongs to no zone.
    pub fn add(&self, run: FrameRun) -> Result<(), crate::phys::NotRam> {
        self.base().phys.add(run)
    }

    /// Frames for the embedder's own use, and how many are free.
    pub fn phys(&self) -> Frames<'_, H> {
        Frames::new(self.base().hw, &self.base().phys)
    }

    /// The allocator itself, which takes frames and gives them back without telling anyone.
    #[cfg(any(test, feature = "check", feature = "inject"))]
    pub(crate) fn allocator(&self) -> &Phys<'m> {
        &self.base().phys
    }

    /// The hardware.
    pub fn hardware(&self) -> &'m H {
        self.base().hw
    }

    /// All counters, summed over the CPUs.
    pub fn totals(&self) -> Totals {
        Totals::of(self.base().counters)
    }
}
