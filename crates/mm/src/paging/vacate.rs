//! Emptying frames: the folios there move to frames elsewhere (row E7).
//!
//! The walk reads the slots of the frames without a lock, so all that it finds is a guess. A folio
//! is held where it is mapped, at its home, under the lock of the table that maps it; or it is
//! found in the index of its file.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{FrameSpan, Order, PageSpan, Pfn, Vpn};

use super::Paging;
use super::batch::Batch;
use super::leave::{Obstacle, Purpose};
use crate::base::AllSpaces;
use crate::folio::{Folio, FolioFlags};
use crate::phys::Kind;
use crate::space::Space;
use crate::stats::Event;
use crate::table::Gather;

/// The result of emptying frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Vacated {
    /// Pages that were looked at.
    pub(crate) scanned: u64,
    /// Pages that have other frames now.
    pub(crate) moved: u64,
    /// Folios that stay.
    pub(crate) stay: u64,
}

/// The use of the frames from one on.
enum Use {
    /// Nothing that must move.
    Free(Order),
    /// A folio.
    Folio(Folio),
    /// Frames that cannot move.
    Stays,
}

impl<A: Arch, H: Hardware> Paging<'_, A, H> {
    /// Whether nothing in `frames`, which have slots, stays for sure: they hold folios without
    /// pins, or are free, or on their way.
    pub(crate) fn may_vacate(&self, frames: FrameSpan) -> bool {
        let mut at = frames.start;
        while at < frames.end() {
            at = match self.use_of(at) {
                Use::Free(order) => at.add(order.pages()),
                Use::Folio(folio) if self.base().folios().counts(folio).pins == 0 => {
                    folio.span().end()
                }
                Use::Folio(_) | Use::Stays => return false,
            };
        }
        true
    }

    /// Moves the folios of `frames`, which have slots, into other groups, whatever spaces map them
    /// and files have them; `resched` is called between two batches, without locks held.
    pub(crate) fn vacate(
        &self,
        frames: FrameSpan,
        spaces: &dyn AllSpaces<A>,
        resched: &mut dyn FnMut(),
    ) -> Vacated {
        let (base, mut done, mut gather) = (self.base(), Vacated::default(), Gather::new());
        let mut batch = Batch::new(self, spaces, Purpose::Pack, &mut gather);
        // A folio may begin before the frames.
        let mut at = base.folios().of(frames.start).map_or(frames.start, |folio| folio.head);
        while at < frames.end() {
            let folio = match self.use_of(at) {
                Use::Free(order) => {
                    at = at.add(order.pages());
                    continue;
                }
                Use::Folio(folio) => folio,
                Use::Stays => {
                    at = at.add(1);
                    done.stay += 1;
                    continue;
                }
            };
            done.scanned += folio.order.pages();
            at = folio.span().end();
            match self.send(folio, spaces, &mut batch) {
                Ok(true) => {
                    batch.end(None, true);
                    resched();
                }
                Ok(false) => {}
                Err(()) => done.stay += 1,
            }
        }
        batch.end(None, true);
        let moved = batch.done;
        base.count(Event::MigratedPages, moved.pages);
        base.count(Event::MigrateFailed, moved.stay + done.stay);
        Vacated { moved: moved.pages, stay: done.stay + moved.stay, ..done }
    }

    /// Sends a folio on its way, an anonymous one as part of the batch. Returns whether the batch
    /// is full.
    fn send(
        &self,
        folio: Folio,
        spaces: &dyn AllSpaces<A>,
        batch: &mut Batch<'_, A, H>,
    ) -> Result<bool, ()> {
        let (base, folios) = (self.base(), self.base().folios());
        let (known, owner) = folios.known(folio);
        let is_mapped = folios.counts(folio).mapped > 0;
        let has_file = known.contains(FolioFlags::CACHED);
        if has_file && !(is_mapped && base.is_swapped(folio)) {
            let run = base.packed_frames(folio.order).map_err(|_| ())?;
            let moved = self.files().move_cached(folio, owner, run, spaces);
            let stays = u64::from(!moved);
            batch.done.folios += 1 - stays;
            batch.done.pages += (1 - stays) * folio.order.pages();
            batch.done.stay += stays;
            return Ok(false);
        }
        loop {
            if !self.hold_at_home(folio, spaces) {
                return Err(());
            }
            match self.begin(folio, Purpose::Pack) {
                Ok(leaving) => return Ok(batch.push(leaving)),
                Err(Obstacle::NoSlots) if !batch.is_empty() => batch.end(None, true),
                Err(_) => return Err(()),
            }
        }
    }

    /// Takes a reference to a folio that a space maps where the folio's home says.
    fn hold_at_home(&self, folio: Folio, spaces: &dyn AllSpaces<A>) -> bool {
        let (base, folios) = (self.base(), self.base().folios());
        let home = folios.home(folio);
        let end = home.page.get().saturating_add(folio.order.pages());
        let here = PageSpan::new(home.page, Vpn::new(end)).intersect(Space::<A>::all());
        let mut held = false;
        for near in [true, false] {
            if held || here.is_empty() {
                break;
            }
            spaces.visit(&mut |space| {
                let tables = base.view(space).tables();
                let is_near = tables.home(here.start).space == home.space;
                if !held && is_near == near {
                    let hold = |there: Folio| there == folio && folios.hold(there);
                    held = tables.first_folio(here, hold).is_some();
                }
            });
        }
        held
    }

    /// The use of the frames from `at` on, which have slots. It may change at any time.
    fn use_of(&self, at: Pfn) -> Use {
        let state = self.base().phys.meta().at(at).state();
        match state.kind() {
            Kind::Free => Use::Free(Order::new(state.order())),
            Kind::Folio => Use::Folio(Folio { head: at, order: Order::new(state.order()) }),
            // In a CPU's cache, or on its way from one use to another.
            Kind::None | Kind::Stray => Use::Free(Order::ZERO),
            _ => Use::Stays,
        }
    }
}
