//! Groups that are being emptied (row E7): which one, its free parts, and room for the rest.
//!
//! ```text
//!   before     | m . m . | m m m m | m m . m |
//!   isolate    | m i m i | m m m m | m m . m |    no allocation gets an `i`
//!   move       | i i i . | m m m m | m m m m |    into the smallest free part that fits
//!   at last    |  free   | m m m m | m m m m |    a free group is for any use again
//! ```
//!
//! The lists are the summary from which a group is chosen: a group with a large free part has few
//! frames in use. Of the first few such groups the one with the most free frames wins.

use arrayvec::ArrayVec;
use quire_hw::FrameRun;
use quire_units::{FrameSpan, Order, Pfn};

use super::Phys;
use super::list::{END, next};
use super::meta::{Kind, Meta, Ownerless};
use super::mobility::Mobility;
use super::zone::{Block, Lists, Zone};
use crate::limits::GROUP_ORDER;
use crate::sync::spin_loop;

/// How many blocks are compared, and how many free parts are looked at for them.
const LOOKS: usize = 16;
const PARTS: usize = 64;

/// The last round for which groups are given up; then the numbers begin again.
const ROUND_LAST: u32 = 15;

/// A block that is not free, but in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub(crate) block: FrameSpan,
    /// How many of its frames are free.
    pub(crate) free: u64,
}

impl Candidate {
    /// The first frame of its group.
    pub(crate) fn group(&self) -> Pfn {
        self.block.start.align_down(GROUP_ORDER.pages())
    }
}

impl Phys<'_> {
    /// The block of `order`, at most a group, with the most free frames, as far as the lists tell.
    /// `None` when there is none, or the groups of all were [given up](Self::give_up): then the
    /// next call looks at them again.
    pub(crate) fn emptiest(&self, order: Order) -> Option<Candidate> {
        let mut best: Option<Candidate> = None;
        for zone in self.zones {
            let mut found = ArrayVec::<FrameSpan, LOOKS>::new();
            let skipped = zone.lists.lock().parts(&self.meta, order, &mut found);
            if found.is_empty() && skipped {
                let mut lists = zone.lists.lock();
                lists.round = lists.round % ROUND_LAST + 1;
            }
            for block in found {
                let free = self.free_in(block);
                if best.is_none_or(|best| free > best.free) {
                    best = Some(Candidate { block, free });
                }
            }
        }
        best
    }

    /// Whether at least `blocks` blocks of `order` are free in groups of movable frames, parts of
    /// larger ones included, those in the CPUs' caches excluded.
    pub(crate) fn has_blocks(&self, order: Order, blocks: u64) -> bool {
        let counts = self.free_by_mobility(Mobility::Movable);
        let all = counts.iter().zip(0u8..).skip(order.index());
        all.map(|(count, at)| count << (at - order.get())).sum::<u64>() >= blocks
    }

    /// How many frames of `span` are free just now, those in the CPUs' caches excluded.
    pub(crate) fn free_in(&self, span: FrameSpan) -> u64 {
        let (mut at, mut free) = (span.start, 0);
        while let Some(slot) = self.meta.slot(at).filter(|_| at < span.end()) {
            let state = slot.state();
            let block = Block::recorded(at, state);
            free += block.map_or(0, |block| block.order.pages());
            let used = if state.kind() == Kind::Folio { 1 << state.order() } else { 1 };
            at = block.map_or(at.add(used), |block| block.span().end());
        }
        free.min(span.count)
    }

    /// Lets no allocation have the free parts of a movable group any more; whether it could. The
    /// caller [ends](Self::end_isolation) that.
    pub(crate) fn isolate(&self, group: Pfn) -> bool {
        self.zone_of(group).is_some_and(|zone| {
            let mut lists = zone.lists.lock();
            lists.groups.contains(group)
                && lists.mobility(&self.meta, group) == Mobility::Movable
                && lists.take_over(&self.meta, group, Mobility::Movable, Mobility::Isolated)
        })
    }

    /// Lets allocations have the free parts of an isolated group again.
    pub(crate) fn end_isolation(&self, group: Pfn) {
        let Some(zone) = self.zone_of(group) else { return };
        let is_over = || {
            let (mut lists, meta) = (zone.lists.lock(), &self.meta);
            // A group that was free in between may have another use by now.
            lists.mobility(meta, group) != Mobility::Isolated
                || lists.take_over(meta, group, Mobility::Isolated, Mobility::Movable)
        };
        while !is_over() {
            spin_loop();
        }
    }

    /// Leaves a group alone for the rest of the round.
    pub(crate) fn give_up(&self, group: Pfn) {
        if let Some(zone) = self.zone_of(group) {
            let lists = zone.lists.lock();
            self.meta.give_up(group, lists.round);
        }
    }

    /// Takes a block of `order` for a folio that moves: out of the smallest free part of a movable
    /// group that fits, and never out of a free group.
    pub(crate) fn alloc_packed(&self, order: Order) -> Option<FrameRun> {
        if self.plan.strikes(order) {
            return None;
        }
        self.zones.iter().rev().find_map(|zone| {
            let mut lists = zone.lists.lock();
            let from = lists.smallest_from(Mobility::Movable, order)?;
            let part =
                (from < GROUP_ORDER).then(|| lists.take(&self.meta, Mobility::Movable, order));
            let block = part.flatten()?;
            Some(self.meta.mint(Ownerless { span: block.span(), zeroed: block.zeroed }))
        })
    }

    fn zone_of(&self, frame: Pfn) -> Option<&Zone> {
        self.zones.iter().find(|zone| zone.span.contains(frame))
    }
}

impl Lists {
    /// Adds blocks of `order` that are free in part to `found`, those with the largest free parts
    /// first. Returns whether some were left out since their group was given up.
    fn parts(&self, meta: &Meta<'_>, order: Order, found: &mut ArrayVec<FrameSpan, LOOKS>) -> bool {
        let (mut skipped, mut looks) = (false, PARTS);
        for part in (0..order.get()).rev().map(Order::new) {
            let mut at = self.first(Mobility::Movable, part).unwrap_or(END);
            while at != END && looks > 0 && !found.is_full() {
                let start = meta.frame(at).align_down(order.pages());
                let (block, group) =
                    (FrameSpan::new(start, order.pages()), start.align_down(GROUP_ORDER.pages()));
                // RAM may begin in the middle of a group, which has no slot for its mark then.
                if self.groups.contains(group) {
                    if meta.given_up(group) == self.round {
                        skipped = true;
                    } else if !found.contains(&block) {
                        found.push(block);
                    }
                }
                at = next(meta.by_index(at));
                looks -= 1;
            }
        }
        skipped
    }
}
