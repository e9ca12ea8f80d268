//! Files in memory: which pages of which file are in which folio.
//!
//! **Owns** the index from a file's pages to its folios, what is known about each folio's content,
//! and what is worth reading next. **Key types**: [`FilePages`].
//!
//! **Never** chooses victims, waits, or talks to a device: it says what to read, in which folios,
//! and hears when that is done. **Next room**: `engine`.

mod pages;
mod policy;
mod readahead;
mod window;

#[cfg(all(test, not(loom)))]
mod readahead_tests;

pub use pages::FilePages;
pub use policy::{FilePolicy, FileSize, Refused};
pub use readahead::{MANY_MISSES, Mapped, Pattern, Preference, Readahead};
pub use window::{Bounds, Window};
