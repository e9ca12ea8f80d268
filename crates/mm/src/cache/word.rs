//! One word of the index.
//!
//! ```text
//!   63                         12        7     6..2     1..0
//!   | frame, or what is noted   |  0     |dirty| order  | kind |
//! ```
//!
//! A word stands for the aligned block of its order that begins at its place. A folio of any order
//! is *one* word, at the place of its first page; the places behind it are zero. Which word covers
//! a page is found as the head of a frame's block is: at the page's aligned ancestors.

use quire_units::{Order, Pfn};

use crate::folio::Folio;
use crate::radix::{Node, TAG};

/// What a word of the index says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Entry {
    /// Nothing is here.
    Empty,
    /// A lower node. Some folio below a dirty one may be dirty.
    Node { node: Node, dirty: bool },
    /// A folio of the file.
    Folio { folio: Folio, dirty: bool },
    /// No folio, but something to remember of a block of pages. It makes room for folios.
    Note { note: Note, order: Order },
}

/// What is remembered of pages that are not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Note {
    /// They could not be read in one piece: page by page next time.
    Small,
    /// The page could not be read, and whoever wanted it has not been told yet.
    Failed,
    /// They were in one folio, which left when the clock of reclaiming said so.
    Left(u64),
}

const FOLIO: u64 = 2;
const NOTE: u64 = 3;
const ORDER_AT: u32 = 2;
const DIRTY: u64 = 1 << 7;
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
        };
        kind | (order as u64) << ORDER_AT | if dirty { DIRTY } else { 0 } | rest << REST_AT
    }

    /// The same, dirty or not. What cannot be dirty stays as it is.
    pub(crate) const fn with_dirty(self, dirty: bool) -> Self {
        match self {
            Entry::Node { node, .. } => Entry::Node { node, dirty },
            Entry::Folio { folio, .. } => Entry::Folio { folio, dirty },
            other => other,
        }
    }

    pub(crate) const fn is_dirty(self) -> bool {
        matches!(self, Entry::Node { dirty: true, .. } | Entry::Folio { dirty: true, .. })
    }

    /// How many pages it stands for, if it is a folio or a note.
    pub(super) const fn order(self) -> Option<Order> {
        match self {
            Entry::Folio { folio, .. } => Some(folio.order),
            Entry::Note { order, .. } => Some(order),
            Entry::Empty | Entry::Node { .. } => None,
        }
    }
}

/// Whatever garbage a reader finds in a node that was reused under its hands becomes an order.
const fn clamped(order: u8) -> Order {
    Order::new(if order > crate::limits::ORDER_MAX.get() { 0 } else { order })
}

impl Note {
    const fn number(self) -> u64 {
        match self {
            Note::Small => 0,
            Note::Failed => 1,
            // As many bits as there are; the clock counts pages, and does not come that far.
            Note::Left(at) => (at & (u64::MAX >> (REST_AT + 1))) + 2,
        }
    }

    const fn of(number: u64) -> Self {
        match number {
            0 => Note::Small,
            1 => Note::Failed,
            at => Note::Left(at - 2),
        }
    }
}
