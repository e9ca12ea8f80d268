//! Folios on their way out: slots, an identity, and the end of the way.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::Order;

use super::Paging;
use super::evict::{Begun, Leaving};
use crate::base::{Device, Keep};
use crate::cache::{FilePages, Row, file_of, identity, page_of};
use crate::folio::FolioFlags;
use crate::folio::cached::Cached;
use crate::stats::{Event, FolioEvent};
use crate::swap::Admits;
use crate::table::Division;

/// The result of paging out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PagedOut {
    /// Folios that no space maps any more, and whose memory is free as soon as they are written.
    pub folios: u64,
    /// Their pages.
    pub pages: u64,
    /// Folios that stay: shared, pinned, locked in memory, or there are no slots.
    pub stay: u64,
    /// There was no frame for a device's index: what follows was not tried.
    pub starved: bool,
}

/// The use of swap entries that replace the mappings of a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The folio leaves memory.
    Write,
    /// Other frames get its contents, and its pages are mapped again.
    Move,
    /// The same, with frames of groups that are in use, so that its own group becomes free.
    Pack,
}

/// The folios that are paged out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Those that no other space maps (`MADV_PAGEOUT`).
    Own,
    /// Those of other spaces as well: all spaces are searched for their mappings.
    All,
}

/// The limits of a page-out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) whose: Scope,
    /// Rounds of aging without an access to a folio.
    pub(crate) idle: u32,
    /// The most pages, or a folio more.
    pub(crate) pages: u64,
    /// The reason for which the folios leave.
    pub(crate) purpose: Purpose,
}

/// The reason why a folio does not leave.
pub(super) enum Obstacle {
    /// It has another user or a pin, or there are no slots.
    Stays,
    /// It could move if there were slots, which the folios of a batch may have.
    NoSlots,
    /// Parts of it may leave.
    Divide(Division),
    /// There is no frame for the index of a device.
    Starved,
}

impl<A: Arch, H: Hardware> Paging<'_, A, H> {
    /// Begins to take folios out, to which the caller has references: the row has the slots then of
    /// those that leave, at least the first. The references to others are released.
    pub(super) fn begin(&self, row: &mut Row, purpose: Purpose) -> Result<Begun, Obstacle> {
        let (base, folios) = (self.base(), self.base().folios());
        let Some(first) = row.folio(0) else { return Err(Obstacle::Stays) };
        let begun = match folios.counts(first).pins {
            0 => match folios.identified(first) {
                Some((cached, owner)) => {
                    row.split_off(1).for_each(|folio| base.put(folio));
                    self.leave_again(cached, owner, purpose, row)
                }
                None => self.enter_out(row, purpose),
            },
            _ => Err(Obstacle::Stays),
        };
        if begun.is_err() {
            row.split_off(0).for_each(|folio| base.put(folio));
        }
        begun
    }

    /// Slots for up to `most` folios of `order`, at least one, on the first device that has a free
    /// run of them: for a move on a device for moves, if there is one.
    pub(super) fn take_slots(
        &self,
        order: Order,
        most: usize,
        purpose: Purpose,
    ) -> Option<(Device<'_, A, H>, FilePages)> {
        let (base, cpu) = (self.base(), self.base().hw.cpu().index());
        let first = |admits: Admits| {
            let such = base.swaps.iter().zip(0..).filter(|(swap, _)| swap.admits() == admits);
            such.map(|(_, number)| number).find_map(|number| {
                let device = base.device(number)?;
                let slots = device.slots.take_row(order, most, cpu)?;
                Some((device, slots))
            })
        };
        let apart = if purpose == Purpose::Write { None } else { first(Admits::Moves) };
        apart.or_else(|| first(Admits::All))
    }

    /// The largest order below `order` that has a free run of slots.
    pub(super) fn smaller_order(&self, order: Order) -> Option<Order> {
        (0..order.get()).rev().map(Order::new).find(|&order| {
            let taken = self.take_slots(order, 1, Purpose::Write);
            taken.map(|(device, slots)| device.slots.uncache(slots)).is_some()
        })
    }

    /// Takes a folio out that has slots.
    fn leave_again(
        &self,
        cached: Cached<'_>,
        owner: u64,
        purpose: Purpose,
        row: &mut Row,
    ) -> Result<Begun, Obstacle> {
        let known = cached.known();
        let device = self.base().device_of(file_of(owner)).map_err(|_| Obstacle::Stays)?;
        let busy =
            known.intersects(FolioFlags::LEAVING | FolioFlags::WRITING | FolioFlags::POISONED);
        if busy || !known.contains(FolioFlags::UPTODATE) {
            return Err(Obstacle::Stays);
        }
        if purpose == Purpose::Write && device.slots.swap.admits() == Admits::Moves {
            // Nothing is written there. A change has kept an entry from the last move.
            return Err(Obstacle::Stays);
        }
        cached.learn(known | FolioFlags::LEAVING);
        row.set_start(page_of(owner));
        Ok(Begun { device: device.number, dirty: false })
    }

    /// Takes folios out that have no slots: gives them consecutive ones, and their identity.
    fn enter_out(&self, row: &mut Row, purpose: Purpose) -> Result<Begun, Obstacle> {
        let (base, order) = (self.base(), row.order());
        let Some((device, slots)) = self.take_slots(order, row.len(), purpose) else {
            if purpose != Purpose::Write {
                return Err(Obstacle::NoSlots);
            }
            base.count_folios(FolioEvent::SwpoutFallback, order, 1);
            let smaller = self.smaller_order(order).map(Division::Uniform);
            return Err(smaller.map_or(Obstacle::Stays, Obstacle::Divide));
        };
        row.set_start(slots.start);
        let with_slots = (slots.count() >> order.get()) as usize;
        let identified = self.identify(row, with_slots, &device);
        row.split_off(identified.max(1)).for_each(|folio| base.put(folio));
        let (entered, lack) = match identified {
            0 => (0, Ok(())),
            _ => self.files().with(&device.index).insert_row(row),
        };
        for (folio, _) in row.iter().take(identified).skip(entered) {
            if let Some((cached, _)) = base.folios().identified(folio) {
                cached.disclaim();
                base.put(folio);
            }
        }
        row.split_off(entered.max(1)).for_each(|folio| base.put(folio));
        let used = row.part(0, entered);
        if used != slots {
            device.slots.uncache(FilePages::new(used.end, slots.end));
        }
        match (entered, lack) {
            (1.., _) => Ok(Begun { device: device.number, dirty: true }),
            (0, Ok(())) => Err(Obstacle::Stays),
            (0, Err(_)) => Err(Obstacle::Starved),
        }
    }

    /// Gives the first `most` folios of a row the identity of their slots, up to one that has an
    /// identity by now. Returns how many.
    fn identify(&self, row: &Row, most: usize, device: &Device<'_, A, H>) -> usize {
        let (folios, id) = (self.base().folios(), device.index.id);
        let mut left = row.iter().take(most);
        left.position(|(folio, at)| !folios.identify(folio, identity(id, at.start)))
            .unwrap_or(most.min(row.len()))
    }

    /// Ends the way out of folios side by side, which are dirty or not: they may be written or
    /// dropped from now on.
    pub(super) fn end_out(&self, leaving: &[Leaving], row: &Row, done: &mut PagedOut) {
        let (base, folios) = (self.base(), self.base().folios());
        let Some(first) = leaving.first() else { return };
        let Some(device) = base.device(first.device) else { return };
        if first.dirty {
            device.index.set_dirty_row(row, true);
        }
        let (mut gone, mut pages) = (0, 0);
        for (leaving, (folio, _)) in leaving.iter().zip(row.iter()) {
            if folios.counts(folio).mapped == 0 {
                gone += 1;
            } else if !leaving.again {
                done.stay += 1;
            }
            pages += u64::from(leaving.pages.get());
            if let Some((cached, _)) = folios.identified(folio) {
                cached.learn(cached.known() - FolioFlags::LEAVING);
            }
            // The folio is not marked as leaving any more, so another CPU may have taken it out of
            // its file.
            base.put(folio);
        }
        done.folios += gone;
        done.pages += gone << row.order().get();
        base.count_folios(FolioEvent::Swpout, row.order(), gone);
        base.count(Event::PagesSwapped, pages);
        base.try_drop(&device, row, Keep::IfHeld);
    }
}
