//! The faults that a walker can find, with their evidence.

use core::fmt;

use quire_arch::{Attrs, Level};
use quire_units::{PageSpan, Pfn, Prot, Vpn};

use crate::folio::Folio;
use crate::phys::{self, Kind};
use crate::space::FileId;
use crate::space::tree::TreeViolation;
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
    /// A frame that is used as a table is not recorded as this space's table of this level that
    /// translates from this page on.
    NotTheTable {
        /// The frame.
        frame: Pfn,
        /// The level it is used at.
        level: Level,
        /// The first page it translates there.
        base: Vpn,
    },
    /// A table's number of nonzero words differs from the count in its slot.
    Present {
        /// The table.
        table: Pfn,
        /// How many are counted.
        counted: u64,
        /// How many there are.
        found: u64,
    },
    /// A frame that is used as a node of a file's index is not recorded as the one that begins with
    /// this page.
    NotTheNode {
        /// The frame.
        frame: Pfn,
        /// The file.
        id: FileId,
        /// The first page it is used for.
        page: u64,
    },
    /// A folio in a file's index has another identity, is not aligned, overlaps another, or lies
    /// beyond the file's end.
    NotThePage {
        /// The folio.
        folio: Folio,
        /// The file of the index.
        id: FileId,
        /// The page of its place.
        page: u64,
    },
    /// A slot of a swap device contradicts the page tables or its file.
    #[cfg(feature = "swap")]
    Slot {
        /// The device's file.
        id: FileId,
        /// The slot.
        slot: u64,
        /// Its fault.
        fault: SlotFault,
    },
    /// Below this place of a file's index a folio is dirty, and the link is not marked.
    Unmarked {
        /// The file of the index.
        id: FileId,
        /// The first page of the place.
        page: u64,
    },
    /// A file's number of pages in memory differs from its count.
    FilePages {
        /// The file.
        id: FileId,
        /// How many are counted.
        counted: u64,
        /// How many there are.
        found: u64,
    },
    /// The recorded numbers of index nodes, and of folios with an identity, differ from those of
    /// the files.
    Files {
        /// Nodes and folios on record.
        recorded: (u64, u64),
        /// Those of files.
        found: (u64, u64),
    },
    /// A table's number of contiguous blocks differs from the count in its slot.
    Blocks {
        /// The table.
        table: Pfn,
        /// How many are counted.
        counted: u64,
        /// How many there are.
        found: u64,
    },
    /// The contiguous block that begins at this entry is not whole: some entries are not part of
    /// it, or differ in rights, frames or folio (I4).
    Torn {
        /// The table.
        table: Pfn,
        /// The block's first entry.
        index: usize,
    },
    /// The block that begins at this entry could be folded but is not (C1).
    Plain {
        /// The table.
        table: Pfn,
        /// The block's first entry.
        index: usize,
    },
    /// A leaf of a shared page can be written (I9).
    WritableCow {
        /// The leaf's first page.
        page: Vpn,
    },
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
    /// A leaf maps pages that no area holds, or that lie in several.
    Area {
        /// The leaf's pages.
        pages: PageSpan,
    },
    /// A leaf grants more than its area, or not to programs.
    Rights {
        /// The leaf's first page.
        page: Vpn,
        /// The rights of the leaf.
        granted: Attrs,
        /// The rights of the area.
        prot: Prot,
    },
    /// A leaf maps frames that do not all belong to one folio.
    NotAFolio {
        /// The leaf's pages.
        pages: PageSpan,
        /// Its first frame.
        frame: Pfn,
    },
    /// A folio's count of mapped pages differs from that of the tables (I12).
    Mapped {
        /// The folio.
        folio: Folio,
        /// Its count.
        counted: u32,
        /// The number in the tables.
        found: u32,
    },
    /// A folio without any hold.
    Unheld(Folio),
    /// A folio is not aligned to its size, or goes beyond RAM.
    Misplaced(Folio),
    /// A frame amid a folio is on record as something else.
    Inside {
        /// The folio.
        folio: Folio,
        /// The recorded frame.
        frame: Pfn,
        /// Its kind.
        kind: Kind,
    },
    /// A frame of a folio is in a CPU's cache of free frames.
    Cached(Pfn),
    /// A frame is recorded as waiting for a flush, though no change is under way.
    Stray(Pfn),
    /// The number of recorded tables differs from that of the spaces.
    Tables {
        /// On record.
        recorded: u64,
        /// Found in the spaces.
        found: u64,
    },
    /// The number of recorded area-tree nodes differs from that of the spaces.
    Nodes {
        /// On record.
        recorded: u64,
        /// Found in the spaces.
        found: u64,
    },
    /// More frames are on record as used than have been taken.
    TooMany {
        /// Frames that are neither free nor cached.
        taken: u64,
        /// Frames recorded as a folio's, a table or a node.
        recorded: u64,
    },
}

impl Violation {
    /// Faults in a file.
    fn fmt_file(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotTheNode { frame, id, page } => {
                write!(f, "{frame} is not the node of file {} from page {page} on", id.0)
            }
            Self::NotThePage { folio, id, page } => {
                write!(f, "{folio:?} is not page {page} of file {}", id.0)
            }
            #[cfg(feature = "swap")]
            Self::Slot { id, slot, fault } => {
                write!(f, "slot {slot} of the swap file {} {fault}", id.0)
            }
            Self::Unmarked { id, page } => {
                write!(f, "a dirty folio below page {page} of file {} is not marked", id.0)
            }
            Self::FilePages { id, counted, found } => {
                write!(f, "file {} counts {counted} pages and has {found}", id.0)
            }
            Self::Files { recorded, found } => {
                write!(
                    f,
                    "{recorded:?} nodes and folios of files are on record, files have {found:?}"
                )
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Phys(violation) => violation.fmt(f),
            Self::Tree(violation) => violation.fmt(f),
            Self::NotTheTable { frame, level, base } => {
                write!(f, "{frame} is not the table of {level:?} that begins with {base}")
            }
            Self::Present { table, counted, found } => {
                write!(f, "table {table} counts {counted} words, but has {found}")
            }
            Self::Blocks { table, counted, found } => {
                write!(f, "table {table} counts {counted} contiguous blocks, but has {found}")
            }
            Self::Torn { table, index } => {
                write!(f, "the contiguous block at entry {index} of table {table} is not whole")
            }
            Self::Plain { table, index } => {
                write!(f, "the block at entry {index} of table {table} could be contiguous")
            }
            Self::WritableCow { page } => write!(f, "{page} can be written where it is COW"),
            Self::NotExclusive(frame) => {
                write!(f, "{frame} is mapped as exclusive, and a second time")
            }
            Self::Malformed { table, index, word } => {
                write!(f, "word {index} of table {table} is {word:#018x}, which means nothing")
            }
            Self::Area { pages } => write!(f, "no one area holds the leaf that maps {pages:?}"),
            Self::Rights { page, granted, prot } => {
                write!(f, "{page} is mapped with {granted:?} where {prot:?} is allowed")
            }
            Self::NotAFolio { pages, frame } => {
                write!(f, "{pages:?} map {frame} and so on, which is not of one folio")
            }
            Self::Mapped { folio, counted, found } => {
                write!(f, "{folio:?} counts {counted} mapped pages, but {found} are")
            }
            Self::Unheld(folio) => write!(f, "{folio:?} has no reference, pin or mapping"),
            Self::Misplaced(folio) => write!(f, "{folio:?} cannot be where it is"),
            Self::Inside { folio, frame, kind } => {
                write!(f, "{frame} inside {folio:?} is recorded as {kind:?}")
            }
            Self::Cached(frame) => write!(f, "{frame} is free in a cache and a folio's"),
            Self::Stray(frame) => write!(f, "{frame} was taken out of a tree and never freed"),
            Self::Tables { recorded, found } => {
                write!(f, "{recorded} tables are on record, and {found} in use")
            }
            Self::Nodes { recorded, found } => {
                write!(f, "{recorded} nodes are on record, and {found} in use")
            }
            Self::TooMany { taken, recorded } => {
                write!(f, "{taken} frames are taken, and {recorded} recorded as in use")
            }
            _ => self.fmt_file(f),
        }
    }
}

impl core::error::Error for Violation {}
