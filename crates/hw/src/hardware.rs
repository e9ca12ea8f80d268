//! The trait an embedder implements.

use core::fmt;
use core::ops::Range;

use quire_units::{CpuId, FrameSpan, MemoryType, Pfn};

use crate::{Flush, FrameRun, TableFrame};

/// The effects Quire needs. All methods may be called by several CPUs at once.
///
/// Laws, which the library relies on for correctness:
/// * `load`, `fill` and `compare_exchange` act on each 64-bit word atomically, `load` with
///   acquire, the other two with release semantics.
/// * The hardware's table walker sees the words in the order of those calls (arm64: an `ISH` store
///   barrier after a `fill` or exchange that makes an entry valid).
/// * Before [`flush`](Self::flush), the library orders its changes of tables by a sequentially
///   consistent fence. An implementation reads the set of CPUs after that, so it sees each CPU that
///   was added to the set before it could have walked the tables as they were.
/// * After [`flush`](Self::flush) returns, no CPU uses a translation that the flush named, and no
///   CPU still walks a table through an entry that was changed before the call.
/// * After [`publish_code`](Self::publish_code) returns, no CPU fetches instructions from the
///   frames as they were before.
/// * The library may call these two with a page table locked (in the middle of a
///   break-before-make). So a CPU that spins for a lock of the library, or waits in a fault for the
///   end of a change, must still obey them. Where they are interrupts that a CPU can mask (x86-64),
///   call the library with interrupts enabled. Where they are not (arm64's broadcast TLBI;
///   riscv64's SBI, whose firmware interrupts a CPU in machine mode), either will do.
///
/// Module [`flush`](crate::flush) says for each ISA which instructions keep these laws.
pub trait Hardware: Sync {
    /// Word `index` of `frame`. Any frame of RAM may be read, also one that another CPU is about
    /// to free or reuse: readers validate afterwards what they read.
    fn load(&self, frame: Pfn, index: usize) -> u64;

    /// How many words of `frame` from `index` on, `most` at most, are `first`, `first + step`, …,
    /// the words that [`fill`](Self::fill) would have written. Ordered as a `load` of each.
    ///
    /// Scans of tables spend their time here, so an implementation faster than word by word pays;
    /// [`DirectMap::count_run`](crate::DirectMap::count_run) is one.
    fn count_run(&self, frame: Pfn, index: usize, most: usize, first: u64, step: u64) -> usize {
        let mut expected = first;
        let same = |at: &usize| {
            let same = self.load(frame, *at) == expected;
            expected = expected.wrapping_add(step);
            same
        };
        (index..index + most).take_while(same).count()
    }

    /// The words of `frame` from `index` on, into all of `words`. Each is as a `load` would return
    /// it at some moment of the call: they need not be of one moment. Only hardware can change
    /// words of a locked table, each on its own, so the holder needs no order among them, and an
    /// implementation may load several at once.
    fn load_words(&self, frame: Pfn, index: usize, words: &mut [u64]) {
        words.iter_mut().enumerate().for_each(|(at, word)| *word = self.load(frame, index + at));
    }

    /// Writes `words` from `index` on, each as [`fill`](Self::fill) would and in any order.
    fn store_words(&self, table: &TableFrame, index: usize, words: &[u64]) {
        words.iter().enumerate().for_each(|(at, word)| self.fill(table, index + at, 1, *word, 0));
    }

    /// Writes `count` words from `index` on: `first`, `first + step`, `first + 2·step`, …
    /// (wrapping).
    fn fill(&self, table: &TableFrame, index: usize, count: usize, first: u64, step: u64);

    /// Writes `new` to word `index` if it holds `current`.
    ///
    /// # Errors
    /// The word's value, if it was another; nothing is written then.
    fn compare_exchange(
        &self,
        table: &TableFrame,
        index: usize,
        current: u64,
        new: u64,
    ) -> Result<(), u64>;

    /// Zeroes frames `pages` of `frames` (counted from its first), as one extent.
    fn clear(&self, frames: &FrameRun, pages: Range<u64>, reuse: Reuse);

    /// Copies `from` over the frames of `to` from number `at` (counted from its first) on.
    ///
    /// # Errors
    /// The frame whose memory failed. The frames before it were copied.
    fn copy(&self, to: &FrameRun, at: u64, from: FrameSpan) -> Result<(), Poisoned>;

    /// Drops translations. Returns once it is done: module [`flush`](crate::flush) has the laws,
    /// and the instructions of each ISA that keep them.
    fn flush(&self, flush: &Flush<'_>);

    /// Makes instruction fetches of all CPUs see what was stored to `frames` before the call, by
    /// whatever CPU or device and through whatever address. Returns once it is done.
    ///
    /// The library calls it before an executable leaf shows a folio, once for each folio: after
    /// clears, copies and reads, of anonymous memory and of files. It does so again when it changes
    /// such a folio, and when the embedder says that it did (`Files::mark_dirty`, `Mm::unpin` of a
    /// page that was pinned to be changed). A program that stores code itself makes it visible
    /// itself, as each ISA's manual demands. But the first time that memory becomes executable, by
    /// a fault or a change of rights, the library does it, as Linux does on arm64 and riscv64 (flag
    /// `PG_dcache_clean`). Frames that belong to no folio are the embedder's care.
    ///
    /// As for `flush`, a table may be locked meanwhile.
    ///
    /// | ISA | instructions |
    /// |---|---|
    /// | x86-64 | nothing: fetches see all stores (SDM volume 3A, "Self-Modifying Code"; a CPU that fetched the old bytes has passed a flush since, which serializes) |
    /// | arm64 | for each line `DC CVAU`, unless CTR_EL0.IDC; `DSB ISH`; for each line `IC IVAU`, or `IC IALLUIS` where the instruction cache has aliases, neither where CTR_EL0.DIC; `DSB ISH`; `ISB` (Arm ARM, "Synchronization and coherency issues between data and instruction accesses"; CTR_EL0). Addresses of the kernel's direct map do |
    /// | riscv64 | `FENCE RW,RW`, `FENCE.I`, and the same on all other harts, by SBI RFENCE `remote_fence_i` (unprivileged manual, "Zifencei"): `FENCE.I` has no address, and acts on its own hart alone |
    ///
    /// There is no default: one that did nothing would be right on x86-64 alone, and emulators
    /// would not show it.
    fn publish_code(&self, frames: FrameSpan);

    /// Called when `frames` have left use and are about to be free: for balloons, free-page
    /// reporting and examiners. No CPU maps any of them any more.
    #[inline]
    fn freed(&self, frames: FrameSpan) {
        let _ = frames;
    }

    /// The CPU that runs the caller. The caller stays on it while it uses the answer, or accepts
    /// the wrong CPU's cache: an answer that is out of date costs time, not correctness.
    fn cpu(&self) -> CpuId;

    /// The CPUs' capabilities. Constant while the system runs.
    fn profile(&self) -> Profile;
}

/// Whether cleared memory will be touched soon, so that caching it pays.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reuse {
    /// The extent is about to be read or written: leave it in the near caches.
    Soon,
    /// No access is expected soon: the fastest way to zero it, whatever that leaves in the caches.
    Later,
}

/// The CPUs' abilities beyond the ISA's base, found at boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile {
    /// How a live entry may change its size or contiguity.
    pub transitions: Transitions,
    /// Every CPU has the contiguous blocks of the page-table format. `false` on riscv64 without
    /// Svnapot, where a contiguous entry faults on each access, and on arm64 parts with an erratum
    /// against the contiguous bit. The library then writes no contiguous entry. x86-64 has none:
    /// either value will do.
    ///
    /// Nothing needs to be said about accessed and dirty flags: where a CPU does not set them by
    /// itself, the first access or write faults, and the library sets them.
    pub contiguous: bool,
    /// How mappings get a memory type other than the usual one.
    pub memory_types: MemoryTypes,
    /// Folios larger than this many bytes do not fit the near caches; clearing them through the
    /// caches would only evict useful lines. Usually the size of the L2 cache.
    pub near_cache_bytes: u64,
    /// How many bytes may be cleared between two points at which another task may run.
    /// `u64::MAX` where the kernel can be preempted at any instruction.
    pub clear_unit_bytes: u64,
}

/// How a live entry may change its size or contiguity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Transitions {
    /// As the ISA's base prescribes.
    Base,
    /// Without break-before-make: FEAT_BBM level 2 without aborts (arm64).
    BbmLevel2,
}

/// How mappings get each memory type other than the usual one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MemoryTypes {
    /// [`MemoryType::Combining`].
    pub combining: TypedBy,
    /// [`MemoryType::Device`].
    pub device: TypedBy,
}

impl MemoryTypes {
    /// Page-table entries say all types: arm64, x86-64 with a PAT that the embedder has written for
    /// the format's slots, riscv64 with Svpbmt.
    pub const ENTRIES: Self = Self { combining: TypedBy::Entry, device: TypedBy::Entry };
    /// Entries say none, and devices have theirs by their address: riscv64 without Svpbmt, where
    /// the physical memory attributes (PMAs) give it.
    pub const PLATFORM: Self = Self { combining: TypedBy::Nothing, device: TypedBy::Platform };

    /// How mappings get this type. The usual one needs nothing.
    #[inline]
    pub const fn of(self, memory: MemoryType) -> TypedBy {
        match memory {
            MemoryType::Usual => TypedBy::Platform,
            MemoryType::Combining => self.combining,
            MemoryType::Device => self.device,
        }
    }
}

/// The giver of a mapping's memory type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TypedBy {
    /// The page-table entry. The format encodes it.
    Entry,
    /// The platform, by the frame's address: the library writes plain entries.
    Platform,
    /// Nothing can: the library refuses to map frames of this type.
    Nothing,
}

/// A frame whose memory reported an uncorrectable error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Poisoned {
    /// Which frame.
    pub frame: Pfn,
}

impl fmt::Display for Poisoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} holds an uncorrectable memory error", self.frame)
    }
}

impl core::error::Error for Poisoned {}
