//! Ends: of a thread, and of a process with its last thread.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use quire_linux::files::Table;
use quire_linux::signal::status::Status;
use quire_linux::signal::{Flags, Handler, Info, Signal};

use super::{Process, Thread, futex, process, send};
use crate::memory::{self, PAGE, user};

/// All threads of a process are to end, and it with them, as `status`. The first to say so decides.
pub(crate) fn doom(process: &Process, status: Status) {
    process.family.lock().fate.get_or_insert(status);
    for task in process.threads.lock().iter() {
        task.doomed.store(true, Ordering::Release);
        task.summon();
    }
}

/// A thread ends. If its process has others, these go on; `status` counts for the last.
pub(crate) fn end(thread: Box<Thread>, status: Status) {
    let task = thread.task.clone();
    futex::give_up(&task);
    let address = task.clear_tid.load(Ordering::Relaxed);
    if address != 0 && task.process.threads.lock().len() > 1 {
        // A bad address is the program's own loss.
        let _ = user::write(address, &0_u32);
        futex::wake_private(address, 1);
    }
    // A later wake at that word, perhaps in another space there, means another thread.
    thread.resume.leave();
    task.process.faults.fetch_add(thread.faults, Ordering::Relaxed);
    drop(thread);
    if process::delist(&task) {
        bury(&task.process, status);
    }
    // Last of all: this CPU leaves the space, which may end with that.
    memory::switch(None);
}

/// The last thread of a process has ended: it is a zombie from now on.
fn bury(process: &Arc<Process>, status: Status) {
    let table = core::mem::replace(&mut *process.files.lock(), Arc::new(Table::new()));
    drop(table);
    process.give_back();
    super::semaphores::undo(process);
    note_usage(process);
    let memory = process.memory.lock().take();
    memory::switch(None);
    drop(memory);
    adopt(process);
    let parent = {
        let mut family = process.family.lock();
        let status = family.fate.unwrap_or(status);
        family.ended = Some(status);
        family.parent.upgrade()
    };
    // Wakes pollers of its pidfd.
    process.returned.wake();
    if process.pid == 1 {
        finish(process);
    }
    let Some(parent) = parent else { return process::forget(process.pid) };
    let (status, usage) = {
        let family = process.family.lock();
        (family.ended.unwrap_or(Status::Exited(0)), family.usage)
    };
    let action = *parent.signals.lock().actions.get(Signal::CHLD);
    let ignored = action.handler == Handler::Ignore || action.flags.contains(Flags::NO_CHILD_WAIT);
    if ignored {
        reap(&parent, process);
    }
    let _ = send::to_process(&parent, status.info(process.pid as i32, 0, &usage));
    parent.child_news.wake();
}

/// Faults up to which the memory that a process brought in is not counted page by page at its end.
const FEW_FAULTS: u64 = 256;

/// Sums up what a process used, for its parent. Of a short life, its faults tell enough.
fn note_usage(process: &Process) {
    let faults = process.faults.load(Ordering::Relaxed);
    let resident = match process.memory() {
        Some(memory) if faults > FEW_FAULTS => memory.resident_pages(),
        _ => faults,
    };
    let mut family = process.family.lock();
    let usage = &mut family.usage;
    usage.user_ns = process.ran.load(Ordering::Relaxed);
    usage.minor_faults = faults;
    usage.major_faults = process.major_faults.load(Ordering::Relaxed);
    usage.waits = process.waits.load(Ordering::Relaxed);
    usage.resident_kib_max = usage.resident_kib_max.max((resident * PAGE) >> 10);
}

/// The process that adopts the children of `process`: its next ancestor that asked for that, or the
/// first process.
fn reaper(process: &Process) -> Option<Arc<Process>> {
    let mut above = process.family.lock().parent.upgrade();
    while let Some(one) = above {
        if one.attributes.is_reaper.load(Ordering::Relaxed) && !one.is_zombie() {
            return Some(one);
        }
        above = one.family.lock().parent.upgrade();
    }
    super::find(1)
}

/// Its children become those of the process that adopts them.
fn adopt(process: &Arc<Process>) {
    let children = core::mem::take(&mut process.family.lock().children);
    if children.is_empty() {
        return;
    }
    let Some(first) = reaper(process) else { return };
    for child in children {
        let number = child.attributes.death_signal.load(Ordering::Relaxed);
        if let Ok(signal) = Signal::new(number.into()) {
            let _ = send::to_process(&child, Info::kill(signal, process.pid as i32, 0));
        }
        child.family.lock().parent = Arc::downgrade(&first);
        first.family.lock().children.push(child);
    }
    first.child_news.wake();
}

/// Forgets a zombie after a wait.
pub(crate) fn reap(parent: &Process, child: &Process) {
    let (usage, below) = {
        let family = child.family.lock();
        (family.usage, family.children_usage)
    };
    let mut family = parent.family.lock();
    family.children.retain(|other| other.pid != child.pid);
    family.children_usage = family.children_usage.and(&usage).and(&below);
    drop(family);
    process::forget(child.pid);
}

/// The first process has ended, and with it the machine.
fn finish(process: &Process) -> ! {
    let status = match process.family.lock().ended {
        Some(Status::Exited(status)) => status,
        Some(Status::Killed { signal, .. }) => 128 + signal.number(),
        _ => 0,
    };
    log!("the first process has ended with status {status}");
    crate::halt(status)
}
