//! Timers: each runs out at an hour, once or again and again, and then sends a signal or wakes the
//! threads that wait for it.
//!
//! ```text
//!   set ──► ARMED, by hour ──strike──► fires: counts, sends, and is armed again for its period
//! ```
//!
//! A timer lives as long as its owner: a process, or an open file. The list only refers to it, and
//! drops what is gone when its hour comes. The CPU that arms a timer looks again within a slice.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};

use quire_linux::signal::{Detail, Info, Signal};
use quire_linux::{Result, Waiters, Wake};
use spin::mutex::SpinMutex;

use super::{Process, Task, send};
use crate::isa;

/// The receiver of a timer's news.
pub(crate) enum Target {
    /// Only those that wait for it.
    Waiters,
    /// A process.
    Process(Weak<Process>, Info),
    /// A thread.
    Task(Weak<Task>, Info),
}

/// A timer.
pub(crate) struct Timer {
    number: u64,
    target: Target,
    state: SpinMutex<State>,
    waiters: Waiters,
}

#[derive(Default)]
struct State {
    /// When it runs out next, in nanoseconds since boot.
    next: Option<u64>,
    /// How long after that it does so again; 0: never.
    period: u64,
    /// How often it ran out since that was last taken.
    count: u64,
}

static ARMED: SpinMutex<BTreeMap<(u64, u64), Weak<Timer>>> = SpinMutex::new(BTreeMap::new());

impl Timer {
    /// A timer that does not run.
    pub(crate) fn new(target: Target) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let (state, waiters) = (SpinMutex::new(State::default()), Waiters::new());
        Arc::new(Self { number, target, state, waiters })
    }

    /// Lets it run out at `next`, and again each `period` nanoseconds after that. Returns the time
    /// that was left before, and the period.
    pub(crate) fn set(self: &Arc<Self>, next: Option<u64>, period: u64) -> [u64; 2] {
        let before = self.left();
        let mut state = self.state.lock();
        let old = core::mem::replace(&mut *state, State { next, period, count: 0 }).next;
        let mut armed = ARMED.lock();
        if let Some(hour) = old {
            armed.remove(&(hour, self.number));
        }
        if let Some(hour) = next {
            armed.insert((hour, self.number), Arc::downgrade(self));
        }
        before
    }

    /// Nanoseconds until it runs out, 0 when it does not run; and its period.
    pub(crate) fn left(&self) -> [u64; 2] {
        let state = self.state.lock();
        // A timer that runs never shows 0.
        let left = state.next.map_or(0, |next| next.saturating_sub(isa::now()).max(1));
        [left, state.period]
    }

    /// How often it ran out since the last call.
    pub(crate) fn take(&self) -> u64 {
        core::mem::take(&mut self.state.lock().count)
    }

    /// The same, and the count stays.
    pub(crate) fn count(&self) -> u64 {
        self.state.lock().count
    }

    /// Registers a waiter for the next time it runs out.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(crate) fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()> {
        self.waiters.add(who)
    }

    /// Its hour has come, unless it was set anew meanwhile.
    fn fire(self: &Arc<Self>, now: u64) {
        let times = {
            let mut state = self.state.lock();
            let Some(hour) = state.next.filter(|hour| *hour <= now) else { return };
            let times = 1 + (now - hour).checked_div(state.period).unwrap_or(0);
            state.next = (state.period != 0).then(|| hour + times * state.period);
            match self.target {
                Target::Waiters => state.count += times,
                _ => state.count = times,
            }
            if let Some(hour) = state.next {
                ARMED.lock().insert((hour, self.number), Arc::downgrade(self));
            }
            times
        };
        self.waiters.wake();
        self.tell(times);
    }

    /// Sends its signal. A queue that is full loses it, as on Linux.
    fn tell(&self, times: u64) {
        let with = |info: &Info| match info.detail {
            Detail::Timer { id, value, .. } => {
                let overrun = i32::try_from(times - 1).unwrap_or(i32::MAX);
                Info { detail: Detail::Timer { id, overrun, value }, ..*info }
            }
            _ => *info,
        };
        let _ = match &self.target {
            Target::Waiters => Ok(()),
            Target::Process(process, info) => {
                process.upgrade().map_or(Ok(()), |process| send::to_process(&process, with(info)))
            }
            Target::Task(task, info) => {
                task.upgrade().map_or(Ok(()), |task| send::to_task(&task, with(info)))
            }
        };
    }
}

/// Fires the timers whose hour has come; the next hour.
pub(crate) fn strike(now: u64) -> Option<u64> {
    loop {
        let timer = {
            let mut armed = ARMED.lock();
            let (&(hour, _), _) = armed.first_key_value()?;
            if hour > now {
                return Some(hour);
            }
            armed.pop_first()?.1
        };
        if let Some(timer) = timer.upgrade() {
            timer.fire(now);
        }
    }
}

/// A process's own timers.
#[derive(Default)]
pub(crate) struct Timers {
    /// Those of `timer_create`.
    pub(crate) made: BTreeMap<i32, Arc<Timer>>,
    /// The number of the next one.
    pub(crate) next: i32,
    /// The one of `alarm` and `setitimer`, once it was set.
    pub(crate) real: Option<Arc<Timer>>,
}

/// The two timers that go by the time for which a process runs: when they run out, and the period.
/// The program's own time and the kernel's are not told apart.
#[derive(Default)]
pub(crate) struct RunTimers(SpinMutex<[[u64; 2]; 2]>);

/// The signals that these send.
const RUN_SIGNALS: [Signal; 2] = [Signal::VTALRM, Signal::PROF];

impl RunTimers {
    /// Sets one of them; what was left before, and the period.
    pub(crate) fn set(&self, which: usize, new: Option<[u64; 2]>, ran: u64) -> [u64; 2] {
        let mut both = self.0.lock();
        let one = &mut both[which];
        let left = if one[0] == 0 { 0 } else { one[0].saturating_sub(ran).max(1) };
        let before = [left, one[1]];
        if let Some([first, period]) = new {
            *one = [if first == 0 { 0 } else { ran + first }, period];
        }
        before
    }
}

/// A process has run for `ran` nanoseconds: sends the signals of its timers that have run out.
pub(crate) fn check_ran(process: &Arc<Process>, ran: u64) {
    for (which, signal) in RUN_SIGNALS.into_iter().enumerate() {
        let is_over = {
            let mut both = process.run_timers.0.lock();
            let [next, period] = &mut both[which];
            let is_over = *next != 0 && *next <= ran;
            if is_over {
                *next = if *period == 0 { 0 } else { ran + *period };
            }
            is_over
        };
        if is_over {
            let _ = send::to_process(process, Info::kernel(signal));
        }
    }
}
