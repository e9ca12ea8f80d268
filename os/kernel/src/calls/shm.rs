//! Shared memory of System V: `shmget`, `shmat`, `shmdt`, `shmctl`.

use alloc::sync::Arc;

use linux_raw_sys::general as abi;
use quire::space::{AreaFlags, At, Backing, FileId, Request};
use quire::units::{PageSpan, Prot, Vpn};
use quire_linux::files::Reserved;
use quire_linux::{Errno, Result};

use super::limit::check_limit;
use super::memory::{is_aligned, own, span};
use crate::isa;
use crate::memory::{PAGE, errno, mm, reserved, user};
use crate::task::segments::{self, PRIVATE, Segment};
use crate::task::tree::time;
use crate::task::{Answer, Thread};

/// Linux's numbers (linux/ipc.h, linux/shm.h).
mod flag {
    pub(super) const CREATE: u32 = 0o1000;
    pub(super) const EXCLUSIVE: u32 = 0o2000;
    pub(super) const HUGE: u32 = 0o4000;
    pub(super) const READ_ONLY: u32 = 0o10000;
    pub(super) const ROUND: u32 = 0o20000;
    pub(super) const REMAP: u32 = 0o40000;
    pub(super) const EXEC: u32 = 0o100000;
    /// Bits of the mode that `shmctl` shows.
    pub(super) const REMOVED: u32 = 0o1000;
    pub(super) const LOCKED: u32 = 0o2000;
}

pub(super) fn shmget(thread: &mut Thread, [key, bytes, flags, ..]: [usize; 6]) -> Answer {
    let (key, flags, bytes) = (key as i32, flags as u32, bytes as u64);
    let process = thread.process();
    let may = process.may();
    loop {
        if let Some(there) = segments::by_key(key) {
            if flags & flag::CREATE != 0 && flags & flag::EXCLUSIVE != 0 {
                return Err(Errno::EEXIST.into());
            }
            if bytes > there.bytes {
                return Err(Errno::EINVAL.into());
            }
            there.check(&may, (flags >> 6 | flags >> 3 | flags) & 6)?;
            return Ok(there.id as usize);
        }
        if key != PRIVATE && flags & flag::CREATE == 0 {
            return Err(Errno::ENOENT.into());
        }
        if bytes == 0 || bytes > segments::BYTES.get() {
            return Err(Errno::EINVAL.into());
        }
        if bytes > isa::USER_END {
            return Err(Errno::ENOMEM.into());
        }
        let whole = match flags & flag::HUGE {
            0 => None,
            _ if !may.can(abi::CAP_IPC_LOCK) => return Err(Errno::EPERM.into()),
            _ => Some(reserved::order_of(Reserved::of_flags(flags)).ok_or(Errno::EINVAL)?),
        };
        crate::memory::admit()?;
        let made = (bytes, whole);
        match segments::make(key, made, flags, (process.pid, &may), time().seconds) {
            // Another process made it meanwhile.
            Err(Errno::EEXIST) => {}
            other => return Ok(other? as usize),
        }
    }
}

pub(super) fn shmat(thread: &mut Thread, [id, address, flags, ..]: [usize; 6]) -> Answer {
    let flags = flags as u32;
    if (id as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    let (segment, ..) = segments::by_id(id as u32)?;
    let memory = own()?;
    let page = match address {
        0 if flags & flag::REMAP != 0 => return Err(Errno::EINVAL.into()),
        0 => None,
        at if is_aligned(at) => Some(at as u64 / PAGE),
        _ if flags & flag::ROUND == 0 => return Err(Errno::EINVAL.into()),
        at if (at as u64) < PAGE && flags & flag::REMAP != 0 => return Err(Errno::EINVAL.into()),
        at => Some(at as u64 / PAGE),
    };
    let block = segment.whole.map_or(1, |order| order.pages());
    let pages = segment.bytes.div_ceil(PAGE).next_multiple_of(block);
    let reads_only = flags & flag::READ_ONLY != 0;
    let mut prot = if reads_only { Prot::READ } else { Prot::READ | Prot::WRITE };
    prot.set(Prot::EXEC, flags & flag::EXEC != 0);
    let rights = if reads_only { 4 } else { 6 } | u32::from(flags & flag::EXEC != 0);
    segment.check(&thread.process().may(), rights)?;
    check_limit(thread, &memory, pages)?;
    let at = match page {
        None => At::Anywhere,
        Some(page) => {
            let room = span((page * PAGE) as usize, (pages * PAGE) as usize);
            let room = room.filter(|_| page.is_multiple_of(block)).ok_or(Errno::EINVAL)?;
            let is_free = mm().spaces().areas(memory.space(), room).next().is_none();
            if flags & flag::REMAP == 0 && !is_free {
                return Err(Errno::EINVAL.into());
            }
            At::Fixed(Vpn::new(page))
        }
    };
    let request = Request {
        pages,
        at,
        prot,
        max_prot: if reads_only { Prot::READ | Prot::EXEC } else { Prot::all() },
        flags: AreaFlags::SHARED,
        backing: Backing::File { id: FileId(segment.file), page: 0 },
    };
    let placed = memory.show(segment.file, segment.clone(), &request)?;
    memory.sweep_shared();
    let mut state = segment.state.lock();
    (state.attached, state.last) = (time().seconds, thread.process().pid);
    Ok((placed.start.get() * PAGE) as usize)
}

pub(super) fn shmdt(thread: &mut Thread, [address, ..]: [usize; 6]) -> Answer {
    if !is_aligned(address) {
        return Err(Errno::EINVAL.into());
    }
    let memory = own()?;
    let first = Vpn::new(address as u64 / PAGE);
    let all = PageSpan::new(first, Vpn::new(isa::USER_END / PAGE));
    let mut found: Option<Arc<Segment>> = None;
    for area in mm().spaces().areas(memory.space(), all) {
        let Backing::File { id, page } = area.backing else { continue };
        // Pieces of one attachment show pages as far from its beginning as they are themselves.
        let is_placed = area.span.start.get().checked_sub(page) == Some(first.get());
        let segment = match &found {
            Some(segment) if segment.file != id.0 || !is_placed => continue,
            None if !is_placed => continue,
            Some(segment) => segment.clone(),
            None => match segments::by_file(id.0) {
                Some(segment) => segment,
                None => continue,
            },
        };
        mm().unmap(memory.space(), area.span).map_err(errno)?;
        found = Some(segment);
    }
    let segment = found.ok_or(Errno::EINVAL)?;
    memory.sweep_shared();
    let mut state = segment.state.lock();
    (state.detached, state.last) = (time().seconds, thread.process().pid);
    Ok(0)
}

/// Commands of `shmctl`.
mod command {
    pub(super) const REMOVE: u32 = 0;
    pub(super) const SET: u32 = 1;
    pub(super) const STAT: u32 = 2;
    pub(super) const LIMITS: u32 = 3;
    pub(super) const LOCK: u32 = 11;
    pub(super) const UNLOCK: u32 = 12;
    pub(super) const STAT_INDEX: u32 = 13;
    pub(super) const TOTALS: u32 = 14;
    pub(super) const STAT_ANY: u32 = 15;
}

pub(super) fn shmctl(thread: &mut Thread, [id, which, place, ..]: [usize; 6]) -> Answer {
    let which = which as u32;
    if (id as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    match which {
        command::LIMITS => {
            let (bytes, pages) = (segments::BYTES.get(), segments::PAGES.get());
            let count = segments::COUNT.get();
            let limits = [bytes, 1, count, count, pages, 0, 0, 0, 0];
            user::write(place as u64, &limits)?;
            return Ok(highest());
        }
        command::TOTALS => return totals(place),
        command::STAT | command::STAT_INDEX | command::STAT_ANY => {
            return stat(thread, id as u32, which, place);
        }
        _ => {}
    }
    let (segment, ..) = segments::by_id(id as u32)?;
    let may = thread.process().may();
    match which {
        command::REMOVE => {
            segment.check_owner(&may)?;
            segments::remove(&segment);
        }
        command::SET => {
            let [_, uid, gid, _, _, mode] = user::read::<[u32; 6]>(place as u64)?;
            segment.check_owner(&may)?;
            if uid == u32::MAX || gid == u32::MAX {
                return Err(Errno::EINVAL.into());
            }
            let mut state = segment.state.lock();
            (state.uid, state.gid, state.changed) = (uid, gid, time().seconds);
            state.mode = state.mode & !0o777 | mode & 0o777;
        }
        command::LOCK | command::UNLOCK => {
            may_lock(thread, &segment, which == command::LOCK)?;
            // Such memory is not paged out: a lock changes only what is shown.
            let mut state = segment.state.lock();
            let locked = if which == command::LOCK { flag::LOCKED } else { 0 };
            state.mode = state.mode & !flag::LOCKED | locked;
        }
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(0)
}

/// Whether the caller may lock or unlock a segment: all that it has locked count together.
///
/// # Errors
/// `EPERM` if it is not the caller's, or where no memory may be locked; `ENOMEM` beyond the limit.
fn may_lock(thread: &Thread, segment: &Segment, locks: bool) -> Result<()> {
    let may = thread.process().may();
    if may.can(abi::CAP_IPC_LOCK) {
        return Ok(());
    }
    let user = may.users.effective;
    let limit = thread.process().limits.soft(abi::RLIMIT_MEMLOCK);
    let owns = user == segment.creator_uid || user == segment.state.lock().uid;
    if !owns || locks && limit == 0 {
        return Err(Errno::EPERM);
    }
    let mut pages = segment.bytes.div_ceil(PAGE);
    segments::each(|_, _, other| {
        let is_locked = other.state.lock().mode & flag::LOCKED != 0;
        if other.id != segment.id && is_locked && other.creator_uid == user {
            pages += other.bytes.div_ceil(PAGE);
        }
    });
    if locks && pages > limit / PAGE { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// The highest index that is in use.
fn highest() -> usize {
    let mut last = 0;
    segments::each(|index, _, _| last = index as usize);
    last
}

fn totals(place: usize) -> Answer {
    let (mut count, mut pages) = (0_u64, 0);
    segments::each(|_, _, segment| {
        count += 1;
        pages += segment.bytes.div_ceil(PAGE);
    });
    user::write(place as u64, &[count, pages, pages, 0, 0, 0])?;
    Ok(highest())
}

/// Writes a `shmid64_ds`.
fn stat(thread: &Thread, id: u32, which: u32, place: usize) -> Answer {
    let is_index = which != command::STAT;
    let (segment, key, is_removed) =
        if is_index { segments::by_index(id)? } else { segments::by_id(id)? };
    if which != command::STAT_ANY {
        segment.check(&thread.process().may(), 4)?;
    }
    let state = *segment.state.lock();
    let mode = state.mode | if is_removed { flag::REMOVED } else { 0 };
    let sequence = segment.id >> 15;
    let ids = [
        key as u32,
        state.uid,
        state.gid,
        segment.creator_uid,
        segment.creator_gid,
        mode,
        sequence,
        0,
    ];
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let mut words = [0_u64; 14];
    for (word, two) in words.iter_mut().zip(ids.chunks_exact(2)) {
        *word = pair(two[0], two[1]);
    }
    words[6] = segment.bytes;
    words[7..10]
        .copy_from_slice(&[state.attached, state.detached, state.changed].map(|t| t as u64));
    words[10] = pair(segment.creator, state.last);
    words[11] = segment.attachments();
    user::write(place as u64, &words)?;
    Ok(if is_index { segment.id as usize } else { 0 })
}
