//! Swap devices: adding and removing them, and the slots that entries refer to.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, PageSpan, Vpn};

use super::Paging;
use crate::base::Error;
use crate::cache::{FileId, FilePages, Store};
use crate::space::Space;
use crate::swap::{Admits, SLOTS_MAX, Slots, Swap, SwapEntry};
use crate::table::Sight;

impl<'m, A: Arch, H: Hardware> Paging<'m, A, H> {
    /// Adds a swap device of `slots` base pages. Page `n` of its file is slot `n`; use
    /// [`next_read`](crate::Files::next_read) and [`next_write`](crate::Files::next_write) for its
    /// reads and writes. All memory for the slots' words is allocated now, 8 bytes for each.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a device without slots, or with too many; [`Error::NoFile`] when no
    /// file or no device is free; [`Error::NoMemory`]. Nothing has changed then.
    pub fn swap_on(&self, slots: u64) -> Result<FileId, Error> {
        self.add_device(slots, Admits::All)
    }

    /// Adds a device for moves: folios that [move](Self::migrate) have slots of it for that time,
    /// so that they can where there is no swap device, or it is full. Nothing is ever written
    /// there, and [`devices`](Self::devices) leaves it out. All folios of a batch need slots at
    /// once; with fewer, batches are smaller.
    ///
    /// # Errors
    /// As for [`swap_on`](Self::swap_on).
    pub fn moves_on(&self, slots: u64) -> Result<FileId, Error> {
        self.add_device(slots, Admits::Moves)
    }

    fn add_device(&self, slots: u64, admits: Admits) -> Result<FileId, Error> {
        if slots == 0 || slots > SLOTS_MAX {
            return Err(Error::Invalid);
        }
        let free = |swap: &&Swap| swap.file().is_none();
        let swap = self.base().swaps.iter().find(free).ok_or(Error::NoFile)?;
        let id = self.files().open(Store::Swap, slots, Order::ZERO)?;
        let view = Slots::<A, H>::new(self.base().hw, self.base().phys.meta(), swap);
        if !view.found(slots, || self.base().table_frame().ok()) {
            view.fell(|run| self.base().free(run));
            swap.close();
            self.files().close(id)?;
            return Err(Error::NoMemory(Order::ZERO));
        }
        swap.open(id, slots, admits);
        Ok(id)
    }

    /// Begins to remove a swap device: no page goes there any more. Touching the pages on it brings
    /// them back ([`next_swapped`](Self::next_swapped)); when none is left,
    /// [`swap_off`](Self::swap_off) succeeds.
    ///
    /// # Errors
    /// [`Error::NoFile`] when no device in use has this file; [`Error::Invalid`] for a device for
    /// moves.
    pub fn swap_closing(&self, id: FileId, closing: bool) -> Result<(), Error> {
        let swap = self.base().device_of(id)?.slots.swap;
        if swap.admits() == Admits::Moves {
            return Err(Error::Invalid);
        }
        swap.set_admits(if closing { Admits::Nothing } else { Admits::All });
        Ok(())
    }

    /// The first page of `space` from `from` on that is on the swap device `id`.
    pub fn next_swapped(&self, space: &Space<A>, id: FileId, from: Vpn) -> Option<Vpn> {
        let number = self.base().device_of(id).ok()?.number;
        let mut entries = self.entries(space, PageSpan::new(from, Vpn::new(A::USER_PAGES)));
        entries.find(|(_, entry)| entry.device == number).map(|(pages, _)| pages.start)
    }

    /// Removes a swap device.
    ///
    /// # Errors
    /// [`Error::NoFile`] when no device has this file; [`Error::InUse`] as long as a slot is in
    /// use. The device takes pages as before then.
    pub fn swap_off(&self, id: FileId) -> Result<(), Error> {
        let device = self.base().device_of(id)?;
        let before = device.slots.swap.set_admits(Admits::Nothing);
        self.files().drop_clean(id, FilePages::new(0, device.index.file.pages()))?;
        if device.slots.swap.used() > 0 {
            device.slots.swap.set_admits(before);
            return Err(Error::InUse(id));
        }
        self.files().close(id)?;
        device.slots.fell(|run| self.base().free(run));
        device.slots.swap.close();
        Ok(())
    }

    /// The swap devices in use: for each its file, its number of slots, and the number of used
    /// ones.
    pub fn devices(&self) -> impl Iterator<Item = (FileId, u64, u64)> + use<'m, A, H> {
        let told = |swap: &'m Swap| Some((swap.file()?, swap.slots(), swap.used()));
        let all = self.base().swaps.iter();
        all.filter(|swap| swap.admits() != Admits::Moves).filter_map(told)
    }

    /// The first run of free slots of a device in `slots`, within one cluster; `None` where there
    /// is none. Paging out may take them at any time: an embedder that writes slots under a lock of
    /// its own can rely on the answer under that lock.
    pub fn free_slots(&self, id: FileId, slots: FilePages) -> Option<FilePages> {
        self.base().device_of(id).ok()?.slots.first_free(slots)
    }

    /// How many pages of `space` are on swap devices.
    pub fn swapped(&self, space: &Space<A>) -> u64 {
        let all = Space::<A>::all();
        self.entries(space, all).map(|(pages, _)| pages.count()).sum()
    }

    /// The runs of swap entries in `span` of a space, ascending: the pages and the first entry.
    pub(crate) fn entries<'a>(
        &'a self,
        space: &'a Space<A>,
        span: PageSpan,
    ) -> impl Iterator<Item = (PageSpan, SwapEntry)> + use<'a, 'm, A, H> {
        let pieces = self.base().view(space).tables().pieces(span);
        pieces.filter_map(|seen| match seen.what {
            Sight::Marker(marks) => Some((seen.pages, SwapEntry::of(marks.first)?)),
            Sight::Leaf { .. } => None,
        })
    }
}
