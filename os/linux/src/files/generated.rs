//! Files that are made when they are read: /proc and /sys. The kernel implements these traits. A
//! disk's directories are found in the same way.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use super::call::{Caller, Sink, Source};
use super::node::{Body, Kind, Meta, Node};
use super::poll::PollEvents;
use crate::{Errno, Result, Wake};

/// A growing buffer of text, into which one can `write!`. It fails, rather than ends the kernel,
/// when there is no memory.
#[derive(Debug, Default)]
pub struct Text {
    bytes: Vec<u8>,
}

impl Text {
    /// No text.
    pub const fn new() -> Self {
        Self { bytes: Vec::new() }
    }

    /// The bytes written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`]; nothing was appended then.
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.put(bytes)
    }

    /// Appends formatted text: `text.print(format_args!(..))`.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`]; part of it may have been appended.
    pub fn print(&mut self, args: fmt::Arguments<'_>) -> Result<()> {
        fmt::Write::write_fmt(self, args).map_err(|_| Errno::ENOMEM)
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// Takes one entry of a directory: the cookie from which to go on after it, its name, its inode
/// number and kind. Returns whether to go on; if not, this entry was not taken.
pub type Tell<'a> = dyn FnMut(u64, &[u8], u64, Kind) -> bool + 'a;

/// A directory whose entries are computed. Nothing can be made or removed in it but directories,
/// where it says so.
pub trait Directory: Send + Sync {
    /// The entry `name`, for this caller.
    ///
    /// # Errors
    /// [`Errno::ENOENT`], or another reason it cannot be made.
    fn lookup(&self, who: &Caller<'_>, name: &[u8]) -> Result<Entry>;

    /// Visits the entries from cookie `from` on, but `.` and `..`, until `tell` says no. The first
    /// call has cookie 0; a cookie stays good when entries come and go.
    ///
    /// # Errors
    /// The reason it cannot be read.
    fn list(&self, who: &Caller<'_>, from: u64, tell: &mut Tell<'_>) -> Result<()>;

    /// The user and the group that own its entries, where these are not root.
    fn owner(&self) -> Option<(u32, u32)> {
        None
    }

    /// Makes a directory `name`, which was not there a moment ago (`mkdir`).
    ///
    /// # Errors
    /// [`Errno::EPERM`] where there cannot be others; [`Errno::EEXIST`], and its own errors.
    fn make_directory(&self, who: &Caller<'_>, name: &[u8]) -> Result<()> {
        let _ = (who, name);
        Err(Errno::EPERM)
    }

    /// Removes the directory `name`, which was there a moment ago (`rmdir`).
    ///
    /// # Errors
    /// [`Errno::EPERM`] where all must stay; [`Errno::EBUSY`], and its own errors.
    fn remove_directory(&self, who: &Caller<'_>, name: &[u8]) -> Result<()> {
        let _ = (who, name);
        Err(Errno::EPERM)
    }
}

/// A file whose contents are computed. It is text unless [`is_binary`](Self::is_binary).
pub trait Generated: Send + Sync {
    /// Whether [`read_at`](Self::read_at) reads it, rather than [`text`](Self::text).
    fn is_binary(&self) -> bool {
        false
    }

    /// Writes all of its text. Called once for each open description, at the first read and at the
    /// first after a seek to 0; the text is kept in between, so that lines fit together.
    ///
    /// # Errors
    /// The read's error; [`Errno::EINVAL`] if it cannot be read.
    fn text(&self, who: &Caller<'_>, out: &mut Text) -> Result<()> {
        let _ = (who, out);
        Err(Errno::EINVAL)
    }

    /// Puts at most `count` bytes from `offset` on into `sink`, and says how many these were.
    ///
    /// # Errors
    /// The read's error, if no bytes were put.
    fn read_at(
        &self,
        who: &Caller<'_>,
        offset: u64,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Result<usize> {
        let _ = (who, offset, count, sink);
        Err(Errno::EINVAL)
    }

    /// The process that this is a handle of (`pidfd_open`), if it is one.
    fn process(&self) -> Option<u32> {
        None
    }

    /// The events now; a pidfd can be read when its process has ended.
    fn readiness(&self) -> PollEvents {
        PollEvents::ALWAYS
    }

    /// Registers a waiter: `who` is woken when [`readiness`](Self::readiness) may have changed.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()> {
        let _ = who;
        Ok(())
    }

    /// Carries out `request` (`ioctl`): `input` and `output` are both the memory at its argument.
    ///
    /// # Errors
    /// [`Errno::ENOTTY`] for unknown requests, and its own errors.
    fn control(
        &self,
        who: &Caller<'_>,
        request: u32,
        input: &mut dyn Source,
        output: &mut dyn Sink,
    ) -> Result<u32> {
        let _ = (who, request, input, output);
        Err(Errno::ENOTTY)
    }

    /// Takes `bytes`, at most 4096 of them, written at `offset`, and says how many it took.
    ///
    /// # Errors
    /// The write's error; [`Errno::EINVAL`] if it cannot be written.
    fn write(&self, who: &Caller<'_>, offset: u64, bytes: &[u8]) -> Result<usize> {
        let _ = (who, offset, bytes);
        Err(Errno::EINVAL)
    }
}

/// An entry of a generated directory.
pub struct Entry {
    /// Its inode number: the same each time, and another for each other entry of the tree.
    pub inode: u64,
    /// Its permission bits, such as `0o444`.
    pub mode: u32,
    /// Its kind.
    pub what: What,
}

/// The kind of an entry of a generated directory.
pub enum What {
    /// A directory.
    Directory(Arc<dyn Directory>),
    /// A file.
    File(Arc<dyn Generated>),
    /// A symbolic link with this target, such as `self`.
    Link(Vec<u8>),
    /// A link that leads to a file, whatever its text says, such as `fd/1` and `exe`.
    Jump(Jump),
    /// A file on a read-only disk, with its metadata.
    Stored {
        /// Its content.
        body: Body,
        /// Its metadata.
        meta: Meta,
    },
}

/// The target of a link that does not go by its text.
pub struct Jump {
    /// The target.
    pub text: Vec<u8>,
    /// The file.
    pub node: Arc<Node>,
    /// The directory that it was found in, and its name there, if it has one.
    pub place: Option<(Arc<Node>, Arc<[u8]>)>,
}
