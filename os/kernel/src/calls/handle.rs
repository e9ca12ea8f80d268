//! Handles of processes (`pidfd_open`), and calls on them.

use alloc::sync::Arc;

use linux_raw_sys::general as abi;
use quire_linux::files::{Body, Description, Generated, PollEvents};
use quire_linux::{Errno, Result, Wake};

use super::advice::{Advised, advise};
use super::memory;
use super::signal;
use super::{shown, swap};
use crate::memory::user;
use crate::task::tree::{time, tree, with_calls};
use crate::task::{Answer, Process, Resume, Stop, Thread, find};

/// A process that is meant by its number, which no other gets while the handle matters: numbers
/// come round after four million.
struct Handle(u32);

impl Generated for Handle {
    fn process(&self) -> Option<u32> {
        Some(self.0)
    }

    fn readiness(&self) -> PollEvents {
        match find(self.0).is_none_or(|process| process.is_zombie()) {
            true => PollEvents::IN | PollEvents::RDNORM,
            false => PollEvents::empty(),
        }
    }

    fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()> {
        find(self.0).map_or(Ok(()), |process| process.returned.add(who))
    }
}

pub(super) fn pidfd_open(thread: &mut Thread, [pid, flags, ..]: [usize; 6]) -> Answer {
    let nonblock = abi::O_NONBLOCK as usize;
    if pid as i32 <= 0 || flags & !nonblock != 0 {
        return Err(Errno::EINVAL.into());
    }
    crate::memory::admit()?;
    let process = find(pid as u32).ok_or(Errno::ESRCH)?;
    let node = tree().make(Body::Generated(Arc::new(Handle(process.pid))), 0o600, time());
    let status = abi::O_RDWR | if flags & nonblock != 0 { abi::O_NONBLOCK } else { 0 };
    let open = Arc::new(Description::new(node, None, status, None));
    Ok(with_calls(thread, |calls| calls.table.add(open, true, 0))? as usize)
}

/// `PIDFD_SELF_THREAD` and `PIDFD_SELF_THREAD_GROUP`: the caller itself (Linux 6.14; newer than the
/// constants at hand).
const SELF: [i32; 2] = [-10000, -10001];

/// The process that a descriptor is a handle of.
///
/// # Errors
/// `EBADF` when it is none; `ESRCH` when the process is gone.
fn process_of(thread: &Thread, fd: usize) -> Result<Arc<Process>> {
    if SELF.contains(&(fd as i32)) {
        return Ok(thread.process().clone());
    }
    let open = with_calls(thread, |calls| calls.open_file(fd as u32))?;
    let pid = match open.node().body() {
        Body::Generated(generated) => generated.process(),
        _ => None,
    };
    find(pid.ok_or(Errno::EBADF)?).ok_or(Errno::ESRCH)
}

/// Sends a signal to the process of a handle, as `rt_sigqueueinfo` does, or `kill`.
pub(super) fn pidfd_send_signal(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [fd, number, info, flags, ..] = args;
    // At most one of PIDFD_SIGNAL_THREAD, _THREAD_GROUP and _PROCESS_GROUP.
    if flags as u32 > 4 || (flags as u32).count_ones() > 1 {
        return Err(Errno::EINVAL.into());
    }
    let pid = process_of(thread, fd)?.pid as usize;
    match info {
        0 => signal::kill(thread, [pid, number, 0, 0, 0, 0]),
        _ => signal::rt_sigqueueinfo(thread, [pid, number, info, 0, 0, 0]),
    }
}

/// A process that is ending gives its memory back as soon as its threads have seen that: this call
/// only returns success.
pub(super) fn process_mrelease(thread: &mut Thread, [fd, flags, ..]: [usize; 6]) -> Answer {
    if flags != 0 {
        return Err(Errno::EINVAL.into());
    }
    let process = process_of(thread, fd)?;
    let (is_doomed, has_ended) = {
        let family = process.family.lock();
        (family.fate.is_some(), family.ended.is_some())
    };
    if has_ended {
        return Err(Errno::ESRCH.into());
    }
    if is_doomed { Ok(0) } else { Err(Errno::EINVAL.into()) }
}

/// The advice that is allowed for another process: none that changes the content of its memory.
fn is_gentle(advice: u32) -> bool {
    matches!(advice, abi::MADV_COLD | abi::MADV_PAGEOUT | abi::MADV_WILLNEED | abi::MADV_COLLAPSE)
}

/// Pieces that one call may name (`IOV_MAX`).
const PIECES_MAX: usize = 1024;

pub(super) fn process_madvise(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [fd, array, count, advice, flags, _] = args;
    if flags != 0 || count > PIECES_MAX {
        return Err(Errno::EINVAL.into());
    }
    if let Resume::Moved(done) = thread.resume {
        return swap::written_again(thread, done);
    }
    let process = process_of(thread, fd)?;
    let is_own = process.pid == thread.process().pid;
    let may = |advised: &Advised| match advised {
        // A process populates its own pages by `madvise`.
        Advised::Populate(_) => false,
        _ => is_own || is_gentle(advice as u32),
    };
    let advised = Advised::of(advice as u32).filter(may);
    let advised = advised.ok_or(Errno::EINVAL)?;
    if !is_own && !thread.process().may().may_trace(&process.may()) {
        return Err(Errno::EPERM.into());
    }
    let target = process.memory().ok_or(Errno::ESRCH)?;
    let mut done = 0;
    for at in 0..count {
        let [start, bytes] = user::read::<[usize; 2]>((array + 16 * at) as u64)?;
        let advise = match memory::pages(start, bytes) {
            Ok(span) if span.is_empty() => Ok(()),
            Ok(span) if matches!(advised, Advised::Collapse) => {
                shown::collapse(thread, &target, span).map(drop)
            }
            Ok(span) => advise(&target, span, advised).map_err(Stop::from),
            Err(error) => Err(error.into()),
        };
        match advise {
            Ok(()) => done += bytes,
            Err(Stop::Fail(_)) if done > 0 => break,
            Err(stop) => return Err(stop),
        }
    }
    if matches!(advised, Advised::PageOut) {
        return swap::written(thread, done);
    }
    Ok(done)
}
