//! Making and destroying spaces.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Asid, PageSpan, Vpn};

use super::Spaces;
use crate::base::Error;
use crate::space::Space;
use crate::stats::Event;
use crate::table::Tables;

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// See `Mm::space`.
    pub(crate) fn space(&self, asid: Asid, window: PageSpan) -> Result<Space<A>, Error> {
        let root = self.base().table_frame()?;
        self.space_over(root, asid, window)
    }

    /// See `Mm::space_over`.
    pub(crate) fn space_over(
        &self,
        root: FrameRun,
        asid: Asid,
        window: PageSpan,
    ) -> Result<Space<A>, Error> {
        if root.count() != 1 || !Space::<A>::may_map(window) {
            // The embedder may have written its kernel entries.
            self.base().free(root.dirtied());
            return Err(Error::Invalid);
        }
        let tables = Tables::<A, H>::found(self.base().hw, self.base().phys.meta(), root);
        Ok(Space::new(tables.root(), asid, window))
    }

    /// See `Mm::destroy`.
    pub(crate) fn destroy(&self, space: Space<A>) {
        let view = self.base().view(&space);
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        self.base().change(&space, |section| {
            let _ = section.writer().cut(all);
            while let Some(run) = section.writer().unstock() {
                self.base().free(run);
            }
        });
        let mut gather = view.tables().retire();
        let mut left = all;
        while !left.is_empty() {
            let took = view.tables().take(left, &mut gather);
            self.base().count(Event::EntriesCleared, took.entries);
            left = PageSpan::new(took.upto, left.end);
            if !left.is_empty() {
                self.base().settle(&space, &mut gather);
            }
        }
        view.tables().prune(all, all, &mut gather);
        view.tables().free_root(&mut gather);
        self.base().settle(&space, &mut gather);
    }
}
