//! Classes of scheduling and their priorities: the kernel checks, keeps and shows them, and goes by
//! none.

use alloc::sync::Arc;

use linux_raw_sys::general as abi;
use quire_linux::{Errno, Result};

use super::process::task_of;
use crate::memory::user;
use crate::task::{Answer, Task, Thread};

/// The priorities of the classes of real time.
const URGENT: core::ops::RangeInclusive<u32> = 1..=99;
/// Nanoseconds for which a thread of `SCHED_RR` runs before another one does.
const ROUND_NS: u64 = 100_000_000;
/// The same for a usual thread.
const SLICE_NS: u64 = 3_000_000;

/// The thread that a call names.
///
/// # Errors
/// `EINVAL`, `ESRCH`.
fn scheduled(thread: &Thread, tid: usize) -> Result<Arc<Task>> {
    if (tid as i32) < 0 { Err(Errno::EINVAL) } else { task_of(thread, tid as u32 as usize) }
}

/// Whether the caller may change how another thread is scheduled.
///
/// # Errors
/// `EPERM`.
pub(super) fn may_change(thread: &Thread, task: &Task) -> Result<()> {
    let (own, other) = (thread.process().may(), task.process.may());
    let is_same = [other.users.real, other.users.effective].contains(&own.users.effective);
    if is_same || own.can(abi::CAP_SYS_NICE) { Ok(()) } else { Err(Errno::EPERM) }
}

pub(super) fn sched_getscheduler(thread: &mut Thread, [tid, ..]: [usize; 6]) -> Answer {
    let (class, _) = *scheduled(thread, tid)?.schedule.lock();
    Ok(class as usize)
}

pub(super) fn sched_getparam(thread: &mut Thread, [tid, out, ..]: [usize; 6]) -> Answer {
    if out == 0 {
        return Err(Errno::EINVAL.into());
    }
    let (_, priority) = *scheduled(thread, tid)?.schedule.lock();
    user::write(out as u64, &priority)?;
    Ok(0)
}

pub(super) fn sched_setscheduler(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [tid, class, from, ..] = args;
    if (class as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    set(thread, tid, Some(class as u32), from)
}

pub(super) fn sched_setparam(thread: &mut Thread, [tid, from, ..]: [usize; 6]) -> Answer {
    set(thread, tid, None, from)
}

/// Gives a thread another class, or the same, and a priority.
fn set(thread: &Thread, tid: usize, class: Option<u32>, from: usize) -> Answer {
    if from == 0 || (tid as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    let priority = user::read::<u32>(from as u64)?;
    let task = scheduled(thread, tid)?;
    let (before, old) = *task.schedule.lock();
    let class = class.unwrap_or(before);
    match class & !abi::SCHED_RESET_ON_FORK {
        abi::SCHED_NORMAL | abi::SCHED_BATCH | abi::SCHED_IDLE if priority == 0 => {}
        abi::SCHED_FIFO | abi::SCHED_RR if URGENT.contains(&priority) => {
            let process = thread.process();
            let most = process.limits.soft(abi::RLIMIT_RTPRIO).max(old.into());
            if u64::from(priority) > most && !process.may().can(abi::CAP_SYS_NICE) {
                return Err(Errno::EPERM.into());
            }
        }
        _ => return Err(Errno::EINVAL.into()),
    }
    may_change(thread, &task)?;
    *task.schedule.lock() = (class, priority);
    Ok(0)
}

pub(super) fn sched_rr_get_interval(thread: &mut Thread, [tid, out, ..]: [usize; 6]) -> Answer {
    let (class, _) = *scheduled(thread, tid)?.schedule.lock();
    let ns = match class & !abi::SCHED_RESET_ON_FORK {
        abi::SCHED_FIFO => 0,
        abi::SCHED_RR => ROUND_NS,
        _ => SLICE_NS,
    };
    user::write(out as u64, &[0, ns])?;
    Ok(0)
}

pub(super) fn sched_priority_max(_: &mut Thread, [class, ..]: [usize; 6]) -> Answer {
    match class as u32 {
        abi::SCHED_FIFO | abi::SCHED_RR => Ok(*URGENT.end() as usize),
        abi::SCHED_NORMAL | abi::SCHED_BATCH | abi::SCHED_IDLE | abi::SCHED_DEADLINE => Ok(0),
        _ => Err(Errno::EINVAL.into()),
    }
}

pub(super) fn sched_priority_min(thread: &mut Thread, args: [usize; 6]) -> Answer {
    sched_priority_max(thread, args).map(|most| most.min(1))
}
