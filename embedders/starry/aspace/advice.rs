//! `madvise`, `msync`, `mremap` and locks of memory, for the calls that have checked their
//! arguments' form.

use ax_memory_addr::VirtAddr;
use linux_raw_sys::general as abi;
use quire_starry::quire::arch::Arch;
use quire_starry::quire::space::{Advice, Area, AreaFlags, At, Backing};
use quire_starry::quire::units::{Access, PageSpan, Prot, Vpn};
use quire_starry::quire::{Error, Move, Stop};
use quire_starry::{Format, PAGE};

use super::change::{error, insist, stop};
use super::fault::quiet;
use super::policy::{MemlockLimit, VmaLockMode};
use super::{AddrSpace, address, span_of};
use crate::{StarryError, StarryResult};

/// Makes pages guards, or takes them away (Linux 6.13; newer than the constants at hand).
const MADV_GUARD_INSTALL: u32 = 102;
const MADV_GUARD_REMOVE: u32 = 103;

/// The kinds of advice.
#[derive(Clone, Copy)]
enum Advised {
    /// Advice that areas remember: flags to set and to clear.
    Flags(AreaFlags, AreaFlags),
    Huge(Advice),
    /// To be forgotten; whether locked pages are as well.
    Discard(bool),
    /// May be lost when memory is short.
    Free,
    /// Not to be touched from now on, or again.
    Guard(bool),
    Populate(Access),
    Collapse,
    /// To be a hole in its file.
    Remove,
    /// It will not be needed soon.
    Cold,
    Nothing,
}

impl Advised {
    fn of(advice: u32) -> Option<Self> {
        let none = AreaFlags::empty();
        let order = AreaFlags::SEQUENTIAL | AreaFlags::RANDOM;
        Some(match advice {
            abi::MADV_NORMAL => Self::Flags(none, order),
            abi::MADV_RANDOM => Self::Flags(AreaFlags::RANDOM, AreaFlags::SEQUENTIAL),
            abi::MADV_SEQUENTIAL => Self::Flags(AreaFlags::SEQUENTIAL, AreaFlags::RANDOM),
            abi::MADV_WILLNEED | abi::MADV_MERGEABLE | abi::MADV_UNMERGEABLE => Self::Nothing,
            abi::MADV_COLD | abi::MADV_PAGEOUT => Self::Cold,
            abi::MADV_DONTNEED => Self::Discard(false),
            abi::MADV_DONTNEED_LOCKED => Self::Discard(true),
            abi::MADV_FREE => Self::Free,
            abi::MADV_DONTFORK => Self::Flags(AreaFlags::DONTFORK, none),
            abi::MADV_DOFORK => Self::Flags(none, AreaFlags::DONTFORK),
            abi::MADV_WIPEONFORK => Self::Flags(AreaFlags::WIPEONFORK, none),
            abi::MADV_KEEPONFORK => Self::Flags(none, AreaFlags::WIPEONFORK),
            abi::MADV_DONTDUMP => Self::Flags(AreaFlags::DONTDUMP, none),
            abi::MADV_DODUMP => Self::Flags(none, AreaFlags::DONTDUMP),
            abi::MADV_HUGEPAGE => Self::Huge(Advice::Huge),
            abi::MADV_NOHUGEPAGE => Self::Huge(Advice::NoHuge),
            abi::MADV_POPULATE_READ => Self::Populate(Access::Read),
            abi::MADV_POPULATE_WRITE => Self::Populate(Access::Write),
            abi::MADV_COLLAPSE => Self::Collapse,
            abi::MADV_REMOVE => Self::Remove,
            MADV_GUARD_INSTALL => Self::Guard(true),
            MADV_GUARD_REMOVE => Self::Guard(false),
            _ => return None,
        })
    }
}

/// Whether `madvise` knows this advice.
pub(crate) fn is_advice(advice: u32) -> bool {
    Advised::of(advice).is_some()
}

fn is_private(area: &Area) -> bool {
    area.backing == Backing::Anon && !area.flags.contains(AreaFlags::SHARED)
}

impl AddrSpace {
    /// Does `action` for each part of an area between two addresses.
    ///
    /// # Errors
    /// `NoMemory` when there are holes, after the rest was done; before that the error of `action`.
    fn each_part(
        &mut self,
        span: PageSpan,
        mut action: impl FnMut(&mut Self, &Area) -> StarryResult,
    ) -> StarryResult {
        let (mut next, mut holes) = (span.start, false);
        for part in self.areas(span) {
            holes |= part.span.start > next;
            action(self, &part)?;
            next = part.span.end;
        }
        match holes || next < span.end {
            true => Err(StarryError::NoMemory),
            false => Ok(()),
        }
    }

    /// Carries advice out.
    ///
    /// # Errors
    /// Those of `madvise`.
    pub(crate) fn advise(&mut self, start: usize, bytes: usize, advice: u32) -> StarryResult {
        let advised = Advised::of(advice).ok_or(StarryError::InvalidInput)?;
        let span = span_of(start, bytes).map_err(|_| StarryError::NoMemory)?;
        self.each_part(span, |aspace, part| aspace.advise_part(part, advised))?;
        self.changed();
        Ok(())
    }

    fn advise_part(&mut self, area: &Area, advised: Advised) -> StarryResult {
        let (part, locked) = (area.span, area.flags.contains(AreaFlags::LOCKED));
        let home = self.home().clone();
        let space = home.space();
        match advised {
            Advised::Flags(set, _) if set.contains(AreaFlags::WIPEONFORK) && !is_private(area) => {
                Err(StarryError::InvalidInput)
            }
            Advised::Flags(set, clear) => {
                quiet(|mm| mm.spaces().set_flags(space, part, set, clear)).map_err(error)
            }
            Advised::Huge(advice) => quiet(|mm| mm.advise(space, part, advice)).map_err(error),
            Advised::Discard(false) | Advised::Cold if locked => Err(StarryError::InvalidInput),
            Advised::Discard(_) => insist(|| Ok(quiet(|_| home.discard(part))?)).map_err(stop),
            Advised::Free if !is_private(area) || locked => Err(StarryError::InvalidInput),
            Advised::Free => quiet(|mm| mm.spaces().free_lazily(space, part)).map_err(error),
            Advised::Guard(true) => {
                insist(|| Ok(quiet(|mm| mm.spaces().guard(space, part))?)).map_err(stop)
            }
            Advised::Guard(false) => quiet(|mm| mm.spaces().unguard(space, part)).map_err(error),
            Advised::Cold => {
                quiet(|mm| mm.spaces().clear_young(space, part));
                Ok(())
            }
            Advised::Populate(access) => {
                let wanted = if access == Access::Write { Prot::WRITE } else { Prot::READ };
                if !area.prot.contains(wanted) {
                    return Err(StarryError::InvalidInput);
                }
                self.populate(part, access)
            }
            Advised::Collapse => {
                let block = Format::block_order();
                let done = quiet(|mm| mm.reclaim().collapse(space, part, block));
                match done.map_err(error)?.errno() {
                    None => Ok(()),
                    Some(_) => Err(StarryError::WouldBlock),
                }
            }
            Advised::Remove => self.remove(area),
            Advised::Nothing => Ok(()),
        }
    }

    /// Makes a hole of what an area shows of a shared file.
    fn remove(&self, area: &Area) -> StarryResult {
        let file = self.lease(area).ok_or(StarryError::InvalidInput)?;
        let (start, end) = (address(area.span.start), address(area.span.end));
        let (offset, bytes) = (file.file_offset_at(start), end.as_usize() - start.as_usize());
        file.writeback_range(start, end)?;
        crate::file::memfd::punch_shared_file_backend(&file, offset, bytes)?;
        file.punch(start, end)
    }

    /// Writes shared files back; with `invalidates` no area may be locked.
    ///
    /// # Errors
    /// `NoMemory` for holes, `ResourceBusy` for locked areas.
    pub(crate) fn sync(
        &mut self,
        start: usize,
        bytes: usize,
        writes: bool,
        invalidates: bool,
    ) -> StarryResult {
        let span = span_of(start, bytes).map_err(|_| StarryError::NoMemory)?;
        self.each_part(span, |aspace, part| {
            if invalidates && part.flags.contains(AreaFlags::LOCKED) {
                return Err(StarryError::ResourceBusy);
            }
            match aspace.lease(part).filter(|_| writes) {
                Some(file) => {
                    file.writeback_range(address(part.span.start), address(part.span.end))
                }
                None => Ok(()),
            }
        })
    }

    /// Whether files that areas show shared let these become writable.
    pub(crate) fn check_seals(&self, start: usize, bytes: usize) -> StarryResult {
        let span = span_of(start, bytes).map_err(|_| StarryError::NoMemory)?;
        for area in self.areas(span) {
            if let Some(file) = self.lease(&area) {
                crate::file::memfd::check_write_seal_for_shared_file_backend(&file)?;
            }
        }
        Ok(())
    }

    /// `mremap`, with pages for bytes: `target` of a fixed or kept move.
    pub(crate) fn move_pages(
        &mut self,
        old: (usize, usize),
        pages: u64,
        flags: u32,
        target: usize,
    ) -> StarryResult<VirtAddr> {
        let (moves, fixed) = (abi::MREMAP_MAYMOVE, abi::MREMAP_FIXED);
        let keeps = abi::MREMAP_DONTUNMAP;
        let target = Vpn::new((target / PAGE) as u64);
        let old = span_of(old.0, old.1)?;
        if old.is_empty() {
            return self.show_again(old.start, pages, flags & fixed != 0, target);
        }
        let how = match (flags & fixed != 0, flags & keeps != 0) {
            (true, true) => Move::Keep(At::Fixed(target)),
            (false, true) => Move::Keep(At::Anywhere),
            (true, false) => Move::To(target),
            (false, false) if flags & moves != 0 => Move::Allowed,
            (false, false) => Move::Never,
        };
        self.remap(old, pages, how).map_err(|why| match why {
            StarryError::InvalidInput if flags & (fixed | keeps) == 0 => StarryError::NoMemory,
            other => other,
        })
    }

    fn show_again(
        &mut self,
        page: Vpn,
        pages: u64,
        is_fixed: bool,
        target: Vpn,
    ) -> StarryResult<VirtAddr> {
        let area = self.area_at(address(page)).ok_or(StarryError::BadAddress)?;
        if !area.flags.contains(AreaFlags::SHARED) {
            return Err(StarryError::InvalidInput);
        }
        let backing = area.backing_of(page);
        if !matches!(backing, Backing::File { .. }) {
            return Err(StarryError::InvalidInput);
        }
        let at = if is_fixed { At::Fixed(target) } else { At::Anywhere };
        self.map_again(&Area { backing, ..area }, pages, at)
    }

    /// Pages of areas that are locked, within a span.
    fn locked_within(&self, span: PageSpan) -> u64 {
        let areas = self.areas(span).into_iter();
        areas.filter(|area| area.flags.contains(AreaFlags::LOCKED)).map(|a| a.span.count()).sum()
    }

    /// Locks memory, and brings it in unless that is to wait for faults.
    pub(crate) fn lock_vma_range(
        &mut self,
        start: usize,
        bytes: usize,
        mode: VmaLockMode,
        limit: MemlockLimit,
    ) -> StarryResult {
        let span = span_of(start, bytes).map_err(|_| StarryError::NoMemory)?;
        limit.check(self.locked_pages() - self.locked_within(span) + span.count())?;
        let space = self.home().space();
        let done = insist(|| {
            quiet(|mm| match mode {
                VmaLockMode::Unlocked => mm.spaces().munlock(space, span).map_err(Stop::from),
                VmaLockMode::Locked => mm.mlock(space, span),
                VmaLockMode::LockOnFault => {
                    mm.spaces().mlock_on_fault(space, span).map_err(Stop::from)
                }
            })
        });
        done.map_err(|why| match why {
            Stop::Refuse(Error::NoArea(_) | Error::Denied(..)) => StarryError::NoMemory,
            other => stop(other),
        })
    }
}
