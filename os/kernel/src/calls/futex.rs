//! `futex` and `futex_waitv`: see [`crate::task::futex`].

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as abi;
use quire_linux::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::time::timespec;
use crate::isa;
use crate::memory::user;
use crate::task::futex::{self, Key, Sleeper};
use crate::task::{Answer, Resume, Stop, Thread};

pub(super) fn futex(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [address, operation, value, timeout, other, bits] = args;
    let (address, operation) = (address as u64, operation as u32);
    let private = operation & abi::FUTEX_PRIVATE_FLAG != 0;
    let key = |address| futex::key(address, private);
    match operation & !(abi::FUTEX_PRIVATE_FLAG | abi::FUTEX_CLOCK_REALTIME) {
        abi::FUTEX_WAIT => wait(thread, &key, args, u32::MAX),
        abi::FUTEX_WAIT_BITSET => wait(thread, &key, args, bits as u32),
        abi::FUTEX_WAKE => Ok(futex::wake(key(address)?, at_least_one(value), u32::MAX)),
        abi::FUTEX_WAKE_BITSET if bits as u32 == 0 => Err(Errno::EINVAL.into()),
        abi::FUTEX_WAKE_BITSET => Ok(futex::wake(key(address)?, at_least_one(value), bits as u32)),
        abi::FUTEX_REQUEUE => {
            Ok(futex::requeue(key(address)?, key(other as u64)?, value, timeout, None)?)
        }
        abi::FUTEX_CMP_REQUEUE => {
            let check = Some((address, bits as u32));
            Ok(futex::requeue(key(address)?, key(other as u64)?, value, timeout, check)?)
        }
        _ => Err(Errno::ENOSYS.into()),
    }
}

/// Linux wakes one even when asked for none.
fn at_least_one(count: usize) -> usize {
    (count as i32).max(1) as usize
}

fn wait(
    thread: &mut Thread,
    key: &dyn Fn(u64) -> quire_linux::Result<Key>,
    args: [usize; 6],
    bits: u32,
) -> Answer {
    let [address, operation, expected, timeout, ..] = args;
    if bits == 0 {
        return Err(Errno::EINVAL.into());
    }
    let (sleeper, hour) = match core::mem::take(&mut thread.resume) {
        Resume::Futex(sleeper, hour) => (sleeper, hour),
        _ => {
            let hour = hour(operation as u32, timeout)?;
            let key = key(address as u64)?;
            let task = &thread.task;
            (futex::begin(task, key, address as u64, expected as u32, bits)?, hour)
        }
    };
    if sleeper.is_woken() {
        return Ok(0);
    }
    if hour.is_some_and(|hour| isa::now() >= hour) {
        return if sleeper.leave() { Ok(0) } else { Err(Errno::ETIMEDOUT.into()) };
    }
    thread.resume = Resume::Futex(sleeper, hour);
    Err(Stop::Wait(hour))
}

/// The deadline, in nanoseconds since boot. `FUTEX_WAIT` gives a duration, others a time.
fn hour(operation: u32, timeout: usize) -> quire_linux::Result<Option<u64>> {
    if timeout == 0 {
        return Ok(None);
    }
    let given = timespec(timeout as u64)?;
    let plain = operation & !(abi::FUTEX_PRIVATE_FLAG | abi::FUTEX_CLOCK_REALTIME);
    let ns = if plain == abi::FUTEX_WAIT {
        isa::now().saturating_add(given)
    } else if operation & abi::FUTEX_CLOCK_REALTIME != 0 {
        given.saturating_sub(isa::realtime())
    } else {
        given
    };
    Ok(Some(ns))
}

/// The most words of one call.
const WORDS_MAX: usize = abi::FUTEX_WAITV_MAX as usize;

/// `struct futex_waitv`.
#[derive(Clone, Copy, FromBytes, IntoBytes)]
#[repr(C)]
struct Word {
    expected: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

impl Word {
    /// # Errors
    /// `EINVAL` for other sizes than 32 bits, which Linux has not either, and for unknown bits.
    fn key(&self) -> quire_linux::Result<Key> {
        const PRIVATE: u32 = abi::FUTEX_PRIVATE_FLAG;
        if self.reserved != 0 || self.flags & !PRIVATE != abi::FUTEX_32 {
            return Err(Errno::EINVAL);
        }
        futex::key(self.address, self.flags & PRIVATE != 0)
    }
}

/// `futex_waitv`: waits for one of several words; which it was.
pub(super) fn futex_waitv(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [words, count, flags, timeout, clock, _] = args;
    let (sleepers, hour) = match core::mem::take(&mut thread.resume) {
        Resume::Futexes(sleepers, hour) => (sleepers, hour),
        _ if flags as u32 != 0
            || words == 0
            || !(1..=WORDS_MAX).contains(&(count as u32 as usize)) =>
        {
            return Err(Errno::EINVAL.into());
        }
        _ => {
            let hour = hour_by(timeout, clock as u32)?;
            (begin_all(thread, words, count as u32 as usize)?, hour)
        }
    };
    let is_over = hour.is_some_and(|hour| isa::now() >= hour);
    if !is_over && !sleepers.iter().any(|sleeper| sleeper.is_woken()) {
        thread.resume = Resume::Futexes(sleepers, hour);
        return Err(Stop::Wait(hour));
    }
    futex::leave_all(&sleepers).ok_or(Errno::ETIMEDOUT.into())
}

/// Begins to wait for all words, or for none.
fn begin_all(
    thread: &Thread,
    words: usize,
    count: usize,
) -> quire_linux::Result<Vec<Arc<Sleeper>>> {
    let mut all = Vec::new();
    let mut sleepers = Vec::new();
    all.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    sleepers.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    for at in 0..count {
        let word: Word = user::read((words + at * size_of::<Word>()) as u64)?;
        all.push((word, word.key()?));
    }
    for (word, key) in all {
        match futex::begin(&thread.task, key, word.address, word.expected as u32, u32::MAX) {
            Ok(sleeper) => sleepers.push(sleeper),
            // One before it may have been woken by now; then that is the answer.
            Err(_) if sleepers.iter().any(|sleeper: &Arc<Sleeper>| sleeper.is_woken()) => break,
            Err(errno) => {
                futex::leave_all(&sleepers);
                return Err(errno);
            }
        }
    }
    Ok(sleepers)
}

/// The time at `timeout` of a clock, in nanoseconds since boot; an address of 0: never.
fn hour_by(timeout: usize, clock: u32) -> quire_linux::Result<Option<u64>> {
    if timeout == 0 {
        return Ok(None);
    }
    let given = timespec(timeout as u64)?;
    match clock {
        abi::CLOCK_MONOTONIC => Ok(Some(given)),
        abi::CLOCK_REALTIME => Ok(Some(given.saturating_sub(isa::realtime()))),
        _ => Err(Errno::EINVAL),
    }
}

/// Bytes of the head of a list of robust locks.
const ROBUST_BYTES: usize = 24;

/// Notes where the locks are that this thread's end is to give up.
pub(super) fn set_robust_list(thread: &mut Thread, [head, bytes, ..]: [usize; 6]) -> Answer {
    if bytes != ROBUST_BYTES {
        return Err(Errno::EINVAL.into());
    }
    thread.task.robust.store(head as u64, Ordering::Relaxed);
    Ok(0)
}

pub(super) fn get_robust_list(thread: &mut Thread, [tid, head, bytes, ..]: [usize; 6]) -> Answer {
    let task = super::process::task_of(thread, tid)?;
    if !thread.process().may().may_trace(&task.process.may()) {
        return Err(Errno::EPERM.into());
    }
    user::write(bytes as u64, &(ROBUST_BYTES as u64))?;
    user::write(head as u64, &task.robust.load(Ordering::Relaxed))?;
    Ok(0)
}
