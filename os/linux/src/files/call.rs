//! The kernel's part of every operation: the caller, sources and sinks of bytes; and the two ways
//! in which a call can fail.

use alloc::sync::Arc;

use super::node::Node;
use crate::credentials::Credentials;
use crate::{Errno, Result, Wake};

/// A moment since 1970, as files note it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds beyond these, below 1 000 000 000.
    pub nanos: u32,
}

/// The caller.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    /// Its process.
    pub pid: u32,
    /// Its thread.
    pub tid: u32,
    /// Its rights.
    pub may: &'a Credentials,
    /// The time, for the files it changes.
    pub now: Time,
    /// The most bytes that it may make a file have (`RLIMIT_FSIZE`).
    pub longest: u64,
    /// The waiter to wake when a call that was [`Halt::Blocked`] may go on.
    pub wake: &'a Arc<dyn Wake>,
}

impl Caller<'_> {
    /// Whether it may do all of `rights` (4 read, 2 write, 1 execute or search) to a node.
    ///
    /// # Errors
    /// [`Errno::EACCES`].
    pub fn check(&self, node: &Node, rights: u32) -> Result<()> {
        self.may.check(&node.meta(), node.is_directory(), rights)
    }

    /// Makes it the owner of a node that it just made.
    pub(crate) fn own(&self, node: &Node) {
        if self.may.users.files != 0 || self.may.groups.files != 0 {
            let (uid, gid) = (self.may.users.files, self.may.groups.files);
            node.note(self.now, |meta| (meta.uid, meta.gid) = (uid, gid));
        }
    }
}

/// The reason an operation that may have to wait has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// It would have to wait. Nothing was done; the caller's [`Wake`] is registered. Park the
    /// thread, and make the call again from the start.
    Blocked,
    /// It failed.
    Failed(Errno),
}

impl From<Errno> for Halt {
    fn from(errno: Errno) -> Self {
        Self::Failed(errno)
    }
}

/// The outcome of an operation that may have to wait.
pub type Outcome<T> = core::result::Result<T, Halt>;

/// The destination of a read: the memory of a program.
pub trait Sink {
    /// Takes all of `bytes`, after what it took before.
    ///
    /// # Errors
    /// [`Errno::EFAULT`] when there is no room for all of them; they do not count as moved then.
    fn put(&mut self, bytes: &[u8]) -> Result<()>;
}

/// The source of a write: the memory of a program.
pub trait Source {
    /// Gives the next bytes: fills `into` as far as it can, and returns how many.
    ///
    /// # Errors
    /// [`Errno::EFAULT`] when there are bytes left and not one of them can be read.
    fn take(&mut self, into: &mut [u8]) -> Result<usize>;

    /// How many bytes are left.
    fn left(&self) -> usize;
}

impl Sink for alloc::vec::Vec<u8> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.try_reserve(bytes.len()).map_err(|_| Errno::ENOMEM)?;
        self.extend_from_slice(bytes);
        Ok(())
    }
}

impl Source for &[u8] {
    fn take(&mut self, into: &mut [u8]) -> Result<usize> {
        let count = into.len().min(self.len());
        let (now, later) = self.split_at(count);
        into[..count].copy_from_slice(now);
        *self = later;
        Ok(count)
    }

    fn left(&self) -> usize {
        self.len()
    }
}

/// Bytes that were moved before an error count: the error is returned only when there are none.
pub(super) fn moved(count: usize, error: Option<Errno>) -> Result<usize> {
    match error {
        Some(errno) if count == 0 => Err(errno),
        _ => Ok(count),
    }
}

/// `length` zero bytes on the heap.
pub(crate) fn zeroes(length: usize) -> Result<alloc::vec::Vec<u8>> {
    let mut bytes = alloc::vec::Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(length, 0);
    Ok(bytes)
}

/// A copy of `bytes` on the heap.
pub(super) fn copied(bytes: &[u8]) -> Result<alloc::vec::Vec<u8>> {
    let mut copy = alloc::vec::Vec::new();
    copy.try_reserve_exact(bytes.len()).map_err(|_| Errno::ENOMEM)?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}
