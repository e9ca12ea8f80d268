//! Compaction: for a fault that lacks a large folio, in the background, and by hand.
//!
//! As for collapse there is no thread: a CPU that has nothing to do, or comes by with a tick, does
//! a part when it is due.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quire::Compaction;
use quire::limits::GROUP_ORDER;
use quire::units::Order;

use crate::isa;
use crate::memory::{Everyone, mm};

/// The most pages that move for one fault: a few hundred microseconds.
const FOR_A_FAULT: u64 = 512;
/// The most that move in one part of the background's work, and how long it rests.
const PART: u64 = 512;
const REST_NS: u64 = 500_000_000;

/// How many slots there are for pages on the way: enough for a batch of folios of 64 KiB, and for
/// one of 2 MiB.
const SLOTS: u64 = 1024;

/// `compaction_proactiveness`: which share of the free memory the background keeps in blocks of
/// 2 MiB, per cent. Linux's default is 20.
pub(crate) static PROACTIVENESS: AtomicU32 = AtomicU32::new(20);

static DUE: AtomicU64 = AtomicU64::new(0);

/// `extfrag_threshold` at boot, as on Linux: faults ask where memory is in pieces rather than
/// short.
const EXTFRAG: u32 = 500;

/// Lets folios move, and faults ask for it.
pub(crate) fn init() {
    // The number is within the range.
    let _ = mm().policy().set_extfrag_threshold(EXTFRAG);
    match mm().paging().moves_on(SLOTS) {
        Ok(_) => mm().reclaim().answer_faults(true),
        Err(error) => log!("no folio can move: {error}"),
    }
}

/// Makes room for a folio that a fault lacks.
pub(crate) fn for_fault(order: Order) {
    mm().reclaim().compact_for(order, FOR_A_FAULT, &Everyone, &mut || {});
}

/// Makes as many blocks as possible, whatever that costs: `compact_memory`.
pub(crate) fn all() {
    let goal = Compaction { order: GROUP_ORDER, blocks: u64::MAX, pages: u64::MAX };
    mm().reclaim().compact(goal, &Everyone, &mut || {});
}

/// Does a part if one is due.
pub(crate) fn background() {
    let (now, due) = (isa::now(), DUE.load(Ordering::Relaxed));
    let next = now + REST_NS;
    let is_due = now >= due;
    if is_due && DUE.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        let keep = PROACTIVENESS.load(Ordering::Relaxed);
        mm().reclaim().compact_ahead(keep, PART, &Everyone, &mut || {});
    }
}
