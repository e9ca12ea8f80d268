//! Frames as such: the use of each.

use quire_arch::Arch;
use quire_hw::Hardware;
use quire_units::{Order, Pfn};

use super::Mm;
#[cfg(feature = "files")]
use crate::cache::Store;
use crate::folio::{Counts, Folio, Folios};
use crate::phys::Kind;

/// The use of a frame, as `/proc/kpageflags` and `/proc/kpagecount` report it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FrameInfo {
    /// The first frame of its block; the frame itself, if it stands alone.
    pub head: Pfn,
    /// The size of that block.
    pub order: Order,
    /// The use of the block.
    pub used: FrameUse,
    /// A pool of reserved folios has it.
    pub is_reserved: bool,
    /// For a folio of a file: the store of the file's pages.
    #[cfg(feature = "files")]
    pub store: Option<Store>,
}

/// The use of a block of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FrameUse {
    /// Free, in the lists of its zone.
    Free,
    /// A folio. Its pages are counted together: [`mapped`](Counts::mapped) divided by its size is
    /// the average number of mappings of a page.
    Folio(Counts),
    /// A page table.
    Table,
    /// A node of an area tree.
    Node,
    /// A node of a file's index.
    Index,
    /// The words of a swap device's slots.
    Swap,
    /// Not recorded: in the cache of a CPU, about to be freed, never added, or the embedder's.
    Other,
}

impl<A: Arch, H: Hardware> Mm<'_, A, H> {
    /// The use of `frame`; `None` if the library does not manage it. Takes no lock: the answer for
    /// a changing frame was true at some moment, or is [`FrameUse::Other`].
    pub fn frame_info(&self, frame: Pfn) -> Option<FrameInfo> {
        let meta = self.base().phys.meta();
        meta.slot(frame)?;
        let info = |head, order, used| FrameInfo {
            head,
            order,
            used,
            is_reserved: self.base().phys.is_of_pool(head, order),
            #[cfg(feature = "files")]
            store: None,
        };
        let one = |used| info(frame, Order::ZERO, used);
        let Some((head, state)) = meta.head(frame) else { return Some(one(FrameUse::Other)) };
        let order = Order::new(state.order());
        Some(match state.kind() {
            Kind::Free => info(head, order, FrameUse::Free),
            Kind::Folio => {
                let folio = Folio { head, order };
                FrameInfo {
                    #[cfg(feature = "files")]
                    store: self.base().store_of(folio),
                    ..info(head, order, FrameUse::Folio(Folios::new(meta).counts(folio)))
                }
            }
            Kind::Table => one(FrameUse::Table),
            Kind::Node => one(FrameUse::Node),
            Kind::Index => one(FrameUse::Index),
            Kind::Swap => one(FrameUse::Swap),
            Kind::Stray | Kind::Outside | Kind::None => one(FrameUse::Other),
        })
    }
}
