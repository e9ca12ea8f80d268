//! Memory: thin over the library, which knows all of it but Linux's argument lists.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as abi;
use quire::Error;
use quire::space::{Area, AreaFlags, At, Backing, OptOut, Request};
use quire::units::{Access, Order, PageSpan, Prot, Vpn};
use quire_linux::{Errno, Result};

use super::limit::{check_data, check_heap, check_limit, has_data_limit, is_data};
use super::map_file::{self, Shown};
use super::{guard, lock, told};
use crate::isa;
use crate::memory::{ALL, Memory, Own, PAGE, PAGE_SHIFT, commit, errno, mm};
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

/// The same, also where they are beyond what a program may map: these are holes. `None` when they
/// have no end.
pub(super) fn reach(start: usize, bytes: usize) -> Option<PageSpan> {
    let bytes = (bytes as u64).checked_next_multiple_of(PAGE)?;
    let end = (start as u64).checked_add(bytes)?;
    Some(PageSpan::new(Vpn::new(start as u64 / PAGE), Vpn::new(end / PAGE)))
}

/// The pages that `madvise` is given, which may be beyond what a program may map.
///
/// # Errors
/// `EINVAL`: they do not begin at a page, or have no end.
pub(super) fn pages(start: usize, bytes: usize) -> Result<PageSpan> {
    reach(start, bytes).filter(|_| is_aligned(start)).ok_or(Errno::EINVAL)
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
    if flags & abi::MAP_LOCKED as usize != 0 {
        lock::may_lock(thread, &memory, request.pages, Errno::EAGAIN)?;
    } else if request.flags.contains(AreaFlags::LOCKED) {
        lock::may_grow(thread, &memory, request.pages)?;
    }
    if flags as u32 & abi::MAP_TYPE == abi::MAP_SHARED_VALIDATE
        && matches!(file, Shown::File(_))
        && flags as u32 & !VALID != 0
    {
        return Err(Errno::EOPNOTSUPP.into());
    }
    memory.may_map()?;
    check_new(thread, &memory, &request)?;
    if commit::is_promise(request.prot, request.flags, matches!(file, Shown::Zeroes)) {
        commit::promise(request.pages, request.flags.contains(AreaFlags::NORESERVE))?;
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
    let _ = memory.policies.set(placed, None);
    if flags & abi::MAP_POPULATE as usize != 0 {
        let own = !request.flags.contains(AreaFlags::SHARED);
        // As on Linux, a partial population is no error.
        let writes = own && request.prot.contains(Prot::WRITE);
        let _ = memory.populate(placed, if writes { Access::Write } else { Access::Read });
    }
    told::after(thread, told, (placed.start.get() * PAGE) as usize)
}

/// Whether the process's limits have room for a mapping; pages that it replaces do not count.
///
/// # Errors
/// `ENOMEM`.
fn check_new(thread: &Thread, memory: &Memory, request: &Request) -> Result<()> {
    let counts_as_data = is_data(request.prot, request.flags);
    let fits = |pages| {
        check_limit(thread, memory, pages)?;
        if counts_as_data { check_data(thread, memory, pages) } else { Ok(()) }
    };
    match (fits(request.pages), request.at) {
        (Err(_), At::Fixed(page)) => {
            let span = PageSpan::new(page, page.add(request.pages));
            let areas = mm().spaces().areas(memory.space(), span);
            let there: u64 = areas.map(|area| area.span.intersect(span).count()).sum();
            fits(request.pages - there)
        }
        (fits, _) => fits,
    }
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
    may_cut(&memory, span)?;
    let told = told::unmapped(&memory, span)?;
    mm().unmap(memory.space(), span).map_err(errno)?;
    // A policy that stays for want of memory is only shown.
    let _ = memory.policies.set(span, None);
    memory.sweep_shared();
    told::after(thread, told, 0)
}

/// Whether the process may have one area more, where a change of `span` divides one.
///
/// # Errors
/// `ENOMEM`.
fn may_cut(memory: &Memory, span: PageSpan) -> Result<()> {
    memory.may_divide().or_else(|errno| {
        let area = mm().spaces().areas(memory.space(), span).next();
        let divides = |area: Area| area.span.start < span.start && span.end < area.span.end;
        if area.is_some_and(divides) { Err(errno) } else { Ok(()) }
    })
}

pub(super) fn mprotect(thread: &mut Thread, [address, bytes, prot, ..]: [usize; 6]) -> Answer {
    let grows = (abi::PROT_GROWSDOWN | abi::PROT_GROWSUP) as usize;
    if !is_aligned(address) || prot & grows == grows {
        return Err(Errno::EINVAL.into());
    }
    if bytes == 0 {
        return Ok(0);
    }
    let mut span = reach(address, bytes).ok_or(Errno::ENOMEM)?;
    let prot_rights = rights(prot & !grows)?;
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
    may_protect(thread, &memory, span, prot_rights)?;
    may_cut(&memory, span)?;
    protect(&memory, span, prot_rights)?;
    Ok(0)
}

/// Gives all of `span` these rights, or else the areas before the first hole, or before one that
/// refuses.
///
/// # Errors
/// `ENOMEM`, `EACCES`, `EPERM`.
fn protect(memory: &Memory, span: PageSpan, prot: Prot) -> Result<()> {
    let inside = span.intersect(ALL);
    let whole = match inside == span {
        true => mm().protect(memory.space(), span, prot),
        false => Err(Error::NoArea(inside.end)),
    };
    let Err(whole) = whole else { return Ok(()) };
    if !matches!(whole, Error::NoMemory(_)) {
        let mut next = inside.start;
        for area in mm().spaces().areas(memory.space(), inside) {
            let part = area.span.intersect(inside);
            if part.start > next {
                break;
            }
            mm().protect(memory.space(), part, prot).map_err(errno)?;
            next = part.end;
        }
    }
    Err(errno(whole))
}

/// Whether the restrictions of a process, and its limit of data, allow these rights.
///
/// # Errors
/// `EACCES`, `ENOMEM`.
fn may_protect(thread: &Thread, memory: &Memory, span: PageSpan, prot: Prot) -> Result<()> {
    if memory.guards() != 0 {
        for area in mm().spaces().areas(memory.space(), span) {
            guard::check(memory, area.prot, prot)?;
        }
    }
    if !prot.contains(Prot::WRITE) || !has_data_limit(thread) && !commit::is_strict() {
        return Ok(());
    }
    let becomes = |area: &Area| is_data(prot, area.flags) && !is_data(area.prot, area.flags);
    let areas = mm().spaces().areas(memory.space(), span).filter(becomes);
    match areas.map(|area| area.span.intersect(span).count()).sum() {
        0 => Ok(()),
        more => {
            commit::promise(more, false)?;
            check_data(thread, memory, more)
        }
    }
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
            .and_then(|()| check_heap(thread, wanted - heap.start))
            .and_then(|()| check_data(thread, &memory, more))
            .and_then(|()| commit::promise(more, false))
            .and_then(|()| match locks {
                true => lock::may_grow(thread, &memory, more),
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
        cmd::MEMBARRIER_CMD_GET_REGISTRATIONS,
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
    let registered = memory.barriers.load(Ordering::Relaxed);
    if is(cmd::MEMBARRIER_CMD_GET_REGISTRATIONS) {
        return Ok(registered as usize);
    }
    // The registration for a command, and the commands that register, have the next bit.
    if is(cmd::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
        || is(cmd::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
        || is(cmd::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE)
    {
        memory.barriers.fetch_or(command as u32, Ordering::Relaxed);
        return Ok(0);
    }
    let needs_registration = is(cmd::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
        || is(cmd::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE);
    if needs_registration && registered & (command as u32) << 1 == 0 {
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
