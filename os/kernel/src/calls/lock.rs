//! Memory that stays: locked, so that it is not paged out (`mlock`), or sealed, so that it is not
//! changed (`mseal`).

use linux_raw_sys::general as abi;
use quire::space::AreaFlags;
use quire::units::{PageSpan, Prot, Vpn};
use quire_linux::{Errno, Result};

use super::memory::{is_aligned, own, span};
use super::swap;
use crate::isa;
use crate::memory::{Memory, PAGE, errno, mm};
use crate::task::{Answer, Stop, Thread};

pub(super) fn mlock(thread: &mut Thread, [address, bytes, ..]: [usize; 6]) -> Answer {
    let memory = own()?;
    let span = lock_span(address, bytes)?;
    check_lock(thread, &memory, span)?;
    if span.is_empty() {
        return Ok(0);
    }
    let locked = swap::with_pages(thread, || mm().mlock(memory.space(), span));
    unlock_droppable(&memory, span);
    let Err(stop) = locked else {
        // Pages that may not be touched are locked, and not brought in, though some may be there.
        let mut areas = mm().spaces().areas(memory.space(), span);
        let is_closed = areas.any(|area| area.prot == Prot::empty());
        return if is_closed { Err(Errno::ENOMEM.into()) } else { Ok(0) };
    };
    if let Some(before) = before_hole(&memory, span) {
        // Later faults report a shortage of memory.
        let _ = mm().mlock(memory.space(), before);
    }
    Err(match stop {
        // Pages that may not be touched cannot be locked.
        Stop::Fail(Errno::EFAULT) => Stop::Fail(Errno::ENOMEM),
        other => other,
    })
}

pub(super) fn mlock2(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [address, bytes, flags, ..] = args;
    match flags as u32 {
        0 => mlock(thread, args),
        abi::MLOCK_ONFAULT => {
            let (memory, span) = (own()?, lock_span(address, bytes)?);
            check_lock(thread, &memory, span)?;
            let done =
                each_way(&memory, span, |span| mm().spaces().mlock_on_fault(memory.space(), span));
            unlock_droppable(&memory, span);
            done
        }
        _ => Err(Errno::EINVAL.into()),
    }
}

pub(super) fn munlock(_: &mut Thread, [address, bytes, ..]: [usize; 6]) -> Answer {
    let memory = own()?;
    let span = lock_span(address, bytes)?;
    each_way(&memory, span, |span| mm().spaces().munlock(memory.space(), span))
}

/// Lets droppable memory go again: on Linux, too, a lock of it is accepted and has no effect.
fn unlock_droppable(memory: &Memory, span: PageSpan) {
    let both = AreaFlags::DROPPABLE | AreaFlags::LOCKED;
    for area in mm().spaces().areas(memory.space(), span) {
        if area.flags.contains(both) {
            // Where an area cannot be divided now, it stays locked: that loses nothing.
            let _ = mm().spaces().munlock(memory.space(), area.span.intersect(span));
        }
    }
}

/// Does `change` to `span`, or where there is a hole, to the pages before it.
fn each_way(
    memory: &Memory,
    span: PageSpan,
    change: impl Fn(PageSpan) -> core::result::Result<(), quire::Error>,
) -> Answer {
    if span.is_empty() {
        return Ok(0);
    }
    let Err(error) = change(span) else { return Ok(0) };
    if let Some(before) = before_hole(memory, span) {
        change(before).map_err(errno)?;
    }
    Err(errno(error).into())
}

/// The pages of `span` before its first hole, if there is one behind others.
fn before_hole(memory: &Memory, span: PageSpan) -> Option<PageSpan> {
    let hole = mm().spaces().first_hole(memory.space(), span)?;
    (hole > span.start).then(|| PageSpan::new(span.start, hole))
}

/// Whether a process may lock `more` pages beyond those that it has locked (`RLIMIT_MEMLOCK`).
///
/// # Errors
/// `EPERM` when it may lock none, `short` when these are too many.
pub(super) fn may_lock(thread: &Thread, memory: &Memory, more: u64, short: Errno) -> Result<()> {
    let limit = thread.process().limits.soft(abi::RLIMIT_MEMLOCK);
    if limit == u64::MAX || thread.process().may().can(abi::CAP_IPC_LOCK) {
        return Ok(());
    }
    if limit == 0 {
        return Err(Errno::EPERM);
    }
    let locked = locked(memory, ALL);
    if locked.saturating_add(more) > limit / PAGE { Err(short) } else { Ok(()) }
}

/// Whether a process whose memory is locked may have `more` pages of it.
///
/// # Errors
/// `EAGAIN`.
pub(super) fn may_grow(thread: &Thread, memory: &Memory, more: u64) -> Result<()> {
    may_lock(thread, memory, more, Errno::EAGAIN).map_err(|_| Errno::EAGAIN)
}

/// The pages of `span` that are locked.
fn locked(memory: &Memory, span: PageSpan) -> u64 {
    let areas = mm().spaces().areas(memory.space(), span);
    let parts = areas.filter(|area| area.flags.contains(AreaFlags::LOCKED));
    parts.map(|area| area.span.intersect(span).count()).sum()
}

/// Whether a process may lock `span`, of which a part may be locked.
///
/// # Errors
/// As for [`may_lock`], with `ENOMEM`.
fn check_lock(thread: &Thread, memory: &Memory, span: PageSpan) -> Result<()> {
    let more = span.count() - locked(memory, span);
    may_lock(thread, memory, more, Errno::ENOMEM)
}

/// All that a program may map.
const ALL: PageSpan = PageSpan { start: Vpn::new(0), end: Vpn::new(isa::USER_END / PAGE) };

/// The pages of a range that need not begin at a page. As on Linux, a length that wraps round when
/// it is rounded up is none.
fn lock_span(address: usize, bytes: usize) -> Result<PageSpan> {
    let (start, mask) = (address & !(PAGE as usize - 1), PAGE as usize - 1);
    let bytes = bytes.wrapping_add(address - start).wrapping_add(mask) & !mask;
    start.checked_add(bytes).ok_or(Errno::EINVAL)?;
    span(start, bytes).ok_or(Errno::ENOMEM)
}

pub(super) fn mlockall(thread: &mut Thread, [flags, ..]: [usize; 6]) -> Answer {
    let known = abi::MCL_CURRENT | abi::MCL_FUTURE | abi::MCL_ONFAULT;
    if flags == 0 || flags & !(known as usize) != 0 || flags == abi::MCL_ONFAULT as usize {
        return Err(Errno::EINVAL.into());
    }
    let memory = own()?;
    let is_current = flags & abi::MCL_CURRENT as usize != 0;
    let mapped: u64 = mm().spaces().areas(memory.space(), ALL).map(|area| area.span.count()).sum();
    let more = if is_current { mapped - locked(&memory, ALL) } else { 0 };
    may_lock(thread, &memory, more, Errno::ENOMEM)?;
    memory.set_locks_future(flags & abi::MCL_FUTURE as usize != 0);
    if is_current {
        let on_fault = flags & abi::MCL_ONFAULT as usize != 0;
        for area in mm().spaces().areas(memory.space(), ALL) {
            // Later faults report a shortage of memory.
            match on_fault {
                true => drop(mm().spaces().mlock_on_fault(memory.space(), area.span)),
                false => drop(mm().mlock(memory.space(), area.span)),
            }
        }
        unlock_droppable(&memory, ALL);
    }
    Ok(0)
}

pub(super) fn munlockall(_: &mut Thread, _: [usize; 6]) -> Answer {
    let memory = own()?;
    memory.set_locks_future(false);
    for area in mm().spaces().areas(memory.space(), ALL) {
        mm().spaces().munlock(memory.space(), area.span).map_err(errno)?;
    }
    Ok(0)
}

/// From now on these areas keep their place and their rights.
pub(super) fn mseal(_: &mut Thread, [address, bytes, flags, ..]: [usize; 6]) -> Answer {
    if flags != 0 || !is_aligned(address) {
        return Err(Errno::EINVAL.into());
    }
    let end = (address as u64).checked_add(bytes as u64);
    end.and_then(|end| end.checked_next_multiple_of(PAGE)).ok_or(Errno::EINVAL)?;
    let span = span(address, bytes).ok_or(Errno::ENOMEM)?;
    if !span.is_empty() {
        mm().spaces().seal(own()?.space(), span).map_err(errno)?;
    }
    Ok(0)
}
