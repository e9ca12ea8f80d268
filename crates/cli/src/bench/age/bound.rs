//! The off-line bound: the fewest pages that any mover could move for some free blocks.
//!
//! A block is free when each page in use there has moved out, or was freed. A page that moves out
//! of one block empties no other, and blocks do not overlap. So a mover that makes `n` blocks moves
//! at least the pages in use of `n` blocks, and the fewest where these are the `n` emptiest that
//! hold nothing that stays. Only where all pages find room in other blocks can it be reached, so
//! this is a bound and not a plan.

use quire::FrameUse;
use quire_arch::Arch;
use quire_sim::system::HostedMm;
use quire_units::Order;

/// The pages in use of each block of `order` that holds some and none that stays, the fewest first.
/// No cache of a CPU holds frames meanwhile.
pub(super) fn emptiable<A: Arch>(mm: &HostedMm<'_, '_, A>, order: Order) -> Vec<u64> {
    let all = mm.phys().span();
    let mut found = Vec::new();
    let (mut at, end) = (all.start, all.end());
    while at < end {
        let next = at.align_down(order.pages()).add(order.pages()).min(end);
        let (mut used, mut stays) = (0, false);
        while at < next {
            let Some(info) = mm.frame_info(at) else { break };
            let after = info.head.add(info.order.pages()).max(at.add(1)).min(next);
            match info.used {
                FrameUse::Free => {}
                FrameUse::Folio(counts) if counts.pins == 0 => used += after.offset_from(at),
                _ => stays = true,
            }
            at = after;
        }
        at = next;
        if used > 0 && !stays {
            found.push(used);
        }
    }
    found.sort_unstable();
    found
}

/// The fewest pages that make `blocks` of them free; `None` where there are not as many.
pub(super) fn fewest(emptiable: &[u64], blocks: u64) -> Option<u64> {
    Some(emptiable.get(..usize::try_from(blocks).ok()?)?.iter().sum())
}
