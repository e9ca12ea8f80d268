//! Listings in the form of `getdents64`.
//!
//! ```text
//!   | inode 8 | offset 8 | length 2 | type 1 | name, zero byte, zeroes up to a multiple of 8 |
//! ```
//!
//! Offset 0 begins at `.`, 1 at `..`; the cookies of the directory come after these two.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::call::Caller;
use super::node::{Body, Kind, Node};
use crate::{Errno, Result};

/// Bytes before the name.
const HEADER: usize = core::mem::offset_of!(linux_raw_sys::general::linux_dirent64, d_name);

/// The distance between the offsets that programs see and the directory's cookies.
const DOTS: u64 = 2;

struct Records {
    bytes: Vec<u8>,
    room: usize,
    /// The offset at which to go on.
    next: u64,
    is_full: bool,
}

impl Records {
    /// Appends a record if it has room, and says whether it had.
    fn add(&mut self, next: u64, name: &[u8], inode: u64, kind: Kind) -> bool {
        let length = (HEADER + name.len() + 1).next_multiple_of(8);
        if self.bytes.len() + length > self.room || self.bytes.try_reserve(length).is_err() {
            self.is_full = true;
            return false;
        }
        let end = self.bytes.len() + length;
        self.bytes.extend_from_slice(&inode.to_ne_bytes());
        self.bytes.extend_from_slice(&next.to_ne_bytes());
        self.bytes.extend_from_slice(&(length as u16).to_ne_bytes());
        self.bytes.push(kind.entry_type());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(end, 0);
        self.next = next;
        true
    }
}

/// The records of a directory from offset `from` on that fit into `room` bytes, and the offset at
/// which to go on. No records: the listing is at its end.
///
/// # Errors
/// [`Errno::ENOTDIR`]; [`Errno::EINVAL`] if not even one record fits, [`Errno::ENOENT`] if the
/// directory was removed; the errors of a generated directory.
pub(super) fn records(
    who: &Caller<'_>,
    dir: &Arc<Node>,
    from: u64,
    room: usize,
) -> Result<(Vec<u8>, u64)> {
    if !dir.is_directory() {
        return Err(Errno::ENOTDIR);
    }
    if dir.entries().is_some_and(|entries| entries.lock().is_removed()) {
        return Err(Errno::ENOENT);
    }
    let mut records = Records { bytes: Vec::new(), room, next: from, is_full: false };
    let parent = dir.parent().unwrap_or_else(|| dir.clone());
    let dots = [(0, &b"."[..], dir), (1, &b".."[..], &parent)];
    for (at, name, node) in dots {
        if from <= at && !records.is_full {
            records.add(at + 1, name, node.inode(), Kind::Directory);
        }
    }
    if !records.is_full {
        let from = from.saturating_sub(DOTS);
        let tell = &mut |cookie: u64, name: &[u8], inode, kind| {
            records.add(cookie.saturating_add(DOTS), name, inode, kind)
        };
        match dir.body() {
            Body::Directory(entries) => entries.lock().list(from, tell),
            Body::Tree(tree) => tree.list(who, from, tell)?,
            _ => return Err(Errno::ENOTDIR),
        }
    }
    if records.is_full && records.bytes.is_empty() {
        return Err(Errno::EINVAL);
    }
    Ok((records.bytes, records.next))
}
