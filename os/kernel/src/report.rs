//! The report at power-off: the memory manager's work, by size.

use quire::fault::Cause;
use quire::stats::{Event, Totals};

use crate::memory::{PAGE_SHIFT, mm};

/// The events of the report, in this order.
const EVENTS: [Event; 12] = [
    Event::Fault,
    Event::EntriesMade,
    Event::EntriesChanged,
    Event::EntriesCleared,
    Event::EntriesForked,
    Event::Fold,
    Event::Refold,
    Event::Unfold,
    Event::Flush,
    Event::Invalidations,
    Event::BytesCleared,
    Event::CowReuse,
];

/// Prints the folio report: faults and copies by size, fallbacks with their causes, and the cost in
/// entries, invalidations and bytes.
pub(crate) fn print() {
    let totals = mm().totals();
    log!("folios, by size: faults, copies, fallbacks and why");
    for order in 0..totals.alloc.len() {
        line(&totals, order);
    }
    for event in EVENTS {
        log!("  {:<20} {:>12}", event.name(), totals.event(event));
    }
}

/// One size, if anything happened with it.
fn line(totals: &Totals, order: usize) {
    let (alloc, copy, fallback) =
        (totals.alloc[order], totals.copy[order], &totals.fallback[order]);
    // A size that the policy excludes is not worth a line.
    let causes = Cause::ALL.into_iter().filter(|cause| *cause != Cause::Policy);
    let told = causes.map(|cause| (cause.name(), fallback[cause as usize]));
    let mut told = told.filter(|(_, count)| *count > 0);
    let first = told.next();
    if alloc + copy == 0 && first.is_none() {
        return;
    }
    let kib = 1_u64 << (order + PAGE_SHIFT as usize - 10);
    let (name, count) = first.unwrap_or(("", 0));
    match count {
        0 => log!("  {kib:>8} kB {alloc:>10} {copy:>10}"),
        _ => log!("  {kib:>8} kB {alloc:>10} {copy:>10} {count:>10} {name}"),
    }
    for (name, count) in told {
        log!("  {:>34} {count:>10} {name}", "");
    }
}
