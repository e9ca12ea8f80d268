//! Pools of reserved folios (row A9): memory that is kept for folios of one size.
//!
//! ```text
//!             ┌───────────── size ─────────────┐
//!   a pool    | in use | promised |    free    |      a promise: a later fault gets a folio
//!                                  └ surplus ┘        more than was asked for: leaves when it can
//! ```
//!
//! A pool counts folios that it promised, and no folio in use: those are the ones that `phys` does
//! not have free for it. So a folio comes back to its pool however it is freed.
//!
//! A pool's lock is held while `phys` takes or gives frames, and never together with another
//! pool's.

use core::ops::DerefMut;

use quire_units::Order;

use super::Error;
use crate::limits::{CACHED_ORDER_MAX, ORDER_MAX, POOLS_MAX};
use crate::phys::PoolId;
use crate::sync::{AtomicU32, Lock, Ordering};

/// The numbers of a pool, in folios of its size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolCounts {
    /// The folios that the pool has, in use or not.
    pub size: u64,
    /// Those that are not in use, the promised ones included.
    pub free: u64,
    /// Those of the free ones that are promised.
    pub promised: u64,
    /// Those that the pool has beyond the size that was set.
    pub surplus: u64,
    /// The most folios that the pool may have beyond the size that was set.
    pub surplus_most: u64,
}

/// The pools.
pub(crate) struct Pools {
    /// The order of each pool's folios, which it keeps; 0 for none.
    orders: [AtomicU32; POOLS_MAX],
    pools: [Lock<Pool>; POOLS_MAX],
}

crate::sync::names!([] Pools, "base.pools" { orders, pools });

/// The counts of a pool, as in [`PoolCounts`].
#[derive(Default)]
pub(super) struct Pool {
    pub(super) size: u64,
    pub(super) promised: u64,
    pub(super) surplus: u64,
    pub(super) surplus_most: u64,
}

impl Pools {
    pub(crate) fn new() -> Self {
        Self {
            orders: core::array::from_fn(|_| AtomicU32::new(0)),
            pools: core::array::from_fn(|_| Lock::new(Pool::default())),
        }
    }

    /// The pool of folios of `order`.
    pub(super) fn of(&self, order: Order) -> Option<PoolId> {
        let is_it = |own: &AtomicU32| own.load(Ordering::Relaxed) == order.get().into();
        let at = (order > Order::ZERO).then(|| self.orders.iter().position(is_it))?;
        at.map(|at| PoolId(at as u8))
    }

    /// Makes a pool of folios of `order`, which is empty, unless there is one.
    pub(super) fn open(&self, order: Order) -> Result<(), Error> {
        if order < CACHED_ORDER_MAX || order > ORDER_MAX {
            return Err(Error::Invalid);
        }
        let (new, relaxed) = (order.get().into(), Ordering::Relaxed);
        let is_mine = |own: &AtomicU32| {
            own.compare_exchange(0, new, relaxed, relaxed).map_or_else(|now| now == new, |_| true)
        };
        if self.orders.iter().any(is_mine) { Ok(()) } else { Err(Error::Invalid) }
    }

    /// The counts of a pool, locked.
    pub(super) fn lock(&self, id: PoolId) -> impl DerefMut<Target = Pool> + '_ {
        self.pools[usize::from(id.0)].lock()
    }

    /// The orders of the pools.
    pub(super) fn orders(&self) -> impl Iterator<Item = Order> {
        let orders = self.orders.iter().map(|order| order.load(Ordering::Relaxed));
        orders.filter(|order| *order > 0).map(|order| Order::new(order as u8))
    }
}
