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
    resched: &mut dyn FnMut(),
) -> Result<(), Poisoned> {
    debug_assert_eq!(to.count(), from.count);
    if from.count == 1 {
        return hw.copy(to, 0, from);
    }
    let mut copy = Copy { hw, to, pace, resched, begun: false };
    extents(from.count, wanted)
        .into_iter()
        .try_for_each(|at| copy.piece(at.start, part_of(from, at)))
}

/// Copies pieces over the frames of `to`, one after the other, in units as [`copy`] does.
///
/// # Errors
/// As for [`copy`].
pub(crate) fn copy_pieces<H: Hardware>(
    hw: &H,
    to: &FrameRun,
    mut pieces: impl Iterator<Item = FrameSpan>,
    pace: Pace,
    resched: &mut dyn FnMut(),
) -> Result<(), Poisoned> {
    let (mut copy, mut at) = (Copy { hw, to, pace, resched, begun: false }, 0);
    pieces.try_for_each(|from| {
        let start = at;
        at += from.count;
        copy.piece(start, from)
    })
}

/// A copy under way.
struct Copy<'a, H> {
    hw: &'a H,
    to: &'a FrameRun,
    pace: Pace,
    resched: &'a mut dyn FnMut(),
    begun: bool,
}

impl<H: Hardware> Copy<'_, H> {
    /// Copies `from` to the frames that begin `at` frames behind the first.
    #[inline(never)]
    fn piece(&mut self, at: u64, from: FrameSpan) -> Result<(), Poisoned> {
        for unit in units(0..from.count, self.pace.unit_pages) {
            if core::mem::replace(&mut self.begun, true) {
                (self.resched)();
            }
            self.hw.copy(self.to, at + unit.start, part_of(from, unit))?;
        }
        Ok(())
    }
}

/// The frames `at`, counted from the first of `frames`.
fn part_of(frames: FrameSpan, at: Range<u64>) -> FrameSpan {
    FrameSpan::new(frames.start.add(at.start), at.end - at.start)
}
