//! The initramfs: a cpio archive becomes the tree. All of it is copied.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use cpio_reader::Entry;
use linux_raw_sys::general as raw;
use spin::mutex::SpinMutex;

use super::call::{Caller, Sink, Time, copied};
use super::data::Data;
use super::dir::Entries;
use super::node::{Body, Node};
use super::pipe::Pipe;
use super::tree::Tree;
use crate::{Errno, Result};

/// The result of unpacking an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Entries that are in the tree now.
    pub entries: usize,
    /// Entries that could not be made, for want of memory or of a sensible name or kind.
    pub refused: usize,
    /// Whether the archive ended as it should, with its trailer.
    pub is_whole: bool,
}

/// Names of one file in the archive, by inode number and device: the node, once it was made.
type Links = BTreeMap<(u32, u32, u32), Arc<Node>>;

impl Tree {
    /// Fills the tree from an archive in newc format. Directories that an entry needs and the
    /// archive lacks are made; what is there already is replaced, but not directories. Entries
    /// before the damage of an archive are kept.
    pub fn unpack(&self, who: &Caller<'_>, archive: &[u8]) -> Unpacked {
        let mut unpacked = Unpacked::default();
        let mut links = Links::new();
        let mut last = 0;
        for entry in cpio_reader::iter_files(archive) {
            last = last.max(end_of(&entry, archive));
            match self.unpack_entry(who, &entry, &mut links) {
                Ok(()) => unpacked.entries += 1,
                Err(_) => unpacked.refused += 1,
            }
        }
        // The reader stops at the trailer and at damage alike: find out which it was.
        let header = archive.get(last.next_multiple_of(4)..).unwrap_or_default();
        unpacked.is_whole = header.get(110..120) == Some(b"TRAILER!!!");
        unpacked
    }

    fn unpack_entry(&self, who: &Caller<'_>, entry: &Entry<'_>, links: &mut Links) -> Result<()> {
        let mut path = Vec::new();
        path.put(b"/")?;
        path.put(entry.name().as_bytes())?;
        self.make_above(who, &path)?;
        let spot = self.walk(who, self.root(), &path, false)?;
        let seconds = i64::try_from(entry.mtime()).unwrap_or_default();
        let now = Time { seconds, nanos: 0 };
        if let Some(node) = spot.node.as_ref() {
            let is_directory = entry.mode().bits() & raw::S_IFMT == raw::S_IFDIR;
            if node.is_directory() && is_directory {
                dress(node, entry, now);
                return Ok(());
            }
            self.unlink(&spot, now)?;
            return self.unpack_entry(who, entry, links);
        }
        let key = (entry.devmajor().unwrap_or(0), entry.devminor().unwrap_or(0), entry.ino());
        if entry.nlink() > 1
            && let Some(node) = links.get(&key)
        {
            fill(node, entry)?;
            return self.link_again(&node.clone(), &spot, now);
        }
        let node = self.node_of(entry, now)?;
        dress(&node, entry, now);
        self.link_new(&spot, &node, now)?;
        if entry.nlink() > 1 && !node.is_directory() {
            links.insert(key, node);
        }
        Ok(())
    }

    fn node_of(&self, entry: &Entry<'_>, now: Time) -> Result<Arc<Node>> {
        let mode = entry.mode().bits();
        let number = (entry.rdevmajor().unwrap_or(0), entry.rdevminor().unwrap_or(0));
        let body = match mode & raw::S_IFMT {
            raw::S_IFREG => {
                let data = self.make_data(None)?;
                put(&data, entry.file())?;
                Body::File(data)
            }
            raw::S_IFDIR => Body::Directory(SpinMutex::new(Entries::default())),
            raw::S_IFLNK => Body::Link(copied(entry.file())?),
            raw::S_IFCHR => Body::Device(self.devices().find(number)),
            raw::S_IFIFO => Body::Pipe(Arc::new(Pipe::new())),
            _ => return Err(Errno::EINVAL),
        };
        Ok(self.make(body, mode, now))
    }

    /// Makes the directories above the last part of `path` that do not exist.
    fn make_above(&self, who: &Caller<'_>, path: &[u8]) -> Result<()> {
        let ends = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
        for (end, _) in ends {
            let spot = self.walk(who, self.root(), &path[..end], true)?;
            if spot.node.is_none() {
                self.link_new(&spot, &self.make_directory(0o755, who.now), who.now)?;
            }
        }
        Ok(())
    }
}

/// Of several names of one file, only the last has the contents.
fn fill(node: &Node, entry: &Entry<'_>) -> Result<()> {
    match node.body() {
        Body::File(file) if !entry.file().is_empty() => {
            file.truncate(0)?;
            put(file, entry.file())
        }
        _ => Ok(()),
    }
}

/// Writes all bytes of a file.
fn put(data: &Data, bytes: &[u8]) -> Result<()> {
    let (count, _) = data.write_at(Some(0), bytes)?;
    if count == bytes.len() { Ok(()) } else { Err(Errno::ENOSPC) }
}

fn dress(node: &Node, entry: &Entry<'_>, now: Time) {
    node.note(now, |meta| {
        meta.mode = entry.mode().bits() & 0o7777;
        meta.uid = entry.uid();
        meta.gid = entry.gid();
        meta.modified = now;
    });
}

/// The offset in the archive behind this entry.
fn end_of(entry: &Entry<'_>, archive: &[u8]) -> usize {
    // An empty file may lie anywhere; its name is always in the archive, and a zero byte follows.
    let start = archive.as_ptr().addr();
    let name = entry.name().as_bytes().as_ptr_range().end.addr() - start + 1;
    let file = entry.file().as_ptr_range().end.addr().wrapping_sub(start);
    if entry.file().is_empty() { name } else { file }
}
