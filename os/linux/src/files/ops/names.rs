//! Calls that open, make, remove and rename.

use alloc::sync::Arc;

use linux_raw_sys::general as raw;

use super::calls::{Calls, only};
use crate::files::call::{Outcome, Sink, copied};
use crate::files::change::Rename;
use crate::files::data::Reserved;
use crate::files::device::Device;
use crate::files::generated::Text;
use crate::files::node::{Body, Kind, Node};
use crate::files::object::Object;
use crate::files::open::{Description, Place};
use crate::files::path::Spot;
use crate::files::pipe::Pipe;
use crate::files::stat;
use crate::{Errno, Result};

/// Bytes that the name of a `memfd_create` may have: with its prefix as many as any name.
const MEMFD_NAME_MAX: usize = crate::files::path::NAME_MAX - 6;

/// Rights to a file, as `access` has them.
const READ: u32 = 4;
const WRITE: u32 = 2;
const SEARCH: u32 = 1;

impl Calls<'_> {
    /// `openat`: the lowest free descriptor for the file, which `O_CREAT` may make with `mode`.
    ///
    /// # Errors
    /// [`Blocked`](crate::files::Halt::Blocked) for a named pipe that waits for its other side;
    /// [`Errno::EEXIST`], [`Errno::EISDIR`], [`Errno::ENOTDIR`], [`Errno::ELOOP`] for a link with
    /// `O_NOFOLLOW`, [`Errno::ENXIO`], [`Errno::EMFILE`], [`Errno::EOPNOTSUPP`] for `O_TMPFILE`
    /// elsewhere than in memory, [`Errno::EINVAL`], [`Errno::EACCES`] if it would make a generated
    /// file, and those of paths.
    pub fn openat(&self, dir: i32, path: &[u8], flags: u32, mode: u32) -> Outcome<u32> {
        let open = self.open(dir, path, flags, mode)?;
        Ok(self.table.add(Arc::new(open), flags & raw::O_CLOEXEC != 0, 0)?)
    }

    fn open(&self, dir: i32, path: &[u8], flags: u32, mode: u32) -> Outcome<Description> {
        let creates = flags & raw::O_CREAT != 0;
        let is_exclusive = creates && flags & raw::O_EXCL != 0;
        if flags & raw::O_TMPFILE == raw::O_TMPFILE {
            return Ok(self.open_nameless(dir, path, flags, mode)?);
        }
        if flags & raw::O_ACCMODE == raw::O_ACCMODE || (creates && flags & raw::O_DIRECTORY != 0) {
            return Err(Errno::EINVAL.into());
        }
        self.table.check_room()?;
        let follow = flags & raw::O_NOFOLLOW == 0 && !is_exclusive;
        let creates = creates && flags & raw::O_PATH == 0;
        loop {
            let spot = self.spot(dir, path, follow)?;
            match &spot.node {
                Some(_) if is_exclusive => return Err(Errno::EEXIST.into()),
                Some(node) => return self.open_node(node.clone(), spot.place(), flags),
                None if creates => match self.create(&spot, mode) {
                    Ok(node) => return Ok(Description::new(node, spot.place(), flags, None)),
                    // Another process made it meanwhile.
                    Err(Errno::EEXIST) if !is_exclusive => {}
                    Err(errno) => return Err(errno.into()),
                },
                None => return Err(Errno::ENOENT.into()),
            }
        }
    }

    /// A file of a directory's kind that has no name (`O_TMPFILE`).
    fn open_nameless(&self, dir: i32, path: &[u8], flags: u32, mode: u32) -> Result<Description> {
        if !matches!(flags & raw::O_ACCMODE, raw::O_WRONLY | raw::O_RDWR) {
            return Err(Errno::EINVAL);
        }
        self.table.check_room()?;
        let above = self.node(dir, path, 0)?;
        if !above.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        if above.entries().is_none() {
            return Err(Errno::EOPNOTSUPP);
        }
        self.who.check(&above, WRITE)?;
        let (seals, mode) = (raw::F_SEAL_SEAL, self.masked(mode));
        let node = self.tree.make_nameless(above.reserved(), seals, mode, self.who.now)?;
        self.who.own(&node);
        let mut name = Text::new();
        name.print(format_args!("#{}", node.inode()))?;
        Ok(Description::new(node, Some((above, Arc::from(name.bytes()))), flags, None))
    }

    /// `memfd_create`: a descriptor for a new file in memory that has no name.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for unknown flags, flags that exclude each other, and names that are too
    /// long; [`Errno::ENODEV`] where there are no reserved folios of a size; [`Errno::EMFILE`],
    /// [`Errno::ENOMEM`].
    pub fn memfd_create(&self, name: &[u8], flags: u32) -> Result<u32> {
        let sealed = raw::MFD_NOEXEC_SEAL;
        let reserved = (flags & raw::MFD_HUGETLB != 0).then(|| Reserved::of_flags(flags));
        let sizes = if reserved.is_some() { raw::MFD_HUGETLB | Reserved::FLAGS } else { 0 };
        let known = raw::MFD_CLOEXEC | raw::MFD_ALLOW_SEALING | sealed | raw::MFD_EXEC;
        only(flags, known | sizes)?;
        if flags & sealed != 0 && flags & raw::MFD_EXEC != 0 || name.len() > MEMFD_NAME_MAX {
            return Err(Errno::EINVAL);
        }
        self.table.check_room()?;
        let (mode, seals) = match (flags & sealed != 0, flags & raw::MFD_ALLOW_SEALING != 0) {
            (true, _) => (0o666, raw::F_SEAL_EXEC),
            (false, true) => (0o777, 0),
            (false, false) => (0o777, raw::F_SEAL_SEAL),
        };
        let mut shown = copied(b"memfd:")?;
        shown.put(name)?;
        let node = self.tree.make_nameless(reserved, seals, mode, self.who.now)?;
        self.who.own(&node);
        let place = Some((self.tree.root().clone(), Arc::from(&shown[..])));
        let status = raw::O_RDWR | raw::O_LARGEFILE;
        let open = Arc::new(Description::new(node, place, status, None));
        self.table.add(open, flags & raw::MFD_CLOEXEC != 0, 0)
    }

    /// Makes a name for `node` (`bind`).
    ///
    /// # Errors
    /// [`Errno::EADDRINUSE`] if it is there; else as [`mkdirat`](Self::mkdirat).
    pub fn name_socket(&self, path: &[u8], object: Arc<dyn Object>) -> Result<()> {
        let spot = self.spot(raw::AT_FDCWD, path, false)?;
        let node = self.tree.make(Body::Object(object), self.masked(0o777), self.who.now);
        self.put(&spot, &node).map_err(|errno| match errno {
            Errno::EEXIST => Errno::EADDRINUSE,
            other => other,
        })
    }

    fn create(&self, spot: &Spot, mode: u32) -> Result<Arc<Node>> {
        if spot.slash {
            return Err(Errno::EISDIR);
        }
        spot.dir.check_changeable().map_err(|errno| match errno {
            Errno::EPERM => Errno::EACCES,
            other => other,
        })?;
        let node = self.tree.make_file(spot.dir.reserved(), self.masked(mode), self.who.now)?;
        self.put(spot, &node)?;
        Ok(node)
    }

    /// Puts a new node where `spot` found nothing; the caller owns it.
    fn put(&self, spot: &Spot, node: &Arc<Node>) -> Result<()> {
        self.check_new(spot)?;
        self.who.own(node);
        self.tree.link_new(spot, node, self.who.now)
    }

    /// Whether the caller may make a name; a name that is there is another error.
    fn check_new(&self, spot: &Spot) -> Result<()> {
        if spot.node.is_some() { Ok(()) } else { self.who.check(&spot.dir, WRITE) }
    }

    /// Whether the caller may remove a name; in a sticky directory, only owners may.
    fn check_gone(&self, spot: &Spot) -> Result<()> {
        let Some(node) = &spot.node else { return Ok(()) };
        self.who.check(&spot.dir, WRITE)?;
        let dir = spot.dir.meta();
        let is_sticky = dir.mode & raw::S_ISVTX != 0 && dir.uid != self.who.may.users.files;
        if is_sticky { self.who.may.check_owner(&node.meta()) } else { Ok(()) }
    }

    fn open_node(&self, node: Arc<Node>, place: Place, flags: u32) -> Outcome<Description> {
        let writes = flags & raw::O_ACCMODE != raw::O_RDONLY;
        let reads = flags & raw::O_ACCMODE != raw::O_WRONLY;
        let is_path = flags & raw::O_PATH != 0;
        if flags & raw::O_DIRECTORY != 0 && !node.is_directory() {
            return Err(Errno::ENOTDIR.into());
        }
        if is_path {
            return Ok(Description::new(node, place, flags, None));
        }
        let wants = if reads { READ } else { 0 };
        let writes_or_cuts = writes || flags & raw::O_TRUNC != 0;
        if !matches!(node.body(), Body::Link(_) | Body::Jump(_)) {
            self.who.check(&node, wants | if writes_or_cuts { WRITE } else { 0 })?;
        }
        let changes = writes || flags & (raw::O_CREAT | raw::O_TRUNC) != 0;
        let end = match node.body() {
            Body::Link(_) | Body::Jump(_) => return Err(Errno::ELOOP.into()),
            Body::Directory(_) | Body::Tree(_) if changes => return Err(Errno::EISDIR.into()),
            Body::Device(Device::Absent(_)) => return Err(Errno::ENXIO.into()),
            Body::Object(object) if object.kind() == Kind::Socket => {
                return Err(Errno::ENXIO.into());
            }
            Body::Block(block) if writes && block.is_read_only() => {
                return Err(Errno::EACCES.into());
            }
            Body::Block(block) if flags & raw::O_EXCL != 0 && block.is_claimed() => {
                return Err(Errno::EBUSY.into());
            }
            Body::Stored(_) if writes || flags & raw::O_TRUNC != 0 => {
                return Err(Errno::EROFS.into());
            }
            Body::Pipe(pipe) => {
                Some(pipe.open(self.who, flags & raw::O_NONBLOCK != 0, reads, writes)?)
            }
            Body::File(file) if (writes || flags & raw::O_TRUNC != 0) && file.is_running() => {
                return Err(Errno::ETXTBSY.into());
            }
            Body::File(file) if flags & raw::O_TRUNC != 0 => {
                file.truncate(0)?;
                node.touch(self.who.now);
                None
            }
            _ => None,
        };
        Ok(Description::new(node, place, flags, end))
    }

    /// The thread gives up an `openat` that was blocked: a signal came, or it ends. Else the other
    /// side of a named pipe might meet a thread that is gone.
    pub fn forget_openat(&self, dir: i32, path: &[u8]) {
        if let Ok(node) = self.node(dir, path, 0)
            && let Body::Pipe(pipe) = node.body()
        {
            pipe.forget(self.who.tid);
        }
    }

    /// `mkdirat`.
    ///
    /// # Errors
    /// [`Errno::EEXIST`], those of paths, and of a generated directory:
    /// [`make_directory`](crate::files::Directory::make_directory).
    pub fn mkdirat(&self, dir: i32, path: &[u8], mode: u32) -> Result<()> {
        let spot = self.spot(dir, path, false)?;
        if let Some(tree) = spot.dir.generated() {
            let name = spot.name(Errno::EEXIST)?;
            return match &spot.node {
                Some(_) => Err(Errno::EEXIST),
                None => tree.make_directory(self.who, name),
            };
        }
        let node =
            self.tree.make_directory_in(&spot.dir, self.masked(mode) & !0o6000, self.who.now);
        self.put(&spot, &node)
    }

    /// `mknodat`, for regular files, named pipes and character devices.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for an unknown kind, [`Errno::EPERM`] for others that do not exist here,
    /// else as [`mkdirat`](Self::mkdirat).
    pub fn mknodat(&self, dir: i32, path: &[u8], mode: u32, device: u64) -> Result<()> {
        let spot = self.spot(dir, path, false)?;
        let body = match mode & raw::S_IFMT {
            0 | raw::S_IFREG => Body::File(self.tree.make_data(spot.dir.reserved())?),
            raw::S_IFIFO => Body::Pipe(Arc::new(Pipe::new())),
            raw::S_IFCHR => Body::Device(self.tree.devices().find(stat::split(device))),
            raw::S_IFBLK | raw::S_IFSOCK | raw::S_IFDIR => return Err(Errno::EPERM),
            _ => return Err(Errno::EINVAL),
        };
        let node = self.tree.make(body, self.masked(mode), self.who.now);
        self.put(&spot, &node)
    }

    /// `symlinkat`.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] for an empty target, [`Errno::ENAMETOOLONG`], [`Errno::ENOMEM`], else as
    /// [`mkdirat`](Self::mkdirat).
    pub fn symlinkat(&self, target: &[u8], dir: i32, path: &[u8]) -> Result<()> {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        if target.len() >= crate::files::path::PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let spot = self.spot(dir, path, false)?;
        let node = self.tree.make_link(target, self.who.now)?;
        self.put(&spot, &node)
    }

    /// `readlinkat`: at most `count` bytes of the target, and how many these were.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if it is no link or `count` is 0, the sink's, and those of paths.
    pub fn readlinkat(
        &self,
        dir: i32,
        path: &[u8],
        count: usize,
        sink: &mut dyn Sink,
    ) -> Result<usize> {
        if count == 0 {
            return Err(Errno::EINVAL);
        }
        let flags = raw::AT_EMPTY_PATH | raw::AT_SYMLINK_NOFOLLOW;
        let node = self.node(dir, path, flags)?;
        let target = match node.body() {
            Body::Link(target) => target,
            Body::Jump(jump) => &jump.text,
            _ if path.is_empty() => return Err(Errno::ENOENT),
            _ => return Err(Errno::EINVAL),
        };
        let count = count.min(target.len());
        sink.put(&target[..count])?;
        Ok(count)
    }

    /// `linkat`.
    ///
    /// # Errors
    /// [`Errno::EPERM`] for directories, [`Errno::EXDEV`], [`Errno::EEXIST`], [`Errno::EINVAL`]
    /// for unknown flags, and those of paths.
    pub fn linkat(
        &self,
        old_dir: i32,
        old_path: &[u8],
        dir: i32,
        path: &[u8],
        flags: u32,
    ) -> Result<()> {
        only(flags, raw::AT_EMPTY_PATH | raw::AT_SYMLINK_FOLLOW)?;
        let mut how = flags & raw::AT_EMPTY_PATH;
        if flags & raw::AT_SYMLINK_FOLLOW == 0 {
            how |= raw::AT_SYMLINK_NOFOLLOW;
        }
        let node = self.node(old_dir, old_path, how)?;
        let spot = self.spot(dir, path, false)?;
        self.check_new(&spot)?;
        self.tree.link_again(&node, &spot, self.who.now)
    }

    /// `unlinkat`; with `AT_REMOVEDIR` it removes an empty directory.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for unknown flags, else those of [`unlink`](crate::files::Tree::unlink),
    /// [`remove_directory`](crate::files::Tree::remove_directory) and of paths.
    pub fn unlinkat(&self, dir: i32, path: &[u8], flags: u32) -> Result<()> {
        only(flags, raw::AT_REMOVEDIR)?;
        let spot = self.spot(dir, path, false)?;
        self.check_gone(&spot)?;
        if flags & raw::AT_REMOVEDIR != 0 {
            return self.tree.remove_directory(self.who, &spot);
        }
        self.tree.unlink(&spot, self.who.now)
    }

    /// `renameat2`, with `RENAME_NOREPLACE` or `RENAME_EXCHANGE`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for unknown flags or both of them, else those of
    /// [`rename`](crate::files::Tree::rename) and of paths.
    pub fn renameat2(
        &self,
        old_dir: i32,
        old_path: &[u8],
        dir: i32,
        path: &[u8],
        flags: u32,
    ) -> Result<()> {
        let how = match flags {
            0 => Rename::Replace,
            raw::RENAME_NOREPLACE => Rename::Keep,
            raw::RENAME_EXCHANGE => Rename::Exchange,
            _ => return Err(Errno::EINVAL),
        };
        let from = self.spot(old_dir, old_path, false)?;
        let to = self.spot(dir, path, false)?;
        self.check_gone(&from)?;
        self.check_new(&to)?;
        self.check_gone(&to)?;
        self.tree.rename(&from, &to, how, self.who.now)
    }

    /// `chdir`.
    ///
    /// # Errors
    /// [`Errno::ENOTDIR`], and those of paths.
    pub fn chdir(&self, path: &[u8]) -> Result<()> {
        self.go(self.node(raw::AT_FDCWD, path, 0)?)
    }

    /// `fchdir`.
    ///
    /// # Errors
    /// [`Errno::EBADF`], [`Errno::ENOTDIR`].
    pub fn fchdir(&self, number: u32) -> Result<()> {
        self.go(self.table.get(number)?.node().clone())
    }

    fn go(&self, node: Arc<Node>) -> Result<()> {
        if node.kind() != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        self.who.check(&node, SEARCH)?;
        let old = core::mem::replace(&mut *self.here.dir.lock(), node);
        drop(old);
        Ok(())
    }
}
