//! Collapse in the background: the library's scan, as often as Linux's settings for khugepaged say.
//!
//! There is no thread for it. A CPU that has nothing to do, or comes by with a tick, does a part
//! when it is due, and is woken for it. Where no size is wanted at all, nothing is ever due.

use core::sync::atomic::{AtomicU64, Ordering};

use quire::space::{Advice, OptOut};
use quire::{ScanCursor, ScanLimits};
use spin::mutex::SpinMutex;

use super::queue;
use crate::disk;
use crate::isa;
use crate::memory::{Everyone, mm};

/// A number that can be set.
pub(crate) struct Value {
    pub(crate) value: AtomicU64,
    /// The least and the most that it may be.
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Value {
    pub(crate) const fn between(value: u64, least: u64, most: u64) -> Self {
        Self { value: AtomicU64::new(value), least, most }
    }

    fn get(&self) -> u64 {
        self.value.load(Ordering::Relaxed)
    }
}

/// The settings, with Linux's names, defaults and bounds.
pub(crate) struct Settings {
    pub(crate) pages_to_scan: Value,
    pub(crate) scan_sleep_millisecs: Value,
    pub(crate) alloc_sleep_millisecs: Value,
    pub(crate) max_ptes_none: Value,
    pub(crate) max_ptes_swap: Value,
    pub(crate) max_ptes_shared: Value,
    pub(crate) defrag: Value,
}

pub(crate) static SETTINGS: Settings = Settings {
    pages_to_scan: Value::between(4096, 1, u32::MAX as u64),
    scan_sleep_millisecs: Value::between(10_000, 0, u32::MAX as u64),
    alloc_sleep_millisecs: Value::between(60_000, 0, u32::MAX as u64),
    max_ptes_none: Value::between(511, 0, 511),
    max_ptes_swap: Value::between(64, 0, 511),
    max_ptes_shared: Value::between(256, 0, 511),
    defrag: Value::between(1, 0, 1),
};

/// How often it has been through all spaces, and how many folios it made.
pub(crate) static ROUNDS: AtomicU64 = AtomicU64::new(0);
pub(crate) static COLLAPSED: AtomicU64 = AtomicU64::new(0);

/// When it goes on, and where.
static DUE: AtomicU64 = AtomicU64::new(0);
static CURSOR: SpinMutex<Option<ScanCursor>> = SpinMutex::new(None);

/// It goes on at once: a setting has changed.
pub(crate) fn hasten() {
    DUE.store(0, Ordering::Relaxed);
    queue::nudge();
}

/// Does a part if one is due; when the next is, if any ever.
pub(crate) fn background() -> Option<u64> {
    if mm().policy().candidates(Advice::Huge, OptOut::No).is_empty() {
        return None;
    }
    let due = DUE.load(Ordering::Relaxed);
    if isa::now() < due {
        return Some(due);
    }
    // The owner of the lock decides when it goes on.
    let mut cursor = CURSOR.try_lock()?;
    let due = isa::now() + scan(cursor.get_or_insert_default()) * 1_000_000;
    DUE.store(due, Ordering::Relaxed);
    Some(due)
}

/// Does a part; after how many milliseconds it goes on.
fn scan(cursor: &mut ScanCursor) -> u64 {
    let settings = &SETTINGS;
    let limits = ScanLimits {
        none: settings.max_ptes_none.get(),
        swapped: settings.max_ptes_swap.get(),
        shared: settings.max_ptes_shared.get(),
        hard: settings.defrag.get() != 0,
    };
    let done = mm().reclaim().scan(cursor, settings.pages_to_scan.get(), &limits, &Everyone);
    COLLAPSED.fetch_add(done.made, Ordering::Relaxed);
    ROUNDS.fetch_add(done.is_round.into(), Ordering::Relaxed);
    if let Some(reads) = done.reads {
        disk::start_ahead(reads);
    }
    match done.starved {
        true => settings.alloc_sleep_millisecs.get(),
        false => settings.scan_sleep_millisecs.get(),
    }
}
