//! Out of memory, everywhere or in a group: one process ends, so that the others go on.
//!
//! It is the largest process, by what its tables have: the end of one is then enough.
//! `oom_score_adj` adds that many thousandths of all memory, or takes them off; -1000 exempts. The
//! first process never ends by this, but by its own fault.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use quire::space::GroupId;
use quire_linux::signal::Signal;
use quire_linux::signal::status::Status;
use spin::mutex::SpinMutex;

use super::process::processes;
use super::{Process, cgroup, exit, reclaim};
use crate::disk::swap;
use crate::isa;
use crate::memory::{self, Memory, PAGE, mm};

/// How long the OOM killer waits for a process to end before it chooses another, in nanoseconds.
const PATIENCE_NS: u64 = 10_000_000_000;

/// The verdict on a process that has found no memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It ends, with this status.
    Ends(Status),
    /// Another does: it tries again.
    TriesAgain,
}

/// The last victim, and until when its end is waited for.
struct Last {
    /// Its memory's number.
    memory: Option<u64>,
    until: u64,
}

static LAST: SpinMutex<Last> = SpinMutex::new(Last { memory: None, until: 0 });

/// How those end.
const KILLED: Status = Status::Killed { signal: Signal::KILL, core: false };

/// Chooses the process that ends because `own` has found no memory, or its `group` is at its limit,
/// and kills it.
pub(crate) fn decide(own: &Arc<Process>, group: Option<GroupId>) -> Fate {
    if own.family.lock().fate.is_some() {
        return Fate::Ends(KILLED);
    }
    // Others of the group may have left room since.
    if group.is_some_and(memory::relieve) {
        return Fate::TriesAgain;
    }
    end_one(group, Some(own));
    if own.family.lock().fate.is_some() { Fate::Ends(KILLED) } else { Fate::TriesAgain }
}

/// Kills one process, of `group` or of all; `otherwise`, if no other may be killed. If one is about
/// to end already, that is enough. The number of its memory.
pub(super) fn end_one(group: Option<GroupId>, otherwise: Option<&Arc<Process>>) -> Option<u64> {
    let mut last = LAST.lock();
    let ending = last.memory.filter(|number| memory::is_there(*number));
    if ending.is_some() && isa::now() < last.until {
        return ending;
    }
    let chosen = largest(|memory| is_meant(memory, group)).or_else(|| otherwise.cloned())?;
    let memory = chosen.memory().map(|memory| memory.number());
    *last = Last { memory, until: isa::now() + PATIENCE_NS };
    drop(last);
    group.into_iter().for_each(cgroup::note_oom);
    kill(&chosen);
    memory
}

/// Kills the largest processes of a group until they have `pages` together, or none is left.
pub(super) fn end_some(group: GroupId, pages: u64) {
    let mut left = pages;
    cgroup::note_oom(group);
    while let Some(chosen) = largest(|memory| is_meant(memory, Some(group))).filter(|_| left > 0) {
        let size = chosen.memory().map_or(0, |memory| mm().spaces().footprint(memory.space()));
        left = left.saturating_sub(size);
        kill(&chosen);
    }
}

/// Whether memory counts for a group; all does, if it is none.
fn is_meant(memory: &Memory, group: Option<GroupId>) -> bool {
    group.is_none_or(|group| mm().groups().is_member(memory.space(), group))
}

/// Ends a process, and those that have its memory as well.
fn kill(chosen: &Arc<Process>) {
    let free = mm().phys().free_frames() * (PAGE >> 10);
    let (slots, used) = swap::slots();
    let left = (slots - used) * (PAGE >> 10);
    log!("out of memory: {free} KiB and {left} KiB of swap free: process {} is killed", chosen.pid);
    cgroup::note_kill(chosen);
    let memory = chosen.memory();
    exit::doom(chosen, KILLED);
    let is_same = |other: &Memory| memory.as_deref().is_some_and(|own| core::ptr::eq(own, other));
    each(|process, memory| {
        if is_same(memory) && process.pid != 1 {
            exit::doom(process, KILLED);
        }
    });
}

/// The largest process among those that are `such`, and may be killed.
fn largest(such: impl Fn(&Memory) -> bool) -> Option<Arc<Process>> {
    let all = (reclaim::frames() + swap::slots().0) as i64;
    let mut found: Option<(i64, Arc<Process>)> = None;
    each(|process, memory| {
        let adjust = i64::from(process.oom_adjust.load(Ordering::Relaxed));
        let may_end = process.pid != 1 && adjust > -1000 && such(memory);
        if !may_end || process.family.lock().fate.is_some() {
            return;
        }
        let size = mm().spaces().footprint(memory.space()) as i64 + adjust * all / 1000;
        if found.as_ref().is_none_or(|(most, _)| size > *most) {
            found = Some((size, process.clone()));
        }
    });
    found.map(|(_, process)| process)
}

/// Calls `act` with each process that has memory, and with that.
fn each(mut act: impl FnMut(&Arc<Process>, &Memory)) {
    let mut next = processes(1);
    while let Some(process) = next {
        if let Some(memory) = process.memory() {
            act(&process, &memory);
        }
        next = processes(process.pid + 1);
    }
}
