//! The memory of one program.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ax_fs_ng::file::{ExecutableFile, WriteAccess};
use ax_memory_addr::{PhysAddr, VirtAddr, VirtAddrRange};
use quire_starry::quire::arch::Arch;
use quire_starry::quire::space::OptOut;
use quire_starry::quire::units::{PageSpan, Vpn};
use quire_starry::{Format, Home, PAGE};

use super::objects::Object;
use super::policy::TransparentHugePageMode;
use super::{AddressSpaceId, VmEpoch, change, fault};
use crate::config::{USER_HEAP_BASE, USER_HEAP_SIZE_MAX, USER_STACK_SIZE};
use crate::mm::UserVirtualAddressLayout;
use crate::sync::Mutex;
use crate::{StarryError, StarryResult};

/// Below the stack, no mapping is placed by itself.
const STACK_GAP: usize = 1 << 20;
/// Nor below this address: programs, their heaps and the trampoline lie there.
const PLACES_FROM: usize = 1 << 32;

/// The most pages that the space had.
#[derive(Default)]
pub struct Peak(pub(super) AtomicU64);

impl Peak {
    pub fn peak_vss_pages(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Something that lives as long as an area shows frames by number.
type Keeper = Arc<dyn Any + Send + Sync>;

/// The memory of one program.
pub struct AddrSpace {
    id: AddressSpaceId,
    pub(super) layout: UserVirtualAddressLayout,
    home: Arc<Home>,
    /// The objects that its areas show, or have shown since the last look.
    pub(super) objects: Vec<Arc<Object>>,
    pub(super) keepers: Vec<Keeper>,
    pub(super) writers: Vec<Arc<WriteAccess>>,
    pub(super) heap_break: usize,
    pub(super) executable_data: (usize, usize),
    pub(super) executable_file: Option<Arc<ExecutableFile>>,
    /// Grows with each change of areas.
    pub(super) epoch: Arc<AtomicU64>,
    /// The CPUs in it, as the scheduler notes them.
    active: Arc<AtomicUsize>,
    pub vm_stat: Peak,
    /// Pages that areas have: a walk for each change would cost as much as there are areas.
    pub(super) pages: u64,
    /// The most resident pages that were seen.
    hiwater: AtomicU64,
}

impl AddrSpace {
    pub(crate) fn new_user(layout: UserVirtualAddressLayout) -> StarryResult<Self> {
        if !fault::start() {
            return Err(StarryError::NoMemory);
        }
        let stack = layout.stack_top().as_usize().saturating_sub(USER_STACK_SIZE + STACK_GAP);
        let places = match stack > PLACES_FROM {
            true => (PLACES_FROM, stack),
            false => (layout.range().start.as_usize(), layout.range().end.as_usize()),
        };
        let window = span_of(places.0, places.1 - places.0)?;
        let home = fault::quiet(|_| Home::new(window)).map_err(change::error)?;
        Ok(Self::with(home, layout))
    }

    pub(super) fn with(home: Arc<Home>, layout: UserVirtualAddressLayout) -> Self {
        Self {
            id: AddressSpaceId::allocate(),
            layout,
            home,
            objects: Vec::new(),
            keepers: Vec::new(),
            writers: Vec::new(),
            heap_break: USER_HEAP_BASE,
            executable_data: (0, 0),
            executable_file: None,
            epoch: Arc::new(AtomicU64::new(1)),
            active: Arc::new(AtomicUsize::new(0)),
            vm_stat: Peak::default(),
            pages: 0,
            hiwater: AtomicU64::new(0),
        }
    }

    pub fn new_empty(base: VirtAddr, size: usize) -> StarryResult<Self> {
        Self::new_user(UserVirtualAddressLayout::from_range(base, size)?)
    }

    pub(super) fn home(&self) -> &Arc<Home> {
        &self.home
    }

    pub const fn base(&self) -> VirtAddr {
        self.layout.range().start
    }

    pub const fn end(&self) -> VirtAddr {
        self.layout.task_size()
    }

    pub const fn stack_top(&self) -> VirtAddr {
        self.layout.stack_top()
    }

    /// All that the program may map.
    pub(super) fn all(&self) -> PageSpan {
        let at = |address: VirtAddr| Vpn::new((address.as_usize() / PAGE) as u64);
        PageSpan::new(at(self.base()), at(self.end()))
    }

    pub fn contains_range(&self, start: VirtAddr, size: usize) -> bool {
        let end = start.as_usize().checked_add(size);
        start >= self.base() && end.is_some_and(|end| end <= self.end().as_usize())
    }

    pub const fn address_space_id(&self) -> AddressSpaceId {
        self.id
    }

    pub fn vm_epoch(&self) -> VmEpoch {
        VmEpoch::new(self.epoch.load(Ordering::Acquire))
    }

    pub(crate) fn published_epoch_source(&self) -> Arc<AtomicU64> {
        self.epoch.clone()
    }

    pub(crate) fn tlb_targets(&self) -> Arc<AtomicUsize> {
        self.active.clone()
    }

    pub(super) fn materialized_root(&self) -> PhysAddr {
        PhysAddr::from_usize(self.home.space().root().get() as usize * PAGE)
    }

    pub(crate) const fn heap_start(&self) -> usize {
        USER_HEAP_BASE
    }

    pub(crate) const fn heap_break(&self) -> usize {
        self.heap_break
    }

    pub(super) fn is_heap(&self, page: Vpn) -> bool {
        let address = page.get() as usize * PAGE;
        (USER_HEAP_BASE..USER_HEAP_BASE + USER_HEAP_SIZE_MAX).contains(&address)
    }

    pub(super) fn is_stack(&self, span: PageSpan) -> bool {
        span.end.get() as usize * PAGE == self.stack_top().as_usize()
    }

    /// The end of the last area.
    pub(crate) fn max_mapped_end(&self) -> Option<VirtAddr> {
        self.areas(self.all()).last().map(|area| address(area.span.end))
    }

    pub(crate) fn set_executable_file(&mut self, file: ExecutableFile) {
        self.executable_file = Some(Arc::new(file));
    }

    pub(crate) fn set_executable_data_layout(&mut self, start: usize, end: usize) -> StarryResult {
        if start < self.base().as_usize() || start > end || end > self.end().as_usize() {
            return Err(StarryError::MalformedExecutable);
        }
        self.executable_data = (start, end);
        Ok(())
    }

    pub(crate) const fn executable_data_bounds(&self) -> (usize, usize) {
        self.executable_data
    }

    pub(crate) fn executable_data_size(&self) -> Option<usize> {
        self.executable_data.1.checked_sub(self.executable_data.0)
    }

    /// The process's choice about large folios.
    pub(super) fn set_huge_mode(&self, mode: TransparentHugePageMode) {
        self.home.space().set_opt_out(match mode {
            TransparentHugePageMode::Enabled => OptOut::No,
            TransparentHugePageMode::Disabled => OptOut::All,
            TransparentHugePageMode::ExceptAdvised => OptOut::ExceptAdvised,
        });
    }

    pub(super) fn note_resident(&self, pages: u64) {
        self.hiwater.fetch_max(pages, Ordering::Relaxed);
    }

    pub(crate) fn resident_hiwater_pages(&self) -> u64 {
        self.resident_page_counts();
        self.hiwater.load(Ordering::Relaxed)
    }
}

/// The first byte of a page.
pub(super) fn address(page: Vpn) -> VirtAddr {
    VirtAddr::from_usize(page.get() as usize * PAGE)
}

pub(super) fn range_of(span: PageSpan) -> VirtAddrRange {
    VirtAddrRange::new(address(span.start), address(span.end))
}

/// Whole pages.
///
/// # Errors
/// They are not aligned, or behind all memory of programs.
pub(super) fn span_of(start: usize, bytes: usize) -> StarryResult<PageSpan> {
    let end = start.checked_add(bytes).filter(|end| (end / PAGE) as u64 <= Format::USER_PAGES);
    let end = end.ok_or(StarryError::InvalidInput)?;
    if !start.is_multiple_of(PAGE) || !bytes.is_multiple_of(PAGE) {
        return Err(StarryError::InvalidInput);
    }
    Ok(PageSpan::new(Vpn::new((start / PAGE) as u64), Vpn::new((end / PAGE) as u64)))
}

/// The lock of a space, as its owners share it.
pub(super) type Locked = Arc<Mutex<AddrSpace>>;
