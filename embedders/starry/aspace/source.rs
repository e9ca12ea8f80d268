//! The kernel's orders for mappings, as requests to the library.

use alloc::sync::Arc;
use core::any::Any;

use ax_fs_ng::file::WriteAccess;
use ax_fs_ng::vfs::{CachedFile, FileBackend, FileFlags};
use ax_memory_addr::{PhysAddr, VirtAddr};
use ax_runtime::hal::paging::MappingFlags;
use quire_starry::PAGE;
use quire_starry::quire::units::{MemoryType, Prot};

use super::objects::{Object, SharedFileMappingLease, SharedMemoryObject, may_write};
use crate::{StarryError, StarryResult};

/// The content that a mapping is to show.
pub struct MappingOperation {
    pub(super) kind: Kind,
    /// Keeps programs from running the file while it may be written.
    pub(super) access: Option<Arc<WriteAccess>>,
}

pub(super) enum Kind {
    Anon,
    /// A private view of a file: from byte `offset`, shown at `start`, to byte `end`. Behind that
    /// there are zeroes; without an end it is the file's.
    Private {
        start: VirtAddr,
        file: FileBackend,
        offset: u64,
        end: Option<u64>,
    },
    Shared(Arc<SharedMemoryObject>),
    File {
        cache: CachedFile,
        flags: FileFlags,
        offset: u64,
        shared: bool,
    },
    Linear {
        start: PhysAddr,
        shared: bool,
        anchor: Option<Arc<dyn Any + Send + Sync>>,
    },
}

impl MappingOperation {
    const fn of(kind: Kind) -> Self {
        Self { kind, access: None }
    }

    pub fn new_alloc(_start: VirtAddr, _size: usize, _name: &str) -> Self {
        Self::of(Kind::Anon)
    }

    pub fn new_cow(
        start: VirtAddr,
        _size: usize,
        file: FileBackend,
        offset: u64,
        end: Option<u64>,
        _shared: bool,
    ) -> Self {
        Self::of(Kind::Private { start, file, offset, end })
    }

    pub fn new_shared(_start: VirtAddr, object: Arc<SharedMemoryObject>) -> Self {
        Self::of(Kind::Shared(object))
    }

    pub fn new_file(
        _start: VirtAddr,
        cache: CachedFile,
        flags: FileFlags,
        offset: usize,
        shared: bool,
    ) -> StarryResult<Self> {
        if !offset.is_multiple_of(PAGE) {
            return Err(StarryError::InvalidInput);
        }
        Ok(Self::of(Kind::File { cache, flags, offset: offset as u64, shared }))
    }

    pub fn new_linear(_start: VirtAddr, frames: PhysAddr, shared: bool) -> Self {
        Self::of(Kind::Linear { start: frames, shared, anchor: None })
    }

    pub fn new_linear_anchored(
        _start: VirtAddr,
        frames: PhysAddr,
        shared: bool,
        anchor: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self::of(Kind::Linear { start: frames, shared, anchor: Some(anchor) })
    }

    /// Keeps the open file's exclusion as long as the mapping.
    pub(crate) fn with_write_access(mut self, access: Option<Arc<WriteAccess>>) -> Self {
        self.access = access;
        self
    }

    /// The rights that `mprotect` may give.
    pub(crate) fn maximum_mapping_flags(&self, current: MappingFlags) -> MappingFlags {
        let rights =
            MappingFlags::READ | MappingFlags::WRITE | MappingFlags::EXECUTE | MappingFlags::USER;
        let kind = current - rights;
        match &self.kind {
            Kind::Anon | Kind::Private { .. } | Kind::Shared(_) => kind | rights,
            Kind::File { flags, shared, .. } if *shared && !may_write(*flags) => {
                kind | (rights - MappingFlags::WRITE)
            }
            Kind::File { .. } => kind | rights,
            Kind::Linear { .. } => current,
        }
    }

    /// The shared file that it shows.
    pub(crate) fn shared_file_lease(&self) -> Option<SharedFileMappingLease> {
        let Kind::File { cache, flags, offset, shared: true } = &self.kind else { return None };
        let object = Object::of_file(FileBackend::Cached(cache.clone())).ok()?;
        let start = VirtAddr::from_usize(0);
        Some(SharedFileMappingLease {
            object,
            may_write: may_write(*flags),
            start,
            offset: *offset,
        })
    }
}

/// The rights of an area.
pub(super) fn prot(flags: MappingFlags) -> Prot {
    let mut prot = Prot::empty();
    prot.set(Prot::READ, flags.contains(MappingFlags::READ));
    prot.set(Prot::WRITE, flags.contains(MappingFlags::WRITE));
    prot.set(Prot::EXEC, flags.contains(MappingFlags::EXECUTE));
    prot
}

/// The same, as the kernel says them.
pub(super) fn flags(prot: Prot) -> MappingFlags {
    let mut flags = MappingFlags::empty();
    flags.set(MappingFlags::READ, prot.contains(Prot::READ));
    flags.set(MappingFlags::WRITE, prot.contains(Prot::WRITE));
    flags.set(MappingFlags::EXECUTE, prot.contains(Prot::EXEC));
    flags.set(MappingFlags::USER, !prot.is_empty());
    flags
}

/// How the CPU is to treat a device's memory.
pub(super) fn memory_type(flags: MappingFlags) -> MemoryType {
    if flags.contains(MappingFlags::DEVICE) {
        MemoryType::Device
    } else if flags.contains(MappingFlags::UNCACHED) {
        MemoryType::Combining
    } else {
        MemoryType::Usual
    }
}
