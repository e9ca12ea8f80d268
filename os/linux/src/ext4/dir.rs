//! A directory: its bytes are entries, one after the other, in blocks.
//!
//! ```text
//!   | inode 4 | length 2 | name length 1 | type 1 | name | nothing, up to `length` |
//! ```
//!
//! An entry of inode 0 is free room. Where a directory has a tree of hashes, its nodes look like
//! free room, too: so all names are found by reading on. Cookies are offsets in bytes.

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as raw;

use super::{File, Inode, Volume, u16_at, u32_at};
use crate::files::{Body, Caller, Device, Directory, Entry, Kind, Stored, Tell, What, zeroes};
use crate::{Errno, Result};

/// Bytes before the name.
const HEADER: usize = 8;

/// The longest target of a link, in bytes.
const TARGET_MAX: u64 = 4095;

/// A directory of a volume.
pub(super) struct Dir {
    file: File,
}

/// An entry as it stands there.
struct Found<'a> {
    /// Where it begins, and where the next one does, in bytes of the directory.
    at: u64,
    next: u64,
    inode: u32,
    kind: u8,
    name: &'a [u8],
}

impl Dir {
    pub(super) fn new(volume: Arc<Volume>, inode: Inode) -> Self {
        Self { file: File::new(volume, inode) }
    }

    /// Visits each entry in use from the block of `from` on, until `look` says no.
    fn each(
        &self,
        who: &Caller<'_>,
        from: u64,
        look: &mut dyn FnMut(&Found<'_>) -> bool,
    ) -> Result<()> {
        let volume = self.file.volume();
        let step = volume.block_bytes();
        let mut bytes = zeroes(step as usize)?;
        let mut start = from - from % step;
        while start < self.file.length() {
            if self.file.read_at(who, start, &mut bytes)? != bytes.len() {
                return Err(Errno::EUCLEAN);
            }
            if !each_in(&bytes, start, look)? {
                return Ok(());
            }
            start += step;
        }
        Ok(())
    }

    /// The entry for an inode.
    fn what(&self, who: &Caller<'_>, inode: Inode) -> Result<Entry> {
        let volume = self.file.volume().clone();
        let (number, meta) = (inode.number, inode.meta);
        let body = match inode.mode & raw::S_IFMT {
            raw::S_IFREG => Body::Stored(volume.device().file(File::new(volume.clone(), inode))),
            raw::S_IFDIR => Body::Tree(Arc::new(Dir::new(volume, inode))),
            raw::S_IFLNK => Body::Link(target(who, volume, inode)?),
            // Devices are those of the kernel, in /dev; these here lead nowhere.
            _ => Body::Device(Device::Absent((0, 0))),
        };
        let what = What::Stored { body, meta };
        Ok(Entry { inode: number.into(), mode: meta.mode, what })
    }
}

/// The target of a link.
fn target(who: &Caller<'_>, volume: Arc<Volume>, inode: Inode) -> Result<Vec<u8>> {
    if inode.length > TARGET_MAX {
        return Err(Errno::EUCLEAN);
    }
    let mut bytes = zeroes(inode.length as usize)?;
    match inode.short_target() {
        Some(target) => bytes.copy_from_slice(target),
        None => {
            File::new(volume, inode).read_at(who, 0, &mut bytes)?;
        }
    }
    Ok(bytes)
}

/// Visits the entries in one block, which begins at `start`. Whether to go on.
fn each_in(bytes: &[u8], start: u64, look: &mut dyn FnMut(&Found<'_>) -> bool) -> Result<bool> {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = usize::from(u16_at(rest, 4));
        let name_bytes = usize::from(*rest.get(6).ok_or(Errno::EUCLEAN)?);
        let fits = length >= HEADER && length.is_multiple_of(4) && length <= rest.len();
        let inode = u32_at(rest, 0);
        if !fits || inode != 0 && HEADER + name_bytes > length {
            return Err(Errno::EUCLEAN);
        }
        if inode != 0 {
            let found = Found {
                at: start + at as u64,
                next: start + (at + length) as u64,
                inode,
                kind: rest[7],
                name: &rest[HEADER..HEADER + name_bytes],
            };
            if !look(&found) {
                return Ok(false);
            }
        }
        at += length;
    }
    Ok(true)
}

/// The kind of inode that an entry names.
fn kind(number: u8) -> Kind {
    match number {
        1 => Kind::File,
        2 => Kind::Directory,
        7 => Kind::Link,
        _ => Kind::Device,
    }
}

impl Directory for Dir {
    fn lookup(&self, who: &Caller<'_>, name: &[u8]) -> Result<Entry> {
        let mut number = None;
        self.each(who, 0, &mut |found| {
            if found.name == name {
                number = Some(found.inode);
            }
            number.is_none()
        })?;
        let number = number.ok_or(Errno::ENOENT)?;
        self.what(who, self.file.volume().inode(who, number)?)
    }

    fn list(&self, who: &Caller<'_>, from: u64, tell: &mut Tell<'_>) -> Result<()> {
        self.each(who, from, &mut |found| {
            let is_dots = matches!(found.name, b"." | b"..");
            if found.at < from || is_dots {
                return true;
            }
            tell(found.next, found.name, found.inode.into(), kind(found.kind))
        })
    }
}
