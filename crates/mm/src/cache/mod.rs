//! Files in memory: which pages of which file are in which folio.
//!
//! **Owns** the index from a file's pages to its folios, what is known about each folio's content,
//! and what is worth reading next. **Key types**: [`FilePages`].
//!
//! **Never** chooses victims, waits, or talks to a device: it says what to read, in which folios,
//! and hears when that is done. **Next room**: `swap`.

mod file;
pub(crate) mod index;
mod map;
mod pages;
mod policy;
mod readahead;
mod reads;
mod reshape;
mod sweep;
mod window;
mod word;

#[cfg(all(test, not(loom)))]
mod code_tests;
#[cfg(all(test, not(loom)))]
mod index_tests;
#[cfg(all(test, not(loom)))]
mod readahead_tests;

pub(crate) use file::root_of;
pub use file::{File, FileId, Store};
pub use index::{FILE_PAGES_MAX, FILES_MAX};
pub(crate) use index::{Index, InsertLack, file_of, identity, page_of};
pub(crate) use map::{Shown, grant_write, leaf_order, map_around};
pub use pages::FilePages;
pub use policy::{FilePolicy, FileSize, Refused};
pub(crate) use readahead::{Mapped, Preference};
pub use readahead::{Pattern, Readahead};
pub use reads::{Read, Reads};
pub(crate) use window::{Bounds, Window};
pub(crate) use word::{Entry, Note};
