//! Groups that belong to a pool of reserved folios (row A9).
//!
//! ```text
//!   free group ── reserve ──► free for the pool ── alloc_reserved ──► in use
//!        ▲                        │        ▲                            │
//!        └─────── unreserve ──────┘        └──── free, as any frame ────┘
//! ```
//!
//! The mobility of a group says that a pool has it, so a frame that is freed on any way is free for
//! its pool again. No other allocation gets it, and compaction leaves it alone. A pool of folios
//! that are smaller than a group has whole groups all the same.

use quire_hw::FrameRun;
use quire_units::{CpuId, FrameSpan, Order};

use super::Phys;
use super::meta::Ownerless;
use super::mobility::{Mobility, PoolId};
use crate::limits::GROUP_ORDER;
use crate::sync::spin_loop;

impl Phys<'_> {
    /// Gives a free block of `order`, a group at least, to `pool`; whether there was one.
    pub(crate) fn reserve(&self, cpu: CpuId, pool: PoolId, order: Order) -> bool {
        debug_assert!(order >= GROUP_ORDER);
        let Some(run) = self.alloc_movable(cpu, order, true) else { return false };
        self.dedicate(run.span(), Mobility::Reserved(pool));
        self.give([(run.span(), run.is_zeroed())]);
        true
    }

    /// Takes a free block of `order`, a group at least, from `pool`: it is for any use again.
    /// Whether there was one.
    pub(crate) fn unreserve(&self, pool: PoolId, order: Order) -> bool {
        debug_assert!(order >= GROUP_ORDER);
        let Some(run) = self.alloc_reserved(pool, order) else { return false };
        self.dedicate(run.span(), Mobility::Movable);
        self.give([(run.span(), run.is_zeroed())]);
        true
    }

    /// Takes a block of `order` out of the smallest free one of `pool` that is large enough: so
    /// folios of it share groups, and do not open new ones.
    pub(crate) fn alloc_reserved(&self, pool: PoolId, order: Order) -> Option<FrameRun> {
        let mobility = Mobility::Reserved(pool);
        self.zones.iter().rev().find_map(|zone| {
            let mut lists = zone.lists.lock();
            let from = lists.smallest_from(mobility, order)?;
            let block = lists.pop(&self.meta, mobility, from)?;
            let block = lists.cut(&self.meta, block, order, mobility);
            Some(self.meta.mint(Ownerless { span: block.span(), zeroed: block.zeroed }))
        })
    }

    /// How many frames of `pool` are free in blocks of `order` at least.
    pub(crate) fn free_reserved(&self, pool: PoolId, order: Order) -> u64 {
        let blocks = self.free_by_mobility(Mobility::Reserved(pool));
        let large = blocks.iter().enumerate().skip(order.index());
        large.map(|(at, blocks)| blocks << at).sum()
    }

    /// Records the use of the groups of `span`, which the caller has taken.
    fn dedicate(&self, span: FrameSpan, mobility: Mobility) {
        for group in (0..span.count).step_by(GROUP_ORDER.pages() as usize) {
            // A walker with an old entry may have the frame locked for a moment.
            while !self.meta.try_set_mobility(span.start.add(group), mobility) {
                spin_loop();
            }
        }
    }
}
