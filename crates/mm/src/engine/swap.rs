//! Swap devices: taking them into use and out of it, and the slots that entries refer to.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Vpn};

use super::error::Error;
use super::mm::Mm;
use crate::cache::{Entry, FileId, FilePages, Index, Store, identity};
use crate::folio::{Folio, Folios, Known};
use crate::space::Space;
use crate::swap::{SLOTS_MAX, Slots, Swap, SwapEntry};
use crate::table::{Marks, Sight};

/// A device as the engine sees it: its slots, and the file whose pages they are.
pub(crate) struct Device<'a, A, H> {
    pub(crate) number: u32,
    pub(crate) slots: Slots<'a, A, H>,
    pub(crate) index: Index<'a, A, H>,
}

/// Which folios of a device stay in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keep {
    /// Those that an entry refers to.
    IfReferred,
    /// Those among them that are not on the device yet, or that somebody has a hold on.
    IfHeld,
}

impl<'m, A: Arch, H: Hardware> Mm<'m, A, H> {
    /// Takes a swap device of `slots` base pages into use. Its file, whose page `n` is slot `n`:
    /// what of it is to be read and written, the calls for files say
    /// ([`next_read`](Self::next_read), [`next_write`](Self::next_write)). All memory that keeping
    /// account of the slots needs is taken now, 8 bytes for each.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a device without slots, or with too many; [`Error::NoFile`] when no
    /// file or no device is free; [`Error::NoMemory`]. Nothing has changed then.
    pub fn swap_on(&self, slots: u64) -> Result<FileId, Error> {
        if slots == 0 || slots > SLOTS_MAX {
            return Err(Error::Invalid);
        }
        let free = |swap: &&Swap| swap.file().is_none();
        let swap = self.swaps.iter().find(free).ok_or(Error::NoFile)?;
        let id = self.open_file(Store::Swap, slots, Order::ZERO)?;
        let view = Slots::<A, H>::new(self.hw, self.phys.meta(), swap);
        if !view.found(slots, || self.table_frame().ok()) {
            view.fell(|run| self.free(run));
            swap.close();
            self.close_file(id)?;
            return Err(Error::NoMemory(Order::ZERO));
        }
        swap.open(id, slots);
        Ok(id)
    }

    /// Begins to take a swap device out of use: no page goes there any more. Those that are there
    /// are brought back by touching them ([`next_swapped`](Self::next_swapped)); when none is left,
    /// [`swap_off`](Self::swap_off) succeeds.
    ///
    /// # Errors
    /// [`Error::NoFile`] when it is no device in use.
    pub fn swap_closing(&self, id: FileId, closing: bool) -> Result<(), Error> {
        self.device_of(id)?.slots.swap.set_closing(closing);
        Ok(())
    }

    /// The first page of `space` from `from` on that is on the swap device `id`.
    pub fn next_swapped(&self, space: &Space<A>, id: FileId, from: Vpn) -> Option<Vpn> {
        let number = self.device_of(id).ok()?.number;
        let all = PageSpan::new(from, Vpn::new(A::USER_PAGES));
        let is_there =
            |marks: Marks| SwapEntry::of(marks.first).is_some_and(|entry| entry.device == number);
        let mut pieces = self.view(space).tables().pieces(all);
        let found =
            pieces.find(|seen| matches!(seen.what, Sight::Marker(marks) if is_there(marks)));
        found.map(|seen| seen.pages.start)
    }

    /// Takes a swap device out of use.
    ///
    /// # Errors
    /// [`Error::NoFile`] when it is none; [`Error::Busy`] as long as a slot is in use.
    pub fn swap_off(&self, id: FileId) -> Result<(), Error> {
        let device = self.device_of(id)?;
        device.slots.swap.set_closing(true);
        self.drop_clean(id, FilePages::new(0, device.index.file.pages()))?;
        if device.slots.swap.used() > 0 {
            return Err(Error::Busy(id));
        }
        self.close_file(id)?;
        device.slots.fell(|run| self.free(run));
        device.slots.swap.close();
        Ok(())
    }

    /// The swap devices in use: each its file, how many slots it has, and how many are used.
    pub fn swap_devices(&self) -> impl Iterator<Item = (FileId, u64, u64)> + use<'m, A, H> {
        let told = |swap: &'m Swap| Some((swap.file()?, swap.slots(), swap.used()));
        self.swaps.iter().filter_map(told)
    }

    /// The first run of free slots of a device in `slots`, within one cluster; `None` where there
    /// is none. They may be taken at any time: an embedder that has a lock of its own,
    /// under which it writes slots as well, knows under it that what is there is nobody's.
    pub fn free_slots(&self, id: FileId, slots: FilePages) -> Option<FilePages> {
        self.device_of(id).ok()?.slots.first_free(slots)
    }

    /// How many pages of `space` are on swap devices.
    pub fn swapped(&self, space: &Space<A>) -> u64 {
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        let is_swap = |marks: Marks| SwapEntry::of(marks.first).is_some();
        let pieces = self.view(space).tables().pieces(all);
        let there =
            |seen: &crate::table::Seen| matches!(seen.what, Sight::Marker(marks) if is_swap(marks));
        pieces.filter(there).map(|seen| seen.pages.count()).sum()
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

    /// What two spaces have of a run of markers for `pages` pages that one of them had: each is
    /// referred to twice, and nobody's own.
    pub(super) fn lend_marks(&self, marks: Marks, pages: u64) -> Marks {
        let Some(entry) = SwapEntry::of(marks.first) else { return marks };
        if let Some(device) = self.device(entry.device) {
            device.slots.refer(FilePages::new(entry.slot, entry.slot + pages));
        }
        Marks { first: SwapEntry { exclusive: false, ..entry }.payload(), ..marks }
    }

    /// A run of markers for `pages` pages is gone.
    pub(super) fn release_marks(&self, first: u64, pages: u64) {
        let Some(entry) = SwapEntry::of(first) else { return };
        let Some(device) = self.device(entry.device) else { return };
        let slots = FilePages::new(entry.slot, entry.slot + pages);
        device.slots.release(slots);
        self.let_go(&device, slots);
    }

    /// Drops the folios of `slots` that nobody needs in memory.
    pub(super) fn let_go(&self, device: &Device<'_, A, H>, slots: FilePages) {
        let mut left = slots;
        while let Some((folio, at)) = device.index.next(left) {
            left = FilePages::new(at.end, left.end);
            self.try_drop(device, folio, at, Keep::IfReferred);
        }
    }

    /// Ends the claim of a folio to its slots, if no entry refers to them any more; or, unless it
    /// is to be kept, if they hold what the folio does and nobody has a hold on it. Its memory is
    /// free then, unless it is mapped. Whether it is in the index no more.
    ///
    /// What is being read, written or unmapped is left alone: who does that calls this at the end.
    pub(super) fn try_drop(
        &self,
        device: &Device<'_, A, H>,
        folio: Folio,
        at: FilePages,
        keep: Keep,
    ) -> bool {
        let folios = Folios::new(self.phys.meta());
        let owner = identity(device.index.id, at.start);
        let Some(cached) = folios.cached(folio.head, owner) else { return false };
        let known = cached.known();
        let busy = known.intersects(Known::LEAVING | Known::WRITING);
        if busy || !known.contains(Known::FILLED) || cached.folio != folio {
            return false;
        }
        let is_dirty = || matches!(device.index.find(at.start).0, Entry::Folio { dirty: true, .. });
        let may_go = || keep == Keep::IfHeld && cached.is_idle() && !is_dirty();
        if !device.slots.is_unreferred(at) && !may_go() {
            return false;
        }
        cached.disclaim();
        let removed = device.index.remove(at.start, folio, None);
        debug_assert!(removed, "what has an identity is in its index");
        device.index.file.count_cached(-(at.count() as i64));
        device.slots.uncache(at);
        if let Some(run) = folios.put(folio) {
            self.free(run);
        }
        true
    }
}
