//! `madvise`: the kinds of advice, and the areas that they reach.

use linux_raw_sys::general as abi;
use quire::space::{Advice, Area, AreaFlags, Backing};
use quire::units::{Access, PageSpan, Prot};
use quire_linux::{Errno, Result};

use super::memory::{own, pages};
use super::{shown, swap, told};
use crate::memory::{Memory, errno, mm, reserved};
use crate::task::{Answer, Resume, Stop, Thread};

/// Does `action` for each area in `span`, with the part of it that lies there.
///
/// # Errors
/// `ENOMEM` when there are holes, after the rest was done; before that the error of `action`.
fn each_area(
    memory: &Memory,
    span: PageSpan,
    mut action: impl FnMut(&Area, PageSpan) -> Result<()>,
) -> Result<()> {
    let mut next = span.start;
    let mut holes = false;
    for area in mm().spaces().areas(memory.space(), span) {
        holes |= area.span.start > next;
        action(&area, area.span.intersect(span))?;
        next = area.span.end;
    }
    if holes || next < span.end { Err(Errno::ENOMEM) } else { Ok(()) }
}

pub(super) fn madvise(thread: &mut Thread, [address, bytes, advice, ..]: [usize; 6]) -> Answer {
    let advice = Advised::of(advice as u32).ok_or(Errno::EINVAL)?;
    if let Resume::Moved(result) = thread.resume {
        return swap::written_again(thread, result);
    }
    let span = pages(address, bytes)?;
    if span.is_empty() {
        return Ok(0);
    }
    match advice {
        Advised::Populate(prot) => populate(thread, &*own()?, span, prot),
        Advised::Collapse => shown::collapse(thread, &*own()?, span),
        Advised::PageOut => {
            advise(&*own()?, span, advice)?;
            swap::written(thread, 0)
        }
        Advised::Discard(_) | Advised::Free | Advised::Remove => {
            let memory = own()?;
            told::before_removal(thread, &memory, span)?;
            Ok(advise(&memory, span, advice).map(|()| 0)?)
        }
        _ => advise(&*own()?, span, advice).map(|()| 0).map_err(Into::into),
    }
}

/// Makes pages guards, or takes them away (Linux 6.13; newer than the constants at hand).
const MADV_GUARD_INSTALL: u32 = 102;
const MADV_GUARD_REMOVE: u32 = 103;

/// The kinds of advice.
#[derive(Clone, Copy)]
pub(super) enum Advised {
    /// Advice that areas remember.
    Flags(AreaFlags, AreaFlags),
    Huge(Advice),
    /// To be forgotten; whether locked pages are as well.
    Discard(bool),
    /// May be lost when memory is short.
    Free,
    /// Not to be touched from now on, or again.
    Guard(bool),
    Populate(Prot),
    Collapse,
    /// To be a hole in its file.
    Remove,
    /// It will not be needed soon: clear its accessed bits.
    Cold,
    /// It will not be needed: to swap with it.
    PageOut,
    /// Accepted, and of no effect here.
    Nothing,
}

impl Advised {
    pub(super) fn of(advice: u32) -> Option<Self> {
        let none = AreaFlags::empty();
        let order = AreaFlags::SEQUENTIAL | AreaFlags::RANDOM;
        Some(match advice {
            abi::MADV_NORMAL => Self::Flags(none, order),
            abi::MADV_RANDOM => Self::Flags(AreaFlags::RANDOM, AreaFlags::SEQUENTIAL),
            abi::MADV_SEQUENTIAL => Self::Flags(AreaFlags::SEQUENTIAL, AreaFlags::RANDOM),
            abi::MADV_WILLNEED => Self::Nothing,
            abi::MADV_COLD => Self::Cold,
            abi::MADV_PAGEOUT => Self::PageOut,
            abi::MADV_MERGEABLE | abi::MADV_UNMERGEABLE => Self::Nothing,
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
            abi::MADV_POPULATE_READ => Self::Populate(Prot::READ),
            abi::MADV_POPULATE_WRITE => Self::Populate(Prot::WRITE),
            abi::MADV_COLLAPSE => Self::Collapse,
            abi::MADV_REMOVE => Self::Remove,
            MADV_GUARD_INSTALL => Self::Guard(true),
            MADV_GUARD_REMOVE => Self::Guard(false),
            _ => return None,
        })
    }
}

/// Carries the advice out.
///
/// # Errors
/// The errors of `madvise`.
pub(super) fn advise(memory: &Memory, span: PageSpan, advised: Advised) -> Result<()> {
    let space = memory.space();
    let private =
        |area: &Area| area.backing == Backing::Anon && !area.flags.contains(AreaFlags::SHARED);
    each_area(memory, span, |area, part| match advised {
        _ if !fits_reserved(area, &advised) => Err(Errno::EINVAL),
        Advised::Flags(_, clear) if !may_clear(area, clear) => Err(Errno::EINVAL),
        Advised::Flags(set, _) if set.contains(AreaFlags::WIPEONFORK) && !private(area) => {
            Err(Errno::EINVAL)
        }
        Advised::Flags(set, clear) => {
            mm().spaces().set_flags(space, part, set, clear).map_err(errno)
        }
        Advised::Huge(advice) => mm().advise(space, part, advice).map_err(errno),
        Advised::Discard(false) if area.flags.contains(AreaFlags::LOCKED) => Err(Errno::EINVAL),
        Advised::Discard(_) => {
            let part = whole_folios(area, part)?;
            mm().discard(space, part).map_err(errno)?;
            reserved::promise_again(area, part);
            Ok(())
        }
        Advised::Free if !private(area) || area.flags.contains(AreaFlags::LOCKED) => {
            Err(Errno::EINVAL)
        }
        Advised::Free => mm().spaces().free_lazily(space, part).map_err(errno),
        Advised::Guard(true) => {
            memory.set_has_guards();
            mm().spaces().guard(space, part).map_err(errno)
        }
        Advised::Guard(false) => mm().spaces().unguard(space, part).map_err(errno),
        Advised::Cold | Advised::PageOut if area.flags.contains(AreaFlags::LOCKED) => {
            Err(Errno::EINVAL)
        }
        Advised::Cold => {
            mm().spaces().clear_young(space, part);
            Ok(())
        }
        // It is lost instead: no device takes it.
        Advised::PageOut if area.flags.contains(AreaFlags::DROPPABLE) => {
            mm().discard(space, part).map_err(errno)
        }
        Advised::PageOut => swap::page_out(memory, part),
        Advised::Remove => shown::remove(memory, area, part),
        _ => Ok(()),
    })
}

/// Whether advice is of any use for an area, where it shows reserved folios: these stay in memory
/// and whole.
fn fits_reserved(area: &Area, advised: &Advised) -> bool {
    let stays = matches!(advised, Advised::Cold | Advised::PageOut | Advised::Guard(true));
    !stays || reserved::of_area(area).is_none()
}

/// The part of an area to be forgotten: of reserved folios, whole ones.
///
/// # Errors
/// `EINVAL` if it begins within one.
fn whole_folios(area: &Area, part: PageSpan) -> Result<PageSpan> {
    let Some(order) = reserved::of_area(area) else { return Ok(part) };
    if !part.start.is_aligned(order.pages()) {
        return Err(Errno::EINVAL);
    }
    Ok(PageSpan::new(part.start, part.end.align_down(order.pages()).max(part.start)))
}

/// Whether advice may take these flags from an area: droppable memory stays out of children and
/// dumps.
fn may_clear(area: &Area, clear: AreaFlags) -> bool {
    let kept = AreaFlags::WIPEONFORK | AreaFlags::DONTDUMP;
    !area.flags.contains(AreaFlags::DROPPABLE) || !clear.intersects(kept)
}

/// Brings the missing pages of `span` in.
fn populate(thread: &Thread, memory: &Memory, span: PageSpan, prot: Prot) -> Answer {
    let mut waits = false;
    let done = each_area(memory, span, |area, part| {
        let allowed = area.prot.intersects(prot | Prot::WRITE) || prot == area.prot & prot;
        if !allowed || !area.prot.contains(prot) {
            return Err(Errno::EINVAL);
        }
        let access = if prot.contains(Prot::WRITE) { Access::Write } else { Access::Read };
        let brought = swap::with_pages(thread, || memory.populate(part, access));
        brought.map_err(|stop| {
            waits = matches!(stop, Stop::Read);
            if matches!(stop, Stop::Fail(Errno::EFAULT)) { Errno::EFAULT } else { Errno::ENOMEM }
        })
    });
    match done {
        Err(_) if waits => Err(Stop::Read),
        done => Ok(done.map(|()| 0)?),
    }
}
