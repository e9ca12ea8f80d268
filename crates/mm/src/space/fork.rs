//! Inheritance: the areas of a child, and their pages.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::{PageSpan, Pfn};

use super::section::{Need, Section};
use super::{Area, AreaFlags, View};
use crate::table::{ForkLack, Heritage, Inherit, Marks};

/// The lack that stopped a fork of an area's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForkNeed {
    /// A lack that any change may have.
    Of(Need),
    /// A copy for these pages of the child, of the frames from this one on, with these attributes:
    /// the parent's are pinned. Make it and continue behind them.
    Copy(PageSpan, Pfn, Attrs),
}

impl Area {
    /// The child's area; `None` if children do not inherit it. Locks are not inherited, as on
    /// Linux.
    pub fn inherited(&self) -> Option<Area> {
        let flags = self.flags - AreaFlags::LOCKED - AreaFlags::LOCK_ON_FAULT;
        let inherits = !self.flags.contains(AreaFlags::DONTFORK);
        inherits.then_some(Area { flags, ..*self })
    }

    /// The inheritance of its pages in a child that has the area; `None` where it gets none of
    /// them.
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
    /// Gives `child`, which has such areas already and which no CPU uses, the pages mapped here in
    /// `span`, which shrinks from below as they are done. Faults wait, here and until the change
    /// ends: the child must not see later writes. `lend_marks` gets each run of markers, and
    /// returns the run that both spaces have then.
    ///
    /// # Errors
    /// [`ForkNeed`]: bring it and repeat.
    pub fn fork(
        &mut self,
        child: &View<'_, A, H>,
        span: &mut PageSpan,
        how: Inherit,
        lend_marks: &dyn Fn(Marks, u64) -> Marks,
    ) -> Result<(), ForkNeed> {
        let (tables, heirs) = (self.view.tables(), child.tables());
        let (spare, gather, done) = (&mut self.table, &mut self.gather, &mut self.entries);
        let mut with = Heritage { how, spare, gather, done, lend_marks };
        let done = tables.fork(&heirs, span, &mut with);
        done.map_err(|lack| match lack {
            ForkLack::Table => ForkNeed::Of(Need::Table),
            ForkLack::Copy(pages, frame, attrs) => ForkNeed::Copy(pages, frame, attrs),
        })
    }
}
