//! One inode: the metadata of a file, and the root of its extents.

use super::{u16_at, u32_at};
use crate::files::{Meta, Time};
use linux_raw_sys::general as raw;

/// Bytes in which an inode has its extents, or the target of a short link.
pub(super) const ROOT_BYTES: usize = 60;

/// Its bytes lie in extents.
const EXTENTS: u32 = 0x8_0000;
/// Its bytes lie in the inode itself.
const INLINE: u32 = 0x1000_0000;
/// Its size on the disk is counted in blocks of the file system.
const HUGE: u32 = 0x4_0000;

/// A file of a [`Volume`](super::Volume).
#[derive(Clone, Debug)]
pub struct Inode {
    /// Its number.
    pub number: u32,
    /// Kind and permission bits.
    pub mode: u32,
    /// Its length in bytes.
    pub length: u64,
    /// Its size on the disk, in units of 512 bytes, or of blocks if `is_huge`.
    pub(super) blocks: u64,
    pub(super) is_huge: bool,
    pub(super) meta: Meta,
    flags: u32,
    pub(super) root: [u8; ROOT_BYTES],
}

impl Inode {
    /// Reads an inode from its bytes, at least 128 of them.
    pub(super) fn of(number: u32, bytes: &[u8]) -> Self {
        let wide = |low: usize, high: usize| {
            u32::from(u16_at(bytes, low)) | u32::from(u16_at(bytes, high)) << 16
        };
        let flags = u32_at(bytes, 0x20);
        let mode = u32::from(u16_at(bytes, 0));
        let mut root = [0; ROOT_BYTES];
        root.copy_from_slice(&bytes[0x28..0x28 + ROOT_BYTES]);
        Self {
            number,
            mode,
            length: u64::from(u32_at(bytes, 0x04)) | u64::from(u32_at(bytes, 0x6c)) << 32,
            blocks: u64::from(u32_at(bytes, 0x1c)) | u64::from(u16_at(bytes, 0x74)) << 32,
            is_huge: flags & HUGE != 0,
            meta: Meta {
                mode: mode & 0o7777,
                uid: wide(0x02, 0x78),
                gid: wide(0x18, 0x7a),
                links: u16_at(bytes, 0x1a).into(),
                accessed: time(bytes, 0x08, 0x8c),
                modified: time(bytes, 0x10, 0x88),
                changed: time(bytes, 0x0c, 0x84),
            },
            flags,
            root,
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.mode & raw::S_IFMT == raw::S_IFDIR
    }

    /// Whether its bytes lie in extents.
    pub(super) fn has_extents(&self) -> bool {
        self.flags & EXTENTS != 0
    }

    /// The target of a short link, if the inode has one.
    pub(super) fn short_target(&self) -> Option<&[u8]> {
        let length = usize::try_from(self.length).ok()?;
        let is_plain = self.flags & (EXTENTS | INLINE) == 0;
        self.root.get(..length).filter(|_| is_plain)
    }
}

/// A time: seconds, and in the later field two more bits of them, and nanoseconds.
fn time(bytes: &[u8], at: usize, extra: usize) -> Time {
    const OLD_BYTES: usize = 128;
    let extra_end = OLD_BYTES + usize::from(u16_at(bytes, OLD_BYTES));
    let extra = if extra + 4 <= extra_end { u32_at(bytes, extra) } else { 0 };
    let seconds = i64::from(u32_at(bytes, at) as i32) + (i64::from(extra & 3) << 32);
    Time { seconds, nanos: (extra >> 2).min(999_999_999) }
}
