//! Watchers are told of changes of the spaces that they watch: forks, and pages that are moved,
//! removed or unmapped. The thread that makes the change waits until they know.
//!
//! ```text
//!   munmap, mremap, fork   the change is made ──► told ──► Resume::Told: the call's result
//!   madvise(DONTNEED)      told ──► Resume::Told ──► the call is made again: the change is made
//! ```
//!
//! Content is told before it goes: else a watcher could answer the next fault there with what was
//! in the page before.

use alloc::sync::Arc;
use alloc::vec::Vec;

use quire::Move;
use quire::space::{At, Watch};
use quire::units::PageSpan;
use quire_linux::watch::{Change, Features, Notice, Queue, Range};
use quire_linux::{Errno, Result, Wake};

use super::watch::{WatcherFile, range};
use crate::memory::{Memory, PAGE, mm};
use crate::task::{Answer, Resume, Stop, Thread};

/// Changes of one call, each with the watcher that is told.
pub(super) type Changes = Vec<(Arc<Queue>, Change)>;

/// The watched parts of `span` whose watchers ask for this, each as `change` says.
///
/// # Errors
/// `ENOMEM`.
fn changes(
    memory: &Memory,
    span: PageSpan,
    asks: Features,
    change: impl Fn(PageSpan) -> Change,
) -> Result<Changes> {
    let mut told = Changes::new();
    if !mm().spaces().was_watched(memory.space()) {
        return Ok(told);
    }
    for area in mm().spaces().areas(memory.space(), span) {
        let queue = area.flags.watch().and_then(|watch| memory.queue(watch.watcher));
        let asks = |queue: &Arc<Queue>| queue.features().is_ok_and(|all| all.contains(asks));
        if let Some(queue) = queue.filter(asks) {
            told.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            told.push((queue, change(area.span.intersect(span))));
        }
    }
    Ok(told)
}

/// The changes to tell before `span` is unmapped.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn unmapped(memory: &Memory, span: PageSpan) -> Result<Changes> {
    changes(memory, span, Features::UNMAP, |part| Change::Unmap(range(part)))
}

/// The changes to tell of a `remap`: what it unmaps in any case, and those if it moves.
pub(super) struct Remapped {
    unmapped: Changes,
    moved: Changes,
}

/// The changes to tell of a [`remap`](quire::Mm::remap) that is about to be made. As on Linux, what
/// moves is told as moved, and then as unmapped.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn remapped(memory: &Memory, old: PageSpan, pages: u64, how: Move) -> Result<Remapped> {
    let mut all = Remapped { unmapped: Changes::new(), moved: Changes::new() };
    if !mm().spaces().was_watched(memory.space()) {
        return Ok(all);
    }
    if let Move::To(page) | Move::Keep(At::Fixed(page)) = how {
        all.unmapped = unmapped(memory, PageSpan::new(page, page.add(pages)))?;
    }
    let end = old.end.min(old.start.add(pages));
    all.unmapped.append(&mut unmapped(memory, PageSpan::new(end, old.end))?);
    let Range { start: from, .. } = range(old);
    // Where to is not known yet.
    let change = |_| Change::Remap { from, to: from, bytes: old.count() * PAGE };
    all.moved = changes(memory, old, Features::REMAP, change)?;
    if !matches!(how, Move::Keep(_)) {
        all.moved.append(&mut unmapped(memory, PageSpan::new(old.start, end))?);
    }
    Ok(all)
}

impl Remapped {
    /// All changes, now that the pages of `old` are at `new`.
    pub(super) fn settled(mut self, old: PageSpan, new: PageSpan) -> Changes {
        if new.start != old.start {
            for (_, change) in &mut self.moved {
                if let Change::Remap { to, .. } = change {
                    *to = range(new).start;
                }
            }
            self.unmapped.append(&mut self.moved);
        }
        self.unmapped
    }
}

/// Tells that the content of `span` goes, and waits with that until the watchers know. Does nothing
/// when the call is made again after that.
///
/// # Errors
/// `ENOMEM`; [`Stop::Read`].
pub(super) fn before_removal(
    thread: &mut Thread,
    memory: &Memory,
    span: PageSpan,
) -> core::result::Result<(), Stop> {
    if matches!(thread.resume, Resume::Announced) {
        return Ok(());
    }
    let told = changes(memory, span, Features::REMOVE, |part| Change::Remove(range(part)))?;
    if told.is_empty() { Ok(()) } else { tell(thread, told, None).map(drop) }
}

/// Gives the child that was just forked from `memory` watchers of its own, and returns them, to be
/// told to those of the parent.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn forked(memory: &Memory, child: &Arc<Memory>) -> Result<Changes> {
    let mut told = Changes::new();
    if !mm().spaces().was_watched(memory.space()) {
        return Ok(told);
    }
    for area in mm().spaces().areas(child.space(), crate::memory::ALL) {
        let Some(Watch { watcher, .. }) = area.flags.watch() else { continue };
        if child.queue(watcher).is_some() {
            continue;
        }
        let Some(queue) = memory.queue(watcher) else {
            // Its watcher has just ended.
            let _ = mm().spaces().watch(child.space(), area.span, None);
            continue;
        };
        let file = Arc::new(WatcherFile::inherited(&queue, child, watcher)?);
        told.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        told.push((queue, Change::Fork(file)));
    }
    Ok(told)
}

/// Tells the watchers of a call's changes; the call ends with `result` when they know.
///
/// # Errors
/// [`Stop::Read`].
pub(super) fn after(thread: &mut Thread, told: Changes, result: usize) -> Answer {
    if told.is_empty() { Ok(result) } else { tell(thread, told, Some(result)) }
}

fn tell(thread: &mut Thread, told: Changes, result: Option<usize>) -> Answer {
    let announce = |(queue, change): (Arc<Queue>, Change)| queue.announce(change).ok().flatten();
    let notices = told.into_iter().filter_map(announce).collect();
    thread.resume = Resume::Told(notices, result);
    match again(thread) {
        Some(answer) => answer,
        None => Ok(0),
    }
}

/// A call that waits for watchers is made again: its result, if they know, or that it still waits.
/// `None` where the call itself is to be made now.
pub(crate) fn again(thread: &mut Thread) -> Option<Answer> {
    let Resume::Told(notices, result) = &mut thread.resume else { return None };
    let who: Arc<dyn Wake> = thread.task.clone();
    // Without memory for a waiter the call does not wait.
    notices.retain(|notice: &Arc<Notice>| !notice.wait(&who).unwrap_or(true));
    if !notices.is_empty() {
        return Some(Err(Stop::Read));
    }
    let result = *result;
    thread.resume = Resume::Announced;
    result.map(Ok)
}
