//! Files whose pages are in reserved folios (row A9), and the pools of these.
//!
//! ```text
//!   word of the index       a fault in the block
//!   nothing                 takes a folio that is free and not promised, or is refused
//!   promised                takes the promised folio
//!   claimed                 another CPU does one of the two: decide anew
//!   a folio                 maps it
//! ```
//!
//! A private area gets folios of its own where its file has none; they are not in the file. So a
//! private mapping without a name is a private area of a file that has no other user, and a fork
//! shares its folios as those of any private area. They are copied whole, out of the pool.
//!
//! A claim is a note in the index. So of two CPUs that fault in a block one takes a folio, and the
//! other needs none: it is not refused while the last folio is on its way. Notes of such files
//! change only while the file may not be reshaped.

use core::cell::Cell;

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Access, Order};

use super::{Files, OpenFile};
use crate::base::{Error, PoolCounts};
use crate::cache::{Entry, FileId, FilePages, InsertLack, Note};
use crate::fault::{FilePage, Plan, Stale};
use crate::folio::FolioFlags;
use crate::space::{AreaFlags, View};
use crate::spaces::{Resolved, Served};
use crate::sync::spin_loop;

impl<A: Arch, H: Hardware> Files<'_, A, H> {
    /// Makes a pool of folios of `order`, which is empty, unless there is one. Its size is set by
    /// [`resize_pool`](Self::resize_pool).
    ///
    /// # Errors
    /// [`Error::Invalid`] for an order below [`CACHED_ORDER_MAX`](crate::limits::CACHED_ORDER_MAX)
    /// or above [`ORDER_MAX`](crate::limits::ORDER_MAX), or when there are
    /// [`POOLS_MAX`](crate::limits::POOLS_MAX) other pools.
    pub fn open_pool(&self, order: Order) -> Result<(), Error> {
        self.base().open_pool(order)
    }

    /// Gives a pool as many folios, as far as there is memory; fewer only as far as they are free
    /// and not promised, and the others are a surplus until they are. Returns its numbers; `None`
    /// where there is no such pool. Folios smaller than a
    /// [group](crate::limits::GROUP_ORDER) come in whole groups, of which the rest lies unused.
    ///
    /// Another call may find more after [`compact`](crate::Reclaim::compact).
    pub fn resize_pool(&self, order: Order, folios: u64) -> Option<PoolCounts> {
        self.base().resize_pool(order, folios)
    }

    /// Sets how many folios a pool may have beyond its size, taken when they are needed
    /// (`nr_overcommit_hugepages`); `None` where there is no such pool.
    pub fn set_surplus_most(&self, order: Order, folios: u64) -> Option<()> {
        self.base().set_surplus_most(order, folios)
    }

    /// The numbers of a pool. A surplus that is free leaves the pool by that.
    pub fn pool(&self, order: Order) -> Option<PoolCounts> {
        self.base().pool_counts(order)
    }

    /// Promises a folio for each block of `pages` of a file of reserved folios that has none: a
    /// fault there cannot fail any more. The promise ends when the block gets its folio, with
    /// [`renounce`](Self::renounce), and when the file is cut or closed.
    ///
    /// # Errors
    /// [`Error::NoReserved`]: none is promised then. [`Error::NoMemory`] without a frame for the
    /// record: some are promised, and `renounce` ends that. [`Error::NoFile`]; [`Error::Invalid`]
    /// for another kind of file.
    pub fn promise(&self, id: FileId, pages: FilePages) -> Result<(), Error> {
        let file = self.opened(id)?;
        let order = file.whole().ok_or(Error::Invalid)?;
        let _reshaping = file.reshaping();
        let (start, block) = (FilePages::block(pages.start, order).start, order.pages() as usize);
        let blocks = (start..pages.end).step_by(block);
        let is_empty = |page: &u64| file.index.find(*page).0 == Entry::Empty;
        let mut left = match file.index.is_bare() {
            true => blocks.count(),
            false => blocks.filter(is_empty).count(),
        } as u64;
        self.base().promise(order, left)?;
        let mut at = start;
        while at < pages.end {
            if !is_empty(&at) {
                at += order.pages();
                continue;
            }
            let rest = FilePages::new(at, pages.end.next_multiple_of(order.pages()));
            let noted = file.remember(rest, order, Note::Promised);
            let end = noted.inspect_err(|_| self.base().renounce(order, left))?;
            left -= (end - at) >> order.get();
            at = end;
        }
        Ok(())
    }

    /// Ends the promises for blocks that lie in `pages`.
    ///
    /// # Errors
    /// [`Error::NoFile`]; [`Error::Invalid`] for another kind of file.
    pub fn renounce(&self, id: FileId, pages: FilePages) -> Result<(), Error> {
        let file = self.opened(id)?;
        file.whole().ok_or(Error::Invalid)?;
        file.renounce(pages);
        Ok(())
    }
}

/// Writes a folio that was taken for a block, or frees it.
pub(super) type Content<'c> = &'c mut dyn FnMut(FrameRun) -> Result<FrameRun, Error>;

/// The result of an attempt to claim a block.
enum Claim {
    /// It has a folio by now.
    There,
    /// Another CPU has claimed it.
    Busy,
    /// It was not claimed, and is now. Whether a folio was promised for it.
    Claimed { promised: bool },
}

impl<A: Arch, H: Hardware> OpenFile<'_, A, H> {
    /// Ends the promises for blocks that lie in `pages`.
    pub(super) fn renounce(&self, pages: FilePages) {
        let Some(order) = self.whole() else { return };
        let mask = order.pages() - 1;
        let pages = FilePages::new(pages.start.next_multiple_of(order.pages()), pages.end & !mask);
        let _reshaping = self.reshaping();
        let ended = Cell::new(0);
        let is_promise = |note| {
            let is_promise = note == Note::Promised;
            ended.set(ended.get() + u64::from(is_promise));
            is_promise
        };
        self.index.prune_such(pages, &is_promise, &mut |run| self.base().free(run));
        self.base().renounce(order, ended.get());
    }

    /// Brings the folio of the block around `page` into the file, with what `content` makes of it.
    /// False if it is there by then; so it may be where another CPU is about to bring it.
    pub(super) fn bring_reserved(
        &self,
        page: u64,
        order: Order,
        content: Content<'_>,
    ) -> Result<bool, Error> {
        let start = FilePages::block(page, order).start;
        let Claim::Claimed { promised } = self.claim_block(start, order)? else {
            spin_loop();
            return Ok(false);
        };
        let taken = self.base().take_reserved(order, promised).and_then(content);
        let done = taken.and_then(|run| self.enter(start, run, order, FolioFlags::UPTODATE));
        let entered = matches!(done, Ok(Some(_)));
        if !entered {
            // Without content or a frame for a node, the folio is free again, and its promise gone.
            let again = promised && done.is_err() && self.base().promise(order, 1).is_ok();
            self.unclaim(start, order, again);
        }
        done.map(|_| entered)
    }

    /// Maps a folio of its own for a page of a private area where the file has none. `None` when a
    /// change interfered, another CPU is about to do the same, or the file has one by now.
    pub(super) fn fill_reserved(
        &self,
        view: &View<'_, A, H>,
        fault: &FilePage,
        order: Order,
        access: Access,
        content: Content<'_>,
    ) -> Served {
        let missing = Error::Missing(fault.page);
        let pages = fault.whole_block(order).ok_or(missing)?;
        self.spaces().deepen_to(view, pages.start, order.min(A::block_order()), Some(fault.seq))?;
        let block = FilePages::block(fault.at, order).start;
        let Claim::Claimed { promised } = self.claim_block(block, order)? else {
            spin_loop();
            return Ok(None);
        };
        // A CPU whose claim has just ended may have mapped the block.
        let Some(plan) = Plan::whole(view, fault, pages, access) else {
            self.unclaim(block, order, promised);
            return Ok(None);
        };
        let current = || view.space.areas.is_current(fault.seq, pages);
        let take = || self.base().take_reserved(order, promised);
        let taken = match take() {
            // A change that has just ended may have freed the folio that was here.
            Err(_) if current() => take(),
            // One that is under way may be about to.
            Err(_) => {
                self.unclaim(block, order, promised);
                self.spaces().wait(view, fault.page);
                return Ok(None);
            }
            taken => taken,
        };
        let is_taken = taken.is_ok();
        let done = taken.and_then(content).map(|run| {
            plan.install_in(view, plan.place, run, order).map_err(|Stale(run)| {
                self.base().untake_reserved(order, run, promised);
                self.spaces().wait(view, fault.page);
            })
        });
        // Without content the folio is free again, and its promise gone.
        let gone = promised && is_taken && done.is_err();
        let again = promised && (!gone || self.base().promise(order, 1).is_ok());
        self.unclaim(block, order, again && !matches!(done, Ok(Ok(_))));
        Ok(done?.ok().map(Resolved::Mapped))
    }

    /// Whether the fault, in a file of reserved folios of `order`, is for a folio that the file
    /// does not have and will not get.
    pub(super) fn is_private(&self, fault: &FilePage) -> bool {
        let is_shared = fault.area.flags.contains(AreaFlags::SHARED);
        !is_shared && !self.index.find(fault.at).0.has_content()
    }

    /// Claims the block at `page`.
    fn claim_block(&self, page: u64, order: Order) -> Result<Claim, Error> {
        let _reshaping = self.reshaping();
        let promised = match self.index.find(page).0 {
            Entry::Note { note: Note::Claimed, .. } => return Ok(Claim::Busy),
            Entry::Note { note, .. } => note == Note::Promised,
            entry if entry.has_content() => return Ok(Claim::There),
            _ => false,
        };
        self.remember(FilePages::block(page, order), order, Note::Claimed)?;
        Ok(Claim::Claimed { promised })
    }

    /// Ends a claim; the block is promised again or not.
    fn unclaim(&self, page: u64, order: Order, promised: bool) {
        let _reshaping = self.reshaping();
        let is_claimed = matches!(self.index.find(page).0, Entry::Note { note: Note::Claimed, .. });
        // The note has its node already.
        let again = || self.remember(FilePages::block(page, order), order, Note::Promised).is_ok();
        let again = promised && is_claimed && again();
        if is_claimed && !again {
            self.forget_note(page, order);
        }
        if promised && !again {
            self.base().renounce(order, 1);
        }
    }

    /// Writes a note about the first block of `pages`, and perhaps about those behind it that have
    /// nothing; returns where that ends. The caller is reshaping the file.
    fn remember(&self, pages: FilePages, order: Order, note: Note) -> Result<u64, Error> {
        self.base().with_spare(|spare| match self.index.put_notes(pages, (note, order), spare) {
            Err(InsertLack::Room) => {
                debug_assert!(false, "only notes and folios of {order} are in the file");
                Ok(pages.end)
            }
            done => done,
        })
    }

    /// Removes the note about the block at `page`, if there is one.
    fn forget_note(&self, page: u64, order: Order) {
        let is_note = |entry| matches!(entry, Entry::Note { .. });
        self.index.exchange(page, order, is_note, Entry::Empty, || true);
    }
}
