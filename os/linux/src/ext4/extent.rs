//! Where the bytes of a file lie: its tree of extents.
//!
//! ```text
//!   inode: header │ index │ index          a node: header of 12 bytes, entries of 12 bytes each,
//!                      │ ascending by their first block of the file
//!                      ▼
//!   block: header │ leaf │ leaf │ leaf a leaf: a run of blocks of the file
//! ```

use super::{Inode, Volume, u16_at, u32_at};
use crate::files::Caller;
use crate::{Errno, Result};

/// Bytes of a header and of an entry.
const ENTRY: usize = 12;
/// The first bytes of a header.
const MAGIC: u16 = 0xf30a;
/// The deepest tree that can be.
const DEPTH_MAX: u16 = 5;
/// A leaf of more blocks than this has been reserved and not written.
const WRITTEN_MAX: u16 = 0x8000;

/// A stretch of a file that lies together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where on the device it begins, in bytes; `None`: nowhere, it is zeroes.
    pub at: Option<u64>,
    /// How many bytes it has; whole blocks, so that it may go beyond the file's end.
    pub bytes: u64,
}

/// The answer of one node of the tree about a block of the file.
enum Found {
    /// It is in a leaf, or in none.
    Run(Run),
    /// It is in the node at this place of the device. It maps blocks below `end`.
    Below { at: u64, end: u64 },
}

impl Volume {
    /// Where the byte `offset` of a file lies, and what lies behind it up to `offset + most`, at
    /// least one block.
    ///
    /// # Errors
    /// [`Errno::EUCLEAN`] when the tree makes no sense, [`Errno::EOPNOTSUPP`] when the file has
    /// none; those of [`Blocks::read`](super::Blocks::read).
    pub fn run(&self, who: &Caller<'_>, inode: &Inode, offset: u64, most: u64) -> Result<Run> {
        if !inode.has_extents() {
            return Err(Errno::EOPNOTSUPP);
        }
        let (block, within) = (offset / self.block_bytes(), offset % self.block_bytes());
        let mut run = self.run_of_block(who, inode, block)?;
        run.at = run.at.map(|at| at + within);
        run.bytes = (run.bytes - within).min(most.max(1).next_multiple_of(self.block_bytes()));
        Ok(run)
    }

    fn run_of_block(&self, who: &Caller<'_>, inode: &Inode, block: u64) -> Result<Run> {
        let mut depth = header(&inode.root)?.1;
        if depth > DEPTH_MAX {
            return Err(Errno::EUCLEAN);
        }
        let mut node = [0; 4096];
        node[..inode.root.len()].copy_from_slice(&inode.root);
        let mut bytes = inode.root.len();
        // Blocks of the entries above end here.
        let mut end = 1_u64 << 32;
        loop {
            match self.look(&node[..bytes], block, end)? {
                Found::Run(run) => return Ok(run),
                Found::Below { at, end: sooner } => {
                    bytes = self.block_bytes() as usize;
                    self.device().read(who, at, &mut node[..bytes])?;
                    end = sooner;
                    let below = header(&node[..bytes])?.1;
                    if below + 1 != depth {
                        return Err(Errno::EUCLEAN);
                    }
                    depth = below;
                }
            }
        }
    }

    /// Looks for a block of the file in one node, which maps blocks below `end`.
    fn look(&self, node: &[u8], block: u64, end: u64) -> Result<Found> {
        let (count, depth) = header(node)?;
        let entries = node[ENTRY..].chunks_exact(ENTRY).take(count.into());
        let first = |entry: &[u8]| u64::from(u32_at(entry, 0));
        let next = entries.clone().map(first).find(|first| *first > block).unwrap_or(end);
        let Some(entry) = entries.take_while(|entry| first(entry) <= block).last() else {
            return self.hole(block, next);
        };
        if depth > 0 {
            let low = u64::from(u32_at(entry, 4));
            let at = self.place(low | u64::from(u16_at(entry, 8)) << 32)?;
            return Ok(Found::Below { at, end: next });
        }
        let length = u16_at(entry, 4);
        let is_written = length <= WRITTEN_MAX;
        let length = u64::from(if is_written { length } else { length - WRITTEN_MAX });
        let behind = block - first(entry);
        if behind >= length {
            return self.hole(block, next);
        }
        let start = u64::from(u32_at(entry, 8)) | u64::from(u16_at(entry, 6)) << 32;
        let at = self.place(start + behind)?;
        let bytes = (length - behind) * self.block_bytes();
        if at.checked_add(bytes).is_none_or(|end| end > self.device().length()) {
            return Err(Errno::EUCLEAN);
        }
        Ok(Found::Run(Run { at: is_written.then_some(at), bytes }))
    }

    fn hole(&self, block: u64, next: u64) -> Result<Found> {
        if next <= block {
            return Err(Errno::EUCLEAN);
        }
        Ok(Found::Run(Run { at: None, bytes: (next - block) * self.block_bytes() }))
    }
}

/// The number of entries of a node, and its height above the leaves.
fn header(node: &[u8]) -> Result<(u16, u16)> {
    let (count, depth) = (u16_at(node, 2), u16_at(node, 6));
    let fits = (usize::from(count) + 1) * ENTRY <= node.len();
    if u16_at(node, 0) == MAGIC && fits { Ok((count, depth)) } else { Err(Errno::EUCLEAN) }
}
