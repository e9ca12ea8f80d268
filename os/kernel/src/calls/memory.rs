//! Memory: thin over the library, which knows all of it but Linux's argument lists.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as abi;
use quire::cache::FilePages;
use quire::space::{AreaFlags, At, Backing, OptOut, Request};
use quire::table::Sight;
use quire::units::{Access, Order, PageSpan, Prot, Vpn};
use quire::{Error, Move};
use quire_linux::{Errno, Result};

use super::limit::{check_data, check_limit, is_data};
use super::map_file::{self, Shown};
use super::{guard, lock, told};
use crate::isa;
use crate::memory::{Memory, Own, PAGE, PAGE_SHIFT, errno, mm, user};
use crate::task::{Answer, Thread};

/// The memory of the thread that calls.
#[inline]
pub(super) fn own() -> Result<Own> {
    Own::get().ok_or(Errno::EFAULT)
}

/// The whole pages from `start` on that hold `bytes` bytes; `None` when they are not below the end
/// of what a program may map.
pub(super) fn span(start: usize, bytes: usize) -> Option<PageSpan> {
    let end = (start as u64).checked_add(bytes as u64)?.checked_next_multiple_of(PAGE)?;
    (end <= isa::USER_END)
        .then(|| PageSpan::new(Vpn::new(start as u64 / PAGE), Vpn::new(end / PAGE)))
}

/// The pages that `madvise` is given.
///
/// # Errors
/// `EINVAL`: they do not begin at a page, or are not the program's.
pub(super) fn pages(start: usize, bytes: usize) -> Result<PageSpan> {
    span(start, bytes).filter(|_| is_aligned(start)).ok_or(Errno::EINVAL)
}

pub(super) fn is_aligned(address: usize) -> bool {
    (address as u64).is_multiple_of(PAGE)
}

/// The rights that `PROT_` bits stand for.
///
/// # Errors
/// `EINVAL` for bits that do not exist.
fn rights(bits: usize) -> Result<Prot> {
    // PROT_SEM says nothing; the bits for growing stacks are `mprotect`'s.
    let known = abi::PROT_READ | abi::PROT_WRITE | abi::PROT_EXEC | abi::PROT_SEM;
    if bits & !(known as usize) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Prot::from_bits_truncate(bits as u8 & 7))
}

pub(super) fn mmap(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [address, bytes, prot, flags, fd, offset] = args;
    let memory = own()?;
    let mut request = MapRequest::of(&memory, address, bytes, prot, flags, offset)?;
    guard::check(&memory, request.prot, request.prot)?;
    let file = match flags & abi::MAP_ANONYMOUS as usize {
        0 => map_file::open(thread, fd, flags, request.prot)?,
        _ => Shown::Zeroes,
    };
    let whole = map_file::whole(&file, flags as u32)?;
    if let Some(order) = whole {
        request = in_blocks(request, order, offset)?;
    }
    if request.flags.contains(AreaFlags::LOCKED) {
        lock::may_lock(thread, &memory, request.pages, Errno::EAGAIN)?;
    }
    if flags as u32 & abi::MAP_TYPE == abi::MAP_SHARED_VALIDATE
        && matches!(file, Shown::File(_))
        && flags as u32 & !VALID != 0
    {
        return Err(Errno::EOPNOTSUPP.into());
    }
    check_limit(thread, &memory, request.pages)?;
    if is_data(request.prot, request.flags) {
        check_data(thread, &memory, request.pages)?;
    }
    let told = match request.at {
        At::Fixed(page) => told::unmapped(&memory, PageSpan::new(page, page.add(request.pages)))?,
        _ => told::Changes::new(),
    };
    let placed = match file {
        Shown::Zeroes => match whole {
            Some(order) => memory.map_reserved(&request, order)?,
            None => map_anon(&memory, &request)?,
        },
        Shown::Memory => map_file::map_device(&memory, &request, offset as u64)?,
        Shown::File(file) => map_file::map(&memory, &request, &file, offset as u64)?,
    };
    memory.sweep_shared();
    if flags & abi::MAP_POPULATE as usize != 0 {
        let own = !request.flags.contains(AreaFlags::SHARED);
        // As on Linux, a partial population is no error.
        let writes = own && request.prot.contains(Prot::WRITE);
        let _ = memory.populate(placed, if writes { Access::Write } else { Access::Read });
    }
    told::after(thread, told, (placed.start.get() * PAGE) as usize)
}

/// Maps memory that is zero. Shared memory has an object behind it, so that a child finds pages in
/// it that any process brings in later.
fn map_anon(memory: &Memory, request: &Request) -> Result<PageSpan> {
    if !request.flags.contains(AreaFlags::SHARED) {
        return mm().map(memory.space(), request).map_err(errno);
    }
    memory.map_shared(request)
}

/// The request in whole reserved folios.
///
/// # Errors
/// `EINVAL` for a place or an offset within one, `ENOMEM` beyond what a program may map.
fn in_blocks(request: Request, order: Order, offset: usize) -> Result<Request> {
    let pages = request.pages.next_multiple_of(order.pages());
    let is_whole = |page: Vpn| page.is_aligned(order.pages());
    let at = match request.at {
        At::Fixed(page) | At::FixedNoReplace(page) if !is_whole(page) => {
            return Err(Errno::EINVAL);
        }
        At::Hint(page) => At::Hint(page.align_up(order.pages()).ok_or(Errno::ENOMEM)?),
        at => at,
    };
    if !(offset as u64).is_multiple_of(order.bytes(PAGE_SHIFT)) {
        return Err(Errno::EINVAL);
    }
    if pages * PAGE > isa::USER_END {
        return Err(Errno::ENOMEM);
    }
    Ok(Request { pages, at, ..request })
}

/// Flags of `mmap` that files know: all those of old, and the bits of the size of large pages.
const VALID: u32 = 0x17_ffff | 0x3f << 26;

/// Flags that cannot go with `MAP_DROPPABLE`.
const STAYS: u32 = abi::MAP_LOCKED | abi::MAP_GROWSDOWN;

/// The flags of an area whose content may be lost at any time: no child has it, and no dump.
const DROPPABLE: AreaFlags = AreaFlags::DROPPABLE
    .union(AreaFlags::NORESERVE)
    .union(AreaFlags::WIPEONFORK)
    .union(AreaFlags::DONTDUMP);

struct MapRequest;

impl MapRequest {
    fn of(
        memory: &Memory,
        address: usize,
        bytes: usize,
        prot: usize,
        flags: usize,
        offset: usize,
    ) -> Result<Request> {
        let has = |flag: u32| flags & flag as usize != 0;
        if bytes == 0 || !is_aligned(offset) {
            return Err(Errno::EINVAL);
        }
        let shared = match flags as u32 & abi::MAP_TYPE {
            abi::MAP_PRIVATE => false,
            abi::MAP_SHARED | abi::MAP_SHARED_VALIDATE => true,
            // Memory that has a file behind it, must stay in memory or grows cannot be dropped.
            abi::MAP_DROPPABLE if has(abi::MAP_ANONYMOUS) && !has(STAYS) => false,
            _ => return Err(Errno::EINVAL),
        };
        let pages = (bytes as u64).checked_next_multiple_of(PAGE).ok_or(Errno::ENOMEM)? / PAGE;
        let fixed = has(abi::MAP_FIXED) || has(abi::MAP_FIXED_NOREPLACE);
        if fixed && !is_aligned(address) || shared && has(abi::MAP_GROWSDOWN) {
            return Err(Errno::EINVAL);
        }
        if pages * PAGE > isa::USER_END || fixed && span(address, bytes).is_none() {
            return Err(Errno::ENOMEM);
        }
        let page = Vpn::new(address as u64 / PAGE);
        let at = if has(abi::MAP_FIXED_NOREPLACE) {
            At::FixedNoReplace(page)
        } else if has(abi::MAP_FIXED) {
            At::Fixed(page)
        } else if page.get() == 0 || span(address, bytes).is_none() {
            At::Anywhere
        } else {
            At::Hint(page)
        };
        let mut area = AreaFlags::empty();
        area.set(AreaFlags::SHARED, shared);
        area.set(AreaFlags::GROWS_DOWN, has(abi::MAP_GROWSDOWN));
        area.set(AreaFlags::NORESERVE, has(abi::MAP_NORESERVE));
        area.set(AreaFlags::LOCKED, has(abi::MAP_LOCKED) || memory.locks_future());
        if flags as u32 & abi::MAP_TYPE == abi::MAP_DROPPABLE {
            area = DROPPABLE | (area - AreaFlags::LOCKED);
        }
        Ok(Request {
            pages,
            at,
            // Unknown bits say nothing here.
            prot: Prot::from_bits_truncate(prot as u8 & 7),
            max_prot: Prot::all(),
            flags: area,
            backing: Backing::Anon,
        })
    }
}

pub(super) fn munmap(thread: &mut Thread, [address, bytes, ..]: [usize; 6]) -> Answer {
    let span = span(address, bytes).filter(|span| is_aligned(address) && !span.is_empty());
    let (memory, span) = (own()?, span.ok_or(Errno::EINVAL)?);
    let told = told::unmapped(&memory, span)?;
    mm().unmap(memory.space(), span).map_err(errno)?;
    memory.sweep_shared();
    told::after(thread, told, 0)
}

pub(super) fn mprotect(_: &mut Thread, [address, bytes, prot, ..]: [usize; 6]) -> Answer {
    let grows = (abi::PROT_GROWSDOWN | abi::PROT_GROWSUP) as usize;
    if !is_aligned(address) || prot & grows == grows {
        return Err(Errno::EINVAL.into());
    }
    let prot_rights = rights(prot & !grows)?;
    let mut span = span(address, bytes).ok_or(Errno::ENOMEM)?;
    if span.is_empty() {
        return Ok(0);
    }
    let memory = own()?;
    if prot & grows != 0 {
        // From the beginning of the area on, which must be a stack.
        let first = mm().spaces().areas(memory.space(), span).next().ok_or(Errno::ENOMEM)?;
        let is_stack = first.flags.contains(AreaFlags::GROWS_DOWN);
        if !is_stack || prot & abi::PROT_GROWSUP as usize != 0 {
            return Err(Errno::EINVAL.into());
        }
        span = PageSpan::new(first.span.start, span.end);
    }
    if memory.guards() != 0 {
        for area in mm().spaces().areas(memory.space(), span) {
            guard::check(&memory, area.prot, prot_rights)?;
        }
    }
    mm().protect(memory.space(), span, prot_rights).map_err(errno)?;
    Ok(0)
}

pub(super) fn mremap(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [old, old_bytes, new_bytes, flags, new, _] = args;
    let flags = flags as u32;
    let (moves, fixed, keeps) = (abi::MREMAP_MAYMOVE, abi::MREMAP_FIXED, abi::MREMAP_DONTUNMAP);
    let needs_move = flags & (fixed | keeps) != 0 && flags & moves == 0;
    if flags & !(moves | fixed | keeps) != 0 || needs_move || !is_aligned(old) || new_bytes == 0 {
        return Err(Errno::EINVAL.into());
    }
    if flags & fixed != 0 && !is_aligned(new) {
        return Err(Errno::EINVAL.into());
    }
    let old = span(old, old_bytes).ok_or(Errno::EINVAL)?;
    let pages = (new_bytes as u64).checked_next_multiple_of(PAGE).ok_or(Errno::EINVAL)? / PAGE;
    if old.is_empty() {
        return map_again(thread, old.start, pages, flags, Vpn::new(new as u64 / PAGE));
    }
    if pages > isa::USER_END / PAGE {
        return Err(Errno::ENOMEM.into());
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
    let kept = if flags & keeps != 0 { 0 } else { old.count() };
    if pages > kept {
        check_limit(thread, &memory, pages - kept)?;
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

pub(super) fn brk(thread: &mut Thread, [address, ..]: [usize; 6]) -> Answer {
    let memory = own()?;
    let mut heap = memory.heap.lock();
    let now = heap.end;
    let wanted = address as u64;
    if wanted < heap.start || wanted > isa::USER_END {
        return Ok(now as usize);
    }
    let pages = |bytes: u64| Vpn::new(bytes.div_ceil(PAGE));
    let (old, new) = (pages(now), pages(wanted));
    if old < new {
        let more = new.offset_from(old);
        let locks = memory.locks_future();
        let checked = check_limit(thread, &memory, more)
            .and_then(|()| check_data(thread, &memory, more))
            .and_then(|()| match locks {
                true => lock::may_lock(thread, &memory, more, Errno::EAGAIN),
                false => Ok(()),
            });
        if checked.is_err() {
            return Ok(now as usize);
        }
    }
    let done = match old < new {
        true => {
            let request = Request::anon(new.offset_from(old)).at(At::FixedNoReplace(old));
            mm().map(memory.space(), &request).map(drop)
        }
        false if new < old => mm().unmap(memory.space(), PageSpan::new(new, old)),
        false => Ok(()),
    };
    if done.is_ok() {
        heap.end = wanted;
    }
    Ok(heap.end as usize)
}

pub(super) fn mincore(_: &mut Thread, [address, bytes, out, ..]: [usize; 6]) -> Answer {
    if !is_aligned(address) {
        return Err(Errno::EINVAL.into());
    }
    let span = span(address, bytes).ok_or(Errno::ENOMEM)?;
    let memory = own()?;
    if mm().spaces().first_hole(memory.space(), span).is_some() {
        return Err(Errno::ENOMEM.into());
    }
    let mut at = span.start;
    while at < span.end {
        let piece = PageSpan::new(at, at.add(256).min(span.end));
        let mut present = [0_u8; 256];
        mm().spaces().runs(memory.space(), piece, &mut |seen| {
            if matches!(seen.what, Sight::Leaf { .. }) {
                let from = seen.pages.start.offset_from(at) as usize;
                present[from..from + seen.pages.count() as usize].fill(1);
            }
        });
        add_cached(&memory, piece, &mut present);
        let place = out as u64 + at.offset_from(span.start);
        user::write_bytes(place, &present[..piece.count() as usize])?;
        at = piece.end;
    }
    Ok(0)
}

/// Marks the pages of `piece` that are in memory for another process: those of its file.
fn add_cached(memory: &Memory, piece: PageSpan, present: &mut [u8]) {
    for area in mm().spaces().areas(memory.space(), piece) {
        let part = area.span.intersect(piece);
        let Backing::File { id, page } = area.backing_of(part.start) else { continue };
        let end = page + part.count();
        let mut next = page;
        while let Ok(Some(found)) = mm().files().next_cached(id, FilePages::new(next, end)) {
            // A folio may begin before the part.
            let start = found.start.max(next);
            let from = part.start.offset_from(piece.start) as usize + (start - page) as usize;
            let count = found.end.min(end).saturating_sub(start) as usize;
            present[from..from + count].fill(1);
            next = found.end;
            if next >= end {
                break;
            }
        }
    }
}

/// There are no protection keys: none can be had, and only "none" can be given.
pub(super) fn pkey_alloc(_: &mut Thread, [flags, rights, ..]: [usize; 6]) -> Answer {
    if flags != 0 || rights & !3 != 0 {
        Err(Errno::EINVAL.into())
    } else {
        Err(Errno::ENOSPC.into())
    }
}

pub(super) fn pkey_free(_: &mut Thread, _: [usize; 6]) -> Answer {
    Err(Errno::EINVAL.into())
}

pub(super) fn pkey_mprotect(thread: &mut Thread, args: [usize; 6]) -> Answer {
    if args[3] as i32 == -1 { mprotect(thread, args) } else { Err(Errno::EINVAL.into()) }
}

pub(super) fn msync(_: &mut Thread, [address, bytes, flags, ..]: [usize; 6]) -> Answer {
    let known = abi::MS_ASYNC | abi::MS_INVALIDATE | abi::MS_SYNC;
    let both = (abi::MS_ASYNC | abi::MS_SYNC) as usize;
    if flags & !(known as usize) != 0 || flags & both == both || !is_aligned(address) {
        return Err(Errno::EINVAL.into());
    }
    let span = span(address, bytes).ok_or(Errno::ENOMEM)?;
    let memory = own()?;
    if mm().spaces().first_hole(memory.space(), span).is_some() {
        return Err(Errno::ENOMEM.into());
    }
    let mut areas = mm().spaces().areas(memory.space(), span);
    let is_locked = areas.any(|area| area.flags.contains(AreaFlags::LOCKED));
    match flags & abi::MS_INVALIDATE as usize != 0 && is_locked {
        true => Err(Errno::EBUSY.into()),
        false => Ok(0),
    }
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
    let area = area.filter(|area| area.span.start <= span.start && span.end <= area.span.end);
    let area = area.ok_or(Errno::EINVAL)?;
    let Backing::File { id, .. } = area.backing else { return Err(Errno::EINVAL.into()) };
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

pub(super) fn membarrier(_: &mut Thread, [command, flags, ..]: [usize; 6]) -> Answer {
    use abi::membarrier_cmd as cmd;
    let known = [
        cmd::MEMBARRIER_CMD_GLOBAL,
        cmd::MEMBARRIER_CMD_GLOBAL_EXPEDITED,
        cmd::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED,
        cmd::MEMBARRIER_CMD_PRIVATE_EXPEDITED,
        cmd::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED,
        cmd::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE,
        cmd::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE,
    ];
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    if command == 0 {
        return Ok(known.into_iter().fold(0, |mask, command| mask | command as usize));
    }
    if !known.into_iter().any(|known| known as usize == command) {
        return Err(Errno::EINVAL.into());
    }
    let memory = own()?;
    let is = |command_: cmd| command == command_ as usize;
    if is(cmd::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
        || is(cmd::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE)
    {
        memory.has_barriers.store(true, Ordering::Relaxed);
        return Ok(0);
    }
    let needs_registration = is(cmd::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
        || is(cmd::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE);
    if needs_registration && !memory.has_barriers.load(Ordering::Relaxed) {
        return Err(Errno::EPERM.into());
    }
    let others = quire::units::CpuSet::new();
    for number in 0..isa::cpu_count() {
        others.insert(quire::units::CpuId::new(number));
    }
    isa::serialize_others(&others);
    Ok(0)
}

/// `PR_SET_THP_DISABLE` and its other half.
pub(super) fn thp_disable(set: bool, on: usize, flags: usize) -> Answer {
    let memory = own()?;
    const EXCEPT_ADVISED: usize = 2;
    if !set {
        return Ok(match memory.space().opt_out() {
            OptOut::No => 0,
            OptOut::All => 1,
            OptOut::ExceptAdvised => 1 | EXCEPT_ADVISED,
        });
    }
    let choice = match (on, flags) {
        (0, 0) => OptOut::No,
        (1.., 0) => OptOut::All,
        (1.., EXCEPT_ADVISED) => OptOut::ExceptAdvised,
        _ => return Err(Errno::EINVAL.into()),
    };
    memory.space().set_opt_out(choice);
    Ok(0)
}
