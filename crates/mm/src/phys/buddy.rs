//! Splitting and merging, which make a zone's lists a buddy allocator.
//!
//! The *buddy* of a block is the other half of the next larger block, `at ^ pages`. A block that
//! comes back is merged with its buddy as long as the buddy is free as a whole, so that the lists
//! always hold the fewest blocks that the free frames can form:
//!
//! ```text
//! give back 5:   | 4 5 | 6 7 |     4 is free with order 0: together 4, order 1
//!                | 4 . | 6 7 |     6 is free with order 1: together 4, order 2
//!                | 4 . . .   |     0 is not free with order 2: into the list as it is
//! ```
//!
//! Each step reads one slot. Nothing depends on how a block was taken: any aligned block can come
//! back, in any order, including one that was taken as a part of a larger one.

use quire_units::{FrameSpan, Order, Pfn};

use super::meta::Meta;
use super::mobility::Mobility;
use super::zone::{Block, Lists};
use crate::limits::{GROUP_ORDER, ORDER_MAX};

impl Lists {
    /// Takes a block of `order`, cut from the smallest that is large enough: a part of a group of
    /// its mobility, or else a free group.
    #[inline]
    pub(super) fn take(
        &mut self,
        meta: &Meta<'_>,
        mobility: Mobility,
        order: Order,
    ) -> Option<Block> {
        let (list, from) = match self.smallest_from(mobility, order) {
            Some(from) => (mobility, from),
            None => {
                let free = Mobility::Movable;
                (free, self.smallest_from(free, order.max(GROUP_ORDER))?)
            }
        };
        let block = self.pop(meta, list, from)?;
        Some(self.cut(meta, block, order, mobility))
    }

    /// Takes the largest block of an order from `least` to `most`, as it is.
    #[inline]
    pub(super) fn take_largest(
        &mut self,
        meta: &Meta<'_>,
        mobility: Mobility,
        least: Order,
        most: Order,
    ) -> Option<Block> {
        let order = self.largest_within(mobility, least, most)?;
        let block = self.pop(meta, mobility, order)?;
        Some(self.cut(meta, block, order, mobility))
    }

    /// Takes `frames` consecutive frames, or else the largest block that has at least `least`: for
    /// work that gains from every frame beside the last. `frames` is not zero and at most the
    /// largest block.
    pub(super) fn take_long(
        &mut self,
        meta: &Meta<'_>,
        mobility: Mobility,
        least: Order,
        frames: u64,
    ) -> Option<(FrameSpan, bool)> {
        let fits = Order::fitting(frames)?;
        let whole = if fits.pages() < frames { fits.up() } else { fits };
        let Some(block) = self.take(meta, mobility, whole) else {
            let groups = self.largest_within(Mobility::Movable, least.max(GROUP_ORDER), fits);
            let group = groups.and_then(|order| self.take(meta, mobility, order));
            let block = group.or_else(|| self.take_largest(meta, mobility, least, fits))?;
            return Some((block.span(), block.zeroed));
        };
        self.push_parts(meta, tail(block.span(), block.at.add(frames)), block.zeroed);
        Some((FrameSpan::new(block.at, frames), block.zeroed))
    }

    /// Keeps the first block of `order` and puts the halves of the larger orders into their lists.
    /// Groups that are not free any more are for `mobility`.
    #[inline]
    pub(super) fn cut(
        &mut self,
        meta: &Meta<'_>,
        block: Block,
        order: Order,
        mobility: Mobility,
    ) -> Block {
        if block.order >= GROUP_ORDER {
            self.dedicate(meta, Block { order: order.max(GROUP_ORDER), ..block }, mobility);
        }
        let mut left = block.order;
        while let Some(half) = left.down()
            && left > order
        {
            self.push(meta, Block { at: block.at.add(half.pages()), order: half, ..block });
            left = half;
        }
        Block { order, ..block }
    }

    /// Gives `block` back to the zone of frames `zone`, merged as far as possible. The merged block
    /// is known to be zero if all its parts are.
    #[inline]
    pub(super) fn give(&mut self, meta: &Meta<'_>, zone: FrameSpan, mut block: Block) {
        while block.order < ORDER_MAX {
            let Some(buddy) = self.free_buddy(meta, zone, block) else { break };
            self.remove(meta, buddy);
            block.at = block.at.min(buddy.at);
            block.order = block.order.up();
            block.zeroed &= buddy.zeroed;
        }
        self.push(meta, block);
    }

    /// Takes all of `span` out of the free blocks that hold it, and says whether it is known to be
    /// zero. `span` lies in this zone.
    ///
    /// # Errors
    /// The first frame that is not free. Nothing has changed then.
    pub(super) fn carve(&mut self, meta: &Meta<'_>, span: FrameSpan) -> Result<bool, Pfn> {
        let mut at = span.start;
        while at < span.end() {
            let block = free_block(meta, at).ok_or(at)?;
            if self.listed(meta, block).is_reserved() {
                return Err(at);
            }
            at = block.span().end();
        }
        let mut zeroed = true;
        let mut at = span.start;
        while let Some(block) = (at < span.end()).then(|| free_block(meta, at)).flatten() {
            self.remove(meta, block);
            // The rest of the block cannot merge: the buddy of each part holds a frame of `span`.
            let before = at.offset_from(block.at);
            self.push_parts(meta, FrameSpan::new(block.at, before), block.zeroed);
            self.push_parts(meta, tail(block.span(), span.end()), block.zeroed);
            zeroed &= block.zeroed;
            at = block.span().end();
        }
        Ok(zeroed)
    }

    /// The buddy of `block`, if it is free as a whole, for the same use, and in the zone of frames
    /// `zone`.
    #[inline]
    pub(super) fn free_buddy(
        &self,
        meta: &Meta<'_>,
        zone: FrameSpan,
        block: Block,
    ) -> Option<Block> {
        let at = Pfn::new(block.at.get() ^ block.order.pages());
        if !zone.covers(FrameSpan::new(at, block.order.pages())) {
            return None;
        }
        let buddy = Block::recorded(at, meta.slot(at)?.state())?;
        // Parts of one group are for the same use.
        let fits =
            block.order < GROUP_ORDER || self.listed(meta, buddy) == self.listed(meta, block);
        (buddy.order == block.order && fits).then_some(buddy)
    }

    /// Puts the blocks of `span` into their lists, unmerged.
    fn push_parts(&mut self, meta: &Meta<'_>, span: FrameSpan, zeroed: bool) {
        for (at, order) in span.blocks(ORDER_MAX) {
            self.push(meta, Block { at, order, zeroed });
        }
    }
}

/// The frames of `span` from `from` on; empty when there are none.
fn tail(span: FrameSpan, from: Pfn) -> FrameSpan {
    let from = from.min(span.end());
    FrameSpan::new(from, span.end().offset_from(from))
}

/// The free block that holds `frame`.
pub(super) fn free_block(meta: &Meta<'_>, frame: Pfn) -> Option<Block> {
    let (at, state) = meta.head(frame)?;
    Block::recorded(at, state)
}
