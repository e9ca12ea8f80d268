//! Reserved folios: taken out of pools, promised, and pools that grow and shrink (row A9).

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::Order;

use super::pools::Pool;
use super::{Base, Error, PoolCounts};
use crate::limits::GROUP_ORDER;
use crate::phys::PoolId;
use crate::space::Backing;

/// How many blocks of `phys` a pool of `size` folios has: of its order, or of groups.
fn blocks(order: Order, size: u64) -> u64 {
    size.div_ceil(1 << GROUP_ORDER.get().saturating_sub(order.get()))
}

impl<A: Arch, H: Hardware> Base<'_, A, H> {
    /// The order of the folios of the pool that has the pages of an area with this backing; `None`
    /// for other areas.
    #[inline]
    pub(crate) fn whole(&self, backing: Backing) -> Option<Order> {
        let Backing::File { id, .. } = backing else { return None };
        self.file(id)?.whole()
    }

    /// A folio of the pool of `order`. `promised`: the caller gives up a promise for it.
    ///
    /// # Errors
    /// [`Error::NoReserved`], never for a promise.
    pub(crate) fn take_reserved(&self, order: Order, promised: bool) -> Result<FrameRun, Error> {
        let lacks = Error::NoReserved(order);
        let id = self.pools.of(order).ok_or(lacks)?;
        let pool = &mut *self.pools.lock(id);
        if !promised && !self.make_room(pool, id, order, 1) {
            return Err(lacks);
        }
        let run = self.phys.alloc_reserved(id, order).ok_or(lacks)?;
        pool.promised -= u64::from(promised);
        Ok(run)
    }

    /// Promises `folios` folios of `order` to later calls of
    /// [`take_reserved`](Self::take_reserved).
    ///
    /// # Errors
    /// [`Error::NoReserved`]; none is promised then.
    pub(crate) fn promise(&self, order: Order, folios: u64) -> Result<(), Error> {
        let lacks = Error::NoReserved(order);
        let id = self.pools.of(order).ok_or(lacks)?;
        let pool = &mut *self.pools.lock(id);
        if !self.make_room(pool, id, order, folios) {
            return Err(lacks);
        }
        pool.promised += folios;
        Ok(())
    }

    /// Ends promises.
    pub(crate) fn renounce(&self, order: Order, folios: u64) {
        self.with_pool(order, |pool, id| {
            debug_assert!(pool.promised >= folios);
            pool.promised -= folios;
            self.shed_surplus(pool, id, order);
        });
    }

    /// Gives back a folio that the caller has not used, and its promise if it had one.
    pub(crate) fn untake_reserved(&self, order: Order, run: FrameRun, promised: bool) {
        // In this order: no other CPU may get the folio in between.
        self.with_pool(order, |pool, _| pool.promised += u64::from(promised));
        self.free(run);
    }

    /// Makes a pool of folios of `order`, if there is none yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a size that no pool can have, or when there are
    /// [`POOLS_MAX`] others.
    pub(crate) fn open_pool(&self, order: Order) -> Result<(), Error> {
        self.pools.open(order)
    }

    /// Gives the pool another size as far as that is possible; its counts.
    pub(crate) fn resize_pool(&self, order: Order, size: u64) -> Option<PoolCounts> {
        self.with_pool(order, |pool, id| {
            // Folios beyond the old size belong to the new one first.
            let wanted = size.max(self.used(pool, id, order) + pool.promised);
            while pool.size < size && self.grow(pool, id, order) {}
            while pool.size > wanted && self.shrink(pool, id, order) {}
            pool.surplus = pool.size.saturating_sub(size);
        });
        self.pool_counts(order)
    }

    /// Sets the most folios that the pool may have beyond its size.
    pub(crate) fn set_surplus_most(&self, order: Order, folios: u64) -> Option<()> {
        self.with_pool(order, |pool, _| pool.surplus_most = folios)
    }

    /// The numbers of a pool; gives back a surplus that is free.
    pub(crate) fn pool_counts(&self, order: Order) -> Option<PoolCounts> {
        self.with_pool(order, |pool, id| {
            self.shed_surplus(pool, id, order);
            let free = self.free_in_pool(pool, id, order);
            let Pool { size, promised, surplus, surplus_most } = *pool;
            PoolCounts { size, free, promised, surplus, surplus_most }
        })
    }

    /// The orders of the pools.
    pub(crate) fn pool_orders(&self) -> impl Iterator<Item = Order> {
        self.pools.orders()
    }

    fn with_pool<T>(&self, order: Order, act: impl FnOnce(&mut Pool, PoolId) -> T) -> Option<T> {
        let id = self.pools.of(order)?;
        let mut pool = self.pools.lock(id);
        Some(act(&mut pool, id))
    }

    /// Whether `folios` folios are free and not promised, after the pool has got more if it may.
    fn make_room(&self, pool: &mut Pool, id: PoolId, order: Order, folios: u64) -> bool {
        let Some(wanted) = pool.promised.checked_add(folios) else { return false };
        let lacks = wanted.saturating_sub(self.free_in_pool(pool, id, order));
        if lacks > pool.surplus_most.saturating_sub(pool.surplus) {
            return false;
        }
        for _ in 0..lacks {
            if !self.grow(pool, id, order) {
                self.shed_surplus(pool, id, order);
                return false;
            }
            pool.surplus += 1;
        }
        true
    }

    /// Gives back what the pool has beyond its size, as far as it is free and not promised.
    fn shed_surplus(&self, pool: &mut Pool, id: PoolId, order: Order) {
        let free = self.free_in_pool(pool, id, order);
        let spare = pool.surplus.min(free.saturating_sub(pool.promised));
        for _ in 0..spare {
            if !self.shrink(pool, id, order) {
                return;
            }
            pool.surplus -= 1;
        }
    }

    /// Makes the pool larger by a folio.
    fn grow(&self, pool: &mut Pool, id: PoolId, order: Order) -> bool {
        let more = blocks(order, pool.size + 1) > blocks(order, pool.size);
        let grows = !more || self.phys.reserve(self.hw.cpu(), id, order.max(GROUP_ORDER));
        pool.size += u64::from(grows);
        grows
    }

    /// Makes the pool smaller by a folio that is free. Of folios smaller than a group, some may
    /// stay since each group has one in use.
    fn shrink(&self, pool: &mut Pool, id: PoolId, order: Order) -> bool {
        let fewer = blocks(order, pool.size - 1) < blocks(order, pool.size);
        let shrinks = !fewer || self.phys.unreserve(id, order.max(GROUP_ORDER));
        pool.size -= u64::from(shrinks);
        shrinks
    }

    /// How many folios of the pool are in use.
    fn used(&self, pool: &Pool, id: PoolId, order: Order) -> u64 {
        let all = blocks(order, pool.size) << order.max(GROUP_ORDER).get();
        all.saturating_sub(self.phys.free_reserved(id, order)) >> order.get()
    }

    fn free_in_pool(&self, pool: &Pool, id: PoolId, order: Order) -> u64 {
        pool.size.saturating_sub(self.used(pool, id, order))
    }
}
