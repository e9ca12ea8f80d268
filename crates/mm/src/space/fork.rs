//! Which areas a child inherits, and how their pages.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{PageSpan, Pfn};

use super::section::{Need, Section};
use super::{Area, AreaFlags, View};
use crate::table::{ForkLack, Heritage, Inherit, Marks};

impl Area {
    /// The area of a child; `None` with `DONTFORK`. As on Linux, a child does not inherit locks.
    pub fn inherited(&self) -> Option<Area> {
        let flags = self.flags - AreaFlags::LOCKED - AreaFlags::LOCK_ON_FAULT;
        let inherits = !self.flags.contains(AreaFlags::DONTFORK);
        inherits.then_some(Area { flags, ..*self })
    }

    /// How a child with the area inherits its pages; `None` where it gets none of them.
    pub fn inherits_pages(&self) -> Option<Inherit> {
        if self.flags.contains(AreaFlags::WIPEONFORK) {
            None
        } else if self.flags.contains(AreaFlags::SHARED) {
            Some(Inherit::Shared)
        } else {
            Some(Inherit::Private)
        }
    }
}

impl<A: Arch, H: Hardware> Section<'_, A, H> {
    /// Maps the pages of `span` in `child`, too, which has the areas already and runs on no CPU.
    /// `span` shrinks from below by the part that is done. Faults wait until the change ends: the
    /// child must not see later writes of the parent. `lend_marks` gets each run of markers and
    /// returns the markers that both have.
    ///
    /// Returns what the child needs a copy of, since the parent's pages are pinned: for these pages,
    /// of the frames from this one on, with these attributes. Make it and continue behind them.
    ///
    /// # Errors
    /// [`Need::Table`]: bring one and repeat.
    pub fn fork(
        &mut self,
        child: &View<'_, A, H>,
        span: &mut PageSpan,
        how: Inherit,
        lend_marks: &dyn Fn(Marks, u64) -> Marks,
    ) -> Result<Option<(PageSpan, Pfn, Attrs)>, Need> {
        let (spare, gather, done) = (&mut self.table, &mut self.gather, &mut self.entries);
        let mut with = Heritage { how, spare, gather, done, lend_marks };
        match self.view.tables().fork(&child.tables(), span, &mut with) {
            Ok(()) => Ok(None),
            Err(ForkLack::Copy(pages, frame, attrs)) => Ok(Some((pages, frame, attrs))),
            Err(ForkLack::Table) => Err(Need::Table),
        }
    }
}
