//! Swap devices: every slot counts its entries, and is cached just where its file has a folio.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{PageSpan, Vpn};

use super::Violation;
use crate::cache::{Entry, FILE_PAGES_MAX, FilePages};
use crate::mm::Mm;
use crate::space::Space;
use crate::swap::{SlotFault, Swap, SwapEntry};
use crate::table::{Marks, Sight};

/// Verifies all swap devices against the entries of `spaces`, which must be all spaces, and of
/// files: each slot counts its entries (I10), an exclusive entry or a file's is the only one, a
/// slot is cached exactly where its file has a folio, and none is lost.
pub(super) fn check_swap<A: Arch, H: Hardware>(
    mm: &Mm<'_, A, H>,
    spaces: &[&Space<A>],
) -> Result<(), Violation> {
    let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
    for space in spaces {
        for seen in mm.base().view(space).tables().pieces(all) {
            if let Sight::Marker(Marks { first, .. }) = seen.what
                && let Some(entry) = SwapEntry::of(first)
                && let Some(device) = mm.base().device(entry.device)
            {
                let slots = FilePages::new(entry.slot, entry.slot + seen.pages.count());
                device.slots.tally(slots, entry.exclusive);
            }
        }
    }
    for id in mm.files().ids() {
        let Ok(index) = mm.base().index(id) else { continue };
        let mut left = FilePages::new(0, FILE_PAGES_MAX);
        while let Some((entry, at)) = index.next_content(left) {
            left = FilePages::new(at.end, left.end);
            if let Entry::Away { place, .. } = entry
                && let SwapEntry { device, slot, .. } = SwapEntry::at(place)
                && let Some(device) = mm.base().device(device)
            {
                device.slots.tally(FilePages::new(slot, slot + at.count()), true);
            }
        }
    }
    for id in mm.base().swaps.iter().filter_map(Swap::file) {
        let Ok(device) = mm.base().device_of(id) else { continue };
        let all = FilePages::new(0, device.index.file.pages());
        let mut left = all;
        while let Some((_, at)) = device.index.next(left) {
            left = FilePages::new(at.end, all.end);
            device.slots.tally_cached(at);
        }
        device.slots.audit().map_err(|(slot, fault)| Violation::Slot(id, slot, fault))?;
    }
    Ok(())
}

impl core::fmt::Display for SlotFault {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            SlotFault::Count { counted, found } => {
                write!(f, "counts {counted} entries, but there are {found}")
            }
            SlotFault::Cached { says } => write!(f, "says cached = {says}, its file otherwise"),
            SlotFault::Exclusive => f.write_str("has an exclusive entry and another one"),
            SlotFault::Used { counted, found } => {
                write!(f, "is in a device that counts {counted} used slots, but has {found}")
            }
            SlotFault::Listed { used } => {
                write!(f, "begins a cluster in a list that is not for {used} used slots")
            }
        }
    }
}
