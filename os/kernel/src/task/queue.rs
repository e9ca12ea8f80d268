//! The run queue, and the parked threads.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::sync::atomic::{AtomicU32, Ordering};

use quire::units::CpuId;
use spin::mutex::SpinMutex;

use super::Thread;
use super::thread::EVERYWHERE;
use crate::isa;

/// How long a thread runs while others are ready: 10 ms.
pub(crate) const SLICE: u64 = 10_000_000;

static READY: SpinMutex<VecDeque<Box<Thread>>> = SpinMutex::new(VecDeque::new());
/// A bit for each CPU on which one of these may run, to ask without the lock.
static WANTED: AtomicU32 = AtomicU32::new(0);
/// A bit for each CPU that has nothing to do.
static IDLE: AtomicU32 = AtomicU32::new(0);

static PARKED: SpinMutex<Parked> =
    SpinMutex::new(Parked { threads: BTreeMap::new(), hours: BTreeSet::new() });

struct Parked {
    /// By tid, with the time at which it gives up.
    threads: BTreeMap<u32, (Box<Thread>, Option<u64>)>,
    /// Those times, ascending.
    hours: BTreeSet<(u64, u32)>,
}

impl Parked {
    fn take(&mut self, tid: u32) -> Option<Box<Thread>> {
        let (thread, hour) = self.threads.remove(&tid)?;
        if let Some(hour) = hour {
            self.hours.remove(&(hour, tid));
        }
        Some(thread)
    }
}

/// Puts a thread at the end of those that are ready, and wakes a CPU that has nothing to do and may
/// run it.
pub(crate) fn ready(thread: Box<Thread>) {
    let cpus = thread.task.cpus();
    {
        let mut queue = READY.lock();
        queue.push_back(thread);
        WANTED.fetch_or(cpus, Ordering::SeqCst);
    }
    wake_one(cpus);
}

/// The thread that has been ready longest of those that may run on this CPU; from now on this CPU
/// owns it.
pub(crate) fn next() -> Option<Box<Thread>> {
    if !is_ready() {
        return None;
    }
    let own = 1 << isa::cpu().index();
    let mut queue = READY.lock();
    let at = queue.iter().position(|thread| thread.task.cpus() & own != 0);
    let thread = at.and_then(|at| queue.remove(at));
    // Most threads may run anywhere, so the first one is enough.
    let mut wanted = 0;
    for thread in &*queue {
        wanted |= thread.task.cpus();
        if wanted == EVERYWHERE {
            break;
        }
    }
    WANTED.store(wanted, Ordering::SeqCst);
    thread
}

/// Whether a thread is ready that may run on this CPU.
#[inline]
pub(crate) fn is_ready() -> bool {
    WANTED.load(Ordering::SeqCst) & 1 << isa::cpu().index() != 0
}

/// A thread may run on `cpus` from now on; it may be ready already.
pub(super) fn look_again(cpus: u32) {
    WANTED.fetch_or(cpus, Ordering::SeqCst);
    wake_one(cpus);
}

/// Wakes one of `cpus` that has nothing to do, if there is one; whether there was.
fn wake_one(cpus: u32) -> bool {
    let idle = IDLE.load(Ordering::SeqCst) & cpus & !(1 << isa::cpu().index());
    if idle != 0 {
        isa::interrupt(CpuId::new(idle.trailing_zeros() as usize));
    }
    idle != 0
}

/// Parks a thread until it is woken, or until `hour`. If it was woken since its call began, it is
/// ready at once.
pub(crate) fn park(thread: Box<Thread>, hour: Option<u64>) {
    let tid = thread.task.tid;
    let mut parked = PARKED.lock();
    if thread.task.take_token() {
        drop(parked);
        return ready(thread);
    }
    if let Some(hour) = hour {
        parked.hours.insert((hour, tid));
    }
    parked.threads.insert(tid, (thread, hour));
}

/// Makes a parked thread ready; nothing when it is not parked.
pub(super) fn unpark(tid: u32) {
    let thread = PARKED.lock().take(tid);
    if let Some(thread) = thread {
        ready(thread);
    }
}

/// Makes the threads ready whose time has come; the next such time.
pub(crate) fn strike(now: u64) -> Option<u64> {
    loop {
        let mut parked = PARKED.lock();
        let &(hour, tid) = parked.hours.first()?;
        if hour > now {
            return Some(hour);
        }
        let thread = parked.take(tid);
        drop(parked);
        if let Some(thread) = thread {
            ready(thread);
        }
    }
}

/// Wakes a CPU that has nothing to do, if there is one; whether there was.
pub(crate) fn nudge() -> bool {
    wake_one(EVERYWHERE)
}

/// Sleeps until something happens, or until `hour`, unless a thread is ready.
pub(crate) fn idle(hour: Option<u64>) {
    let own = 1 << isa::cpu().index();
    isa::alarm(strike(isa::now()).into_iter().chain(hour).min());
    IDLE.fetch_or(own, Ordering::SeqCst);
    isa::idle(&is_ready);
    IDLE.fetch_and(!own, Ordering::SeqCst);
}

/// Whether a thread is parked, for `/proc`.
pub(crate) fn is_parked(tid: u32) -> bool {
    PARKED.lock().threads.contains_key(&tid)
}

/// Whether a thread is parked and no signal but the last wakes it.
pub(crate) fn is_deaf(tid: u32) -> bool {
    PARKED.lock().threads.get(&tid).is_some_and(|(thread, _)| thread.reads)
}
