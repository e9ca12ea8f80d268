//! Zeroing a folio around the page that faulted (rows A2 to A4).
//!
//! A folio that fits into the near caches is one extent. In a larger one, the program is about to
//! use the page on which it faulted, so that page and its neighbours are cleared last and through
//! the caches; the pages far away are cleared before, as two extents, each as long as possible:
//!
//! ```text
//!   page 0                     fault                              n
//!   |------- 2nd: left ---------|··3rd··|-------- 1st: right ------|
//!                               [f-2, f+2]
//! ```
//!
//! An extent is handed to the hardware whole, since some CPUs skip reading the old lines only when
//! one instruction covers more than the last-level cache. Where the kernel cannot be preempted, it
//! is cut into units, which follow from a latency budget and may be large (32 MiB by default).

use core::ops::Range;

use quire_hw::{FrameRun, Hardware, Reuse};

/// How many pages on each side of the faulting one belong to its neighbourhood.
pub const NEIGHBOURHOOD: u64 = 2;

/// The extents of a folio of `pages` pages in the order in which they are cleared: right of the
/// neighbourhood of page `fault`, left of it, the neighbourhood. They are disjoint, and together
/// they are the whole folio; the first two may be empty (I1). A `fault` beyond the folio counts as
/// its last page.
pub fn extents(pages: u64, fault: u64) -> [Range<u64>; 3] {
    let fault = fault.min(pages.saturating_sub(1));
    let start = fault.saturating_sub(NEIGHBOURHOOD);
    let end = (fault + NEIGHBOURHOOD + 1).min(pages);
    [end..pages, 0..start, start..end]
}

/// The extents in which a folio of `pages` pages is cleared for a program that touches page
/// `fault`, where `near_pages` fit into the near caches. Empty ones are passed.
///
/// A folio that fits is one ascending extent: whatever the order, all of it is near afterwards, and
/// the way to clear it is chosen by its total length and not by the lengths of its parts. A larger
/// one goes in the [three ranges](extents), so that the last one, which the program reads first, is
/// near.
pub fn plan(pages: u64, fault: u64, near_pages: u64) -> [Range<u64>; 3] {
    if pages <= near_pages { [0..pages, pages..pages, pages..pages] } else { extents(pages, fault) }
}

/// Cuts an extent into ascending units of at most `unit` pages; the last may be shorter.
pub fn units(extent: Range<u64>, unit: u64) -> impl Iterator<Item = Range<u64>> {
    let unit = unit.max(1);
    let Range { mut start, end } = extent;
    core::iter::from_fn(move || {
        let next = start.saturating_add(unit).min(end);
        let piece = (start < end).then_some(start..next);
        start = next;
        piece
    })
}

/// The limits for clearing a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// How many pages may be cleared between two points at which another task may run.
    pub unit_pages: u64,
    /// How many pages fit into the near caches: a larger folio bypasses them, except for the
    /// neighbourhood of the fault.
    pub near_pages: u64,
}

impl Pace {
    /// The limits from the profile of `hw`, in pages of 2^`page_shift` bytes.
    pub fn of<H: Hardware>(hw: &H, page_shift: u32) -> Self {
        let profile = hw.profile();
        Self {
            unit_pages: (profile.clear_unit_bytes >> page_shift).max(1),
            near_pages: profile.near_cache_bytes >> page_shift,
        }
    }
}

/// Zeroes every page of `run`; of one that exceeds the near caches, the neighbourhood of page
/// `fault` (counted from its first) last.
/// Calls `resched` between any two units, and never in the middle of one.
///
/// A run known to be zero is not written (A5).
#[inline]
pub fn zero<H: Hardware>(hw: &H, run: &FrameRun, fault: u64, pace: Pace, resched: impl FnMut()) {
    match run.count() {
        _ if run.is_zeroed() => {}
        1 => hw.clear(run, 0..1, Reuse::Soon),
        _ => zero_around(hw, run, fault, pace, resched),
    }
}

/// Zeroes a run of several pages, as [`zero`] does.
#[inline(never)]
fn zero_around<H: Hardware>(
    hw: &H,
    run: &FrameRun,
    fault: u64,
    pace: Pace,
    mut resched: impl FnMut(),
) {
    if run.count() <= pace.near_pages.min(pace.unit_pages) {
        // One extent of one unit.
        return hw.clear(run, 0..run.count(), Reuse::Soon);
    }
    let far = if run.count() > pace.near_pages { Reuse::Later } else { Reuse::Soon };
    let [right, left, near] = plan(run.count(), fault, pace.near_pages);
    let mut first = true;
    for (extent, reuse) in [(right, far), (left, far), (near, Reuse::Soon)] {
        for unit in units(extent, pace.unit_pages) {
            if !core::mem::take(&mut first) {
                resched();
            }
            hw.clear(run, unit, reuse);
        }
    }
}
