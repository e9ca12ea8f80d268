//! Counters (row E5): events by size, with Linux's names where Linux has one.
//!
//! Each CPU has its own set, which only it changes, so counting shares no cache line. A sum over
//! CPUs is exact once they are quiet.

use quire_units::Order;

use crate::limits::ORDERS;
use crate::sync::{AtomicU64, Ordering, Tally};

/// The events that are counted once for the whole system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
#[non_exhaustive]
pub enum Event {
    /// Faults that ended well.
    Fault,
    /// Faults that found a leaf present.
    Spurious,
    /// Faults refused: no area, or not within its rights.
    Refused,
    /// Plans that no longer held when they were installed.
    Stale,
    /// Entries written that were empty.
    EntriesMade,
    /// Entries of leaves given other rights.
    EntriesChanged,
    /// Entries of leaves zeroed.
    EntriesCleared,
    /// Entries of leaves moved to other pages.
    EntriesMoved,
    /// Flushes by the hardware.
    Flush,
    /// Bytes zeroed for folios.
    BytesCleared,
    /// Bytes not zeroed, since they were known to be zero.
    BytesKnownZero,
    /// Large leaves replaced by a table of smaller ones.
    LeafSplit,
    /// Page tables made.
    TableMade,
    /// Frames freed after a flush.
    FramesFreed,
    /// Blocks of one leaf each that flushes named: a CPU without range instructions invalidates
    /// them one by one.
    Invalidations,
    /// Flushes in the middle of a break-before-make.
    Break,
    /// Contiguous blocks that were written folded into empty entries.
    Fold,
    /// Contiguous blocks of live entries that became foldable and were folded.
    Refold,
    /// Contiguous blocks that were unfolded, since a part of them changed.
    Unfold,
    /// Entries that a fork gave to a child.
    EntriesForked,
    /// Pages that a fork copied, since they were pinned.
    ForkCopy,
    /// Pages that a write found to be no longer shared, and kept.
    CowReuse,
    /// Pages that a write copied.
    CowCopy,
    /// Page tables that moved whole.
    TableMoved,
    /// Folios that a collapse made.
    CollapseAlloc,
    /// Blocks for which a collapse found no folio.
    CollapseFailed,
    /// Pages of files whose read was begun.
    FilePagesRead,
    /// Reads of files that failed.
    FileReadsFailed,
    /// Pages of files whose write to their store was begun.
    FilePagesWritten,
    /// Walks for the mappings of a folio in one space.
    RmapWalks,
    /// Entries of leaves that became swap entries.
    EntriesSwapped,
    /// Pages whose leaves became swap entries.
    PagesSwapped,
    /// Pages whose swap entries became leaves again.
    PagesSwappedIn,
    /// Folios split into smaller ones.
    FolioSplit,
    /// Splits of folios that failed.
    FolioSplitFailed,
    /// Pages that aging scanned.
    PagesAged,
    /// Pages freed lazily (`MADV_FREE`).
    LazyFree,
    /// Such pages that were lost.
    LazyFreed,
    /// Pages that held nothing but zeroes and were freed.
    ZeroesDropped,
    /// Blocks that a scan left as they are since too many of their pages were missing.
    ScanNone,
    /// Since too many were on swap devices.
    ScanSwapped,
    /// Since too many were shared.
    ScanShared,
    /// Large folios split since many of their pages were zero.
    UnderusedSplit,
    /// Pages of files that were read again so soon that they would have stayed with more room.
    RefaultFile,
    /// Pages that faults waited for while they were read from a swap device.
    RefaultAnon,
    /// Pages that have other frames now.
    MigratedPages,
    /// Folios that could not move.
    MigrateFailed,
    /// Compactions that a fault waited for.
    CompactStall,
    /// Those that made a block free.
    CompactSuccess,
    /// Those that made none.
    CompactFailed,
    /// Pages that compaction looked at, to move them.
    CompactScanned,
    /// Free pages that compaction kept for a block.
    CompactIsolated,
    /// Blocks that the background compaction was asked for.
    CompactWoken,
}

/// The events in the order of their counters, each with its counter's name.
const EVENTS: [(Event, &str); 53] = [
    (Event::Fault, "pgfault"),
    (Event::Spurious, "fault_spurious"),
    (Event::Refused, "fault_refused"),
    (Event::Stale, "fault_replanned"),
    (Event::EntriesMade, "entries_made"),
    (Event::EntriesChanged, "entries_changed"),
    (Event::EntriesCleared, "entries_cleared"),
    (Event::EntriesMoved, "entries_moved"),
    (Event::Flush, "tlb_flushes"),
    (Event::BytesCleared, "bytes_cleared"),
    (Event::BytesKnownZero, "bytes_known_zero"),
    (Event::LeafSplit, "thp_split_pmd"),
    (Event::TableMade, "tables_made"),
    (Event::FramesFreed, "pgfree"),
    (Event::Invalidations, "tlb_invalidations"),
    (Event::Break, "tlb_breaks"),
    (Event::Fold, "contpte_fold"),
    (Event::Refold, "contpte_refold"),
    (Event::Unfold, "contpte_unfold"),
    (Event::EntriesForked, "fork_entries"),
    (Event::ForkCopy, "fork_copy"),
    (Event::CowReuse, "cow_reuse"),
    (Event::CowCopy, "cow_copy"),
    (Event::TableMoved, "tables_moved"),
    (Event::CollapseAlloc, "thp_collapse_alloc"),
    (Event::CollapseFailed, "thp_collapse_alloc_failed"),
    (Event::FilePagesRead, "file_pages_read"),
    (Event::FileReadsFailed, "file_reads_failed"),
    (Event::FilePagesWritten, "file_pages_written"),
    (Event::RmapWalks, "rmap_walks"),
    (Event::EntriesSwapped, "swap_entries"),
    (Event::PagesSwapped, "pswpout"),
    (Event::PagesSwappedIn, "pswpin"),
    (Event::FolioSplit, "thp_split_page"),
    (Event::FolioSplitFailed, "thp_split_page_failed"),
    (Event::PagesAged, "pgscan"),
    (Event::LazyFree, "pglazyfree"),
    (Event::LazyFreed, "pglazyfreed"),
    (Event::ZeroesDropped, "zeroes_dropped"),
    (Event::ScanNone, "thp_scan_exceed_none_pte"),
    (Event::ScanSwapped, "thp_scan_exceed_swap_pte"),
    (Event::ScanShared, "thp_scan_exceed_share_pte"),
    (Event::UnderusedSplit, "thp_underused_split_page"),
    (Event::RefaultFile, "workingset_refault_file"),
    (Event::RefaultAnon, "workingset_refault_anon"),
    (Event::MigratedPages, "pgmigrate_success"),
    (Event::MigrateFailed, "pgmigrate_fail"),
    (Event::CompactStall, "compact_stall"),
    (Event::CompactSuccess, "compact_success"),
    (Event::CompactFailed, "compact_fail"),
    (Event::CompactScanned, "compact_migrate_scanned"),
    (Event::CompactIsolated, "compact_isolated"),
    (Event::CompactWoken, "compact_daemon_wake"),
];

impl Event {
    /// All of them, in the order of their counters.
    pub const ALL: &'static [Event] = &{
        let mut all = [Event::Fault; EVENTS.len()];
        let mut at = 0;
        while at < all.len() {
            all[at] = EVENTS[at].0;
            assert!(all[at] as usize == at);
            at += 1;
        }
        all
    };

    /// The counter's name; Linux's in `/proc/vmstat` where there is one.
    pub const fn name(self) -> &'static str {
        EVENTS[self as usize].1
    }
}

/// How many causes a fallback may have.
pub const CAUSES: usize = 5;

/// The events that are counted for each order of folios.
#[derive(Clone, Copy)]
pub(crate) enum FolioEvent {
    /// A fault mapped it.
    Alloc,
    /// A write to a shared page copied into it.
    Copy,
    /// It left memory for a swap device.
    Swpout,
    /// There was no run of slots for it.
    SwpoutFallback,
    /// Its swap entries were mapped.
    Swpin,
}

const FOLIO_EVENTS: usize = FolioEvent::Swpin as usize + 1;

/// One CPU's counters.
#[repr(align(128))]
pub struct Counters {
    events: [Tally; EVENTS.len()],
    folios: [[Tally; ORDERS]; FOLIO_EVENTS],
    /// `anon_fault_fallback` of each order, by cause.
    fallback: [[Tally; CAUSES]; ORDERS],
}

crate::sync::names!([] Counters, "stats" { events, folios, fallback });

impl Counters {
    /// All zero.
    pub const fn new() -> Self {
        Self {
            events: [const { Tally::new(0) }; EVENTS.len()],
            folios: [const { [const { Tally::new(0) }; ORDERS] }; FOLIO_EVENTS],
            fallback: [const { [const { Tally::new(0) }; CAUSES] }; ORDERS],
        }
    }

    /// Counts `count` more of `event`. Only the CPU whose counters these are calls it.
    #[inline]
    pub(crate) fn add(&self, event: Event, count: u64) {
        bump(&self.events[event as usize], count);
    }

    /// Counts `count` more of `event` for folios of `order`.
    #[inline]
    pub(crate) fn add_folios(&self, event: FolioEvent, order: Order, count: u64) {
        bump(&self.folios[event as usize][order.index()], count);
    }

    /// Counts a fault that wanted `order` and got less, for cause number `cause`.
    #[inline]
    pub(crate) fn fallback(&self, order: Order, cause: usize) {
        bump(&self.fallback[order.index()][cause], 1);
    }
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

/// Adds without an atomic operation: there is one writer.
#[inline]
fn bump(cell: &Tally, count: u64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// The sum of all CPUs' counters at about one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Totals {
    events: [u64; EVENTS.len()],
    /// Folios that faults mapped, by order (`anon_fault_alloc`).
    pub alloc: [u64; ORDERS],
    /// Faults that wanted an order and got less, by order and cause (`anon_fault_fallback` is the
    /// sum over causes).
    pub fallback: [[u64; CAUSES]; ORDERS],
    /// Folios that writes to shared pages were copied into, by order.
    pub copy: [u64; ORDERS],
    /// Folios that left memory for a swap device, by order (`swpout`).
    pub swpout: [u64; ORDERS],
    /// Folios for which there was no run of slots, by order (`swpout_fallback`).
    pub swpout_fallback: [u64; ORDERS],
    /// Folios whose swap entries were mapped, by order (`swpin`).
    pub swpin: [u64; ORDERS],
}

impl Totals {
    /// The sum over `cpus`.
    pub fn of(cpus: &[Counters]) -> Self {
        let sum = |pick: &dyn Fn(&Counters) -> &Tally| {
            cpus.iter().map(|cpu| pick(cpu).load(Ordering::Relaxed)).sum()
        };
        let folios = |event: FolioEvent| {
            core::array::from_fn(|order| sum(&|cpu| &cpu.folios[event as usize][order]))
        };
        Self {
            events: core::array::from_fn(|at| sum(&|cpu| &cpu.events[at])),
            alloc: folios(FolioEvent::Alloc),
            fallback: core::array::from_fn(|order| {
                core::array::from_fn(|cause| sum(&|cpu| &cpu.fallback[order][cause]))
            }),
            copy: folios(FolioEvent::Copy),
            swpout: folios(FolioEvent::Swpout),
            swpout_fallback: folios(FolioEvent::SwpoutFallback),
            swpin: folios(FolioEvent::Swpin),
        }
    }

    /// How often `event` happened.
    pub fn event(&self, event: Event) -> u64 {
        self.events[event as usize]
    }
}

/// How many shards a space's counters have.
const SHARDS: usize = 4;

/// The counters of one space, in shards so that its threads do not share a cache line.
#[derive(Default)]
pub struct SpaceCounters([Shard; SHARDS]);

/// How many words a shard keeps for its CPUs beside the counters.
pub(crate) const SHARD_WORDS: usize = 7;

#[repr(align(128))]
#[derive(Default)]
struct Shard {
    /// Beside the first counter, whose cache line each fault for a page writes in any case.
    words: [AtomicU64; SHARD_WORDS],
    alloc: [Tally; ORDERS],
    fallback: [Tally; ORDERS],
}

impl SpaceCounters {
    /// The words that the shard of `cpu` keeps; the space knows what they say.
    #[inline]
    pub(crate) fn words(&self, cpu: usize) -> &[AtomicU64; SHARD_WORDS] {
        &self.0[cpu % SHARDS].words
    }

    #[inline]
    pub(crate) fn alloc(&self, cpu: usize, order: Order, folios: u64) {
        self.0[cpu % SHARDS].alloc[order.index()].fetch_add(folios, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn fallback(&self, cpu: usize, order: Order) {
        self.0[cpu % SHARDS].fallback[order.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Folios that faults in this space mapped, by order.
    pub fn allocs(&self) -> [u64; ORDERS] {
        core::array::from_fn(|at| self.0.iter().map(|s| s.alloc[at].load(Ordering::Relaxed)).sum())
    }

    /// Faults in this space that wanted an order and got less.
    pub fn fallbacks(&self) -> [u64; ORDERS] {
        core::array::from_fn(|at| {
            self.0.iter().map(|s| s.fallback[at].load(Ordering::Relaxed)).sum()
        })
    }
}
