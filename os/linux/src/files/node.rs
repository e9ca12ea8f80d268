//! A node: a file, directory, link, device or pipe, without its names.
//!
//! Nodes in memory live as long as a name or an open description holds them. Those of generated
//! trees are made anew by each lookup, and only their inode number says that they are the same.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use linux_raw_sys::general as raw;
use spin::mutex::SpinMutex;

use super::block::Block;
use super::call::{Caller, Time};
use super::data::{Data, Reserved};
use super::device::Device;
use super::dir::Entries;
use super::generated::{Directory, Entry, Generated, Jump, What};
use super::object::Object;
use super::pipe::Pipe;
use super::stored::Stored;
use crate::{Errno, Result};

/// The kinds of nodes that programs know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A character device.
    Device,
    /// A block device.
    Block,
    /// A pipe, with a name or without.
    Pipe,
    /// A socket, or its name.
    Socket,
    /// An object of the kernel without a name.
    Object,
}

impl Kind {
    /// Its bits in `st_mode`.
    pub const fn mode(self) -> u32 {
        match self {
            Self::File => raw::S_IFREG,
            Self::Directory => raw::S_IFDIR,
            Self::Link => raw::S_IFLNK,
            Self::Device => raw::S_IFCHR,
            Self::Block => raw::S_IFBLK,
            Self::Pipe => raw::S_IFIFO,
            Self::Socket => raw::S_IFSOCK,
            Self::Object => 0,
        }
    }

    /// Its `d_type`.
    pub const fn entry_type(self) -> u8 {
        (self.mode() >> 12) as u8
    }
}

/// The content of a node.
pub enum Body {
    /// A regular file in memory.
    File(Data),
    /// A directory in memory.
    Directory(SpinMutex<Entries>),
    /// A symbolic link and its target.
    Link(Vec<u8>),
    /// A link that leads to a file, whatever its text says.
    Jump(Jump),
    /// A character device.
    Device(Device),
    /// A block device.
    Block(Arc<dyn Block>),
    /// A pipe.
    Pipe(Arc<Pipe>),
    /// An object of the kernel without a name.
    Object(Arc<dyn Object>),
    /// A directory that is generated, or a disk's.
    Tree(Arc<dyn Directory>),
    /// A generated file.
    Generated(Arc<dyn Generated>),
    /// A regular file on a disk.
    Stored(Arc<dyn Stored>),
}

/// The metadata of a node.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Permission bits, `0o7777` at most.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// How many names it has; of a directory, also how many `..` lead to it.
    pub links: u32,
    /// Last read, as far as reads are noted (`relatime`).
    pub accessed: Time,
    /// Last change of the contents.
    pub modified: Time,
    /// Last change of the contents or of the metadata.
    pub changed: Time,
}

/// The parent of a directory.
#[derive(Clone)]
enum Above {
    /// Nothing: it is in no tree, or in none any more.
    Nothing,
    /// It is the root.
    Root,
    /// A directory in memory, which holds this one.
    Weak(Weak<Node>),
    /// A generated directory, which may have no other reference.
    Strong(Arc<Node>),
}

struct Up {
    above: Above,
    name: Arc<[u8]>,
    /// Whether another tree begins here, so that the name must stay.
    mounted: bool,
    /// It has no name any more; `..` still leads from it to the directory above.
    removed: bool,
}

/// The writers of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fixed {
    /// Everyone.
    No,
    /// No program: it is generated.
    Generated,
    /// No program: its disk can only be read.
    Stored,
}

/// A file, directory, link, device or pipe.
pub struct Node {
    inode: u64,
    volume: u32,
    body: Body,
    fixed: Fixed,
    meta: SpinMutex<Meta>,
    up: SpinMutex<Up>,
}

impl Node {
    /// A node with the next inode number, in no directory yet. `mode` has permission bits only,
    /// `volume` is the number of its file system.
    pub(super) fn new(inode: u64, volume: u32, body: Body, mode: u32, now: Time) -> Arc<Self> {
        let links = if matches!(body, Body::Directory(_) | Body::Tree(_)) { 2 } else { 1 };
        let meta = Meta {
            mode: mode & 0o7777,
            uid: 0,
            gid: 0,
            links,
            accessed: now,
            modified: now,
            changed: now,
        };
        let fixed = match body {
            Body::Tree(_) | Body::Generated(_) | Body::Jump(_) => Fixed::Generated,
            _ => Fixed::No,
        };
        Self::of_parts(inode, volume, body, fixed, meta)
    }

    fn of_parts(inode: u64, volume: u32, body: Body, fixed: Fixed, meta: Meta) -> Arc<Self> {
        let up =
            Up { above: Above::Nothing, name: Arc::from(&b""[..]), mounted: false, removed: false };
        let (meta, up) = (SpinMutex::new(meta), SpinMutex::new(up));
        Arc::new(Self { inode, volume, body, fixed, meta, up })
    }

    /// A node of an entry, in no directory yet.
    pub(super) fn of_found(now: Time, entry: Entry, volume: u32) -> Arc<Self> {
        let body = match entry.what {
            What::Directory(tree) => Body::Tree(tree),
            What::File(file) => Body::Generated(file),
            What::Link(target) => Body::Link(target),
            What::Jump(jump) => Body::Jump(jump),
            What::Stored { body, meta } => {
                return Self::of_parts(entry.inode, volume, body, Fixed::Stored, meta);
            }
        };
        Self::new(entry.inode, volume, body, entry.mode, now)
    }

    /// The node of what a generated directory found.
    pub(super) fn of_entry(
        who: &Caller<'_>,
        entry: Entry,
        above: &Arc<Self>,
        name: &[u8],
    ) -> Arc<Self> {
        let node = Self::of_found(who.now, entry, above.volume);
        if let Body::Tree(tree) = &above.body
            && let Some((uid, gid)) = tree.owner()
        {
            node.note(who.now, |meta| (meta.uid, meta.gid) = (uid, gid));
        }
        if node.is_directory() {
            node.set_below(above, &Arc::from(name));
        }
        node
    }

    /// Notes that this directory is called `name` in a generated one, which has no other reference.
    pub(super) fn set_below(&self, above: &Arc<Self>, name: &Arc<[u8]>) {
        let mut up = self.up.lock();
        up.above = Above::Strong(above.clone());
        up.name = name.clone();
    }

    /// Its inode number.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// The number of the file system it belongs to.
    pub fn volume(&self) -> u32 {
        self.volume
    }

    /// Its content.
    pub fn body(&self) -> &Body {
        &self.body
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        match &self.body {
            Body::File(_) | Body::Generated(_) | Body::Stored(_) => Kind::File,
            Body::Directory(_) | Body::Tree(_) => Kind::Directory,
            Body::Link(_) | Body::Jump(_) => Kind::Link,
            Body::Device(_) => Kind::Device,
            Body::Object(object) => object.kind(),
            Body::Block(_) => Kind::Block,
            Body::Pipe(_) => Kind::Pipe,
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.kind() == Kind::Directory
    }

    /// Whether it can be changed.
    ///
    /// # Errors
    /// [`Errno::EROFS`] on a disk that can only be read; [`Errno::EPERM`] if it is generated.
    pub fn check_changeable(&self) -> Result<()> {
        match self.fixed {
            Fixed::No => Ok(()),
            Fixed::Generated => Err(Errno::EPERM),
            Fixed::Stored => Err(Errno::EROFS),
        }
    }

    /// Copies bytes of a regular file in memory or on a disk from `offset` on into `into`, and says
    /// how many there were: for programs that are run, and for mappings.
    ///
    /// # Errors
    /// [`Errno::EACCES`] if it is no such file; those of [`Stored::read_at`].
    pub fn read_at(&self, who: &Caller<'_>, offset: u64, into: &mut [u8]) -> Result<usize> {
        match &self.body {
            Body::File(file) => file.read_at(offset, into),
            Body::Stored(file) => file.read_at(who, offset, into),
            _ => Err(Errno::EACCES),
        }
    }

    /// Brings bytes of such a file into memory, so that [`read_at`](Self::read_at) will hardly have
    /// to wait.
    ///
    /// # Errors
    /// Those of [`Stored::want`].
    pub fn want(&self, who: &Caller<'_>, offset: u64, bytes: u64) -> Result<()> {
        match &self.body {
            Body::Stored(file) => file.want(who, offset, bytes),
            _ => Ok(()),
        }
    }

    /// Does `map` with the number under which the memory manager has the pages of such a file, if
    /// it has; see [`Stored::object`]. Its length and its seals stay the same meanwhile.
    /// `is_shared`: writes go to the file; `writes`: they may come at once. `map` gets whether it
    /// may ever happen.
    ///
    /// # Errors
    /// [`Errno::EACCES`] if it is no such file, or is to be written and cannot be; those of
    /// [`Data::show`] and of `map`.
    pub fn show<T>(
        &self,
        is_shared: bool,
        writes: bool,
        map: impl FnOnce(Option<u32>, bool) -> Result<T>,
    ) -> Result<T> {
        match &self.body {
            Body::File(file) => file.show(is_shared, writes, |id, may| map(Some(id), may)),
            Body::Stored(_) if is_shared && writes => Err(Errno::EACCES),
            Body::Stored(file) => map(file.object(), !is_shared),
            _ => Err(Errno::EACCES),
        }
    }

    /// Whether the memory manager has the pages of such a file.
    pub fn has_object(&self) -> bool {
        match &self.body {
            Body::File(_) => true,
            Body::Stored(file) => file.object().is_some(),
            _ => false,
        }
    }

    /// The length in bytes of such a file.
    ///
    /// # Errors
    /// [`Errno::EACCES`] if it is no such file.
    pub fn length(&self) -> Result<u64> {
        match &self.body {
            Body::File(file) => Ok(file.len()),
            Body::Stored(file) => Ok(file.length()),
            _ => Err(Errno::EACCES),
        }
    }

    /// The entries, to be changed.
    ///
    /// # Errors
    /// [`Errno::EROFS`] and [`Errno::EPERM`] if it is no directory in memory.
    pub(super) fn own_entries(&self) -> Result<&SpinMutex<Entries>> {
        self.check_changeable()?;
        self.entries().ok_or(Errno::EPERM)
    }

    /// The entries, if it is a directory in memory.
    pub(super) fn entries(&self) -> Option<&SpinMutex<Entries>> {
        match &self.body {
            Body::Directory(entries) => Some(entries),
            _ => None,
        }
    }

    /// The reserved folios that the pages of files made in this directory are in.
    pub(super) fn reserved(&self) -> Option<Reserved> {
        self.entries().and_then(|entries| entries.lock().reserved())
    }

    /// The maker of its entries, if it is a generated directory.
    pub(super) fn generated(&self) -> Option<&dyn Directory> {
        match (&self.body, self.fixed) {
            (Body::Tree(tree), Fixed::Generated) => Some(&**tree),
            _ => None,
        }
    }

    /// Its metadata.
    pub fn meta(&self) -> Meta {
        *self.meta.lock()
    }

    /// Changes its metadata, and the time of that change.
    pub(super) fn note(&self, now: Time, change: impl FnOnce(&mut Meta)) {
        let mut meta = self.meta.lock();
        change(&mut meta);
        meta.changed = now;
    }

    /// Notes that its contents were read. As with Linux's `relatime`, a time that is later than the
    /// last change stays for a day.
    pub(super) fn note_access(&self, now: Time) {
        const DAY: i64 = 24 * 60 * 60;
        let mut meta = self.meta.lock();
        let at = meta.accessed;
        let is_old = at <= meta.modified || at <= meta.changed || now.seconds - at.seconds >= DAY;
        if is_old && matches!(self.fixed, Fixed::No) {
            meta.accessed = now;
        }
    }

    /// Notes that its contents changed.
    pub(super) fn touch(&self, now: Time) {
        self.note(now, |meta| meta.modified = now);
    }

    /// The directory above this one, or above its place before it was removed; the root is above
    /// itself.
    pub fn parent(self: &Arc<Self>) -> Option<Arc<Self>> {
        let above = self.up.lock().above.clone();
        match above {
            Above::Nothing => None,
            Above::Root => Some(self.clone()),
            Above::Weak(node) => node.upgrade(),
            Above::Strong(node) => Some(node),
        }
    }

    /// Whether it was removed.
    pub(super) fn is_removed(&self) -> bool {
        self.up.lock().removed
    }

    /// Its name in the directory above it, if it is a directory.
    pub(super) fn name(&self) -> Arc<[u8]> {
        self.up.lock().name.clone()
    }

    /// Whether it is the root of all.
    pub(super) fn is_root(&self) -> bool {
        matches!(self.up.lock().above, Above::Root)
    }

    /// Whether its name must stay, as a tree begins here.
    pub(super) fn is_mounted(&self) -> bool {
        let up = self.up.lock();
        up.mounted || matches!(up.above, Above::Root)
    }

    pub(super) fn set_root(&self) {
        self.up.lock().above = Above::Root;
    }

    pub(super) fn set_mounted(&self) {
        self.up.lock().mounted = true;
    }

    /// Notes that this directory is now called `name` in `above`, or is in no tree any more.
    pub(super) fn set_parent(&self, above: Option<(&Arc<Self>, &Arc<[u8]>)>) {
        let mut up = self.up.lock();
        match above {
            Some((node, name)) => {
                up.above = Above::Weak(Arc::downgrade(node));
                (up.name, up.removed) = (name.clone(), false);
            }
            None => up.removed = true,
        }
    }
}
