//! Facts that a process states about itself: `prctl`, priorities, `personality`. There is one
//! class of scheduling and one priority: others are kept, and shown.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use linux_raw_sys::general as abi;
use linux_raw_sys::prctl;
use quire_linux::credentials::Capabilities;
use quire_linux::signal::Signal;
use quire_linux::{Errno, Result};

use crate::memory::user;
use crate::task::{Answer, Process, Thread, find};

/// An operation of `PR_SET_VMA` that Linux does not have: Linux's numbers are small.
const SET_VMA_READ_ORDER: usize = 0x5152_4f00;

pub(super) fn prctl(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [option, first, second, ..] = args;
    let has_no_more = |from: usize| args[from..5].iter().all(|arg| *arg == 0);
    match option as u32 {
        prctl::PR_SET_NAME => set_name(thread, first),
        prctl::PR_GET_NAME => {
            let name = *thread.task.name.lock();
            user::write_bytes(first as u64, &name)?;
            Ok(0)
        }
        prctl::PR_SET_VMA if first == SET_VMA_READ_ORDER => {
            super::shown::prefer(second, args[3], args[4])
        }
        prctl::PR_SET_THP_DISABLE => super::memory::thp_disable(true, first, second),
        prctl::PR_GET_THP_DISABLE if !has_no_more(1) => Err(Errno::EINVAL.into()),
        prctl::PR_GET_THP_DISABLE => super::memory::thp_disable(false, 0, 0),
        prctl::PR_SET_MDWE if has_no_more(2) => super::guard::set(first),
        prctl::PR_GET_MDWE if has_no_more(1) => super::guard::get(),
        _ => keep(thread, args),
    }
}

/// Names the calling thread.
fn set_name(thread: &Thread, from: usize) -> Answer {
    let mut name = [0; 16];
    for (at, place) in name.iter_mut().take(15).enumerate() {
        *place = user::read::<u8>((from + at) as u64)?;
        if *place == 0 {
            break;
        }
    }
    *thread.task.name.lock() = name;
    Ok(0)
}

/// Keeps a value, or gives one that was kept.
fn keep(thread: &Thread, args: [usize; 6]) -> Answer {
    let [option, first, ..] = args;
    let kept = &thread.process().attributes;
    let has_no_more = |from: usize| args[from..5].iter().all(|arg| *arg == 0);
    match option as u32 {
        prctl::PR_GET_DUMPABLE => return Ok(kept.dumpable.load(Relaxed) as usize),
        prctl::PR_SET_DUMPABLE if first <= 1 => kept.dumpable.store(first as u32, Relaxed),
        prctl::PR_SET_PDEATHSIG if first <= Signal::MAX.into() => {
            kept.death_signal.store(first as u32, Relaxed);
        }
        prctl::PR_GET_PDEATHSIG => user::write(first as u64, &kept.death_signal.load(Relaxed))?,
        prctl::PR_SET_NO_NEW_PRIVS if first == 1 && has_no_more(2) => {
            kept.gains_nothing.store(true, Relaxed);
        }
        prctl::PR_GET_NO_NEW_PRIVS if has_no_more(1) => {
            return Ok(kept.gains_nothing.load(Relaxed).into());
        }
        prctl::PR_SET_CHILD_SUBREAPER => kept.is_reaper.store(first != 0, Relaxed),
        prctl::PR_GET_CHILD_SUBREAPER => {
            user::write(first as u64, &u32::from(kept.is_reaper.load(Relaxed)))?;
        }
        prctl::PR_SET_TIMERSLACK => {
            kept.slack_ns.store(if first == 0 { 50_000 } else { first as u64 }, Relaxed);
        }
        prctl::PR_GET_TIMERSLACK => return Ok(kept.slack_ns.load(Relaxed) as usize),
        prctl::PR_CAPBSET_READ if first <= abi::CAP_LAST_CAP as usize => {
            return Ok((Capabilities::ALL >> first & 1) as usize);
        }
        prctl::PR_GET_KEEPCAPS => return Ok(thread.process().may().keeps.into()),
        prctl::PR_SET_KEEPCAPS if first <= 1 => {
            let mut may = (*thread.process().may()).clone();
            may.keeps = first == 1;
            thread.process().set_may(Arc::new(may));
        }
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(0)
}

pub(super) fn personality(thread: &mut Thread, [wanted, ..]: [usize; 6]) -> Answer {
    let kept = &thread.process().attributes.personality;
    Ok(match wanted as u32 {
        u32::MAX => kept.load(Relaxed),
        new => kept.swap(new, Relaxed),
    } as usize)
}

/// The process that `which` (a process, a group, a user) and `who` name: the caller stands for
/// itself, its own group and its own user.
///
/// # Errors
/// `ESRCH`, `EINVAL`.
fn named(thread: &Thread, which: usize, who: usize) -> Result<Arc<Process>> {
    match (which, who) {
        (0..=2, 0) => Ok(thread.process().clone()),
        (0 | 1, pid) => find(pid as u32).ok_or(Errno::ESRCH),
        (2, uid) if thread.process().may().users.real == uid as u32 => Ok(thread.process().clone()),
        (2, _) => Err(Errno::ESRCH),
        _ => Err(Errno::EINVAL),
    }
}

pub(super) fn getpriority(thread: &mut Thread, [which, who, ..]: [usize; 6]) -> Answer {
    let nice = named(thread, which, who)?.attributes.nice.load(Relaxed);
    Ok((20 - nice) as usize)
}

pub(super) fn setpriority(thread: &mut Thread, [which, who, nice, ..]: [usize; 6]) -> Answer {
    let process = named(thread, which, who)?;
    let (nice, may) = ((nice as i32).clamp(-20, 19), thread.process().may());
    if may.users.effective != process.may().users.real && !may.can(abi::CAP_SYS_NICE) {
        return Err(Errno::EPERM.into());
    }
    if nice < process.attributes.nice.load(Relaxed) && !may.can(abi::CAP_SYS_NICE) {
        return Err(Errno::EACCES.into());
    }
    process.attributes.nice.store(nice, Relaxed);
    Ok(0)
}
