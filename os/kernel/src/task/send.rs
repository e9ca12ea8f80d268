//! Sending signals.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use quire_linux::signal::status::Status;
use quire_linux::signal::{Handler, Info, Set, Signal};
use quire_linux::{Errno, Result};

use super::{Process, Task, processes};

const STOPS: Set = Set::of(Signal::STOP).with(Signal::TSTP).with(Signal::TTIN).with(Signal::TTOU);

/// Sends a signal to a process: whichever thread does not block it takes it.
///
/// # Errors
/// `EAGAIN`: see [`Pending::add`](quire_linux::signal::Pending::add).
pub(crate) fn to_process(process: &Arc<Process>, info: Info) -> Result<()> {
    if !prepare(process, info.signal) {
        return Ok(());
    }
    {
        let mut signals = process.signals.lock();
        signals.pending.add(info)?;
        // With the lock held: a thread that finds none clears this with the lock held, too.
        process.has_signals.store(true, Ordering::Release);
    }
    process.signal_news.wake();
    let threads = process.threads.lock();
    let takes = |task: &&Arc<Task>| !task.signals.lock().blocked.has(info.signal);
    let all = info.signal.is_unstoppable();
    match threads.iter().find(takes) {
        Some(task) if !all => task.summon(),
        // A thread may wait for it although it is blocked.
        _ => threads.iter().for_each(|task| task.summon()),
    }
    Ok(())
}

/// Sends a signal to one thread.
///
/// # Errors
/// As for [`to_process`].
pub(crate) fn to_task(task: &Arc<Task>, info: Info) -> Result<()> {
    if !prepare(&task.process, info.signal) {
        return Ok(());
    }
    {
        let mut own = task.signals.lock();
        own.pending.add(info)?;
        task.process.has_signals.store(true, Ordering::Release);
    }
    task.process.signal_news.wake();
    task.summon();
    Ok(())
}

/// The effect of a signal when it is sent, before a thread takes it. `false` when no thread ever
/// will.
fn prepare(process: &Arc<Process>, signal: Signal) -> bool {
    if process.is_zombie() {
        return false;
    }
    let mut signals = process.signals.lock();
    if signal == Signal::CONT || signal == Signal::KILL {
        signals.pending.forget(STOPS);
        let was_stopped = process.is_stopped.swap(false, Ordering::SeqCst);
        drop(signals);
        process.threads.lock().iter().for_each(|task| {
            task.signals.lock().pending.forget(STOPS);
        });
        if was_stopped {
            tell_parent(process, Status::Continued);
            process.threads.lock().iter().for_each(|task| task.summon());
        }
        signals = process.signals.lock();
    } else if STOPS.has(signal) {
        signals.pending.forget(Set::of(Signal::CONT));
    }
    let ignored = signals.actions.get(signal).ignores(signal);
    // The first process gets no signal without a handler.
    let shielded =
        process.pid == 1 && matches!(signals.actions.get(signal).handler, Handler::Default);
    drop(signals);
    let blocked = process.threads.lock().iter().all(|task| task.signals.lock().blocked.has(signal));
    // A blocked signal stays pending although it is ignored now: that may change meanwhile.
    let arrives = !(shielded || ignored && !blocked);
    if arrives && signal == Signal::KILL {
        // Decided now, and not when a thread takes it, since others may ask in between.
        let status = Status::Killed { signal, core: false };
        process.family.lock().fate.get_or_insert(status);
    }
    arrives
}

/// Notifies the parent that a process stopped, or goes on.
pub(crate) fn tell_parent(process: &Arc<Process>, news: Status) {
    let (parent, usage) = {
        let mut family = process.family.lock();
        family.news = Some(news);
        (family.parent.upgrade(), family.usage)
    };
    let Some(parent) = parent else { return };
    let quiet = parent
        .signals
        .lock()
        .actions
        .get(Signal::CHLD)
        .flags
        .contains(quire_linux::signal::Flags::NO_CHILD_STOP);
    if !quiet {
        // At most one is pending: a second one is no news.
        let _ = to_process(&parent, news.info(process.pid as i32, 0, &usage));
    }
    parent.child_news.wake();
}

/// Sends to each process of a group that `from` may send to: any, where the kernel itself sends.
///
/// # Errors
/// `ESRCH` when there is none, `EPERM` when it may send to none.
pub(crate) fn to_group(from: Option<&Process>, group: u32, info: Option<Info>) -> Result<()> {
    to_each(from, info, |process| process.ids.lock().group == group)
}

/// Sends to every process but the first and `own`, as far as it may.
///
/// # Errors
/// As for [`to_group`].
pub(crate) fn to_all(own: &Process, info: Option<Info>) -> Result<()> {
    to_each(Some(own), info, |process| process.pid != own.pid && process.pid != 1)
}

fn to_each(
    from: Option<&Process>,
    info: Option<Info>,
    is_meant: impl Fn(&Process) -> bool,
) -> Result<()> {
    let mut found = Err(Errno::ESRCH);
    let mut next = processes(1);
    while let Some(process) = next {
        if is_meant(&process) && !process.is_zombie() {
            if from.is_none_or(|from| from.may().may_signal(&process.may())) {
                found = Ok(());
                info.map_or(Ok(()), |info| to_process(&process, info))?;
            } else if found.is_err() {
                found = Err(Errno::EPERM);
            }
        }
        next = processes(process.pid + 1);
    }
    found
}
