//! Semaphores of System V: `semget`, `semop`, `semtimedop`, `semctl`.

use alloc::vec::Vec;

use quire_linux::{Errno, Result};
use zerocopy::IntoBytes;

use super::time::timespec;
use crate::isa;
use crate::memory::user;
use crate::task::semaphores::{
    self, OPERATIONS_MOST, Operation, PRIVATE, SETS_MOST, Set, Shared, VALUE_MOST, VALUES_MOST,
    Value,
};
use crate::task::tree::time;
use crate::task::{Answer, Resume, Stop, Thread};

const CREATE: u32 = 0o1000;
const EXCLUSIVE: u32 = 0o2000;
const NO_WAIT: u16 = 0o4000;
const UNDO: u16 = 0o10000;

pub(super) fn semget(thread: &mut Thread, [key, count, flags, ..]: [usize; 6]) -> Answer {
    let (key, count, flags) = (key as i32, count as i32, flags as u32);
    let may = thread.process().may();
    if count < 0 || count as usize > VALUES_MOST {
        return Err(Errno::EINVAL.into());
    }
    loop {
        if let Some(there) = semaphores::by_key(key) {
            if flags & CREATE != 0 && flags & EXCLUSIVE != 0 {
                return Err(Errno::EEXIST.into());
            }
            let set = there.set.lock();
            if count as usize > set.values.len() {
                return Err(Errno::EINVAL.into());
            }
            set.check(&may, (flags >> 6 | flags >> 3 | flags) & 6)?;
            return Ok(set.id as usize);
        }
        if key != PRIVATE && flags & CREATE == 0 {
            return Err(Errno::ENOENT.into());
        }
        if count == 0 {
            return Err(Errno::EINVAL.into());
        }
        crate::memory::admit()?;
        match semaphores::make(key, count as usize, flags, &may, time().seconds) {
            // Another process made it meanwhile.
            Err(Errno::EEXIST) => {}
            other => return Ok(other? as usize),
        }
    }
}

#[cfg_attr(target_arch = "riscv64", allow(dead_code))]
pub(super) fn semop(thread: &mut Thread, [id, from, count, ..]: [usize; 6]) -> Answer {
    semtimedop(thread, [id, from, count, 0, 0, 0])
}

pub(super) fn semtimedop(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [id, from, count, timeout, ..] = args;
    let (is_again, hour) = match thread.resume {
        Resume::Until(hour) => (true, hour),
        _ if timeout == 0 => (false, None),
        _ => (false, Some(isa::now().saturating_add(timespec(timeout as u64)?))),
    };
    if count == 0 || (id as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    let all = operations(from, count)?;
    let gone = if is_again { Errno::EIDRM } else { Errno::EINVAL };
    let shared = semaphores::by_id(id as u32).map_err(|_| gone)?;
    // The waiter is registered first, so that no change is missed after looking.
    shared.news.add(&thread.waker())?;
    let mut set = shared.set.lock();
    set.waiting.remove(&thread.task.tid);
    if set.is_gone {
        return Err(gone.into());
    }
    if all.iter().any(|operation| operation.number >= set.values.len()) {
        return Err(Errno::EFBIG.into());
    }
    let changes = all.iter().any(|operation| operation.change != 0);
    set.check(&thread.process().may(), if changes { 2 } else { 4 })?;
    let Some(stuck) = set.attempt(&all, thread.process().pid)? else {
        set.operated = time().seconds;
        drop(set);
        if changes {
            shared.news.wake();
        }
        return Ok(0);
    };
    let stuck = all[stuck];
    if !stuck.waits || hour.is_some_and(|hour| hour <= isa::now()) {
        return Err(Errno::EAGAIN.into());
    }
    set.waiting.insert(thread.task.tid, (stuck.number, stuck.change == 0));
    thread.resume = Resume::Until(hour);
    Err(Stop::Wait(hour))
}

/// The operations of a call: of each its number, its change and its flags, 2 bytes each.
fn operations(from: usize, count: usize) -> Result<Vec<Operation>> {
    if count > OPERATIONS_MOST {
        return Err(Errno::E2BIG);
    }
    let mut all = Vec::new();
    all.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    for at in 0..count {
        let [number, change, flags] = user::read::<[u16; 3]>(from.wrapping_add(6 * at) as u64)?;
        all.push(Operation {
            number: number.into(),
            change: (change as i16).into(),
            waits: flags & NO_WAIT == 0,
            undoes: flags & UNDO != 0,
        });
    }
    Ok(all)
}

/// Commands of `semctl`.
mod command {
    pub(super) const REMOVE: u32 = 0;
    pub(super) const SET: u32 = 1;
    pub(super) const STAT: u32 = 2;
    pub(super) const LIMITS: u32 = 3;
    pub(super) const PID: u32 = 11;
    pub(super) const GET: u32 = 12;
    pub(super) const GET_ALL: u32 = 13;
    pub(super) const WAIT_MORE: u32 = 14;
    pub(super) const WAIT_ZERO: u32 = 15;
    pub(super) const PUT: u32 = 16;
    pub(super) const PUT_ALL: u32 = 17;
    pub(super) const STAT_INDEX: u32 = 18;
    pub(super) const TOTALS: u32 = 19;
    pub(super) const STAT_ANY: u32 = 20;
}

pub(super) fn semctl(thread: &mut Thread, [id, number, which, place, ..]: [usize; 6]) -> Answer {
    let (which, may) = (which as u32, thread.process().may());
    if (id as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    match which {
        command::LIMITS | command::TOTALS => return limits(which, place),
        command::STAT_INDEX | command::STAT_ANY => {
            let shared = semaphores::by_index(id as u32)?;
            let (id, told) = {
                let set = shared.set.lock();
                if which == command::STAT_INDEX {
                    set.check(&may, 4)?;
                }
                (set.id, stat(&set))
            };
            user::write_bytes(place as u64, told.as_bytes())?;
            return Ok(id as usize);
        }
        _ => {}
    }
    let shared = semaphores::by_id(id as u32)?;
    match which {
        command::REMOVE => {
            shared.set.lock().check_owner(&may)?;
            semaphores::remove(&shared);
            Ok(0)
        }
        command::SET => {
            let [_, uid, gid, _, _, mode] = user::read::<[u32; 6]>(place as u64)?;
            let mut set = shared.set.lock();
            set.check_owner(&may)?;
            if uid == u32::MAX || gid == u32::MAX {
                return Err(Errno::EINVAL.into());
            }
            (set.uid, set.gid, set.changed) = (uid, gid, time().seconds);
            set.mode = mode & 0o777;
            Ok(0)
        }
        command::STAT => {
            let told = {
                let set = shared.set.lock();
                set.check(&may, 4)?;
                stat(&set)
            };
            user::write_bytes(place as u64, told.as_bytes())?;
            Ok(0)
        }
        command::GET_ALL => {
            let mut values = room::<u16>(&shared)?;
            {
                let set = shared.set.lock();
                set.check(&may, 4)?;
                values.extend(set.values.iter().map(|value| value.value as u16));
            }
            for (at, value) in values.iter().enumerate() {
                user::write((place + 2 * at) as u64, value)?;
            }
            Ok(0)
        }
        command::PUT | command::PUT_ALL => put(thread, &shared, which, number, place),
        _ => of_one(thread, &shared, which, number),
    }
}

/// Room for something about each value of a set; their number stays the same.
///
/// # Errors
/// `ENOMEM`.
fn room<T>(shared: &Shared) -> Result<Vec<T>> {
    let count = shared.set.lock().values.len();
    let mut room = Vec::new();
    room.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    Ok(room)
}

/// Sets one value, or all.
fn put(thread: &Thread, shared: &Shared, which: u32, number: usize, place: usize) -> Answer {
    let (pid, may) = (thread.process().pid, thread.process().may());
    let count = shared.set.lock().values.len();
    let mut new = room(shared)?;
    if which == command::PUT_ALL {
        shared.set.lock().check(&may, 2)?;
        for at in 0..count {
            new.push((at, i32::from(user::read::<u16>((place + 2 * at) as u64)?)));
        }
    } else {
        new.push((number as i32 as usize, place as i32));
    }
    let mut set = shared.set.lock();
    if new.iter().any(|(_, value)| !(0..=VALUE_MOST).contains(value)) {
        return Err(Errno::ERANGE.into());
    }
    if new.iter().any(|(at, _)| *at >= count) {
        return Err(Errno::EINVAL.into());
    }
    set.check(&may, 2)?;
    for (at, value) in new {
        set.values[at] = Value { value, changer: pid };
        set.undo.retain(|(_, number), _| *number != at);
    }
    set.changed = time().seconds;
    drop(set);
    shared.news.wake();
    Ok(0)
}

/// Tells about one value.
fn of_one(thread: &Thread, shared: &Shared, which: u32, number: usize) -> Answer {
    let known = [command::PID, command::GET, command::WAIT_MORE, command::WAIT_ZERO];
    if !known.contains(&which) {
        return Err(Errno::EINVAL.into());
    }
    let set = shared.set.lock();
    set.check(&thread.process().may(), 4)?;
    let number = number as u32 as usize;
    let value = set.values.get(number).ok_or(Errno::EINVAL)?;
    Ok(match which {
        command::PID => value.changer as usize,
        command::GET => value.value as usize,
        _ => set.count_waiting(number, which == command::WAIT_ZERO),
    })
}

/// Writes a `seminfo`: the limits, or instead of two of them what there is.
fn limits(which: u32, place: usize) -> Answer {
    let (sets, values, last) = semaphores::totals();
    let (most, top) = (VALUES_MOST as i32, VALUE_MOST);
    let (used, total) = if which == command::TOTALS { (sets, values) } else { (20, 32_767) };
    let all = VALUES_MOST as i32 * SETS_MOST as i32;
    let shown = [
        all,
        SETS_MOST as i32,
        all,
        all,
        most,
        OPERATIONS_MOST as i32,
        OPERATIONS_MOST as i32,
        used as i32,
        top,
        total as i32,
    ];
    user::write(place as u64, &shown)?;
    Ok(last as usize)
}

/// The words of a `semid64_ds` behind the times: on x86-64, each time has a spare word.
const SPARE: usize = if cfg!(target_arch = "x86_64") { 1 } else { 0 };

/// A `semid64_ds`. It is written to the program without the set's lock: that may fault.
fn stat(set: &Set) -> [u64; 11 + 2 * SPARE] {
    let sequence = set.id >> 15;
    let ids =
        [set.key as u32, set.uid, set.gid, set.creator_uid, set.creator_gid, set.mode, sequence, 0];
    let mut words = [0; 11 + 2 * SPARE];
    for (word, two) in words.iter_mut().zip(ids.chunks_exact(2)) {
        *word = u64::from(two[0]) | u64::from(two[1]) << 32;
    }
    words[6] = set.operated as u64;
    words[7 + SPARE] = set.changed as u64;
    words[8 + 2 * SPARE] = set.values.len() as u64;
    words
}
