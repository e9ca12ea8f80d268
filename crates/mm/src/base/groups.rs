//! Limits on the memory of groups of spaces.
//!
//! ```text
//!   fault in a space of a group ──► credit left? ──► map, draw what was mapped
//!                                       │ none
//!                                       ▼
//!                       Error::OverLimit(group), and the embedder calls
//!                       relieve: count, page out the group's own, credit = limit - usage
//! ```
//!
//! A walk of page tables *counts* the memory of a group; no counter keeps it beside them. A folio
//! belongs to the spaces that map it, in proportion to the pages that each maps. Between two counts
//! a group may map as many pages as the last count left: its *credit*. Faults only draw on it,
//! which costs one addition; the next count finds freed pages. So a group never exceeds its limit,
//! except by one folio for each CPU that faults (a folio in memory is mapped whole, and concurrent
//! faults draw on the same credit), and by folios that other groups stop sharing with it until the
//! next count. Page tables, and unmapped pages of files, are not counted.
//!
//! Groups form trees: the memory of a group also counts for its parents.

use quire_arch::Arch;
use quire_units::Order;

use super::Error;
use crate::space::{GroupId, Space};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// No limit.
const UNLIMITED: u64 = u64::MAX;

/// One group, or the place for one: a value of the embedder's, as [`Parts`](crate::Parts), and not
/// in use when `Mm::new` has it. Its number is its index plus one.
pub struct Group {
    /// 0: free. 1: in use.
    used: AtomicU32,
    /// The number of its parent group; 0: none.
    parent: AtomicU32,
    /// Frames.
    limit: AtomicU64,
    /// Frames that may be mapped until the next count, as an `i64`: concurrent draws may exceed it.
    credit: AtomicU64,
    /// The place where reclaim within the group continues.
    pub(crate) hand: Hand,
}

impl Group {
    /// A group that is not in use.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            used: AtomicU32::new(0),
            parent: AtomicU32::new(0),
            limit: AtomicU64::new(UNLIMITED),
            credit: AtomicU64::new(0),
            hand: Hand::new(),
        }
    }

    /// A group that is not in use.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            used: AtomicU32::new(0),
            parent: AtomicU32::new(0),
            limit: AtomicU64::new(UNLIMITED),
            credit: AtomicU64::new(0),
            hand: Hand::new(),
        }
    }

    fn credit(&self) -> i64 {
        self.credit.load(Ordering::Relaxed) as i64
    }

    /// Forbids mapping until the next count.
    fn revoke(&self) {
        self.credit.store(0, Ordering::Relaxed);
    }
}

impl Default for Group {
    fn default() -> Self {
        Self::new()
    }
}

/// The place where a walk over all spaces goes on: the root of one, and a page in it. The last
/// write wins.
pub(crate) struct Hand {
    root: AtomicU64,
    page: AtomicU64,
}

impl Hand {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { root: AtomicU64::new(0), page: AtomicU64::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { root: AtomicU64::new(0), page: AtomicU64::new(0) }
    }

    pub(crate) fn load(&self) -> (u64, u64) {
        (self.root.load(Ordering::Relaxed), self.page.load(Ordering::Relaxed))
    }

    pub(crate) fn store(&self, root: u64, page: u64) {
        self.root.store(root, Ordering::Relaxed);
        self.page.store(page, Ordering::Relaxed);
    }
}

/// The groups of a system.
pub struct Groups<'m> {
    groups: &'m [Group],
}

impl<'m> Groups<'m> {
    pub(crate) fn new(groups: &'m [Group]) -> Self {
        Self { groups }
    }

    /// Makes a group without spaces and without a limit, as a child of `parent`.
    ///
    /// # Errors
    /// [`Error::NoGroup`] when every group that the embedder gave is in use, or `parent` is none.
    pub fn create(&self, parent: Option<GroupId>) -> Result<GroupId, Error> {
        let parent = parent.map_or(Ok(0), |id| self.group(id).map(|_| id.get()))?;
        let is_free = |group: &Group| {
            let (free, taken) = (Ordering::Relaxed, Ordering::Acquire);
            group.used.compare_exchange(0, 1, taken, free).is_ok()
        };
        let at = self.groups.iter().position(is_free).ok_or(Error::NoGroup)?;
        let group = &self.groups[at];
        group.parent.store(parent, Ordering::Relaxed);
        group.limit.store(UNLIMITED, Ordering::Relaxed);
        group.revoke();
        GroupId::new(at as u32 + 1).ok_or(Error::NoGroup)
    }

    /// Ends a group without spaces and without child groups.
    ///
    /// # Errors
    /// [`Error::NoGroup`] when it is none.
    pub fn end(&self, id: GroupId) -> Result<(), Error> {
        self.group(id)?.used.store(0, Ordering::Release);
        Ok(())
    }

    /// The most frames that a group may have; `u64::MAX` for no limit.
    ///
    /// # Errors
    /// [`Error::NoGroup`] when it is none.
    pub fn limit(&self, id: GroupId) -> Result<u64, Error> {
        Ok(self.group(id)?.limit.load(Ordering::Relaxed))
    }

    /// Sets the most frames that a group may have. If it has more, the next fault, or
    /// [`relieve`](crate::Reclaim::relieve), reports it.
    ///
    /// # Errors
    /// [`Error::NoGroup`] when it is none.
    pub fn set_limit(&self, id: GroupId, frames: u64) -> Result<(), Error> {
        let group = self.group(id)?;
        group.limit.store(frames, Ordering::Relaxed);
        group.revoke();
        Ok(())
    }

    /// Moves a space into a group, or out of all. Its memory counts there from then on. Its
    /// children will be in the same group.
    ///
    /// # Errors
    /// [`Error::NoGroup`] when it is none.
    pub fn join<A: Arch>(&self, space: &Space<A>, id: Option<GroupId>) -> Result<(), Error> {
        if let Some(id) = id {
            self.group(id)?;
        }
        space.set_group(id);
        self.chain(id).for_each(|(_, group)| group.revoke());
        Ok(())
    }

    /// Lets a group map this many pages before the next count, whatever its limit: for a caller
    /// that cannot wait until one of its spaces has ended.
    pub fn lend(&self, id: GroupId, pages: u64) {
        if let Ok(group) = self.group(id) {
            group.credit.store(pages.min(i64::MAX as u64), Ordering::Relaxed);
        }
    }

    /// Whether a space counts for a group: it is in the group, or in a descendant of it.
    pub fn is_member<A: Arch>(&self, space: &Space<A>, id: GroupId) -> bool {
        self.chain(space.group()).any(|(own, _)| own == id)
    }

    pub(crate) fn group(&self, id: GroupId) -> Result<&Group, Error> {
        let group = self.groups.get(id.get() as usize - 1);
        group.filter(|group| group.used.load(Ordering::Acquire) == 1).ok_or(Error::NoGroup)
    }

    /// A group, and its ancestors.
    fn chain(&self, id: Option<GroupId>) -> impl Iterator<Item = (GroupId, &Group)> {
        let entry = |id: GroupId| Some((id, self.group(id).ok()?));
        let first = id.and_then(entry);
        let next = move |(_, group): &(GroupId, &Group)| {
            GroupId::new(group.parent.load(Ordering::Relaxed)).and_then(entry)
        };
        core::iter::successors(first, next).take(self.groups.len())
    }

    /// Whether a space may map a folio of this order at once. One page always passes: each fault
    /// [charges](Self::charge) it first.
    #[inline]
    pub(crate) fn affords<A: Arch>(&self, space: &Space<A>, order: Order) -> bool {
        order == Order::ZERO || self.charge(space, order.pages()).is_ok()
    }

    /// Whether a space may map this many pages more; if not, the group that has no room for them.
    #[inline]
    pub(crate) fn charge<A: Arch>(&self, space: &Space<A>, pages: u64) -> Result<(), Error> {
        match space.group() {
            None => Ok(()),
            group => self.charge_group(group, pages),
        }
    }

    #[inline(never)]
    fn charge_group(&self, group: Option<GroupId>, pages: u64) -> Result<(), Error> {
        match self.chain(group).find(|(_, group)| group.credit() < pages as i64) {
            Some((id, _)) => Err(Error::OverLimit(id)),
            None => Ok(()),
        }
    }

    /// Counts this many pages that a space has mapped.
    #[inline]
    pub(crate) fn draw<A: Arch>(&self, space: &Space<A>, pages: u64) {
        if space.group().is_some() {
            self.draw_group(space.group(), pages);
        }
    }

    #[inline(never)]
    fn draw_group(&self, group: Option<GroupId>, pages: u64) {
        self.chain(group).for_each(|(_, group)| {
            group.credit.fetch_sub(pages, Ordering::Relaxed);
        });
    }
}
