//! Out of memory: who ends, so that the others go on.
//!
//! It is the largest process, by what its tables have: the end of one is then enough. What was set
//! by `oom_score_adj` counts as so many thousandths of all memory more, or less; -1000 exempts. The
//! first process never ends by this, but by its own fault.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use quire_linux::signal::Signal;
use quire_linux::signal::status::Status;
use spin::mutex::SpinMutex;

use super::process::processes;
use super::{Process, exit, reclaim};
use crate::disk::swap;
use crate::isa;
use crate::memory::{self, Memory, PAGE, mm};

/// How long nobody else ends after one was told to, if it is still there: in nanoseconds.
const PATIENCE_NS: u64 = 10_000_000_000;

/// What is to become of who has found no memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It ends, as this.
    Ends(Status),
    /// Another does: it tries again.
    TriesAgain,
}

/// Who was told to end last, and until when that is waited for.
struct Last {
    /// Its memory's number.
    memory: Option<u64>,
    until: u64,
}

static LAST: SpinMutex<Last> = SpinMutex::new(Last { memory: None, until: 0 });

/// Decides who ends since `own` has found no memory, and tells it so.
pub(crate) fn decide(own: &Arc<Process>) -> Fate {
    let status = Status::Killed { signal: Signal::KILL, core: false };
    if own.family.lock().fate.is_some() {
        return Fate::Ends(status);
    }
    let mut last = LAST.lock();
    let is_ending = last.memory.is_some_and(memory::is_there);
    if is_ending && isa::now() < last.until {
        return Fate::TriesAgain;
    }
    let chosen = largest(|_| true).unwrap_or_else(|| own.clone());
    let memory = chosen.memory().map(|memory| memory.number());
    *last = Last { memory, until: isa::now() + PATIENCE_NS };
    drop(last);
    kill(&chosen, status);
    if own.family.lock().fate.is_some() { Fate::Ends(status) } else { Fate::TriesAgain }
}

/// Ends a process, and those that have its memory as well.
fn kill(chosen: &Arc<Process>, status: Status) {
    let free = mm().phys().free_frames() * PAGE >> 10;
    let (slots, used) = swap::slots();
    let left = (slots - used) * PAGE >> 10;
    log!("out of memory: {free} KiB and {left} KiB of swap free: process {} is killed", chosen.pid);
    let memory = chosen.memory();
    exit::doom(chosen, status);
    let is_same = |other: &Memory| memory.as_deref().is_some_and(|own| core::ptr::eq(own, other));
    each(|process, memory| {
        if is_same(memory) && process.pid != 1 {
            exit::doom(process, status);
        }
    });
}

/// The process that counts as the largest among those that are `such`, and may end.
fn largest(such: impl Fn(&Memory) -> bool) -> Option<Arc<Process>> {
    let all = (reclaim::frames() + swap::slots().0) as i64;
    let mut found: Option<(i64, Arc<Process>)> = None;
    each(|process, memory| {
        let adjust = i64::from(process.oom_adjust.load(Ordering::Relaxed));
        let may_end = process.pid != 1 && adjust > -1000 && such(memory);
        if !may_end || process.family.lock().fate.is_some() {
            return;
        }
        let size = mm().footprint(memory.space()) as i64 + adjust * all / 1000;
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
