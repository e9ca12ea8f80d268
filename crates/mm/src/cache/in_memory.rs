//! Which folio sizes shared memory and files in memory get (row B4).
//!
//! For each size there is one of four choices. At first each size is as anonymous memory has it, so
//! an embedder that sets nothing has one policy for all memory. Linux's words for these choices are
//! in `hugepages-*kB/shmem_enabled`.

use quire_units::OrderSet;

use crate::fault::policy::{ORDERS_WITH_CHOICE, Policy};
use crate::space::{Advice, OptOut};
use crate::sync::{AtomicU32, Ordering};

/// The sizes with each choice. A size in none of the sets is never used; the first of several
/// sets with a size counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemorySizes {
    /// In every area that has not opted out.
    pub always: OrderSet,
    /// In areas that are advised to be huge.
    pub advised: OrderSet,
    /// Where anonymous memory has them, too.
    pub alike: OrderSet,
}

impl MemorySizes {
    /// The sizes that areas may have by these choices alone.
    pub(super) fn wanted(&self) -> OrderSet {
        self.always | self.advised
    }
}

/// The same, to be changed while it is in use.
#[derive(Debug)]
pub(super) struct InMemory {
    always: AtomicU32,
    advised: AtomicU32,
    alike: AtomicU32,
}

impl InMemory {
    pub(super) fn new() -> Self {
        Self {
            always: AtomicU32::new(0),
            advised: AtomicU32::new(0),
            alike: AtomicU32::new(ORDERS_WITH_CHOICE.bits()),
        }
    }

    pub(super) fn sizes(&self) -> MemorySizes {
        let [always, advised, alike] = [&self.always, &self.advised, &self.alike]
            .map(|set| OrderSet::from_bits(set.load(Ordering::Relaxed)));
        MemorySizes { always, advised, alike }
    }

    pub(super) fn set(&self, sizes: MemorySizes) {
        let put = |set: &AtomicU32, orders: OrderSet| {
            set.store((orders & ORDERS_WITH_CHOICE).bits(), Ordering::Relaxed);
        };
        put(&self.always, sizes.always);
        put(&self.advised, sizes.advised);
        put(&self.alike, sizes.alike);
    }

    /// The orders above 0 that are allowed in an area; `anon` is the policy of anonymous memory.
    pub(super) fn candidates(&self, anon: &Policy, advice: Advice, process: OptOut) -> OrderSet {
        let MemorySizes { always, advised, alike } = self.sizes();
        let own = match advice {
            Advice::Huge => always | advised,
            _ => always,
        };
        let refused = match process {
            OptOut::No => false,
            OptOut::All => true,
            OptOut::ExceptAdvised => advice != Advice::Huge,
        };
        if refused || advice == Advice::NoHuge {
            return OrderSet::EMPTY;
        }
        own | (anon.candidates(advice, process) & alike)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use quire_units::{Order, OrderSet};

    use super::{InMemory, MemorySizes};
    use crate::fault::policy::{Policy, SizePolicy};
    use crate::space::{Advice, OptOut};

    const ADVICES: [Advice; 3] = [Advice::None, Advice::Huge, Advice::NoHuge];
    const PROCESSES: [OptOut; 3] = [OptOut::No, OptOut::All, OptOut::ExceptAdvised];

    fn anon() -> Policy {
        let policy = Policy::new(Order::new(9));
        policy.set_size(Order::new(4), SizePolicy::Always).unwrap();
        policy
    }

    #[test]
    fn b4_shared_memory_is_at_first_as_anonymous_memory() {
        let (anon, own) = (anon(), InMemory::new());
        for (advice, process) in ADVICES.iter().flat_map(|a| PROCESSES.map(|p| (*a, p))) {
            assert_eq!(
                own.candidates(&anon, advice, process),
                anon.candidates(advice, process),
                "{advice:?} {process:?}"
            );
        }
    }

    #[test]
    fn b4_shared_memory_has_sizes_of_its_own() {
        let (anon, own) = (anon(), InMemory::new());
        let set = OrderSet::from_bits;
        let sizes = MemorySizes { always: set(1 << 2), advised: set(1 << 3), alike: set(1 << 9) };
        own.set(sizes);
        assert_eq!(own.sizes(), sizes);
        let of = |advice, process| own.candidates(&anon, advice, process).bits();
        assert_eq!(of(Advice::None, OptOut::No), 1 << 2, "not the 64 KiB of anonymous memory");
        assert_eq!(of(Advice::Huge, OptOut::No), 1 << 2 | 1 << 3 | 1 << 9);
        assert_eq!(of(Advice::Huge, OptOut::ExceptAdvised), 1 << 2 | 1 << 3 | 1 << 9);
        let out = [
            (Advice::NoHuge, OptOut::No),
            (Advice::Huge, OptOut::All),
            (Advice::None, OptOut::ExceptAdvised),
        ];
        for (advice, process) in out {
            assert_eq!(of(advice, process), 0, "{advice:?} {process:?}");
        }
        own.set(MemorySizes { always: set(1), advised: set(0), alike: set(0) });
        assert_eq!(own.sizes().always.bits(), 0, "pages are no choice");
    }
}
