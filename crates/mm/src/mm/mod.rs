//! The façade: one memory manager for a system.
//!
//! **Owns** the services, one within the other, and the loop that dispatches a fault: a step of
//! `spaces` returns what it lacks, and the service that has it brings it. **Key types**: [`Mm`],
//! [`Parts`].
//!
//! **Never** decides anything else. **Next room**: `check`.

mod areas;
#[cfg(any(test, feature = "inject"))]
mod by_value;
mod failed;
mod faults;
mod frames;
mod manager;
mod pin;

#[cfg(all(test, not(loom), feature = "check"))]
mod tests;
#[cfg(all(test, not(loom), feature = "files", feature = "check"))]
mod file_tests;
#[cfg(all(test, not(loom), feature = "files", feature = "check"))]
mod watch_tests;
#[cfg(all(test, not(loom), feature = "files", feature = "check"))]
mod reserved_tests;
#[cfg(all(test, not(loom), feature = "files", feature = "check"))]
mod reserved_cases;
#[cfg(all(test, not(loom), feature = "watch", feature = "files", feature = "check"))]
mod reserved_watch_tests;
#[cfg(all(test, not(loom), feature = "watch", feature = "files", feature = "check"))]
mod watched_file_tests;
#[cfg(all(test, not(loom), feature = "reclaim", feature = "check"))]
mod migrate_tests;
#[cfg(all(test, not(loom), feature = "reclaim", feature = "check"))]
mod compact_tests;
#[cfg(all(test, not(loom), feature = "reclaim", feature = "check"))]
mod counted_tests;
#[cfg(all(test, not(loom), feature = "reclaim", feature = "check"))]
mod moved_tests;
#[cfg(all(test, not(loom), feature = "reclaim", feature = "check"))]
mod noticed_tests;
#[cfg(all(test, not(loom), feature = "reclaim", feature = "check"))]
mod meanwhile_tests;
#[cfg(all(test, not(loom), feature = "reclaim", feature = "check"))]
mod group_tests;
#[cfg(all(test, not(loom), feature = "reclaim", feature = "check"))]
mod shared_tests;
#[cfg(all(test, not(loom), feature = "reclaim", feature = "check"))]
mod shared_lives;
#[cfg(all(test, not(loom), feature = "check"))]
mod near_tests;

pub use frames::{FrameInfo, FrameUse};
pub use manager::{Mm, Parts};
pub use pin::Pinned;
