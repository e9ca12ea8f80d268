//! A zone: a span of frames with a lock of its own and one list of free blocks for each order.
//!
//! A block's state becomes `Free`, and stops being `Free`, only under the lock of its zone: a CPU
//! that holds the lock and reads `Free` knows that the block is in a list of this zone.

use quire_units::{FrameSpan, Order, Pfn};

use super::list::List;
use super::meta::{Kind, Meta, State};
use super::mobility::{Borrowed, MOBILITIES, Mobility, PLAIN, groups_of};
use super::search::Search;
use crate::limits::{GROUP_ORDER, ORDERS};
use crate::sync::Lock;

/// Flag of a free block: every byte of it is zero.
const ZEROED: u32 = 1;

/// A naturally aligned block of frames that is free, or is about to be freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub(super) at: Pfn,
    pub(super) order: Order,
    pub(super) zeroed: bool,
}

impl Block {
    #[inline]
    pub(super) fn span(self) -> FrameSpan {
        FrameSpan::new(self.at, self.order.pages())
    }

    /// The free block that `state` records for the frame `at`; `None` if it records another kind.
    #[inline]
    pub(super) fn recorded(at: Pfn, state: State) -> Option<Self> {
        let zeroed = state.flags() & ZEROED != 0;
        (state.kind() == Kind::Free).then(|| Self { at, order: Order::new(state.order()), zeroed })
    }

    #[inline]
    fn state(self) -> State {
        State::new(Kind::Free, self.order.get()).with_flags(self.zeroed as u32 * ZEROED)
    }
}

/// Frames for one use, such as frames that old devices can reach, under one lock.
///
/// A value of the embedder's, as [`Parts`](crate::Parts).
#[repr(align(128))]
pub struct Zone {
    pub(super) span: FrameSpan,
    pub(super) lists: Lock<Lists>,
    /// The groups that compaction looks at next.
    pub(super) search: Lock<Search>,
}

crate::sync::names!([] Zone, "phys.zone" { span, lists, search });

impl Zone {
    /// A zone of these frames, of which none is free yet. It may have holes: frames that are never
    /// [added](crate::Mm::add).
    #[cfg(not(loom))]
    pub const fn new(span: FrameSpan) -> Self {
        Self { span, lists: Lock::new(Lists::new(span)), search: Lock::new(Search::new()) }
    }

    /// A zone of these frames, of which none is free yet.
    #[cfg(loom)]
    pub fn new(span: FrameSpan) -> Self {
        Self { span, lists: Lock::new(Lists::new(span)), search: Lock::new(Search::new()) }
    }

    /// Empties its lists, and forgets what a search has seen.
    pub(super) fn reset(&self) {
        self.lists.lock().reset();
        *self.search.lock() = Search::new();
    }

    /// Its frames.
    pub fn span(&self) -> FrameSpan {
        self.span
    }

    /// The first frame of this zone that is in the group of `frame`.
    pub(super) fn group_start(&self, frame: Pfn) -> Pfn {
        frame.align_down(GROUP_ORDER.pages()).max(self.span.start)
    }

    /// The frames of `span` that belong to this zone; an empty span when there are none.
    #[inline]
    pub(super) fn part(&self, span: FrameSpan) -> FrameSpan {
        let start = self.span.start.max(span.start);
        let end = self.span.end().min(span.end()).max(start);
        FrameSpan::new(start, end.offset_from(start))
    }
}

/// The free blocks of a zone, by mobility and order.
pub(super) struct Lists {
    lists: [[List; ORDERS]; MOBILITIES],
    /// Bit `k` is set while the list of order `k` has a block.
    filled: [u32; MOBILITIES],
    blocks: [[u32; ORDERS]; MOBILITIES],
    /// The frames of the zone's whole groups.
    pub(super) groups: FrameSpan,
    pub(super) borrowed: Borrowed,
}

impl Lists {
    const fn new(zone: FrameSpan) -> Self {
        Self {
            lists: [[List::EMPTY; ORDERS]; MOBILITIES],
            filled: [0; MOBILITIES],
            blocks: [[0; ORDERS]; MOBILITIES],
            groups: groups_of(zone),
            borrowed: Borrowed { blocks: 0, groups: 0 },
        }
    }

    /// Empties them, in place: they are large.
    pub(super) fn reset(&mut self) {
        self.lists.iter_mut().for_each(|of| of.fill(List::EMPTY));
        self.blocks.iter_mut().for_each(|of| of.fill(0));
        self.filled = [0; MOBILITIES];
        self.borrowed = Borrowed::default();
    }

    /// The mobility of the group that holds `frame`, a frame of this zone.
    #[inline]
    pub(super) fn mobility(&self, meta: &Meta<'_>, frame: Pfn) -> Mobility {
        let group = frame.align_down(GROUP_ORDER.pages());
        if self.groups.contains(group) { meta.mobility(group) } else { Mobility::Movable }
    }

    /// The mobility in whose list a free `block` is. Free groups, and larger blocks, are for any
    /// use, and in the first one's, except those of a pool.
    #[inline]
    pub(super) fn listed(&self, meta: &Meta<'_>, block: Block) -> Mobility {
        let own = self.mobility(meta, block.at);
        let is_part = block.order < GROUP_ORDER;
        if is_part || own.is_reserved() { own } else { Mobility::Movable }
    }

    /// Records that the groups of `block`, which are in no list, are for `mobility`. A group whose
    /// first frame is locked keeps its own.
    #[inline]
    pub(super) fn dedicate(&self, meta: &Meta<'_>, block: Block, mobility: Mobility) {
        let groups = 1 << (block.order.get() - GROUP_ORDER.get());
        for at in (0..groups).map(|group| block.at.add(group << GROUP_ORDER.get())) {
            if self.groups.contains(at) && meta.mobility(at) != mobility {
                meta.try_set_mobility(at, mobility);
            }
        }
    }

    /// How many blocks of each order are free for any use.
    pub(super) fn blocks(&self) -> [u64; ORDERS] {
        let plain = &self.blocks[..PLAIN];
        core::array::from_fn(|order| plain.iter().map(|of| u64::from(of[order])).sum())
    }

    /// How many blocks of each order are free in the lists of one mobility.
    pub(super) fn blocks_of(&self, mobility: Mobility) -> &[u32; ORDERS] {
        &self.blocks[mobility.index()]
    }

    /// The orders that have a block, as bits.
    pub(super) fn filled(&self, mobility: Mobility) -> u32 {
        self.filled[mobility.index()]
    }

    /// The index of the first block of `order`.
    pub(super) fn first(&self, mobility: Mobility, order: Order) -> Option<u32> {
        self.lists[mobility.index()][order.index()].first()
    }

    /// The smallest order, `least` or larger, that has a block.
    #[inline]
    pub(super) fn smallest_from(&self, mobility: Mobility, least: Order) -> Option<Order> {
        let fitting = self.filled(mobility) >> least.get() << least.get();
        (fitting != 0).then(|| Order::new(fitting.trailing_zeros() as u8))
    }

    /// The largest order from `least` to `most`, both inclusive, that has a block.
    #[inline]
    pub(super) fn largest_within(
        &self,
        mobility: Mobility,
        least: Order,
        most: Order,
    ) -> Option<Order> {
        let filled = self.filled(mobility);
        let fitting = filled >> least.get() << least.get() & ((2 << most.get()) - 1);
        (fitting != 0).then(|| Order::new(fitting.ilog2() as u8))
    }

    /// Adds `block` at the front of its list, unmerged, and records it as free.
    #[inline]
    pub(super) fn push(&mut self, meta: &Meta<'_>, block: Block) {
        self.push_to(meta, self.listed(meta, block), block);
    }

    /// The same, to the list of a mobility.
    #[inline]
    pub(super) fn push_to(&mut self, meta: &Meta<'_>, mobility: Mobility, block: Block) {
        let index = meta.index(block.at);
        let slot = meta.by_index(index);
        debug_assert!(slot.state().kind() == Kind::None, "{block:?} is {:?}", slot.state());
        debug_assert!(block.at.is_aligned(block.order.pages()));
        let (of, order) = (mobility.index(), block.order.index());
        self.lists[of][order].push(meta, index);
        self.filled[of] |= 1 << order;
        self.blocks[of][order] += 1;
        slot.set_state(block.state());
    }

    /// Takes a free block out of any place of its list; its first frame then has no record.
    #[inline]
    pub(super) fn remove(&mut self, meta: &Meta<'_>, block: Block) {
        self.remove_from(meta, self.listed(meta, block), block);
    }

    /// The same, from the list of a mobility.
    #[inline]
    pub(super) fn remove_from(&mut self, meta: &Meta<'_>, mobility: Mobility, block: Block) {
        let (of, order) = (mobility.index(), block.order.index());
        let index = meta.index(block.at);
        let slot = meta.by_index(index);
        debug_assert!(Block::recorded(block.at, slot.state()) == Some(block));
        if self.lists[of][order].remove(meta, index) {
            self.filled[of] &= !(1 << order);
        }
        self.blocks[of][order] -= 1;
        slot.set_state(State::NONE);
    }

    /// Takes the first block of `order`.
    #[inline]
    pub(super) fn pop(
        &mut self,
        meta: &Meta<'_>,
        mobility: Mobility,
        order: Order,
    ) -> Option<Block> {
        let index = self.first(mobility, order)?;
        let block = Block::recorded(meta.frame(index), meta.by_index(index).state())?;
        self.remove_from(meta, mobility, block);
        Some(block)
    }
}
