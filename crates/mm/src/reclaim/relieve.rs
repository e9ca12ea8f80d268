//! Groups over their limit give up what their spaces have not used for longest.

use quire_arch::Arch;
use quire_hw::Hardware;

use super::Reclaim;
use crate::base::{AllSpaces, Error};
use crate::space::GroupId;

/// A group is relieved until this part of its limit is free, so that it is not counted again soon.
const MARGIN: u64 = 16;

/// What came of [`Reclaim::relieve`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Relieved {
    /// Frames that the group has.
    pub usage: u64,
    /// Frames that it may have more until it is counted again.
    pub room: u64,
    /// Pages that were paged out for that, and are free when they are written.
    pub paged_out: u64,
}

impl<A: Arch, H: Hardware> Reclaim<'_, A, H> {
    /// Counts what a group has and, if that is its limit or little less, pages out what its spaces
    /// have not used for longest. Then they may have as much more as there is [room](Relieved).
    /// What was paged out is to be written, as after [`page_out`](Self::page_out).
    ///
    /// # Errors
    /// [`Error::OverLimit`] when there is no room, and no more can be paged out: one of the
    /// group's spaces must end, or give something up. [`Error::NoGroup`].
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
            let lacks = (usage - most).max(1);
            paged_out = self.reclaim_in(id, lacks, spaces);
            usage = self.usage(id, spaces);
        }
        let room = limit.saturating_sub(usage);
        self.base().groups.lend(id, room);
        if room == 0 {
            return Err(Error::OverLimit(id));
        }
        Ok(Relieved { usage, room, paged_out })
    }

    /// Pages out about `pages` pages of what a group's spaces have not used for longest, whatever
    /// its limit; how many. What was paged out is to be written, as after
    /// [`page_out`](Self::page_out).
    ///
    /// # Errors
    /// [`Error::NoGroup`] when it is none.
    pub fn page_out_group(
        &self,
        id: GroupId,
        pages: u64,
        spaces: &(impl AllSpaces<A> + ?Sized),
    ) -> Result<u64, Error> {
        self.base().groups.group(id)?;
        Ok(self.reclaim_in(id, pages, spaces))
    }
}
