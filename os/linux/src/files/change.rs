//! Names that go away, move, or are added to a node that has one already.
//!
//! Each of these checks and acts under the tree's lock for changes, so that the checks still hold;
//! entries that `Spot` found before are looked up again.

use alloc::sync::Arc;

use super::call::{Caller, Time};
use super::node::Node;
use super::path::{Last, Spot};
use super::tree::Tree;
use crate::{Errno, Result};

/// `rename`'s rule for a file that has the new name already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// It goes away.
    Replace,
    /// It stays: that is an error.
    Keep,
    /// It gets the old name.
    Exchange,
}

impl Tree {
    /// Removes a name that is no directory's.
    ///
    /// # Errors
    /// [`Errno::ENOENT`], [`Errno::EISDIR`], [`Errno::ENOTDIR`] if the path ended with a slash,
    /// [`Errno::EPERM`] in a generated directory.
    pub fn unlink(&self, spot: &Spot, now: Time) -> Result<()> {
        let name = spot.name(Errno::EISDIR)?;
        spot.existing()?;
        let entries = spot.dir.own_entries()?;
        let _changes = self.changes.lock();
        let node = entries.lock().get(name).ok_or(Errno::ENOENT)?;
        if node.is_directory() {
            return Err(Errno::EISDIR);
        }
        if spot.slash {
            return Err(Errno::ENOTDIR);
        }
        entries.lock().remove(name);
        node.note(now, |meta| meta.links -= 1);
        spot.dir.touch(now);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Errno::ENOENT`], [`Errno::ENOTDIR`], [`Errno::ENOTEMPTY`], [`Errno::EBUSY`] for the root
    /// and where a tree begins, [`Errno::EINVAL`] for `.`; in a generated one [its
    /// own](super::Directory::remove_directory).
    pub fn remove_directory(&self, who: &Caller<'_>, spot: &Spot) -> Result<()> {
        let name = match &spot.last {
            Last::Name(name) => name,
            Last::Dot => return Err(Errno::EINVAL),
            Last::DotDot => return Err(Errno::ENOTEMPTY),
            Last::Root => return Err(Errno::EBUSY),
        };
        let node = spot.existing()?;
        if let Some(tree) = spot.dir.generated() {
            return match (node.is_directory(), node.is_mounted()) {
                (false, _) => Err(Errno::ENOTDIR),
                (true, true) => Err(Errno::EBUSY),
                (true, false) => tree.remove_directory(who, name),
            };
        }
        let entries = spot.dir.own_entries()?;
        let _changes = self.changes.lock();
        let node = entries.lock().get(name).ok_or(Errno::ENOENT)?;
        retire(&node)?;
        entries.lock().remove(name);
        drop_directory(&node, &spot.dir, who.now);
        spot.dir.touch(who.now);
        Ok(())
    }

    /// Gives `node`, which has a name already, another one.
    ///
    /// # Errors
    /// [`Errno::EPERM`] for directories and in generated ones, [`Errno::EXDEV`] from another file
    /// system, [`Errno::ENOENT`] if its last name has gone, else as [`link_new`](Self::link_new).
    pub fn link_again(&self, node: &Arc<Node>, spot: &Spot, now: Time) -> Result<()> {
        if node.is_directory() {
            return Err(Errno::EPERM);
        }
        if node.volume() != spot.dir.volume() {
            return Err(Errno::EXDEV);
        }
        if node.meta().links == 0 {
            return Err(Errno::ENOENT);
        }
        self.link_new(spot, node, now)?;
        node.note(now, |meta| meta.links += 1);
        Ok(())
    }

    /// Moves the node at `from` to `to`.
    ///
    /// # Errors
    /// [`Errno::ENOENT`]; [`Errno::EEXIST`], see [`Rename`]; [`Errno::EBUSY`] for `.`, `..`, the
    /// root and where a tree begins; [`Errno::EINVAL`] if a directory would go below itself;
    /// [`Errno::ENOTDIR`], [`Errno::EISDIR`], [`Errno::ENOTEMPTY`] if they do not go together;
    /// [`Errno::EXDEV`], [`Errno::EPERM`] in generated directories.
    pub fn rename(&self, from: &Spot, to: &Spot, how: Rename, now: Time) -> Result<()> {
        let (old_name, new_name) = (from.name(Errno::EBUSY)?, to.name(Errno::EBUSY)?);
        if from.dir.volume() != to.dir.volume() {
            return Err(Errno::EXDEV);
        }
        let (source, target) = (from.dir.own_entries()?, to.dir.own_entries()?);
        let _changes = self.changes.lock();
        let node = source.lock().get(old_name).ok_or(Errno::ENOENT)?;
        let there = target.lock().get(new_name);
        if (from.slash || to.slash) && !node.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        check_rename(&node, there.as_ref(), from, to, how)?;
        let Some(there) = there else {
            // Added first: a lookup in between finds both names, never none.
            target.lock().add(new_name.clone(), node.clone())?;
            source.lock().remove(old_name);
            moved(&node, &from.dir, &to.dir, new_name, now);
            return Ok(());
        };
        if Arc::ptr_eq(&node, &there) {
            return Ok(());
        }
        if how == Rename::Exchange {
            target.lock().replace(new_name, node.clone());
            source.lock().replace(old_name, there.clone());
            moved(&there, &to.dir, &from.dir, old_name, now);
        } else {
            if there.is_directory() {
                retire(&there)?;
            }
            target.lock().replace(new_name, node.clone());
            source.lock().remove(old_name);
            if there.is_directory() {
                drop_directory(&there, &to.dir, now);
            } else {
                there.note(now, |meta| meta.links -= 1);
            }
        }
        moved(&node, &from.dir, &to.dir, new_name, now);
        Ok(())
    }
}

fn check_rename(
    node: &Arc<Node>,
    there: Option<&Arc<Node>>,
    from: &Spot,
    to: &Spot,
    how: Rename,
) -> Result<()> {
    match (there, how) {
        (Some(_), Rename::Keep) => return Err(Errno::EEXIST),
        (None, Rename::Exchange) => return Err(Errno::ENOENT),
        _ => {}
    }
    if node.is_mounted() || there.is_some_and(|there| there.is_mounted()) {
        return Err(Errno::EBUSY);
    }
    if is_within(&to.dir, node) {
        return Err(Errno::EINVAL);
    }
    let Some(there) = there else { return Ok(()) };
    if is_within(&from.dir, there) {
        return Err(if how == Rename::Exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
    }
    match (how, node.is_directory(), there.is_directory()) {
        (Rename::Replace, true, false) => Err(Errno::ENOTDIR),
        (Rename::Replace, false, true) => Err(Errno::EISDIR),
        _ => Ok(()),
    }
}

/// Whether `node` is `above` or below it.
fn is_within(node: &Arc<Node>, above: &Arc<Node>) -> bool {
    let mut at = node.clone();
    while !Arc::ptr_eq(&at, above) {
        match at.parent() {
            Some(parent) if !Arc::ptr_eq(&parent, &at) => at = parent,
            _ => return false,
        }
    }
    true
}

/// Makes sure that nothing is made in a directory that goes away.
fn retire(node: &Arc<Node>) -> Result<()> {
    if node.is_mounted() {
        return Err(Errno::EBUSY);
    }
    node.entries().ok_or(Errno::ENOTDIR)?.lock().close()
}

/// Notes that a directory is in `dir` no more, nor in any other.
fn drop_directory(node: &Arc<Node>, dir: &Arc<Node>, now: Time) {
    node.note(now, |meta| meta.links = 0);
    dir.note(now, |meta| meta.links -= 1);
    // `..` of a removed directory leads nowhere, and it has no path.
    node.set_parent(None);
}

/// Notes that `node` went from one directory to another, under a new name.
fn moved(node: &Arc<Node>, from: &Arc<Node>, to: &Arc<Node>, name: &Arc<[u8]>, now: Time) {
    from.touch(now);
    to.touch(now);
    node.note(now, |_| {});
    if node.is_directory() {
        from.note(now, |meta| meta.links -= 1);
        to.note(now, |meta| meta.links += 1);
        node.set_parent(Some((to, name)));
    }
}
