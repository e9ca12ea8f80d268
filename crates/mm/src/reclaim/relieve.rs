//! Groups over their limit page out the memory with the oldest last access.

use quire_arch::Arch;
use quire_hw::Hardware;

use super::Reclaim;
use super::quest::Quest;
use crate::base::{AllSpaces, Error};
use crate::space::GroupId;

/// A group is relieved until this fraction of its limit is free, so that it is not counted again
/// soon.
const MARGIN: u64 = 16;

/// The result of [`Reclaim::relieve`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Relieved {
    /// Frames of the group.
    pub usage: u64,
    /// Frames that it may map until the next count.
    pub room: u64,
    /// Pages paged out by the call, which are free when they are written.
    pub paged_out: u64,
}

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// Counts the memory of a group and, if it is at or just below its limit, pages out the memory
    /// of its spaces with the oldest last access. Then they may map as many more pages as there is
    /// [room](Relieved). Pages that were paged out must be written, as after
    /// [`page_out`](crate::Paging::page_out).
    ///
    /// # Errors
    /// [`Error::OverLimit`] when there is no room, and no more can be paged out: one of the group's
    /// spaces must end, or free memory. [`Error::NoGroup`].
    pub fn relieve(
        &self,
        id: GroupId,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<Relieved, Error> {
        let limit = self.base().groups.limit(id)?;
        let mut usage = self.usage(id, spaces);
        let mut paged_out = 0;
        let most = limit - limit / MARGIN;
        if usage > most.min(limit.saturating_sub(1)) {
            paged_out = self.page_out_group(id, (usage - most).max(1), spaces)?;
            usage = self.usage(id, spaces);
        }
        let room = limit.saturating_sub(usage);
        self.base().groups.lend(id, room);
        if room == 0 {
            return Err(Error::OverLimit(id));
        }
        Ok(Relieved { usage, room, paged_out })
    }

    /// Pages out about `pages` pages of a group's spaces, those with the oldest last access,
    /// whatever its limit; returns how many. They must be written, as after
    /// [`page_out`](crate::Paging::page_out).
    ///
    /// # Errors
    /// [`Error::NoGroup`] when there is no such group.
    pub fn page_out_group(
        &self,
        id: GroupId,
        pages: u64,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<u64, Error> {
        let mut quest = Quest::new(pages, &spaces, &self.base().groups.group(id)?.hand);
        quest.group = Some(id);
        self.go_rounds(&mut quest);
        Ok(quest.done.paged_out)
    }
}
