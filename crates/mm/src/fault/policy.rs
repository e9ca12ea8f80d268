//! The policy of folio sizes, in the grammar of Linux's `/sys/kernel/mm/transparent_hugepage` (row
//! E4; `Documentation/admin-guide/mm/transhuge.rst` is the reference for its behaviour).
//!
//! There is a top-level choice (`enabled`), and one for each size that may defer to it
//! (`inherit`). Reading a choice prints all words with the active one in brackets; writing takes
//! one word. A process may opt out, and an area may be advised either way.

use core::fmt;
use core::str::FromStr;

use quire_units::{Order, OrderSet};

use super::copies::Copies;
use crate::limits::ORDERS;
use crate::space::{Advice, OptOut};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A word that is not one of a choice's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownWord;

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not one of this setting's words")
    }
}

impl core::error::Error for UnknownWord {}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// All choices, in the order in which they are printed.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The choice's word.
            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }

        }

        impl FromStr for $name {
            type Err = UnknownWord;

            /// Takes one word; a newline may follow.
            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                let word = text.strip_suffix('\n').unwrap_or(text);
                Self::ALL.iter().copied().find(|c| c.word() == word).ok_or(UnknownWord)
            }
        }

        impl fmt::Display for $name {
            /// All words, the active one in brackets.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                for (at, choice) in Self::ALL.iter().enumerate() {
                    let gap = if at == 0 { "" } else { " " };
                    match choice == self {
                        true => write!(f, "{gap}[{}]", choice.word())?,
                        false => write!(f, "{gap}{}", choice.word())?,
                    }
                }
                Ok(())
            }
        }
    };
}

pub(crate) use words;

words! {
    /// The top-level choice.
    Enabled {
        /// In every area.
        Always = "always",
        /// In areas advised so.
        Madvise = "madvise",
        /// Nowhere.
        Never = "never",
    }
}

words! {
    /// The choice for one size.
    SizePolicy {
        /// In every area.
        Always = "always",
        /// As the top-level choice says.
        Inherit = "inherit",
        /// In areas advised so.
        Madvise = "madvise",
        /// Nowhere.
        Never = "never",
    }
}

words! {
    /// How hard to try for a large folio.
    Defrag {
        /// As hard as for a page.
        Always = "always",
        /// Take a free block; the background makes more.
        Defer = "defer",
        /// As `always` in areas advised so, as `defer` elsewhere.
        DeferMadvise = "defer+madvise",
        /// As `always` in areas advised so; elsewhere only a free block.
        Madvise = "madvise",
        /// Take only a free block.
        Never = "never",
    }
}

/// The system's policy. May be changed while it is in use.
#[derive(Debug)]
pub struct Policy {
    enabled: AtomicU32,
    defrag: AtomicU32,
    always: AtomicU32,
    inherit: AtomicU32,
    madvise: AtomicU32,
    copies: Copies,
    evict_most: AtomicU32,
    spare: AtomicU64,
    swappiness: AtomicU32,
    extfrag: AtomicU32,
    zeroes_most: AtomicU32,
}

/// The maximum of [`Policy::swappiness`].
pub const SWAPPINESS_MOST: u32 = 200;

/// The maximum of [`Policy::extfrag_threshold`].
pub const EXTFRAG_MOST: u32 = 1000;

/// The orders for which there is a choice: 1 up to the largest block. (Linux begins at 2, since
/// its folios of order 1 lack a list head.)
pub const ORDERS_WITH_CHOICE: OrderSet = OrderSet::from_bits(((1 << ORDERS) - 1) & !1);

impl Policy {
    /// Linux's default: `madvise`, inherited by the one size `block` (2 MiB with 4 KiB pages), all
    /// others never; `defrag` is `madvise`. A write to a shared page copies that page alone, as
    /// there.
    pub fn new(block: Order) -> Self {
        Self {
            enabled: AtomicU32::new(Enabled::Madvise as u32),
            defrag: AtomicU32::new(Defrag::Madvise as u32),
            always: AtomicU32::new(0),
            inherit: AtomicU32::new(with_choice(block).bits()),
            madvise: AtomicU32::new(0),
            copies: Copies::new(),
            evict_most: AtomicU32::new(block.get().into()),
            spare: AtomicU64::new(0),
            swappiness: AtomicU32::new(60),
            extfrag: AtomicU32::new(0),
            zeroes_most: AtomicU32::new(u32::MAX),
        }
    }

    /// The largest folio that a write to a shared page may be copied into, where no rule says
    /// otherwise.
    pub fn copy_most(&self) -> Order {
        self.copies.most()
    }

    /// Sets the largest folio that a write to a shared page may be copied into; of the smaller
    /// sizes, those wanted in the area are tried, or that one if all wanted sizes are larger. A
    /// large copy saves the faults of the pages around, and wastes time and memory if they are
    /// never written.
    pub fn set_copy_most(&self, order: Order) {
        self.copies.set_most(order);
    }

    /// Sets [`copy_most`](Self::copy_most) for a machine that copies `mb_per_s` times 10⁶ bytes per
    /// second, with base pages of 2^`page_shift` bytes: the largest copy that
    /// [`COPY_NS`](crate::limits::COPY_NS) suffice for, 64 KiB at most.
    pub fn set_copy_speed(&self, mb_per_s: u32, page_shift: u32) {
        self.copies.set_most(Copies::affordable(mb_per_s, page_shift));
    }

    /// The rule for copies out of folios of this order, if there is one: the orders that a copy may
    /// have.
    pub fn copy_sizes(&self, folio: Order) -> Option<OrderSet> {
        self.copies.rule(folio)
    }

    /// Sets or removes that rule. A copy is never larger than the folio, and a page is always
    /// among the sizes.
    ///
    /// # Errors
    /// The order, when no folio is as large.
    pub fn set_copy_sizes(&self, folio: Order, sizes: Option<OrderSet>) -> Result<(), Order> {
        self.copies.set_rule(folio, sizes)
    }

    /// The room that a process must have for a copy of this order: a larger one than a page takes
    /// an eighth of it at most, since pages that are never written take it as well.
    pub(crate) fn room_for_copy(order: Order) -> Order {
        if order == Order::ZERO { order } else { Order::new(order.get() + 3) }
    }

    /// The sizes of a copy for a write to a private page of a file.
    #[cfg(feature = "files")]
    pub(crate) fn copies_of_files(&self, advice: Advice, process: OptOut) -> OrderSet {
        self.copies.of_files(self.candidates(advice, process))
    }

    /// The sizes of a copy for a write to a folio of this order.
    pub(crate) fn copies(&self, folio: Order, advice: Advice, process: OptOut) -> OrderSet {
        match folio {
            Order::ZERO => OrderSet::of(Order::ZERO),
            _ => self.copies.sizes(folio, self.candidates(advice, process)),
        }
    }

    /// The most pages that one step of paging out takes.
    pub fn evict_most(&self) -> Order {
        Order::new(self.evict_most.load(Ordering::Relaxed) as u8)
    }

    /// Sets the most pages that one step of paging out takes; at first a block. Zero is a page at a
    /// time, to measure the worth of runs. Entries for more pages than that are still one step.
    pub fn set_evict_most(&self, order: Order) {
        self.evict_most.store(order.get().into(), Ordering::Relaxed);
    }

    /// How many pages of a block may be zeroes before reclaim splits it to free them; in proportion
    /// for a smaller folio. `None` to not search for zeroes.
    pub fn zeroes_most(&self) -> Option<u32> {
        let most = self.zeroes_most.load(Ordering::Relaxed);
        (most != u32::MAX).then_some(most)
    }

    /// Sets that; at first `None`. (Linux: `shrink_underused`, and khugepaged's `max_ptes_none`.)
    pub fn set_zeroes_most(&self, most: Option<u32>) {
        self.zeroes_most.store(most.unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// How much of what is reclaimed is anonymous memory rather than pages of files, as long as
    /// neither costs more than the other, in parts of [`SWAPPINESS_MOST`].
    pub fn swappiness(&self) -> u32 {
        self.swappiness.load(Ordering::Relaxed)
    }

    /// Sets that; at first 60, as on Linux. At 0 anonymous memory is only taken when files have no
    /// pages to give, and at [`SWAPPINESS_MOST`] the other way round.
    ///
    /// # Errors
    /// The number, when it is larger than that. Nothing has changed then.
    pub fn set_swappiness(&self, swappiness: u32) -> Result<(), u32> {
        if swappiness > SWAPPINESS_MOST {
            return Err(swappiness);
        }
        self.swappiness.store(swappiness, Ordering::Relaxed);
        Ok(())
    }

    /// Up to which fragmentation index a fault that lacks a folio does not ask for compaction.
    pub fn extfrag_threshold(&self) -> u32 {
        self.extfrag.load(Ordering::Relaxed)
    }

    /// Sets that, in thousandths: the [index](crate::phys::Frames::fragmentation) is near 0 where
    /// memory is short, and near 1000 where it is in pieces. At first 0: faults ask in any case.
    /// Linux begins with 500, and asks in any case for orders up to 3.
    ///
    /// # Errors
    /// The number, when it exceeds [`EXTFRAG_MOST`]. Nothing has changed then.
    pub fn set_extfrag_threshold(&self, threshold: u32) -> Result<(), u32> {
        if threshold > EXTFRAG_MOST {
            return Err(threshold);
        }
        self.extfrag.store(threshold, Ordering::Relaxed);
        Ok(())
    }

    /// How many frames an allocation of a large folio must leave free.
    pub fn spare(&self) -> u64 {
        self.spare.load(Ordering::Relaxed)
    }

    /// Sets how many frames large folios leave free; at first none. One folio can be larger than
    /// all that is free below a watermark, and reclaim itself needs some: for the tables of a swap
    /// device, for disk requests, for compressed pages.
    pub fn set_spare(&self, frames: u64) {
        self.spare.store(frames, Ordering::Relaxed);
    }

    /// The top-level choice.
    pub fn enabled(&self) -> Enabled {
        stored(Enabled::ALL, &self.enabled)
    }

    /// Sets the top-level choice.
    pub fn set_enabled(&self, choice: Enabled) {
        self.enabled.store(choice as u32, Ordering::Relaxed);
    }

    /// How hard to try.
    pub fn defrag(&self) -> Defrag {
        stored(Defrag::ALL, &self.defrag)
    }

    /// Sets how hard to try.
    pub fn set_defrag(&self, choice: Defrag) {
        self.defrag.store(choice as u32, Ordering::Relaxed);
    }

    /// The choice for `order`. `Never` where there is no choice.
    pub fn size(&self, order: Order) -> SizePolicy {
        let holds = |set: &AtomicU32| loaded(set).contains(order);
        let holding = self.sets().into_iter().find(|(set, _)| holds(set));
        holding.map_or(SizePolicy::Never, |(_, choice)| choice)
    }

    /// The sets of orders with each choice; those in none are `Never`.
    fn sets(&self) -> [(&AtomicU32, SizePolicy); 3] {
        [
            (&self.always, SizePolicy::Always),
            (&self.inherit, SizePolicy::Inherit),
            (&self.madvise, SizePolicy::Madvise),
        ]
    }

    /// Sets the choice for `order`.
    ///
    /// # Errors
    /// The order, when there is no choice for it: 0, or above the largest block.
    pub fn set_size(&self, order: Order, choice: SizePolicy) -> Result<(), Order> {
        let bit = with_choice(order).bits();
        if bit == 0 {
            return Err(order);
        }
        for (set, of) in self.sets() {
            if of == choice {
                set.fetch_or(bit, Ordering::Relaxed);
            } else {
                set.fetch_and(!bit, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// The orders above 0 that are allowed in an area.
    #[inline(always)]
    pub fn candidates(&self, advice: Advice, process: OptOut) -> OrderSet {
        let sizes = [&self.always, &self.madvise, &self.inherit].map(loaded);
        let [always, madvise, inherit] = sizes;
        match (always | madvise | inherit).is_empty() {
            true => OrderSet::EMPTY,
            false => self.candidates_of(sizes, advice, process),
        }
    }

    /// The same, out of the orders for which the choice is `always`, `madvise` and `inherit`.
    #[inline(never)]
    fn candidates_of(&self, sizes: [OrderSet; 3], advice: Advice, process: OptOut) -> OrderSet {
        let [always, madvise, inherit] = sizes;
        let advised = advice == Advice::Huge;
        let refused = match process {
            OptOut::No => false,
            OptOut::All => true,
            OptOut::ExceptAdvised => !advised,
        };
        if advice == Advice::NoHuge || refused {
            return OrderSet::EMPTY;
        }
        let inherits = match self.enabled() {
            Enabled::Always => true,
            Enabled::Madvise => advised,
            Enabled::Never => false,
        };
        let when = |holds, set| if holds { set } else { OrderSet::EMPTY };
        always | when(advised, madvise) | when(inherits, inherit)
    }

    /// Whether an allocation for a large folio in an area with this advice may empty other CPUs'
    /// caches, as one for a page may. Otherwise it is taken only if it is at hand.
    #[inline]
    pub fn tries_hard(&self, advice: Advice) -> bool {
        match self.defrag() {
            Defrag::Always => true,
            Defrag::DeferMadvise | Defrag::Madvise => advice == Advice::Huge,
            Defrag::Defer | Defrag::Never => false,
        }
    }

    /// Takes a boot parameter in Linux's grammar (`thp_anon=`): size ranges with their choice,
    /// `16K,32K-64K:always;2M:inherit`. Sizes that are named more than once take the last choice;
    /// sizes that are not named become `never`. So an empty text means no large folios, and the one
    /// word `never` says it, too. The base page is `always` in use: a text may say that of it, and
    /// nothing else.
    ///
    /// # Errors
    /// The part with the error; nothing is changed then.
    pub fn set_sizes<'t>(&self, text: &'t str, page_shift: u32) -> Result<(), &'t str> {
        let mut choices = [SizePolicy::Never; ORDERS];
        let text = if text == SizePolicy::Never.word() { "" } else { text };
        for part in text.split(';').filter(|part| !part.is_empty()) {
            let (sizes, word) = part.split_once(':').ok_or(part)?;
            let choice = word.parse().map_err(|_| part)?;
            let least = if choice == SizePolicy::Always { 0 } else { 1 };
            let order = |text| order_of(text, page_shift).filter(|&order| order >= least);
            for range in sizes.split(',') {
                let (low, high) = range.split_once('-').unwrap_or((range, range));
                let low = order(low).ok_or(range)?;
                let high = order(high).ok_or(range)?;
                if low > high {
                    return Err(range);
                }
                choices[low..=high].fill(choice);
            }
        }
        for (order, choice) in choices.into_iter().enumerate().skip(1) {
            let _ = self.set_size(Order::new(order as u8), choice);
        }
        Ok(())
    }
}

/// The orders in a set that may change meanwhile.
#[inline]
fn loaded(set: &AtomicU32) -> OrderSet {
    OrderSet::from_bits(set.load(Ordering::Relaxed))
}

/// The set of `order` alone; empty if there is no choice for it.
pub(crate) fn with_choice(order: Order) -> OrderSet {
    OrderSet::of(order) & ORDERS_WITH_CHOICE
}

/// The choice whose number is in `cell`.
#[inline]
fn stored<T: Copy>(all: &[T], cell: &AtomicU32) -> T {
    let number = cell.load(Ordering::Relaxed) as usize;
    // The cell always holds one of their numbers.
    all.get(number).copied().unwrap_or(all[0])
}

/// The order of a size such as `64K`, `2M`, `1G`, if there is a choice for it.
pub(crate) fn size_order(text: &str, page_shift: u32) -> Option<usize> {
    order_of(text, page_shift).filter(|&order| order > 0)
}

/// The same, and 0 for the size of a base page.
fn order_of(text: &str, page_shift: u32) -> Option<usize> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let shift = match unit {
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(1 << shift)?;
    let order = Order::of_bytes(bytes, page_shift)?.index();
    (order < ORDERS).then_some(order)
}
