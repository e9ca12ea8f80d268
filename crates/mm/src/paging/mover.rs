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
use quire_units::{PageSpan, Vpn};

use super::Paging;
use super::evict::Leaving;
use super::leave::Purpose;
use crate::base::{AllSpaces, Device, Keep};
use crate::cache::FilePages;
use crate::folio::copy::copy;
use crate::folio::{Folio, FolioFlags, Home};
use crate::space::{Ever, Space};

impl<A: Arch, H: Hardware> Paging<'_, A, H> {
    /// Moves a folio whose mappings are swap entries, and maps it again where it was mapped.
    /// Returns whether it moved. The caller's reference to it ends.
    pub(super) fn end_move(
        &self,
        leaving: Leaving,
        device: &Device<'_, A, H>,
        purpose: Purpose,
        spaces: &dyn AllSpaces<A>,
    ) -> bool {
        let (base, slots, old) = (self.base(), leaving.slots(), leaving.folio());
        let home = base.folios().home(old);
        let moved = self.replace(old, slots, device, purpose);
        let folio = moved.unwrap_or(old);
        if leaving.dirty {
            device.index.set_dirty(slots.start, folio, true);
        }
        if let Some((cached, _)) = base.folios().identified(folio) {
            cached.learn(cached.known() - FolioFlags::LEAVING);
        }
        base.put_back(old);
        // With its last entry the folio leaves the index, and the slots are another's soon.
        let has_entries = || {
            base.cached(device.index.id, slots.start, folio).is_some()
                && !device.slots.is_unreferred(slots)
        };
        // Most are mapped in the space of their home alone.
        for near in [true, false] {
            if has_entries() {
                spaces.visit(&mut |space| {
                    let own = base.view(space).tables().home(Vpn::new(0)).space;
                    if (home.space == own) == near && has_entries() {
                        self.restore_in(space, home, device, slots);
                    }
                });
            }
        }
        base.try_drop(device, folio, slots, Keep::IfReferred);
        moved.is_some()
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
        let copied = copy(base.hw, &run, old.span(), 0, base.pace, || {});
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

    /// Maps the pages of one space again whose entries name `slots`: at the folio's home, and
    /// everywhere in a space where pages were moved.
    fn restore_in(
        &self,
        space: &Space<A>,
        home: Home,
        device: &Device<'_, A, H>,
        slots: FilePages,
    ) {
        let all = Space::<A>::all();
        let end = home.page.get().saturating_add(slots.count());
        let here = PageSpan::new(home.page, Vpn::new(end)).intersect(all);
        self.restore(space, if space.has(Ever::Moved) { all } else { here }, device, slots);
    }
}
