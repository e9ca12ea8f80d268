//! Timers of a process: `alarm`, `setitimer`, `timer_create` and their kin, and timers that are
//! open files (`timerfd`).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use linux_raw_sys::general as abi;
use quire_linux::files::Halt;
use quire_linux::files::{Body, Caller, Description, Object, Outcome, PollEvents, Sink};
use quire_linux::signal::{Detail, Info, Signal, code};
use quire_linux::{Errno, Result, Wake};

use super::time::{self, SECOND};
use crate::isa;
use crate::memory::user;
use crate::task::timer::{Target, Timer};
use crate::task::tree::{tree, with_calls};
use crate::task::{Answer, Process, Thread, find_task};

/// Microseconds of a second.
const MICROS: u64 = 1_000_000;

/// The most timers of one process.
const TIMERS_MAX: usize = 1024;

/// A `timeval` as nanoseconds.
fn of_timeval([seconds, micros]: [i64; 2]) -> Result<u64> {
    if seconds < 0 || !(0..MICROS as i64).contains(&micros) {
        return Err(Errno::EINVAL);
    }
    Ok((seconds as u64).saturating_mul(SECOND).saturating_add(micros as u64 * 1000))
}

/// Nanoseconds as a `timeval`, rounded up.
fn timeval(ns: u64) -> [u64; 2] {
    let micros = ns.div_ceil(1000);
    [micros / MICROS, micros % MICROS]
}

/// The interval timer `which`: sets it if there is something new; what was left, and the period.
fn interval(process: &Arc<Process>, which: usize, new: Option<[u64; 2]>) -> Result<[u64; 2]> {
    let ran = process.ran.load(Ordering::Relaxed);
    match which as u32 {
        abi::ITIMER_REAL => {}
        abi::ITIMER_VIRTUAL => return Ok(process.run_timers.set(0, new, ran)),
        abi::ITIMER_PROF => return Ok(process.run_timers.set(1, new, ran)),
        _ => return Err(Errno::EINVAL),
    }
    let timer = {
        let mut timers = process.timers.lock();
        let target = || Target::Process(Arc::downgrade(process), Info::kernel(Signal::ALRM));
        timers.real.get_or_insert_with(|| Timer::new(target())).clone()
    };
    Ok(match new {
        None => timer.left(),
        Some([0, _]) => timer.set(None, 0),
        Some([first, period]) => timer.set(Some(isa::now().saturating_add(first)), period),
    })
}

#[cfg(target_arch = "x86_64")]
pub(super) fn alarm(thread: &mut Thread, [seconds, ..]: [usize; 6]) -> Answer {
    let first = u64::from(seconds as u32) * SECOND;
    let [left, _] = interval(thread.process(), abi::ITIMER_REAL as usize, Some([first, 0]))?;
    // Less than half a second more is not shown, but a timer that runs never shows 0.
    let shown = (left + SECOND / 2) / SECOND;
    Ok(shown.max(u64::from(left > 0)) as usize)
}

pub(super) fn setitimer(thread: &mut Thread, [which, new, old, ..]: [usize; 6]) -> Answer {
    let [period, first] = match new {
        0 => [0, 0],
        _ => {
            let [a, b, c, d] = user::read::<[i64; 4]>(new as u64)?;
            [of_timeval([a, b])?, of_timeval([c, d])?]
        }
    };
    let before = interval(thread.process(), which, Some([first, period]))?;
    if old != 0 {
        put(old, before)?;
    }
    Ok(0)
}

pub(super) fn getitimer(thread: &mut Thread, [which, out, ..]: [usize; 6]) -> Answer {
    let now = interval(thread.process(), which, None)?;
    put(out, now)?;
    Ok(0)
}

/// Writes an `itimerval`.
fn put(at: usize, [left, period]: [u64; 2]) -> Result<()> {
    let ([a, b], [c, d]) = (timeval(period), timeval(left));
    user::write(at as u64, &[a, b, c, d])
}

/// Reads an `itimerspec`: when it runs out first, `None` for never, and the period.
fn first_and_period(clock: u32, new: usize, is_absolute: bool) -> Result<(Option<u64>, u64)> {
    if new == 0 {
        return Err(Errno::EFAULT);
    }
    let period = time::timespec(new as u64)?;
    let first = time::timespec(new as u64 + 16)?;
    let now = isa::now();
    let hour = match (first, is_absolute) {
        (0, _) => return Ok((None, 0)),
        (first, false) => now.saturating_add(first),
        // The clock of the calendar begins long before the other.
        (first, true) => match clock {
            abi::CLOCK_REALTIME | abi::CLOCK_TAI => first.saturating_sub(isa::realtime()),
            _ => first,
        },
    };
    Ok((Some(hour), period))
}

/// Writes an `itimerspec`.
fn put_spec(at: usize, [left, period]: [u64; 2]) -> Result<()> {
    time::put_timespec(at as u64, period)?;
    time::put_timespec(at as u64 + 16, left)
}

/// Whether a timer can go by this clock.
fn check_clock(clock: u32) -> Result<()> {
    let known = [
        abi::CLOCK_REALTIME,
        abi::CLOCK_MONOTONIC,
        abi::CLOCK_BOOTTIME,
        abi::CLOCK_REALTIME_ALARM,
        abi::CLOCK_BOOTTIME_ALARM,
        abi::CLOCK_TAI,
        // Here, these go by the clock on the wall as well.
        abi::CLOCK_PROCESS_CPUTIME_ID,
        abi::CLOCK_THREAD_CPUTIME_ID,
    ];
    if known.contains(&clock) { Ok(()) } else { Err(Errno::EINVAL) }
}

/// The receiver that a `sigevent` at `at` names.
fn target(thread: &Thread, at: usize, id: i32) -> Result<Target> {
    let process = thread.process();
    let info =
        |signal, value| Info::new(signal, code::TIMER, Detail::Timer { id, overrun: 0, value });
    if at == 0 {
        return Ok(Target::Process(Arc::downgrade(process), info(Signal::ALRM, id as u64)));
    }
    let value = user::read::<u64>(at as u64)?;
    let [number, how, tid] = user::read::<[u32; 3]>(at as u64 + 8)?;
    match how {
        abi::SIGEV_NONE => Ok(Target::Waiters),
        abi::SIGEV_SIGNAL | abi::SIGEV_THREAD => {
            let signal = Signal::new(number.into())?;
            Ok(Target::Process(Arc::downgrade(process), info(signal, value)))
        }
        abi::SIGEV_THREAD_ID => {
            let signal = Signal::new(number.into())?;
            let task = find_task(tid).filter(|task| task.process.pid == process.pid);
            Ok(Target::Task(Arc::downgrade(&task.ok_or(Errno::EINVAL)?), info(signal, value)))
        }
        _ => Err(Errno::EINVAL),
    }
}

pub(super) fn timer_create(thread: &mut Thread, [clock, event, out, ..]: [usize; 6]) -> Answer {
    check_clock(clock as u32)?;
    let process = thread.process().clone();
    let id = {
        let mut timers = process.timers.lock();
        if timers.made.len() >= TIMERS_MAX {
            return Err(Errno::EAGAIN.into());
        }
        let id = timers.next;
        timers.next = id.checked_add(1).unwrap_or(0);
        id
    };
    let timer = Timer::new(target(thread, event, id)?);
    user::write(out as u64, &id)?;
    process.timers.lock().made.insert(id, timer);
    Ok(0)
}

fn made(thread: &Thread, id: usize) -> Result<Arc<Timer>> {
    let timers = thread.process().timers.lock();
    timers.made.get(&(id as i32)).cloned().ok_or(Errno::EINVAL)
}

pub(super) fn timer_settime(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [id, flags, new, old, ..] = args;
    let timer = made(thread, id)?;
    let is_absolute = flags & abi::TIMER_ABSTIME as usize != 0;
    let (first, period) = first_and_period(abi::CLOCK_MONOTONIC, new, is_absolute)?;
    let before = timer.set(first, period);
    if old != 0 {
        put_spec(old, before)?;
    }
    Ok(0)
}

pub(super) fn timer_gettime(thread: &mut Thread, [id, out, ..]: [usize; 6]) -> Answer {
    put_spec(out, made(thread, id)?.left())?;
    Ok(0)
}

pub(super) fn timer_getoverrun(thread: &mut Thread, [id, ..]: [usize; 6]) -> Answer {
    Ok(made(thread, id)?.count().saturating_sub(1).min(i32::MAX as u64) as usize)
}

pub(super) fn timer_delete(thread: &mut Thread, [id, ..]: [usize; 6]) -> Answer {
    made(thread, id)?.set(None, 0);
    thread.process().timers.lock().made.remove(&(id as i32));
    Ok(0)
}

/// A timer that is an open file: a read takes how often it ran out.
struct TimerFile {
    timer: Arc<Timer>,
    clock: u32,
}

impl Object for TimerFile {
    fn name(&self) -> &'static str {
        "[timerfd]"
    }

    fn read(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Outcome<usize> {
        if count < 8 {
            return Err(Errno::EINVAL.into());
        }
        self.timer.wait_on(who.wake)?;
        match self.timer.take() {
            0 if nonblocking => Err(Errno::EAGAIN.into()),
            0 => Err(Halt::Blocked),
            times => {
                sink.put(&times.to_le_bytes())?;
                Ok(8)
            }
        }
    }

    fn readiness(&self) -> PollEvents {
        let mut events = PollEvents::empty();
        events.set(PollEvents::IN | PollEvents::RDNORM, self.timer.count() > 0);
        events
    }

    fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()> {
        self.timer.wait_on(who)
    }
}

pub(super) fn timerfd_create(thread: &mut Thread, [clock, flags, ..]: [usize; 6]) -> Answer {
    let clock = clock as u32;
    let known = abi::O_CLOEXEC | abi::O_NONBLOCK;
    if flags & !(known as usize) != 0 || matches!(clock, 2 | 3) {
        return Err(Errno::EINVAL.into());
    }
    check_clock(clock)?;
    let file = TimerFile { timer: Timer::new(Target::Waiters), clock };
    open_object(thread, Arc::new(file), flags as u32)
}

/// Opens an object: its descriptor.
pub(super) fn open_object(thread: &Thread, object: Arc<dyn Object>, flags: u32) -> Answer {
    Ok(with_calls(thread, |calls| {
        let node = tree().make(Body::Object(object), 0o600, calls.who.now);
        let status = abi::O_RDWR | flags & abi::O_NONBLOCK;
        let open = Arc::new(Description::new(node, None, status, None));
        calls.table.add(open, flags & abi::O_CLOEXEC != 0, 0)
    })? as usize)
}

/// Does `act` with an open timer.
fn with_file<T>(
    thread: &Thread,
    fd: usize,
    act: impl FnOnce(&TimerFile) -> Result<T>,
) -> Result<T> {
    let open = with_calls(thread, |calls| calls.open_file(fd as u32))?;
    let Body::Object(object) = open.node().body() else { return Err(Errno::EINVAL) };
    let object: &dyn core::any::Any = &**object;
    act(object.downcast_ref().ok_or(Errno::EINVAL)?)
}

pub(super) fn timerfd_settime(thread: &mut Thread, args: [usize; 6]) -> Answer {
    /// `TFD_TIMER_CANCEL_ON_SET`: the clock is never set here.
    const CANCELS: u32 = 2;
    let [fd, flags, new, old, ..] = args;
    let flags = flags as u32;
    if flags & !(abi::TIMER_ABSTIME | CANCELS) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let before = with_file(thread, fd, |file| {
        let is_absolute = flags & abi::TIMER_ABSTIME != 0;
        let (first, period) = first_and_period(file.clock, new, is_absolute)?;
        Ok(file.timer.set(first, period))
    })?;
    if old != 0 {
        put_spec(old, before)?;
    }
    Ok(0)
}

pub(super) fn timerfd_gettime(thread: &mut Thread, [fd, out, ..]: [usize; 6]) -> Answer {
    put_spec(out, with_file(thread, fd, |file| Ok(file.timer.left()))?)?;
    Ok(0)
}
