//! Carrying out one step: groups of processes, and their limits.
//!
//! The model of a group knows its limit and its parent, and counts its usage once more from all
//! leaves, folio by folio. A group may exceed its limit after the limit was lowered or a process
//! joined. But from one count to the next, faults map no more pages than the count left.

use std::collections::BTreeMap;

use quire::Error;
use quire::check;
use quire::space::{GroupId, Space};
use quire_arch::{Arch, Attrs};
use quire_script::{Step, Verb};
use quire_units::Pfn;

use super::act::Outcome;
use super::violation::{Kind, Wrong};
use super::world::World;

/// How many groups there are at most.
const MOST: usize = 4;

/// The least that a group may have: below that it is counted for each page, which takes all time.
const LEAST: u64 = 128;

/// A group.
pub(super) struct Group {
    pub(super) id: GroupId,
    parent: Option<GroupId>,
    limit: u64,
    /// How many pages its processes may map before it is counted again, if that can be said.
    bound: Option<u64>,
}

impl<A: Arch> World<'_, '_, '_, A> {
    pub(super) fn act_on_groups(&mut self, step: &Step, process: usize) -> Outcome {
        let [which, count, ..] = step.args;
        let at = which as usize % (self.groups.len() + 1);
        let id = self.groups.get(at).map(|group| group.id);
        match (step.verb, id) {
            (Verb::Group, parent) => self.new_group(parent),
            (Verb::Join, id) => self.join(process, id),
            (_, None) => Ok(0),
            (Verb::EndGroup, Some(id)) => self.end_group(at, id),
            (Verb::Limit, Some(id)) => {
                let limit = if count >= 1600 { u64::MAX } else { u64::from(count).max(LEAST) };
                let done = self.mm.groups().set_limit(id, limit);
                self.judge("set_limit", Ok(()), done)?;
                self.groups[at].limit = limit;
                Ok(limit)
            }
            (Verb::Lend, Some(id)) => {
                self.mm.groups().lend(id, count.into());
                self.groups[at].bound = None;
                Ok(1)
            }
            (Verb::GroupOut, Some(id)) => {
                let out = {
                    let _operation = self.reclaiming("page out");
                    self.mm.reclaim().page_out_group(id, count.into(), &self.all())
                };
                self.settle_races()?;
                self.write_swap()?;
                self.judge("page_out_group", Ok(()), out).map(Option::unwrap_or_default)
            }
            (_, Some(id)) => self.count_group(id).map(u64::from),
        }
    }

    fn new_group(&mut self, parent: Option<GroupId>) -> Outcome {
        if self.groups.len() >= MOST {
            return Ok(0);
        }
        let got = self.mm.groups().create(parent);
        let made = self.judge("new_group", Ok(()), got)?;
        self.groups.extend(made.map(|id| Group { id, parent, limit: u64::MAX, bound: None }));
        Ok(1)
    }

    fn end_group(&mut self, at: usize, id: GroupId) -> Outcome {
        let has_parts = self.groups.iter().any(|group| group.parent == Some(id));
        if has_parts || self.naive.iter().any(|process| process.group == Some(id)) {
            return Ok(0);
        }
        let got = self.mm.groups().end(id);
        self.judge("end_group", Ok(()), got)?;
        self.groups.remove(at);
        match self.mm.groups().limit(id) {
            Err(Error::NoGroup) => Ok(1),
            other => Err(Wrong::new(Kind::Answer, format!("a group that ended has {other:?}"))),
        }
    }

    fn join(&mut self, process: usize, id: Option<GroupId>) -> Outcome {
        let got = self.call(process, "join", |mm, space| mm.groups().join(space, id))?;
        self.judge("join", Ok(()), got)?;
        self.naive[process].group = id;
        self.unbind(process);
        Ok(1)
    }

    /// It cannot be said any more how many pages the groups of a process may map.
    pub(super) fn unbind(&mut self, process: usize) {
        for at in 0..self.groups.len() {
            if self.is_in(process, self.groups[at].id) {
                self.groups[at].bound = None;
            }
        }
    }

    /// Whether a process counts for a group.
    fn is_in(&self, process: usize, id: GroupId) -> bool {
        let parent = |of: &GroupId| {
            self.groups.iter().find(|group| group.id == *of).and_then(|it| it.parent)
        };
        std::iter::successors(self.naive[process].group, parent).any(|of| of == id)
    }

    /// Whether a call may end for want of what a group may have.
    pub(super) fn may_be_over(&self, id: GroupId) -> bool {
        self.groups.iter().any(|group| group.id == id)
    }

    /// A process is told that its group has reached its limit: the group is counted. Whether it may
    /// have more now; if not, one of its processes ends soon.
    pub(super) fn relieve_group(&mut self, process: usize, id: GroupId) -> Result<bool, Wrong> {
        if !self.is_in(process, id) {
            let what =
                format!("process {process} is told of the limit of {id:?}, and is not in it");
            return Err(Wrong::new(Kind::Answer, what));
        }
        if self.doomed == Some(id) {
            return Ok(false);
        }
        self.count_group(id)
    }

    fn count_group(&mut self, id: GroupId) -> Result<bool, Wrong> {
        let Some(at) = self.groups.iter().position(|group| group.id == id) else {
            return Err(Wrong::new(Kind::Answer, format!("{id:?} is no group")));
        };
        let limit = self.groups[at].limit;
        let got = {
            let _operation = self.reclaiming("relieve");
            self.mm.reclaim().relieve(id, &self.all())
        };
        self.settle_races()?;
        let is_right = match got {
            Ok(done) => {
                done.room > 0 && done.usage.checked_add(done.room).is_none_or(|all| all <= limit)
            }
            Err(Error::OverLimit(of)) => {
                of == id && self.mm.reclaim().usage(id, &self.all()) >= limit
            }
            Err(_) => false,
        };
        if !is_right {
            let what = format!("a group with the limit {limit} was counted: {got:?}");
            return Err(Wrong::new(Kind::Answer, what));
        }
        self.groups[at].bound =
            got.ok().filter(|_| limit < u64::MAX).map(|done| self.mapped_by(id) + done.room);
        if got.is_err() {
            self.doomed = Some(id);
        }
        self.write_swap()?;
        Ok(got.is_ok())
    }

    /// Ends the largest process of a group that nothing else helps.
    pub(super) fn end_doomed(&mut self) {
        let Some(id) = self.doomed.take() else { return };
        let resident =
            |process: &usize| self.spaces[*process].as_ref().map(|space| self.mm.resident(space));
        let members = (0..self.spaces.len()).filter(|process| self.is_in(*process, id));
        if let Some(process) = members.max_by_key(resident) {
            self.end(process);
        }
    }

    /// No group has a limit any more.
    pub(super) fn unlimit(&mut self) -> Result<(), Wrong> {
        self.doomed = None;
        for group in &mut self.groups {
            (group.limit, group.bound) = (u64::MAX, None);
            self.mm.groups().set_limit(group.id, u64::MAX).map_err(Wrong::unexpected)?;
        }
        Ok(())
    }

    fn members(&self, id: GroupId) -> impl Iterator<Item = &Space<A>> {
        let spaces = self.spaces.iter().enumerate();
        spaces.filter(move |(at, _)| self.is_in(*at, id)).filter_map(|(_, space)| space.as_ref())
    }

    /// How many pages the processes of a group map, without the frames that areas show: no group
    /// pays for these.
    fn mapped_by(&self, id: GroupId) -> u64 {
        let members = (0..self.spaces.len()).filter(|process| self.is_in(*process, id));
        let shown = members.flat_map(|process| &self.naive[process].pages);
        let shown = shown.filter(|page| page.is_frame()).count() as u64;
        self.members(id).map(|space| self.mm.resident(space)).sum::<u64>() - shown
    }

    /// Each group has its due usage, and no group has mapped more than it might.
    pub(super) fn check_groups(&self) -> Result<(), Wrong> {
        if self.groups.is_empty() {
            return Ok(());
        }
        let all = self.folios_of(&mut self.spaces.iter().flatten())?;
        for group in &self.groups {
            let own = self.folios_of(&mut self.members(group.id))?;
            let pages = |head: &Pfn| self.mm.frame_info(*head).map_or(0, |it| it.order.pages());
            let share = |(head, mapped): (&Pfn, &u64)| {
                pages(head) as f64 * *mapped as f64 / all[head] as f64
            };
            // One folio that is in memory already is mapped whole.
            let folio = own.keys().map(pages).max().unwrap_or(0);
            let should: f64 = own.iter().map(share).sum();
            let is = self.mm.reclaim().usage(group.id, &self.all());
            let mapped = self.mapped_by(group.id);
            if (is as f64 - should).abs() > 1.0
                || group.bound.is_some_and(|most| mapped > most + folio)
            {
                let what = format!(
                    "{:?} has {is} pages, should have {should:.2}; it maps {mapped}, and may {:?}",
                    group.id, group.bound
                );
                return Err(Wrong::new(Kind::Walker, what));
            }
        }
        Ok(())
    }

    /// How many pages of each folio these spaces map; by the folio's first frame. Frames that areas
    /// show are no folios of theirs.
    fn folios_of(
        &self,
        spaces: &mut dyn Iterator<Item = &Space<A>>,
    ) -> Result<BTreeMap<Pfn, u64>, Wrong> {
        let mut folios = BTreeMap::new();
        for space in spaces {
            let walked = check::leaves(self.mm, space, |leaf| {
                // A protected page is COW as well.
                if leaf.attrs.contains(Attrs::SOFT) && !leaf.attrs.contains(Attrs::COW) {
                    return;
                }
                let (mut at, end) = (leaf.frame, leaf.frame.add(leaf.pages.count()));
                while let Some(info) = self.mm.frame_info(at).filter(|_| at < end) {
                    let upto = info.head.add(info.order.pages()).min(end);
                    *folios.entry(info.head).or_default() += upto.offset_from(at);
                    at = upto;
                }
            });
            walked.map_err(|violation| Wrong::new(Kind::Walker, format!("{violation}")))?;
        }
        Ok(folios)
    }
}
