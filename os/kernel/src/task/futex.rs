//! Waiting for a word of memory to change.
//!
//! A waiter is in a queue under the word's key: its address with the space, or, where memory is
//! shared between spaces, its physical address. The word is looked at with the queue's lock held,
//! and a thread that changes it calls `wake` afterwards; so no wake is missed.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use quire_linux::{Errno, Result, Wake};
use spin::mutex::SpinMutex;

use super::Task;
use crate::memory::{self, user};

/// A word: a number of its space, or 0, and an address in that, or a physical one.
pub(crate) type Key = (usize, u64);

/// A waiter.
pub(crate) struct Sleeper {
    task: Arc<Task>,
    key: SpinMutex<Key>,
    /// Only wakes with one of these bits count.
    bits: u32,
    woken: AtomicBool,
}

static QUEUES: SpinMutex<BTreeMap<Key, VecDeque<Arc<Sleeper>>>> = SpinMutex::new(BTreeMap::new());

/// The key of a word in the current space. `private`: no other space shares it.
///
/// # Errors
/// `EINVAL` when it is not aligned, `EFAULT` when it is not there.
pub(crate) fn key(address: u64, private: bool) -> Result<Key> {
    if !address.is_multiple_of(4) {
        return Err(Errno::EINVAL);
    }
    let memory = memory::current().ok_or(Errno::EFAULT)?;
    if !private && memory.is_shared(address) {
        return Ok((0, memory.physical(address)?));
    }
    Ok((Arc::as_ptr(&memory).addr(), address))
}

/// Begins to wait at `key`, if the word at `address` is `expected`.
///
/// # Errors
/// `EAGAIN` when it is another; `EFAULT`.
pub(crate) fn begin(
    task: &Arc<Task>,
    key: Key,
    address: u64,
    expected: u32,
    bits: u32,
) -> Result<Arc<Sleeper>> {
    // Brings the page in, so that looking at it again with the lock held is short.
    user::read::<u32>(address)?;
    let sleeper = Arc::new(Sleeper {
        task: task.clone(),
        key: SpinMutex::new(key),
        bits,
        woken: AtomicBool::new(false),
    });
    let mut queues = QUEUES.lock();
    if user::read::<u32>(address)? != expected {
        return Err(Errno::EAGAIN);
    }
    let queue = queues.entry(key).or_default();
    queue.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    queue.push_back(sleeper.clone());
    Ok(sleeper)
}

impl Sleeper {
    /// Whether it was woken.
    pub(crate) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }

    /// Waits no longer. Whether it had been woken before.
    pub(crate) fn leave(self: &Arc<Self>) -> bool {
        let mut queues = QUEUES.lock();
        let key = *self.key.lock();
        if let Some(queue) = queues.get_mut(&key) {
            queue.retain(|other| !Arc::ptr_eq(other, self));
            if queue.is_empty() {
                queues.remove(&key);
            }
        }
        self.is_woken()
    }
}

/// Waits no longer for any of these; the first that had been woken.
pub(crate) fn leave_all(sleepers: &[Arc<Sleeper>]) -> Option<usize> {
    let mut woken = None;
    for (at, sleeper) in sleepers.iter().enumerate() {
        if sleeper.leave() && woken.is_none() {
            woken = Some(at);
        }
    }
    woken
}

/// Wakes up to `most` waiters at `key` for one of `bits`; how many.
pub(crate) fn wake(key: Key, most: usize, bits: u32) -> usize {
    let mut count = 0;
    loop {
        let mut queues = QUEUES.lock();
        let Some(queue) = queues.get_mut(&key) else { return count };
        let found = queue.iter().position(|sleeper| sleeper.bits & bits != 0);
        let sleeper = match found.filter(|_| count < most) {
            Some(at) => queue.remove(at),
            None => return count,
        };
        if queue.is_empty() {
            queues.remove(&key);
        }
        drop(queues);
        if let Some(sleeper) = sleeper {
            sleeper.woken.store(true, Ordering::Release);
            sleeper.task.wake();
            count += 1;
        }
    }
}

/// Wakes up to `most` at a word of the current space that is its own.
pub(crate) fn wake_private(address: u64, most: usize) {
    if let Ok(key) = key(address, true) {
        wake(key, most, u32::MAX);
    }
}

/// Wakes up to `wakes` at `from`, and makes up to `moves` of the rest wait at `to`; how many in
/// all. `check`: the word at `from`'s address must be this (`FUTEX_CMP_REQUEUE`).
///
/// # Errors
/// `EAGAIN` when the word is another; `EFAULT`.
pub(crate) fn requeue(
    from: Key,
    to: Key,
    wakes: usize,
    moves: usize,
    check: Option<(u64, u32)>,
) -> Result<usize> {
    if let Some((address, expected)) = check
        && user::read::<u32>(address)? != expected
    {
        return Err(Errno::EAGAIN);
    }
    let woken = wake(from, wakes, u32::MAX);
    let mut queues = QUEUES.lock();
    let Some(mut queue) = queues.remove(&from) else { return Ok(woken) };
    let rest = queue.split_off(moves.min(queue.len()));
    let moved = queue.len();
    if from == to {
        queue.extend(rest);
        queues.insert(to, queue);
        return Ok(woken + moved);
    }
    queue.iter().for_each(|sleeper| *sleeper.key.lock() = to);
    queues.entry(to).or_default().append(&mut queue);
    if !rest.is_empty() {
        queues.insert(from, rest);
    }
    Ok(woken + moved)
}

/// The most locks that the end of a thread gives up: a list may be a circle.
const ROBUST_MOST: usize = 2048;

/// Bits of the word of a lock: its owner's number, and that this has ended. (A third one says that
/// threads wait.)
const OWNER: u32 = 0x3fff_ffff;
const OWNER_DIED: u32 = 0x4000_0000;

/// Gives up the locks of a thread that ends: the next owner learns that it must set things right.
/// The list is the program's own; where it leads nowhere, the rest is left.
pub(super) fn give_up(task: &Task) {
    let head = task.robust.swap(0, Ordering::Relaxed);
    let Ok([first, offset, pending]) = user::read::<[u64; 3]>(head) else { return };
    let mut next = first & !1;
    for _ in 0..ROBUST_MOST {
        if next == head || next == 0 {
            break;
        }
        let entry = next;
        // The link first: the next owner may change it.
        let link = user::read::<u64>(entry);
        if entry != pending & !1 {
            give_up_one(task, entry.wrapping_add(offset));
        }
        match link {
            Ok(link) => next = link & !1,
            Err(_) => break,
        }
    }
    if pending & !1 != 0 {
        give_up_one(task, (pending & !1).wrapping_add(offset));
    }
}

/// Marks one lock, if it is the thread's. One waiter is woken in any case: it may have said just
/// now that it waits.
fn give_up_one(task: &Task, address: u64) {
    let Ok(word) = user::read::<u32>(address) else { return };
    if word & OWNER != task.tid || user::write(address, &(word & !OWNER | OWNER_DIED)).is_err() {
        return;
    }
    for private in [false, true] {
        if let Ok(key) = key(address, private) {
            wake(key, 1, u32::MAX);
        }
    }
}
