//! Which folio sizes are wanted for pages of files (row B4).
//!
//! For each size there is a choice of two questions at once, in the grammar that was proposed for
//! Linux's `/sys/kernel/mm/transparent_hugepage/hugepages-*kB/file_enabled`: may any file be read
//! in folios of this size (`always`), and is it *the* size for code (`exec`)?
//!
//! Single pages are always allowed, and a size that is not allowed does not limit larger ones.

use core::fmt;
use core::str::FromStr;

use quire_arch::Arch;
use quire_units::{Order, OrderSet};

use super::in_memory::{InMemory, MemorySizes};
use super::readahead::Preference;
use super::window::Bounds;
use crate::fault::highest;
use crate::fault::policy::{
    ORDERS_WITH_CHOICE, Policy, UnknownWord, size_order, with_choice, words,
};
use crate::limits::{FAULT_AROUND_BYTES, HUGE_FILE_BYTES, READ_AHEAD_BYTES};
use crate::space::{Advice, OptOut};
use crate::sync::{AtomicU64, Ordering};

words! {
    /// The choice for one size.
    FileSize {
        /// Never.
        Never = "never",
        /// For all files.
        Always = "always",
        /// For code only.
        Exec = "exec",
        /// For all files, and preferred for code.
        AlwaysExec = "always+exec",
    }
}

impl FileSize {
    /// Whether any file may be read in this size, and whether it is preferred for code.
    const fn parts(self) -> (bool, bool) {
        match self {
            FileSize::Never => (false, false),
            FileSize::Always => (true, false),
            FileSize::Exec => (false, true),
            FileSize::AlwaysExec => (true, true),
        }
    }
}

/// The reason to refuse a choice. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// There is no choice for this order: 0, or above the largest folio.
    NoChoice(Order),
    /// Another order is the one for code.
    Taken(Order),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NoChoice(order) => write!(f, "there is no choice for {order}"),
            Refused::Taken(order) => write!(f, "code has {order} already"),
        }
    }
}

impl core::error::Error for Refused {}

/// The system's policy for files. May be changed while it is in use.
#[derive(Debug)]
pub struct FilePolicy {
    /// Two sets of orders in one word, so that both change at once: the low half allows orders for
    /// files, the high half prefers orders for code.
    sizes: AtomicU64,
    /// The largest readahead window, in pages.
    window: AtomicU64,
    /// How much is mapped around a fault.
    around: Order,
    /// The order of folios in areas that are advised to be huge.
    huge: Order,
    /// The sizes of shared memory and of files in memory.
    in_memory: InMemory,
}

impl FilePolicy {
    /// All sizes up to a block are allowed, and the one that suits code is preferred for it.
    /// Readahead, fault-around and the sizes for areas advised to be huge are as in Linux.
    pub fn new<A: Arch>() -> Self {
        let pages = |bytes: u64| (bytes >> A::PAGE_SHIFT).max(1);
        let files = OrderSet::up_to(A::block_order()) & ORDERS_WITH_CHOICE;
        let huge = Order::fitting(pages(HUGE_FILE_BYTES)).unwrap_or_default();
        Self {
            sizes: AtomicU64::new(word(
                files,
                A::exec_order().map(with_choice).unwrap_or_default(),
            )),
            window: AtomicU64::new(pages(READ_AHEAD_BYTES)),
            around: Order::fitting(pages(FAULT_AROUND_BYTES)).unwrap_or_default(),
            huge: huge.min(A::block_order()),
            in_memory: InMemory::new(),
        }
    }

    /// The choice for `order`. `Never` where there is no choice.
    pub fn size(&self, order: Order) -> FileSize {
        let (always, exec) = self.sets();
        let parts = (always.contains(order), exec.contains(order));
        let mut all = FileSize::ALL.iter().copied();
        all.find(|size| size.parts() == parts).unwrap_or(FileSize::Never)
    }

    /// Sets the choice for `order`.
    ///
    /// # Errors
    /// [`Refused::NoChoice`], and [`Refused::Taken`] when this order is to be preferred for code
    /// and another one is. Of two CPUs that try at once, one is refused.
    pub fn set_size(&self, order: Order, choice: FileSize) -> Result<(), Refused> {
        let this = with_choice(order);
        if this.is_empty() {
            return Err(Refused::NoChoice(order));
        }
        let (always, exec) = choice.parts();
        let put = |set: OrderSet, wanted: bool| if wanted { set | this } else { set - this };
        self.update(|files, code| match code - this {
            others if exec && !others.is_empty() => Err(Refused::Taken(highest(others))),
            _ => Ok((put(files, always), put(code, exec))),
        })
    }

    /// Prefers several sizes for code (row B7): of them, the largest whose block around the fault
    /// lies within the area, and under pressure the next smaller. None: any size. The permission
    /// for other files to use these sizes stays as it is.
    ///
    /// # Errors
    /// [`Refused::NoChoice`].
    pub fn set_exec_tiers(&self, tiers: &[Order]) -> Result<(), Refused> {
        if let Some(&order) = tiers.iter().find(|&&order| with_choice(order).is_empty()) {
            return Err(Refused::NoChoice(order));
        }
        let code = tiers.iter().fold(OrderSet::EMPTY, |code, &order| code | with_choice(order));
        self.update(|files, _| Ok((files, code)))
    }

    /// Takes the same as text: sizes separated by commas, `64K,2M`, or `none`.
    ///
    /// # Errors
    /// The part that is no size with a choice; nothing is changed then.
    pub fn set_tiers<'t>(&self, text: &'t str, page_shift: u32) -> Result<(), &'t str> {
        let mut code = OrderSet::EMPTY;
        for size in text.split(',').filter(|_| text != "none") {
            code = code | with_choice(Order::new(size_order(size, page_shift).ok_or(size)? as u8));
        }
        self.update(|files, _| Ok((files, code))).map_err(|_: Refused| text)
    }

    /// The largest readahead window, in pages; 0 for none.
    pub fn window(&self) -> u64 {
        self.window.load(Ordering::Relaxed)
    }

    /// Sets the largest readahead window, in pages.
    pub fn set_window(&self, pages: u64) {
        self.window.store(pages, Ordering::Relaxed);
    }

    /// The bounds of reads in a file of `end` pages, whose folios have at least the order
    /// `smallest` (see `Bounds`).
    #[inline]
    pub fn bounds(&self, end: u64, smallest: Order) -> Bounds {
        Bounds { end, window: self.window(), smallest, sizes: self.sets().0 }
    }

    /// The folio sizes that faults prefer.
    #[inline]
    pub fn preference(&self) -> Preference {
        Preference { exec: self.sets().1, huge: self.huge }
    }

    /// The folio sizes of shared memory and of files in memory.
    pub fn memory_sizes(&self) -> MemorySizes {
        self.in_memory.sizes()
    }

    /// Sets the folio sizes of shared memory and of files in memory; at first all are as anonymous
    /// memory has them. Orders without a choice are left out.
    pub fn set_memory_sizes(&self, sizes: MemorySizes) {
        self.in_memory.set(sizes);
    }

    /// The orders above 0 that are allowed in an area that shows a file in memory, where `anon` is
    /// the policy of anonymous memory.
    pub fn candidates(&self, anon: &Policy, advice: Advice, process: OptOut) -> OrderSet {
        self.in_memory.candidates(anon, advice, process)
    }

    /// The orders for whose blocks areas that show files are aligned.
    pub fn alignments(&self) -> OrderSet {
        let sizes = self.in_memory.sizes();
        self.sets().1 | with_choice(self.huge) | with_choice(self.around) | sizes.wanted()
    }

    /// How many pages around a fault are mapped if they are cached, at least.
    pub fn around(&self) -> Order {
        self.around
    }

    /// The orders that files may be read in, and those that are preferred for code.
    fn sets(&self) -> (OrderSet, OrderSet) {
        sets(self.sizes.load(Ordering::Relaxed))
    }

    /// Replaces both sets by the result of `change`, as one step.
    fn update(
        &self,
        change: impl Fn(OrderSet, OrderSet) -> Result<(OrderSet, OrderSet), Refused>,
    ) -> Result<(), Refused> {
        let mut old = self.sizes.load(Ordering::Relaxed);
        loop {
            let (files, code) = sets(old);
            let (files, code) = change(files, code)?;
            let (new, order) = (word(files, code), Ordering::Relaxed);
            match self.sizes.compare_exchange(old, new, order, order) {
                Ok(_) => return Ok(()),
                Err(now) => old = now,
            }
        }
    }
}

const fn word(files: OrderSet, code: OrderSet) -> u64 {
    files.bits() as u64 | (code.bits() as u64) << 32
}

const fn sets(word: u64) -> (OrderSet, OrderSet) {
    (OrderSet::from_bits(word as u32), OrderSet::from_bits((word >> 32) as u32))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::format;

    use quire_arch::{Arm4k, Arm64k, X86_64};
    use quire_units::Order;

    use super::{FilePolicy, FileSize, Refused};

    const O4: Order = Order::new(4);
    const O9: Order = Order::new(9);

    fn arm() -> FilePolicy {
        FilePolicy::new::<Arm4k>()
    }

    #[test]
    fn b4_the_default_is_all_sizes_up_to_the_block_and_the_cpus_wish_for_code() {
        let policy = arm();
        assert_eq!(policy.size(Order::new(1)), FileSize::Always);
        assert_eq!(policy.size(O4), FileSize::AlwaysExec);
        assert_eq!(policy.size(O9), FileSize::Always);
        assert_eq!(policy.size(Order::new(10)), FileSize::Never);
        assert_eq!(policy.size(Order::ZERO), FileSize::Never, "no choice");
        assert_eq!(policy.window(), 32);
        let (bounds, preference) = (policy.bounds(77, Order::ZERO), policy.preference());
        assert_eq!((bounds.end, bounds.window, bounds.sizes.bits()), (77, 32, 0x3fe));
        assert_eq!((preference.exec.bits(), preference.huge), (1 << 4, O9));
        assert_eq!(policy.around(), O4);
        let pages_of_64k = FilePolicy::new::<Arm64k>();
        assert_eq!(pages_of_64k.around(), Order::ZERO);
        let preference = pages_of_64k.preference();
        assert_eq!((preference.exec.bits(), preference.huge), (0, Order::new(5)), "2 MiB, not 512");
        assert_eq!(pages_of_64k.window(), 2);
    }

    #[test]
    fn b4_a_file_size_prints_all_words_and_takes_one() {
        assert_eq!(format!("{}", FileSize::Exec), "never always [exec] always+exec");
        for &choice in FileSize::ALL {
            assert_eq!(format!("{}\n", choice.word()).parse(), Ok(choice));
        }
        for wrong in ["", "inherit", "always exec", "exec+always", "[exec]", "Exec"] {
            assert!(wrong.parse::<FileSize>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn b4_what_is_set_is_read_back_for_every_size_and_no_other_changes() {
        for order in (1..=18).map(Order::new) {
            let policy = FilePolicy::new::<X86_64>();
            for &choice in FileSize::ALL {
                assert_eq!(policy.set_size(order, choice), Ok(()));
                assert_eq!(policy.size(order), choice);
                for other in (1..=18).map(Order::new).filter(|&other| other != order) {
                    let default = FilePolicy::new::<X86_64>().size(other);
                    assert_eq!(policy.size(other), default);
                }
            }
        }
    }

    #[test]
    fn b4_a_second_size_for_code_is_refused_and_changes_nothing() {
        let policy = arm();
        for choice in [FileSize::Exec, FileSize::AlwaysExec] {
            assert_eq!(policy.set_size(O9, choice), Err(Refused::Taken(O4)));
        }
        assert_eq!((policy.size(O9), policy.size(O4)), (FileSize::Always, FileSize::AlwaysExec));
        policy.set_size(O9, FileSize::Never).unwrap();
        policy.set_size(O9, FileSize::Always).unwrap();
        policy.set_size(O4, FileSize::Exec).unwrap();
        policy.set_size(O4, FileSize::Never).unwrap();
        policy.set_size(O9, FileSize::Exec).unwrap();
        let bounds = policy.bounds(1, Order::ZERO);
        let sets = [bounds.sizes, policy.preference().exec].map(|set| set.bits());
        assert_eq!(sets, [0x1ee, 0x200]);
        for order in [0, 19, 32, 63].map(Order::new) {
            assert_eq!(policy.set_size(order, FileSize::Always), Err(Refused::NoChoice(order)));
        }
    }

    #[test]
    fn b7_tiers_are_several_sizes_for_code() {
        let policy = arm();
        policy.set_exec_tiers(&[O9, O4]).unwrap();
        assert_eq!(policy.preference().exec.bits(), 1 << 9 | 1 << 4);
        assert_eq!(policy.size(O9), FileSize::AlwaysExec);
        let zero = [O4, Order::ZERO];
        assert_eq!(policy.set_exec_tiers(&zero), Err(Refused::NoChoice(Order::ZERO)));
        assert_eq!(policy.preference().exec.bits(), 1 << 9 | 1 << 4, "nothing is changed");
        assert_eq!(policy.set_size(O4, FileSize::Exec), Err(Refused::Taken(O9)));
        for wrong in ["", "64", "4K", "64K,", "64K;2M", "2G", "64K,none", "96K"] {
            assert!(policy.set_tiers(wrong, 12).is_err(), "{wrong}");
            assert_eq!(policy.preference().exec.bits(), 1 << 9 | 1 << 4, "nothing is changed");
        }
        assert_eq!(policy.set_tiers("2M", 12), Ok(()));
        assert_eq!(policy.preference().exec.bits(), 1 << 9);
        assert_eq!(policy.set_tiers("64K,2048K", 12), Ok(()));
        assert_eq!(policy.preference().exec.bits(), 1 << 9 | 1 << 4);
        assert_eq!(policy.set_tiers("none", 12), Ok(()));
        assert_eq!((policy.preference().exec.bits(), policy.size(O4)), (0, FileSize::Always));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use quire_arch::X86_64;
    use quire_units::Order;

    use super::{FilePolicy, FileSize};
    use loom::sync::Arc;

    #[test]
    fn b4_of_two_cpus_that_set_the_size_for_code_one_is_refused() {
        loom::model(|| {
            let policy = Arc::new(FilePolicy::new::<X86_64>());
            let other = Arc::clone(&policy);
            let set = |policy: &FilePolicy, order| {
                policy.set_size(Order::new(order), FileSize::Exec).is_ok()
            };
            let there = loom::thread::spawn(move || set(&other, 4));
            let here = set(&policy, 9);
            assert_ne!(here, there.join().unwrap());
            assert_eq!(policy.preference().exec.bits().count_ones(), 1);
        });
    }
}
