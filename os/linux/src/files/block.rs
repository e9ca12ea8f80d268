//! Block devices: disks as files of a fixed length.

use super::call::{Caller, Sink, Source};
use super::device::Number;
use super::stored::Stored;
use crate::{Errno, Result};

/// Requests of `ioctl` (linux/fs.h). Both ISAs have the same numbers.
mod request {
    pub(super) const BLKROGET: u32 = 0x125e;
    pub(super) const BLKGETSIZE: u32 = 0x1260;
    pub(super) const BLKFLSBUF: u32 = 0x1261;
    pub(super) const BLKSSZGET: u32 = 0x1268;
    pub(super) const BLKPBSZGET: u32 = 0x127b;
    pub(super) const BLKGETSIZE64: u32 = 0x8008_1272;
}

/// Bytes of a sector.
const SECTOR: u64 = 512;

/// A block device: a [`Stored`] file that may be written, but not beyond its end.
pub trait Block: Stored {
    /// Its major and minor number.
    fn number(&self) -> Number;

    /// Whether it cannot be written.
    fn is_read_only(&self) -> bool;

    /// Whether it has an exclusive owner: it is mounted, or swapped to.
    fn is_claimed(&self) -> bool;

    /// Takes bytes from the source for `offset`, which lies within the device, and returns how
    /// many: fewer than the source has if they are many, or at the device's end. They are on the
    /// device after [`sync`](Self::sync).
    ///
    /// # Errors
    /// [`Errno::BLOCKED`] when it must wait, and has taken nothing; [`Errno::ETXTBSY`] when it is
    /// swapped to; [`Errno::EBUSY`] when it is mounted; [`Errno::EIO`], [`Errno::ENOMEM`], the
    /// source's.
    fn write_at(&self, who: &Caller<'_>, offset: u64, source: &mut dyn Source) -> Result<usize>;

    /// Waits until all writes are on the device.
    ///
    /// # Errors
    /// [`Errno::BLOCKED`] as long as it is not; [`Errno::EIO`] when some of it could not be.
    fn sync(&self, who: &Caller<'_>) -> Result<()>;
}

/// Writes what the source has left, as far as it fits, from `offset` on.
///
/// # Errors
/// [`Errno::ENOSPC`] at the device's end, and those of [`Block::write_at`].
pub(super) fn write_from(
    who: &Caller<'_>,
    block: &dyn Block,
    offset: u64,
    source: &mut dyn Source,
) -> Result<usize> {
    if source.left() == 0 {
        return Ok(0);
    }
    if offset >= block.length() {
        return Err(Errno::ENOSPC);
    }
    block.write_at(who, offset, source)
}

/// Answers `ioctl` on a block device.
///
/// # Errors
/// [`Errno::ENOTTY`] for unknown requests; those of [`Block::sync`]; the sink's.
pub(super) fn control(
    who: &Caller<'_>,
    block: &dyn Block,
    request: u32,
    output: &mut dyn Sink,
) -> Result<()> {
    match request {
        request::BLKROGET => output.put(&u32::from(block.is_read_only()).to_ne_bytes()),
        request::BLKGETSIZE => output.put(&(block.length() / SECTOR).to_ne_bytes()),
        request::BLKFLSBUF => block.sync(who),
        request::BLKSSZGET | request::BLKPBSZGET => output.put(&(SECTOR as u32).to_ne_bytes()),
        request::BLKGETSIZE64 => output.put(&block.length().to_ne_bytes()),
        _ => Err(Errno::ENOTTY),
    }
}
