//! The context of system calls on files: the caller, and the directories where paths begin.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use linux_raw_sys::general as raw;
use spin::mutex::SpinMutex;

use crate::files::call::{Caller, Outcome};
use crate::files::node::Node;
use crate::files::open::Description;
use crate::files::path::Spot;
use crate::files::table::Table;
use crate::files::tree::Tree;
use crate::{Errno, Result};

/// The place of a process: its working directory and umask. Shared by threads, copied by `fork`.
pub struct Here {
    pub(super) dir: SpinMutex<Arc<Node>>,
    /// Permission bits; relaxed, as no other state depends on them.
    pub(super) umask: AtomicU32,
}

impl Here {
    /// At `dir`, with umask 022.
    pub fn new(dir: Arc<Node>) -> Self {
        Self { dir: SpinMutex::new(dir), umask: AtomicU32::new(0o022) }
    }

    /// A copy, as for `fork`.
    pub fn duplicate(&self) -> Self {
        let umask = AtomicU32::new(self.umask.load(Ordering::Relaxed));
        Self { dir: SpinMutex::new(self.dir()), umask }
    }

    /// The permission bits that new files do not get.
    pub fn umask(&self) -> u32 {
        self.umask.load(Ordering::Relaxed)
    }

    /// The working directory.
    pub fn dir(&self) -> Arc<Node> {
        self.dir.lock().clone()
    }
}

/// The context of a system call on files, made anew for each call from the thread's state.
#[derive(Clone, Copy)]
pub struct Calls<'a> {
    /// All names.
    pub tree: &'a Tree,
    /// The process's descriptors.
    pub table: &'a Table,
    /// Where the process is.
    pub here: &'a Here,
    /// The caller.
    pub who: &'a Caller<'a>,
}

impl Calls<'_> {
    /// The file that is open as `number`.
    ///
    /// # Errors
    /// [`Errno::EBADF`].
    pub fn open_file(&self, number: u32) -> Result<Arc<Description>> {
        self.table.get(number)
    }

    /// The node that a path leads to, for `execve` and the like.
    ///
    /// # Errors
    /// As [`Tree::walk`], and [`Errno::ENOENT`].
    pub fn find(&self, dir: i32, path: &[u8]) -> Result<Spot> {
        let spot = self.spot(dir, path, true)?;
        spot.existing()?;
        Ok(spot)
    }

    /// The spot of a path that begins at the open directory `dir`, or `AT_FDCWD`.
    pub(super) fn spot(&self, dir: i32, path: &[u8], follow: bool) -> Result<Spot> {
        if path.first() == Some(&b'/') {
            return self.tree.walk(self.who, self.tree.root(), path, follow);
        }
        self.tree.walk(self.who, &self.start(dir)?, path, follow)
    }

    pub(super) fn start(&self, dir: i32) -> Result<Arc<Node>> {
        if dir == raw::AT_FDCWD {
            return Ok(self.here.dir());
        }
        let number = u32::try_from(dir).map_err(|_| Errno::EBADF)?;
        Ok(self.table.get(number)?.node().clone())
    }

    /// The node that a path leads to, with the flags that many calls take: `AT_EMPTY_PATH` and
    /// `AT_SYMLINK_NOFOLLOW`.
    pub(super) fn node(&self, dir: i32, path: &[u8], flags: u32) -> Result<Arc<Node>> {
        if path.is_empty() && flags & raw::AT_EMPTY_PATH != 0 {
            return self.start(dir);
        }
        let spot = self.spot(dir, path, flags & raw::AT_SYMLINK_NOFOLLOW == 0)?;
        spot.existing().cloned()
    }

    /// The permission bits of a new file for which the program asks `mode`.
    pub(super) fn masked(&self, mode: u32) -> u32 {
        mode & 0o7777 & !self.here.umask.load(Ordering::Relaxed)
    }

    pub(super) fn with<T>(
        &self,
        number: u32,
        act: impl FnOnce(&Description) -> Outcome<T>,
    ) -> Outcome<T> {
        act(&*self.table.get(number)?)
    }
}

/// Refuses flags that the call does not know.
pub(super) fn only(flags: u32, known: u32) -> Result<()> {
    if flags & !known == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}
