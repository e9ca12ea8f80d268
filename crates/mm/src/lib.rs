//! Quire: large-folio memory management.
#![no_std]
#![cfg_attr(
    not(all(feature = "reclaim", feature = "check")),
    allow(
        dead_code,
        unused_imports,
        unused_variables,
        reason = "only the services that are left out use it"
    )
)]
#![allow(unreachable_pub, reason = "a room's mod.rs says what leaves the room, and what the crate")]

#[cfg(test)]
extern crate std;

mod sync;
pub mod limits;
pub mod stats;
pub mod phys;
#[cfg(feature = "files")]
mod radix;
pub mod folio;
pub mod table;
pub mod space;
pub mod fault;
#[cfg(feature = "files")]
pub mod cache;
#[cfg(feature = "swap")]
pub mod swap;
mod base;
mod spaces;
#[cfg(feature = "files")]
mod files;
#[cfg(feature = "swap")]
mod paging;
#[cfg(feature = "reclaim")]
mod reclaim;
mod mm;
#[cfg(feature = "check")]
pub mod check;
#[cfg(feature = "inject")]
pub mod inject;
#[cfg(doctest)]
mod doors;

#[cfg(feature = "reclaim")]
pub use base::Groups;
pub use base::{AllSpaces, Errno, Error};
#[cfg(feature = "files")]
pub use files::{Files, Held, ReadFailed, Write, WriteFailed};
pub use mm::{FrameInfo, FrameUse, Mm, Parts, Pinned};
#[cfg(feature = "swap")]
pub use paging::{PagedOut, Paging, Whose};
#[cfg(feature = "reclaim")]
pub use reclaim::{
    Collapsed, Hindrance, Holdings, Reclaim, Reclaimed, Relieved, ScanCursor, ScanLimits, Scanned,
    Watermarks,
};
pub use spaces::{FolioMap, Loss, Move, Populated, Resolved, SizeOf, Spaces, is_written};

#[doc(no_inline)]
pub use {quire_arch as arch, quire_hw as hw, quire_units as units};
