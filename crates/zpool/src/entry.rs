//! The tree's entry for a slot: 16 bytes.
//!
//! ```text
//!   first word   0    3     7     8          32             64
//!                │kind│order│touch│ bytes    │ checksum     │
//!   second word  │ Same: the repeated word                  │
//!                │ Packed, Raw: the object's first piece    │
//! ```
//!
//! A unit of order n is one naturally aligned block of 2^n slots. The first of its slots that is
//! not freed is its *head* and describes it; the others are *tails* and know its order only. That
//! is enough to find the head: within one such block, no two units have the same order (storing the
//! second would have replaced the first), so the head is the block's first entry of that order.
//! Smaller units may stand in the holes of a larger one that was freed in part.

use quire_units::Order;

use crate::PageId;
use crate::words::{get64, put64};

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 16;

/// The place of a piece of an object: a page, and an index into its directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    pub(crate) page: PageId,
    pub(crate) index: u16,
}

impl Link {
    /// As 48 bits, which are never all zero.
    pub(crate) fn pack(this: Option<Self>) -> u64 {
        this.map_or(0, |link| u64::from(link.page.number()) | u64::from(link.index) << 32)
    }

    /// From those bits.
    pub(crate) fn unpack(bits: u64) -> Option<Self> {
        let index = (bits >> 32) as u16;
        PageId::new(bits as u32).map(|page| Self { page, index })
    }
}

/// The place of a unit's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// This word, again and again.
    Same(u64),
    /// An object of this many bytes, LZ4.
    Packed(u32, Option<Link>),
    /// An object of this many bytes, uncompressed.
    Raw(u32, Option<Link>),
}

impl Content {
    /// A number for each kind.
    pub(crate) fn kind(&self) -> u64 {
        match self {
            Self::Same(_) => 2,
            Self::Packed(..) => 3,
            Self::Raw(..) => 4,
        }
    }

    /// The object: its length in bytes, and its first piece.
    pub(crate) fn object(&self) -> Option<(u32, Option<Link>)> {
        match *self {
            Self::Same(_) => None,
            Self::Packed(bytes, link) | Self::Raw(bytes, link) => Some((bytes, link)),
        }
    }

    /// The same, but the object begins elsewhere.
    pub(crate) fn moved(self, to: Option<Link>) -> Self {
        match self {
            Self::Same(_) => self,
            Self::Packed(bytes, _) => Self::Packed(bytes, to),
            Self::Raw(bytes, _) => Self::Raw(bytes, to),
        }
    }
}

/// A run of slots that is compressed as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    pub(crate) order: Order,
    /// It was stored or loaded since the search for cold units last came by.
    pub(crate) is_touched: bool,
    pub(crate) content: Content,
    /// Of the object, or of the repeated word; see [`codec::checksum`](crate::codec::checksum).
    pub(crate) checksum: u32,
}

/// The tree's entry for a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// Nothing is stored there.
    Empty,
    /// The first slot of a unit that is not freed.
    Head(Unit),
    /// Another slot of a unit of this order.
    Tail(Order),
}

const TAIL: u64 = 1;

impl Entry {
    /// The order of the unit that the slot belongs to.
    pub(crate) fn order(&self) -> Option<Order> {
        match self {
            Self::Empty => None,
            Self::Head(unit) => Some(unit.order),
            Self::Tail(order) => Some(*order),
        }
    }

    /// Reads the entry at byte `at` of a leaf. A word that is no entry counts as empty.
    pub(crate) fn read(leaf: &[u8], at: usize) -> Self {
        let (first, second) = (get64(leaf, at), get64(leaf, at + 8));
        let order = Order::new((first >> 3 & 15) as u8);
        let bytes = (first >> 8 & 0xff_ffff) as u32;
        let content = match first & 7 {
            TAIL => return Self::Tail(order),
            2 => Content::Same(second),
            3 => Content::Packed(bytes, Link::unpack(second)),
            4 => Content::Raw(bytes, Link::unpack(second)),
            _ => return Self::Empty,
        };
        let is_touched = first >> 7 & 1 == 1;
        Self::Head(Unit { order, is_touched, content, checksum: (first >> 32) as u32 })
    }

    /// Writes it to byte `at` of a leaf.
    pub(crate) fn write(&self, leaf: &mut [u8], at: usize) {
        let (first, second) = match self {
            Self::Empty => (0, 0),
            Self::Tail(order) => (TAIL | u64::from(order.get()) << 3, 0),
            Self::Head(unit) => unit.words(),
        };
        put64(leaf, at, first);
        put64(leaf, at + 8, second);
    }
}

impl Unit {
    fn words(&self) -> (u64, u64) {
        let (bytes, second) = match self.content {
            Content::Same(word) => (0, word),
            Content::Packed(bytes, link) | Content::Raw(bytes, link) => (bytes, Link::pack(link)),
        };
        let first = self.content.kind()
            | u64::from(self.order.get()) << 3
            | u64::from(self.is_touched) << 7
            | u64::from(bytes) << 8
            | u64::from(self.checksum) << 32;
        (first, second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d5_an_entry_reads_as_it_was_written() {
        let link = Link { page: PageId::new(u32::MAX).unwrap(), index: u16::MAX };
        let contents = [
            Content::Same(u64::MAX),
            Content::Packed(1, Some(link)),
            Content::Raw(crate::UNIT_BYTES_MAX as u32, Some(link)),
        ];
        let mut leaf = [0; 48];
        for content in contents {
            for is_touched in [false, true] {
                let order = Order::new(9);
                let unit = Unit { order, is_touched, content, checksum: u32::MAX };
                for entry in [Entry::Head(unit), Entry::Tail(order), Entry::Empty] {
                    entry.write(&mut leaf, 16);
                    assert_eq!(Entry::read(&leaf, 16), entry);
                }
            }
        }
        assert_eq!(leaf, [0; 48], "an empty entry is zero, and its neighbours were left alone");
    }

    #[test]
    fn d5_a_word_that_is_no_entry_reads_as_empty() {
        assert_eq!(Entry::read(&[0xff; 16], 0), Entry::Empty);
        assert_eq!(Entry::read(&[], 0), Entry::Empty);
    }
}
