//! Changes of areas.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use ax_fs_ng::file::{ExecutableFile, WriteAccess};
use ax_fs_ng::vfs::FileBackend;
use ax_memory_addr::{PhysAddr, VirtAddr, VirtAddrRange};
use ax_runtime::hal::paging::MappingFlags;
use quire_starry::quire::hw::ForeignFrames;
use quire_starry::quire::space::{Area, AreaFlags, At, Backing, Request};
use quire_starry::quire::units::{PageSpan, Prot, Vpn};
use quire_starry::quire::{Error, Move, Stop};
use quire_starry::{Home, PAGE};

use super::fault::{quiet, shrink, wait};
use super::objects::{self, Object, SharedKind, may_write};
use super::policy::*;
use super::source::{Kind, MappingOperation, memory_type, prot};
use super::{AddrSpace, Locked, address, span_of};
use crate::file::memfd::{self, Memfd};
use crate::sync::Mutex;
use crate::{StarryError, StarryResult};

/// The kernel's error for one of the library's.
pub(super) fn error(error: Error) -> StarryError {
    stop(Stop::Refuse(error))
}

pub(super) fn stop(stop: Stop) -> StarryError {
    use quire_starry::quire::Errno;
    match stop.errno() {
        Errno::ENOMEM => StarryError::NoMemory,
        Errno::EACCES => StarryError::PermissionDenied,
        Errno::EPERM => StarryError::OperationNotPermitted,
        Errno::EFAULT => StarryError::BadAddress,
        Errno::EEXIST => StarryError::AlreadyExists,
        Errno::EAGAIN => StarryError::WouldBlock,
        Errno::EBUSY => StarryError::ResourceBusy,
        Errno::EIO => StarryError::Io,
        _ => StarryError::InvalidInput,
    }
}

/// Calls until it needs neither pages of files nor memory that can be freed.
pub(super) fn insist<R>(mut call: impl FnMut() -> Result<R, Stop>) -> Result<R, Stop> {
    let mut tries = 0;
    loop {
        match call() {
            Err(Stop::Need(need)) => wait(need),
            Err(Stop::Refuse(Error::NoMemory(_))) if tries < 16 && shrink() => tries += 1,
            other => return other,
        }
    }
}

/// One mapping to make.
struct Order<'a> {
    span: PageSpan,
    rights: MappingPermissions,
    how: &'a MappingPublication,
}

impl Order<'_> {
    /// The request for `pages` pages from the `skipped`-th on.
    fn request(&self, skipped: u64, pages: u64, shared: bool) -> Request {
        let start = self.span.start.add(skipped);
        let mut flags = AreaFlags::empty();
        flags.set(AreaFlags::SHARED, shared);
        flags.set(AreaFlags::LOCKED, self.how.lock_mode != VmaLockMode::Unlocked);
        flags.set(AreaFlags::LOCK_ON_FAULT, self.how.lock_mode == VmaLockMode::LockOnFault);
        let at = match self.how.placement {
            // The first part found the place.
            _ if skipped > 0 => At::Fixed(start),
            Placement::Replace => At::Fixed(start),
            Placement::Exact => At::FixedNoReplace(start),
            Placement::Hint if start.get() == 0 => At::Anywhere,
            Placement::Hint => At::Hint(start),
        };
        let (now, most) = (prot(self.rights.current), prot(self.rights.maximum));
        Request::anon(pages).at(at).flags(flags).prot(now).max_prot(now | most)
    }
}

impl AddrSpace {
    /// Notes a change of areas, and lets go what no area shows any more.
    pub(super) fn changed(&mut self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        if self.home().space().take_hidden() {
            self.sweep();
        }
    }

    #[cold]
    fn sweep(&mut self) {
        let areas = self.areas(self.all());
        let shows = |object: &Arc<Object>| {
            let is_it = |backing| matches!(backing, Backing::File { id, .. } if id == object.id());
            areas.iter().any(|area| is_it(area.backing))
        };
        // The last owner writes the file back.
        self.objects.retain(shows);
        if !areas.iter().any(|area| matches!(area.backing, Backing::Frames { .. })) {
            self.keepers.clear();
        }
        if !areas.iter().any(|area| area.flags.contains(AreaFlags::SHARED)) {
            self.writers.clear();
        }
    }

    fn keep(&mut self, object: Arc<Object>) {
        if !self.objects.iter().any(|own| Arc::ptr_eq(own, &object)) {
            self.objects.push(object);
        }
    }

    /// Tells memory files how many areas of this space may write them.
    fn count_writers(&self, start: VirtAddr, bytes: usize) {
        memfd::resync_shared_writable_counts_after_mprotect(self, &self.memfds(start, bytes));
    }

    /// The memory files that areas of these pages show.
    fn memfds(&self, start: VirtAddr, bytes: usize) -> Vec<Arc<Memfd>> {
        match self.objects.iter().any(|object| object.is_memfd()) {
            true => memfd::collect_metas_touching_mprotect_range(self, start, bytes),
            false => Vec::new(),
        }
    }

    fn map_request(&mut self, request: &Request) -> StarryResult<PageSpan> {
        self.placing(request.at, request.pages, 0, |home| home.map(request)).map_err(stop)
    }

    /// Shows frames by number.
    fn map_frames(&mut self, request: &Request, run: ForeignFrames) -> StarryResult<PageSpan> {
        let show = |home: &Home| home.system().spaces().map_frames(home.space(), request, run);
        self.placing(request.at, request.pages, 0, show).map_err(stop)
    }

    /// Makes a change that places pages, and counts them; `left` are gone then elsewhere.
    fn placing(
        &mut self,
        at: At,
        pages: u64,
        left: u64,
        change: impl Fn(&Home) -> Result<PageSpan, Error>,
    ) -> Result<PageSpan, Stop> {
        let target = match at {
            At::Fixed(start) => PageSpan::at(start, pages),
            _ => None,
        };
        let lost = target.map_or(0, |target| self.pages_in(target));
        let placed = insist(|| Ok(quiet(|_| change(self.home()))?));
        match placed {
            Ok(placed) => self.count(placed.count(), lost + left),
            // The target may be unmapped by now.
            Err(_) => self.pages = self.pages_in(self.all()),
        }
        placed
    }

    fn place(&mut self, order: &Order<'_>, what: &MappingOperation) -> StarryResult<PageSpan> {
        let pages = order.span.count();
        match &what.kind {
            Kind::Anon => self.map_request(&order.request(0, pages, false)),
            Kind::Private { start, file, offset, end } => {
                let pad = (start.as_usize() % PAGE) as u64;
                self.place_private(order, file, offset.saturating_sub(pad), *end)
            }
            Kind::File { cache, flags, offset, shared } => {
                let object = Object::of_file(FileBackend::Cached(cache.clone()))?;
                let page = offset / PAGE as u64;
                let backing = Backing::File { id: object.id(), page };
                let mut request = order.request(0, pages, *shared).backing(backing);
                if *shared && !may_write(*flags) {
                    request.max_prot.remove(Prot::WRITE);
                }
                self.keep(object);
                self.map_request(&request)
            }
            Kind::Shared(shared) => match &shared.kind {
                SharedKind::Object(object) => {
                    let backing = Backing::File { id: object.id(), page: 0 };
                    self.keep(object.clone());
                    self.map_request(&order.request(0, pages, true).backing(backing))
                }
                SharedKind::Frames(runs, keeper) => {
                    self.keepers.extend(keeper.clone());
                    self.place_runs(order, runs)
                }
            },
            Kind::Linear { start, shared, anchor } => {
                self.keepers.extend(anchor.clone());
                let memory = memory_type(order.rights.current);
                let run = objects::frames(*start, pages as usize, memory);
                let request = order.request(0, pages, *shared);
                self.map_frames(&request, run)
            }
        }
    }

    /// Shows a driver's runs of frames one after the other.
    fn place_runs(&mut self, order: &Order<'_>, runs: &[ForeignFrames]) -> StarryResult<PageSpan> {
        // The place is found with an area that shows nothing, which the runs replace.
        let whole = self.map_request(&order.request(0, order.span.count(), false))?;
        let mut at = whole.start;
        for run in runs {
            let count = run.span().count.min(whole.end.offset_from(at));
            let Some(part) = run.part(0..count).filter(|_| count > 0) else { break };
            let request = order.request(0, count, true).at(At::Fixed(at));
            self.map_frames(&request, part)?;
            at = at.add(count);
        }
        Ok(whole)
    }

    /// A private view of a file from byte `offset`, a multiple of the page size, to byte `end`, and
    /// zeroes behind that.
    fn place_private(
        &mut self,
        order: &Order<'_>,
        file: &FileBackend,
        offset: u64,
        end: Option<u64>,
    ) -> StarryResult<PageSpan> {
        let page = PAGE as u64;
        let object = Object::of_file(file.clone())?;
        let backing = Backing::File { id: object.id(), page: offset / page };
        self.keep(object.clone());
        let all = order.span.count();
        let bytes = end.map_or(all * page, |end| end.saturating_sub(offset));
        let is_data = order.rights.current.contains(MappingFlags::WRITE);
        // A page that ends with zeroes is a copy, unless no byte behind the end is looked at.
        let whole = if is_data { bytes / page } else { bytes.div_ceil(page) };
        let whole = whole.min(all);
        let mut place = order.span;
        if whole > 0 {
            let shown = self.map_request(&order.request(0, whole, false).backing(backing))?;
            place = PageSpan::new(shown.start, shown.start.add(all));
        }
        if whole < all {
            let order = Order { span: place, ..*order };
            let rest = self.map_request(&order.request(whole, all - whole, false))?;
            let tail = (bytes - whole * page).min(page) as usize;
            if tail > 0 {
                let mut copy = vec![0; tail];
                file.read_at(&mut copy[..], offset + whole * page)?;
                self.write(address(rest.start), &copy)?;
            }
        }
        Ok(place)
    }

    /// Makes a mapping; where it lies.
    pub(crate) fn map_with_permissions_publication(
        &mut self,
        start: VirtAddr,
        size: usize,
        rights: MappingPermissions,
        populate: bool,
        what: MappingOperation,
        how: MappingPublication,
    ) -> StarryResult<VirtAddr> {
        let span = span_of(start.as_usize(), size)?;
        if how.placement != Placement::Hint && !self.contains_range(start, size) {
            return Err(StarryError::NoMemory);
        }
        if let Some(limit) = how.limit {
            limit.check(self.locked_pages() + span.count())?;
        }
        let placed = self.place(&Order { span, rights, how: &how }, &what)?;
        self.writers.extend(what.access);
        let (start, size) = (address(placed.start), placed.count() as usize * PAGE);
        self.changed();
        self.count_writers(start, size);
        if populate {
            // As on Linux, a partial population is no error.
            let _ = self.populate_area(start, size, rights.current);
        }
        Ok(start)
    }

    pub fn map(
        &mut self,
        start: VirtAddr,
        size: usize,
        flags: MappingFlags,
        populate: bool,
        what: MappingOperation,
    ) -> StarryResult {
        let maximum = what.maximum_mapping_flags(flags);
        let rights = MappingPermissions { current: flags, reported: flags, maximum };
        let how = MappingPublication::new(Placement::Exact);
        self.map_with_permissions_publication(start, size, rights, populate, what, how).map(drop)
    }

    pub(crate) fn map_outcome(
        &mut self,
        start: VirtAddr,
        size: usize,
        flags: MappingFlags,
        populate: bool,
        what: MappingOperation,
    ) -> StarryResult<AddressSpaceMutationOutcome> {
        self.map(start, size, flags, populate, what)?;
        Ok(AddressSpaceMutationOutcome::Complete)
    }

    pub fn map_linear(
        &mut self,
        start: VirtAddr,
        frames: PhysAddr,
        size: usize,
        flags: MappingFlags,
    ) -> StarryResult {
        let what = MappingOperation::new_linear(start, frames, false);
        self.map(start, size, flags, false, what)
    }

    /// A hole of this size at or behind `hint`.
    pub fn find_free_area(
        &self,
        hint: VirtAddr,
        size: usize,
        limit: VirtAddrRange,
        align: usize,
    ) -> Option<VirtAddr> {
        let align = (align / PAGE).max(1) as u64;
        let page = |address: VirtAddr| Vpn::new((address.as_usize() / PAGE) as u64);
        let pages = size.div_ceil(PAGE) as u64;
        let (mut at, end) = (page(hint.max(limit.start)), page(limit.end));
        loop {
            at = Vpn::new(at.get().next_multiple_of(align));
            let wanted = PageSpan::new(at, at.add(pages));
            if wanted.end > end {
                return None;
            }
            let taken = quiet(|mm| mm.spaces().areas(self.home().space(), wanted).last());
            match taken {
                None => return Some(address(at)),
                Some(area) => at = area.span.end,
            }
        }
    }

    pub fn unmap(&mut self, start: VirtAddr, size: usize) -> StarryResult {
        let span = span_of(start.as_usize(), size)?;
        let (touched, pages) = (self.memfds(start, size), self.pages_in(span));
        insist(|| Ok(quiet(|_| self.home().unmap(span))?)).map_err(stop)?;
        self.count(0, pages);
        self.changed();
        memfd::resync_shared_writable_counts_after_mprotect(self, &touched);
        Ok(())
    }

    pub(crate) fn unmap_outcome(
        &mut self,
        start: VirtAddr,
        size: usize,
    ) -> StarryResult<AddressSpaceMutationOutcome> {
        self.unmap(start, size)?;
        Ok(AddressSpaceMutationOutcome::Complete)
    }

    pub fn protect(&mut self, start: VirtAddr, size: usize, flags: MappingFlags) -> StarryResult {
        let span = span_of(start.as_usize(), size)?;
        let rights = prot(flags);
        insist(|| Ok(quiet(|_| self.home().protect(span, rights))?)).map_err(|why| match why {
            Stop::Refuse(Error::NoArea(_)) => StarryError::NoMemory,
            other => stop(other),
        })?;
        self.changed();
        self.count_writers(start, size);
        Ok(())
    }

    /// Moves or resizes the pages of `old`; where they are then.
    pub(crate) fn remap(&mut self, old: PageSpan, pages: u64, how: Move) -> StarryResult<VirtAddr> {
        let at = match how {
            Move::To(start) => At::Fixed(start),
            Move::Keep(at) => at,
            Move::Never | Move::Allowed => At::Anywhere,
        };
        let left = if matches!(how, Move::Keep(_)) { 0 } else { old.count() };
        let moved = self.placing(at, pages, left, |home| home.remap(old, pages, how));
        let moved = moved.map_err(|why| match why {
            Stop::Refuse(Error::NoArea(_)) => StarryError::BadAddress,
            other => stop(other),
        })?;
        self.changed();
        Ok(address(moved.start))
    }

    /// Maps once more what `area` shows: `mremap` of no bytes.
    pub(crate) fn map_again(&mut self, area: &Area, pages: u64, at: At) -> StarryResult<VirtAddr> {
        let request = Request {
            pages,
            at,
            prot: area.prot,
            max_prot: area.max_prot,
            flags: area.flags,
            backing: area.backing,
        };
        let placed = self.map_request(&request)?;
        self.changed();
        Ok(address(placed.start))
    }

    pub(crate) fn resize_heap_break(
        &mut self,
        wanted: usize,
        first_end: usize,
    ) -> StarryResult<AddressSpaceMutationOutcome> {
        let up = |bytes: usize| bytes.next_multiple_of(PAGE).max(first_end);
        let (old, new) = (up(self.heap_break), up(wanted));
        if new > old {
            let what = MappingOperation::new_alloc(old.into(), PAGE, "[heap]");
            let flags = MappingFlags::READ | MappingFlags::WRITE | MappingFlags::USER;
            self.map(old.into(), new - old, flags, false, what)?;
        } else if new < old {
            self.unmap(new.into(), old - new)?;
        }
        self.heap_break = wanted;
        Ok(AddressSpaceMutationOutcome::Complete)
    }

    /// Pages that areas have within `span`.
    fn pages_in(&self, span: PageSpan) -> u64 {
        quiet(|_| self.home().pages_in(span))
    }

    /// Counts pages that areas got, and lost.
    fn count(&mut self, got: u64, lost: u64) {
        self.pages = self.pages + got - lost;
        self.vm_stat.0.fetch_max(self.pages, Ordering::Relaxed);
    }

    /// Pages of areas that are locked.
    pub(crate) fn locked_pages(&self) -> u64 {
        let locked = |area: &Area| area.flags.contains(AreaFlags::LOCKED);
        let space = self.home().space();
        let areas = |mm: &'static quire_starry::System| {
            let all = mm.spaces().areas(space, self.all()).filter(locked);
            all.map(|area| area.span.count()).sum()
        };
        quiet(areas)
    }

    /// Drops all areas before the loader begins anew.
    pub(crate) fn reset_uninstalled_for_loader(&mut self) -> StarryResult {
        self.clear()?;
        self.heap_break = crate::config::USER_HEAP_BASE;
        self.executable_data = (0, 0);
        Ok(())
    }

    fn clear(&mut self) -> StarryResult {
        let all = self.all();
        self.unmap(address(all.start), all.count() as usize * PAGE)
    }

    /// Frees all memory of a space that no CPU is in any more.
    pub(crate) fn try_reclaim_contents(&mut self) -> StarryResult {
        self.clear()
    }

    /// Ends the exclusion of files when the last owner is gone, and frees the program's memory.
    pub(super) fn take_file_accesses(
        &mut self,
    ) -> (Option<Arc<ExecutableFile>>, Vec<Arc<WriteAccess>>) {
        if let Err(why) = self.clear() {
            warn!("the memory of an ended program is freed later: {why}");
        }
        (self.executable_file.take(), core::mem::take(&mut self.writers))
    }

    /// Pages that a program gave up are free when memory is short; nothing is to be done for that.
    pub(crate) fn reclaim_lazy_free_pages(&mut self, _limit: usize) -> StarryResult<usize> {
        Ok(0)
    }

    /// A copy, all of whose memory is shared until it is written.
    pub fn try_clone(&mut self) -> StarryResult<Locked> {
        let home = insist(|| Ok(quiet(|_| self.home().fork())?)).map_err(stop)?;
        let mut child = Self::with(home, self.layout);
        child.objects = self.objects.clone();
        child.keepers = self.keepers.clone();
        child.writers = self.writers.clone();
        child.heap_break = self.heap_break;
        child.executable_data = self.executable_data;
        child.executable_file = self.executable_file.clone();
        let all = child.all();
        child.count(child.pages_in(all), 0);
        child.count_writers(address(all.start), all.count() as usize * PAGE);
        Ok(Arc::new(Mutex::new(child)))
    }
}
