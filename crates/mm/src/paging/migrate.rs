//! Moving anonymous folios to other frames, whatever spaces map them (row E7).
//!
//! A folio that moves is on its way to a swap device, and comes back before it is written: see
//! `mover`. So all that holds for swap entries holds meanwhile: a fork lends them, an unmap
//! releases them, a move of pages takes them along, a write-protection keeps them.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::PageSpan;

use super::Paging;
use super::leave::{Demand, PagedOut, Purpose, Scope};
use crate::base::{AllSpaces, Error};
use crate::space::Space;
use crate::stats::Event;

/// The result of moving folios.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Migrated {
    /// Folios that have other frames now.
    pub folios: u64,
    /// Their pages. Those that were [freed lazily](crate::Spaces::free_lazily) and not written
    /// since are among them, and free.
    pub pages: u64,
    /// Folios that stay where they are: pinned, locked in memory, held, of a file, partly outside
    /// of the span; or no frames, or no slots, were free.
    pub stay: u64,
}

impl<A: Arch, H: Hardware> Paging<'_, A, H> {
    /// Moves the anonymous folios of `span` to other frames, whatever spaces map them: their bytes
    /// are the same, and so are their pages' rights and records. While a folio moves it has slots
    /// of a swap device, which must have as many free; nothing is written there. Folios that are
    /// only partly in the span stay.
    ///
    /// # Errors
    /// [`Error::Invalid`] for pages that programs may not map.
    pub fn migrate(
        &self,
        space: &Space<A>,
        span: PageSpan,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<Migrated, Error> {
        self.migrate_some(space, span, u64::MAX, &spaces)
    }

    /// The same up to a number of pages, or a folio more.
    pub(crate) fn migrate_some(
        &self,
        space: &Space<A>,
        span: PageSpan,
        pages: u64,
        spaces: &dyn AllSpaces<A>,
    ) -> Result<Migrated, Error> {
        let demand = Demand { whose: Scope::All, idle: 0, pages, purpose: Purpose::Move };
        let (PagedOut { folios, pages, stay, .. }, _) =
            self.page_out_if(space, span, demand, spaces)?;
        self.base().count(Event::MigratedPages, pages);
        self.base().count(Event::MigrateFailed, stay);
        Ok(Migrated { folios, pages, stay })
    }
}
