//! Descriptors of events: `eventfd`, `epoll` and `signalfd`.

use alloc::sync::{Arc, Weak};

use linux_raw_sys::general as abi;
use quire_linux::files::{
    Body, Caller, Epoll, Event, Events, Halt, Object, Outcome, PollEvents, Sink,
};
use quire_linux::signal::{Info, Set, Signal, info_for_file};
use quire_linux::{Errno, Result, Wake};
use spin::mutex::SpinMutex;

use super::poll::{Wait, how_long, mask_at};
use super::timer::open_object;
use crate::memory::user;
use crate::task::tree::with_calls;
use crate::task::{Answer, Process, Thread, find, find_task};

const STATUS: usize = (abi::O_CLOEXEC | abi::O_NONBLOCK) as usize;

pub(super) fn eventfd2(thread: &mut Thread, [count, flags, ..]: [usize; 6]) -> Answer {
    const SEMAPHORE: usize = 1;
    if flags & !(STATUS | SEMAPHORE) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let events = Events::new(u64::from(count as u32), flags & SEMAPHORE != 0);
    open_object(thread, Arc::new(events), flags as u32)
}

#[cfg(target_arch = "x86_64")]
pub(super) fn eventfd(thread: &mut Thread, [count, ..]: [usize; 6]) -> Answer {
    eventfd2(thread, [count, 0, 0, 0, 0, 0])
}

pub(super) fn epoll_create1(thread: &mut Thread, [flags, ..]: [usize; 6]) -> Answer {
    if flags & !(abi::O_CLOEXEC as usize) != 0 {
        return Err(Errno::EINVAL.into());
    }
    open_object(thread, Arc::new(Epoll::default()), flags as u32)
}

#[cfg(target_arch = "x86_64")]
pub(super) fn epoll_create(thread: &mut Thread, [size, ..]: [usize; 6]) -> Answer {
    if size as i32 <= 0 {
        return Err(Errno::EINVAL.into());
    }
    epoll_create1(thread, [0; 6])
}

/// Bytes of an `epoll_event`, and where its data is: packed on x86-64 only.
const EVENT: (usize, usize) = if cfg!(target_arch = "x86_64") { (12, 4) } else { (16, 8) };

pub(super) fn epoll_ctl(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [set, operation, fd, event, ..] = args;
    let operation = operation as u32;
    let wish = match operation {
        abi::EPOLL_CTL_DEL => Event { events: 0, data: 0 },
        _ => {
            Event { events: user::read(event as u64)?, data: user::read((event + EVENT.1) as u64)? }
        }
    };
    with_calls(thread, |calls| {
        let set = calls.open_file(set as u32)?;
        let file = calls.open_file(fd as u32)?;
        Epoll::of(&set)?.control(operation, fd as u32, &file, wish)
    })?;
    Ok(0)
}

/// One pass: the reports, or a wait.
fn wait_once(thread: &mut Thread, wait: &Wait, set: usize, out: usize, most: usize) -> Answer {
    let found = with_calls(thread, |calls| {
        let set = calls.open_file(set as u32)?;
        let waiter = (!wait.is_over()).then_some(calls.who.wake);
        Epoll::of(&set)?.wait(waiter, most)
    })?;
    if found.is_empty() && !wait.is_over() {
        return wait.park(thread);
    }
    for (at, event) in found.iter().enumerate() {
        let place = (out + at * EVENT.0) as u64;
        user::write(place, &event.events)?;
        user::write(place + EVENT.1 as u64, &event.data)?;
    }
    Ok(found.len())
}

/// The number of reports that there is room for.
fn room(most: usize) -> Result<usize> {
    usize::try_from(most as i32).ok().filter(|most| *most > 0).ok_or(Errno::EINVAL)
}

fn milliseconds(timeout: usize) -> Option<u64> {
    u64::try_from(timeout as i32).ok().map(|ms| ms * 1_000_000)
}

#[cfg(target_arch = "x86_64")]
pub(super) fn epoll_wait(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [set, out, most, timeout, ..] = args;
    epoll_pwait(thread, [set, out, most, timeout, 0, 0])
}

pub(super) fn epoll_pwait(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [set, out, most, timeout, mask, bytes] = args;
    let most = room(most)?;
    let wait = Wait::begin(thread, || Ok(milliseconds(timeout)), || mask_at(mask, bytes))?;
    wait_once(thread, &wait, set, out, most)
}

pub(super) fn epoll_pwait2(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [set, out, most, timeout, mask, bytes] = args;
    let most = room(most)?;
    let wait = Wait::begin(thread, || how_long(timeout), || mask_at(mask, bytes))?;
    wait_once(thread, &wait, set, out, most)
}

/// Signals as a file: a read takes those that are pending, of the caller's.
struct SignalFile {
    set: SpinMutex<Set>,
    /// The process that made it, whose signals make it ready.
    process: Weak<Process>,
}

impl SignalFile {
    fn take(&self, who: &Caller<'_>) -> Option<Info> {
        let set = *self.set.lock();
        let (process, task) = (find(who.pid)?, find_task(who.tid)?);
        let mut shared = process.signals.lock();
        let mut own = task.signals.lock();
        own.pending.take(Set(!set.0)).or_else(|| shared.pending.take(Set(!set.0)))
    }
}

impl Object for SignalFile {
    fn name(&self) -> &'static str {
        "[signalfd]"
    }

    fn read(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Outcome<usize> {
        let bytes = quire_linux::signal::INFO_BYTES;
        if count < bytes {
            return Err(Errno::EINVAL.into());
        }
        self.wait_on(who.wake)?;
        let mut done = 0;
        while done + bytes <= count
            && let Some(info) = self.take(who)
        {
            sink.put(&info_for_file(&info))?;
            done += bytes;
        }
        match done {
            0 if nonblocking => Err(Errno::EAGAIN.into()),
            0 => Err(Halt::Blocked),
            done => Ok(done),
        }
    }

    fn readiness(&self) -> PollEvents {
        let set = *self.set.lock();
        let pending = self.process.upgrade().is_some_and(|process| {
            let shared = process.signals.lock().pending.set();
            let own = process
                .threads
                .lock()
                .iter()
                .fold(shared, |all, task| all.or(task.signals.lock().pending.set()));
            !own.and(set).is_empty()
        });
        let mut events = PollEvents::empty();
        events.set(PollEvents::IN | PollEvents::RDNORM, pending);
        events
    }

    fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()> {
        self.process.upgrade().map_or(Ok(()), |process| process.signal_news.add(who))
    }
}

pub(super) fn signalfd4(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [fd, mask, bytes, flags, ..] = args;
    if flags & !STATUS != 0 {
        return Err(Errno::EINVAL.into());
    }
    let set = mask_at(mask, bytes)?.ok_or(Errno::EFAULT)?;
    let set = set.and_not(Set::of(Signal::KILL).with(Signal::STOP));
    if fd as i32 == -1 {
        let process = Arc::downgrade(thread.process());
        let file = SignalFile { set: SpinMutex::new(set), process };
        return open_object(thread, Arc::new(file), flags as u32);
    }
    let open = with_calls(thread, |calls| calls.open_file(fd as u32))?;
    let Body::Object(object) = open.node().body() else { return Err(Errno::EINVAL.into()) };
    let object: &dyn core::any::Any = &**object;
    let file: &SignalFile = object.downcast_ref().ok_or(Errno::EINVAL)?;
    *file.set.lock() = set;
    thread.process().signal_news.wake();
    Ok(fd)
}

#[cfg(target_arch = "x86_64")]
pub(super) fn signalfd(thread: &mut Thread, [fd, mask, bytes, ..]: [usize; 6]) -> Answer {
    signalfd4(thread, [fd, mask, bytes, 0, 0, 0])
}
