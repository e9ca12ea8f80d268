//! The façade: one memory manager for a system.
//!
//! **Owns** the loop that every other room relies on: a step says what it lacks, the engine brings
//! it and repeats the step, a bounded number of times. So faults are decided without an allocator,
//! and nobody waits with a lock in hand. **Key types**: [`Mm`], [`Parts`].
//!
//! **Never** holds policy or data of its own. **Next room**: `check`.

mod balance;
mod change;
mod collapse;
mod collapse_file;
mod cut;
mod divide;
mod error;
mod failed;
mod faults;
mod files;
mod fork;
mod frames;
mod group;
mod guard;
mod holdings;
mod lazy;
mod memory;
mod mm;
mod own_block;
mod page_out;
mod reclaim;
mod remap;
mod report;
mod reshape;
mod scan;
mod seal;
mod shed;
mod shown;
mod swap;
mod swap_in;
mod thin;
mod track;
mod truncate;
mod unshare;
mod writeback;
mod zeroes;

#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod file_tests;

pub use collapse::{Collapsed, Hindrance};
pub use error::{Errno, Error};
pub use failed::Loss;
pub use faults::{Populated, Resolved};
pub use files::{Held, ReadFailed};
pub use frames::{FrameInfo, FrameUse};
pub use group::Relieved;
pub use holdings::Holdings;
pub use mm::{Mm, Parts};
pub use page_out::{PagedOut, Whose};
pub use reclaim::{Reclaimed, Watermarks};
pub use remap::Move;
pub use report::{FolioMap, SizeOf};
pub use scan::{ScanCursor, ScanLimits, Scanned};
pub use truncate::Spaces;
pub use unshare::Pinned;
pub use writeback::{Write, WriteFailed};
