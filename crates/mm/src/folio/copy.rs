//! Copies a folio for a caller that is about to write a page of it (row A7): in the order in which
//! folios are [cleared](super::clear), with the wanted page last, and with a result for memory that
//! fails.

use core::ops::Range;

use quire_hw::{FrameRun, Hardware, Poisoned};
use quire_units::FrameSpan;

use super::clear::{Pace, extents, units};

/// Copies the frames `from` over the frames of `to`, which are as many. The neighbourhood of page
/// `wanted` (counted from the first) is last. Calls `resched` between any two units, and never in
/// the middle of one.
///
/// # Errors
/// The frame whose memory failed. Part of `to` is overwritten then, and no program may see it.
pub fn copy<H: Hardware>(
    hw: &H,
    to: &FrameRun,
    from: FrameSpan,
    wanted: u64,
    pace: Pace,
    resched: impl FnMut(),
) -> Result<(), Poisoned> {
    debug_assert_eq!(to.count(), from.count);
    if from.count == 1 {
        return hw.copy(to, 0, from);
    }
    let pieces = extents(from.count, wanted).into_iter();
    let pieces = pieces.map(|at| (at.start, part_of(from, at)));
    copy_pieces(hw, to, pieces, pace, resched)
}

/// Copies pieces over the frames of `to`, each to its own offset, in units as [`copy`] does.
///
/// # Errors
/// As for [`copy`].
pub(crate) fn copy_pieces<H: Hardware>(
    hw: &H,
    to: &FrameRun,
    pieces: impl Iterator<Item = (u64, FrameSpan)>,
    pace: Pace,
    mut resched: impl FnMut(),
) -> Result<(), Poisoned> {
    let mut first = true;
    for (at, from) in pieces {
        for unit in units(0..from.count, pace.unit_pages) {
            if !core::mem::take(&mut first) {
                resched();
            }
            hw.copy(to, at + unit.start, part_of(from, unit))?;
        }
    }
    Ok(())
}

/// The frames `at`, counted from the first of `frames`.
fn part_of(frames: FrameSpan, at: Range<u64>) -> FrameSpan {
    FrameSpan::new(frames.start.add(at.start), at.end - at.start)
}
