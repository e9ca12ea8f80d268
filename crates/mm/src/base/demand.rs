//! The folio sizes that faults lack: which of them an embedder is asked to compact memory for.
//!
//! A fault that may try hard for a folio and finds none asks once; if compaction fails, the next
//! requests for that size are deferred, twice as many each time, as on Linux.

use quire_units::Order;

use crate::fault::{Defrag, Policy};
use crate::limits::GROUP_ORDER;
use crate::space::Advice;
use crate::sync::{AtomicU32, Ordering};

/// At most 2^6 requests are deferred after a failure, as on Linux.
const SHIFT_MOST: u32 = 6;

/// The sizes that faults lack.
#[derive(Default)]
pub(crate) struct Demand {
    /// The embedder compacts when a fault asks for it.
    answers: AtomicU32,
    /// Sizes that faults did not get and the background should make, as bits.
    wanted: AtomicU32,
    /// The orders for which compaction failed last, as bits: the smallest such, and all above it.
    failed: AtomicU32,
    /// Requests for it since then, and the base-two logarithm of those that are deferred.
    asked: AtomicU32,
    shift: AtomicU32,
}

crate::sync::names!([] Demand, "base.demand" { answers, wanted, failed, asked, shift });

impl Demand {
    /// Whether the embedder compacts when a fault asks for it.
    pub(crate) fn set_answers(&self, answers: bool) {
        self.answers.store(answers.into(), Ordering::Relaxed);
    }

    /// Whether a fault that lacks a folio of `order` in an area with `advice` should ask for
    /// compaction. If not, but the background may make some, that is noted.
    #[cold]
    pub(crate) fn asks(&self, policy: &Policy, order: Order, advice: Advice) -> bool {
        if self.answers.load(Ordering::Relaxed) == 0 || order == Order::ZERO || order > GROUP_ORDER
        {
            return false;
        }
        if policy.tries_hard(advice) {
            return !self.is_deferred(order);
        }
        if matches!(policy.defrag(), Defrag::Defer | Defrag::DeferMadvise) {
            self.wanted.fetch_or(1 << order.get(), Ordering::Relaxed);
        }
        false
    }

    /// The sizes that were noted since the last call, as bits.
    pub(crate) fn take_wanted(&self) -> u32 {
        self.wanted.swap(0, Ordering::Relaxed)
    }

    /// Whether a request for `order` comes too soon after a failure.
    fn is_deferred(&self, order: Order) -> bool {
        if self.failed.load(Ordering::Relaxed) >> order.get() & 1 == 0 {
            return false;
        }
        let asked = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        asked < 1 << self.shift.load(Ordering::Relaxed)
    }

    /// Records whether compaction made a block of `order`.
    pub(crate) fn answered(&self, order: Order, made: bool) {
        let failed = self.failed.load(Ordering::Relaxed);
        let upward = u32::MAX << order.get();
        match made {
            true if failed >> order.get() & 1 != 0 => {
                self.failed.store(failed & upward << 1, Ordering::Relaxed);
                self.shift.store(0, Ordering::Relaxed);
            }
            true => {}
            false => {
                let shift = self.shift.load(Ordering::Relaxed);
                self.shift.store((shift + 1).min(SHIFT_MOST), Ordering::Relaxed);
                self.failed.store(failed | upward, Ordering::Relaxed);
                self.asked.store(0, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn e7_a_size_that_failed_is_asked_for_half_as_often_each_time() {
        let (policy, demand) = (Policy::new(Order::new(9)), Demand::default());
        let asks = |order: u8| demand.asks(&policy, Order::new(order), Advice::Huge);
        assert!(!asks(9), "no embedder answers yet");
        demand.set_answers(true);
        assert!(asks(9) && asks(9) && !asks(0) && !asks(10));
        for failures in 1..9 {
            demand.answered(Order::new(9), false);
            let asked = (1..200).find(|_| asks(9));
            assert_eq!(asked, Some(1 << u32::min(failures, 6)));
            assert!(asks(4), "smaller sizes did not fail");
        }
        demand.answered(Order::new(9), true);
        assert!(asks(9));
    }

    #[test]
    fn e7_defrag_says_who_asks_and_what_the_background_makes() {
        let (policy, demand) = (Policy::new(Order::new(9)), Demand::default());
        demand.set_answers(true);
        // For each choice: whether faults ask, in advised areas and in others; and the background.
        let expected = [
            (Defrag::Always, true, true, 0),
            (Defrag::Defer, false, false, 3),
            (Defrag::DeferMadvise, true, false, 2),
            (Defrag::Madvise, true, false, 0),
            (Defrag::Never, false, false, 0),
        ];
        for (choice, advised, others, background) in expected {
            policy.set_defrag(choice);
            assert_eq!(demand.asks(&policy, Order::new(4), Advice::Huge), advised, "{choice:?}");
            assert_eq!(demand.asks(&policy, Order::new(5), Advice::None), others, "{choice:?}");
            assert_eq!(demand.take_wanted() >> 4, background, "{choice:?}");
        }
    }

    /// The same with a set of orders.
    #[derive(Default)]
    struct Naive {
        answers: bool,
        wanted: BTreeSet<u8>,
        failed: BTreeSet<u8>,
        asked: u32,
        failures: u32,
    }

    impl Naive {
        fn asks(&mut self, choice: Defrag, order: u8, is_advised: bool) -> bool {
            if !self.answers || !(1..=GROUP_ORDER.get()).contains(&order) {
                return false;
            }
            let tries = match choice {
                Defrag::Always => true,
                Defrag::Madvise | Defrag::DeferMadvise => is_advised,
                Defrag::Defer | Defrag::Never => false,
            };
            if tries && self.failed.contains(&order) {
                self.asked += 1;
                return self.asked >= 1 << self.failures.min(6);
            }
            if !tries && matches!(choice, Defrag::Defer | Defrag::DeferMadvise) {
                self.wanted.insert(order);
            }
            tries
        }

        fn answered(&mut self, order: u8, made: bool) {
            if !made {
                self.failed.extend(order..=GROUP_ORDER.get());
                (self.failures, self.asked) = (self.failures + 1, 0);
            } else if self.failed.contains(&order) {
                // The smaller ones can be had as well.
                self.failed.retain(|other| *other > order);
                self.failures = 0;
            }
        }
    }

    proptest! {
        #[test]
        fn e7_demands_are_as_in_the_naive_model(
            steps in prop::collection::vec((0u8..8, 0u8..12, any::<bool>()), 1..300),
        ) {
            let choices = [
                Defrag::Always,
                Defrag::Defer,
                Defrag::DeferMadvise,
                Defrag::Madvise,
                Defrag::Never,
            ];
            let (policy, demand) = (Policy::new(Order::new(9)), Demand::default());
            let (mut naive, mut choice) = (Naive::default(), policy.defrag());
            for (what, order, yes) in steps {
                match what {
                    0 => {
                        choice = choices[usize::from(order) % choices.len()];
                        policy.set_defrag(choice);
                    }
                    1 if order > 0 => {
                        demand.answered(Order::new(order.min(9)), yes);
                        naive.answered(order.min(9), yes);
                    }
                    2 if order < 3 => {
                        demand.set_answers(yes || order == 0);
                        naive.answers = yes || order == 0;
                    }
                    3 => {
                        let wanted = core::mem::take(&mut naive.wanted);
                        let bits = wanted.into_iter().fold(0, |bits, order| bits | 1 << order);
                        prop_assert_eq!(demand.take_wanted(), bits);
                    }
                    _ => {
                        let advice = if yes { Advice::Huge } else { Advice::None };
                        let asks = demand.asks(&policy, Order::new(order), advice);
                        prop_assert_eq!(asks, naive.asks(choice, order, yes));
                    }
                }
            }
        }
    }
}
