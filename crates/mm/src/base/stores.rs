//! Files and swap devices by number, and the slots that swap entries refer to.

use quire_arch::Arch;
use quire_hw::Hardware;

use super::{Base, Error};
use crate::cache::{Entry, File, FileId, FilePages, Index, Store, identity};
use crate::folio::{Folio, Folios, Known};
use crate::swap::{Slots, SwapEntry};
use crate::table::Marks;

/// A device as services see it: its slots, and the file whose pages they are.
pub(crate) struct Device<'a, A, H> {
    pub(crate) number: u32,
    pub(crate) slots: Slots<'a, A, H>,
    pub(crate) index: Index<'a, A, H>,
}

/// Which folios of a device stay in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// Those that an entry refers to.
    IfReferred,
    /// Those among them that are not on the device yet, or that somebody has a hold on.
    IfHeld,
}

impl<'m, A: Arch, H: Hardware> Base<'m, A, H> {
    /// The file with this number, if it is in use.
    pub(crate) fn file(&self, id: FileId) -> Option<&'m File> {
        self.files.get(id.0 as usize).filter(|file| file.store().is_some())
    }

    pub(crate) fn index(&self, id: FileId) -> Result<Index<'_, A, H>, Error> {
        let file = self.file(id).ok_or(Error::NoFile)?;
        Ok(Index::new(self.hw, self.phys.meta(), file, id))
    }

    /// Where the file of a folio is, if it is one's.
    pub(crate) fn store_of(&self, folio: Folio) -> Option<Store> {
        let (known, owner) = Folios::new(self.phys.meta()).known(folio);
        let file = known.contains(Known::CACHED).then(|| crate::cache::file_of(owner))?;
        self.file(file)?.store()
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
    pub(crate) fn lend_marks(&self, marks: Marks, pages: u64) -> Marks {
        let Some(entry) = SwapEntry::of(marks.first) else { return marks };
        if let Some(device) = self.device(entry.device) {
            device.slots.refer(FilePages::new(entry.slot, entry.slot + pages));
        }
        Marks { first: SwapEntry { exclusive: false, ..entry }.payload(), ..marks }
    }

    /// A run of markers for `pages` pages is gone.
    pub(crate) fn release_marks(&self, first: u64, pages: u64) {
        let Some(entry) = SwapEntry::of(first) else { return };
        let Some(device) = self.device(entry.device) else { return };
        let slots = FilePages::new(entry.slot, entry.slot + pages);
        device.slots.release(slots);
        self.let_go(&device, slots);
    }

    /// Drops the folios of `slots` that nobody needs in memory.
    pub(crate) fn let_go(&self, device: &Device<'_, A, H>, slots: FilePages) {
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
    pub(crate) fn try_drop(
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
