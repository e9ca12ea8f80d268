//! Swap devices by number, and the slots that swap entries refer to.

use core::ops::Range;

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::Order;

use super::stores::folios_in;
use super::{Base, Error};
use crate::cache::{FileId, FilePages, Index, Row, Store};
use crate::folio::{Folio, FolioFlags};
use crate::radix::Node;
use crate::swap::{Slots, SwapEntry};
use crate::table::Marks;

/// A swap device as services see it: its slots, and the file whose pages they are.
pub(crate) struct Device<'a, A, H> {
    pub(crate) number: u32,
    pub(crate) slots: Slots<'a, A, H>,
    pub(crate) index: Index<'a, A, H>,
}

/// The folios of a device that stay in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// Those that an entry refers to.
    IfReferred,
    /// Those among them that are not written yet, or that have another reference.
    IfHeld,
}

impl<A: Arch, H: Hardware> Base<'_, A, H> {
    /// Whether a swap device has what the folio holds, or had it.
    pub(crate) fn is_swapped(&self, folio: Folio) -> bool {
        self.store_of(folio) == Some(Store::Swap)
    }

    /// The device with this number.
    pub(crate) fn device(&self, number: u32) -> Option<Device<'_, A, H>> {
        let swap = self.swaps.get(number as usize)?;
        let index = self.index(swap.file()?).ok()?;
        Some(Device { number, slots: Slots::new(self.hw, self.phys.meta(), swap), index })
    }

    /// The device whose file is `id`.
    pub(crate) fn device_of(&self, id: FileId) -> Result<Device<'_, A, H>, Error> {
        let number = self.swaps.iter().position(|swap| swap.file() == Some(id));
        number.and_then(|number| self.device(number as u32)).ok_or(Error::NoFile)
    }

    /// Marks for two spaces, from a run of markers for `pages` pages that one of them had: each
    /// slot gets a second reference, and no mark is exclusive.
    pub(crate) fn lend_marks(&self, marks: Marks, pages: u64) -> Marks {
        let Some(entry) = SwapEntry::of(marks.first) else { return marks };
        if let Some(device) = self.device(entry.device) {
            device.slots.refer(FilePages::new(entry.slot, entry.slot + pages));
        }
        Marks { first: SwapEntry { exclusive: false, ..entry }.payload(), ..marks }
    }

    /// Releases a removed run of markers for `pages` pages.
    pub(crate) fn release_marks(&self, first: u64, pages: u64) {
        let Some(entry) = SwapEntry::of(first) else { return };
        let Some(device) = self.device(entry.device) else { return };
        let slots = FilePages::new(entry.slot, entry.slot + pages);
        device.slots.release(slots);
        self.let_go(&device, slots);
    }

    /// Drops the folios of `slots` that no entry refers to.
    // Its row would be on the stack of every settled change.
    #[inline(never)]
    pub(crate) fn let_go(&self, device: &Device<'_, A, H>, slots: FilePages) {
        for (folio, at) in folios_in(&device.index, slots) {
            self.try_drop(device, &Row::of(at.start, folio), Keep::IfReferred);
        }
    }

    /// Ends the claims of a row's folios to their slots where no entry refers to them any more; or
    /// with [`Keep::IfHeld`] also where the slots hold a folio's contents and no reference is left.
    /// Their memory is free then, unless it is mapped. Returns how many left the index.
    ///
    /// Folios that are being read, written or unmapped stay: the CPU that does so calls this at the
    /// end.
    #[inline(never)]
    pub(crate) fn try_drop(&self, device: &Device<'_, A, H>, row: &Row, keep: Keep) -> usize {
        let node = if keep == Keep::IfHeld { device.index.node_of(row) } else { None };
        let (mut from, mut dropped) = (0, 0);
        for ((folio, at), number) in row.iter().zip(0..) {
            if self.disclaims(device, (folio, at), keep, node) {
                dropped += 1;
            } else {
                self.drop_disclaimed(device, row, from..number);
                from = number + 1;
            }
        }
        self.drop_disclaimed(device, row, from..row.len());
        dropped
    }

    /// Takes a folio's identity away if it may go; whether it did.
    fn disclaims(
        &self,
        device: &Device<'_, A, H>,
        (folio, at): (Folio, FilePages),
        keep: Keep,
        node: Option<Node>,
    ) -> bool {
        let Some(cached) = self.cached(device.index.id, at.start, folio) else { return false };
        let known = cached.known();
        let busy = known.intersects(FolioFlags::LEAVING | FolioFlags::WRITING);
        if busy || !known.contains(FolioFlags::UPTODATE) {
            return false;
        }
        let is_clean = || device.index.is_clean_in(node, at.start, folio);
        let may_go = || keep == Keep::IfHeld && cached.is_idle() && is_clean();
        let goes = device.slots.is_unreferred(at) || may_go();
        if goes {
            cached.disclaim();
        }
        goes
    }

    /// Takes those folios of a row, which have no identity, out of a device's index, and then their
    /// claims away.
    fn drop_disclaimed(&self, device: &Device<'_, A, H>, row: &Row, gone: Range<usize>) {
        if !gone.is_empty() {
            self.take_out_row(&device.index, row, gone.clone());
            device.slots.uncache(row.part(gone.start, gone.end));
            for (folio, _) in row.iter().skip(gone.start).take(gone.len()) {
                self.put(folio);
            }
        }
    }

    /// Claims the slots of a swap device for reads of folios of `order`, and returns of how many:
    /// see [`Slots::claim`].
    pub(crate) fn claim_slots(&self, id: FileId, slots: FilePages, order: Order) -> usize {
        self.device_of(id).map_or(0, |device| device.slots.claim(slots, order))
    }

    /// Ends a claim to slots, where the file is a swap device's.
    pub(crate) fn unclaim_slots(&self, id: FileId, slots: FilePages) {
        if let Ok(device) = self.device_of(id) {
            device.slots.uncache(slots);
        }
    }

    /// Reads of a row of a swap device ended: the faults that waited for them may be gone.
    pub(crate) fn read_ended(&self, id: FileId, row: &Row) {
        self.row_ended(id, row, Keep::IfReferred);
    }

    /// Writes of a row of a swap device ended: clean, idle folios go.
    pub(crate) fn write_ended(&self, id: FileId, row: &Row) {
        self.row_ended(id, row, Keep::IfHeld);
    }

    /// Drops folios of a row that are not needed any more; how many. `None` where the file is no
    /// swap device's.
    #[inline(never)]
    fn row_ended(&self, id: FileId, row: &Row, keep: Keep) -> Option<usize> {
        let device = self.device_of(id).ok()?;
        Some(self.try_drop(&device, row, keep))
    }

    /// Drops a clean, idle folio of a swap device; whether it is gone. `None` where the file is no
    /// swap device's.
    pub(crate) fn drop_idle_swapped(
        &self,
        id: FileId,
        folio: Folio,
        slots: FilePages,
    ) -> Option<bool> {
        Some(self.row_ended(id, &Row::of(slots.start, folio), Keep::IfHeld)? > 0)
    }
}
