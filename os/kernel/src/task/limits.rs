//! The limits of a process (`RLIMIT_*`): a soft and a hard value of each.

use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general as abi;
use quire_linux::files::{LIMIT, LIMIT_MAX};

/// No limit.
pub(crate) const FREE: u64 = u64::MAX;

const COUNT: usize = abi::RLIM_NLIMITS as usize;

/// All limits, by number. Relaxed: no other state depends on them.
pub(crate) struct Limits([[AtomicU64; 2]; COUNT]);

impl Limits {
    /// Those of the first process.
    pub(crate) fn new() -> Self {
        let limits = Self([const { [AtomicU64::new(FREE), AtomicU64::new(FREE)] }; COUNT]);
        let ids = u64::from(super::IDS_MAX);
        for (what, both) in [
            (abi::RLIMIT_STACK, [8 << 20, FREE]),
            (abi::RLIMIT_CORE, [0, FREE]),
            (abi::RLIMIT_NPROC, [ids, ids]),
            (abi::RLIMIT_NOFILE, [LIMIT.into(), LIMIT_MAX.into()]),
            (abi::RLIMIT_MEMLOCK, [8 << 20, 8 << 20]),
            (abi::RLIMIT_SIGPENDING, [1024, 1024]),
            (abi::RLIMIT_MSGQUEUE, [819_200, 819_200]),
            (abi::RLIMIT_NICE, [0, 0]),
            (abi::RLIMIT_RTPRIO, [0, 0]),
        ] {
            limits.set(what, both);
        }
        limits
    }

    /// A copy, for a child.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::new();
        (0..abi::RLIM_NLIMITS).for_each(|what| copy.set(what, self.get(what)));
        copy
    }

    /// Both values of a limit.
    ///
    /// # Panics
    /// When there is no such limit.
    pub(crate) fn get(&self, what: u32) -> [u64; 2] {
        [0, 1].map(|at| self.0[what as usize][at].load(Ordering::Relaxed))
    }

    /// The value that counts.
    ///
    /// # Panics
    /// When there is no such limit.
    pub(crate) fn soft(&self, what: u32) -> u64 {
        self.0[what as usize][0].load(Ordering::Relaxed)
    }

    /// Sets both.
    ///
    /// # Panics
    /// When there is no such limit.
    pub(crate) fn set(&self, what: u32, both: [u64; 2]) {
        for (place, value) in self.0[what as usize].iter().zip(both) {
            place.store(value, Ordering::Relaxed);
        }
    }
}
