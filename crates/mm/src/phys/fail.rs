//! Allocations that fail on request, so that tests reach every path that handles a failure.

use quire_units::Order;

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
    /// Large blocks are rare, as on a machine that has run for long. A block of order n fails
    /// unless n draws succeed, each of which fails `chance` times in 65,536. Base pages never fail.
    Scarce {
        /// Of 65,536 draws, how many fail.
        chance: u16,
        /// The same seed fails the same allocations. Its lowest 46 bits count.
        seed: u64,
    },
}

/// The number of allocations up to the one that fails, 0 for `Never`; bit 63 means `From`. With
/// bit 62, `Scarce`: the chance above [`SEED`], and below it the state of a generator.
pub(super) struct Plan(AtomicU64);

const FROM: u64 = 1 << 63;
const SCARCE: u64 = 1 << 62;
/// The most allocations that a plan counts.
const MOST: u64 = SCARCE - 1;
const SEED: u32 = 46;
const STATE: u64 = (1 << SEED) - 1;

impl Plan {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(super) fn set(&self, plan: FailPlan) {
        let word = match plan {
            FailPlan::Never => 0,
            FailPlan::Nth(n) => n.clamp(1, MOST),
            FailPlan::From(n) => n.clamp(1, MOST) | FROM,
            FailPlan::Scarce { chance, seed } => SCARCE | u64::from(chance) << SEED | seed & STATE,
        };
        self.0.store(word, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> FailPlan {
        match self.0.load(Ordering::Relaxed) {
            0 => FailPlan::Never,
            word if word & SCARCE != 0 => {
                FailPlan::Scarce { chance: (word >> SEED) as u16, seed: word & STATE }
            }
            word if word & FROM != 0 => FailPlan::From(word & !FROM),
            word => FailPlan::Nth(word),
        }
    }

    /// Whether there is a plan: the only cost on the fast path.
    #[inline]
    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Counts one allocation of `order` and returns whether it must fail.
    #[inline]
    pub(super) fn strikes(&self, order: Order) -> bool {
        self.is_set() && self.count(order)
    }

    #[cold]
    fn count(&self, order: Order) -> bool {
        let step = |word| Some(after(word, order).0);
        let counted = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        counted.is_ok_and(|word| after(word, order).1)
    }
}

/// The plan after an allocation of `order`, and whether that fails.
fn after(word: u64, order: Order) -> (u64, bool) {
    match word & !FROM {
        0 => (word, false),
        _ if word & SCARCE != 0 => draw(word, order),
        1 if word & FROM != 0 => (word, true),
        left => (word - 1, left == 1),
    }
}

/// One draw for each doubling of a page, from a linear congruential generator's upper bits.
fn draw(word: u64, order: Order) -> (u64, bool) {
    let (mut state, mut fails) = (word & STATE, false);
    for _ in 0..order.get() {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1) & STATE;
        fails |= state >> (SEED - 16) < word >> SEED & 0xffff;
    }
    (word & !STATE | state, fails)
}
