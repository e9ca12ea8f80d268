//! The plain values that the kernel exchanges with its address spaces.

use alloc::string::String;

use ax_memory_addr::PAGE_SIZE_4K;
use ax_runtime::hal::paging::MappingFlags;

use crate::{StarryError, StarryResult};

/// `si_code` of a SIGBUS.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusCode {
    /// The page lies behind the end of its file.
    AdrErr = 2,
    /// The page cannot be had.
    ObjErr = 3,
}

/// The answer to a page fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultResult {
    Handled,
    Unmapped,
    PermissionDenied,
    Retry,
    NoMemory,
    Sigbus(BusCode),
}

/// A process's choice about large folios (`PR_SET_THP_DISABLE`).
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TransparentHugePageMode {
    #[default]
    Enabled = 0,
    Disabled = 1,
    ExceptAdvised = 3,
}

impl TransparentHugePageMode {
    pub const fn prctl_value(self) -> u32 {
        self as u32
    }

    pub(crate) const fn from_storage(value: u8) -> Self {
        match value {
            0 => Self::Enabled,
            3 => Self::ExceptAdvised,
            _ => Self::Disabled,
        }
    }
}

/// The three views of an area's rights. The second is not kept: areas report the rights that they
/// have.
#[derive(Debug, Clone, Copy)]
pub struct MappingPermissions {
    pub current: MappingFlags,
    pub reported: MappingFlags,
    pub maximum: MappingFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmaLockMode {
    Unlocked,
    Locked,
    LockOnFault,
}

/// Where a mapping comes to lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Here; what is there goes.
    Replace,
    /// Here, or nowhere.
    Exact,
    /// Here if there is room, or else elsewhere.
    Hint,
}

/// How a mapping begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MappingPublication {
    pub(super) placement: Placement,
    pub(super) lock_mode: VmaLockMode,
    pub(super) limit: Option<MemlockLimit>,
}

impl MappingPublication {
    pub(crate) const fn new(placement: Placement) -> Self {
        Self { placement, lock_mode: VmaLockMode::Unlocked, limit: None }
    }

    pub(crate) const fn mmap(
        placement: Placement,
        lock_mode: VmaLockMode,
        limit: Option<MemlockLimit>,
    ) -> Self {
        Self { placement, lock_mode, limit }
    }
}

/// `RLIMIT_MEMLOCK` and `CAP_IPC_LOCK` as one call sees them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemlockLimit {
    pages: u64,
    bypass: bool,
    would_block: bool,
}

impl MemlockLimit {
    pub(crate) const fn for_mlock(bytes: u64, bypass: bool) -> Self {
        Self { pages: bytes / PAGE_SIZE_4K as u64, bypass, would_block: false }
    }

    pub(crate) const fn for_mapping(bytes: u64, bypass: bool) -> Self {
        Self { would_block: true, ..Self::for_mlock(bytes, bypass) }
    }

    pub(crate) const fn can_lock(self) -> bool {
        self.bypass || self.pages != 0
    }

    /// Whether a space may have this many locked pages.
    pub(super) fn check(self, pages: u64) -> StarryResult {
        match (self.bypass || pages <= self.pages, self.would_block) {
            (true, _) => Ok(()),
            (false, true) => Err(StarryError::WouldBlock),
            (false, false) => Err(StarryError::NoMemory),
        }
    }
}

/// The result of a change of areas. All flushes are done when it is there, so that none is pending.
pub(crate) enum AddressSpaceMutationOutcome {
    Complete,
    #[allow(dead_code, reason = "callers name it; no change here ends with a flush to do")]
    PublishedPendingTlb(StarryError),
}

/// The name of an area's source in `/proc/PID/maps`.
#[derive(Debug, Clone, Default)]
pub struct MappingFileInfo {
    pub path: String,
    pub offset: Option<u64>,
    pub inode: Option<u64>,
    pub dev: Option<u64>,
    pub shared: bool,
}

/// The resident pages of a space by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ResidentPageCounts {
    pub anon: u64,
    pub file: u64,
    pub shmem: u64,
}

impl ResidentPageCounts {
    pub const fn total(self) -> u64 {
        self.anon + self.file + self.shmem
    }
}
