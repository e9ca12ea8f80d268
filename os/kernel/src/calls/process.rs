//! Processes and threads: making them, ending them, waiting for them, and their names and numbers.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as abi;
#[cfg(target_arch = "x86_64")]
use quire_linux::signal::Signal;
use quire_linux::signal::status::{Status, Usage};
use quire_linux::{Errno, Result};

use super::told;
use crate::isa;
use crate::memory::{self, user};
use crate::task::{
    Answer, Process, Resume, Stop, Task, Thread, enlist, exit, find, find_task, new_id, processes,
    start,
};

/// Flags of `clone` that are known, besides the signal in the lowest byte.
const KNOWN: u32 = abi::CLONE_VM
    | abi::CLONE_FS
    | abi::CLONE_FILES
    | abi::CLONE_SIGHAND
    | abi::CLONE_VFORK
    | abi::CLONE_PARENT
    | abi::CLONE_THREAD
    | abi::CLONE_SYSVSEM
    | abi::CLONE_SETTLS
    | abi::CLONE_PARENT_SETTID
    | abi::CLONE_CHILD_CLEARTID
    | abi::CLONE_DETACHED
    | abi::CLONE_UNTRACED
    | abi::CLONE_CHILD_SETTID
    | abi::CLONE_IO
    | 0xff;

/// A request to `clone`.
struct Wanted {
    flags: u32,
    stack: u64,
    parent_tid: u64,
    child_tid: u64,
    thread_pointer: u64,
}

impl Wanted {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

pub(super) fn clone(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [flags, stack, parent_tid, fourth, fifth, _] = args.map(|arg| arg as u64);
    let (child_tid, thread_pointer) = match cfg!(target_arch = "x86_64") {
        true => (fourth, fifth),
        false => (fifth, fourth),
    };
    make(thread, &Wanted { flags: flags as u32, stack, parent_tid, child_tid, thread_pointer })
}

#[cfg(target_arch = "x86_64")]
pub(super) fn fork(thread: &mut Thread, _: [usize; 6]) -> Answer {
    make(thread, &plain(Signal::CHLD.number().into()))
}

#[cfg(target_arch = "x86_64")]
pub(super) fn vfork(thread: &mut Thread, _: [usize; 6]) -> Answer {
    make(thread, &plain(abi::CLONE_VM | abi::CLONE_VFORK | u32::from(Signal::CHLD.number())))
}

#[cfg(target_arch = "x86_64")]
fn plain(flags: u32) -> Wanted {
    Wanted { flags, stack: 0, parent_tid: 0, child_tid: 0, thread_pointer: 0 }
}

fn make(thread: &mut Thread, wanted: &Wanted) -> Answer {
    if let Resume::Borrowed(child) = core::mem::take(&mut thread.resume) {
        return wait_for_return(thread, child);
    }
    memory::admit()?;
    let (vm, hands, mates) = (abi::CLONE_VM, abi::CLONE_SIGHAND, abi::CLONE_THREAD);
    let implied = wanted.has(mates) && !wanted.has(hands) || wanted.has(hands) && !wanted.has(vm);
    if wanted.flags & !KNOWN != 0 || implied {
        return Err(Errno::EINVAL.into());
    }
    // On x86-64 it goes into a register that takes canonical addresses only.
    let is_beyond = cfg!(target_arch = "x86_64") && wanted.thread_pointer >= isa::USER_END;
    if wanted.has(abi::CLONE_SETTLS) && is_beyond {
        return Err(Errno::EPERM.into());
    }
    if wanted.has(mates) { make_thread(thread, wanted) } else { make_process(thread, wanted) }
}

/// The registers and the name of a copy of `thread`.
fn copy(
    thread: &mut Thread,
    tid: u32,
    process: Arc<Process>,
    wanted: &Wanted,
) -> alloc::boxed::Box<Thread> {
    thread.context.save_vectors();
    let mut context = thread.context.clone();
    context.answer(0);
    if wanted.stack != 0 {
        context.set_sp(wanted.stack);
    }
    if wanted.has(abi::CLONE_SETTLS) {
        context.set_thread_pointer(wanted.thread_pointer);
    }
    let (blocked, stack) = {
        let own = thread.task.signals.lock();
        (own.blocked, own.alt_stack)
    };
    let name = *thread.task.name.lock();
    let task = Task::new(tid, process, blocked, name);
    task.inherit_cpus(&thread.task);
    task.inherit_schedule(&thread.task);
    // A copy on the same memory must not use the same stack for signals.
    if !wanted.has(abi::CLONE_VM) || wanted.has(abi::CLONE_VFORK) {
        task.signals.lock().alt_stack = stack;
    }
    if wanted.has(abi::CLONE_CHILD_CLEARTID) {
        task.clear_tid.store(wanted.child_tid, Ordering::Relaxed);
    }
    Thread::new(context, task)
}

fn make_thread(thread: &mut Thread, wanted: &Wanted) -> Answer {
    let tid = new_id();
    let process = thread.process().clone();
    let copy = copy(thread, tid, process, wanted);
    // With both flags, both writes go to the same place of the same memory.
    for (flag, address) in
        [(abi::CLONE_PARENT_SETTID, wanted.parent_tid), (abi::CLONE_CHILD_SETTID, wanted.child_tid)]
    {
        if wanted.has(flag) {
            user::write(address, &tid)?;
        }
    }
    enlist(copy);
    Ok(tid as usize)
}

fn make_process(thread: &mut Thread, wanted: &Wanted) -> Answer {
    let pid = new_id();
    let parent = thread.process().clone();
    if wanted.has(abi::CLONE_PARENT_SETTID) {
        user::write(wanted.parent_tid, &pid)?;
    }
    let memory = crate::memory::current().ok_or(Errno::EFAULT)?;
    let (memory, told) = match wanted.has(abi::CLONE_VM) {
        true => (memory, told::Changes::new()),
        false => {
            let child = memory.fork()?;
            super::guard::inherit(&memory, &child);
            let told = told::forked(&memory, &child)?;
            (child, told)
        }
    };
    let files = match wanted.has(abi::CLONE_FILES) {
        true => parent.files(),
        false => Arc::new(parent.files().duplicate()?),
    };
    let here = parent.here.lock().clone();
    let here = if wanted.has(abi::CLONE_FS) { here } else { Arc::new(here.duplicate()) };
    let actions = parent.signals.lock().actions.clone();
    let child = Process::new(pid, memory.clone(), files, here, actions, Some(&parent));
    let copy = copy(thread, pid, child.clone(), wanted);
    if wanted.has(abi::CLONE_CHILD_SETTID) {
        // A bad address is the child's own loss, as on Linux.
        memory.reach(wanted.child_tid, &mut pid.to_le_bytes(), crate::memory::Reach::Write);
    }
    let borrows = wanted.has(abi::CLONE_VFORK);
    child.borrows.store(borrows, Ordering::SeqCst);
    let elder = parent.family.lock().parent.upgrade().filter(|_| wanted.has(abi::CLONE_PARENT));
    start(&child, Some(elder.as_ref().unwrap_or(&parent)), Some(&parent), copy);
    if borrows {
        return wait_for_return(thread, child);
    }
    told::after(thread, told, pid as usize)
}

/// Waits until a child that borrows this process's memory runs another program, or ends.
fn wait_for_return(thread: &mut Thread, child: Arc<Process>) -> Answer {
    child.returned.add(&thread.waker())?;
    if !child.borrows.load(Ordering::SeqCst) {
        return Ok(child.pid as usize);
    }
    thread.resume = Resume::Borrowed(child);
    Err(Stop::Wait(None))
}

pub(super) fn exit(thread: &mut Thread, [status, ..]: [usize; 6]) -> Answer {
    let is_last = thread.process().threads.lock().len() == 1;
    if is_last {
        exit::doom(thread.process(), Status::Exited(status as u8));
    }
    Err(Stop::Gone)
}

pub(super) fn exit_group(thread: &mut Thread, [status, ..]: [usize; 6]) -> Answer {
    exit::doom(thread.process(), Status::Exited(status as u8));
    Err(Stop::Gone)
}

/// Which children are waited for, and for what.
struct Sought {
    which: Which,
    ended: bool,
    stopped: bool,
    continued: bool,
    /// They stay for another wait.
    keeps: bool,
    waits: bool,
}

enum Which {
    Any,
    Pid(u32),
    Group(u32),
}

impl Sought {
    fn is_meant(&self, child: &Process) -> bool {
        match self.which {
            Which::Any => true,
            Which::Pid(pid) => child.pid == pid,
            Which::Group(group) => child.ids.lock().group == group,
        }
    }

    /// The status to report for a child, if there is one.
    fn news(&self, child: &Process) -> Option<Status> {
        let mut family = child.family.lock();
        if let Some(status) = family.ended {
            return self.ended.then_some(status);
        }
        let wanted = match family.news? {
            Status::Stopped(_) => self.stopped,
            Status::Continued => self.continued,
            _ => false,
        };
        if self.keeps {
            return family.news.filter(|_| wanted);
        }
        if wanted { family.news.take() } else { None }
    }
}

/// Looks for such a child; its number, its status, and its usage.
fn seek(
    thread: &Thread,
    sought: &Sought,
) -> core::result::Result<Option<(u32, Status, Usage)>, Stop> {
    let process = thread.process();
    // The waiter is registered first, so that no change is missed after looking.
    if sought.waits {
        process.child_news.add(&thread.waker())?;
    }
    let children = {
        let family = process.family.lock();
        let mut meant = alloc::vec::Vec::new();
        meant.try_reserve(family.children.len()).map_err(|_| Errno::ENOMEM)?;
        meant.extend(family.children.iter().filter(|child| sought.is_meant(child)).cloned());
        meant
    };
    if children.is_empty() {
        return Err(Errno::ECHILD.into());
    }
    for child in children {
        if let Some(status) = sought.news(&child) {
            let family = child.family.lock();
            let (usage, ended) = (family.usage.and(&family.children_usage), family.ended);
            drop(family);
            if ended.is_some() && !sought.keeps {
                exit::reap(process, &child);
            }
            return Ok(Some((child.pid, status, usage)));
        }
    }
    if sought.waits { Err(Stop::Wait(None)) } else { Ok(None) }
}

pub(super) fn wait4(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [pid, status, options, usage, ..] = args;
    let options = options as u32;
    let known = abi::WNOHANG | abi::WUNTRACED | abi::WCONTINUED | abi::__WALL | abi::__WCLONE;
    if options & !(known | abi::__WNOTHREAD) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let which = match pid as i32 {
        -1 => Which::Any,
        0 => Which::Group(thread.process().ids.lock().group),
        pid if pid > 0 => Which::Pid(pid as u32),
        i32::MIN => return Err(Errno::ESRCH.into()),
        group => Which::Group(group.unsigned_abs()),
    };
    let sought = Sought {
        which,
        ended: true,
        stopped: options & abi::WUNTRACED != 0,
        continued: options & abi::WCONTINUED != 0,
        keeps: false,
        waits: options & abi::WNOHANG == 0,
    };
    let Some((pid, found, used)) = seek(thread, &sought)? else { return Ok(0) };
    if status != 0 {
        user::write(status as u64, &found.word())?;
    }
    if usage != 0 {
        user::write(usage as u64, &used.encode())?;
    }
    Ok(pid as usize)
}

pub(super) fn waitid(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [kind, id, info, options, usage, _] = args;
    let options = options as u32;
    let events = abi::WEXITED | abi::WSTOPPED | abi::WCONTINUED;
    let known = events | abi::WNOHANG | abi::WNOWAIT | abi::__WALL | abi::__WCLONE;
    if options & !(known | abi::__WNOTHREAD) != 0 || options & events == 0 {
        return Err(Errno::EINVAL.into());
    }
    let which = match kind as u32 {
        abi::P_ALL => Which::Any,
        abi::P_PID if id as i32 > 0 => Which::Pid(id as u32),
        abi::P_PGID if id == 0 => Which::Group(thread.process().ids.lock().group),
        abi::P_PGID if id as i32 > 0 => Which::Group(id as u32),
        _ => return Err(Errno::EINVAL.into()),
    };
    let sought = Sought {
        which,
        ended: options & abi::WEXITED != 0,
        stopped: options & abi::WSTOPPED != 0,
        continued: options & abi::WCONTINUED != 0,
        keeps: options & abi::WNOWAIT != 0,
        waits: options & abi::WNOHANG == 0,
    };
    let found = seek(thread, &sought)?;
    if info != 0 {
        let bytes = match found {
            Some((pid, status, _)) => status.info(pid as i32, 0, &Usage::default()).encode(),
            None => [0; quire_linux::signal::INFO_BYTES],
        };
        user::write(info as u64, &bytes)?;
    }
    if let (Some((_, _, used)), 1..) = (found, usage) {
        user::write(usage as u64, &used.encode())?;
    }
    Ok(0)
}

pub(super) fn getpid(thread: &mut Thread, _: [usize; 6]) -> Answer {
    Ok(thread.process().pid as usize)
}

pub(super) fn gettid(thread: &mut Thread, _: [usize; 6]) -> Answer {
    Ok(thread.task.tid as usize)
}

pub(super) fn getppid(thread: &mut Thread, _: [usize; 6]) -> Answer {
    Ok(thread.process().parent_pid() as usize)
}

/// A process by number, where 0 is the caller.
fn named(thread: &Thread, pid: usize) -> Result<Arc<Process>> {
    match pid {
        0 => Ok(thread.process().clone()),
        _ => find(pid as u32).ok_or(Errno::ESRCH),
    }
}

pub(super) fn getpgid(thread: &mut Thread, [pid, ..]: [usize; 6]) -> Answer {
    let ids = *named(thread, pid)?.ids.lock();
    Ok(ids.group as usize)
}

#[cfg(target_arch = "x86_64")]
pub(super) fn getpgrp(thread: &mut Thread, _: [usize; 6]) -> Answer {
    getpgid(thread, [0; 6])
}

pub(super) fn getsid(thread: &mut Thread, [pid, ..]: [usize; 6]) -> Answer {
    let ids = *named(thread, pid)?.ids.lock();
    Ok(ids.session as usize)
}

pub(super) fn setpgid(thread: &mut Thread, [pid, group, ..]: [usize; 6]) -> Answer {
    let group = if group as i32 == 0 { pid } else { group };
    if (group as i32) < 0 {
        return Err(Errno::EINVAL.into());
    }
    let process = named(thread, pid)?;
    let own = thread.process();
    if process.pid != own.pid && process.parent_pid() != own.pid {
        return Err(Errno::ESRCH.into());
    }
    let session = own.ids.lock().session;
    let group = if group == 0 { process.pid } else { group as u32 };
    let mut ids = process.ids.lock();
    if ids.session == process.pid || ids.session != session {
        return Err(Errno::EPERM.into());
    }
    ids.group = group;
    Ok(0)
}

pub(super) fn setsid(thread: &mut Thread, _: [usize; 6]) -> Answer {
    let pid = thread.process().pid;
    let mut next = processes(1);
    while let Some(process) = next {
        if process.ids.lock().group == pid {
            return Err(Errno::EPERM.into());
        }
        next = processes(process.pid + 1);
    }
    *thread.process().ids.lock() = crate::task::Ids { group: pid, session: pid };
    Ok(pid as usize)
}

pub(super) fn set_tid_address(thread: &mut Thread, [address, ..]: [usize; 6]) -> Answer {
    thread.task.clear_tid.store(address as u64, Ordering::Relaxed);
    gettid(thread, [0; 6])
}

pub(super) fn sched_yield(_: &mut Thread, _: [usize; 6]) -> Answer {
    Err(Stop::Yield)
}

/// The CPUs that there are, a bit for each.
fn present() -> u32 {
    (1 << isa::cpu_count()) - 1
}

/// The thread `tid`; 0 is the caller.
pub(super) fn task_of(thread: &Thread, tid: usize) -> Result<Arc<Task>> {
    if tid == 0 {
        return Ok(thread.task.clone());
    }
    find_task(tid as u32).ok_or(Errno::ESRCH)
}

pub(super) fn sched_getaffinity(thread: &mut Thread, [tid, bytes, out, ..]: [usize; 6]) -> Answer {
    let cpus = task_of(thread, tid)?.cpus() & present();
    if bytes < 8 || !bytes.is_multiple_of(8) {
        return Err(Errno::EINVAL.into());
    }
    user::write(out as u64, &u64::from(cpus))?;
    Ok(8)
}

pub(super) fn getcpu(_: &mut Thread, [cpu, node, ..]: [usize; 6]) -> Answer {
    let number = isa::cpu().index() as u32;
    for (address, value) in [(cpu, number), (node, 0)] {
        if address != 0 {
            user::write(address as u64, &value)?;
        }
    }
    Ok(0)
}

pub(super) fn sched_setaffinity(thread: &mut Thread, [tid, bytes, from, ..]: [usize; 6]) -> Answer {
    let mut mask = [0; 8];
    let count = bytes.min(8);
    user::read_bytes(from as u64, &mut mask[..count])?;
    let task = task_of(thread, tid)?;
    super::schedule::may_change(thread, &task)?;
    let cpus = u64::from_le_bytes(mask) as u32 & present();
    if cpus == 0 {
        return Err(Errno::EINVAL.into());
    }
    task.set_cpus(cpus);
    let is_here = thread.task.cpus() >> isa::cpu().index() & 1 != 0;
    if is_here { Ok(0) } else { Err(Stop::Yield) }
}
