//! Memory in pieces, on request: a test or a measurement can see how code behaves when large blocks
//! are rare.

use quire_units::{FrameSpan, Order};

use super::alloc::{Phys, Want, frames};
use super::list::{END, List, next};
use super::meta::Ownerless;
use super::mobility::Mobility;
use super::setup::Zones;
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

/// The frames that keep memory in pieces. When it is dropped, they come back, and all blocks merge.
#[must_use = "memory is whole again once this is dropped"]
pub struct Fragmented<'a, 'm> {
    phys: &'a Phys<'m>,
    held: List,
    seed: u64,
}

/// Breaks the free memory of `phys` into pieces. The same seed breaks the same memory in the same
/// way. Allocations by other CPUs meanwhile succeed, and make the result inexact.
pub fn fragment<'a, 'm>(phys: &'a Phys<'m>, target: Fragment, seed: u64) -> Fragmented<'a, 'm> {
    phys.drain();
    let mut pieces = Fragmented { phys, held: List::EMPTY, seed };
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
    phys.free_by_order().get(order.index()..).map_or(0, frames)
}

impl Fragmented<'_, '_> {
    /// Gives all frames back.
    pub fn release(self) {}

    /// How many frames are held.
    pub fn held(&self) -> u64 {
        let behind = |&at: &u32| Some(next(self.phys.meta().by_index(at))).filter(|&at| at != END);
        core::iter::successors(self.held.first(), behind).count() as u64
    }

    /// Takes blocks of `order` and gives all but one frame of each back, until `keep` blocks are
    /// left.
    fn break_all_but(&mut self, order: Order, keep: u64) {
        let want = Want { mobility: Mobility::Movable, order, zones: Zones::ALL };
        for _ in keep..available(self.phys, order) {
            let Some(block) = self.phys.take_block(want) else { return };
            let (before, rest) = block.split_at(self.random() & (order.pages() - 1));
            let (frame, after) = rest.split_at(1);
            let meta = self.phys.meta();
            self.held.push(&meta, meta.index(frame.start()));
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
        while let Some(index) = self.held.first() {
            self.held.remove(&meta, index);
            let span = FrameSpan::new(meta.frame(index), 1);
            self.phys.give_back(meta.mint(Ownerless { span, zeroed: false }));
        }
    }
}
