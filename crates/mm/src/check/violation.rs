//! The faults that a walker can find, with their evidence.

use core::fmt;

use quire_arch::{Attrs, Level};
#[cfg(feature = "files")]
use quire_units::Order;
use quire_units::{PageSpan, Pfn, Prot, Vpn};

#[cfg(feature = "files")]
use crate::base::PoolCounts;
use crate::folio::Folio;
use crate::phys::{self, Kind};
use crate::space::FileId;
use crate::space::tree::{Miscount, TreeViolation};
#[cfg(feature = "swap")]
use crate::swap::SlotFault;

/// A violated invariant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Violation {
    /// The allocator's walker found this.
    Phys(phys::Violation),
    /// The area tree's walker found this.
    Tree(TreeViolation),
    /// This frame is used as a table of this level that translates from this page on, and is not
    /// recorded as that one of this space.
    NotTheTable(Pfn, Level, Vpn),
    /// The nonzero words of this table or node of a file's index.
    Present(Pfn, Miscount),
    /// This frame is used as the node of this file's index that begins with this page, and is not
    /// recorded as that.
    NotTheNode(Pfn, FileId, u64),
    /// This folio, at the place of this page in this file's index, has another identity, is not
    /// aligned, overlaps another, or lies beyond the file's end.
    NotThePage(Folio, FileId, u64),
    /// The pages that have left memory at the place of this page in this file's index are not
    /// aligned, overlap others, or lie beyond the file's end.
    NotTheBlock(FileId, u64),
    /// This slot of the swap device with this file contradicts the page tables or the file.
    #[cfg(feature = "swap")]
    Slot(FileId, u64, SlotFault),
    /// In the index of this file, below the place that begins with this page, a folio is dirty, and
    /// the link is not marked.
    Unmarked(FileId, u64),
    /// This file's pages in memory.
    FilePages(FileId, Miscount),
    /// The nodes of files' indexes: on record, and in use.
    IndexNodes(Miscount),
    /// The folios of files: on record, and in an index.
    FileFolios(Miscount),
    /// The contiguous blocks of this table.
    Blocks(Pfn, Miscount),
    /// The contiguous block that begins at this entry of this table is not whole: some entries are
    /// not part of it, or differ in rights, frames or folio (I4).
    Torn(Pfn, usize),
    /// The block that begins at this entry of this table could be folded but is not (C1).
    Plain(Pfn, usize),
    /// The leaf that begins with this page is of a shared page, and can be written (I9).
    WritableCow(Vpn),
    /// The leaf that begins with this page waits for a watcher, and its area has none for writes
    /// (I17).
    Unwatched(Vpn),
    /// A page is mapped as exclusive, and a second time (I11, I13).
    NotExclusive(Pfn),
    /// A word without a meaning.
    Malformed {
        /// The table.
        table: Pfn,
        /// The word's index.
        index: usize,
        /// The word.
        word: u64,
    },
    /// A leaf maps these pages, which no area holds, or which lie in several.
    Area(PageSpan),
    /// A leaf grants more than its area, or not to programs.
    Rights {
        /// The leaf's first page.
        page: Vpn,
        /// The rights of the leaf.
        granted: Attrs,
        /// The rights of the area.
        prot: Prot,
    },
    /// A leaf maps these pages to frames, from this one on, that do not all belong to one folio.
    NotAFolio(PageSpan, Pfn),
    /// A leaf maps these pages to frames, from this one on, that its area does not show, with
    /// another memory type, or as if they were the library's (I16).
    NotShown(PageSpan, Pfn),
    /// The pages of areas that show frames: by the areas, and mapped (I16).
    Shown(Miscount),
    /// The promised folios of the pool of this order: counted, and in the files (I20).
    #[cfg(feature = "files")]
    Promises(Order, Miscount),
    /// The pool of this order has promised more than is free, or more is free than it has (I20).
    #[cfg(feature = "files")]
    Pool(Order, PoolCounts),
    /// The mapped pages of this folio (I12).
    Mapped(Folio, Miscount),
    /// A folio without any hold.
    Unheld(Folio),
    /// A folio is not aligned to its size, or goes beyond RAM.
    Misplaced(Folio),
    /// This frame amid this folio is on record as something else, of this kind.
    Inside(Folio, Pfn, Kind),
    /// A frame of a folio is in a CPU's cache of free frames.
    Cached(Pfn),
    /// A frame is recorded as waiting for a flush, though no change is under way.
    Stray(Pfn),
    /// The page tables: on record, and in the spaces.
    Tables(Miscount),
    /// The nodes of area trees: on record, and in the spaces.
    Nodes(Miscount),
    /// The used frames: more are on record than are neither free nor cached.
    TooMany(Miscount),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Phys(violation) => violation.fmt(f),
            Self::Tree(violation) => violation.fmt(f),
            Self::NotTheTable(frame, level, base) => {
                write!(f, "{frame} is not the table of {level:?} that begins with {base}")
            }
            #[cfg(feature = "files")]
            Self::Promises(order, count) => write!(f, "promised folios of {order}: {count}"),
            #[cfg(feature = "files")]
            Self::Pool(order, counts) => write!(f, "the pool of {order} has {counts:?}"),
            Self::Present(table, count) => write!(f, "words of table {table}: {count}"),
            Self::NotTheNode(frame, id, page) => {
                write!(f, "{frame} is not the node of file {} from page {page} on", id.0)
            }
            Self::NotThePage(folio, id, page) => {
                write!(f, "{folio:?} is not page {page} of file {}", id.0)
            }
            Self::NotTheBlock(id, page) => {
                write!(f, "no block of file {} that has left can be at page {page}", id.0)
            }
            #[cfg(feature = "swap")]
            Self::Slot(id, slot, fault) => {
                write!(f, "slot {slot} of the swap file {} {fault}", id.0)
            }
            Self::Unmarked(id, page) => {
                write!(f, "a dirty folio below page {page} of file {} is not marked", id.0)
            }
            Self::FilePages(id, count) => write!(f, "pages of file {}: {count}", id.0),
            Self::IndexNodes(count) => write!(f, "nodes of files: {count}"),
            Self::FileFolios(count) => write!(f, "folios of files: {count}"),
            Self::Blocks(table, count) => write!(f, "contiguous blocks of table {table}: {count}"),
            Self::Torn(table, index) => {
                write!(f, "the contiguous block at entry {index} of table {table} is not whole")
            }
            Self::Plain(table, index) => {
                write!(f, "the block at entry {index} of table {table} could be contiguous")
            }
            Self::WritableCow(page) => write!(f, "{page} can be written where it is COW"),
            Self::Unwatched(page) => write!(f, "{page} waits for a watcher that does not exist"),
            Self::NotExclusive(frame) => {
                write!(f, "{frame} is mapped as exclusive, and a second time")
            }
            Self::Malformed { table, index, word } => {
                write!(f, "word {index} of table {table} is {word:#018x}, which means nothing")
            }
            Self::Area(pages) => write!(f, "no one area holds the leaf that maps {pages:?}"),
            Self::Rights { page, granted, prot } => {
                write!(f, "{page} is mapped with {granted:?} where {prot:?} is allowed")
            }
            Self::NotAFolio(pages, frame) => {
                write!(f, "{pages:?} map {frame} and so on, which is not of one folio")
            }
            Self::NotShown(pages, frame) => {
                write!(f, "{pages:?} map {frame} and so on, which their area does not show so")
            }
            Self::Shown(count) => write!(f, "pages of areas that show frames: {count}"),
            Self::Mapped(folio, count) => write!(f, "mapped pages of {folio:?}: {count}"),
            Self::Unheld(folio) => write!(f, "{folio:?} has no reference, pin or mapping"),
            Self::Misplaced(folio) => write!(f, "{folio:?} cannot be where it is"),
            Self::Inside(folio, frame, kind) => {
                write!(f, "{frame} inside {folio:?} is recorded as {kind:?}")
            }
            Self::Cached(frame) => write!(f, "{frame} is free in a cache and a folio's"),
            Self::Stray(frame) => write!(f, "{frame} was taken out of a tree and never freed"),
            Self::Tables(count) => write!(f, "tables: {count}"),
            Self::Nodes(count) => write!(f, "nodes: {count}"),
            Self::TooMany(count) => write!(f, "frames in use: {count}"),
        }
    }
}

impl core::error::Error for Violation {}
