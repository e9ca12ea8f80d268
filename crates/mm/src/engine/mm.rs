//! The memory manager and its spaces.

use core::marker::PhantomData;

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Asid, FrameSpan, Order, PageSpan, Pfn, Vpn};

use super::balance::Balance;
use super::error::Error;
use super::group::Group;
use crate::cache::{File, FilePolicy};
use crate::fault::Policy;
use crate::folio::clear::Pace;
use crate::limits::{COPY_MOST_BYTES, GROUPS_MAX};
use crate::phys::{CpuCache, Phys, SetupError, Slot};
use crate::space::{Space, View};
use crate::stats::{Counters, Event, Totals};
use crate::swap::{SWAPS_MAX, Swap};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::table::{Gather, Tables};

/// What the embedder lends for as long as the memory manager lives.
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
    /// As many files as may have pages in memory at once; none where there are no files. Each swap
    /// device takes one.
    pub files: &'m [File],
    /// As many swap devices as may be in use at once, [`SWAPS_MAX`] at most; none where there is no
    /// swap.
    pub swaps: &'m [Swap],
}

/// A memory manager for one system: `A` is the page-table format, `H` the hardware.
///
/// All methods may be called by several CPUs at once.
pub struct Mm<'m, A, H> {
    pub(super) hw: &'m H,
    pub(super) phys: Phys<'m>,
    pub(super) counters: &'m [Counters],
    pub(super) pace: Pace,
    pub(super) files: &'m [File],
    /// No file before this one is free, mostly.
    pub(super) free_file: AtomicU32,
    pub(super) swaps: &'m [Swap],
    /// Where the reclaimer goes on.
    pub(super) hand: Hand,
    /// The same among files: a file's number, and a page in it.
    pub(super) file_hand: Hand,
    pub(super) balance: Balance,
    pub(super) groups: [Group; GROUPS_MAX],
    /// Which folio sizes are wanted where. May be changed at any time.
    pub policy: Policy,
    /// In what sizes files are read, and how far ahead. May be changed at any time.
    pub file_policy: FilePolicy,
    arch: PhantomData<A>,
}

/// A place in all spaces: the root of one, and a page in it. Of two who move it, one is heard.
pub(super) struct Hand {
    root: AtomicU64,
    page: AtomicU64,
}

impl Hand {
    pub(super) fn new() -> Self {
        Self { root: AtomicU64::new(0), page: AtomicU64::new(0) }
    }

    pub(super) fn load(&self) -> (u64, u64) {
        (self.root.load(Ordering::Relaxed), self.page.load(Ordering::Relaxed))
    }

    pub(super) fn store(&self, root: u64, page: u64) {
        self.root.store(root, Ordering::Relaxed);
        self.page.store(page, Ordering::Relaxed);
    }
}

impl<'m, A: Arch, H: Hardware> Mm<'m, A, H> {
    /// A memory manager without RAM; [`add`](Self::add) brings some.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub fn new(hw: &'m H, parts: Parts<'m>) -> Result<Self, SetupError> {
        let policy = Policy::new(A::block_order());
        policy.set_copy_most(Order::of_bytes(COPY_MOST_BYTES, A::PAGE_SHIFT).unwrap_or_default());
        Ok(Self {
            hw,
            phys: Phys::new(parts.first, parts.slots, parts.caches, parts.zones)?,
            counters: parts.counters,
            pace: Pace::of(hw, A::PAGE_SHIFT),
            files: parts.files,
            free_file: AtomicU32::new(0),
            hand: Hand::new(),
            file_hand: Hand::new(),
            balance: Balance::new(),
            groups: core::array::from_fn(|_| Group::new()),
            swaps: &parts.swaps[..parts.swaps.len().min(SWAPS_MAX)],
            policy,
            file_policy: FilePolicy::new::<A>(),
            arch: PhantomData,
        })
    }

    /// Brings RAM under management.
    ///
    /// # Errors
    /// See [`Phys::add`].
    pub fn add(&self, run: FrameRun) -> Result<(), crate::phys::NotRam> {
        self.phys.add(run)
    }

    /// The physical memory allocator.
    pub fn phys(&self) -> &Phys<'m> {
        &self.phys
    }

    /// The effects.
    pub fn hardware(&self) -> &'m H {
        self.hw
    }

    /// A space without areas. `asid` is its tag, which the embedder has found free; areas without
    /// a fixed place go into `window`.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::Invalid`] when the window is not the program's to map.
    pub fn space(&self, asid: Asid, window: PageSpan) -> Result<Space<A>, Error> {
        let root = self.table_frame()?;
        self.space_over(root, asid, window)
    }

    /// The same over a root table that the embedder has prepared: one frame, zero but for entries
    /// beyond the user half, which are the embedder's.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the window is not the program's to map, or the run is not one
    /// frame; the frame is free then.
    pub fn space_over(
        &self,
        root: FrameRun,
        asid: Asid,
        window: PageSpan,
    ) -> Result<Space<A>, Error> {
        if root.count() != 1 || !Space::<A>::may_map(window) {
            self.free(root);
            return Err(Error::Invalid);
        }
        let tables = Tables::<A, H>::found(self.hw, self.phys.meta(), root);
        Ok(Space::new(tables.root(), asid, window))
    }

    /// The space as seen through this memory manager.
    #[inline]
    pub(crate) fn view<'a>(&'a self, space: &'a Space<A>) -> View<'a, A, H> {
        View { hw: self.hw, meta: self.phys.meta(), counters: self.counters, space }
    }

    /// Ends a space. No CPU uses it any more: each has switched away, and none may enter it again.
    /// One flush does for all of it, however much was mapped, and comes first: then nothing that
    /// is taken out needs to wait for one.
    pub fn destroy(&self, space: Space<A>) {
        let view = self.view(&space);
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        self.change(&space, |section| {
            let _ = section.writer().cut(all, |_| {});
            while let Some(run) = section.writer().unstock() {
                self.free(run);
            }
        });
        let mut gather = view.tables().retire();
        let mut left = all;
        while !left.is_empty() {
            let took = view.tables().take(left, &mut gather);
            self.count(Event::EntriesCleared, took.entries);
            left = PageSpan::new(took.upto, left.end);
            if !left.is_empty() {
                self.settle(&space, &mut gather);
            }
        }
        view.tables().prune(all, all, &mut gather);
        view.tables().free_root(&mut gather);
        self.settle(&space, &mut gather);
    }

    /// All counters, summed over the CPUs.
    pub fn totals(&self) -> Totals {
        Totals::of(self.counters)
    }

    /// Counts for the CPU that runs this.
    #[inline]
    pub(super) fn count(&self, event: Event, count: u64) {
        if let Some(own) = self.counters.get(self.hw.cpu().index()) {
            own.add(event, count);
        }
    }

    /// Flushes and frees what a change took out.
    #[inline]
    pub(super) fn settle(&self, space: &Space<A>, gather: &mut Gather) {
        if !gather.is_empty() {
            self.settle_all(space, gather);
        }
    }

    fn settle_all(&self, space: &Space<A>, gather: &mut Gather) {
        let settled = gather.settle(&self.phys, self.hw, space.target());
        self.count(Event::Flush, settled.flushes);
        self.count(Event::Invalidations, settled.invalidations);
        self.count(Event::FramesFreed, settled.frames);
        for (first, pages) in gather.take_marks() {
            self.release_marks(first, pages);
        }
    }

    /// One zeroed frame for a table.
    pub(super) fn table_frame(&self) -> Result<FrameRun, Error> {
        let run = self.frames(Order::ZERO, true)?;
        if !run.is_zeroed() {
            self.hw.clear(&run, 0..1, quire_hw::Reuse::Soon);
        }
        Ok(run)
    }
}
