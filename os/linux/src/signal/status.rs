//! The status of a process, as `wait4` and `waitid` report it, and its resource usage.
//!
//! ```text
//!   bits   15 ......... 8  7     6 ...... 0
//!          ┌─────────────┬──────┬──────────┐
//!   exited │ status      │ 0    │ 0        │
//!   killed │ 0           │ core │ signal   │
//!   stopped│ signal      │ 0    │ 0x7f     │
//!   goes on│ 0xff        │ 1    │ 0x7f     │
//!          └─────────────┴──────┴──────────┘
//! ```

use super::bytes::put_u64;
use super::{Detail, Info, Signal, code};

/// Bytes of `struct rusage`.
pub const USAGE_BYTES: usize = 144;

/// The status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It ended by itself, with this status.
    Exited(u8),
    /// A signal ended it.
    Killed {
        /// Which.
        signal: Signal,
        /// Whether it left a core dump.
        core: bool,
    },
    /// A signal stopped it.
    Stopped(Signal),
    /// It goes on.
    Continued,
}

impl Status {
    /// The word that `wait4` writes.
    pub const fn word(self) -> u32 {
        match self {
            Self::Exited(status) => (status as u32) << 8,
            Self::Killed { signal, core } => signal.number() as u32 | (core as u32) << 7,
            Self::Stopped(signal) => (signal.number() as u32) << 8 | 0x7f,
            Self::Continued => 0xffff,
        }
    }

    /// `si_code`, as in SIGCHLD and `waitid`.
    pub const fn code(self) -> i32 {
        match self {
            Self::Exited(_) => code::CHILD_EXITED,
            Self::Killed { core: false, .. } => code::CHILD_KILLED,
            Self::Killed { core: true, .. } => code::CHILD_DUMPED,
            Self::Stopped(_) => code::CHILD_STOPPED,
            Self::Continued => code::CHILD_CONTINUED,
        }
    }

    /// `si_status`: the exit status or the signal.
    pub const fn number(self) -> i32 {
        match self {
            Self::Exited(status) => status as i32,
            Self::Killed { signal, .. } | Self::Stopped(signal) => signal.number() as i32,
            Self::Continued => Signal::CONT.number() as i32,
        }
    }

    /// The SIGCHLD for the parent, and the answer of `waitid` about child `pid` of user `uid`. Only
    /// SIGCHLD has the times, which are taken from `usage`; `waitid` wants a [`Usage::default`].
    pub const fn info(self, pid: i32, uid: u32, usage: &Usage) -> Info {
        let detail = Detail::Child {
            pid,
            uid,
            status: self.number(),
            user_ticks: (usage.user_ns / NS_PER_TICK) as i64,
            system_ticks: (usage.system_ns / NS_PER_TICK) as i64,
        };
        Info::new(Signal::CHLD, self.code(), detail)
    }
}

/// Nanoseconds of a tick, the unit of times for programs: 100 ticks are a second.
pub const NS_PER_TICK: u64 = 10_000_000;

/// The resource usage of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Nanoseconds that it ran.
    pub user_ns: u64,
    /// Nanoseconds that the kernel ran for it.
    pub system_ns: u64,
    /// The most memory that it had at a time, in units of 1024 bytes.
    pub resident_kib_max: u64,
    /// Faults that needed no device.
    pub minor_faults: u64,
    /// Faults that did.
    pub major_faults: u64,
    /// Voluntary context switches.
    pub waits: u64,
    /// Involuntary context switches.
    pub preemptions: u64,
}

impl Usage {
    /// The sum of both.
    #[must_use]
    pub const fn and(&self, other: &Self) -> Self {
        let peak = if self.resident_kib_max > other.resident_kib_max { self } else { other };
        Self {
            user_ns: self.user_ns.saturating_add(other.user_ns),
            system_ns: self.system_ns.saturating_add(other.system_ns),
            resident_kib_max: peak.resident_kib_max,
            minor_faults: self.minor_faults.saturating_add(other.minor_faults),
            major_faults: self.major_faults.saturating_add(other.major_faults),
            waits: self.waits.saturating_add(other.waits),
            preemptions: self.preemptions.saturating_add(other.preemptions),
        }
    }

    /// Its bytes: two times of seconds and microseconds, and 14 numbers, 8 bytes each.
    pub fn encode(&self) -> [u8; USAGE_BYTES] {
        let mut out = [0; USAGE_BYTES];
        for (at, ns) in [(0, self.user_ns), (16, self.system_ns)] {
            put_u64(&mut out, at, ns / 1_000_000_000);
            put_u64(&mut out, at + 8, ns % 1_000_000_000 / 1000);
        }
        put_u64(&mut out, 32, self.resident_kib_max);
        put_u64(&mut out, 64, self.minor_faults);
        put_u64(&mut out, 72, self.major_faults);
        put_u64(&mut out, 128, self.waits);
        put_u64(&mut out, 136, self.preemptions);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_that_the_macros_of_wait_take_apart() {
        assert_eq!(Status::Exited(3).word(), 0x0300);
        assert_eq!(Status::Killed { signal: Signal::KILL, core: false }.word(), 9);
        assert_eq!(Status::Killed { signal: Signal::SEGV, core: true }.word(), 0x8b);
        assert_eq!(Status::Stopped(Signal::TSTP).word(), 0x147f);
        assert_eq!(Status::Continued.word(), 0xffff);
    }

    #[test]
    fn the_parent_gets_the_status_of_the_child() {
        let usage = Usage { user_ns: 25_000_000, system_ns: 9_999_999, ..Usage::default() };
        let child = |status: i32, user_ticks| Detail::Child {
            pid: 7,
            uid: 1,
            status,
            user_ticks,
            system_ticks: 0,
        };
        let core = Status::Killed { signal: Signal::ABRT, core: true };
        for (status, code, number) in [
            (Status::Exited(200), 1, 200),
            (Status::Killed { signal: Signal::TERM, core: false }, 2, 15),
            (core, 3, 6),
            (Status::Stopped(Signal::STOP), 5, 19),
            (Status::Continued, 6, 18),
        ] {
            let expected = Info::new(Signal::CHLD, code, child(number, 2));
            assert_eq!(status.info(7, 1, &usage), expected);
        }
        let waited = core.info(7, 1, &Usage::default());
        assert_eq!(waited.detail, child(6, 0));
    }

    /// Offsets by `offsetof` of `struct rusage`: stime 16, maxrss 32, minflt 64, majflt 72,
    /// nvcsw 128, nivcsw 136.
    #[test]
    fn usage_is_laid_out_as_linux_does() {
        let usage = Usage {
            user_ns: 1_000_002_999,
            system_ns: 3_000_000_000,
            resident_kib_max: 4,
            minor_faults: 5,
            major_faults: 6,
            waits: 7,
            preemptions: 8,
        };
        let bytes = usage.encode();
        let words: std::vec::Vec<u8> = bytes.iter().step_by(8).copied().collect();
        assert_eq!(words, [1, 2, 3, 0, 4, 0, 0, 0, 5, 6, 0, 0, 0, 0, 0, 0, 7, 8]);
        assert_eq!(usage.and(&usage).encode()[0], 2);
        assert_eq!(usage.and(&usage).resident_kib_max, 4);
    }
}
