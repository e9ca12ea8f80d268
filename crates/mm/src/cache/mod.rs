//! Files in memory: which pages of which file are in which folio.
//!
//! **Owns** the index from a file's pages to its folios, the state of each folio's content, and the
//! readahead. **Key types**: [`FilePages`].
//!
//! ```text
//!   fault ──► Index::find ──► a folio: map its run (map) ──► a marked one: Readahead
//!                  │                                                   │
//!                  └─ missing ──► Readahead, FilePolicy ──► Window ◄───┘
//!                                                             │
//!   Index::insert ◄── the embedder reads, folio by folio ◄── Reads
//! ```
//!
//! | file | content |
//! |---|---|
//! | `index`, `word`, `sweep`, `reshape` | the tree: lookups, its words, dirty folios, folios that merge or split |
//! | `file` | one file: source, length, locks |
//! | `map` | mapping cached folios around a fault |
//! | `readahead`, `window`, `policy` | which pages to read, and in which folios |
//! | `row` | folios of one order side by side, in one walk |
//! | `pages`, `reads` | pages of a file, and plans to read some |
//!
//! **Locks**: a file's `reshaping`, then its `changing`, then nodes from the root down, then a
//! folio.
//!
//! **Never** chooses victims, waits, or talks to a device: it returns plans of reads. **Next
//! room**: `swap`.

mod file;
mod in_memory;
pub(crate) mod index;
mod map;
mod pages;
mod policy;
mod readahead;
mod reads;
mod reshape;
mod row;
mod sweep;
mod window;
mod word;

#[cfg(all(test, not(loom)))]
mod code_tests;
#[cfg(all(test, not(loom)))]
mod index_tests;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod readahead_tests;

pub(crate) use file::root_of;
pub use file::{File, Store};
pub use in_memory::MemorySizes;
pub use index::{FILE_PAGES_MAX, FILES_MAX};
pub(crate) use index::{Index, InsertLack, file_of, identity, page_of};
pub(crate) use map::{Shown, grant_write, leaf_order, map_around};
pub use pages::FilePages;
pub use policy::{FilePolicy, FileSize, Refused};
pub(crate) use readahead::{Mapped, Preference};
pub use readahead::{Pattern, Readahead};
pub use reads::{Read, ReadRun, Reads};
pub(crate) use row::Row;
pub(crate) use window::{Bounds, Window};
pub(crate) use word::{Entry, Note};

pub use crate::space::FileId;
