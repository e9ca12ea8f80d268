//! Signals that were sent and not yet taken.
//!
//! A standard signal is pending at most once, with its first information. Real-time signals queue.
//! Lack of memory loses the information, never the signal.

use alloc::collections::VecDeque;

use super::{Info, Set, Signal, code};
use crate::{Errno, Result};

/// The signals that one thread, or one process, has pending.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Which; each has none, one or more entries in `queue`.
    set: Set,
    /// The information about them, in the order they came.
    queue: VecDeque<Info>,
    /// The most entries that `queue` may have before real-time signals are refused.
    limit: usize,
}

impl Pending {
    /// None; at most `limit` real-time signals will wait at a time (`RLIMIT_SIGPENDING`).
    pub const fn new(limit: usize) -> Self {
        Self { set: Set::EMPTY, queue: VecDeque::new(), limit }
    }

    /// Which signals there are.
    pub const fn set(&self) -> Set {
        self.set
    }

    /// Adds a signal; returns whether it is new. A standard signal that is pending already is not.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when it is a real-time signal that came with a word (that is, not by
    /// `kill`), and there are too many, or no memory.
    pub fn add(&mut self, info: Info) -> Result<bool> {
        let signal = info.signal;
        if self.set.has(signal) && !signal.is_real_time() {
            return Ok(false);
        }
        let has_room = !signal.is_real_time() || self.queue.len() < self.limit;
        if has_room && self.queue.try_reserve(1).is_ok() {
            self.queue.push_back(info);
        } else if signal.is_real_time() && info.code != code::USER {
            return Err(Errno::EAGAIN);
        }
        self.set = self.set.with(signal);
        Ok(true)
    }

    /// Takes the one that is to be taken first of those not in `blocked`.
    pub fn take(&mut self, blocked: Set) -> Option<Info> {
        let signal = self.set.and_not(blocked).most_urgent()?;
        Some(self.take_one(signal))
    }

    /// Forgets all of these signals: they are ignored now, or SIGCONT and SIGSTOP undo each other.
    pub fn forget(&mut self, signals: Set) {
        self.set = self.set.and_not(signals);
        self.queue.retain(|info| !signals.has(info.signal));
    }

    /// Takes the first of `signal`, which is pending.
    fn take_one(&mut self, signal: Signal) -> Info {
        let of_signal = |info: &Info| info.signal == signal;
        let found = self.queue.iter().position(of_signal).and_then(|at| self.queue.remove(at));
        if !self.queue.iter().any(of_signal) {
            self.set = self.set.without(signal);
        }
        // There was no memory for the information: Linux returns the same then.
        found.unwrap_or(Info::kill(signal, 0, 0))
    }
}

/// Takes the signal that a thread must answer first, if there is one: SIGKILL before all, then
/// the thread's own before those of its process. Of each the synchronous ones come first, then
/// the lowest number.
pub fn next(thread: &mut Pending, process: &mut Pending, blocked: Set) -> Option<Info> {
    let all_but_kill = Set(!Set::of(Signal::KILL).0);
    let blocked = blocked.blockable();
    thread
        .take(all_but_kill)
        .or_else(|| process.take(all_but_kill))
        .or_else(|| thread.take(blocked))
        .or_else(|| process.take(blocked))
}
