//! `mremap`: mappings that move, grow and shrink; and `remap_file_pages`.

use linux_raw_sys::general as abi;
use quire::space::{Area, AreaFlags, At, Backing, Request};
use quire::units::{Access, PageSpan, Vpn};
use quire::{Error, Move};
use quire_linux::{Errno, Result};

use super::limit::{check_data, check_limit, is_data};
use super::memory::{is_aligned, own, span};
use super::{lock, told};
use crate::isa;
use crate::memory::{Memory, PAGE, commit, errno, mm, reserved};
use crate::task::{Answer, Thread};

/// The arguments of `mremap` are checked without a look at memory: a bad flag comes before a bad
/// address.
///
/// # Errors
/// `EINVAL`.
fn check([old, old_bytes, new_bytes, flags, new, _]: [usize; 6]) -> Result<()> {
    let (moves, fixed, keeps) = (abi::MREMAP_MAYMOVE, abi::MREMAP_FIXED, abi::MREMAP_DONTUNMAP);
    let whole = |bytes: usize| (bytes as u64).checked_next_multiple_of(PAGE).unwrap_or(0);
    let (old_bytes, bytes, flags) = (whole(old_bytes), whole(new_bytes), flags as u32);
    if flags & !(moves | fixed | keeps) != 0 || !is_aligned(old) {
        return Err(Errno::EINVAL);
    }
    if bytes == 0 || bytes > isa::USER_END {
        return Err(Errno::EINVAL);
    }
    if flags & (fixed | keeps) == 0 {
        return Ok(());
    }
    let (old, new) = (old as u64, new as u64);
    let overlaps = old.saturating_add(old_bytes) > new && new.saturating_add(bytes) > old;
    let is_wrong = new > isa::USER_END - bytes
        || !new.is_multiple_of(PAGE)
        || flags & moves == 0
        || flags & keeps != 0 && old_bytes != bytes
        || overlaps;
    if is_wrong { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Whether the process's limits have room for `more` pages of an area.
///
/// # Errors
/// `EAGAIN`, `ENOMEM`.
fn may_grow(thread: &Thread, memory: &Memory, area: &Area, more: u64) -> Result<()> {
    if area.flags.contains(AreaFlags::LOCKED) {
        lock::may_grow(thread, memory, more)?;
    }
    check_limit(thread, memory, more)?;
    if commit::is_promise(area.prot, area.flags, false) {
        commit::promise(more, area.flags.contains(AreaFlags::NORESERVE))?;
    }
    if is_data(area.prot, area.flags) { check_data(thread, memory, more) } else { Ok(()) }
}

pub(super) fn mremap(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [old, old_bytes, new_bytes, flags, new, _] = args;
    check(args)?;
    let flags = flags as u32;
    let (moves, fixed, keeps) = (abi::MREMAP_MAYMOVE, abi::MREMAP_FIXED, abi::MREMAP_DONTUNMAP);
    let pages = (new_bytes as u64).div_ceil(PAGE);
    let bytes = if old_bytes as u64 > u64::MAX - PAGE { 0 } else { old_bytes };
    let old = span(old, bytes).ok_or(Errno::EFAULT)?;
    if old.is_empty() {
        return map_again(thread, old.start, pages, flags, Vpn::new(new as u64 / PAGE));
    }
    let target = Vpn::new(new as u64 / PAGE);
    let how = match (flags & fixed != 0, flags & keeps != 0) {
        (true, true) => Move::Keep(At::Fixed(target)),
        (false, true) => Move::Keep(if new == 0 { At::Anywhere } else { At::Hint(target) }),
        (true, false) => Move::To(target),
        (false, false) if flags & moves != 0 => Move::Allowed,
        (false, false) => Move::Never,
    };
    let memory = own()?;
    let area = mm().spaces().areas(memory.space(), old).next();
    let area = area.filter(|area| area.span.start <= old.start).ok_or(Errno::EFAULT)?;
    if old.end > area.span.end {
        return several(thread, &memory, old, pages, how);
    }
    let kept = if flags & keeps != 0 { 0 } else { old.count() };
    if pages > kept {
        may_grow(thread, &memory, &area, pages - kept)?;
    }
    let told = told::remapped(&memory, old, pages, how)?;
    let moved = mm().remap(memory.space(), old, pages, how).map_err(|error| match error {
        Error::NoArea(_) => Errno::EFAULT,
        // It would not fit where it is, and there is no room elsewhere.
        Error::Invalid if flags & (fixed | keeps) == 0 => Errno::ENOMEM,
        other => errno(other),
    })?;
    // Parts of it, or of its target, may have been unmapped.
    memory.sweep_shared();
    told::after(thread, told.settled(old, moved), (moved.start.get() * PAGE) as usize)
}

/// The same for a range that is more than one area. It may shrink, whatever is mapped there, and
/// its areas may move to a fixed place, with the holes between them (Linux 6.17).
fn several(thread: &mut Thread, memory: &Memory, old: PageSpan, pages: u64, how: Move) -> Answer {
    let rest = PageSpan::new(old.start.add(pages.min(old.count())), old.end);
    let stays = matches!(how, Move::Never | Move::Allowed);
    if pages > old.count() || !stays && place(how).is_none() {
        return Err(Errno::EFAULT.into());
    }
    let mut told = told::unmapped(memory, rest)?;
    if !rest.is_empty() {
        mm().unmap(memory.space(), rest).map_err(errno)?;
    }
    let head = PageSpan::new(old.start, rest.start);
    let done = move_each(thread, memory, head, how, &mut told);
    memory.sweep_shared();
    done?;
    let start = place(how).unwrap_or(old.start);
    told::after(thread, told, (start.get() * PAGE) as usize)
}

/// The page that a move names.
fn place(how: Move) -> Option<Vpn> {
    match how {
        Move::To(page) | Move::Keep(At::Fixed(page)) => Some(page),
        _ => None,
    }
}

/// Moves each area of `old` to where `how` says, as far from the others as it was. Those before one
/// that cannot move so are moved.
///
/// # Errors
/// `EFAULT` for an area that is watched or has reserved folios; the errors of `mremap`.
fn move_each(
    thread: &Thread,
    memory: &Memory,
    old: PageSpan,
    how: Move,
    told: &mut told::Changes,
) -> Result<()> {
    let Some(target) = place(how) else { return Ok(()) };
    let mut left = old;
    while let Some(area) = mm().spaces().areas(memory.space(), left).next() {
        if area.flags.watch().is_some() || reserved::of_area(&area).is_some() {
            return Err(Errno::EFAULT);
        }
        // Another thread may have mapped memory where a part has left, and it may be one area with
        // the rest.
        let part = area.span.intersect(left);
        let to = target.add(part.start.offset_from(old.start));
        let how = match how {
            Move::Keep(_) => {
                may_grow(thread, memory, &area, part.count())?;
                Move::Keep(At::Fixed(to))
            }
            _ => Move::To(to),
        };
        let change = told::remapped(memory, part, part.count(), how)?;
        let moved = mm().remap(memory.space(), part, part.count(), how).map_err(errno)?;
        let mut change = change.settled(part, moved);
        told.try_reserve(change.len()).map_err(|_| Errno::ENOMEM)?;
        told.append(&mut change);
        left.start = part.end;
    }
    Ok(())
}

/// Shows shared memory a second time: `mremap` of no bytes.
fn map_again(thread: &Thread, page: Vpn, pages: u64, flags: u32, new: Vpn) -> Answer {
    let memory = own()?;
    let here = PageSpan::new(page, page.add(1));
    let area = mm().spaces().areas(memory.space(), here).next().ok_or(Errno::EFAULT)?;
    let is_plain = flags & abi::MREMAP_MAYMOVE != 0 && flags & abi::MREMAP_DONTUNMAP == 0;
    if !area.flags.contains(AreaFlags::SHARED) || !is_plain {
        return Err(Errno::EINVAL.into());
    }
    let Backing::File { id, page: offset } = area.backing_of(page) else {
        return Err(Errno::EINVAL.into());
    };
    check_limit(thread, &memory, pages)?;
    let keeper = memory.keeper(id.0).ok_or(Errno::EINVAL)?;
    let request = Request {
        pages,
        at: if flags & abi::MREMAP_FIXED != 0 { At::Fixed(new) } else { At::Anywhere },
        prot: area.prot,
        max_prot: area.max_prot,
        flags: area.flags,
        backing: Backing::File { id, page: offset },
    };
    let placed = memory.show(id.0, keeper, &request)?;
    memory.sweep_shared();
    Ok((placed.start.get() * PAGE) as usize)
}

/// Shows other pages of a shared file in a part of an area.
pub(super) fn remap_file_pages(_: &mut Thread, args: [usize; 6]) -> Answer {
    let [address, bytes, prot, page, flags, _] = args;
    let address = address & !(PAGE as usize - 1);
    let span = span(address, bytes & !(PAGE as usize - 1)).filter(|span| !span.is_empty());
    let span = span.filter(|span| prot == 0 && page.checked_add(span.count() as usize).is_some());
    let (memory, span) = (own()?, span.ok_or(Errno::EINVAL)?);
    let area = mm().spaces().areas(memory.space(), span).next();
    let area = area.filter(|area| area.flags.contains(AreaFlags::SHARED));
    let area = area.ok_or(Errno::EINVAL)?;
    let Backing::File { id, .. } = area.backing else { return Err(Errno::EINVAL.into()) };
    // All of it shows that file, in the same way.
    let is_like = |other: Area| match other.backing {
        Backing::File { id: file, .. } => file == id && other.flags == area.flags,
        _ => false,
    };
    let is_whole = mm().spaces().first_hole(memory.space(), span).is_none();
    if !is_whole || !mm().spaces().areas(memory.space(), span).all(is_like) {
        return Err(Errno::EINVAL.into());
    }
    let keeper = memory.keeper(id.0).ok_or(Errno::EINVAL)?;
    let request = Request {
        pages: span.count(),
        at: At::Fixed(span.start),
        prot: area.prot,
        max_prot: area.max_prot,
        flags: area.flags,
        backing: Backing::File { id, page: page as u64 },
    };
    memory.show(id.0, keeper, &request)?;
    if flags & abi::MAP_NONBLOCK as usize == 0 {
        // As on Linux, a partial population is no error.
        let _ = memory.populate(span, Access::Read);
    }
    Ok(0)
}
