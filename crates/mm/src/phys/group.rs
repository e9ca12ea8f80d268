//! Groups: blocks of [`GROUP_ORDER`] that hold frames of one mobility.
//!
//! A frame that cannot move spoils every larger block around it. So frames that stay are taken from
//! groups of their own, and the other groups can be emptied by moving what is in them:
//!
//! ```text
//!   | U U . U | . . U . | m m . m | m . . m | . . . . | m . m m |
//!     unmovable           movable              free      movable
//! ```
//!
//! A group gets its mobility when a part of it is taken while all of it is free; a free group is
//! for any use. Where a mobility has no free frame and no group is free, it *borrows*: frames that
//! cannot move take over a movable group, all of whose free frames are for them then, so that the
//! next ones spoil no other; movable frames are lent a part of a group, which keeps its mobility.
//!
//! The record is two bits in the lock word of the group's first frame. It changes under the zone's
//! lock. A group that reaches out of its zone is movable for ever.

use quire_units::{FrameSpan, Order, Pfn};

use super::meta::Meta;
use super::mobility::Mobility;
use super::zone::{Block, Lists};
use crate::limits::GROUP_ORDER;

impl Lists {
    /// Takes a block of an order from `least` to `most` out of a group of another mobility. Frames
    /// that cannot move take the largest that there is, and its group.
    #[cold]
    pub(super) fn borrow(
        &mut self,
        meta: &Meta<'_>,
        mobility: Mobility,
        least: Order,
        most: Order,
    ) -> Option<Block> {
        let part = GROUP_ORDER.down()?;
        let moves = mobility == Mobility::Movable;
        let (lender, order) = mobility.lenders().into_iter().find_map(|lender| {
            let order = match moves {
                true => self.smallest_from(lender, least),
                false => self.largest_within(lender, least, part),
            };
            Some((lender, order?))
        })?;
        let block = self.pop(meta, lender, order)?;
        self.borrowed.blocks += 1;
        if !moves {
            let group = block.at.align_down(GROUP_ORDER.pages());
            self.borrowed.groups += u64::from(self.take_over(meta, group, lender, mobility));
        }
        Some(if block.order > most { self.cut(meta, block, most, mobility) } else { block })
    }

    /// Gives the group from `start` on, with all its free parts, to another mobility, unless its
    /// first frame is locked; whether it could.
    pub(super) fn take_over(
        &mut self,
        meta: &Meta<'_>,
        start: Pfn,
        from: Mobility,
        to: Mobility,
    ) -> bool {
        if !self.groups.contains(start) || !meta.try_set_mobility(start, to) {
            return false;
        }
        let group = FrameSpan::new(start, GROUP_ORDER.pages());
        let mut at = start;
        while at < group.end() {
            let free = Block::recorded(at, meta.at(at).state());
            // A free group is in the list for any use.
            if let Some(block) = free.filter(|block| block.order < GROUP_ORDER) {
                self.remove_from(meta, from, block);
                self.push_to(meta, to, block);
            }
            at = free.map_or(at.add(1), |block| block.span().end());
        }
        true
    }
}
