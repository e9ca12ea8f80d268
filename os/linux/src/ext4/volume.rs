//! The superblock, and from an inode number to an inode.
//!
//! ```text
//!   1024: superblock │ from the next block on: descriptors, one for each group │ …
//!   inode n is number (n - 1) % inodes_per_group in the table of group (n - 1) / inodes_per_group
//! ```

use alloc::sync::Arc;
use core::fmt;

use super::dir::Dir;
use super::{Blocks, Inode, MAGIC, u16_at, u32_at};
use crate::files::{Caller, Directory};
use crate::{Errno, Result};

/// The place of the superblock, and the bytes of it that are read.
const SUPERBLOCK: u64 = 1024;
const SUPERBLOCK_BYTES: usize = 1024;

/// The root directory's inode number.
const ROOT: u32 = 2;

/// Bytes of an inode of the first revision, and the most that are read.
const INODE_BYTES_OLD: u16 = 128;
const INODE_BYTES: usize = 256;

/// The features that a reader must know (`s_feature_incompat`) and this one does.
mod feature {
    /// Directory entries have the type.
    pub(super) const FILETYPE: u32 = 0x2;
    /// Files may have extents.
    const EXTENTS: u32 = 0x40;
    /// Descriptors have 64 bytes.
    pub(super) const WIDE: u32 = 0x80;
    /// Tables of inodes are anywhere.
    const FLEX_BG: u32 = 0x200;
    /// Values of extended attributes, which are not read, have inodes.
    const EA_INODE: u32 = 0x400;
    /// Where checksums, which are not looked at, begin.
    const CSUM_SEED: u32 = 0x2000;
    /// Trees of hashes, which are not looked at, are deeper.
    const LARGEDIR: u32 = 0x4000;

    pub(super) const KNOWN: u32 =
        FILETYPE | EXTENTS | WIDE | FLEX_BG | EA_INODE | CSUM_SEED | LARGEDIR;
}

/// The reason a device cannot be read as ext4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no superblock.
    NotExt4,
    /// It needs features that are not known here: these bits of `s_feature_incompat`; without bits,
    /// it lacks one that is needed here. Bit 2: its journal was not replayed.
    Features(u32),
    /// A number of the superblock makes no sense.
    Damaged,
    /// The device's error; [`Errno::BLOCKED`] to try again later.
    Device(Errno),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotExt4 => write!(f, "there is no ext4 on it"),
            Self::Features(bits) => write!(f, "its features {bits:#x} are not known"),
            Self::Damaged => write!(f, "its superblock makes no sense"),
            Self::Device(errno) => write!(f, "it cannot be read: {errno}"),
        }
    }
}

impl core::error::Error for Refusal {}

/// A file system.
pub struct Volume {
    device: Arc<dyn Blocks>,
    block_bytes: u64,
    /// Where the descriptors begin, in bytes, and how many bytes each has.
    descriptors: u64,
    descriptor_bytes: u64,
    inodes: u32,
    inodes_per_group: u32,
    inode_bytes: u16,
}

impl Volume {
    /// The file system on `device`.
    ///
    /// # Errors
    /// The reason it cannot be read: see [`Refusal`].
    pub fn open(
        who: &Caller<'_>,
        device: Arc<dyn Blocks>,
    ) -> core::result::Result<Arc<Self>, Refusal> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        if device.length() < SUPERBLOCK + SUPERBLOCK_BYTES as u64 {
            return Err(Refusal::NotExt4);
        }
        device.read(who, SUPERBLOCK, &mut bytes).map_err(Refusal::Device)?;
        if u32::from(u16_at(&bytes, 0x38)) != MAGIC {
            return Err(Refusal::NotExt4);
        }
        let features = u32_at(&bytes, 0x60);
        if features & !feature::KNOWN != 0 || features & feature::FILETYPE == 0 {
            return Err(Refusal::Features(features & !feature::KNOWN));
        }
        Ok(Arc::new(Self::of(device, &bytes, features)?))
    }

    /// Reads a superblock, if it makes sense.
    fn of(
        device: Arc<dyn Blocks>,
        bytes: &[u8],
        features: u32,
    ) -> core::result::Result<Self, Refusal> {
        let shift = u32_at(bytes, 0x18);
        if shift > 2 {
            return Err(Refusal::Damaged);
        }
        let block_bytes = 1024_u64 << shift;
        let first = u64::from(u32_at(bytes, 0x14));
        let is_old = u32_at(bytes, 0x4c) == 0;
        let inode_bytes = if is_old { INODE_BYTES_OLD } else { u16_at(bytes, 0x58) };
        let wide = features & feature::WIDE != 0;
        let volume = Self {
            device,
            block_bytes,
            descriptors: (first + 1) * block_bytes,
            descriptor_bytes: if wide { u16_at(bytes, 0xfe).into() } else { 32 },
            inodes: u32_at(bytes, 0),
            inodes_per_group: u32_at(bytes, 0x28),
            inode_bytes,
        };
        let is_sane = volume.inodes_per_group > 0
            && volume.descriptor_bytes >= if wide { 64 } else { 32 }
            && inode_bytes >= INODE_BYTES_OLD
            && u64::from(inode_bytes) <= block_bytes;
        if is_sane { Ok(volume) } else { Err(Refusal::Damaged) }
    }

    /// Its root directory.
    ///
    /// # Errors
    /// Those of [`inode`](Self::inode); [`Errno::EUCLEAN`] if it is no directory.
    pub fn root(self: &Arc<Self>, who: &Caller<'_>) -> Result<Arc<dyn Directory>> {
        let inode = self.inode(who, ROOT)?;
        if !inode.is_directory() {
            return Err(Errno::EUCLEAN);
        }
        Ok(Arc::new(Dir::new(self.clone(), inode)))
    }

    /// Bytes of its blocks.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// The device.
    pub(super) fn device(&self) -> &dyn Blocks {
        &*self.device
    }

    /// Inode `number`.
    ///
    /// # Errors
    /// [`Errno::EUCLEAN`] if there is no such inode; those of [`Blocks::read`].
    pub fn inode(&self, who: &Caller<'_>, number: u32) -> Result<Inode> {
        if number == 0 || number > self.inodes {
            return Err(Errno::EUCLEAN);
        }
        let (group, index) =
            ((number - 1) / self.inodes_per_group, (number - 1) % self.inodes_per_group);
        let mut descriptor = [0; 64];
        let size = if self.descriptor_bytes < 64 { 32 } else { 64 };
        let at = self.descriptors + u64::from(group) * self.descriptor_bytes;
        self.device.read(who, at, &mut descriptor[..size])?;
        // Beyond the narrow descriptor there are zeroes here.
        let table =
            u64::from(u32_at(&descriptor, 0x08)) | u64::from(u32_at(&descriptor, 0x28)) << 32;
        let table = self.place(table)?;
        let mut bytes = [0; INODE_BYTES];
        let count = usize::from(self.inode_bytes).min(INODE_BYTES);
        let at = table + u64::from(index) * u64::from(self.inode_bytes);
        self.device.read(who, at, &mut bytes[..count])?;
        Ok(Inode::of(number, &bytes[..count]))
    }

    /// Where a block begins on the device, in bytes.
    ///
    /// # Errors
    /// [`Errno::EUCLEAN`] beyond the device.
    pub(super) fn place(&self, block: u64) -> Result<u64> {
        let at = block.checked_mul(self.block_bytes);
        at.filter(|at| *at < self.device.length()).ok_or(Errno::EUCLEAN)
    }
}
