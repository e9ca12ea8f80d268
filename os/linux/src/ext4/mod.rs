//! A reader of ext4: names, metadata and the extents of files.
//!
//! **Owns** nothing but the facts of the superblock; all else is looked up on request, through
//! [`Blocks`], which caches the disk. **Key types**: [`Volume`] (a file system), [`Inode`] (a file
//! of it), [`Run`] (a stretch of a file that lies together on the disk).
//!
//! ```text
//!   superblock ─► group descriptors ─► inode ─┬─► extents ─► Run: bytes of the file are there
//!        Volume                               └─► a directory's bytes: names and inode numbers
//! ```
//!
//! **Waiting**: an access to bytes that are not in memory is
//! [`Errno::BLOCKED`](crate::Errno::BLOCKED): it is being read, the caller's [`Wake`](crate::Wake)
//! is noted, and the call is made again from the start.
//!
//! **Never**: writes, or replays a journal; a file system that was not closed is refused.
//!
//! Source of all numbers: the kernel's documentation, *ext4 Data Structures and Algorithms*.

mod dir;
mod extent;
mod file;
mod inode;
mod volume;

#[cfg(test)]
mod tests;

pub use extent::Run;
pub use file::File;
pub use inode::Inode;
pub use volume::{Refusal, Volume};

use alloc::sync::Arc;

use crate::Result;
use crate::files::{Caller, Stored};

/// The magic number of the file system, in `statfs` and in the superblock.
pub const MAGIC: u32 = 0xef53;

/// The bytes of a device, as far as they are in memory.
pub trait Blocks: Send + Sync {
    /// The length of the device in bytes.
    fn length(&self) -> u64;

    /// Brings `bytes` bytes from `at` on into memory, or begins to: all missing pages are requested
    /// at once, as far as the device's queue has room. Bytes beyond the device are no error.
    ///
    /// # Errors
    /// [`Errno::BLOCKED`](crate::Errno::BLOCKED) when something is missing, [`ENOMEM`] when there
    /// is no memory for it, [`EIO`] when it cannot be read.
    ///
    /// [`ENOMEM`]: crate::Errno::ENOMEM
    /// [`EIO`]: crate::Errno::EIO
    fn want(&self, who: &Caller<'_>, at: u64, bytes: u64) -> Result<()>;

    /// Copies the bytes from `at` on into `into`.
    ///
    /// # Errors
    /// As [`want`](Self::want); [`EIO`](crate::Errno::EIO) also beyond the device. Some of `into`
    /// may have been written.
    fn read(&self, who: &Caller<'_>, at: u64, into: &mut [u8]) -> Result<()>;

    /// Makes the body that programs read: a file's bytes as they are cached here. A kernel that
    /// caches files by their own pages makes another body, and reads their [runs](Volume::run)
    /// itself.
    fn file(&self, file: File) -> Arc<dyn Stored> {
        Arc::new(file)
    }
}

/// Numbers of the disk are little-endian.
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]))
}

/// The same, of four bytes.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}
