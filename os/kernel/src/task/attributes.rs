//! Facts that a process states about itself (`prctl` and its kin). Relaxed: no other state depends
//! on them.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

/// The attributes of a process.
pub(crate) struct Attributes {
    /// Others may look into it, and it may leave a dump: 0 or 1.
    pub(crate) dumpable: AtomicU32,
    /// The signal that it gets when its parent ends; 0 is none.
    pub(crate) death_signal: AtomicU32,
    /// Programs that it runs get no more rights than it has.
    pub(crate) gains_nothing: AtomicBool,
    /// It adopts the orphans among its descendants.
    pub(crate) is_reaper: AtomicBool,
    /// By how many nanoseconds its waits may be late.
    pub(crate) slack_ns: AtomicU64,
    /// Its priority, -20 to 19.
    pub(crate) nice: AtomicI32,
    /// The kind of system that it wants to see.
    pub(crate) personality: AtomicU32,
}

impl Attributes {
    /// Those of the first process.
    pub(crate) const fn new() -> Self {
        Self {
            dumpable: AtomicU32::new(1),
            death_signal: AtomicU32::new(0),
            gains_nothing: AtomicBool::new(false),
            is_reaper: AtomicBool::new(false),
            slack_ns: AtomicU64::new(50_000),
            nice: AtomicI32::new(0),
            personality: AtomicU32::new(0),
        }
    }

    /// Those that a child inherits.
    pub(crate) fn copy(&self) -> Self {
        let order = Ordering::Relaxed;
        Self {
            dumpable: AtomicU32::new(self.dumpable.load(order)),
            gains_nothing: AtomicBool::new(self.gains_nothing.load(order)),
            slack_ns: AtomicU64::new(self.slack_ns.load(order)),
            nice: AtomicI32::new(self.nice.load(order)),
            personality: AtomicU32::new(self.personality.load(order)),
            ..Self::new()
        }
    }
}
