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
//! What a group has is *counted* from page tables, and not kept beside them: a folio belongs to
//! those who map it, by how much of it each maps. Between two counts a group may map as much as the
//! last one left: its *credit*. Faults only draw, so that they cost one addition; what goes back is
//! found by the next count. So a group has never more than its limit, but for one folio for each
//! CPU that faults (a folio that is in memory already is mapped whole, and faults at the same
//! moment draw from the same credit), and for what others stop sharing with it until the next
//! count. Not counted: page tables, and pages of files that nobody maps.
//!
//! Groups form trees: what a group has its parents have, too.

use quire_arch::Arch;
use quire_units::Order;

use super::{Error, Hand};
use crate::limits::GROUPS_MAX;
use crate::space::{GroupId, Space};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// No limit.
const UNLIMITED: u64 = u64::MAX;

/// One group; its number is its place.
pub(crate) struct Group {
    /// 0: nobody's. 1: in use.
    used: AtomicU32,
    /// The number of the group that it is part of; 0: none.
    parent: AtomicU32,
    /// Frames.
    limit: AtomicU64,
    /// Frames that may be mapped until the next count, as an `i64`: what CPUs draw at the same
    /// moment may be more than there is.
    credit: AtomicU64,
    /// Where reclaim within it goes on.
    pub(crate) hand: Hand,
}

impl Group {
    pub(crate) fn new() -> Self {
        Self {
            used: AtomicU32::new(0),
            parent: AtomicU32::new(0),
            limit: AtomicU64::new(UNLIMITED),
            credit: AtomicU64::new(0),
            hand: Hand::new(),
        }
    }

    /// Nothing may be mapped before the next count.
    fn revoke(&self) {
        self.credit.store(0, Ordering::Relaxed);
    }
}

/// The groups of a system.
pub struct Groups {
    groups: [Group; GROUPS_MAX],
}

impl Groups {
    pub(crate) fn new() -> Self {
        Self { groups: core::array::from_fn(|_| Group::new()) }
    }

    /// Makes a group without spaces and without a limit, as a part of `parent`.
    ///
    /// # Errors
    /// [`Error::NoGroup`] when there are [`GROUPS_MAX`], or `parent` is none.
    pub fn create(&self, parent: Option<GroupId>) -> Result<GroupId, Error> {
        let parent = parent.map_or(Ok(0), |id| self.group(id).map(|_| id.get()))?;
        let is_free = |group: &&Group| {
            let (free, taken) = (Ordering::Relaxed, Ordering::Acquire);
            group.used.compare_exchange(0, 1, taken, free).is_ok()
        };
        let group = self.groups.iter().find(is_free).ok_or(Error::NoGroup)?;
        group.parent.store(parent, Ordering::Relaxed);
        group.limit.store(UNLIMITED, Ordering::Relaxed);
        group.revoke();
        let at = self.groups.iter().position(|other| core::ptr::eq(other, group));
        at.and_then(|at| GroupId::new(at as u32 + 1)).ok_or(Error::NoGroup)
    }

    /// Ends a group, in which no space is any more, and of which no group is a part.
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

    /// Sets the most frames that a group may have. If it has more, it is told so by the next fault,
    /// or by [`relieve`](Self::relieve).
    ///
    /// # Errors
    /// [`Error::NoGroup`] when it is none.
    pub fn set_limit(&self, id: GroupId, frames: u64) -> Result<(), Error> {
        let group = self.group(id)?;
        group.limit.store(frames, Ordering::Relaxed);
        group.revoke();
        Ok(())
    }

    /// Makes a space part of a group, or of none. What it has goes with it. Its children will be in
    /// the same one.
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

    /// Lets a group map so many pages before it is counted again, whatever its limit: for who
    /// cannot wait until one of its spaces has ended.
    pub fn lend(&self, id: GroupId, pages: u64) {
        if let Ok(group) = self.group(id) {
            group.credit.store(pages.min(i64::MAX as u64), Ordering::Relaxed);
        }
    }

    /// Whether a space counts for a group: it is in it, or in one that is a part of it.
    pub fn is_member<A: Arch>(&self, space: &Space<A>, id: GroupId) -> bool {
        self.chain(space.group()).any(|(own, _)| own == id)
    }

    pub(crate) fn group(&self, id: GroupId) -> Result<&Group, Error> {
        let group = self.groups.get(id.get() as usize - 1);
        group.filter(|group| group.used.load(Ordering::Acquire) == 1).ok_or(Error::NoGroup)
    }

    /// A group, and those that it is part of.
    fn chain(&self, id: Option<GroupId>) -> impl Iterator<Item = (GroupId, &Group)> {
        let entry = |id: GroupId| Some((id, self.group(id).ok()?));
        let first = id.and_then(entry);
        let next = move |(_, group): &(GroupId, &Group)| {
            GroupId::new(group.parent.load(Ordering::Relaxed)).and_then(entry)
        };
        core::iter::successors(first, next).take(GROUPS_MAX)
    }

    /// Whether a space may map anything at all.
    #[inline]
    pub(crate) fn charge_first<A: Arch>(&self, space: &Space<A>) -> Result<(), Error> {
        match space.group() {
            None => Ok(()),
            some => match self.chain(some).find(|(_, group)| group.credit() <= 0) {
                Some((id, _)) => Err(Error::OverLimit(id)),
                None => Ok(()),
            },
        }
    }

    /// Whether a space may map so many pages at once. One it may, as
    /// [`charge_first`](Self::charge_first) was asked.
    #[inline]
    pub(crate) fn affords<A: Arch>(&self, space: &Space<A>, order: Order) -> bool {
        order == Order::ZERO || self.charge(space, order.pages()).is_ok()
    }

    /// Whether a space may map so many pages more; if not, which group has no room for them.
    #[inline]
    pub(crate) fn charge<A: Arch>(&self, space: &Space<A>, pages: u64) -> Result<(), Error> {
        if space.group().is_none() {
            return Ok(());
        }
        let lacks = |group: &Group| group.credit() < pages as i64;
        match self.chain(space.group()).find(|(_, group)| lacks(group)) {
            Some((id, _)) => Err(Error::OverLimit(id)),
            None => Ok(()),
        }
    }

    /// Notes that a space has mapped so many pages more.
    #[inline]
    pub(crate) fn draw<A: Arch>(&self, space: &Space<A>, pages: u64) {
        if space.group().is_some() {
            self.chain(space.group()).for_each(|(_, group)| {
                group.credit.fetch_sub(pages, Ordering::Relaxed);
            });
        }
    }
}

impl Group {
    fn credit(&self) -> i64 {
        self.credit.load(Ordering::Relaxed) as i64
    }
}
