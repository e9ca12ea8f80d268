//! Memory: thin over the library, which knows all of it but Linux's argument lists.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as abi;
use quire::space::{Advice, Area, AreaFlags, At, Backing, OptOut, Request};
use quire::table::Sight;
use quire::units::{Access, PageSpan, Prot, Vpn};
use quire::{Error, Move};
use quire_linux::{Errno, Result};

use super::map_file::{self, Shown};
use super::{guard, shown, swap};
use crate::isa;
use crate::memory::{Memory, Own, PAGE, errno, mm, user};
use crate::task::{Answer, Resume, Stop, Thread};

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
    let request = MapRequest::of(&memory, address, bytes, prot, flags, offset)?;
    guard::check(&memory, request.prot, request.prot)?;
    let file = match flags & abi::MAP_ANONYMOUS as usize {
        0 => map_file::open(thread, fd, flags, request.prot)?,
        _ => Shown::Zeroes,
    };
    check_limit(thread, &memory, request.pages)?;
    let placed = match file {
        Shown::Zeroes => map_anon(&memory, &request)?,
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
    Ok((placed.start.get() * PAGE) as usize)
}

/// Maps memory that is zero. Shared memory has an object behind it, so that a child finds pages in
/// it that any process brings in later.
fn map_anon(memory: &Memory, request: &Request) -> Result<PageSpan> {
    if !request.flags.contains(AreaFlags::SHARED) {
        return mm().map(memory.space(), request).map_err(errno);
    }
    memory.map_shared(request)
}

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
        if fixed && !is_aligned(address) || has(abi::MAP_HUGETLB) {
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
            prot: rights(prot)?,
            max_prot: Prot::all(),
            flags: area,
            backing: Backing::Anon,
        })
    }
}

/// Refuses `pages` more than the process may map (`RLIMIT_AS`).
///
/// # Errors
/// `ENOMEM`.
fn check_limit(thread: &Thread, memory: &Memory, pages: u64) -> Result<()> {
    let limit = thread.process().space_limit.load(Ordering::Relaxed);
    if limit == u64::MAX {
        return Ok(());
    }
    let all = PageSpan::new(Vpn::new(0), Vpn::new(isa::USER_END / PAGE));
    let mapped: u64 = mm().spaces().areas(memory.space(), all).map(|area| area.span.count()).sum();
    if mapped.saturating_add(pages) > limit / PAGE { Err(Errno::ENOMEM) } else { Ok(()) }
}

pub(super) fn munmap(_: &mut Thread, [address, bytes, ..]: [usize; 6]) -> Answer {
    let span = span(address, bytes).filter(|span| is_aligned(address) && !span.is_empty());
    let (memory, span) = (own()?, span.ok_or(Errno::EINVAL)?);
    mm().unmap(memory.space(), span).map_err(errno)?;
    memory.sweep_shared();
    Ok(0)
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
        // Linux maps shared memory a second time here; no program has needed that so far.
        return Err(Errno::EINVAL.into());
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
    let moved = mm().remap(memory.space(), old, pages, how).map_err(|error| match error {
        Error::NoArea(_) => Errno::EFAULT,
        // It would not fit where it is, and there is no room elsewhere.
        Error::Invalid if flags & (fixed | keeps) == 0 => Errno::ENOMEM,
        other => errno(other),
    })?;
    // Parts of it, or of its target, may have been unmapped.
    memory.sweep_shared();
    Ok((moved.start.get() * PAGE) as usize)
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
    if old < new && check_limit(thread, &memory, new.offset_from(old)).is_err() {
        return Ok(now as usize);
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
    Discard,
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
            abi::MADV_DONTNEED | abi::MADV_DONTNEED_LOCKED => Self::Discard,
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
        Advised::Flags(_, clear) if !may_clear(area, clear) => Err(Errno::EINVAL),
        Advised::Flags(set, clear) => {
            mm().spaces().set_flags(space, part, set, clear).map_err(errno)
        }
        Advised::Huge(advice) => mm().advise(space, part, advice).map_err(errno),
        Advised::Discard if area.flags.contains(AreaFlags::LOCKED) => Err(Errno::EINVAL),
        Advised::Discard => mm().discard(space, part).map_err(errno),
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
        Advised::PageOut => swap::page_out(memory, part),
        Advised::Remove => shown::remove(area, part),
        _ => Ok(()),
    })
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
        let place = out as u64 + at.offset_from(span.start);
        user::write_bytes(place, &present[..piece.count() as usize])?;
        at = piece.end;
    }
    Ok(0)
}

pub(super) fn msync(_: &mut Thread, [address, bytes, flags, ..]: [usize; 6]) -> Answer {
    let known = abi::MS_ASYNC | abi::MS_INVALIDATE | abi::MS_SYNC;
    let both = (abi::MS_ASYNC | abi::MS_SYNC) as usize;
    if flags & !(known as usize) != 0 || flags & both == both || !is_aligned(address) {
        return Err(Errno::EINVAL.into());
    }
    let span = span(address, bytes).ok_or(Errno::ENOMEM)?;
    match mm().spaces().first_hole(own()?.space(), span) {
        Some(_) => Err(Errno::ENOMEM.into()),
        None => Ok(0),
    }
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
