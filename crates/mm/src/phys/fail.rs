//! Allocations that fail on request, so that tests reach every path that handles a failure.

use crate::sync::{AtomicU64, Ordering};

/// The allocations that fail although there is memory, counted from 1 when the plan is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailPlan {
    /// None.
    Never,
    /// The n-th fails; then the plan is over and becomes [`Never`](Self::Never).
    Nth(u64),
    /// The n-th and all later ones fail.
    From(u64),
}

/// The number of allocations up to the one that fails, 0 for `Never`; bit 63 means `From`.
pub(super) struct Plan(AtomicU64);

const FROM: u64 = 1 << 63;

impl Plan {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(super) fn set(&self, plan: FailPlan) {
        let word = match plan {
            FailPlan::Never => 0,
            FailPlan::Nth(n) => n.clamp(1, FROM - 1),
            FailPlan::From(n) => n.clamp(1, FROM - 1) | FROM,
        };
        self.0.store(word, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> FailPlan {
        match self.0.load(Ordering::Relaxed) {
            0 => FailPlan::Never,
            word if word & FROM != 0 => FailPlan::From(word & !FROM),
            word => FailPlan::Nth(word),
        }
    }

    /// Whether there is a plan: the only cost on the fast path.
    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Counts one allocation and returns whether it must fail.
    #[inline]
    pub(super) fn strikes(&self) -> bool {
        self.is_set() && self.count()
    }

    #[cold]
    fn count(&self) -> bool {
        let step = |word: u64| match word & !FROM {
            0 => None,
            1 if word & FROM != 0 => Some(word),
            _ => Some(word - 1),
        };
        let counted = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        counted.is_ok_and(|word| word & !FROM == 1)
    }
}
