//! The blocks that one CPU freed last, kept for it unmerged.
//!
//! Each cached order has a *shelf*: a stack of frame indices under a small lock, which only its own
//! CPU takes, except for a drain. The block freed last is taken first: most likely it is still in
//! the near caches. The zone sees a block on a shelf as taken.
//!
//! ```text
//!            oldest ────────────────────────────► newest
//! shelf[0]  | 0x10 | 0x11 | 0x12 | 0x7f |  …  | 0x05 |          bit 31: known to be zero
//!           '------ drained as runs ----'     '- taken next
//! ```
//!
//! An empty shelf is filled with one large block, cut into consecutive entries. A full shelf gives
//! its older half back, sorted, so that the zone merges runs instead of single blocks.

use arrayvec::ArrayVec;
use quire_units::{FrameSpan, Order};

use super::meta::Meta;
use super::mobility::Mobility;
use crate::limits::CACHED_ORDER_MAX;
use crate::sync::Lock;

/// How many blocks the shelf of order 0 holds. Measured with `benches/peers` from 32 to 512: it
/// hardly changes the time of a pair (21 ns with 32, 20 ns with 128 or 512). Below 128 the zone is
/// visited even where a hundred are in use; above, drains take longer and more frames lie unused.
pub(super) const CAPACITY: usize = 128;

const SHELVES: usize = CACHED_ORDER_MAX.index() + 1;

/// How many blocks the shelf of `order` holds: as many frames as the shelf of order 0, but at least
/// 16 blocks.
#[inline]
pub(super) const fn limit(order: usize) -> usize {
    if CAPACITY >> order > 16 { CAPACITY >> order } else { 16 }
}

/// By how many orders the block that fills half a shelf exceeds the shelf's own order.
pub(super) const fn batch(order: Order) -> u8 {
    (limit(order.index()) / 2).ilog2() as u8
}

/// Set in an entry whose frames are known to be zero.
const ZEROED: u32 = 1 << 31;

/// How many frames an entry can tell apart.
pub(super) const FRAMES_MAX: u64 = ZEROED as u64 - 1;

const _: () = assert!(limit(SHELVES - 1) <= CAPACITY && limit(SHELVES - 1) / 2 >= 2);

/// The index of a block's first frame, and whether the block is known to be zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry(u32);

impl Entry {
    #[inline]
    pub(super) fn new(index: u32, zeroed: bool) -> Self {
        debug_assert!(index < ZEROED);
        Self(index | (zeroed as u32 * ZEROED))
    }

    #[inline]
    pub(super) fn index(self) -> u32 {
        self.0 & !ZEROED
    }

    #[inline]
    pub(super) fn is_zeroed(self) -> bool {
        self.0 & ZEROED != 0
    }
}

/// Blocks of one order, oldest first.
#[derive(Default)]
pub(super) struct Stack(ArrayVec<Entry, CAPACITY>);

impl Stack {
    /// Takes the newest block.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Entry> {
        self.0.pop()
    }

    /// Adds a block; `false` when the stack has `limit` blocks already.
    #[inline]
    pub(super) fn push(&mut self, entry: Entry, limit: usize) -> bool {
        self.0.len() < limit && self.0.try_push(entry).is_ok()
    }

    /// Adds `blocks` consecutive blocks of `order`, for which there must be room, so that the first
    /// of them is taken first.
    pub(super) fn stock(&mut self, first: Entry, order: Order, blocks: u32) {
        self.0.extend((0..blocks).rev().map(|block| Entry(first.0 + (block << order.get()))));
    }

    /// The blocks, oldest first.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// The oldest `count` blocks, as ascending runs that are all known to be zero or all not.
    pub(super) fn oldest<'a>(
        &'a mut self,
        meta: &'a Meta<'_>,
        order: Order,
        count: usize,
    ) -> impl Iterator<Item = (FrameSpan, bool)> + Clone {
        let oldest = &mut self.0[..count];
        sort(oldest);
        let follows = move |a: &Entry, b: &Entry| a.0 + (1 << order.get()) == b.0;
        oldest.chunk_by(follows).map(move |run| {
            let frames = (run.len() as u64) << order.get();
            (FrameSpan::new(meta.frame(run[0].index()), frames), run[0].is_zeroed())
        })
    }

    /// Removes the oldest `count` blocks.
    pub(super) fn forget(&mut self, count: usize) {
        self.0.drain(..count);
    }
}

/// Sorts a shelf's few blocks by Shell's method: `sort_unstable` has 2 KiB of code. Blocks that
/// were freed in the reverse of their order are common.
fn sort(entries: &mut [Entry]) {
    if entries.is_sorted_by(|a, b| a > b) {
        return entries.reverse();
    }
    for gap in [23, 10, 4, 1] {
        for end in gap..entries.len() {
            let mut at = end;
            while at >= gap && entries[at] < entries[at - gap] {
                entries.swap(at, at - gap);
                at -= gap;
            }
        }
    }
}

/// One order's blocks under their lock, on cache lines of their own.
#[repr(align(64))]
#[derive(Default)]
pub(super) struct Shelf(pub(super) Lock<Stack>);

impl Shelf {
    #[cfg(not(loom))]
    #[allow(clippy::declare_interior_mutable_const)]
    const EMPTY: Shelf = Shelf(Lock::new(Stack(ArrayVec::new_const())));
}

/// The blocks that one CPU has in its cache. The embedder lends one cache for each CPU.
#[repr(align(128))]
#[derive(Default)]
pub struct CpuCache {
    /// Blocks of movable memory by order, then those of unmovable memory, which may not mix with
    /// them, then the nodes of indices, which can be reclaimed and are single frames.
    shelves: [Shelf; 2 * SHELVES + 1],
}

crate::sync::names!([] CpuCache, "phys.cache" { shelves });

impl CpuCache {
    /// An empty cache.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { shelves: [Shelf::EMPTY; 2 * SHELVES + 1] }
    }

    /// Makes it as new: shelf by shelf, since all of it is a large part of a stack.
    pub(super) fn reset(&mut self) {
        self.shelves.iter_mut().for_each(|shelf| *shelf = Shelf::default());
    }

    /// The shelf of `order`; `None` for an order that is not cached.
    #[inline]
    pub(super) fn shelf(&self, mobility: Mobility, order: Order) -> Option<&Shelf> {
        let (first, orders) = match mobility {
            Mobility::Movable => (0, SHELVES),
            Mobility::Unmovable => (SHELVES, SHELVES),
            Mobility::Reclaimable => (2 * SHELVES, 1),
            Mobility::Isolated | Mobility::Reserved(_) => return None,
        };
        let at = order.index();
        (at < orders).then(|| &self.shelves[first + at])
    }

    /// All shelves, with their orders.
    pub(super) fn shelves(&self) -> impl Iterator<Item = (Order, &Shelf)> {
        let order = |at: usize| Order::new((at % SHELVES) as u8);
        self.shelves.iter().enumerate().map(move |(at, shelf)| (order(at), shelf))
    }
}
