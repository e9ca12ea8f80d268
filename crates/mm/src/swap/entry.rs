//! The page-table entry of a page on a swap device: the payload of a marker.
//!
//! ```text
//!   55     52 51    47     46        45        44         43   41 40           0
//!   | kind 1 |    0    | watched | written | exclusive | device | slot        |
//! ```
//!
//! The slot is lowest, so that the entries of a folio, whose slots follow each other, are a run.

use crate::table::MarkKind;

/// How many swap devices there may be at once.
pub const SWAPS_MAX: usize = 8;

/// How many slots a device may have: more than the hardware can address memory for.
pub(crate) const SLOTS_MAX: u64 = 1 << 40;

const DEVICE_AT: u32 = 41;
const EXCLUSIVE: u64 = 1 << 44;
const WRITTEN: u64 = 1 << 45;
const WATCHED: u64 = 1 << 46;

/// The entry of a page that is on a swap device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapEntry {
    /// Which device: its place among those that the embedder lent.
    pub device: u32,
    /// Which slot of it.
    pub slot: u64,
    /// Whether no other entry, of any space, has the page (Linux: the exclusive bit of a swap
    /// entry, taken over from AnonExclusive).
    pub exclusive: bool,
    /// Whether the page was written, or may have been, since tracking began
    /// ([`Spaces::track`](crate::Spaces::track); Linux: the soft-dirty bit of a swap entry).
    pub written: bool,
    /// Whether its area's watcher answers the next write
    /// ([`Spaces::write_protect`](crate::Spaces::write_protect); Linux: the uffd-wp bit of a swap
    /// entry).
    pub watched: bool,
}

impl SwapEntry {
    /// The entry of a marker's payload; `None` for another kind of marker.
    #[inline]
    pub const fn of(payload: u64) -> Option<Self> {
        let Some(MarkKind::Swap) = MarkKind::of(payload) else { return None };
        Some(Self {
            device: (payload >> DEVICE_AT) as u32 & (SWAPS_MAX as u32 - 1),
            slot: payload & ((1 << DEVICE_AT) - 1),
            exclusive: payload & EXCLUSIVE != 0,
            written: payload & WRITTEN != 0,
            watched: payload & WATCHED != 0,
        })
    }

    /// Its marker's payload.
    #[inline]
    pub const fn payload(self) -> u64 {
        let exclusive = if self.exclusive { EXCLUSIVE } else { 0 };
        let written = if self.written { WRITTEN } else { 0 };
        let watched = if self.watched { WATCHED } else { 0 };
        let flags = watched | written | exclusive;
        MarkKind::Swap.payload(flags | (self.device as u64) << DEVICE_AT | self.slot)
    }

    /// The entry of a place in a file's index ([`Entry::Away`](crate::cache::Entry::Away)).
    #[inline]
    pub(crate) const fn at(place: u64) -> Self {
        let (device, slot) = ((place >> DEVICE_AT) as u32, place & ((1 << DEVICE_AT) - 1));
        Self { device, slot, exclusive: false, written: false, watched: false }
    }

    /// The place of a page that a file's index refers to.
    #[inline]
    pub(crate) const fn place(self) -> u64 {
        (self.device as u64) << DEVICE_AT | self.slot
    }

    /// The entry for the page `count` pages further on.
    #[inline]
    #[must_use]
    pub const fn advanced(self, count: u64) -> Self {
        Self { slot: self.slot + count, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d2_an_entry_is_what_its_payload_says() {
        for device in 0..SWAPS_MAX as u32 {
            for slot in [0, 1, 511, SLOTS_MAX - 1] {
                for bits in [1, 2, 4] {
                    let [exclusive, written, watched] = [1, 2, 4].map(|bit| bits & bit != 0);
                    let entry = SwapEntry { device, slot, exclusive, written, watched };
                    assert_eq!(SwapEntry::of(entry.payload()), Some(entry));
                    assert!(entry.payload() < 1 << 56);
                    assert_eq!(entry.advanced(1).payload(), entry.payload() + 1);
                    let plain =
                        SwapEntry { exclusive: false, written: false, watched: false, ..entry };
                    assert_eq!(SwapEntry::at(entry.place()), plain);
                    assert_eq!(entry.advanced(1).place(), entry.place() + 1);
                }
            }
        }
        assert_eq!(SwapEntry::of(0), None);
        assert_eq!(SwapEntry::of(42), None);
    }
}
