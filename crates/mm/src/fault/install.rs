//! Carrying a plan out: one table locked, one run written.

use quire_arch::{Arch, Level};
use quire_hw::{FrameRun, Hardware};
use quire_units::{Order, PageSpan, Vpn};

use super::Plan;
use crate::space::View;
use crate::table::{Locked, Place, WATCHED};

/// A run that was mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Installed {
    /// The pages.
    pub pages: PageSpan,
    /// The size of each folio.
    pub order: Order,
    /// How many entries were written.
    pub entries: u64,
}

/// The plan no longer holds; the frames are returned. Plan again.
#[derive(Debug)]
pub struct Stale(pub FrameRun);

impl Plan {
    /// The first page of a run that is cut into folios of `order`: its first folio lies around the
    /// page that faulted.
    pub fn start(&self, order: Order) -> Vpn {
        PageSpan::block(self.page, order).start
    }

    /// Whether the table of `level` for the folios is known, so that none must be made.
    #[inline]
    pub(crate) fn is_at(&self, level: Level) -> bool {
        self.place.level == level
    }

    /// Maps `run`, which is cleared, as folios of `order`, one of the plan's possible orders.
    ///
    /// # Errors
    /// [`Stale`] when the areas have changed, or the place is no longer empty.
    #[inline(always)]
    pub fn install<A: Arch, H: Hardware>(
        &self,
        view: &View<'_, A, H>,
        run: FrameRun,
        order: Order,
    ) -> Result<Installed, Stale> {
        let level = A::leaf_level(order);
        // Mostly the planned table; its slot tells, once it is locked.
        let place = match self.is_at(level) {
            true => self.place,
            false => view.tables().walk(self.start(order), level),
        };
        if place.level != level {
            Err(Stale(run))
        } else {
            self.install_in(view, place, run, order)
        }
    }

    /// The same in the table of `place`, which has the level for the folios.
    ///
    /// # Errors
    /// [`Stale`], as before.
    #[inline(always)]
    pub fn install_in<A: Arch, H: Hardware>(
        &self,
        view: &View<'_, A, H>,
        place: Place,
        run: FrameRun,
        order: Order,
    ) -> Result<Installed, Stale> {
        let start = self.start(order);
        let pages = PageSpan::new(start, start.add(run.count()));
        let (tables, level) = (view.tables(), place.level);
        let Some(locked) = tables.lock(place.frame, level, start) else { return Err(Stale(run)) };
        let entries = (run.count() >> A::order(level).get()) as usize;
        let index = locked.index(start);
        // The areas are unchanged under the table's lock: a later change will find the leaves.
        let holds = view.space.areas.is_current(self.seq, pages)
            && index + entries <= A::entries(level)
            && (locked.is_empty(index, entries) || self.replaces_marks(&locked, pages));
        if !holds {
            return Err(Stale(run));
        }
        let frame = run.start();
        view.folios().adopt_mapped(run, order, tables.home(start));
        locked.put(index, entries, frame, self.attrs, order);
        Ok(Installed { pages, order, entries: entries as u64 })
    }

    /// Whether the leaves wait for a watcher, as the markers in `pages` say that are gone then.
    #[cold]
    fn replaces_marks<A: Arch, H: Hardware>(
        &self,
        locked: &Locked<'_, A, H>,
        pages: PageSpan,
    ) -> bool {
        cfg!(feature = "watch") && self.attrs.contains(WATCHED) && locked.take_watched(pages)
    }
}
