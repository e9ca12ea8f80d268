//! Faults, and populating ahead of them.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Access, PageSpan, Vpn};

use super::Mm;
#[cfg(feature = "reclaim")]
use crate::base::Need;
use crate::base::{Error, Stop};
use crate::fault::plan::Reach;
use crate::space::{AreaFlags, Request, Space, View};
use crate::spaces::{Fault, Lack, Populated, Resolved, Served};
use crate::stats::Event;

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// Resolves a fault: `access` to `page`, for which the hardware had no translation that allows
    /// it.
    ///
    /// # Errors
    /// [`Error::NoArea`] and [`Error::Denied`] when the program may not access it;
    /// [`Error::NoMemory`] when not even one page is free. Nothing has changed then, except that
    /// tables may have been made and a stack may have grown. [`Error::OverLimit`] when the space's
    /// group is at its limit.
    ///
    /// In areas that show files also [`Error::Failed`], [`Error::Missing`] and
    /// [`Error::Poisoned`]. [`Need::Read`](crate::Need::Read) and
    /// [`Need::Wait`](crate::Need::Wait) for a page of a file or a swap device that is not in
    /// memory: the embedder brings it and calls again.
    pub fn fault(&self, space: &Space<A>, page: Vpn, access: Access) -> Result<Resolved, Stop> {
        self.fault_with(space, page, access, &mut || {})
    }

    /// The same; `resched` is called between two units of a long clear, without locks held.
    ///
    /// # Errors
    /// See [`fault`](Self::fault).
    pub fn fault_with(
        &self,
        space: &Space<A>,
        page: Vpn,
        access: Access,
        resched: &mut dyn FnMut(),
    ) -> Result<Resolved, Stop> {
        let mut fault = Fault { access, reach: Reach::Folio, resched };
        let resolved = self
            .spaces()
            .resolve(space, page, &mut fault, &|view, lack, fault| self.serve(view, lack, fault));
        self.base().count(if resolved.is_ok() { Event::Fault } else { Event::Refused }, 1);
        resolved
    }

    /// Maps every page of `span` that is not mapped, as faults for writing (or reading, where an
    /// area cannot be written) would, but many at a time.
    ///
    /// # Errors
    /// As for [`fault`](Self::fault), at the first page that could not be mapped; those before it
    /// are mapped then. [`Error::Invalid`] for pages that programs may not map.
    pub fn populate(&self, space: &Space<A>, span: PageSpan) -> Result<Populated, Stop> {
        self.populate_with(space, span, &mut || {})
    }

    /// The same; `resched` is called between two units of clearing, without locks held.
    ///
    /// # Errors
    /// See [`populate`](Self::populate).
    pub fn populate_with(
        &self,
        space: &Space<A>,
        span: PageSpan,
        resched: &mut dyn FnMut(),
    ) -> Result<Populated, Stop> {
        self.populate_as(space, span, Access::Read, resched)
    }

    /// The same, and present pages become writable as well: they count as written, and shared ones
    /// are copied (`MADV_POPULATE_WRITE`). All of the span must be writable.
    ///
    /// # Errors
    /// See [`populate`](Self::populate).
    pub fn populate_written(&self, space: &Space<A>, span: PageSpan) -> Result<Populated, Stop> {
        self.populate_as(space, span, Access::Write, &mut || {})
    }

    fn populate_as(
        &self,
        space: &Space<A>,
        span: PageSpan,
        access: Access,
        resched: &mut dyn FnMut(),
    ) -> Result<Populated, Stop> {
        self.spaces().populate(space, span, access, resched, &|view, lack, fault| {
            self.serve(view, lack, fault)
        })
    }

    /// Brings what a fault lacks, from the service that has it.
    fn serve(&self, view: &View<'_, A, H>, lack: Lack, fault: &mut Fault<'_>) -> Served {
        match lack {
            #[cfg(feature = "files")]
            Lack::File(page) => self.files().show(view, &page, fault),
            #[cfg(not(feature = "files"))]
            Lack::File(page) => Err(Error::Missing(page.page).into()),
            #[cfg(not(feature = "swap"))]
            Lack::Swap(marked) => Err(Error::Marked(marked.page, marked.payload).into()),
            #[cfg(feature = "swap")]
            Lack::Swap(marked) => self.paging().swap_in(view, &marked, fault.access),
        }
    }

    /// Maps an area and returns its pages. None is resident yet, unless the area is locked in
    /// memory: then all of it is, as far as memory suffices.
    /// # Errors
    /// [`Error::Invalid`], [`Error::Exists`], [`Error::NoRoom`], [`Error::NoMemory`]. Nothing has
    /// changed then.
    pub fn map(&self, space: &Space<A>, request: &Request) -> Result<PageSpan, Error> {
        let span = self.spaces().map(space, request)?;
        if request.flags.contains(AreaFlags::LOCKED)
            && !request.flags.contains(AreaFlags::LOCK_ON_FAULT)
        {
            #[cfg(feature = "reclaim")]
            while let Err(Stop::Need(Need::Compact(order))) = self.populate(space, span) {
                self.base().demand.answered(order, false);
            }
            #[cfg(not(feature = "reclaim"))]
            let _ = self.populate(space, span);
        }
        Ok(span)
    }

    /// Locks the pages of `span` in memory, and maps the missing ones (`mlock`).
    ///
    /// # Errors
    /// As for [`protect`](crate::Mm::protect). Also [`Error::NoMemory`] when some pages could
    /// not be mapped: the others are resident then, and all of the span is locked.
    pub fn mlock(&self, space: &Space<A>, span: PageSpan) -> Result<(), Stop> {
        self.spaces().lock(space, span)?;
        self.populate(space, span).map(|_| ())
    }
}
