//! The pages written since the last query (row D4; Linux: soft-dirty).
//!
//! It uses only the dirty bits that the hardware sets anyway: a query cleans the leaves of an area,
//! by runs and with one flush, and later dirty pages were written. No page faults for it where the
//! hardware sets dirty bits by itself. A swap entry remembers the state, a fork inherits it, and
//! moved pages count as written at their new place. A contiguous block, and a large leaf, are
//! written as a whole.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::PageSpan;

use super::Spaces;
use crate::base::Error;
use crate::space::{Area, AreaFlags, Space};
use crate::stats::Event;
#[cfg(feature = "swap")]
use crate::swap::SwapEntry;
use crate::table::{Marks, Seen, Sight};

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// From now on, pages in the areas of `span` count as [written](crate::is_written) if they are
    /// written after this call, and also if they are pinned: a pin's owner may write them at any
    /// time. Pages that a swap device has as well go on to count as written if they were. Areas
    /// that are mapped later are not tracked. Unmapped pages in the span are no error.
    ///
    /// # Errors
    /// [`Error::Invalid`] for pages that programs may not map, and where the span ends within a
    /// reserved folio; [`Error::NoMemory`] when a large leaf or an area must be split and there is
    /// no frame for that. Nothing has changed then.
    pub fn track(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        Self::mappable(span)?;
        let mut change = self.base.change(space);
        self.cuts_no_folio(space, span)?;
        change.prepare(span, 2)?;
        let tracked = |area: Area| Area { flags: area.flags | AreaFlags::TRACKED, ..area };
        change.writer().update(span, tracked).map_err(|_| Error::Invalid)?;
        change.open();
        let folios = self.base.folios();
        let forgets = |folio, _, _: Attrs| {
            // For a folio that a swap device has as well, the dirty bit says whether the device is
            // out of date.
            let pinned = self.base.is_swapped(folio) || folios.counts(folio).pins > 0;
            // A cleared dirty bit would no longer show whether it was written since it was freed.
            if !pinned && folios.is_lazy(folio) {
                folios.set_lazy(folio, false);
            }
            !pinned
        };
        change.forget(span, Attrs::DIRTY, forgets, unwritten);
        change.count(Event::EntriesChanged);
        Ok(())
    }
}

/// Whether pages of `area` in the state `seen` were written since [tracking](Spaces::track) began
/// there, or may have been. In areas without tracking, all count as written.
pub fn is_written(area: &Area, seen: &Seen) -> bool {
    let noted = match seen.what {
        Sight::Leaf { attrs, .. } => attrs.contains(Attrs::DIRTY),
        #[cfg(feature = "swap")]
        Sight::Marker(Marks { first, .. }) => {
            SwapEntry::of(first).is_some_and(|entry| entry.written)
        }
        #[cfg(not(feature = "swap"))]
        Sight::Marker(_) => false,
    };
    noted || !area.flags.contains(AreaFlags::TRACKED)
}

/// The markers of pages that no program has written yet.
fn unwritten(marks: Marks) -> Marks {
    #[cfg(feature = "swap")]
    if let Some(entry) = SwapEntry::of(marks.first) {
        return Marks { first: SwapEntry { written: false, ..entry }.payload(), ..marks };
    }
    marks
}
