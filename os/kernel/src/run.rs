//! The loop of each CPU: run a thread until it must wait, then another.
//!
//! ```text
//!   next ready ──► its space, its vectors ──► answer signals ──► isa::run ──► Trap
//!       ▲                                          ▲                            │
//!       └── yield, wait, end ◄─────────────────────┴── call, fault, interrupt ◄─┘
//! ```

use alloc::boxed::Box;
use core::sync::atomic::Ordering;

use quire::space::{GroupId, Watched};
use quire::units::{Access, CpuId, Order, Vpn};
use quire::{Error, Need, Stop as Halt};
use quire_linux::Errno;
use quire_linux::signal::status::Status;
use quire_linux::signal::{Info, Signal};

use crate::calls::{self, signal};
use crate::disk;
use crate::isa::{self, Call, Trap};
use crate::memory::{self, Waits};
use crate::task::{
    Answer, MAJOR_FAULTS, Resume, Stop, Thread, collapse, compact, exit, oom, queue, reclaim,
    timer, tree,
};

/// The reason a CPU lets go of a thread.
enum Leave {
    /// Another is to run.
    Yield,
    /// It waits until woken, or until then.
    Wait(Option<u64>),
    /// It ends.
    End(Status),
}

/// Runs threads for ever.
pub(crate) fn forever(_: CpuId) -> ! {
    loop {
        match queue::next() {
            Some(thread) => take(thread),
            None => {
                // An idle CPU must not keep a space alive that ended here.
                memory::switch(None);
                reclaim::background();
                compact::background();
                let next = [collapse::background(), timer::strike(isa::now())];
                queue::idle(next.into_iter().flatten().min());
                disk::poll();
                tree::poll_console();
            }
        }
    }
}

/// Runs a thread until this CPU lets go of it.
fn take(mut thread: Box<Thread>) {
    let Some(memory) = thread.process().memory() else { return };
    memory::switch(Some(&memory));
    drop(memory);
    thread.enter();
    thread.context.load_vectors();
    let began = isa::now();
    isa::alarm(Some(began + queue::SLICE));
    let leave = drive(&mut thread, began);
    thread.context.save_vectors();
    thread.leave(isa::now() - began);
    match leave {
        Leave::Yield => queue::ready(thread),
        Leave::Wait(hour) => {
            thread.process().waits.fetch_add(1, Ordering::Relaxed);
            queue::park(thread, hour);
        }
        Leave::End(status) => exit::end(thread, status),
    }
}

/// Runs a thread that this CPU is set up for.
fn drive(thread: &mut Thread, began: u64) -> Leave {
    loop {
        // A call that waits for a page of the disk is not interrupted: programs do not expect that
        // of files.
        let is_free = !thread.reads || thread.task.doomed.load(Ordering::Acquire);
        let is_called = thread.task.is_summoned() || thread.saved_mask.is_some();
        if is_free && (is_called || thread.is_stopped()) {
            match signal::answer(thread) {
                signal::Fate::Runs => {}
                signal::Fate::Stopped => return Leave::Wait(None),
                signal::Fate::Ends(status) => return Leave::End(status),
            }
        }
        let left = match thread.call.take() {
            Some(call) => make_again(thread, call),
            None => step(thread, began),
        };
        if let Some(left) = left {
            return left;
        }
    }
}

/// Runs the program until it stops, and handles the trap.
#[inline]
fn step(thread: &mut Thread, began: u64) -> Option<Leave> {
    match isa::run(&mut thread.context) {
        Trap::Call => {
            let call = thread.context.call();
            make(thread, call)
        }
        Trap::Fault { address, access } => fault(thread, address, access),
        Trap::Interrupt => tick(thread, began),
        Trap::Signal { number, code, address } => {
            if let Ok(signal) = Signal::new(number.into()) {
                signal::force(thread, Info::fault(signal, code, address));
            }
            None
        }
    }
}

/// Makes a call again.
fn make_again(thread: &mut Thread, call: Call) -> Option<Leave> {
    match calls::again(thread) {
        Some(answer) => conclude(thread, call, answer),
        None => make(thread, call),
    }
}

/// Makes a call, for the first time or again.
#[inline]
fn make(thread: &mut Thread, call: Call) -> Option<Leave> {
    let answer = calls::make(thread, &call);
    conclude(thread, call, answer)
}

#[inline]
fn conclude(thread: &mut Thread, call: Call, answer: Answer) -> Option<Leave> {
    match answer {
        Ok(value) => {
            thread.resume = Resume::Fresh;
            thread.context.answer(value as isize);
            None
        }
        Err(stop) => halt(thread, call, stop),
    }
}

/// Carries out a call's [`Stop`] in place of a result.
fn halt(thread: &mut Thread, call: Call, stop: Stop) -> Option<Leave> {
    match stop {
        Stop::Wait(hour) => {
            thread.call = Some(call);
            // A signal that came just before the call began woke no thread.
            return (!thread.task.is_summoned()).then_some(Leave::Wait(hour));
        }
        Stop::Read => {
            thread.call = Some(call);
            thread.reads = true;
            return Some(Leave::Wait(None));
        }
        Stop::Gone => return Some(Leave::End(Status::Exited(call.args[0] as u8))),
        Stop::Fail(error) => thread.context.answer(-(error.number() as isize)),
        Stop::Yield => thread.context.answer(0),
        Stop::Same => {}
    }
    thread.resume = Resume::Fresh;
    matches!(stop, Stop::Yield).then_some(Leave::Yield)
}

/// Brings the page in that a program touched, or sends it a signal.
#[inline]
fn fault(thread: &mut Thread, address: u64, access: Access) -> Option<Leave> {
    let mut found = memory::fault(address, access);
    let mut waited = false;
    while let Err(Halt::Need(Need::Read(reads))) = found
        && disk::swap::at_once(reads)
    {
        waited = true;
        found = memory::fault(address, access);
    }
    let error = match found {
        Ok(ahead) => {
            match waited {
                true => count_major(thread),
                false => thread.faults += 1,
            }
            if let Some(reads) = ahead {
                disk::start_ahead(reads);
            }
            return None;
        }
        Err(Halt::Need(Need::Watcher(event))) => match wait_for_watcher(thread, address, event) {
            Ok(leave) => return leave,
            Err(error) => error,
        },
        Err(Halt::Need(_)) => match wait_for_page(thread, address, access) {
            Ok(leave) => return leave,
            Err(error) => error,
        },
        Err(Halt::Refuse(error)) => error,
    };
    match signal::of_fault(address, error) {
        Some(info) => {
            signal::force(thread, info);
            None
        }
        None => Some(match oom::decide(thread.process(), group_of(error)) {
            oom::Fate::Ends(status) => Leave::End(status),
            oom::Fate::TriesAgain => Leave::Yield,
        }),
    }
}

/// The group at its limit, if that is the error.
fn group_of(error: Error) -> Option<GroupId> {
    match error {
        Error::OverLimit(group) => Some(group),
        _ => None,
    }
}

/// Counts a fault that needed a device.
fn count_major(thread: &Thread) {
    thread.process().major_faults.fetch_add(1, Ordering::Relaxed);
    MAJOR_FAULTS.fetch_add(1, Ordering::Relaxed);
}

/// A program that needs a page of the disk waits, and tries again.
fn wait_for_page(
    thread: &mut Thread,
    address: u64,
    access: Access,
) -> Result<Option<Leave>, Error> {
    thread.begin();
    if tree::with_calls(thread, |calls| disk::note(calls.who.wake)).is_err() {
        return Ok(Some(Leave::Yield));
    }
    // The waiter is registered; now look once more, so that no answer is missed.
    match memory::fault(address, access) {
        Ok(_) => Ok(None),
        Err(Halt::Need(Need::Wait(_))) => Ok(Some(Leave::Wait(None))),
        Err(Halt::Need(Need::Read(reads))) => {
            let started = tree::with_calls(thread, |calls| disk::start(calls.who, reads));
            if let (true, Some(memory)) = (disk::swap::has(reads.file()), memory::Own::get()) {
                disk::swap::start_around(&memory, Vpn::new(address / memory::PAGE));
            }
            match started {
                Ok(()) | Err(Errno::BLOCKED) => {
                    count_major(thread);
                    Ok(Some(Leave::Wait(None)))
                }
                Err(Errno::ENOMEM) => Err(Error::NoMemory(Order::ZERO)),
                Err(_) => Err(Error::Failed(reads.file(), reads.pages().start)),
            }
        }
        Err(Halt::Refuse(error)) => Err(error),
        Err(Halt::Need(_)) => Ok(Some(Leave::Yield)),
    }
}

/// A program that touched a page for which a watcher answers sleeps, and tries again.
fn wait_for_watcher(
    thread: &mut Thread,
    address: u64,
    event: Watched,
) -> Result<Option<Leave>, Error> {
    thread.begin();
    let Some(memory) = memory::Own::get() else { return Ok(Some(Leave::Yield)) };
    let tid = thread.task.tid;
    let told =
        tree::with_calls(thread, |calls| memory.tell_watcher(event, address, tid, calls.who.wake));
    match told {
        Ok(Waits::Sleeps) => {}
        Ok(Waits::GetsSignal) => return Err(Error::Missing(event.page)),
        Ok(Waits::TriesAgain) | Err(_) => return Ok(Some(Leave::Yield)),
    }
    // The thread is registered; now look once more, so that no answer is missed.
    match memory::fault(address, event.access) {
        Err(Halt::Need(Need::Watcher(now))) if now == event => Ok(Some(Leave::Wait(None))),
        _ => {
            memory.untell_watcher(event, tid);
            Ok(None)
        }
    }
}

/// An interrupt has struck: threads whose time has come are ready, and this one has had its turn
/// if others are, or if it must run elsewhere.
fn tick(thread: &Thread, began: u64) -> Option<Leave> {
    disk::poll();
    reclaim::background();
    collapse::background();
    compact::background();
    tree::poll_console();
    let now = isa::now();
    let process = thread.process();
    timer::check_ran(process, process.ran.load(Ordering::Relaxed) + (now - began));
    let next = [queue::strike(now), timer::strike(now)].into_iter().flatten().min();
    let over = now >= began + queue::SLICE;
    let is_here = thread.task.cpus() >> isa::cpu().index() & 1 != 0;
    if over && queue::is_ready() || !is_here {
        return Some(Leave::Yield);
    }
    let slice = if over { now + queue::SLICE } else { began + queue::SLICE };
    isa::alarm(Some(next.map_or(slice, |next| next.min(slice))));
    None
}
