//! The machine's clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// How time passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// Each reading of the clock takes this many nanoseconds, and nothing else does, so that a run
    /// is repeated exactly by the same sequence of calls. More passes on
    /// [`advance`](Clock::advance).
    Stepped(u64),
    /// The host's monotonic clock.
    Host,
}

/// A clock that never goes back.
#[derive(Debug)]
pub struct Clock {
    time: Time,
    start: Instant,
    elapsed: AtomicU64,
}

impl Clock {
    pub(crate) fn new(time: Time) -> Self {
        Self { time, start: Instant::now(), elapsed: AtomicU64::new(0) }
    }

    /// Nanoseconds since the machine was made, and those it was advanced by.
    pub fn now(&self) -> u64 {
        match self.time {
            Time::Stepped(step) => self.elapsed.fetch_add(step, Ordering::Relaxed) + step,
            Time::Host => {
                let host = self.start.elapsed().as_nanos() as u64;
                host + self.elapsed.load(Ordering::Relaxed)
            }
        }
    }

    /// Lets `nanoseconds` pass at once.
    pub fn advance(&self, nanoseconds: u64) {
        self.elapsed.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::{Clock, Time};

    #[test]
    fn stepped_time_is_repeatable_and_advances() {
        let clock = Clock::new(Time::Stepped(10));
        assert_eq!((clock.now(), clock.now()), (10, 20));
        clock.advance(1000);
        assert_eq!(clock.now(), 1030);
    }

    #[test]
    fn host_time_never_goes_back() {
        let clock = Clock::new(Time::Host);
        let first = clock.now();
        assert!(clock.now() >= first);
    }
}
