//! Folios on their way out: slots, an identity, and the end of the way.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::Order;

use super::Paging;
use super::evict::Leaving;
use crate::base::{Device, Keep};
use crate::cache::{FilePages, file_of, identity, page_of};
use crate::folio::cached::Cached;
use crate::folio::{Folio, FolioFlags};
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
    /// Begins to take a folio out, to which the caller has a reference. If it does not leave, the
    /// reference is released.
    pub(super) fn begin(&self, folio: Folio, purpose: Purpose) -> Result<Leaving, Obstacle> {
        let (base, folios) = (self.base(), self.base().folios());
        let begun = match folios.counts(folio).pins {
            0 => match folios.identified(folio) {
                Some((cached, owner)) => self.leave_again(cached, owner, purpose),
                None => self.enter_out(folio, purpose),
            },
            _ => Err(Obstacle::Stays),
        };
        match begun {
            Ok(mut leaving) => {
                // Mappings count until they are flushed, and this space is flushed before the
                // others.
                leaving.mapped = folios.counts(folio).mapped;
                Ok(leaving)
            }
            Err(stop) => {
                base.put(folio);
                Err(stop)
            }
        }
    }

    /// Slots for a folio of `order`, on the first device that has a free run of them: for a move
    /// on a device for moves, if there is one.
    pub(super) fn take_slots(
        &self,
        order: Order,
        purpose: Purpose,
    ) -> Option<(Device<'_, A, H>, FilePages)> {
        let (base, cpu) = (self.base(), self.base().hw.cpu().index());
        let first = |admits: Admits| {
            let such = base.swaps.iter().zip(0..).filter(|(swap, _)| swap.admits() == admits);
            such.map(|(_, number)| number).find_map(|number| {
                let device = base.device(number)?;
                let slot = device.slots.take(order, cpu)?;
                Some((device, FilePages::block(slot, order)))
            })
        };
        let apart = if purpose == Purpose::Write { None } else { first(Admits::Moves) };
        apart.or_else(|| first(Admits::All))
    }

    /// The largest order below `order` that has a free run of slots.
    pub(super) fn smaller_order(&self, order: Order) -> Option<Order> {
        (0..order.get()).rev().map(Order::new).find(|&order| {
            let taken = self.take_slots(order, Purpose::Write);
            taken.map(|(device, slots)| device.slots.uncache(slots)).is_some()
        })
    }

    /// Takes a folio out that has slots.
    fn leave_again(
        &self,
        cached: Cached<'_>,
        owner: u64,
        purpose: Purpose,
    ) -> Result<Leaving, Obstacle> {
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
        Ok(Leaving::new(cached.folio, device.number, page_of(owner), false))
    }

    /// Takes a folio out: gives it slots, and their identity.
    fn enter_out(&self, folio: Folio, purpose: Purpose) -> Result<Leaving, Obstacle> {
        let (base, folios, order) = (self.base(), self.base().folios(), folio.order);
        let Some((device, slots)) = self.take_slots(order, purpose) else {
            if purpose != Purpose::Write {
                return Err(Obstacle::NoSlots);
            }
            base.count_folios(FolioEvent::SwpoutFallback, order, 1);
            let smaller = self.smaller_order(order).map(Division::Uniform);
            return Err(smaller.map_or(Obstacle::Stays, Obstacle::Divide));
        };
        let is_its = folios.identify(folio, identity(device.index.id, slots.start));
        let entered = match is_its {
            true => self.files().with(&device.index).insert(slots.start, folio),
            false => Ok(false),
        };
        if entered == Ok(true) {
            return Ok(Leaving::new(folio, device.number, slots.start, true));
        }
        if is_its && let Some((cached, _)) = folios.identified(folio) {
            cached.disclaim();
            base.put(folio);
        }
        device.slots.uncache(slots);
        Err(if entered.is_ok() { Obstacle::Stays } else { Obstacle::Starved })
    }

    /// Ends the way of a folio out: it may be written or dropped from now on.
    pub(super) fn end_out(
        &self,
        leaving: &Leaving,
        device: &Device<'_, A, H>,
        done: &mut PagedOut,
    ) {
        let (folio, slots) = (leaving.folio(), leaving.slots());
        let folios = self.base().folios();
        if leaving.dirty {
            device.index.set_dirty(slots.start, folio, true);
        }
        if folios.counts(folio).mapped == 0 {
            done.folios += 1;
            done.pages += folio.order.pages();
            self.base().count_folios(FolioEvent::Swpout, folio.order, 1);
        } else if !leaving.again {
            done.stay += 1;
        }
        self.base().count(Event::PagesSwapped, leaving.pages.into());
        if let Some((cached, _)) = folios.identified(folio) {
            cached.learn(cached.known() - FolioFlags::LEAVING);
        }
        // The folio is not marked as leaving any more, so another CPU may have taken it out of its
        // file.
        self.base().put(folio);
        self.base().try_drop(device, folio, slots, Keep::IfHeld);
    }
}
