//! From a path to a node: step by step, through links, up and down.
//!
//! ```text
//!   "/a/link/b/"    at = root ─► a ─► (link: its target goes before the rest) ─► … ─► Spot
//!   Spot            dir: where the last name is looked up; last: the name; node: if it exists
//! ```

use alloc::borrow::Cow;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::call::{Caller, Sink};
use super::generated::Jump;
use super::node::{Body, Node};
use super::open::Place;
use super::tree::Tree;
use crate::{Errno, Result};

/// Bytes of the longest path, with the zero byte that ends it.
pub const PATH_MAX: usize = 4096;

/// Bytes of the longest name.
pub const NAME_MAX: usize = 255;

/// The right to look names up in a directory.
const SEARCH: u32 = 1;

/// Links that one path may go through.
const LINKS_MAX: u32 = 40;

/// The last part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Last {
    /// A name.
    Name(Arc<[u8]>),
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// There is none: the path is `/`.
    Root,
}

/// Where a path leads.
pub struct Spot {
    /// The directory in which the last part was looked up.
    pub dir: Arc<Node>,
    /// The last part.
    pub last: Last,
    /// The node there, if there is one.
    pub node: Option<Arc<Node>>,
    /// Whether the path ended with a slash, so that only a directory will do.
    pub slash: bool,
    /// The real place of the node, if a link led there that does not go by its text.
    jumped: Option<Place>,
}

impl Spot {
    /// The node.
    ///
    /// # Errors
    /// [`Errno::ENOENT`].
    pub fn existing(&self) -> Result<&Arc<Node>> {
        self.node.as_ref().ok_or(Errno::ENOENT)
    }

    /// The last part, to make or remove an entry of that name.
    ///
    /// # Errors
    /// `otherwise` if it is no name.
    pub fn name(&self, otherwise: Errno) -> Result<&Arc<[u8]>> {
        match &self.last {
            Last::Name(name) => Ok(name),
            _ => Err(otherwise),
        }
    }

    /// Where the node was found: the directory, and its name there.
    pub fn place(&self) -> Place {
        match (&self.jumped, &self.last) {
            (Some(place), _) => place.clone(),
            (None, Last::Name(name)) => Some((self.dir.clone(), name.clone())),
            (None, _) => {
                let node = self.node.as_ref()?;
                Some((node.parent()?, node.name()))
            }
        }
    }
}

struct Walk<'a> {
    at: Arc<Node>,
    /// The path; from `from` on it is still to go.
    path: Cow<'a, [u8]>,
    from: usize,
    links: u32,
    follow: bool,
}

impl Tree {
    /// Follows `path` from `start`, or from the root if it begins with a slash. A link at its end
    /// is followed if `follow`, or if a slash comes after it. The last part need not exist.
    ///
    /// # Errors
    /// [`Errno::ENOENT`], also for an empty path; [`Errno::ENOTDIR`], [`Errno::ELOOP`],
    /// [`Errno::EACCES`], [`Errno::ENAMETOOLONG`], [`Errno::ENOMEM`], and those of generated
    /// directories.
    pub fn walk(
        &self,
        who: &Caller<'_>,
        start: &Arc<Node>,
        path: &[u8],
        follow: bool,
    ) -> Result<Spot> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if path.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let at = if path[0] == b'/' { self.root() } else { start };
        let mut walk =
            Walk { at: at.clone(), path: Cow::Borrowed(path), from: 0, links: 0, follow };
        loop {
            if let Some(spot) = walk.step(who, self)? {
                return Ok(spot);
            }
        }
    }
}

impl Walk<'_> {
    /// Goes one part further; gives the spot if that was the last.
    fn step(&mut self, who: &Caller<'_>, tree: &Tree) -> Result<Option<Spot>> {
        let slashes = self.path[self.from..].iter().take_while(|&&byte| byte == b'/').count();
        self.from += slashes;
        let rest = &self.path[self.from..];
        if !self.at.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        let length = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let (name, after) = rest.split_at(length);
        let is_last = after.iter().all(|&byte| byte == b'/');
        let slash = !after.is_empty();
        let end = self.from + length;
        match name {
            b"" => return Ok(Some(self.standing(Last::Root))),
            b"." => {
                self.from = end;
                return Ok(is_last.then(|| self.standing(Last::Dot)));
            }
            b".." => {
                self.at = self.at.parent().unwrap_or_else(|| self.at.clone());
                self.from = end;
                return Ok(is_last.then(|| self.standing(Last::DotDot)));
            }
            _ => {}
        }
        who.check(&self.at, SEARCH)?;
        let node = match lookup(who, &self.at, name) {
            Err(Errno::ENOENT) if is_last => None,
            other => Some(tree.uppermost(other?)),
        };
        if let Some(link) = node.as_ref().filter(|_| !is_last || slash || self.follow) {
            match link.body() {
                Body::Link(target) => {
                    self.splice(target, end, tree.root())?;
                    return Ok(None);
                }
                Body::Jump(jump) => return self.jump(jump, end, is_last, slash),
                _ => {}
            }
        }
        if is_last {
            return Self::arrive(self.at.clone(), Arc::from(name), node, slash).map(Some);
        }
        self.from = end;
        self.at = node.ok_or(Errno::ENOENT)?;
        Ok(None)
    }

    fn standing(&self, last: Last) -> Spot {
        let at = &self.at;
        Spot { dir: at.clone(), last, node: Some(at.clone()), slash: false, jumped: None }
    }

    fn arrive(
        dir: Arc<Node>,
        name: Arc<[u8]>,
        node: Option<Arc<Node>>,
        slash: bool,
    ) -> Result<Spot> {
        if slash && node.as_ref().is_some_and(|node| !node.is_directory()) {
            return Err(Errno::ENOTDIR);
        }
        Ok(Spot { dir, last: Last::Name(name), node, slash, jumped: None })
    }

    fn count_link(&mut self) -> Result<()> {
        self.links += 1;
        if self.links > LINKS_MAX { Err(Errno::ELOOP) } else { Ok(()) }
    }

    /// The target of a link replaces the part of the path before the rest.
    fn splice(&mut self, target: &[u8], end: usize, root: &Arc<Node>) -> Result<()> {
        let mut path = Vec::new();
        path.put(target)?;
        path.put(&self.path[end..])?;
        if target.first() == Some(&b'/') {
            self.at = root.clone();
        }
        self.path = Cow::Owned(path);
        self.from = 0;
        self.count_link()
    }

    fn jump(
        &mut self,
        jump: &Jump,
        end: usize,
        is_last: bool,
        slash: bool,
    ) -> Result<Option<Spot>> {
        if !is_last {
            self.at = jump.node.clone();
            self.from = end;
            return self.count_link().map(|()| None);
        }
        let name = Arc::from(&b""[..]);
        let mut spot = Self::arrive(self.at.clone(), name, Some(jump.node.clone()), slash)?;
        spot.jumped = Some(jump.place.clone());
        Ok(Some(spot))
    }
}

/// The entry `name` of `dir`.
///
/// # Errors
/// [`Errno::ENOENT`], [`Errno::ENAMETOOLONG`], [`Errno::ENOTDIR`] if `dir` is no directory, and
/// those of generated ones.
pub(super) fn lookup(who: &Caller<'_>, dir: &Arc<Node>, name: &[u8]) -> Result<Arc<Node>> {
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    match dir.body() {
        Body::Directory(entries) => entries.lock().get(name).ok_or(Errno::ENOENT),
        Body::Tree(tree) => Ok(Node::of_entry(who, tree.lookup(who, name)?, dir, name)),
        _ => Err(Errno::ENOTDIR),
    }
}

/// The path of a directory from the root.
///
/// # Errors
/// [`Errno::ENOENT`] if it was removed, [`Errno::ENAMETOOLONG`], [`Errno::ENOMEM`].
pub fn path_of(dir: &Arc<Node>) -> Result<Vec<u8>> {
    let mut names = Vec::new();
    let mut at = dir.clone();
    let mut length = 0;
    while !at.is_root() {
        if at.is_removed() {
            return Err(Errno::ENOENT);
        }
        let name = at.name();
        length += name.len() + 1;
        if length >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        names.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        names.push(name);
        at = at.parent().ok_or(Errno::ENOENT)?;
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.put(b"/")?;
        path.put(name)?;
    }
    if path.is_empty() {
        path.put(b"/")?;
    }
    Ok(path)
}
