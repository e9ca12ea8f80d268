//! Making and destroying spaces.

use quire_arch::Arch;
use quire_hw::{FrameRun, Hardware};
use quire_units::{Asid, PageSpan};

use super::Spaces;
use crate::base::Error;
use crate::space::Space;
use crate::stats::Event;
use crate::table::Tables;

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// A space without areas. `asid` is a tag that the embedder has found free; areas without a
    /// fixed place go into `window`.
    ///
    /// # Errors
    /// [`Error::NoMemory`]; [`Error::Invalid`] when the window exceeds the pages that programs may
    /// map.
    pub fn space(&self, asid: Asid, window: PageSpan) -> Result<Space<A>, Error> {
        let root = self.base().table_frame()?;
        self.space_over(root, asid, window)
    }

    /// The same over a root table that the embedder has prepared: one frame, zero but for the
    /// embedder's entries beyond the user half.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the window exceeds the pages that programs may map, or the run is
    /// not one frame; the frame is free then.
    pub fn space_over(
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

    /// Ends a space. No CPU uses it any more: each has switched away, and none may enter it again.
    /// One flush covers all of it, however much was mapped. It comes first, so that freeing pages
    /// needs no further flush.
    pub fn destroy(&self, space: Space<A>) {
        let all = Space::<A>::all();
        let change = self.base().change(&space);
        let _ = change.writer().cut(all, |_| {});
        while let Some(run) = change.writer().unstock() {
            self.base().free(run);
        }
        drop(change);
        let tables = self.base().view(&space).tables();
        let mut gather = tables.retire();
        let mut left = all;
        while !left.is_empty() {
            let took = tables.take(left, &mut gather);
            self.base().count(Event::EntriesCleared, took.entries);
            left = PageSpan::new(took.upto, left.end);
            if !left.is_empty() {
                self.base().settle(&space, &mut gather);
            }
        }
        tables.prune(all, all, &mut gather);
        tables.free_root(&mut gather);
        self.base().settle(&space, &mut gather);
    }
}
