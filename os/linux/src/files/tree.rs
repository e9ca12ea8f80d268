//! The tree of names: its root, its mounts, and the making of entries.
//!
//! Changes of names take `changes` for the whole of the change, so that only lookups see half of
//! one: they take just the lock of the directory they look into.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general as raw;
use spin::mutex::SpinMutex;

use super::block::Block;
use super::call::{Caller, Time, copied};
use super::data::{Data, MakePages, Reserved};
use super::device::{Devices, NAMES};
use super::dir::Entries;
use super::generated::Directory;
use super::node::{Body, Node};
use super::path::Spot;
use super::pipe::Pipe;
use crate::{Errno, Result};

/// The file system number of the tree in memory.
pub const MEMORY: u32 = 1;

/// The file system number of pipes without a name.
pub const PIPES: u32 = 2;

/// A tree that begins somewhere in this one.
#[derive(Clone, Debug)]
pub struct Mount {
    /// The number of its file system.
    pub volume: u32,
    /// Where it begins.
    pub path: Vec<u8>,
    /// Its type, as `mount -t` has it.
    pub kind: &'static str,
    /// Its magic number, as in `statfs`.
    pub magic: u32,
}

/// A generated tree that begins at a directory of another one, which it hides. Nodes of generated
/// directories come and go: the hidden directory is named by its numbers.
struct Cover {
    volume: u32,
    inode: u64,
    root: Arc<Node>,
}

/// All names.
pub struct Tree {
    root: Arc<Node>,
    devices: Devices,
    pages: MakePages,
    inodes: AtomicU64,
    /// Held while names change; left of the locks of directories.
    pub(super) changes: SpinMutex<()>,
    mounts: SpinMutex<Vec<Mount>>,
    covers: SpinMutex<Vec<Cover>>,
}

impl Tree {
    /// An empty root, of mode 0755. Files in memory keep their bytes where `pages` says.
    pub fn new(devices: Devices, pages: MakePages, now: Time) -> Self {
        let body = Body::Directory(SpinMutex::new(Entries::default()));
        let root = Node::new(1, MEMORY, body, 0o755, now);
        root.set_root();
        Self {
            root,
            devices,
            pages,
            inodes: AtomicU64::new(2),
            changes: SpinMutex::new(()),
            mounts: SpinMutex::new(Vec::new()),
            covers: SpinMutex::new(Vec::new()),
        }
    }

    /// The root directory.
    pub fn root(&self) -> &Arc<Node> {
        &self.root
    }

    /// The devices.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// A node with a number of its own, in no directory yet.
    pub fn make(&self, body: Body, mode: u32, now: Time) -> Arc<Node> {
        // Relaxed: numbers only have to differ.
        Node::new(self.inodes.fetch_add(1, Ordering::Relaxed), MEMORY, body, mode, now)
    }

    /// A pipe without a name.
    pub fn make_pipe(&self, now: Time) -> (Arc<Pipe>, Arc<Node>) {
        let pipe = Arc::new(Pipe::new());
        let inode = self.inodes.fetch_add(1, Ordering::Relaxed);
        (pipe.clone(), Node::new(inode, PIPES, Body::Pipe(pipe), 0o600, now))
    }

    /// A new empty directory.
    pub fn make_directory(&self, mode: u32, now: Time) -> Arc<Node> {
        self.make(Body::Directory(SpinMutex::new(Entries::default())), mode, now)
    }

    /// The same for the directory `above`: files in it have the same kind of pages.
    pub(super) fn make_directory_in(&self, above: &Node, mode: u32, now: Time) -> Arc<Node> {
        let entries = Entries::with_reserved(above.reserved());
        self.make(Body::Directory(SpinMutex::new(entries)), mode, now)
    }

    /// No bytes, in a place where the tree's files have theirs, or in reserved folios.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] where there are none of that size.
    pub fn make_data(&self, reserved: Option<Reserved>) -> Result<Data> {
        (self.pages)(reserved).map(Data::new)
    }

    /// A new regular file without bytes.
    ///
    /// # Errors
    /// As [`make_data`](Self::make_data).
    pub fn make_file(&self, reserved: Option<Reserved>, mode: u32, now: Time) -> Result<Arc<Node>> {
        Ok(self.make(Body::File(self.make_data(reserved)?), mode, now))
    }

    /// A new regular file without bytes or a name, with these seals.
    ///
    /// # Errors
    /// As [`make_data`](Self::make_data).
    pub fn make_nameless(
        &self,
        reserved: Option<Reserved>,
        seals: u32,
        mode: u32,
        now: Time,
    ) -> Result<Arc<Node>> {
        let data = Data::sealed((self.pages)(reserved)?, seals);
        let node = self.make(Body::File(data), mode, now);
        node.note(now, |meta| meta.links = 0);
        Ok(node)
    }

    /// Lets a file system of reserved folios begin at a directory in memory, or end. Its entries
    /// are gone then.
    ///
    /// # Errors
    /// As [`make_data`](Self::make_data); [`Errno::EINVAL`] for another directory.
    pub(super) fn set_reserved(&self, node: &Node, reserved: Option<Reserved>) -> Result<()> {
        self.make_data(reserved)?;
        let entries = node.entries().ok_or(Errno::EINVAL)?;
        let changes = self.changes.lock();
        let old = entries.lock().set_reserved(reserved);
        drop(changes);
        drop(old);
        Ok(())
    }

    /// A new symbolic link.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn make_link(&self, target: &[u8], now: Time) -> Result<Arc<Node>> {
        Ok(self.make(Body::Link(copied(target)?), 0o777, now))
    }

    /// Puts `node`, which is in no directory yet, where `spot` found nothing.
    ///
    /// # Errors
    /// [`Errno::EEXIST`]; [`Errno::ENOENT`] if the directory is gone, or if the path ended with a
    /// slash and the node is no directory; [`Errno::EPERM`] in a generated directory.
    pub fn link_new(&self, spot: &Spot, node: &Arc<Node>, now: Time) -> Result<()> {
        let name = spot.name(Errno::EEXIST)?;
        if spot.node.is_some() {
            return Err(Errno::EEXIST);
        }
        if spot.slash && !node.is_directory() {
            return Err(Errno::ENOENT);
        }
        let entries = spot.dir.own_entries()?;
        let _changes = self.changes.lock();
        if node.is_directory() {
            node.set_parent(Some((&spot.dir, name)));
        }
        entries.lock().add(name.clone(), node.clone())?;
        spot.dir.note(now, |meta| {
            meta.modified = now;
            meta.links += u32::from(node.is_directory());
        });
        Ok(())
    }

    /// Lets a generated tree begin at `path`: an existing directory, in memory or in another
    /// generated tree, or a new one in memory.
    ///
    /// # Errors
    /// [`Errno::EBUSY`] if one begins there already, [`Errno::ENOTDIR`], [`Errno::ENOENT`] if the
    /// directory above does not exist, [`Errno::EPERM`] for a new one in a generated tree,
    /// [`Errno::ENOMEM`].
    pub fn mount(
        &self,
        who: &Caller<'_>,
        path: &[u8],
        kind: &'static str,
        magic: u32,
        tree: Arc<dyn Directory>,
    ) -> Result<()> {
        let spot = self.walk(who, &self.root, path, true)?;
        let name = spot.name(Errno::EBUSY)?;
        let is_new = spot.node.is_none();
        if spot.node.as_ref().is_some_and(|node| !node.is_directory()) {
            return Err(Errno::ENOTDIR);
        }
        if spot.node.as_ref().is_some_and(|node| node.is_mounted()) {
            return Err(Errno::EBUSY);
        }
        let mut mounts = self.mounts.lock();
        mounts.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let volume = PIPES + 1 + mounts.len() as u32;
        let path = copied(path)?;
        let node = Node::new(1, volume, Body::Tree(tree), 0o555, who.now);
        node.set_mounted();
        if is_new {
            self.link_new(&spot, &node, who.now)?;
        } else if spot.dir.generated().is_some() {
            self.cover(&spot, node)?;
        } else {
            let _changes = self.changes.lock();
            node.set_parent(Some((&spot.dir, name)));
            let entries = spot.dir.own_entries()?;
            entries.lock().replace(name, node).ok_or(Errno::ENOENT)?;
        }
        mounts.push(Mount { volume, path, kind, magic });
        Ok(())
    }

    /// Lets `root` hide the generated directory at `spot`.
    fn cover(&self, spot: &Spot, root: Arc<Node>) -> Result<()> {
        let hidden = spot.existing()?;
        root.set_below(&spot.dir, spot.name(Errno::EBUSY)?);
        let mut covers = self.covers.lock();
        covers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        covers.push(Cover { volume: hidden.volume(), inode: hidden.inode(), root });
        Ok(())
    }

    /// The root of the tree that hides `node`, if one does; else `node` itself.
    pub(super) fn uppermost(&self, node: Arc<Node>) -> Arc<Node> {
        if node.generated().is_none() {
            return node;
        }
        let covers = self.covers.lock();
        let own = (node.volume(), node.inode());
        let found = covers.iter().find(|cover| (cover.volume, cover.inode) == own);
        found.map_or(node, |cover| cover.root.clone())
    }

    /// Shows the entries of a disk's root directory in the root directory, but for names that are
    /// there already: those hide the disk's. The root directory itself stays in memory; all below
    /// it is the disk's.
    ///
    /// # Errors
    /// The disk's error; [`Errno::ENOMEM`]. Nothing is shown then.
    pub fn show(
        &self,
        who: &Caller<'_>,
        kind: &'static str,
        magic: u32,
        disk: &dyn Directory,
    ) -> Result<()> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut is_short = false;
        disk.list(who, 0, &mut |_, name, _, _| {
            let copy = copied(name).ok().filter(|_| names.try_reserve(1).is_ok());
            is_short |= copy.is_none();
            names.extend(copy);
            !is_short
        })?;
        let mut found = Vec::new();
        found.try_reserve_exact(names.len()).map_err(|_| Errno::ENOMEM)?;
        for name in &names {
            found.push(disk.lookup(who, name)?);
        }
        let mut mounts = self.mounts.lock();
        if is_short || mounts.try_reserve(1).is_err() {
            return Err(Errno::ENOMEM);
        }
        let volume = PIPES + 1 + mounts.len() as u32;
        mounts.push(Mount { volume, path: copied(b"/")?, kind, magic });
        drop(mounts);
        for (name, entry) in names.iter().zip(found) {
            self.show_one(name, Node::of_found(who.now, entry, volume), who.now)?;
        }
        Ok(())
    }

    /// Puts a disk's node into the root directory, if nothing has its name there.
    fn show_one(&self, name: &[u8], node: Arc<Node>, now: Time) -> Result<()> {
        let (name, entries) = (Arc::from(name), self.root.own_entries()?);
        let _changes = self.changes.lock();
        if node.is_directory() {
            node.set_mounted();
            node.set_parent(Some((&self.root, &name)));
        }
        let links = u32::from(node.is_directory());
        match entries.lock().add(name, node) {
            Ok(()) => self.root.note(now, |meta| meta.links += links),
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(errno),
        }
        Ok(())
    }

    /// Visits the mounts, the root first.
    pub fn mounts(&self, tell: &mut dyn FnMut(&[u8], &str)) {
        tell(b"/", "tmpfs");
        for mount in self.mounts.lock().iter() {
            tell(&mount.path, mount.kind);
        }
    }

    /// The magic number of a file system.
    pub fn magic(&self, volume: u32) -> u32 {
        match volume {
            MEMORY => raw::TMPFS_MAGIC,
            PIPES => raw::PIPEFS_MAGIC,
            _ => {
                let mounts = self.mounts.lock();
                let found = mounts.iter().find(|mount| mount.volume == volume);
                found.map_or(raw::TMPFS_MAGIC, |mount| mount.magic)
            }
        }
    }

    /// The directory at `path`, made now with `mode` if there is none.
    ///
    /// # Errors
    /// Those of paths and of [`link_new`](Self::link_new).
    pub fn make_missing(&self, who: &Caller<'_>, path: &[u8], mode: u32) -> Result<Arc<Node>> {
        let spot = self.walk(who, &self.root, path, true)?;
        match &spot.node {
            Some(node) => Ok(node.clone()),
            None => {
                let node = self.make_directory(mode, who.now);
                self.link_new(&spot, &node, who.now).map(|()| node)
            }
        }
    }

    /// Puts a block device into /dev.
    ///
    /// # Errors
    /// [`Errno::EEXIST`]; those of paths and of [`link_new`](Self::link_new).
    pub fn add_block(&self, who: &Caller<'_>, name: &str, block: Arc<dyn Block>) -> Result<()> {
        let dev = self.make_missing(who, b"/dev", 0o755)?;
        let spot = self.walk(who, &dev, name.as_bytes(), false)?;
        self.link_new(&spot, &self.make(Body::Block(block), 0o660, who.now), who.now)
    }

    /// Makes /dev with the devices, and links to the caller's descriptors. Existing entries stay.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`], [`Errno::ENOTDIR`] if /dev is something else.
    pub fn fill_dev(&self, who: &Caller<'_>) -> Result<()> {
        let now = who.now;
        let dev = self.make_missing(who, b"/dev", 0o755)?;
        self.make_missing(who, b"/dev/shm", 0o1777)?;
        let add = |name: &str, node: Arc<Node>| {
            let spot = self.walk(who, &dev, name.as_bytes(), false)?;
            match self.link_new(&spot, &node, now) {
                Ok(()) | Err(Errno::EEXIST) => Ok(()),
                Err(errno) => Err(errno),
            }
        };
        for (name, number) in NAMES {
            add(name, self.make(Body::Device(self.devices.find(number)), 0o666, now))?;
        }
        let links = [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
        ];
        for (name, target) in links {
            add(name, self.make_link(target.as_bytes(), now)?)?;
        }
        Ok(())
    }
}
