//! One word of the index.
//!
//! ```text
//!   63                         12      8      7     6..2     1..0
//!   | frame, note, or place     |  0  |away| dirty| order  | kind |
//! ```
//!
//! A word stands for the aligned block of its order that begins at its place. A folio of any order
//! is *one* word, at the place of its first page; the places behind it are zero. The word that
//! covers a page stands at one of the page's aligned ancestors. Links to lower nodes are words of
//! [`radix`](crate::radix), with the dirty bit.

use quire_units::{Order, Pfn};

use crate::folio::Folio;
use crate::radix::{Node, TAG};

/// A word of the index, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// No folio and no note.
    Empty,
    /// A lower node. Some folio below a dirty one may be dirty.
    Node { node: Node, dirty: bool },
    /// A folio of the file.
    Folio { folio: Folio, dirty: bool },
    /// No folio, but a note about a block of pages. It makes room for folios.
    Note { note: Note, order: Order },
    /// A block of pages that has left memory: the place of its first page elsewhere. Those of the
    /// others follow. `swap` knows what a place means.
    Away { place: u64, order: Order },
}

/// A note about pages that are not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    /// They could not be read in one piece: page by page next time.
    Small,
    /// The page could not be read, and no caller has got the error yet.
    Failed,
    /// A reserved folio is promised for them.
    Promised,
    /// A CPU is about to give them a reserved folio.
    Claimed,
    /// They were in one folio, which left memory at this time of the reclaim clock.
    Left(u64),
}

const FOLIO: u64 = 2;
const NOTE: u64 = 3;
const ORDER_AT: u32 = 2;
const DIRTY: u64 = 1 << 7;
/// Of a note: it is the place of pages that have left.
const AWAY: u64 = 1 << 8;
const REST_AT: u32 = 12;

impl Entry {
    pub(crate) const fn of(word: u64) -> Self {
        let order = (word >> ORDER_AT & 31) as u8;
        let (rest, dirty) = (word >> REST_AT, word & DIRTY != 0);
        if let Some(node) = Node::of(word) {
            return Entry::Node { node, dirty };
        }
        match word & TAG {
            FOLIO => {
                Entry::Folio { folio: Folio { head: Pfn::new(rest), order: clamped(order) }, dirty }
            }
            NOTE if word & AWAY != 0 => Entry::Away { place: rest, order: clamped(order) },
            NOTE => Entry::Note { note: Note::of(rest), order: clamped(order) },
            _ => Entry::Empty,
        }
    }

    pub(crate) const fn word(self) -> u64 {
        let (kind, order, dirty, rest) = match self {
            Entry::Empty => return 0,
            Entry::Node { node, dirty } => return node.word() | if dirty { DIRTY } else { 0 },
            Entry::Folio { folio, dirty } => (FOLIO, folio.order.get(), dirty, folio.head.get()),
            Entry::Note { note, order } => (NOTE, order.get(), false, note.number()),
            Entry::Away { place, order } => (NOTE | AWAY, order.get(), false, place),
        };
        kind | (order as u64) << ORDER_AT | if dirty { DIRTY } else { 0 } | rest << REST_AT
    }

    /// The same, dirty or not. An entry that cannot be dirty stays as it is.
    pub(crate) const fn with_dirty(self, dirty: bool) -> Self {
        match self {
            Entry::Node { node, .. } => Entry::Node { node, dirty },
            Entry::Folio { folio, .. } => Entry::Folio { folio, dirty },
            other => other,
        }
    }

    /// Whether it holds the content of `whole`, dirty or not.
    pub(super) fn is_of(self, whole: Entry) -> bool {
        self.has_content() && self.with_dirty(false) == whole.with_dirty(false)
    }

    pub(crate) const fn is_dirty(self) -> bool {
        matches!(self, Entry::Node { dirty: true, .. } | Entry::Folio { dirty: true, .. })
    }

    /// Whether it holds content of the file, here or elsewhere.
    pub(crate) const fn has_content(self) -> bool {
        matches!(self, Entry::Folio { .. } | Entry::Away { .. })
    }

    /// The order of its block; that of a page where it has none.
    pub(crate) const fn order(self) -> Order {
        match self {
            Entry::Folio { folio, .. } => folio.order,
            Entry::Note { order, .. } | Entry::Away { order, .. } => order,
            Entry::Empty | Entry::Node { .. } => Order::ZERO,
        }
    }
}

/// Makes an order of any garbage that a reader finds in a reused node.
const fn clamped(order: u8) -> Order {
    Order::new(if order > crate::limits::ORDER_MAX.get() { 0 } else { order })
}

impl Note {
    /// Whether it may be lost: it is a hint, and no record of a reserved folio.
    pub(super) const fn is_hint(self) -> bool {
        !matches!(self, Note::Promised | Note::Claimed)
    }

    const fn number(self) -> u64 {
        match self {
            Note::Small => 0,
            Note::Failed => 1,
            Note::Promised => 2,
            Note::Claimed => 3,
            // As many bits as fit; the clock counts pages and stays below.
            Note::Left(at) => (at & (u64::MAX >> (REST_AT + 1))) + 4,
        }
    }

    const fn of(number: u64) -> Self {
        match number {
            0 => Note::Small,
            1 => Note::Failed,
            2 => Note::Promised,
            3 => Note::Claimed,
            at => Note::Left(at - 4),
        }
    }
}
