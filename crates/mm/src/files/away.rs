//! Pages of files in memory that are on a swap device, and their way back (row D9).
//!
//! ```text
//!   file's index   Away: slots 32..48           its folio   ──►   Folio
//!   device's index     none ── Need::Read ──►   the folio         (its slots are free)
//!                                │ it has other pages as well, or not all of them
//!                                ▼
//!                                copied; or the entry is split around it
//! ```
//!
//! The entry is replaced in one step, with its node locked: a lookup finds the entry or the folio,
//! and never nothing. Behind that lock, the folio's slot and the device's index change as well.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, OrderSet};

use super::OpenFile;
use super::open::usable;
use crate::base::{Device, Error, Need, Stop};
use crate::cache::{Bounds, Entry, FilePages, Reads, Window, identity};
use crate::folio::copy::copy;
use crate::folio::{Folio, FolioFlags};
use crate::limits::{SWAP_AROUND_BYTES, SWAP_AROUND_SPARE};
use crate::stats::{Event, FolioEvent};
use crate::swap::SwapEntry;
use crate::sync::spin_loop;

/// A block of pages of a file that are elsewhere: its entry, its pages, and its slots.
#[derive(Clone, Copy)]
struct Block {
    entry: Entry,
    at: FilePages,
    slots: FilePages,
}

impl Block {
    /// The block of an entry at `at`; `None` for one that is no block elsewhere.
    fn of(entry: Entry, at: FilePages) -> Option<(Self, u32)> {
        let Entry::Away { place, order } = entry else { return None };
        let SwapEntry { device, slot, .. } = SwapEntry::at(place);
        Some((Self { entry, at, slots: FilePages::block(slot, order) }, device))
    }

    fn order(&self) -> Order {
        self.entry.order()
    }

    /// The pages of the file that have some of its `slots`.
    fn pages_of(&self, slots: FilePages) -> FilePages {
        let page = |slot: u64| self.at.start + (slot - self.slots.start);
        FilePages::new(page(slots.start), page(slots.end))
    }

    /// The slot of a page.
    fn slot_of(&self, page: u64) -> u64 {
        self.slots.start + (page - self.at.start)
    }
}

/// Consecutive pages as aligned blocks, and the entry of each, ascending.
fn blocks(block: Block, device: u32, pages: FilePages) -> impl Iterator<Item = (u64, Entry)> {
    let mut at = pages.start;
    core::iter::from_fn(move || {
        let fits = Order::fitting(pages.end - at)?;
        let order = Order::new(fits.get().min(at.trailing_zeros().min(63) as u8));
        let slot = block.slot_of(at);
        let entry = SwapEntry { device, slot, exclusive: false, written: false, watched: false };
        let part = (at, Entry::Away { place: entry.place(), order });
        at += order.pages();
        Some(part)
    })
}

impl<A: Arch, H: Hardware> OpenFile<'_, A, H> {
    /// Brings the block of `page` back, if it is elsewhere, and what was read with it. Where it is
    /// in memory already, it does not wait.
    ///
    /// # Errors
    /// [`Need::Read`] and [`Need::Wait`] for the swap device that has it; [`Error::Failed`] when
    /// the device could not give it, [`Error::Poisoned`], [`Error::NoMemory`].
    pub(crate) fn come_back(&self, page: u64) -> Result<(), Stop> {
        loop {
            let (entry, at) = self.index.find(page);
            let Some((block, number)) = Block::of(entry, at) else { return Ok(()) };
            let failed = Error::Failed(self.index.id, page);
            let device = &self.base().device(number).ok_or(failed)?;
            if !self.bring_block(&block, device, block.slot_of(page))? {
                spin_loop();
                continue;
            }
            let around = around::<A>(page);
            let ahead = FilePages::new(block.at.end.min(around.end), around.end);
            self.bring_ahead(ahead);
            return Ok(());
        }
    }

    /// Brings the blocks of `pages` that are in memory already, from the first on.
    fn bring_ahead(&self, pages: FilePages) {
        let mut left = pages;
        while let Some((entry, at)) = self.index.next_content(left)
            && at.start == left.start
        {
            if let Some((block, number)) = Block::of(entry, at) {
                let Some(device) = self.base().device(number) else { return };
                let (found, there) = device.index.find(block.slots.start);
                let Entry::Folio { folio, .. } = found else { return };
                if there != block.slots || !self.take_back(&block, &device, folio) {
                    return;
                }
            }
            left = FilePages::new(at.end.min(left.end), left.end);
        }
    }

    /// Brings a block back of which `slot` is wanted; whether that is done. If not, it has changed.
    fn bring_block(
        &self,
        block: &Block,
        device: &Device<'_, A, H>,
        slot: u64,
    ) -> Result<bool, Stop> {
        let (found, there) = device.index.find(slot);
        let Entry::Folio { folio, .. } = found else {
            self.files.with(&device.index).take_read_error(found, slot)?;
            let is_away = self.index.find(block.at.start).0 == block.entry;
            let still = is_away && !device.index.find(slot).0.has_content();
            return match still {
                true => Err(Need::Read(self.reads(block, device, slot)).into()),
                false => Ok(false),
            };
        };
        if block.slots == there && self.take_back(block, device, folio) {
            return Ok(true);
        }
        let Some(cached) = self.base().cached(device.index.id, there.start, folio) else {
            return Ok(false);
        };
        let known = cached.known();
        usable(known, device.index.id, folio.head.add(slot - there.start))?;
        if known.contains(FolioFlags::WRITING) {
            return Err(Need::Wait(device.index.id).into());
        }
        if there == block.slots || !cached.hold() {
            return Ok(false);
        }
        drop(cached);
        let split = |pages| self.split_away(block, device.number, pages).map(|_| false);
        let done = match block.slots.covers(there) {
            true => split(block.pages_of(there)),
            false => match self.copy_back(block, device, folio, there) {
                // A page of it may have room.
                Err(Error::NoMemory(order)) if order > Order::ZERO => {
                    split(block.pages_of(FilePages::new(slot, slot + 1)))
                }
                done => done,
            },
        };
        self.base().put(folio);
        Ok(done?)
    }

    /// Makes the folio in memory that has just the slots of a block the file's own; whether it did.
    /// A folio that is being read or written stays.
    fn take_back(&self, block: &Block, device: &Device<'_, A, H>, folio: Folio) -> bool {
        let (base, id) = (self.base(), self.index.id);
        let owners = (identity(device.index.id, block.slots.start), identity(id, block.at.start));
        let stays =
            FolioFlags::WRITING | FolioFlags::POISONED | FolioFlags::SECLUDED | FolioFlags::LEAVING;
        let kept = FolioFlags::CACHED | FolioFlags::UPTODATE | FolioFlags::PUBLISHED;
        let judge = |known: FolioFlags, _| {
            let may = known.contains(FolioFlags::UPTODATE) && !known.intersects(stays);
            may.then_some(known & kept)
        };
        let agree = || {
            base.folios().reidentify(folio, owners, judge)
                && base.take_out(&device.index, block.slots.start, folio, None)
        };
        let new = Entry::Folio { folio, dirty: false };
        let (entry, order) = (block.entry, block.order());
        let is_it = |now: Entry| now == entry;
        if self.index.exchange(block.at.start, order, is_it, new, agree).is_none() {
            return false;
        }
        device.slots.release(block.slots);
        device.slots.uncache(block.slots);
        self.count_back(block, folio.order);
        true
    }

    /// Brings a copy of a block back, whose slots a larger folio has with others; whether it did.
    /// The caller holds that folio.
    fn copy_back(
        &self,
        block: &Block,
        device: &Device<'_, A, H>,
        folio: Folio,
        there: FilePages,
    ) -> Result<bool, Error> {
        let (base, order) = (self.base(), block.order());
        let run = base.frames(order, true)?;
        let (id, start) = (self.index.id, block.at.start);
        let mut from = folio.span();
        from.start = from.start.add(block.slots.start - there.start);
        from.count = order.pages();
        if let Err(poisoned) = copy(base.hw, &run, from, 0, base.pace, &mut || {}) {
            base.free(run.dirtied());
            return Err(poisoned.into());
        }
        let run = run.dirtied();
        let own =
            base.folios().adopt_cached(&run, order, identity(id, start), FolioFlags::UPTODATE);
        let new = Entry::Folio { folio: own, dirty: false };
        let is_it = |now: Entry| now == block.entry;
        if self.index.exchange(start, order, is_it, new, || true).is_none() {
            base.folios().unadopt(own);
            base.free(run);
            return Ok(false);
        }
        device.slots.release(block.slots);
        base.let_go(device, block.slots);
        self.count_back(block, order);
        Ok(true)
    }

    /// Counts a block that has come back as a folio of `order`.
    fn count_back(&self, block: &Block, order: Order) {
        let pages = block.at.count();
        self.count_cached(pages as i64);
        self.base().count(Event::PagesSwappedIn, pages);
        self.base().count_folios(FolioEvent::Swpin, order, 1);
    }

    /// The reads for a block of which `slot` is wanted: all of it, if none of it is in memory; with
    /// a small one also its neighbours that left with it, where memory is not short.
    fn reads(&self, block: &Block, device: &Device<'_, A, H>, slot: u64) -> Reads {
        let whole = |order: &Order| device.slots.is_intact(FilePages::block(slot, *order));
        let sizes = OrderSet::up_to(block.order());
        let order = sizes.descending(Order::new(1)).find(whole).unwrap_or_default();
        let folio = FilePages::block(slot, order);
        let (end, sizes) = (device.index.file.pages(), OrderSet::up_to(order));
        let bounds = Bounds { end, window: 0, smallest: Order::ZERO, sizes };
        let around = around::<A>(block.at.start);
        let large = block.at.count() >= around.count() || folio != block.slots;
        let pages = match large || !self.base().phys.has_free(SWAP_AROUND_SPARE) {
            true => folio,
            false => self.with_neighbours(block, device, around),
        };
        Reads::new(device.index.id, Window { pages, ..Window::exactly(folio, &bounds) }, Some(slot))
    }

    /// The slots of a block and of the blocks beside it in `around` that are as large, whose slots
    /// follow each other, and that are not in memory.
    fn with_neighbours(
        &self,
        block: &Block,
        device: &Device<'_, A, H>,
        around: FilePages,
    ) -> FilePages {
        let count = block.at.count();
        let is_next = |page: u64, slot: u64| {
            let (entry, at) = self.index.find(page);
            Block::of(entry, at).is_some_and(|(other, number)| {
                let slots = FilePages::new(slot, slot + count);
                number == device.number && other.slots == slots && device.slots.is_intact(slots)
            })
        };
        let (mut first, mut last) = (0, 1);
        while (first + 1) * count <= (block.at.start - around.start).min(block.slots.start)
            && is_next(
                block.at.start - (first + 1) * count,
                block.slots.start - (first + 1) * count,
            )
        {
            first += 1;
        }
        while block.at.start + last * count < around.end
            && is_next(block.at.start + last * count, block.slots.start + last * count)
        {
            last += 1;
        }
        FilePages::new(block.slots.start - first * count, block.slots.start + last * count)
    }

    /// Ends the pages `gone` of a block that is elsewhere; whether it is done. If not, it has
    /// changed.
    pub(super) fn cut_away(
        &self,
        entry: Entry,
        at: FilePages,
        gone: FilePages,
    ) -> Result<bool, Error> {
        if gone.covers(at) {
            return Ok(self.drop_away(entry, at));
        }
        let Some((block, device)) = Block::of(entry, at) else { return Ok(false) };
        // Then those parts of it that go are whole blocks.
        self.split_away(&block, device, gone.intersect(at)).map(|_| false)
    }

    /// Forgets a block that is elsewhere; whether it was there.
    pub(super) fn drop_away(&self, entry: Entry, at: FilePages) -> bool {
        let Some((block, device)) = Block::of(entry, at) else { return false };
        let is_it = |now: Entry| now == entry;
        let gone = self.index.exchange(at.start, entry.order(), is_it, Entry::Empty, || true);
        if gone.is_some()
            && let Some(device) = self.base().device(device)
        {
            device.slots.release(block.slots);
            self.base().let_go(&device, block.slots);
        }
        gone.is_some()
    }

    /// Splits the entry of a block where `part`, some of its pages, begins and ends; whether it was
    /// there.
    fn split_away(&self, block: &Block, device: u32, part: FilePages) -> Result<bool, Error> {
        let _reshaping = self.reshaping();
        let (base, start, entry) = (self.base(), block.at.start, block.entry);
        let low = base.with_spare(|spare| self.index.lower(start, entry, spare))?;
        let pieces =
            [FilePages::new(start, part.start), part, FilePages::new(part.end, block.at.end)];
        let parts = pieces.into_iter().flat_map(|pages| blocks(*block, device, pages));
        Ok(low && self.index.part(start, entry, parts))
    }
}

/// The pages around one that come back together.
fn around<A: Arch>(page: u64) -> FilePages {
    let pages = (SWAP_AROUND_BYTES >> A::PAGE_SHIFT).max(1);
    FilePages::block(page, Order::fitting(pages).unwrap_or_default())
}
