//! Which pages were written since somebody asked last (row D4; Linux: soft-dirty).
//!
//! Nothing but what the hardware notes anyway: asking makes the leaves of an area clean, by runs
//! and with one flush, and what is dirty later was written. No page faults for it where the
//! hardware notes writes by itself. A swap entry remembers it, a fork inherits it, and what moves
//! counts as written at its new place. A contiguous block, and a large leaf, are written as a
//! whole.

use quire_arch::{Arch, Attrs};
use quire_hw::Hardware;
use quire_units::PageSpan;

use super::Spaces;
use crate::base::Error;
use crate::cache::file_of;
use crate::folio::{Folios, Known};
use crate::space::{Area, AreaFlags, Space};
use crate::stats::Event;
use crate::swap::SwapEntry;
use crate::table::{Marks, Seen, Sight};

impl<A: Arch, H: Hardware> Spaces<'_, A, H> {
    /// From now on, pages in the areas of `span` count as [written](Self::is_written) if they are
    /// written after this call, and also if somebody has them pinned: he may write them at any
    /// time. What a swap device has as well goes on to count as written if it was. Areas
    /// that are mapped later are not tracked. Free pages in the span are no error.
    ///
    /// # Errors
    /// [`Error::Invalid`] for pages that are not the program's to map; [`Error::NoMemory`] when a
    /// large leaf or an area must be split and there is no frame for that. Nothing has changed
    /// then.
    pub fn track(&self, space: &Space<A>, span: PageSpan) -> Result<(), Error> {
        if !Space::<A>::may_map(span) {
            return Err(Error::Invalid);
        }
        self.base().change(space, |section| {
            self.base().complete(space, section, |section| section.prepare(span, 2))?;
            let tracked = |area: Area| Area { flags: area.flags | AreaFlags::TRACKED, ..area };
            section.writer().update(span, tracked).map_err(|_| Error::Invalid)?;
            section.open();
            let folios = Folios::new(self.base().phys.meta());
            let before = section.entries();
            let forgets = |folio, _, _: Attrs| {
                // Of what is on a swap device as well, the leaf tells whether that is as new.
                let (known, owner) = folios.known(folio);
                let cached = known.contains(Known::CACHED);
                let swapped = cached && self.base().device_of(file_of(owner)).is_ok();
                let pinned = swapped || folios.counts(folio).pins > 0;
                // Nobody could tell any more whether it was written since it was freed.
                if !pinned && folios.is_lazy(folio) {
                    folios.set_lazy(folio, false);
                }
                !pinned
            };
            section.forget(span, Attrs::DIRTY, forgets, unwritten);
            self.base().count(Event::EntriesChanged, section.entries() - before);
            Ok(())
        })
    }
}

/// Whether pages of `area` that look so were written since writes are
/// [tracked](Spaces::track) there, or may have been. Where they are not, all were.
pub fn is_written(area: &Area, seen: &Seen) -> bool {
    let noted = match seen.what {
        Sight::Leaf { attrs, .. } => attrs.contains(Attrs::DIRTY),
        Sight::Marker(Marks { first, .. }) => {
            SwapEntry::of(first).is_some_and(|entry| entry.written)
        }
    };
    noted || !area.flags.contains(AreaFlags::TRACKED)
}

/// What markers say when nobody has written their pages yet.
fn unwritten(marks: Marks) -> Marks {
    match SwapEntry::of(marks.first) {
        Some(entry) => Marks { first: SwapEntry { written: false, ..entry }.payload(), ..marks },
        None => marks,
    }
}
