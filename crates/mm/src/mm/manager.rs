//! The memory manager and its spaces.

use core::marker::PhantomData;

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, Pfn};

#[cfg(feature = "reclaim")]
use crate::base::Group;
#[cfg(feature = "files")]
use crate::base::Pools;
use crate::base::{Base, Demand, Groups};
#[cfg(feature = "files")]
use crate::cache::{File, FilePolicy};
use crate::fault::Policy;
#[cfg(feature = "files")]
use crate::files::Files;
use crate::folio::clear::Pace;
use crate::limits::COPY_MOST_BYTES;
#[cfg(feature = "swap")]
use crate::paging::Paging;
use crate::phys::{CpuCache, Frames, Phys, SetupError, Slot, Zone};
#[cfg(feature = "reclaim")]
use crate::reclaim::Reclaim;
use crate::spaces::Spaces;
use crate::stats::{Counters, Totals};
#[cfg(feature = "swap")]
use crate::swap::{SWAPS_MAX, Swap};

/// The memory that the embedder lends for the life of the memory manager.
#[non_exhaustive]
pub struct Parts<'m> {
    /// The frame that the first slot describes.
    pub first: Pfn,
    /// One slot for each frame from `first` on.
    pub slots: &'m mut [Slot],
    /// One cache for each CPU.
    pub caches: &'m mut [CpuCache],
    /// Counters for each CPU.
    pub counters: &'m [Counters],
    /// The zones, [`ZONES_MAX`](crate::limits::ZONES_MAX) at most: later ones are preferred.
    pub zones: &'m mut [Zone],
    /// The most files that may have pages in memory at once; none for an embedder without files.
    /// Each swap device takes one.
    #[cfg(feature = "files")]
    pub files: &'m mut [File],
    /// The most swap devices that may be in use at once, [`SWAPS_MAX`] at most; none for an
    /// embedder without swap.
    #[cfg(feature = "swap")]
    pub swaps: &'m mut [Swap],
    /// The most groups that may be in use at once; none for an embedder without groups.
    #[cfg(feature = "reclaim")]
    pub groups: &'m mut [Group],
}

impl<'m> Parts<'m> {
    /// Memory for the frames from `first` on, one slot for each, and for as many CPUs as there are
    /// `caches` and `counters`. There are no files, no swap devices and no
    /// groups yet.
    pub fn new(
        first: Pfn,
        slots: &'m mut [Slot],
        caches: &'m mut [CpuCache],
        counters: &'m [Counters],
        zones: &'m mut [Zone],
    ) -> Self {
        Self {
            first,
            slots,
            caches,
            counters,
            zones,
            #[cfg(feature = "files")]
            files: &mut [],
            #[cfg(feature = "swap")]
            swaps: &mut [],
            #[cfg(feature = "reclaim")]
            groups: &mut [],
        }
    }

    /// The same with room for as many files as there are `files`.
    #[cfg(feature = "files")]
    #[must_use]
    pub fn files(self, files: &'m mut [File]) -> Self {
        Self { files, ..self }
    }

    /// The same with room for as many swap devices as there are `swaps`.
    #[cfg(feature = "swap")]
    #[must_use]
    pub fn swaps(self, swaps: &'m mut [Swap]) -> Self {
        Self { swaps, ..self }
    }

    /// The same with room for as many groups of spaces as there are `groups`.
    #[cfg(feature = "reclaim")]
    #[must_use]
    pub fn groups(self, groups: &'m mut [Group]) -> Self {
        Self { groups, ..self }
    }
}

/// Values of the embedder's, as new: an earlier memory manager may have left frames in them.
#[cfg(feature = "files")]
fn unused<T: Default>(parts: &mut [T]) -> &[T] {
    parts.iter_mut().for_each(|part| *part = T::default());
    parts
}

/// The service that holds all others.
#[cfg(feature = "reclaim")]
type Top<'m, A, H> = Reclaim<'m, A, H>;
#[cfg(all(feature = "swap", not(feature = "reclaim")))]
type Top<'m, A, H> = Paging<'m, A, H>;
#[cfg(all(feature = "files", not(feature = "swap")))]
type Top<'m, A, H> = Files<'m, A, H>;
#[cfg(not(feature = "files"))]
type Top<'m, A, H> = Spaces<'m, A, H>;

/// A memory manager for one system: `A` is the page-table format, `H` the hardware.
///
/// All methods may be called by several CPUs at once.
pub struct Mm<'m, A, H> {
    top: Top<'m, A, H>,
}

crate::sync::names!([A, H] Mm<'_, A, H>, "mm" {} + top);

impl<'m, A: Arch, H: Hardware> Mm<'m, A, H> {
    /// A memory manager without RAM; [`add`](Self::add) adds some.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(hw: &'m H, parts: Parts<'m>) -> Result<Self, SetupError> {
        let policy = Policy::new(A::block_order());
        policy.set_copy_most(Order::of_bytes(COPY_MOST_BYTES, A::PAGE_SHIFT).unwrap_or_default());
        #[cfg(feature = "swap")]
        let swaps = {
            parts.swaps.iter_mut().for_each(Swap::reset);
            &*parts.swaps
        };
        let base = Base {
            hw,
            phys: Phys::new(parts.first, parts.slots, parts.caches, parts.zones)?,
            counters: parts.counters,
            pace: Pace::of(hw, A::PAGE_SHIFT),
            policy,
            #[cfg(feature = "files")]
            file_policy: FilePolicy::new::<A>(),
            #[cfg(feature = "reclaim")]
            groups: Groups::new(unused(parts.groups)),
            #[cfg(not(feature = "reclaim"))]
            groups: Groups::new(),
            demand: Demand::default(),
            #[cfg(feature = "files")]
            pools: Pools::new(),
            #[cfg(feature = "files")]
            files: unused(parts.files),
            #[cfg(feature = "swap")]
            swaps: &swaps[..swaps.len().min(SWAPS_MAX)],
            arch: PhantomData,
        };
        let top = Spaces::new(base);
        #[cfg(feature = "files")]
        let top = Files::new(top);
        #[cfg(feature = "swap")]
        let top = Paging::new(top);
        #[cfg(feature = "reclaim")]
        let top = Reclaim::new(top);
        Ok(Self { top })
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> &Base<'m, A, H> {
        self.top.base()
    }

    /// Less common operations on address spaces; the everyday ones are methods of this value.
    #[inline(always)]
    pub fn spaces(&self) -> &Spaces<'m, A, H> {
        self.top.spaces()
    }

    /// Files in memory.
    #[cfg(feature = "files")]
    #[inline(always)]
    pub fn files(&self) -> &Files<'m, A, H> {
        self.top.files()
    }

    /// Swap devices, and paging to them.
    #[cfg(feature = "swap")]
    #[inline(always)]
    pub fn paging(&self) -> &Paging<'m, A, H> {
        self.top.paging()
    }

    /// Reclaim, aging and collapse.
    #[cfg(feature = "reclaim")]
    #[inline(always)]
    pub fn reclaim(&self) -> &Reclaim<'m, A, H> {
        &self.top
    }

    /// Groups of spaces, and their limits.
    #[cfg(feature = "reclaim")]
    pub fn groups(&self) -> &Groups<'m> {
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

    /// The allocator itself: it takes frames and gives them back without a record of the caller.
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
