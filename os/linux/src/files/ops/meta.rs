//! Calls that read or change metadata of files.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as raw;

use super::calls::{Calls, only};
use crate::files::call::{Sink, Time};
use crate::files::data::PIECE;
use crate::files::node::{Body, Kind, Node};
use crate::files::path::path_of;
use crate::files::stat::{About, Stat, Statfs, Statx, about_volume};
use crate::{Errno, Result};

/// Flags of the calls that read metadata by path.
const TELL: u32 = raw::AT_EMPTY_PATH | raw::AT_SYMLINK_NOFOLLOW | raw::AT_NO_AUTOMOUNT;

/// `CAP_CHOWN`.
const CHOWN: u32 = raw::CAP_CHOWN;

/// A change of a file's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// Now.
    Now,
    /// Its present value.
    Keep,
    /// This.
    At(Time),
}

impl SetTime {
    /// Reads a `timespec` of `utimensat`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if the nanoseconds are neither below a second nor special.
    pub fn of(seconds: i64, nanos: i64) -> Result<Self> {
        match u32::try_from(nanos) {
            Ok(raw::UTIME_NOW) => Ok(Self::Now),
            Ok(raw::UTIME_OMIT) => Ok(Self::Keep),
            Ok(nanos) if nanos < 1_000_000_000 => Ok(Self::At(Time { seconds, nanos })),
            _ => Err(Errno::EINVAL),
        }
    }

    fn put(self, time: &mut Time, now: Time) {
        match self {
            Self::Now => *time = now,
            Self::Keep => {}
            Self::At(at) => *time = at,
        }
    }
}

impl Calls<'_> {
    /// `fstat`.
    ///
    /// # Errors
    /// [`Errno::EBADF`].
    pub fn fstat(&self, number: u32) -> Result<Stat> {
        Ok(About::of(self.table.get(number)?.node()).stat())
    }

    /// `newfstatat`, also for `stat` and `lstat`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for unknown flags, and those of paths.
    pub fn newfstatat(&self, dir: i32, path: &[u8], flags: u32) -> Result<Stat> {
        only(flags, TELL)?;
        Ok(About::of(&*self.node(dir, path, flags)?).stat())
    }

    /// `statx`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for unknown flags or a reserved mask, and those of paths.
    pub fn statx(&self, dir: i32, path: &[u8], flags: u32, mask: u32) -> Result<Statx> {
        only(flags, TELL | raw::AT_STATX_SYNC_TYPE)?;
        only(mask, !raw::STATX__RESERVED)?;
        Ok(About::of(&*self.node(dir, path, flags)?).statx())
    }

    /// `statfs`.
    ///
    /// # Errors
    /// Those of paths.
    pub fn statfs(&self, path: &[u8]) -> Result<Statfs> {
        Ok(self.about_volume(&*self.node(raw::AT_FDCWD, path, 0)?))
    }

    /// `fstatfs`.
    ///
    /// # Errors
    /// [`Errno::EBADF`].
    pub fn fstatfs(&self, number: u32) -> Result<Statfs> {
        Ok(self.about_volume(self.table.get(number)?.node()))
    }

    fn about_volume(&self, node: &Node) -> Statfs {
        let block = match (node.body(), node.reserved()) {
            (Body::File(file), _) => file.block_bytes(),
            (_, Some(reserved)) => {
                self.tree.make_data(Some(reserved)).map_or(0, |data| data.block_bytes())
            }
            _ => PIECE as u64,
        };
        let magic = match block > PIECE as u64 {
            true => raw::HUGETLBFS_MAGIC,
            false => self.tree.magic(node.volume()),
        };
        about_volume(magic, node.volume(), block)
    }

    /// `faccessat2`.
    ///
    /// # Errors
    /// [`Errno::EACCES`], [`Errno::EINVAL`] for unknown flags or rights, and those of paths.
    pub fn faccessat2(&self, dir: i32, path: &[u8], rights: u32, flags: u32) -> Result<()> {
        const WRITE: u32 = 2;
        only(rights, 0o7)?;
        only(flags, raw::AT_EACCESS | raw::AT_EMPTY_PATH | raw::AT_SYMLINK_NOFOLLOW)?;
        let node = self.node(dir, path, flags)?;
        if rights & WRITE != 0 && node.check_changeable() == Err(Errno::EROFS) {
            return Err(Errno::EROFS);
        }
        if flags & raw::AT_EACCESS != 0 {
            return self.who.check(&node, rights);
        }
        // As the real user: a program that runs for its owner asks whether its caller may.
        let mut real = self.who.may.clone();
        let before = real.users;
        real.users.files = before.real;
        real.users.effective = before.real;
        real.groups.files = real.groups.real;
        real.follow(&before);
        real.check(&node.meta(), node.is_directory(), rights)
    }

    /// `fchmodat2`, also for `chmod`.
    ///
    /// # Errors
    /// [`Errno::EOPNOTSUPP`] for a link, [`Errno::EPERM`] for generated files, [`Errno::EINVAL`]
    /// for unknown flags, and those of paths.
    pub fn fchmodat(&self, dir: i32, path: &[u8], mode: u32, flags: u32) -> Result<()> {
        only(flags, raw::AT_EMPTY_PATH | raw::AT_SYMLINK_NOFOLLOW)?;
        self.chmod(&*self.node(dir, path, flags)?, mode)
    }

    /// `fchmod`.
    ///
    /// # Errors
    /// [`Errno::EBADF`], else as [`fchmodat`](Self::fchmodat).
    pub fn fchmod(&self, number: u32, mode: u32) -> Result<()> {
        self.chmod(self.table.get(number)?.node(), mode)
    }

    fn chmod(&self, node: &Node, mode: u32) -> Result<()> {
        if matches!(node.body(), Body::Link(_)) {
            return Err(Errno::EOPNOTSUPP);
        }
        changeable(node)?;
        self.who.may.check_owner(&node.meta())?;
        let changes = (node.meta().mode ^ mode) & 0o111 != 0;
        if let Body::File(file) = node.body()
            && changes
            && file.seals() & raw::F_SEAL_EXEC != 0
        {
            return Err(Errno::EPERM);
        }
        node.note(self.who.now, |meta| meta.mode = mode & 0o7777);
        Ok(())
    }

    /// `fchownat`, also for `chown` and `lchown`; with an empty path and `AT_EMPTY_PATH` for
    /// `fchown`. All ones keep an owner as it is.
    ///
    /// # Errors
    /// [`Errno::EPERM`] for generated files, [`Errno::EINVAL`] for unknown flags, and those of
    /// paths.
    pub fn fchownat(&self, dir: i32, path: &[u8], uid: u32, gid: u32, flags: u32) -> Result<()> {
        only(flags, raw::AT_EMPTY_PATH | raw::AT_SYMLINK_NOFOLLOW)?;
        let node = self.node(dir, path, flags)?;
        changeable(&node)?;
        self.check_chown(&node, uid, gid)?;
        node.note(self.who.now, |meta| {
            if uid != u32::MAX {
                meta.uid = uid;
            }
            if gid != u32::MAX {
                meta.gid = gid;
            }
        });
        Ok(())
    }

    /// Whether the caller may give a file away, or to another of its own groups.
    fn check_chown(&self, node: &Node, uid: u32, gid: u32) -> Result<()> {
        let (may, meta) = (self.who.may, node.meta());
        let keeps = uid == u32::MAX || uid == meta.uid;
        let is_own = meta.uid == may.users.files && (gid == u32::MAX || may.is_in(gid));
        if may.can(CHOWN) || keeps && is_own { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// `utimensat`: sets the times of last read and last change. No path means `dir` itself.
    ///
    /// # Errors
    /// [`Errno::EPERM`] for generated files, [`Errno::EINVAL`] for unknown flags, and those of
    /// paths.
    pub fn utimensat(
        &self,
        dir: i32,
        path: Option<&[u8]>,
        times: [SetTime; 2],
        flags: u32,
    ) -> Result<()> {
        only(flags, raw::AT_EMPTY_PATH | raw::AT_SYMLINK_NOFOLLOW)?;
        let node = match path {
            Some(path) => self.node(dir, path, flags)?,
            None => self.table.get(u32::try_from(dir).map_err(|_| Errno::EBADF)?)?.node().clone(),
        };
        if times == [SetTime::Keep; 2] {
            return Ok(());
        }
        changeable(&node)?;
        match times == [SetTime::Now; 2] {
            true if self.who.check(&node, 2).is_ok() => {}
            true => self.who.may.check_owner(&node.meta()).map_err(|_| Errno::EACCES)?,
            false => self.who.may.check_owner(&node.meta())?,
        }
        let now = self.who.now;
        node.note(now, |meta| {
            times[0].put(&mut meta.accessed, now);
            times[1].put(&mut meta.modified, now);
        });
        Ok(())
    }

    /// `truncate`: sets the length in bytes.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a negative length or other than regular files, [`Errno::EISDIR`],
    /// [`Errno::ETXTBSY`] while a program runs from it, [`Errno::ENOSPC`], and those of paths.
    pub fn truncate(&self, path: &[u8], length: i64) -> Result<()> {
        let node = self.node(raw::AT_FDCWD, path, 0)?;
        if node.is_directory() {
            return Err(Errno::EISDIR);
        }
        self.who.check(&node, 2)?;
        if matches!(node.body(), Body::File(file) if file.is_running()) {
            return Err(Errno::ETXTBSY);
        }
        self.set_length(&node, length)
    }

    /// `ftruncate`: sets the length in bytes.
    ///
    /// # Errors
    /// [`Errno::EBADF`], [`Errno::EINVAL`] if it is no regular file open to be written, or for a
    /// negative length, [`Errno::ENOSPC`].
    pub fn ftruncate(&self, number: u32, length: i64) -> Result<()> {
        let open = self.table.get(number)?;
        if !open.may_write() {
            return Err(Errno::EINVAL);
        }
        self.set_length(open.node(), length)
    }

    fn set_length(&self, node: &Node, length: i64) -> Result<()> {
        let length = u64::try_from(length).map_err(|_| Errno::EINVAL)?;
        match node.body() {
            Body::File(file) if length > self.who.longest && length > file.len() => {
                return Err(Errno::EFBIG);
            }
            Body::File(file) => file.truncate(length)?,
            // Shells open generated files with O_TRUNC, and truncate them: nothing is lost.
            Body::Generated(_) => return Ok(()),
            Body::Stored(_) => return Err(Errno::EROFS),
            _ => return Err(Errno::EINVAL),
        }
        node.touch(self.who.now);
        Ok(())
    }

    /// `fallocate`: takes memory for bytes, or makes them a hole.
    ///
    /// # Errors
    /// [`Errno::EOPNOTSUPP`] for all other forms, [`Errno::EBADF`], [`Errno::EINVAL`],
    /// [`Errno::ENODEV`] or [`Errno::ESPIPE`] if it is no regular file, [`Errno::EFBIG`],
    /// [`Errno::ENOSPC`],
    /// [`Errno::EPERM`] where seals forbid it.
    pub fn fallocate(&self, number: u32, mode: u32, offset: i64, length: i64) -> Result<()> {
        let open = self.table.get(number)?;
        if !open.may_write() {
            return Err(Errno::EBADF);
        }
        let keeps = raw::FALLOC_FL_KEEP_SIZE;
        let is_hole = mode == raw::FALLOC_FL_PUNCH_HOLE | keeps;
        if !is_hole && mode & !keeps != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if offset < 0 || length <= 0 {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(length).ok_or(Errno::EFBIG)? as u64;
        let file = match open.node().body() {
            Body::File(file) => file,
            Body::Pipe(_) => return Err(Errno::ESPIPE),
            _ if open.node().kind() == Kind::Socket => return Err(Errno::ESPIPE),
            _ => return Err(Errno::ENODEV),
        };
        let bytes = offset as u64..end;
        if !is_hole && end > self.who.longest && end > file.len() {
            return Err(Errno::EFBIG);
        }
        if is_hole {
            file.punch(bytes)?;
        } else {
            file.reserve(bytes, mode & keeps == 0)?;
        }
        open.node().touch(self.who.now);
        Ok(())
    }

    /// `getcwd`: puts the path of the working directory, with a zero byte, into at most `count`
    /// bytes, and says how many these were.
    ///
    /// # Errors
    /// [`Errno::ERANGE`] if it does not fit, [`Errno::ENOENT`] if the directory was removed, the
    /// sink's.
    pub fn getcwd(&self, count: usize, sink: &mut dyn Sink) -> Result<usize> {
        let mut path = path_of(&self.here.dir())?;
        path.put(&[0])?;
        if path.len() > count {
            return Err(Errno::ERANGE);
        }
        sink.put(&path)?;
        Ok(path.len())
    }

    /// `umask`: sets it, and returns the old one.
    pub fn umask(&self, mask: u32) -> u32 {
        self.here.umask.swap(mask & 0o777, Ordering::Relaxed)
    }
}

fn changeable(node: &Node) -> Result<()> {
    node.check_changeable()
}
