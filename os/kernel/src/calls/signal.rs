//! Signals: the calls about them, and their delivery when a thread is about to run.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as abi;
use quire_linux::signal::frame::Delivery;
use quire_linux::signal::status::Status;
use quire_linux::signal::{
    self, ACTION_BYTES, ALT_STACK_BYTES, Action, AltStack, Decision, Flags, INFO_BYTES, Info, Set,
    Signal,
};
use quire_linux::{Errno, Result, Wake};

use super::time::timespec;
use crate::isa;
use crate::memory::{Own, user, vdso};
use crate::task::{Answer, Process, Resume, Stop, Thread, exit, find, find_task, send};

/// The next step of a thread.
pub(crate) enum Fate {
    /// Run.
    Runs,
    /// Nothing until a signal continues its process.
    Stopped,
    /// End.
    Ends(Status),
}

/// Answers the signals that a thread has, before it runs. `interrupted`: it is about to make a
/// call again that waited; where a handler is to run, that call ends.
pub(crate) fn answer(thread: &mut Thread) -> Fate {
    while thread.task.is_summoned() {
        if thread.task.doomed.load(Ordering::Acquire) {
            return Fate::Ends(Status::Exited(0));
        }
        let Some((info, blocked)) = take(thread) else { break };
        let decision = thread.process().signals.lock().actions.deliver(&info);
        match decision {
            Decision::Ignore | Decision::Continue => {}
            Decision::Terminate { core } => return terminate(thread, info.signal, core),
            Decision::Stop => {
                stop(thread.process(), info.signal);
                return Fate::Stopped;
            }
            Decision::Handle { action } => {
                end_call(thread, &action);
                if handle(thread, &info, &action, blocked).is_err() {
                    return terminate(thread, Signal::SEGV, true);
                }
            }
        }
    }
    if thread.is_stopped() {
        return Fate::Stopped;
    }
    restore_mask(thread);
    Fate::Runs
}

fn terminate(thread: &Thread, signal: Signal, core: bool) -> Fate {
    // Memory is never dumped to a file; the status says so where the limit asks for that.
    let core = core && thread.process().limits.soft(abi::RLIMIT_CORE) > 0;
    let status = Status::Killed { signal, core };
    exit::doom(thread.process(), status);
    Fate::Ends(status)
}

/// The next signal to answer, and the mask to restore after its handler.
fn take(thread: &mut Thread) -> Option<(Info, Set)> {
    let process = thread.process().clone();
    // This comes first: the lock of the list of threads is taken before their signals. No other
    // thread starts one.
    let alone = process.threads.lock().len() == 1;
    let mut shared = process.signals.lock();
    let mut own = thread.task.signals.lock();
    let blocked = own.blocked;
    let next = signal::next(&mut own.pending, &mut shared.pending, blocked);
    if next.is_none() && shared.pending.set().is_empty() {
        // Other threads may have some: the hint is theirs, too.
        if alone && own.pending.set().is_empty() {
            process.has_signals.store(false, Ordering::Release);
        }
    }
    next.map(|info| (info, thread.saved_mask.unwrap_or(blocked)))
}

/// The thread waits no longer: the call ends with `EINTR`, or is restarted after the handler where
/// action and call allow that.
fn end_call(thread: &mut Thread, action: &Action) {
    let Some(call) = thread.call.take() else { return };
    let resume = core::mem::take(&mut thread.resume);
    resume.leave();
    if let Resume::Moved(count @ 1..) | Resume::Within(count @ 1.., _) = resume {
        thread.context.answer(count as isize);
    } else if action.flags.contains(Flags::RESTART) && super::is_restarted(&call, &resume) {
        thread.context.again(&call);
    } else {
        thread.context.answer(-(Errno::EINTR.number() as isize));
    }
}

/// Makes the thread run a handler.
fn handle(thread: &mut Thread, info: &Info, action: &Action, blocked: Set) -> Result<()> {
    let alt_stack = thread.task.signals.lock().alt_stack;
    let delivery = Delivery { info, action, blocked, alt_stack };
    let own = Own::get().ok_or(Errno::EFAULT)?;
    let sigreturn = vdso::sigreturn(&own);
    let (address, bytes) = thread.context.deliver(&delivery, sigreturn)?;
    user::write_bytes(address, &bytes)?;
    thread.saved_mask = None;
    let mut own = thread.task.signals.lock();
    own.blocked = action.blocked_meanwhile(info.signal, own.blocked);
    own.alt_stack = alt_stack.while_handled();
    Ok(())
}

/// Stops a process, and notifies its parent.
fn stop(process: &alloc::sync::Arc<Process>, signal: Signal) {
    let was_stopped = {
        let _signals = process.signals.lock();
        process.is_stopped.swap(true, Ordering::SeqCst)
    };
    if !was_stopped {
        send::tell_parent(process, Status::Stopped(signal));
        process.threads.lock().iter().for_each(|task| task.summon());
    }
}

/// A signal that the thread itself has caused, and cannot go on without.
pub(crate) fn force(thread: &Thread, info: Info) {
    let process = thread.process();
    {
        let mut shared = process.signals.lock();
        let mut own = thread.task.signals.lock();
        let mut blocked = own.blocked;
        shared.actions.force(info.signal, &mut blocked);
        own.blocked = blocked;
        // It is the thread's own, and of a kind that is never refused.
        let _ = own.pending.add(info);
        process.has_signals.store(true, Ordering::Release);
    }
}

/// Blocks `mask` for the length of a call that waits; the old mask comes back afterwards.
pub(super) fn lend_mask(thread: &mut Thread, mask: Set) {
    let mut own = thread.task.signals.lock();
    if thread.saved_mask.is_none() {
        thread.saved_mask = Some(own.blocked);
    }
    own.blocked = mask.blockable();
    drop(own);
    // A pending signal may be unblocked now: then the call must not park.
    if thread.task.is_summoned() {
        thread.task.wake();
    }
}

/// Ends what [`lend_mask`] began, unless the call goes on.
fn restore_mask(thread: &mut Thread) {
    if thread.call.is_none()
        && let Some(mask) = thread.saved_mask.take()
    {
        thread.task.signals.lock().blocked = mask;
    }
}

/// Reads a program's signal set of the size that it passes.
fn read_set(address: usize, bytes: usize) -> Result<Set> {
    if bytes != 8 {
        return Err(Errno::EINVAL);
    }
    Ok(Set(user::read(address as u64)?))
}

pub(super) fn rt_sigaction(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [number, new, old, bytes, ..] = args;
    let signal = Signal::new(number as u64)?;
    if bytes != 8 {
        return Err(Errno::EINVAL.into());
    }
    let action = match new {
        0 => None,
        _ => Some(Action::decode(&user::read::<[u8; ACTION_BYTES]>(new as u64)?)),
    };
    let process = thread.process().clone();
    let before = {
        let mut signals = process.signals.lock();
        match action {
            Some(action) => signals.actions.set(signal, action)?,
            None => *signals.actions.get(signal),
        }
    };
    if action.is_some_and(|action| action.ignores(signal)) {
        process.signals.lock().pending.forget(Set::of(signal));
        for task in process.threads.lock().iter() {
            task.signals.lock().pending.forget(Set::of(signal));
        }
    }
    if old != 0 {
        user::write(old as u64, &before.encode())?;
    }
    Ok(0)
}

pub(super) fn rt_sigprocmask(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [how, new, old, bytes, ..] = args;
    if bytes != 8 {
        return Err(Errno::EINVAL.into());
    }
    let change = if new == 0 { None } else { Some(read_set(new, bytes)?) };
    let before = {
        let mut own = thread.task.signals.lock();
        let before = own.blocked;
        if let Some(change) = change {
            own.blocked = before.changed(how as u64, change)?;
        }
        before
    };
    // A signal that this thread had blocked, and another was chosen for, may be this one's now.
    if old != 0 {
        user::write(old as u64, &before.0)?;
    }
    Ok(0)
}

pub(super) fn rt_sigpending(thread: &mut Thread, [out, bytes, ..]: [usize; 6]) -> Answer {
    if bytes > 8 {
        return Err(Errno::EINVAL.into());
    }
    let shared = thread.process().signals.lock().pending.set();
    let own = thread.task.signals.lock();
    let pending = shared.or(own.pending.set()).and(own.blocked);
    drop(own);
    user::write_bytes(out as u64, &pending.0.to_le_bytes()[..bytes])?;
    Ok(0)
}

pub(super) fn rt_sigsuspend(thread: &mut Thread, [mask, bytes, ..]: [usize; 6]) -> Answer {
    if thread.saved_mask.is_none() {
        let mask = read_set(mask, bytes)?;
        lend_mask(thread, mask);
    }
    Err(Stop::Wait(None))
}

#[cfg(target_arch = "x86_64")]
pub(super) fn pause(_: &mut Thread, _: [usize; 6]) -> Answer {
    Err(Stop::Wait(None))
}

pub(super) fn rt_sigtimedwait(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [set, out, timeout, bytes, ..] = args;
    let set = read_set(set, bytes)?.blockable();
    let hour = match thread.resume {
        Resume::Until(hour) => hour,
        _ if timeout == 0 => None,
        _ => Some(isa::now().saturating_add(timespec(timeout as u64)?)),
    };
    let found = {
        let process = thread.process().clone();
        let mut shared = process.signals.lock();
        let mut own = thread.task.signals.lock();
        own.pending.take(Set(!set.0)).or_else(|| shared.pending.take(Set(!set.0)))
    };
    if let Some(info) = found {
        if out != 0 {
            user::write(out as u64, &info.encode())?;
        }
        return Ok(info.signal.number().into());
    }
    if hour.is_some_and(|hour| isa::now() >= hour) {
        return Err(Errno::EAGAIN.into());
    }
    thread.resume = Resume::Until(hour);
    Err(Stop::Wait(hour))
}

pub(super) fn rt_sigreturn(thread: &mut Thread, _: [usize; 6]) -> Answer {
    let back = thread.context.handled(&|address, bytes| user::read_bytes(address, bytes));
    match back {
        Ok((blocked, stack)) => {
            let sp = thread.context.sp();
            let mut own = thread.task.signals.lock();
            own.blocked = blocked;
            if let Ok(stack) = own.alt_stack.changed(stack, sp, isa::SIGNAL_STACK_BYTES) {
                own.alt_stack = stack;
            }
        }
        Err(_) => force(thread, Info::kernel(Signal::SEGV)),
    }
    Err(Stop::Same)
}

pub(super) fn sigaltstack(thread: &mut Thread, [new, old, ..]: [usize; 6]) -> Answer {
    let new = match new {
        0 => None,
        _ => Some(AltStack::decode(&user::read::<[u8; ALT_STACK_BYTES]>(new as u64)?)),
    };
    let sp = thread.context.sp();
    let before = thread.task.signals.lock().alt_stack;
    if let Some(new) = new {
        let stack = before.changed(new, sp, MIN_STACK_BYTES)?;
        thread.task.signals.lock().alt_stack = stack;
    }
    if old != 0 {
        user::write(old as u64, &before.told(sp).encode())?;
    }
    Ok(0)
}

/// The smallest alternative stack that is accepted: `MINSIGSTKSZ`, which programs are built with.
const MIN_STACK_BYTES: u64 = if cfg!(target_arch = "aarch64") { 5120 } else { 2048 };

pub(super) fn kill(thread: &mut Thread, [pid, number, ..]: [usize; 6]) -> Answer {
    let info = sent(thread, number)?;
    match pid as i32 {
        pid if pid > 0 => {
            let process = find(pid as u32).ok_or(Errno::ESRCH)?;
            check(thread, &process, info)?;
            if let Some(info) = info {
                send::to_process(&process, info)?;
            }
        }
        0 => {
            let group = thread.process().ids.lock().group;
            send::to_group(Some(thread.process()), group, info)?;
        }
        -1 => send::to_all(thread.process(), info)?,
        group => send::to_group(Some(thread.process()), group.unsigned_abs(), info)?,
    }
    Ok(0)
}

/// Whether the caller may send this signal to a process.
///
/// # Errors
/// `EPERM`.
fn check(thread: &Thread, to: &Process, info: Option<Info>) -> Result<()> {
    let own = thread.process();
    let goes_on = info.is_some_and(|info| info.signal == Signal::CONT)
        && own.ids.lock().session == to.ids.lock().session;
    let may = own.pid == to.pid || goes_on || own.may().may_signal(&to.may());
    if may { Ok(()) } else { Err(Errno::EPERM) }
}

/// The signal that `kill` sends; none for signal 0, which only asks whether the process exists.
fn sent(thread: &Thread, number: usize) -> Result<Option<Info>> {
    match number {
        0 => Ok(None),
        _ => {
            let signal = Signal::new(number as u64)?;
            let uid = thread.process().may().users.real;
            Ok(Some(Info::kill(signal, thread.process().pid as i32, uid)))
        }
    }
}

pub(super) fn tkill(thread: &mut Thread, [tid, number, ..]: [usize; 6]) -> Answer {
    to_thread(thread, None, tid, number)
}

pub(super) fn tgkill(thread: &mut Thread, [pid, tid, number, ..]: [usize; 6]) -> Answer {
    if pid as i32 <= 0 {
        return Err(Errno::EINVAL.into());
    }
    to_thread(thread, Some(pid), tid, number)
}

fn to_thread(thread: &Thread, pid: Option<usize>, tid: usize, number: usize) -> Answer {
    if tid as i32 <= 0 {
        return Err(Errno::EINVAL.into());
    }
    let info = sent(thread, number)?.map(|info| Info { code: signal::code::THREAD, ..info });
    let task = find_task(tid as u32).ok_or(Errno::ESRCH)?;
    if pid.is_some_and(|pid| pid != task.process.pid as usize) {
        return Err(Errno::ESRCH.into());
    }
    check(thread, &task.process, info)?;
    if let Some(info) = info {
        send::to_task(&task, info)?;
    }
    Ok(0)
}

pub(super) fn rt_sigqueueinfo(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [pid, number, info, ..] = args;
    if number as u32 == 0 {
        user::read::<[u8; INFO_BYTES]>(info as u64)?;
        let process = find(pid as u32).ok_or(Errno::ESRCH)?;
        check(thread, &process, None)?;
        return Ok(0);
    }
    let signal = Signal::new(number as u64)?;
    let own = pid == thread.process().pid as usize;
    let info = Info::decode(signal, &user::read::<[u8; INFO_BYTES]>(info as u64)?, own)?;
    let process = find(pid as u32).ok_or(Errno::ESRCH)?;
    check(thread, &process, Some(info))?;
    send::to_process(&process, info)?;
    Ok(0)
}

/// The signal for a fault that has no page.
pub(crate) fn of_fault(address: u64, error: quire::Error) -> Option<Info> {
    use quire::Error;
    Some(match error {
        Error::Denied(..) | Error::Forbidden(..) => {
            Info::fault(Signal::SEGV, abi::SEGV_ACCERR as i32, address)
        }
        Error::Poisoned(_) => Info::fault(Signal::BUS, abi::BUS_MCEERR_AR as i32, address),
        Error::Missing(_) | Error::Failed(..) | Error::NoReserved(_) => {
            Info::fault(Signal::BUS, signal::code::BUS_ADDRESS, address)
        }
        Error::NoMemory(_) | Error::OverLimit(_) => return None,
        _ => Info::fault(Signal::SEGV, abi::SEGV_MAPERR as i32, address),
    })
}
