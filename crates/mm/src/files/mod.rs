//! Files in memory: opening, reading, showing, writing back, truncating.
//!
//! ```text
//!   fault ──► show ──► mapped, or Need::Read: what to read
//!   read:   next_read ──► the embedder fills the frames ──► read_done
//!   write:  next_write ──► the embedder stores the frames ──► write_done
//!   truncate, punch ──► hide from all spaces, flush ──► cut folios ──► free
//! ```
//!
//! **Owns** the policy for files, and the costs of reclaim. **Key types**: [`Files`], [`Held`].
//!
//! **Never** chooses victims; talks to a device. **Next room**: `paging`.

#[cfg(feature = "swap")]
mod away;
mod balance;
mod begin;
mod bring;
mod cut;
mod enter;
mod failed;
#[cfg(feature = "swap")]
mod moved;
mod drop;
#[cfg(not(feature = "swap"))]
mod no_away;
mod read;
mod reserved;
mod reshape;
mod open;
mod shown;
mod watched;
mod truncate;
mod writeback;

pub(crate) use balance::Kind;
pub(crate) use open::OpenFile;
#[cfg(feature = "swap")]
pub(crate) use open::usable;
pub use read::{Held, ReadFailed};
pub(crate) use reshape::{Bound, Mappings};
pub use writeback::{Write, WriteFailed, WriteRun};

use quire_arch::Arch;

use crate::base::Base;
use crate::cache::FilePolicy;
use crate::spaces::Spaces;
use crate::sync::AtomicU32;
use balance::Balance;

/// The files with pages in memory.
pub struct Files<'m, A, H> {
    spaces: Spaces<'m, A, H>,
    /// A hint: no file before this one is free.
    free_file: AtomicU32,
    pub(crate) balance: Balance,
}

crate::sync::names!([A, H] Files<'_, A, H>, "files" { free_file, balance } + spaces);

impl<'m, A: Arch, H> Files<'m, A, H> {
    pub(crate) fn new(spaces: Spaces<'m, A, H>) -> Self {
        Self { spaces, free_file: AtomicU32::new(0), balance: Balance::new() }
    }

    #[inline(always)]
    pub(crate) fn base(&self) -> &Base<'m, A, H> {
        self.spaces.base()
    }

    #[inline(always)]
    pub(crate) fn spaces(&self) -> &Spaces<'m, A, H> {
        &self.spaces
    }

    /// The sizes in which files are read, and the length of readahead. May be changed at any time.
    pub fn policy(&self) -> &FilePolicy {
        &self.base().file_policy
    }

    #[cfg(not(feature = "swap"))]
    #[inline(always)]
    pub(crate) fn files(&self) -> &Self {
        self
    }
}
