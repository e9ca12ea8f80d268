//! The entries of a directory in memory.
//!
//! ```text
//!   names   "bin" ─► 3     "etc" ─► 7               to find
//!   order    3 ─► ("bin", node)    7 ─► ("etc", …)  to list: cookies are never used again, so a
//!                                                   listing goes on well while entries go away
//! ```

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use super::data::Reserved;
use super::generated::Tell;
use super::node::Node;
use crate::{Errno, Result};

/// The entries of a directory in memory; `.` and `..` are not among them.
#[derive(Default)]
pub struct Entries {
    names: BTreeMap<Arc<[u8]>, u64>,
    order: BTreeMap<u64, (Arc<[u8]>, Arc<Node>)>,
    next: u64,
    /// Whether the directory was removed: then nothing can be made in it any more.
    removed: bool,
    /// The pages of files that are made in it are in such reserved folios (hugetlbfs).
    reserved: Option<Reserved>,
}

impl Entries {
    /// No entries, in a directory whose files are in reserved folios.
    pub fn with_reserved(reserved: Option<Reserved>) -> Self {
        Self { reserved, ..Self::default() }
    }

    /// The reserved folios that the files made in it are in, if they are.
    pub fn reserved(&self) -> Option<Reserved> {
        self.reserved
    }

    /// Lets a file system of reserved folios begin here, or end: the entries are gone then, and
    /// returned, so that the caller drops them without a lock.
    pub fn set_reserved(&mut self, reserved: Option<Reserved>) -> Self {
        let next = self.next;
        core::mem::replace(self, Self { reserved, next, ..Self::default() })
    }

    /// The node called `name`.
    pub fn get(&self, name: &[u8]) -> Option<Arc<Node>> {
        let (_, node) = self.order.get(self.names.get(name)?)?;
        Some(node.clone())
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`Errno::EEXIST`] if there is one of that name, [`Errno::ENOENT`] if the directory is gone.
    pub fn add(&mut self, name: Arc<[u8]>, node: Arc<Node>) -> Result<()> {
        if self.removed {
            return Err(Errno::ENOENT);
        }
        if self.names.contains_key(&name) {
            return Err(Errno::EEXIST);
        }
        self.names.insert(name.clone(), self.next);
        self.order.insert(self.next, (name, node));
        self.next += 1;
        Ok(())
    }

    /// Puts another node in the place of the one called `name`, which it gives back.
    pub fn replace(&mut self, name: &[u8], node: Arc<Node>) -> Option<Arc<Node>> {
        let (_, old) = self.order.get_mut(self.names.get(name)?)?;
        Some(core::mem::replace(old, node))
    }

    /// Takes the entry called `name` out.
    pub fn remove(&mut self, name: &[u8]) -> Option<Arc<Node>> {
        let cookie = self.names.remove(name)?;
        self.order.remove(&cookie).map(|(_, node)| node)
    }

    /// Marks the directory as removed, if it is empty.
    ///
    /// # Errors
    /// [`Errno::ENOTEMPTY`].
    pub fn close(&mut self) -> Result<()> {
        if !self.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.removed = true;
        Ok(())
    }

    /// Whether the directory was removed.
    pub fn is_removed(&self) -> bool {
        self.removed
    }

    /// Visits the entries from cookie `from` on, until `tell` says no.
    pub fn list(&self, from: u64, tell: &mut Tell<'_>) {
        for (cookie, (name, node)) in self.order.range(from..) {
            if !tell(cookie + 1, name, node.inode(), node.kind()) {
                return;
            }
        }
    }
}
