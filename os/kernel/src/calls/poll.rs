//! `poll`, `select` and their kin: to wait until something can be done with open files.
//!
//! Each pass registers with all of them before it looks: a change in between wakes the thread, and
//! so is not missed. The first pass decides on the deadline, and keeps it in [`Resume::Until`].

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general as abi;
use quire_linux::files::{Calls, Description, PollEvents, readiness, wait_on};
use quire_linux::signal::Set;
use quire_linux::{Errno, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::signal::lend_mask;
use super::time::{put_timespec, timespec};
use crate::isa;
use crate::memory::user;
use crate::task::tree::with_calls;
use crate::task::{Answer, Resume, Stop, Thread};

/// `struct pollfd`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct PollFd {
    fd: i32,
    events: u16,
    answer: u16,
}

/// Bytes of a set of signals.
const SET_BYTES: usize = 8;

/// A deadline: the first pass reads it, the later ones have it.
pub(super) struct Wait {
    /// Nanoseconds since boot; `None`: for ever.
    hour: Option<u64>,
    /// Whether it is over. Decided before the look: an event that comes later belongs to the next
    /// pass.
    is_over: bool,
}

impl Wait {
    /// Begins, or goes on. `timeout` gives the duration in nanoseconds, `mask` the signals that are
    /// blocked meanwhile; both are called in the first pass only.
    pub(super) fn begin(
        thread: &mut Thread,
        timeout: impl FnOnce() -> Result<Option<u64>>,
        mask: impl FnOnce() -> Result<Option<Set>>,
    ) -> Result<Self> {
        let now = isa::now();
        let hour = match thread.resume {
            Resume::Until(hour) => hour,
            _ => {
                let hour = timeout()?.map(|ns| now.saturating_add(ns));
                if let Some(mask) = mask()? {
                    lend_mask(thread, mask);
                }
                hour
            }
        };
        Ok(Self { hour, is_over: hour.is_some_and(|hour| now >= hour) })
    }

    /// Whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Nanoseconds that are left; `None`: for ever.
    fn left(&self) -> Option<u64> {
        self.hour.map(|hour| hour.saturating_sub(isa::now()))
    }

    /// Parks the thread until it is woken or the time is over.
    pub(super) fn park(&self, thread: &mut Thread) -> Answer {
        thread.resume = Resume::Until(self.hour);
        Err(Stop::Wait(self.hour))
    }
}

/// The file that is open as `fd`. `O_PATH` is not open enough.
fn open(calls: &Calls<'_>, fd: u32) -> Option<Arc<Description>> {
    let file = calls.open_file(fd).ok()?;
    (file.flags() & abi::O_PATH == 0).then_some(file)
}

/// The events of `file` now. Registers the waiter first, if the thread may come to wait.
fn look(calls: &Calls<'_>, file: &Description, may_wait: bool) -> Result<PollEvents> {
    if may_wait {
        wait_on(file, calls.who.wake)?;
    }
    Ok(readiness(file))
}

/// How long a `timespec` says; an address of 0: for ever.
pub(super) fn how_long(address: usize) -> Result<Option<u64>> {
    if address == 0 { Ok(None) } else { timespec(address as u64).map(Some) }
}

/// Writes the remaining time. As on Linux, a failure to do so is no error.
fn tell_left(wait: &Wait, address: usize) {
    if let (Some(ns), 1..) = (wait.left(), address) {
        let _ = put_timespec(address as u64, ns);
    }
}

/// The signals to be blocked meanwhile; an address of 0: as they are.
pub(super) fn mask_at(address: usize, bytes: usize) -> Result<Option<Set>> {
    match (address, bytes) {
        (0, _) => Ok(None),
        (_, SET_BYTES) => Ok(Some(Set(user::read(address as u64)?))),
        _ => Err(Errno::EINVAL),
    }
}

/// The array of a program.
fn read_polled(thread: &Thread, address: usize, count: usize) -> Result<Vec<PollFd>> {
    // The count is an unsigned int for Linux.
    let count = count as u32;
    if count > thread.process().files().limit() {
        return Err(Errno::EINVAL);
    }
    let mut polled = Vec::new();
    polled.try_reserve_exact(count as usize).map_err(|_| Errno::ENOMEM)?;
    polled.resize(count as usize, PollFd { fd: 0, events: 0, answer: 0 });
    user::read_bytes(address as u64, polled.as_mut_slice().as_mut_bytes())?;
    Ok(polled)
}

/// Looks at all; how many have events.
fn ask(calls: &Calls<'_>, polled: &mut [PollFd], may_wait: bool) -> Result<usize> {
    let mut ready = 0;
    for one in polled {
        let Ok(fd) = u32::try_from(one.fd) else {
            one.answer = 0;
            continue;
        };
        let always = PollEvents::ERR | PollEvents::HUP | PollEvents::NVAL;
        let wanted = PollEvents::from_bits_truncate(one.events) | always;
        let events = match open(calls, fd) {
            None => PollEvents::NVAL,
            Some(file) => look(calls, &file, may_wait && ready == 0)?,
        };
        one.answer = (events & wanted).bits();
        ready += usize::from(one.answer != 0);
    }
    Ok(ready)
}

/// One pass of `poll` and `ppoll`.
fn poll_once(thread: &mut Thread, wait: &Wait, address: usize, count: usize) -> Answer {
    let mut polled = read_polled(thread, address, count)?;
    let ready = with_calls(thread, |calls| ask(calls, &mut polled, !wait.is_over))?;
    if ready == 0 && !wait.is_over {
        return wait.park(thread);
    }
    // Only the answers: another thread may be changing the rest.
    for (index, one) in polled.iter().enumerate() {
        let place = address + index * size_of::<PollFd>() + core::mem::offset_of!(PollFd, answer);
        user::write(place as u64, &one.answer)?;
    }
    Ok(ready)
}

/// The timeout is an int of milliseconds; below 0: for ever.
#[cfg(target_arch = "x86_64")]
pub(super) fn poll(thread: &mut Thread, [fds, count, timeout, ..]: [usize; 6]) -> Answer {
    let ns = u64::try_from(timeout as i32).ok().map(|ms| ms * 1_000_000);
    let wait = Wait::begin(thread, || Ok(ns), || Ok(None))?;
    poll_once(thread, &wait, fds, count)
}

pub(super) fn ppoll(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [fds, count, timeout, mask, mask_bytes, _] = args;
    let wait = Wait::begin(thread, || how_long(timeout), || mask_at(mask, mask_bytes))?;
    let answer = poll_once(thread, &wait, fds, count);
    tell_left(&wait, timeout);
    answer
}

/// The three sets of descriptors of `select`: those that can be read, written, or have something
/// urgent, one after the other.
struct Sets {
    /// Descriptors from 0 on that are looked at.
    count: u32,
    /// Where the program has each; 0 is nowhere.
    places: [usize; 3],
    asked: Vec<u64>,
    found: Vec<u64>,
}

/// The events that make a descriptor belong to each set.
const MEMBERS: [PollEvents; 3] = [
    PollEvents::IN.union(PollEvents::RDNORM).union(PollEvents::HUP).union(PollEvents::ERR),
    PollEvents::OUT.union(PollEvents::WRNORM).union(PollEvents::ERR),
    PollEvents::PRI,
];

impl Sets {
    /// The sets of a program.
    ///
    /// # Errors
    /// `EINVAL` for a negative count, `EFAULT`, `ENOMEM`.
    fn read(thread: &Thread, count: usize, places: [usize; 3]) -> Result<Self> {
        let count = u32::try_from(count as i32).map_err(|_| Errno::EINVAL)?;
        // Linux leaves out numbers that cannot be open, too.
        let count = count.min(thread.process().files().limit());
        let words = count.div_ceil(u64::BITS) as usize;
        let zeroes = || -> Result<Vec<u64>> {
            let mut bits = Vec::new();
            bits.try_reserve_exact(3 * words).map_err(|_| Errno::ENOMEM)?;
            bits.resize(3 * words, 0);
            Ok(bits)
        };
        let mut sets = Self { count, places, asked: zeroes()?, found: zeroes()? };
        for (place, bits) in places.iter().zip(sets.asked.chunks_mut(words.max(1))) {
            if *place != 0 {
                user::read_bytes(*place as u64, bits.as_mut_bytes())?;
            }
        }
        Ok(sets)
    }

    fn words(&self) -> usize {
        self.asked.len() / 3
    }

    /// Looks at all requested descriptors; how many bits were found.
    fn ask(&mut self, calls: &Calls<'_>, may_wait: bool) -> Result<usize> {
        let mut ready = 0;
        for fd in 0..self.count {
            let (word, bit) = ((fd / u64::BITS) as usize, 1_u64 << (fd % u64::BITS));
            let words = self.words();
            let of = |set: usize| set * words + word;
            let wanted = [0, 1, 2].map(|set| self.asked[of(set)] & bit != 0);
            if wanted == [false; 3] {
                continue;
            }
            let file = open(calls, fd).ok_or(Errno::EBADF)?;
            let events = look(calls, &file, may_wait && ready == 0)?;
            for set in (0..3).filter(|set| wanted[*set] && events.intersects(MEMBERS[*set])) {
                self.found[of(set)] |= bit;
                ready += 1;
            }
        }
        Ok(ready)
    }

    /// Writes the result to the program's sets.
    fn write(&self) -> Result<()> {
        for (place, bits) in self.places.iter().zip(self.found.chunks(self.words().max(1))) {
            if *place != 0 {
                user::write_bytes(*place as u64, bits.as_bytes())?;
            }
        }
        Ok(())
    }
}

/// One pass of `select` and `pselect6`.
fn select_once(thread: &mut Thread, wait: &Wait, count: usize, places: [usize; 3]) -> Answer {
    let mut sets = Sets::read(thread, count, places)?;
    let ready = with_calls(thread, |calls| sets.ask(calls, !wait.is_over))?;
    if ready == 0 && !wait.is_over {
        return wait.park(thread);
    }
    sets.write()?;
    Ok(ready)
}

#[cfg(target_arch = "x86_64")]
pub(super) fn select(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [count, read, write, urgent, timeout, _] = args;
    let wait = Wait::begin(thread, || timeval(timeout), || Ok(None))?;
    let answer = select_once(thread, &wait, count, [read, write, urgent]);
    if let (Some(ns), 1..) = (wait.left(), timeout) {
        // As on Linux, a failure to write this is no error.
        let _ = user::write(timeout as u64, &[ns / 1_000_000_000, ns % 1_000_000_000 / 1000]);
    }
    answer
}

/// How long a `timeval` says in nanoseconds; an address of 0: for ever. More than a second of
/// microseconds is allowed.
#[cfg(target_arch = "x86_64")]
fn timeval(address: usize) -> Result<Option<u64>> {
    if address == 0 {
        return Ok(None);
    }
    let part = |part: i64| u64::try_from(part).map_err(|_| Errno::EINVAL);
    let [seconds, micros] = user::read::<[i64; 2]>(address as u64)?;
    let (seconds, micros) = (part(seconds)?, part(micros)?);
    Ok(Some(seconds.saturating_mul(1_000_000_000).saturating_add(micros.saturating_mul(1000))))
}

pub(super) fn pselect6(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [count, read, write, urgent, timeout, mask] = args;
    // The last argument leads to two: where the set of signals is, and its size.
    let mask = || match mask {
        0 => Ok(None),
        _ => {
            let [at, bytes] = user::read::<[usize; 2]>(mask as u64)?;
            mask_at(at, bytes)
        }
    };
    let wait = Wait::begin(thread, || how_long(timeout), mask)?;
    let answer = select_once(thread, &wait, count, [read, write, urgent]);
    tell_left(&wait, timeout);
    answer
}
