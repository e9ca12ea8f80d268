//! Memory in pieces, on request: a test or a measurement can see how code behaves when large blocks
//! are rare.

use quire_units::{FrameSpan, Order};

use super::alloc::Phys;
use super::meta::OutOfList;
use super::setup::Zones;
use super::zone::{END, next, set_next};
use crate::limits::ORDER_MAX;

/// How many large blocks stay. All other memory stays free, too, except for one frame in each
/// broken block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragment {
    /// No block larger than `order`, and this many blocks of that order itself, or fewer where
    /// memory does not have as many.
    FreeAtOrder {
        /// The largest order that is left.
        order: Order,
        /// How many blocks of it.
        blocks: u64,
    },
    /// This share of the free blocks of `order`; some of them may lie side by side and form larger
    /// ones.
    Ratio {
        /// Which order.
        order: Order,
        /// How many of a thousand blocks stay.
        per_mille: u64,
    },
}

/// Holds the frames that keep memory in pieces. [`release`](Self::release), or dropping the value,
/// gives them back, and all blocks merge again.
#[must_use = "memory is whole again once this is dropped"]
pub struct Fragmented<'a, 'm> {
    phys: &'a Phys<'m>,
    /// The held frames, chained through their slots.
    held: u32,
    seed: u64,
}

/// Breaks the free memory of `phys` into pieces. The same seed breaks the same memory in the same
/// way. Allocations by other CPUs meanwhile succeed, and make the result inexact.
pub fn fragment<'a, 'm>(phys: &'a Phys<'m>, target: Fragment, seed: u64) -> Fragmented<'a, 'm> {
    phys.drain();
    let mut pieces = Fragmented { phys, held: END, seed };
    match target {
        Fragment::FreeAtOrder { order, blocks } => {
            if order < ORDER_MAX {
                pieces.break_all_but(order.up(), 0);
            }
            pieces.break_all_but(order, blocks);
        }
        Fragment::Ratio { order, per_mille } => {
            let keep = available(phys, order) as u128 * per_mille as u128 / 1000;
            pieces.break_all_but(order, keep as u64);
        }
    }
    pieces
}

/// How many blocks of `order` can be taken one after the other.
fn available(phys: &Phys<'_>, order: Order) -> u64 {
    let blocks = phys.free_by_order();
    let from = order.index().min(blocks.len());
    blocks[from..].iter().enumerate().map(|(above, blocks)| blocks << above).sum()
}

impl Fragmented<'_, '_> {
    /// Gives all frames back.
    pub fn release(self) {}

    /// How many frames are held.
    pub fn held(&self) -> u64 {
        let mut frames = 0;
        let mut at = self.held;
        while at != END {
            frames += 1;
            at = next(self.phys.meta().by_index(at));
        }
        frames
    }

    /// Takes blocks of `order` and gives all but one frame of each back, until `keep` blocks are
    /// left.
    fn break_all_but(&mut self, order: Order, keep: u64) {
        for _ in keep..available(self.phys, order) {
            let Some(block) = self.phys.take_block(order, Zones::ALL) else { return };
            let (before, rest) = block.split_at(self.random() & (order.pages() - 1));
            let (frame, after) = rest.split_at(1);
            let index = self.phys.meta().index(frame.start());
            set_next(self.phys.meta().by_index(index), self.held);
            self.held = index;
            self.phys.give_back(before);
            self.phys.give_back(after);
        }
    }

    /// The next number of the SplitMix64 sequence (Steele, Lea, Flood 2014).
    fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.seed ^ self.seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

impl Drop for Fragmented<'_, '_> {
    fn drop(&mut self) {
        let meta = self.phys.meta();
        while self.held != END {
            let span = FrameSpan::new(meta.frame(self.held), 1);
            self.held = next(meta.by_index(self.held));
            self.phys.give_back(meta.mint(OutOfList { span, zeroed: false }));
        }
    }
}
