//! Groups that are being emptied (row E7): which one, its free parts, and room for the rest.
//!
//! ```text
//!   before     | m . m . | m m m m | m m . m |
//!   isolate    | m i m i | m m m m | m m . m |    no allocation gets an `i`
//!   move       | i i i . | m m m m | m m m m |    into the smallest free part that fits
//!   at last    |  free   | m m m m | m m m m |    a free group is for any use again
//! ```
//!
//! Each zone remembers a few groups that are cheap to empty, and a place where the search for
//! others goes on: see `search`.

use quire_hw::FrameRun;
use quire_units::{FrameSpan, Order, Pfn};

use super::Phys;
use super::buddy::free_block;
use super::meta::{Kind, Ownerless};
use super::mobility::Mobility;
use super::search::WINDOW;
use super::zone::{Block, Zone};
use crate::limits::GROUP_ORDER;
use crate::sync::spin_loop;

impl Phys<'_> {
    /// Looks at some groups of movable frames, and returns how many it passed. `cost` says what
    /// emptying a group costs; `None` for a group that cannot be emptied now. With `remember`,
    /// zones look again only at those that may be the cheapest, and remember what they cost.
    /// Otherwise the search of a zone ends when it has looked at as many groups as the best costs.
    pub(crate) fn search(&self, remember: bool, cost: &mut dyn FnMut(Pfn) -> Option<u64>) -> u64 {
        let mut passed = 0;
        for zone in self.zones {
            let groups = zone.lists.lock().groups;
            passed += WINDOW.min(groups.count / GROUP_ORDER.pages());
            let mut cost = |group: Pfn| {
                let movable = self.meta.mobility(group) == Mobility::Movable;
                movable.then(|| cost(group)).flatten()
            };
            let looks = zone.search.lock().advance(groups);
            if remember {
                let cheap = looks.cheapest(&mut cost);
                zone.search.lock().cheap = cheap;
            } else {
                let mut best = u64::MAX;
                for (group, looked) in looks.all().zip(1..) {
                    best = best.min(cost(group).unwrap_or(u64::MAX));
                    if best <= looked {
                        break;
                    }
                }
            }
        }
        passed
    }

    /// Leaves out of the next searches a group that could not be emptied.
    pub(crate) fn refuse(&self, group: Pfn) {
        if let Some(zone) = self.zone_of(group) {
            zone.search.lock().refuse(group);
        }
    }

    /// Lets searches look at those groups again.
    pub(crate) fn forgive(&self) {
        self.zones.iter().for_each(|zone| zone.search.lock().forgive());
    }

    /// How many whole groups there are.
    pub(crate) fn groups(&self) -> u64 {
        let groups = self.zones.iter().map(|zone| zone.lists.lock().groups.count);
        groups.sum::<u64>() / GROUP_ORDER.pages()
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
        // The first block may begin before it.
        let block_at = |at: Pfn| {
            if at == span.start {
                return free_block(&self.meta, at);
            }
            Block::recorded(at, self.meta.slot(at)?.state())
        };
        let (mut at, mut free) = (span.start, 0);
        while let Some(slot) = self.meta.slot(at).filter(|_| at < span.end()) {
            let state = slot.state();
            let used = if state.kind() == Kind::Folio { 1 << state.order() } else { 1 };
            let next = block_at(at).map(|block| block.span().end().min(span.end()));
            free += next.map_or(0, |next| next.offset_from(at));
            at = next.unwrap_or(at.add(used));
        }
        free
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

    /// Whether a pool of reserved folios has a group.
    pub(crate) fn is_reserved(&self, group: Pfn) -> bool {
        let mobility = |zone: &Zone| zone.lists.lock().mobility(&self.meta, group);
        self.zone_of(group).is_some_and(|zone| mobility(zone).is_reserved())
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

    /// The largest free part of a movable group.
    pub(crate) fn largest_packed(&self) -> Option<Order> {
        let part = GROUP_ORDER.down()?;
        let largest =
            |zone: &Zone| zone.lists.lock().largest_within(Mobility::Movable, Order::ZERO, part);
        self.zones.iter().filter_map(largest).max()
    }

    fn zone_of(&self, frame: Pfn) -> Option<&Zone> {
        self.zones.iter().find(|zone| zone.span.contains(frame))
    }
}
