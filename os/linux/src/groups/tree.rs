//! The tree of groups.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::words::Control;
use crate::files::{NAME_MAX, Text};
use crate::{Errno, Result};

/// One group.
#[derive(Debug)]
pub struct Group<T> {
    name: Vec<u8>,
    above: u32,
    gives: bool,
    /// The kernel's data for it.
    pub of: T,
}

/// All groups.
#[derive(Debug)]
pub struct Groups<T> {
    all: BTreeMap<u32, Group<T>>,
    next: u32,
}

impl<T> Groups<T> {
    /// The number of the group in which all others are.
    pub const ROOT: u32 = 0;

    /// The root alone.
    pub fn new(root: T) -> Self {
        let root = Group { name: Vec::new(), above: Self::ROOT, gives: false, of: root };
        Self { all: BTreeMap::from([(Self::ROOT, root)]), next: Self::ROOT + 1 }
    }

    /// The group with this number.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] when it was removed.
    pub fn get(&self, id: u32) -> Result<&Group<T>> {
        self.all.get(&id).ok_or(Errno::ENODEV)
    }

    /// The same, to be changed.
    ///
    /// # Errors
    /// As for [`get`](Self::get).
    pub fn get_mut(&mut self, id: u32) -> Result<&mut Group<T>> {
        self.all.get_mut(&id).ok_or(Errno::ENODEV)
    }

    /// The groups directly in group `id`, by their numbers from `from` on.
    pub fn below(&self, id: u32, from: u32) -> impl Iterator<Item = (u32, &[u8])> {
        let from = from.max(Self::ROOT + 1);
        let own = self.all.range(from..).filter(move |(_, group)| group.above == id);
        own.map(|(number, group)| (*number, &*group.name))
    }

    /// The number of the group called `name` in group `id`.
    ///
    /// # Errors
    /// [`Errno::ENOENT`].
    pub fn find(&self, id: u32, name: &[u8]) -> Result<u32> {
        let found = self.below(id, 0).find(|(_, own)| *own == name);
        found.map(|(number, _)| number).ok_or(Errno::ENOENT)
    }

    /// The number of a group with data that are `such`.
    pub fn find_of(&self, such: impl Fn(&T) -> bool) -> Option<u32> {
        let found = self.all.iter().find(|(_, group)| such(&group.of));
        found.map(|(number, _)| *number)
    }

    /// Makes a group `name` in group `id`, with the data that `make` returns; its number.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] when group `id` was removed, [`Errno::EEXIST`], [`Errno::EINVAL`] for a
    /// name with a newline, [`Errno::ENAMETOOLONG`], [`Errno::ENOMEM`], and those of `make`, which
    /// is called last.
    pub fn make(&mut self, id: u32, name: &[u8], make: impl FnOnce() -> Result<T>) -> Result<u32> {
        self.get(id).map_err(|_| Errno::ENOENT)?;
        if name.contains(&b'\n') {
            return Err(Errno::EINVAL);
        }
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if self.find(id, name).is_ok() {
            return Err(Errno::EEXIST);
        }
        let mut own = Vec::new();
        own.try_reserve_exact(name.len()).map_err(|_| Errno::ENOMEM)?;
        own.extend_from_slice(name);
        let number = self.next;
        let next = number.checked_add(1).ok_or(Errno::ENOMEM)?;
        self.all.insert(number, Group { name: own, above: id, gives: false, of: make()? });
        self.next = next;
        Ok(number)
    }

    /// Removes a group; returns its data. `is_used` says whether a process is in it.
    ///
    /// # Errors
    /// [`Errno::ENODEV`]; [`Errno::EBUSY`] for the root, and when a process or another group is in
    /// it.
    pub fn remove(&mut self, id: u32, is_used: bool) -> Result<T> {
        self.get(id)?;
        if id == Self::ROOT || is_used || self.below(id, 0).next().is_some() {
            return Err(Errno::EBUSY);
        }
        self.all.remove(&id).map(|group| group.of).ok_or(Errno::ENODEV)
    }

    /// The number of the group in which group `id` is; none for the root.
    pub fn above(&self, id: u32) -> Option<u32> {
        self.get(id).ok().filter(|_| id != Self::ROOT).map(|group| group.above)
    }

    /// A group's number, and of those that it is in, ending with the root.
    pub fn upwards(&self, id: u32) -> impl Iterator<Item = u32> {
        core::iter::successors(Some(id), |id| self.above(*id))
    }

    /// Whether group `id` is group `outer`, or in it.
    pub fn is_within(&self, id: u32, outer: u32) -> bool {
        self.upwards(id).any(|id| id == outer)
    }

    /// The numbers of group `outer` and of all that are in it.
    pub fn within(&self, outer: u32) -> impl Iterator<Item = u32> {
        self.all.keys().copied().filter(move |id| self.is_within(*id, outer))
    }

    /// Appends the path of a group from the root, as `/proc/PID/cgroup` has it.
    ///
    /// # Errors
    /// [`Errno::ENODEV`] when it was removed, [`Errno::ENOMEM`].
    pub fn path(&self, id: u32, out: &mut Text) -> Result<()> {
        self.get(id)?;
        if id == Self::ROOT {
            return out.push(b"/");
        }
        let mut ids = Vec::new();
        for id in self.upwards(id).filter(|id| *id != Self::ROOT) {
            ids.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            ids.push(id);
        }
        for id in ids.iter().rev() {
            out.push(b"/")?;
            out.push(&self.get(*id)?.name)?;
        }
        Ok(())
    }

    /// Whether a group has the memory controller: the root does, others get it from their parents.
    pub fn may_give(&self, id: u32) -> bool {
        self.above(id).is_none_or(|above| self.gives(above))
    }

    /// Whether a group has limits on its memory: it was given the controller.
    pub fn has_memory(&self, id: u32) -> bool {
        id != Self::ROOT && self.may_give(id)
    }

    /// Whether a group gives the controller of memory to those in it.
    pub fn gives(&self, id: u32) -> bool {
        self.get(id).is_ok_and(|group| group.gives)
    }

    /// Whether a process may be put into a group.
    ///
    /// # Errors
    /// [`Errno::ENODEV`]; [`Errno::EBUSY`] when it gives a controller to the groups in it: then
    /// processes are in those.
    pub fn admit(&self, id: u32) -> Result<()> {
        let group = self.get(id)?;
        if group.gives && id != Self::ROOT { Err(Errno::EBUSY) } else { Ok(()) }
    }

    /// Carries out a write to `cgroup.subtree_control` of a group; whether the groups in it lose
    /// the controller by that. `is_used` says whether a process is in it.
    ///
    /// # Errors
    /// [`Errno::ENODEV`]; [`Errno::ENOENT`] for a controller that it was not given;
    /// [`Errno::EBUSY`] when it is to give one while a process is in it, or to take one away from
    /// a group that gives it.
    pub fn control(&mut self, id: u32, wanted: Control, is_used: bool) -> Result<bool> {
        let had = self.get(id)?.gives;
        let Some(memory) = wanted.memory.filter(|memory| *memory != had) else { return Ok(false) };
        if memory && !self.may_give(id) {
            return Err(Errno::ENOENT);
        }
        let is_busy = match memory {
            true => is_used && id != Self::ROOT,
            false => self.below(id, 0).any(|(number, _)| self.gives(number)),
        };
        if is_busy {
            return Err(Errno::EBUSY);
        }
        self.get_mut(id)?.gives = memory;
        Ok(!memory)
    }
}
