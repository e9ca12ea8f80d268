//! Clocks and sleep.

use linux_raw_sys::general as abi;
use quire_linux::{Errno, Result};

use crate::isa;
use crate::memory::user;
use crate::task::{Answer, Resume, Stop, Thread, find, find_task};

pub(super) const SECOND: u64 = 1_000_000_000;

/// A `timespec` of a program as nanoseconds.
///
/// # Errors
/// `EFAULT`, `EINVAL`.
pub(super) fn timespec(address: u64) -> Result<u64> {
    let [seconds, nanos] = user::read::<[i64; 2]>(address)?;
    if seconds < 0 || !(0..SECOND as i64).contains(&nanos) {
        return Err(Errno::EINVAL);
    }
    Ok((seconds as u64).saturating_mul(SECOND).saturating_add(nanos as u64))
}

/// Writes nanoseconds as a `timespec`.
///
/// # Errors
/// `EFAULT`.
pub(super) fn put_timespec(address: u64, ns: u64) -> Result<()> {
    user::write(address, &[ns / SECOND, ns % SECOND])
}

/// The time of a clock.
///
/// # Errors
/// `EINVAL` when there is no such clock.
fn read(thread: &Thread, clock: usize) -> Result<u64> {
    use core::sync::atomic::Ordering;
    match clock as u32 {
        abi::CLOCK_REALTIME | abi::CLOCK_REALTIME_COARSE | abi::CLOCK_TAI => {
            Ok(isa::realtime() + isa::now())
        }
        abi::CLOCK_MONOTONIC
        | abi::CLOCK_MONOTONIC_RAW
        | abi::CLOCK_MONOTONIC_COARSE
        | abi::CLOCK_BOOTTIME => Ok(isa::now()),
        abi::CLOCK_PROCESS_CPUTIME_ID | abi::CLOCK_THREAD_CPUTIME_ID => {
            Ok(thread.process().ran.load(Ordering::Relaxed))
        }
        other => of_process(thread, other as i32),
    }
}

/// The time that a process or a thread ran, by its clock: the number's complement, above three bits
/// that say which clock it is (of two, or all of the time), and whether of a thread.
///
/// # Errors
/// `EINVAL`.
fn of_process(thread: &Thread, clock: i32) -> Result<u64> {
    let (id, kind) = (!(clock >> 3), clock & 7);
    if clock >= 0 || kind & 3 == 3 {
        return Err(Errno::EINVAL);
    }
    let process = match (id, kind & 4 != 0) {
        (0, _) => thread.process().clone(),
        (id, true) => find_task(id as u32).ok_or(Errno::EINVAL)?.process.clone(),
        (id, false) => find(id as u32).ok_or(Errno::EINVAL)?,
    };
    Ok(process.ran.load(core::sync::atomic::Ordering::Relaxed))
}

pub(super) fn clock_gettime(thread: &mut Thread, [clock, out, ..]: [usize; 6]) -> Answer {
    let now = read(thread, clock)?;
    put_timespec(out as u64, now)?;
    Ok(0)
}

pub(super) fn clock_getres(thread: &mut Thread, [clock, out, ..]: [usize; 6]) -> Answer {
    read(thread, clock)?;
    if out != 0 {
        put_timespec(out as u64, 1)?;
    }
    Ok(0)
}

pub(super) fn gettimeofday(_: &mut Thread, [out, zone, ..]: [usize; 6]) -> Answer {
    if out != 0 {
        let now = isa::realtime() + isa::now();
        user::write(out as u64, &[now / SECOND, now % SECOND / 1000])?;
    }
    if zone != 0 {
        user::write(zone as u64, &[0_u32; 2])?;
    }
    Ok(0)
}

#[cfg(target_arch = "x86_64")]
pub(super) fn time(_: &mut Thread, [out, ..]: [usize; 6]) -> Answer {
    let now = (isa::realtime() + isa::now()) / SECOND;
    if out != 0 {
        user::write(out as u64, &now)?;
    }
    Ok(now as usize)
}

pub(super) fn nanosleep(thread: &mut Thread, [request, left, ..]: [usize; 6]) -> Answer {
    let hour = match thread.resume {
        Resume::Until(Some(hour)) => hour,
        _ => isa::now().saturating_add(timespec(request as u64)?),
    };
    sleep(thread, hour, left)
}

pub(super) fn clock_nanosleep(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [clock, flags, request, left, ..] = args;
    let absolute = flags & abi::TIMER_ABSTIME as usize != 0;
    let hour = match thread.resume {
        Resume::Until(Some(hour)) => hour,
        _ => {
            let shown = read(thread, clock)?;
            let wanted = timespec(request as u64)?;
            let ns = if absolute { wanted.saturating_sub(shown) } else { wanted };
            isa::now().saturating_add(ns)
        }
    };
    sleep(thread, hour, if absolute { 0 } else { left })
}

/// Sleeps until `hour`. The remaining time is written at `left` each time, as a signal may come
/// next.
fn sleep(thread: &mut Thread, hour: u64, left: usize) -> Answer {
    let now = isa::now();
    if now >= hour {
        return Ok(0);
    }
    if left != 0 {
        put_timespec(left as u64, hour - now)?;
    }
    thread.resume = Resume::Until(Some(hour));
    Err(Stop::Wait(Some(hour)))
}
