//! Counters of events, per CPU.

use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Numbers of events; the difference of two readings counts the events between them.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Sub for Counts {
            type Output = Counts;

            fn sub(self, earlier: Counts) -> Counts {
                Counts { $($name: self.$name - earlier.$name,)* }
            }
        }

        /// One CPU's counters. Each is written by one thread only, so adding needs no locked
        /// instruction; reading from others is merely a little late.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn add_to(&self, sum: &mut Counts) {
                $(sum.$name += self.$name.load(Ordering::Relaxed);)*
            }
        }
    };
}

counters! {
    /// Translations found in the first level of a TLB.
    first_hits,
    /// Translations found in the second level of a TLB.
    second_hits,
    /// Walks of tables, each a TLB miss or a first store to a clean page.
    walks,
    /// Walks that a walk cache let begin below the root.
    walk_cache_hits,
    /// Words that walks read.
    words_walked,
    /// Accessed and dirty flags that walkers set.
    flags_set,
    /// Accesses that ended in a trap.
    traps,
    /// Calls of `flush`.
    flushes,
    /// Invalidations by address, summed over the CPUs that received them.
    invalidations,
    /// Invalidations of a whole address space, summed over the CPUs that received them.
    full_flushes,
    /// Calls of `publish_code`.
    code_published,
    /// Calls of `fill`.
    fills,
    /// Words that `fill` wrote.
    words_filled,
    /// Calls of `compare_exchange` that wrote.
    exchanges,
    /// Calls of `compare_exchange` that found another word.
    exchange_failures,
    /// Bytes that `clear` zeroed.
    bytes_cleared,
    /// Bytes that `copy` copied.
    bytes_copied,
    /// Frames that left use.
    frames_freed,
}

/// Adds to a counter that only the calling thread writes.
#[inline]
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}
