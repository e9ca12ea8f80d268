//! The limits of a process: read, set, and those of memory enforced.

use alloc::sync::Arc;

use linux_raw_sys::general as abi;
use quire::space::AreaFlags;
use quire::units::{PageSpan, Prot, Vpn};
use quire_linux::{Errno, Result};

use crate::isa;
use crate::memory::{Memory, PAGE, mm, user};
use crate::task::{Answer, Process, Thread, find};

pub(super) fn prlimit64(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [pid, what, new, old, ..] = args;
    let what = what as u32;
    if what >= abi::RLIM_NLIMITS {
        return Err(Errno::EINVAL.into());
    }
    let new = match new {
        0 => None,
        _ => Some(user::read::<[u64; 2]>(new as u64)?),
    };
    let process = match pid {
        0 => thread.process().clone(),
        _ => find(pid as u32).ok_or(Errno::ESRCH)?,
    };
    if process.pid != thread.process().pid {
        may_limit(thread, &process)?;
    }
    let before = process.limits.get(what);
    if let Some([soft, hard]) = new {
        if soft > hard {
            return Err(Errno::EINVAL.into());
        }
        let may_raise = thread.process().may().can(abi::CAP_SYS_RESOURCE);
        if hard > before[1] && !may_raise {
            return Err(Errno::EPERM.into());
        }
        set(&process, what, [soft, hard])?;
    }
    if old != 0 {
        user::write(old as u64, &before)?;
    }
    Ok(0)
}

/// Whether the caller may see and set the limits of another process.
///
/// # Errors
/// `EPERM`.
fn may_limit(thread: &Thread, process: &Arc<Process>) -> Result<()> {
    let (own, other) = (thread.process().may(), process.may());
    let same = |own: u32, ids: &quire_linux::credentials::Ids| {
        [ids.real, ids.effective, ids.saved].iter().all(|id| *id == own)
    };
    let is_same = same(own.users.real, &other.users) && same(own.groups.real, &other.groups);
    if is_same || own.can(abi::CAP_SYS_RESOURCE) { Ok(()) } else { Err(Errno::EPERM) }
}

/// Sets a limit, and tells those that enforce it.
fn set(process: &Process, what: u32, both: [u64; 2]) -> Result<()> {
    if what == abi::RLIMIT_NOFILE {
        let soft = u32::try_from(both[0]).map_err(|_| Errno::EPERM)?;
        process.files().set_limit(soft)?;
    }
    process.limits.set(what, both);
    if let (abi::RLIMIT_STACK, Some(memory)) = (what, process.memory()) {
        memory.space().set_stack_pages(both[0] / PAGE);
    }
    Ok(())
}

pub(super) fn getrlimit(thread: &mut Thread, [what, out, ..]: [usize; 6]) -> Answer {
    if out == 0 {
        return Err(Errno::EFAULT.into());
    }
    prlimit64(thread, [0, what, 0, out, 0, 0])
}

pub(super) fn setrlimit(thread: &mut Thread, [what, new, ..]: [usize; 6]) -> Answer {
    if new == 0 {
        return Err(Errno::EFAULT.into());
    }
    prlimit64(thread, [0, what, new, 0, 0, 0])
}

/// Refuses `pages` more than the process may map (`RLIMIT_AS`).
///
/// # Errors
/// `ENOMEM`.
pub(super) fn check_limit(thread: &Thread, memory: &Memory, pages: u64) -> Result<()> {
    let limit = thread.process().limits.soft(abi::RLIMIT_AS);
    if limit == u64::MAX {
        return Ok(());
    }
    let all = PageSpan::new(Vpn::new(0), Vpn::new(isa::USER_END / PAGE));
    let mapped: u64 = mm().spaces().areas(memory.space(), all).map(|area| area.span.count()).sum();
    if mapped.saturating_add(pages) > limit / PAGE { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// Whether memory counts as data: private, and may be written.
pub(super) fn is_data(prot: Prot, flags: AreaFlags) -> bool {
    prot.contains(Prot::WRITE) && !flags.intersects(AreaFlags::SHARED | AreaFlags::GROWS_DOWN)
}

/// Whether `RLIMIT_DATA` is a limit at all.
pub(super) fn has_data_limit(thread: &Thread) -> bool {
    thread.process().limits.soft(abi::RLIMIT_DATA) != u64::MAX
}

/// Refuses `pages` more of data than the process may have (`RLIMIT_DATA`). As on Linux, a limit of
/// zero stands for the hard one, but for the heap.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn check_data(thread: &Thread, memory: &Memory, pages: u64) -> Result<()> {
    let limit = match thread.process().limits.get(abi::RLIMIT_DATA) {
        [0, hard] => hard,
        [soft, _] => soft,
    };
    if limit == u64::MAX {
        return Ok(());
    }
    let all = PageSpan::new(Vpn::new(0), Vpn::new(isa::USER_END / PAGE));
    let areas = mm().spaces().areas(memory.space(), all);
    let data = areas.filter(|area| is_data(area.prot, area.flags));
    let mapped: u64 = data.map(|area| area.span.count()).sum();
    if mapped.saturating_add(pages) > limit / PAGE { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// Refuses a heap (`brk`) of more bytes than the process may have data.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn check_heap(thread: &Thread, bytes: u64) -> Result<()> {
    let limit = thread.process().limits.soft(abi::RLIMIT_DATA);
    if bytes > limit { Err(Errno::ENOMEM) } else { Ok(()) }
}
