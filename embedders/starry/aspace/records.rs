//! Records of areas for other parts of the kernel: copies, which need no lock.

use alloc::format;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use ax_memory_addr::{PhysAddr, VirtAddr, VirtAddrRange};
use ax_runtime::hal::paging::MappingFlags;
use quire_starry::PAGE;
use quire_starry::quire::cache::FilePages;
use quire_starry::quire::space::{Area, AreaFlags, Backing};
use quire_starry::quire::table::Sight;
use quire_starry::quire::units::{PageSpan, Prot, Vpn};

use super::fault::quiet;
use super::objects::{self, SharedFileMappingLease, SharedFutexIdentity, SharedFutexRegion};
use super::policy::{MappingFileInfo, ResidentPageCounts};
use super::{AddrSpace, address, range_of, source};
use crate::{StarryError, StarryResult};

/// One area, for `/proc` and debuggers.
#[derive(Clone)]
pub(crate) struct VmaInspectionRecord {
    range: VirtAddrRange,
    rights: MappingFlags,
    file: MappingFileInfo,
    is_locked: bool,
}

impl VmaInspectionRecord {
    pub fn start(&self) -> VirtAddr {
        self.range.start
    }

    pub fn end(&self) -> VirtAddr {
        self.range.end
    }

    pub fn size(&self) -> usize {
        self.range.size()
    }

    pub fn flags(&self) -> MappingFlags {
        self.rights
    }

    pub fn reported_flags(&self) -> MappingFlags {
        self.rights
    }

    pub fn file_info(&self) -> &MappingFileInfo {
        &self.file
    }

    pub fn is_locked(&self) -> bool {
        self.is_locked
    }
}

/// An area that shows a shared file.
#[derive(Clone)]
pub(crate) struct SharedFileVmaRecord {
    pub range: VirtAddrRange,
    pub rights: MappingFlags,
    pub file: SharedFileMappingLease,
}

/// The question whether a page that is not mapped is in memory.
pub(crate) struct VmaResidencyProbe(Option<(quire_starry::quire::space::FileId, u64)>);

impl VmaResidencyProbe {
    pub(crate) fn mincore_resident(
        &self,
        _address: VirtAddr,
        _cred: &Arc<crate::task::Cred>,
    ) -> bool {
        let Some((id, page)) = self.0 else { return false };
        let one = FilePages::new(page, page + 1);
        let found = quiet(|mm| mm.files().next_cached(id, one));
        matches!(found, Ok(Some(_)))
    }
}

impl AddrSpace {
    /// The areas that touch `span`, cut to it.
    pub(super) fn areas(&self, span: PageSpan) -> Vec<Area> {
        let clip = |area: Area| area.clipped(area.span.intersect(span));
        quiet(|mm| mm.spaces().areas(self.home().space(), span).map(clip).collect())
    }

    pub(super) fn area_at(&self, address: VirtAddr) -> Option<Area> {
        let page = Vpn::new((address.as_usize() / PAGE) as u64);
        let here = PageSpan::new(page, page.add(1));
        quiet(|mm| mm.spaces().areas(self.home().space(), here).next())
    }

    pub(crate) fn vma_inspection_records(&self) -> StarryResult<Vec<VmaInspectionRecord>> {
        let areas = self.areas(self.all());
        Ok(areas.into_iter().map(|area| self.record(&area)).collect())
    }

    fn record(&self, area: &Area) -> VmaInspectionRecord {
        VmaInspectionRecord {
            range: range_of(area.span),
            rights: source::flags(area.prot),
            file: self.info(area),
            is_locked: area.flags.contains(AreaFlags::LOCKED),
        }
    }

    fn info(&self, area: &Area) -> MappingFileInfo {
        let shared = area.flags.contains(AreaFlags::SHARED);
        let named = |name: &str| MappingFileInfo { path: name.to_string(), ..Default::default() };
        match area.backing {
            Backing::File { id, page } => {
                let object = objects::of(id);
                let info = object.as_ref().and_then(|object| file_info(object.file()?.location()));
                let info = info.unwrap_or_default();
                let offset = info.inode.map(|_| page * PAGE as u64);
                MappingFileInfo { shared, offset, ..info }
            }
            Backing::Anon if self.is_heap(area.span.start) => named("[heap]"),
            Backing::Anon if self.is_stack(area.span) => named("[stack]"),
            _ => MappingFileInfo { shared, ..Default::default() },
        }
    }

    /// The lease of an area that shows a shared file.
    pub(super) fn lease(&self, area: &Area) -> Option<SharedFileMappingLease> {
        let Backing::File { id, page } = area.backing else { return None };
        if !area.flags.contains(AreaFlags::SHARED) {
            return None;
        }
        let object = objects::of(id).filter(|object| object.cache().is_some())?;
        Some(SharedFileMappingLease {
            object,
            may_write: area.max_prot.contains(Prot::WRITE),
            start: address(area.span.start),
            offset: page * PAGE as u64,
        })
    }

    fn shared_file_record(&self, area: &Area) -> Option<SharedFileVmaRecord> {
        let (range, rights) = (range_of(area.span), source::flags(area.prot));
        self.lease(area).map(|file| SharedFileVmaRecord { range, rights, file })
    }

    pub(crate) fn shared_file_vma_at(&self, address: VirtAddr) -> Option<SharedFileVmaRecord> {
        self.shared_file_record(&self.area_at(address)?)
    }

    pub(crate) fn shared_file_vmas(&self) -> Vec<SharedFileVmaRecord> {
        let areas = self.areas(self.all());
        areas.iter().filter_map(|area| self.shared_file_record(area)).collect()
    }

    pub(crate) fn shared_futex_identity(&self, address: VirtAddr) -> Option<SharedFutexIdentity> {
        let page = Vpn::new((address.as_usize() / PAGE) as u64);
        let area = self.area_at(address).filter(|area| area.flags.contains(AreaFlags::SHARED))?;
        let (region, first) = match area.backing_of(page) {
            Backing::File { id, page } => (objects::of(id)?.region(), page),
            Backing::Frames { first, .. } => {
                (SharedFutexRegion::SharedMemory(objects::MappingId::OF_FRAMES), first.get())
            }
            Backing::Anon => return None,
        };
        let offset = first as usize * PAGE + address.as_usize() % PAGE;
        Some(SharedFutexIdentity { region, offset })
    }

    pub(crate) fn mincore_probe(&self, address: VirtAddr) -> Option<VmaResidencyProbe> {
        let page = Vpn::new((address.as_usize() / PAGE) as u64);
        let area = self.area_at(address)?;
        Some(VmaResidencyProbe(match area.backing_of(page) {
            Backing::File { id, page } => Some((id, page)),
            _ => None,
        }))
    }

    /// How many bytes from `address` on are mapped together.
    pub(crate) fn resident_bytes_from(&self, address: VirtAddr) -> Option<usize> {
        let page = Vpn::new((address.as_usize() / PAGE) as u64);
        let span = PageSpan::new(page, page.add(32));
        let mut end = page;
        self.each_leaf(span, |pages, _| {
            if pages.start <= end {
                end = pages.end;
            }
        });
        (end > page).then(|| end.offset_from(page) as usize * PAGE)
    }

    fn each_leaf(&self, span: PageSpan, mut see: impl FnMut(PageSpan, u64)) {
        quiet(|mm| {
            mm.spaces().runs(self.home().space(), span, &mut |seen| {
                if let Sight::Leaf { frame, .. } = seen.what {
                    see(seen.pages, frame.get());
                }
            });
        });
    }

    /// The physical address of a page that is mapped.
    pub(crate) fn translate(&self, vaddr: VirtAddr) -> StarryResult<PhysAddr> {
        let page = Vpn::new((vaddr.as_usize() / PAGE) as u64);
        let mut found = None;
        self.each_leaf(PageSpan::new(page, page.add(1)), |_, frame| found = Some(frame));
        let frame = found.ok_or(StarryError::BadAddress)? as usize;
        Ok(PhysAddr::from_usize(frame * PAGE + vaddr.as_usize() % PAGE))
    }

    pub(crate) fn resident_span(&self, vaddr: VirtAddr) -> Option<usize> {
        self.translate(vaddr).ok().map(|_| PAGE)
    }

    pub(crate) fn resident_page_counts(&self) -> ResidentPageCounts {
        let mut counts = ResidentPageCounts::default();
        quiet(|mm| {
            mm.spaces().folio_map(self.home().space(), |map| {
                let pages = map.resident();
                match map.area.backing {
                    Backing::Anon => counts.anon += pages,
                    Backing::File { id, .. } => match mm.files().get(id).map(|file| file.store()) {
                        Some(Some(quire_starry::quire::cache::Store::Memory)) => {
                            counts.shmem += pages;
                        }
                        _ => counts.file += pages,
                    },
                    Backing::Frames { .. } => {}
                }
            });
        });
        self.note_resident(counts.total());
        counts
    }
}

/// The name of a file in `/proc/PID/maps`.
fn file_info(place: &axfs_ng_vfs::Location) -> Option<MappingFileInfo> {
    let own = place.user_data();
    let memfd = own.get::<crate::file::memfd::MemfdRef>().map(|memfd| memfd.0.clone());
    // Formatting the path takes this lock, too.
    drop(own);
    let path = match memfd {
        Some(memfd) => format!("/memfd:{} (deleted)", memfd.name()),
        None => place.absolute_path().ok()?.to_string(),
    };
    let dev = place.metadata().ok()?.device;
    Some(MappingFileInfo {
        path,
        offset: Some(0),
        inode: Some(place.inode()),
        dev: Some(dev),
        shared: false,
    })
}
