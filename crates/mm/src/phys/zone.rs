//! A zone: a span of frames with a lock of its own and one list of free blocks for each order.
//!
//! A block's state becomes `Free`, and stops being `Free`, only under the lock of its zone: a CPU
//! that holds the lock and reads `Free` knows that the block is in a list of this zone.

use quire_units::{FrameSpan, Order, Pfn};

use super::list::List;
use super::meta::{Kind, Meta, State};
use crate::limits::ORDERS;
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
}

crate::sync::names!([] Zone, "phys.zone" { span, lists });

impl Zone {
    /// A zone of these frames, of which none is free yet. It may have holes: frames that are never
    /// [added](crate::Mm::add).
    #[cfg(not(loom))]
    pub const fn new(span: FrameSpan) -> Self {
        Self { span, lists: Lock::new(Lists::EMPTY) }
    }

    /// A zone of these frames, of which none is free yet.
    #[cfg(loom)]
    pub fn new(span: FrameSpan) -> Self {
        Self { span, lists: Lock::new(Lists::EMPTY) }
    }

    /// Its frames.
    pub fn span(&self) -> FrameSpan {
        self.span
    }

    /// The frames of `span` that belong to this zone; an empty span when there are none.
    #[inline]
    pub(super) fn part(&self, span: FrameSpan) -> FrameSpan {
        let start = self.span.start.max(span.start);
        let end = self.span.end().min(span.end()).max(start);
        FrameSpan::new(start, end.offset_from(start))
    }
}

/// The free blocks of a zone.
pub(super) struct Lists {
    /// Of each order.
    lists: [List; ORDERS],
    /// Bit `k` is set while the list of order `k` has a block.
    filled: u32,
    blocks: [u64; ORDERS],
}

impl Lists {
    const EMPTY: Lists = Lists { lists: [List::EMPTY; ORDERS], filled: 0, blocks: [0; ORDERS] };

    /// How many blocks of each order are free.
    pub(super) fn blocks(&self) -> &[u64; ORDERS] {
        &self.blocks
    }

    /// The orders that have a block, as bits.
    pub(super) fn filled(&self) -> u32 {
        self.filled
    }

    /// The index of the first block of `order`.
    pub(super) fn first(&self, order: Order) -> Option<u32> {
        self.lists[order.index()].first()
    }

    /// The smallest order, `least` or larger, that has a block.
    #[inline]
    pub(super) fn smallest_from(&self, least: Order) -> Option<Order> {
        let fitting = self.filled >> least.get() << least.get();
        (fitting != 0).then(|| Order::new(fitting.trailing_zeros() as u8))
    }

    /// The largest order from `least` to `most`, both inclusive, that has a block.
    #[inline]
    pub(super) fn largest_within(&self, least: Order, most: Order) -> Option<Order> {
        let fitting = self.filled >> least.get() << least.get() & ((2 << most.get()) - 1);
        (fitting != 0).then(|| Order::new(fitting.ilog2() as u8))
    }

    /// Adds `block` at the front of its list, unmerged, and records it as free.
    #[inline]
    pub(super) fn push(&mut self, meta: &Meta<'_>, block: Block) {
        let index = meta.index(block.at);
        let slot = meta.by_index(index);
        debug_assert!(slot.state().kind() == Kind::None, "{block:?} is {:?}", slot.state());
        debug_assert!(block.at.is_aligned(block.order.pages()));
        let order = block.order.index();
        self.lists[order].push(meta, index);
        self.filled |= 1 << order;
        self.blocks[order] += 1;
        slot.set_state(block.state());
    }

    /// Takes a free block out of any place of its list; its first frame then has no record.
    #[inline]
    pub(super) fn remove(&mut self, meta: &Meta<'_>, block: Block) {
        let order = block.order.index();
        let index = meta.index(block.at);
        let slot = meta.by_index(index);
        debug_assert!(Block::recorded(block.at, slot.state()) == Some(block));
        if self.lists[order].remove(meta, index) {
            self.filled &= !(1 << order);
        }
        self.blocks[order] -= 1;
        slot.set_state(State::NONE);
    }

    /// Takes the first block of `order`.
    #[inline]
    pub(super) fn pop(&mut self, meta: &Meta<'_>, order: Order) -> Option<Block> {
        let index = self.first(order)?;
        let block = Block::recorded(meta.frame(index), meta.by_index(index).state())?;
        self.remove(meta, block);
        Some(block)
    }
}
