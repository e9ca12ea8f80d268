//! The memory of groups of spaces: counted from page tables, by shares.
//!
//! A folio belongs to the spaces that map it, in proportion to the pages that each maps; a slot of
//! a swap device to the spaces whose entries refer to it. So memory that two groups share counts
//! once in their sum.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{FrameSpan, PageSpan, Vpn};

use super::Reclaim;
use crate::base::AllSpaces;
use crate::cache::Store;
use crate::folio::Folio;
use crate::space::GroupId;
use crate::swap::SwapEntry;
use crate::table::Sight;

/// Shares are counted in this fraction of a page.
const PARTS: u64 = 1 << 20;

/// The memory of a group's spaces, in pages; each figure is rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holdings {
    /// Frames of anonymous memory, also on their way to or from a swap device.
    pub anon: u64,
    /// Frames of files without a store: shared memory.
    pub shared: u64,
    /// Frames of other files.
    pub file: u64,
    /// Slots of swap devices.
    pub swapped: u64,
}

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// The number of frames of a group: its spaces' share of each folio, by the pages that they
    /// map. Walks all their tables.
    pub fn usage(&self, id: GroupId, spaces: &(impl AllSpaces<A> + ?Sized)) -> u64 {
        let mut parts = 0;
        self.each_share(Some(id), &spaces, |folio, own| {
            parts += if folio.is_some() { own } else { 0 };
        });
        rounded(parts)
    }

    /// The memory of a group, or of all spaces, by kind. Walks all their tables, and reads each
    /// slot that they share.
    pub fn holdings(&self, id: Option<GroupId>, spaces: &(impl AllSpaces<A> + ?Sized)) -> Holdings {
        let mut parts = Holdings::default();
        self.each_share(id, &spaces, |folio, own| {
            *match folio.map(|folio| self.base().store_of(folio)) {
                None => &mut parts.swapped,
                Some(None | Some(Store::Swap)) => &mut parts.anon,
                Some(Some(Store::Memory | Store::Reserved)) => &mut parts.shared,
                Some(Some(Store::ReadOnly | Store::ReadWrite)) => &mut parts.file,
            } += own;
        });
        Holdings {
            anon: rounded(parts.anon),
            shared: rounded(parts.shared),
            file: rounded(parts.file),
            swapped: rounded(parts.swapped),
        }
    }

    /// Calls `see` with each folio that spaces map, and with slots that their entries refer to:
    /// `None`; and with the spaces' share of it, in [`PARTS`] of a page.
    fn each_share(
        &self,
        id: Option<GroupId>,
        spaces: &dyn AllSpaces<A>,
        mut see: impl FnMut(Option<Folio>, u64),
    ) {
        let folios = self.base().folios();
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        self.each_space(id, spaces, |space| {
            for seen in self.base().view(space).tables().pieces(all) {
                let count = seen.pages.count();
                if seen.is_foreign() {
                    continue;
                }
                match seen.what {
                    Sight::Leaf { frame, .. } => {
                        folios.each(FrameSpan::new(frame, count), |folio, piece| {
                            let mapped = u64::from(folios.counts(folio).mapped).max(piece.count);
                            let whole = folio.order.pages() * PARTS;
                            see(Some(folio), whole / mapped * piece.count);
                            true
                        });
                    }
                    Sight::Marker(marks) => {
                        if let Some(entry) = SwapEntry::of(marks.first) {
                            see(None, self.share_of_slots(entry, count));
                        }
                    }
                }
            }
        });
    }

    /// An entry's share in its `count` slots.
    fn share_of_slots(&self, entry: SwapEntry, count: u64) -> u64 {
        match self.base().device(entry.device).filter(|_| !entry.exclusive) {
            None => count * PARTS,
            Some(device) => (entry.slot..entry.slot + count)
                .map(|slot| PARTS / u64::from(device.slots.counted(slot).0.max(1)))
                .sum(),
        }
    }
}

fn rounded(parts: u64) -> u64 {
    (parts + PARTS / 2) / PARTS
}
