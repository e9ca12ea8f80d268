//! Lists of frames, threaded through the slots of the frames, so that they need no memory beside
//! the metadata, and a frame in the middle leaves its list without a search:
//!
//! ```text
//!  List ──► slot 0x40 ◄──► slot 0x08 ◄──► slot 0x90 ──► END
//! ```

use super::meta::{Meta, Slot};
use crate::sync::Ordering;

/// Ends a list; no frame has this index.
pub(crate) const END: u32 = u32::MAX;

const PREV: usize = 0;
const NEXT: usize = 1;

/// A list: the index of its first frame, or [`END`]. The caller holds the lock that orders all
/// accesses; they are atomic because slots are shared.
#[derive(Clone, Copy)]
pub(crate) struct List(u32);

impl Default for List {
    fn default() -> Self {
        List::EMPTY
    }
}

impl List {
    pub(crate) const EMPTY: List = List(END);

    /// The index of its first frame.
    #[inline]
    pub(crate) fn first(self) -> Option<u32> {
        (self.0 != END).then_some(self.0)
    }

    /// Puts the frame `index` at the front.
    #[inline]
    pub(crate) fn push(&mut self, meta: &Meta<'_>, index: u32) {
        let slot = meta.by_index(index);
        set(slot, PREV, END);
        set(slot, NEXT, self.0);
        if self.0 != END {
            set(meta.by_index(self.0), PREV, index);
        }
        self.0 = index;
    }

    /// Takes the frame `index` of this list out. Returns whether it was the only one.
    #[inline]
    pub(crate) fn remove(&mut self, meta: &Meta<'_>, index: u32) -> bool {
        let slot = meta.by_index(index);
        let (prev, next) = (prev(slot), next(slot));
        if next != END {
            set(meta.by_index(next), PREV, prev);
        }
        if prev != END {
            set(meta.by_index(prev), NEXT, next);
            return false;
        }
        self.0 = next;
        next == END
    }
}

#[inline]
fn set(slot: &Slot, side: usize, index: u32) {
    slot.links[side].store(index, Ordering::Relaxed);
}

/// The index of the frame behind this one in its list, or [`END`].
#[inline]
pub(super) fn next(slot: &Slot) -> u32 {
    slot.links[NEXT].load(Ordering::Relaxed)
}

/// The index of the frame before this one in its list, or [`END`].
#[inline]
pub(super) fn prev(slot: &Slot) -> u32 {
    slot.links[PREV].load(Ordering::Relaxed)
}
