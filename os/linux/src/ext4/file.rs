//! Bytes of a file, through its extents.

use alloc::sync::Arc;

use super::{Inode, Volume};
use crate::files::{Caller, Stored};
use crate::{Errno, Result};

/// A regular file of a volume.
pub struct File {
    volume: Arc<Volume>,
    inode: Inode,
}

impl File {
    /// A file, or another inode with bytes.
    pub(super) fn new(volume: Arc<Volume>, inode: Inode) -> Self {
        Self { volume, inode }
    }

    /// Its volume.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// Its inode.
    pub fn inode(&self) -> &Inode {
        &self.inode
    }

    /// How many of `bytes` bytes from `offset` on the file has.
    fn there(&self, offset: u64, bytes: u64) -> u64 {
        self.inode.length.saturating_sub(offset).min(bytes)
    }
}

impl Stored for File {
    fn length(&self) -> u64 {
        self.inode.length
    }

    fn held_bytes(&self) -> u64 {
        let unit = if self.inode.is_huge { self.volume.block_bytes() } else { 512 };
        self.inode.blocks.saturating_mul(unit)
    }

    fn want(&self, who: &Caller<'_>, offset: u64, bytes: u64) -> Result<()> {
        let end = offset + self.there(offset, bytes);
        let mut at = offset;
        let mut is_missing = false;
        while at < end {
            let run = self.volume.run(who, &self.inode, at, end - at)?;
            if let Some(place) = run.at {
                match self.volume.device().want(who, place, run.bytes.min(end - at)) {
                    Ok(()) => {}
                    Err(Errno::BLOCKED) => is_missing = true,
                    Err(errno) => return Err(errno),
                }
            }
            at += run.bytes;
        }
        if is_missing { Err(Errno::BLOCKED) } else { Ok(()) }
    }

    fn read_at(&self, who: &Caller<'_>, offset: u64, into: &mut [u8]) -> Result<usize> {
        let count = self.there(offset, into.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let left = (count - done) as u64;
            let run = self.volume.run(who, &self.inode, offset + done as u64, left)?;
            let part = &mut into[done..done + run.bytes.min(left) as usize];
            match run.at {
                Some(at) => self.volume.device().read(who, at, part)?,
                None => part.fill(0),
            }
            done += part.len();
        }
        Ok(count)
    }
}
