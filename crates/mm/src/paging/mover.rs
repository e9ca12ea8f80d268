//! The second half of a move: a folio whose mappings are swap entries gets other frames, and its
//! entries become leaves again.
//!
//! ```text
//!   as page_out: hold ─ slots ─ swap entries ─ one flush for many folios
//!   for each folio                                     possible failure, and its effect
//!   1 frames of its size                               none free: as 5, with the old folio
//!   2 seclude: no mapping, no other reference          a fault has it again: the same
//!   3 one copy of the extent                           memory failed: the same
//!   4 the device's index names the new folio
//!   5 entries become leaves again, by runs; slots are free
//! ```
//!
//! A fault before step 2 maps the old folio, and the move ends; during 2 to 4 it
//! is decided anew; afterwards it maps the new folio. Step 5 only saves faults: entries
//! that it does not reach are mapped at the next access.

use quire_arch::Arch;
use quire_hw::Hardware;

use super::Paging;
use super::evict::{Leaving, place};
use super::leave::Purpose;
use crate::base::Device;
use crate::cache::FilePages;
use crate::folio::copy::copy;
use crate::folio::{Folio, FolioFlags};
use crate::space::{Ever, Space};

impl<A: Arch, H: Hardware> Paging<'_, A, H> {
    /// Moves a folio whose mappings are swap entries, if it can: `leaving` is its copy then. The
    /// caller's reference to it ends.
    pub(super) fn replace_leaving(
        &self,
        leaving: &mut Leaving,
        device: &Device<'_, A, H>,
        purpose: Purpose,
    ) {
        let (base, slots, old) = (self.base(), leaving.slots(), leaving.folio());
        if let Some(copy) = self.replace(old, slots, device, purpose) {
            leaving.becomes(copy);
        }
        let folio = leaving.folio();
        if leaving.dirty {
            device.index.set_dirty(slots.start, folio, true);
        }
        if let Some((cached, _)) = base.folios().identified(folio) {
            cached.learn(cached.known() - FolioFlags::LEAVING);
        }
        base.put_back(old);
    }

    /// Whether pages still have entries that name the slots of a folio that moved.
    pub(super) fn has_entries(&self, leaving: &Leaving, device: &Device<'_, A, H>) -> bool {
        let (slots, id) = (leaving.slots(), device.index.id);
        // With its last entry the folio leaves the index, and the slots are another's soon.
        self.base().cached(id, slots.start, leaving.folio()).is_some()
            && !device.slots.is_unreferred(slots)
    }

    /// Gives the slots of `old` to a copy of it in other frames. The caller has a reference to it,
    /// and it is leaving.
    fn replace(
        &self,
        old: Folio,
        slots: FilePages,
        device: &Device<'_, A, H>,
        purpose: Purpose,
    ) -> Option<Folio> {
        let base = self.base();
        let folios = base.folios();
        let run = match purpose {
            Purpose::Pack => base.packed_frames(old.order),
            _ => base.frames(old.order, false),
        };
        let run = run.ok()?;
        if !folios.seclude_leaving(old) {
            base.free(run);
            return None;
        }
        let copied = copy(base.hw, &run, old.span(), 0, base.pace, &mut || {});
        let run = run.dirtied();
        let file = self.files().with(&device.index);
        let made = copied.ok().and_then(|()| {
            let _reshaping = file.reshaping();
            file.enter_copy(old, slots.start, &run)
        });
        if made.is_none() {
            folios.readmit(old);
            base.free(run);
        }
        made
    }

    /// Maps the pages of one space again whose entries name the slots of a folio: at its home, and
    /// everywhere in a space where pages were moved.
    pub(super) fn restore_in(
        &self,
        space: &Space<A>,
        leaving: &Leaving,
        device: &Device<'_, A, H>,
    ) {
        let (slots, here) = (leaving.slots(), place(self.base(), leaving.folio()));
        let span = if space.has(Ever::Moved) { Space::<A>::all() } else { here };
        self.restore(space, span, device, slots);
    }

    /// Whether a space may map a folio: where its home says, or anywhere if that is not known or
    /// pages were moved.
    pub(super) fn may_map(&self, space: &Space<A>, folio: Folio) -> bool {
        let (tables, here) = (self.base().view(space).tables(), place(self.base(), folio));
        here.is_empty() || space.has(Ever::Moved) || tables.find(here, folio, || true).is_some()
    }
}
