//! The objects that areas show: files of the kernel's file systems, and shared memory.
//!
//! Each is a file of the library's, whose pages are read from the file system's own cache. It lives
//! as long as a space may show it, and then its dirty pages are written back.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::slice;

use ax_fs_ng::file::CachedFileIdentity;
use ax_fs_ng::vfs::{CachedFile, FileBackend, FileFlags};
use ax_memory_addr::{PhysAddr, VirtAddr};
use ax_runtime::hal::paging::MappingFlags;
use quire_starry::quire::cache::{FILE_PAGES_MAX, FilePages, Reads, Store};
use quire_starry::quire::hw::ForeignFrames;
use quire_starry::quire::space::{Backing, FileId};
use quire_starry::quire::units::{FrameSpan, MemoryType, Order, PageSpan, Pfn, Vpn};
use quire_starry::quire::{Error, ReadFailed, Stop, WriteFailed};
use quire_starry::{Everyone, Home, PAGE, PAGE_SHIFT};

use super::fault::{quiet, wait};
use crate::sync::Mutex;
use crate::{StarryError, StarryResult};

/// A number that no other object has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MappingId(u64);

impl MappingId {
    /// Frames by number are one object, which has all of them.
    pub(super) const OF_FRAMES: Self = Self(u64::MAX);

    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The object that a shared futex lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SharedFutexRegion {
    SharedMemory(MappingId),
    File(CachedFileIdentity),
}

/// The place of a futex in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedFutexIdentity {
    pub(super) region: SharedFutexRegion,
    pub(super) offset: usize,
}

impl SharedFutexIdentity {
    pub const fn region(self) -> SharedFutexRegion {
        self.region
    }

    pub const fn offset(self) -> usize {
        self.offset
    }
}

/// A file of the library's.
pub(crate) struct Object {
    id: FileId,
    /// Where its pages come from, and go to; none: they begin as zeroes and stay in memory.
    file: Option<FileBackend>,
    is_memfd: bool,
}

struct Registry {
    by_id: BTreeMap<u32, Weak<Object>>,
    by_file: BTreeMap<CachedFileIdentity, Weak<Object>>,
}

static OBJECTS: Mutex<Registry> =
    Mutex::new(Registry { by_id: BTreeMap::new(), by_file: BTreeMap::new() });

/// The object with this number.
pub(super) fn of(id: FileId) -> Option<Arc<Object>> {
    OBJECTS.lock().by_id.get(&id.0)?.upgrade()
}

impl Object {
    /// Memory of this many pages, for several spaces to share.
    fn memory(pages: u64) -> StarryResult<Arc<Self>> {
        Self::open(None, Store::Memory, pages)
    }

    /// The object of a file; all areas that show the file have the same one.
    pub(super) fn of_file(file: FileBackend) -> StarryResult<Arc<Self>> {
        let FileBackend::Cached(cache) = &file else {
            let pages = pages_of(file.len()?);
            return Self::open(Some(file), Store::ReadOnly, pages);
        };
        let key = cache.identity();
        let known = OBJECTS.lock().by_file.get(&key).and_then(Weak::upgrade);
        if let Some(known) = known {
            known.refresh();
            return Ok(known);
        }
        let pages = pages_of(cache.len());
        let object = Self::open(Some(file), Store::ReadWrite, pages)?;
        OBJECTS.lock().by_file.insert(key, Arc::downgrade(&object));
        Ok(object)
    }

    fn open(file: Option<FileBackend>, store: Store, pages: u64) -> StarryResult<Arc<Self>> {
        let id = quiet(|mm| mm.files().open(store, pages, Order::ZERO))
            .map_err(|_| StarryError::NoMemory)?;
        let is_memfd = file.as_ref().is_some_and(is_memfd);
        let object = Arc::new(Self { id, file, is_memfd });
        OBJECTS.lock().by_id.insert(id.0, Arc::downgrade(&object));
        Ok(object)
    }

    pub(super) fn id(&self) -> FileId {
        self.id
    }

    /// The file that it shows, if it is a file in the kernel's cache.
    pub(super) fn cache(&self) -> Option<&CachedFile> {
        match &self.file {
            Some(FileBackend::Cached(cache)) => Some(cache),
            _ => None,
        }
    }

    /// Whether it is a memory file of a program, which counts the areas that may write it.
    pub(super) fn is_memfd(&self) -> bool {
        self.is_memfd
    }

    /// The file that it shows.
    pub(super) fn file(&self) -> Option<&FileBackend> {
        self.file.as_ref()
    }

    /// The object as futexes know it.
    pub(super) fn region(&self) -> SharedFutexRegion {
        match self.cache() {
            Some(cache) => SharedFutexRegion::File(cache.identity()),
            None => SharedFutexRegion::SharedMemory(MappingId(self.id.0.into())),
        }
    }

    /// Takes over the file's length, if the file has grown, and forgets pages that no area changed:
    /// the file may have been written meanwhile. Whether it has grown.
    fn refresh(&self) -> bool {
        let Some(len) = self.file.as_ref().and_then(|file| file.len().ok()) else { return false };
        let (pages, all) = (pages_of(len), FilePages::new(0, FILE_PAGES_MAX));
        quiet(|mm| {
            let has = mm.files().get(self.id).map_or(pages, |file| file.pages());
            if pages > has {
                return mm.files().truncate(self.id, pages, &Everyone).is_ok();
            }
            let _ = mm.files().drop_clean(self.id, all);
            false
        })
    }

    /// Fills pages from the file; behind its end there are zeroes.
    fn read(&self, first: u64, bytes: &mut [u8]) -> Result<(), ReadFailed> {
        let Some(file) = &self.file else { return Err(ReadFailed) };
        let mut done = 0;
        while done < bytes.len() {
            let at = first * PAGE as u64 + done as u64;
            match file.read_at(&mut bytes[done..], at) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(_) => return Err(ReadFailed),
            }
        }
        bytes[done..].fill(0);
        Ok(())
    }

    /// Writes the dirty pages among these to the file.
    pub(super) fn write_back(&self, mut pages: FilePages) -> StarryResult {
        let Some(file) = &self.file else { return Ok(()) };
        let mut result = Ok(());
        loop {
            let write = match quiet(|mm| mm.files().next_write(self.id, &mut pages, &Everyone)) {
                Ok(Some(write)) => write,
                Ok(None) => return result,
                Err(Stop::Need(need)) => {
                    wait(need);
                    continue;
                }
                Err(Stop::Refuse(_)) => return Err(StarryError::Io),
            };
            let start = write.pages().start * PAGE as u64;
            let end = file.len().unwrap_or(0).min(write.pages().end * PAGE as u64);
            let count = end.saturating_sub(start) as usize;
            // SAFETY: the frames are held until `write_done`, and the kernel sees them. A program
            // may store to them at the same time: it gets either byte.
            let bytes = unsafe { slice::from_raw_parts(seen(write.frames().start), count) };
            let done = match bytes.is_empty() || file.write_at(bytes, start).is_ok() {
                true => Ok(()),
                false => Err(WriteFailed),
            };
            if done.is_err() {
                result = Err(StarryError::Io);
            }
            quiet(|mm| mm.files().write_done(write, done));
        }
    }

    /// Makes a hole of these pages, in memory and in the file.
    pub(super) fn punch(&self, pages: FilePages) -> StarryResult {
        let done = match quiet(|mm| mm.files().punch(self.id, pages, &Everyone)) {
            // It is a file's: the pages are read anew, as zeroes.
            Err(Error::Invalid) => quiet(|mm| mm.files().drop_clean(self.id, pages)).map(drop),
            other => other,
        };
        done.map_err(super::change::error)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if self.write_back(FilePages::new(0, FILE_PAGES_MAX)).is_err() {
            warn!("a file could not be written back");
        }
        {
            let mut all = OBJECTS.lock();
            all.by_id.remove(&self.id.0);
            if let Some(key) = self.cache().map(CachedFile::identity)
                && all.by_file.get(&key).is_some_and(|other| other.strong_count() == 0)
            {
                all.by_file.remove(&key);
            }
        }
        while let Err(Error::InUse(_)) = quiet(|mm| mm.files().close(self.id)) {
            crate::task::yield_now();
        }
    }
}

fn is_memfd(file: &FileBackend) -> bool {
    file.location().user_data().get::<crate::file::memfd::MemfdRef>().is_some()
}

fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE as u64)
}

/// Where the kernel sees a frame of the library's.
fn seen(frame: Pfn) -> *mut u8 {
    quiet(|mm| mm.hardware().address(frame))
}

/// Reads what a fault lacks. It may sleep.
pub(super) fn fetch(reads: Reads) {
    let Err(mut reads) = quiet(|_| quire_starry::swap_in(reads)) else { return };
    while let Ok(Some(read)) = quiet(|mm| mm.files().next_read(&mut reads)) {
        let (first, pages) = (read.pages().start, read.pages().count());
        let bytes = (pages << PAGE_SHIFT) as usize;
        // SAFETY: the read has the right to these frames, which no area shows before `read_done`,
        // and the kernel sees them.
        let bytes = unsafe { slice::from_raw_parts_mut(seen(read.frames().start()), bytes) };
        let done = of(read.file()).ok_or(ReadFailed).and_then(|object| object.read(first, bytes));
        quiet(|mm| mm.files().read_done(read, done));
    }
}

/// Whether the file that `page` shows has grown since it was mapped.
pub(super) fn grow(home: &Home, page: Vpn) -> bool {
    let here = PageSpan::new(page, page.add(1));
    let area = quiet(|mm| mm.spaces().areas(home.space(), here).next());
    match area.map(|area| area.backing) {
        Some(Backing::File { id, .. }) => of(id).is_some_and(|object| object.refresh()),
        _ => false,
    }
}

/// Memory that several spaces show: `MAP_SHARED`, System V segments, or pages of a driver.
pub struct SharedMemoryObject {
    pub(super) kind: SharedKind,
    bytes: usize,
}

pub(super) enum SharedKind {
    Object(Arc<Object>),
    /// Runs of frames that a driver keeps, and what it keeps them by.
    Frames(Vec<ForeignFrames>, Option<Arc<dyn Any + Send + Sync>>),
}

impl SharedMemoryObject {
    pub fn allocate(size: usize, page_size: usize) -> StarryResult<Self> {
        if size == 0 || page_size != PAGE || !size.is_multiple_of(PAGE) {
            return Err(StarryError::InvalidInput);
        }
        let object = Object::memory((size / PAGE) as u64)?;
        Ok(Self { kind: SharedKind::Object(object), bytes: size })
    }

    pub fn borrowed(
        pages: Vec<PhysAddr>,
        page_size: usize,
        retain: Option<Arc<dyn Any + Send + Sync>>,
    ) -> StarryResult<Self> {
        if pages.is_empty() || page_size != PAGE {
            return Err(StarryError::InvalidInput);
        }
        let runs = pages.chunk_by(|one, next| one.as_usize() + PAGE == next.as_usize());
        let runs = runs.map(|run| frames(run[0], run.len(), MemoryType::Usual));
        Ok(Self { kind: SharedKind::Frames(runs.collect(), retain), bytes: pages.len() * PAGE })
    }

    pub fn capacity_bytes(&self) -> Option<usize> {
        Some(self.bytes)
    }
}

/// The right to map frames of a device or a driver.
pub(super) fn frames(start: PhysAddr, pages: usize, memory: MemoryType) -> ForeignFrames {
    let span = FrameSpan::new(Pfn::new((start.as_usize() / PAGE) as u64), pages as u64);
    // SAFETY: all frames of the library came from the kernel's allocator at the start and never go
    // back, so no driver has one of them. A driver answers for the frames that it shows.
    unsafe { ForeignFrames::new(span, memory) }
}

/// A shared file that an area shows, as callers keep it without the lock of the space.
#[derive(Clone)]
pub(crate) struct SharedFileMappingLease {
    pub(super) object: Arc<Object>,
    pub(super) may_write: bool,
    /// The area's first address, and the byte of the file that it shows there.
    pub(super) start: VirtAddr,
    pub(super) offset: u64,
}

impl SharedFileMappingLease {
    pub(crate) fn check_flags(&self, flags: MappingFlags) -> StarryResult {
        match flags.contains(MappingFlags::WRITE) && !self.may_write {
            true => Err(StarryError::PermissionDenied),
            false => Ok(()),
        }
    }

    /// The file. Leases are made of files in the cache alone.
    pub(crate) fn cache(&self) -> &CachedFile {
        self.object.cache().expect("a lease is of a file in the cache")
    }

    pub(crate) fn cache_location(&self) -> &axfs_ng_vfs::Location {
        self.cache().location()
    }

    pub(super) fn pages(&self, start: VirtAddr, end: VirtAddr) -> FilePages {
        let at = |address: VirtAddr| {
            (self.offset + (address.as_usize() - self.start.as_usize()) as u64) / PAGE as u64
        };
        FilePages::new(at(start), at(end))
    }

    pub(crate) fn file_offset_at(&self, address: VirtAddr) -> u64 {
        self.pages(address, address).start * PAGE as u64
    }

    /// Writes dirty pages back, and to the disk.
    pub(crate) fn writeback_range(&self, start: VirtAddr, end: VirtAddr) -> StarryResult {
        self.object.write_back(self.pages(start, end))?;
        self.cache().sync(true)?;
        Ok(())
    }

    pub(crate) fn punch(&self, start: VirtAddr, end: VirtAddr) -> StarryResult {
        self.object.punch(self.pages(start, end))
    }
}

/// The rights that an open file gives to a mapping.
pub(super) fn may_write(flags: FileFlags) -> bool {
    flags.contains(FileFlags::WRITE)
}
