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
use crate::space::{GroupId, Space};
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

/// A share of a folio or a slot, in [`PARTS`] of a page.
enum Share {
    Memory(Folio, u64),
    Swap(u64),
}

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// The number of frames of a group: its spaces' share of each folio, by the pages that they
    /// map. Walks all their tables.
    pub fn usage(&self, id: GroupId, spaces: &(impl AllSpaces<A> + ?Sized)) -> u64 {
        let mut parts = 0;
        self.each_share(Some(id), spaces, &mut |share| {
            if let Share::Memory(_, own) = share {
                parts += own;
            }
        });
        rounded(parts)
    }

    /// The memory of a group, or of all spaces, by kind. Walks all their tables, and reads each
    /// slot that they share.
    pub fn holdings(&self, id: Option<GroupId>, spaces: &(impl AllSpaces<A> + ?Sized)) -> Holdings {
        let mut parts = Holdings::default();
        self.each_share(id, spaces, &mut |share| match share {
            Share::Memory(folio, own) => match self.base().store_of(folio) {
                None | Some(Store::Swap) => parts.anon += own,
                Some(Store::Memory) => parts.shared += own,
                Some(Store::ReadOnly | Store::ReadWrite) => parts.file += own,
            },
            Share::Swap(own) => parts.swapped += own,
        });
        Holdings {
            anon: rounded(parts.anon),
            shared: rounded(parts.shared),
            file: rounded(parts.file),
            swapped: rounded(parts.swapped),
        }
    }

    fn each_share(
        &self,
        id: Option<GroupId>,
        spaces: &(impl AllSpaces<A> + ?Sized),
        see: &mut dyn FnMut(Share),
    ) {
        spaces.visit(&mut |space| {
            if id.is_none_or(|id| self.base().groups.is_member(space, id)) {
                self.each_share_of(space, see);
            }
        });
    }

    fn each_share_of(&self, space: &Space<A>, see: &mut dyn FnMut(Share)) {
        let folios = self.base().folios();
        let all = PageSpan::new(Vpn::new(0), Vpn::new(A::USER_PAGES));
        for seen in self.base().view(space).tables().pieces(all) {
            let count = seen.pages.count();
            match seen.what {
                Sight::Leaf { frame, .. } => {
                    folios.each(FrameSpan::new(frame, count), |folio, piece| {
                        let mapped = u64::from(folios.counts(folio).mapped).max(piece.count);
                        let whole = folio.order.pages() * PARTS;
                        see(Share::Memory(folio, whole / mapped * piece.count));
                        true
                    });
                }
                Sight::Marker(marks) => {
                    if let Some(entry) = SwapEntry::of(marks.first) {
                        see(Share::Swap(self.share_of_slots(entry, count)));
                    }
                }
            }
        }
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
