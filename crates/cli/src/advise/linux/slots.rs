//! The swap device: slots of a page each, in clusters of 512, as Linux gives them out (since 6.13).
//!
//! A cluster has slots for folios of one order at a time, each aligned to its size. A new folio
//! takes a place in the cluster of its order that is filled now, in an empty one, or in one that
//! has lost folios; a page also takes one in a cluster of any other order. So a device that looks
//! half empty may have no place for a large folio.
//!
//! A cluster is filled from its start to its end: places that are free again before its end is
//! reached are taken when it is filled the next time. So pages that leave one after the other lie
//! side by side, and may come back as one folio.

use std::collections::VecDeque;

use super::rules::BLOCK;
use super::tables::PAGES;

/// The number of a slot.
pub(super) type Slot = u32;

#[derive(Clone, Copy, Default)]
struct Cluster {
    order: u8,
    used: u16,
    /// It waits in the queue of its order, or of empty ones.
    queued: bool,
}

/// A device, and who uses its slots.
#[derive(Default)]
pub(super) struct Device {
    /// How many entries name each slot, and the age of memory when its page left.
    users: Vec<u32>,
    ages: Vec<u64>,
    clusters: Vec<Cluster>,
    empty: VecDeque<u32>,
    /// Clusters with places, by order.
    partial: [VecDeque<u32>; BLOCK as usize + 1],
    /// The clusters that are filled now, with the slot to look at next.
    current: [Option<(u32, Slot)>; BLOCK as usize + 1],
}

impl Device {
    /// A device with room for `slots` pages; a cluster that is not whole is left out.
    pub(super) fn new(slots: u64) -> Device {
        let count = slots / PAGES;
        let all = (count * PAGES) as usize;
        Device {
            users: vec![0; all],
            ages: vec![0; all],
            clusters: vec![Cluster { queued: true, ..Cluster::default() }; count as usize],
            empty: (0..count as u32).collect(),
            ..Device::default()
        }
    }

    /// A place for a folio of `order`; each of its slots has a user then.
    pub(super) fn take(&mut self, order: u8, age: u64) -> Option<Slot> {
        let first = self.place(order)?;
        if let Some((cluster, next)) = &mut self.current[usize::from(order)]
            && *cluster == first / PAGES as u32
        {
            *next = first + (1 << order);
        }
        for slot in first as usize..first as usize + (1 << order) {
            (self.users[slot], self.ages[slot]) = (1, age);
        }
        let cluster = &mut self.clusters[first as usize / PAGES as usize];
        cluster.used += 1 << order;
        Some(first)
    }

    fn place(&mut self, order: u8) -> Option<Slot> {
        let own = usize::from(order);
        if let Some((cluster, next)) = self.current[own] {
            if let Some(found) = self.within(cluster, next, order) {
                return Some(found);
            }
            self.current[own] = None;
            self.wait(cluster);
        }
        if let Some(cluster) = self.empty.pop_front() {
            self.clusters[cluster as usize] = Cluster { order, ..Cluster::default() };
            return self.fill(cluster, order);
        }
        let others = (LEAST_FIRST..=BLOCK).filter(|_| order == 0);
        for queue in std::iter::once(order).chain(others) {
            while let Some(cluster) = self.partial[usize::from(queue)].pop_front() {
                self.clusters[cluster as usize].queued = false;
                if let Some(found) = self.fill(cluster, order) {
                    return Some(found);
                }
            }
        }
        // A page takes a place beside any large folio.
        let filled = self.current.into_iter().flatten().filter(|_| order == 0);
        filled.into_iter().find_map(|(cluster, _)| self.within(cluster, first(cluster), 0))
    }

    /// A cluster is filled from its start on, if it has a place; returns that.
    fn fill(&mut self, cluster: u32, order: u8) -> Option<Slot> {
        let found = self.within(cluster, first(cluster), order)?;
        self.current[usize::from(order)] = Some((cluster, found));
        Some(found)
    }

    /// A free place in a cluster, from the slot `next` on.
    fn within(&self, cluster: u32, next: Slot, order: u8) -> Option<Slot> {
        let mut places = (next..first(cluster + 1)).step_by(1 << order);
        places.find(|place| {
            let slots = *place as usize..*place as usize + (1 << order);
            self.users[slots].iter().all(|users| *users == 0)
        })
    }

    /// A cluster is no longer filled: if it has free slots, it waits until it is again.
    fn wait(&mut self, number: u32) {
        let cluster = &mut self.clusters[number as usize];
        if !cluster.queued && u64::from(cluster.used) < PAGES {
            cluster.queued = true;
            self.partial[usize::from(cluster.order)].push_back(number);
        }
    }

    /// Another entry names the slot.
    pub(super) fn share(&mut self, slot: Slot) {
        self.users[slot as usize] += 1;
    }

    /// How many entries name the slot.
    pub(super) fn users(&self, slot: Slot) -> u32 {
        self.users[slot as usize]
    }

    /// The age of memory when its page left.
    pub(super) fn age(&self, slot: Slot) -> u64 {
        self.ages[slot as usize]
    }

    /// An entry no longer names the slot.
    pub(super) fn release(&mut self, slot: Slot) {
        let users = &mut self.users[slot as usize];
        *users = users.saturating_sub(1);
        if *users > 0 {
            return;
        }
        let number = slot / PAGES as u32;
        let cluster = &mut self.clusters[number as usize];
        cluster.used = cluster.used.saturating_sub(1);
        let order = usize::from(cluster.order);
        if cluster.used == 0 {
            if cluster.queued {
                self.partial[order].retain(|other| *other != number);
            }
            for current in &mut self.current {
                *current = current.filter(|(filled, _)| *filled != number);
            }
            cluster.queued = true;
            self.empty.push_back(number);
        } else if !self.current.iter().flatten().any(|(filled, _)| *filled == number) {
            self.wait(number);
        }
    }

    /// How many slots are used.
    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        self.users.iter().filter(|users| **users > 0).count() as u64
    }
}

/// The first slot of a cluster.
fn first(cluster: u32) -> Slot {
    cluster * PAGES as u32
}

/// The orders of other clusters in which a page looks for a place.
const LEAST_FIRST: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f1_a_device_in_pieces_has_no_place_for_a_large_folio() {
        let mut device = Device::new(2 * PAGES + 7);
        let pages: Vec<Slot> = (0..PAGES).map(|_| device.take(0, 1).unwrap()).collect();
        let large = device.take(4, 2).unwrap();
        assert!(large.is_multiple_of(16) && u64::from(large) >= PAGES);
        // All places of the first cluster are free but each 16th: none is for 16 pages.
        for page in pages.iter().filter(|page| **page % 16 != 3) {
            device.release(*page);
        }
        let more = std::iter::from_fn(|| device.take(4, 3)).count();
        assert_eq!(more, 31);
        assert_eq!(device.used(), PAGES + 32);
        // Pages find room everywhere.
        assert_eq!(std::iter::from_fn(|| device.take(0, 4)).count(), 512 - 32);
        assert_eq!((device.age(large), device.users(large)), (2, 1));
    }

    #[test]
    fn f1_a_cluster_that_is_empty_again_takes_any_order() {
        let mut device = Device::new(PAGES);
        for order in [0, 9, 4, 0] {
            let first = device.take(order, 0).unwrap();
            device.share(first);
            device.release(first);
            (first..first + (1 << order)).for_each(|slot| device.release(slot));
            assert_eq!(device.used(), 0);
        }
    }
}
