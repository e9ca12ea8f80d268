//! The trait an embedder implements.

use quire_units::{CpuId, FrameSpan, MemoryType};

use crate::{Flush, Memory};

/// The effects Quire needs: accesses to RAM, which are [`Memory`], and these. All methods may be
/// called by several CPUs at once.
///
/// Laws, which the library relies on for correctness:
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
pub trait Hardware: Memory {
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

impl Profile {
    /// The abilities that no CPU lacks, to name others beside them: no contiguous blocks, memory
    /// types by the platform alone, L2 caches of 1 MiB, and a kernel that can be preempted at any
    /// instruction.
    pub const BASE: Self = Self {
        transitions: Transitions::Base,
        contiguous: false,
        memory_types: MemoryTypes::PLATFORM,
        near_cache_bytes: 1 << 20,
        clear_unit_bytes: u64::MAX,
    };
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
