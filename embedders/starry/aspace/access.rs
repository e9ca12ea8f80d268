//! Pages that are brought in ahead, and accesses to a program's memory from outside.

use ax_memory_addr::VirtAddr;
use ax_runtime::hal::paging::MappingFlags;
use quire_starry::PAGE;
use quire_starry::quire::units::{Access, PageSpan, Prot, Vpn};
use quire_starry::quire::{Error, Pinned, Stop};

use super::change::{insist, stop};
use super::fault::quiet;
use super::source::prot;
use super::{AddrSpace, span_of};
use crate::{StarryError, StarryResult};

impl AddrSpace {
    /// Brings in the missing pages, ready for this access.
    pub fn populate_area(
        &mut self,
        start: VirtAddr,
        size: usize,
        access: MappingFlags,
    ) -> StarryResult {
        let span = span_of(start.as_usize(), size)?;
        let writes = access.contains(MappingFlags::WRITE);
        self.populate(span, if writes { Access::Write } else { Access::Read })
    }

    pub(super) fn populate(&self, span: PageSpan, access: Access) -> StarryResult {
        let space = self.home().space();
        let done = insist(|| {
            quiet(|mm| match access {
                Access::Write => mm.populate_written(space, span),
                _ => mm.populate(space, span),
            })
        });
        done.map(drop).map_err(|why| match why {
            Stop::Refuse(Error::NoArea(_)) => StarryError::NoMemory,
            other => stop(other),
        })
    }

    pub fn can_access_range(&self, start: VirtAddr, size: usize, access: MappingFlags) -> bool {
        let (first, last) = (start.as_usize() / PAGE, (start.as_usize() + size).div_ceil(PAGE));
        let span = PageSpan::new(Vpn::new(first as u64), Vpn::new(last as u64));
        let wanted = prot(access);
        let mut at = span.start;
        quiet(|mm| {
            for area in mm.spaces().areas(self.home().space(), span) {
                let allows = |one: Prot, access| !wanted.contains(one) || area.prot.allows(access);
                let allows = allows(Prot::READ, Access::Read)
                    && allows(Prot::WRITE, Access::Write)
                    && allows(Prot::EXEC, Access::Execute);
                if area.span.start > at || !allows {
                    return;
                }
                at = area.span.end;
            }
        });
        size > 0 && at >= span.end
    }

    /// Sees the pages of some bytes one after the other, each while it is pinned.
    fn reach(
        &self,
        start: VirtAddr,
        size: usize,
        write: bool,
        mut see: impl FnMut(*mut u8, usize, usize),
    ) -> StarryResult {
        if !self.contains_range(start, size) {
            return Err(StarryError::InvalidInput);
        }
        let mut done = 0;
        while done < size {
            let at = start.as_usize() + done;
            let count = (PAGE - at % PAGE).min(size - done);
            let pinned =
                self.pin(Vpn::new((at / PAGE) as u64), write).map_err(|why| match why {
                    Stop::Refuse(Error::NoMemory(_)) => StarryError::NoMemory,
                    _ => StarryError::BadAddress,
                })?;
            quiet(|mm| {
                see(mm.hardware().address(pinned.frame()).wrapping_add(at % PAGE), done, count);
                mm.unpin(pinned);
            });
            done += count;
        }
        Ok(())
    }

    /// Pins a page, a private copy of it if the program itself may not write it.
    fn pin(&self, page: Vpn, write: bool) -> Result<Pinned, Stop> {
        let space = self.home().space();
        insist(|| {
            quiet(|mm| match write {
                false => mm.pin_read(space, page),
                true => match mm.pin(space, page, Access::Write) {
                    Err(Stop::Refuse(Error::Denied(..))) => mm.pin_change(space, page),
                    other => other,
                },
            })
        })
    }

    pub fn read(&self, start: VirtAddr, buf: &mut [u8]) -> StarryResult {
        let into = buf.as_mut_ptr();
        self.reach(start, buf.len(), false, |from, at, count| {
            // SAFETY: the page is pinned, the program may write it and we get either byte; the
            // piece lies within `buf`.
            unsafe { into.add(at).copy_from_nonoverlapping(from, count) };
        })
    }

    pub fn write(&self, start: VirtAddr, buf: &[u8]) -> StarryResult {
        self.reach(start, buf.len(), true, |to, at, count| {
            // SAFETY: as above.
            unsafe { to.copy_from_nonoverlapping(buf.as_ptr().add(at), count) };
        })
    }

    /// Does nothing: the library has done it when the page was unpinned.
    pub fn sync_modified_text(&self, _start: VirtAddr, _size: usize) -> StarryResult {
        Ok(())
    }
}
