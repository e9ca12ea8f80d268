//! `futex`: see [`crate::task::futex`].

use linux_raw_sys::general as abi;
use quire_linux::Errno;

use super::time::timespec;
use crate::isa;
use crate::task::futex::{self, Key};
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
