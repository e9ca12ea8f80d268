//! Frames as such: what each is used for.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, Pfn};

use super::Mm;
use crate::cache::Store;
use crate::folio::{Counts, Folio, Folios};
use crate::phys::Kind;

/// What a frame is used for, as `/proc/kpageflags` and `/proc/kpagecount` tell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameInfo {
    /// The first frame of the block that it belongs to; itself, where it is one alone.
    pub head: Pfn,
    /// The size of that block.
    pub order: Order,
    /// What the block is.
    pub used: FrameUse,
    /// Of a folio that a file has: where the file's pages come from.
    pub store: Option<Store>,
}

/// What a block of frames is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameUse {
    /// Free, in the lists of its zone.
    Free,
    /// A folio. Its pages are counted together: divided by its size,
    /// [`mapped`](Counts::mapped) is how often a page is mapped on average.
    Folio(Counts),
    /// A page table.
    Table,
    /// A node of an area tree.
    Node,
    /// A node of a file's index.
    Index,
    /// What is known of the slots of a swap device.
    Swap,
    /// Not on record: in the cache of a CPU, about to be freed, never added, or the embedder's.
    Other,
}

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// What `frame` is used for; `None` where it is none of those that are managed. Takes no lock:
    /// what changes meanwhile is told as it was at some moment, or as [`FrameUse::Other`].
    pub fn frame_info(&self, frame: Pfn) -> Option<FrameInfo> {
        let meta = self.base().phys.meta();
        meta.slot(frame)?;
        let other =
            FrameInfo { head: frame, order: Order::ZERO, used: FrameUse::Other, store: None };
        let Some((head, state)) = meta.head(frame) else { return Some(other) };
        let order = Order::new(state.order());
        Some(match state.kind() {
            Kind::Free => FrameInfo { head, order, used: FrameUse::Free, ..other },
            Kind::Folio => {
                let folio = Folio { head, order };
                let used = FrameUse::Folio(Folios::new(meta).counts(folio));
                FrameInfo { head, order, used, store: self.base().store_of(folio) }
            }
            Kind::Table => FrameInfo { used: FrameUse::Table, ..other },
            Kind::Node => FrameInfo { used: FrameUse::Node, ..other },
            Kind::Index => FrameInfo { used: FrameUse::Index, ..other },
            Kind::Swap => FrameInfo { used: FrameUse::Swap, ..other },
            Kind::Stray | Kind::None => other,
        })
    }
}
