//! Pipes: a ring of bytes between writers and readers.
//!
//! ```text
//!   pieces   | 4 KiB | 4 KiB | … 16 of them, each allocated when a byte first comes to it
//!                ▲ start ───── length ─────►            an empty ring begins at 0 again
//! ```
//!
//! | | readers | none |
//! |---|---|---|
//! | a read of an empty pipe, writers there | waits | |
//! | a read of an empty pipe, no writer | end of file | |
//! | a write that does not fit | waits | EPIPE, and the kernel sends SIGPIPE |
//!
//! A write of at most [`ATOMIC`] bytes goes in at once or not at all. A larger one puts the bytes
//! that fit and returns a short count; for a blocking description the kernel goes on with the rest.

use alloc::sync::Arc;
use alloc::vec::Vec;

use spin::mutex::SpinMutex;

use super::call::{Caller, Halt, Outcome, Sink, Source, moved, zeroes};
use super::poll::PollEvents;
use crate::{Errno, Result, Waiters, Wake};

const PIECE: usize = 4096;
const PIECES: usize = 16;

/// Bytes that a pipe holds at most.
pub const CAPACITY: usize = PIECE * PIECES;

/// Bytes of the largest write that is never split (PIPE_BUF).
pub const ATOMIC: usize = 4096;

#[derive(Default)]
struct Ring {
    pieces: [Vec<u8>; PIECES],
    start: usize,
    length: usize,
}

impl Ring {
    fn room(&self) -> usize {
        CAPACITY - self.length
    }

    /// The first bytes that are together, at most `most`.
    fn first(&self, most: usize) -> &[u8] {
        let within = self.start % PIECE;
        let count = most.min(self.length).min(PIECE - within);
        &self.pieces[self.start / PIECE][within..within + count]
    }

    fn consume(&mut self, count: usize) {
        self.length -= count;
        self.start = if self.length == 0 { 0 } else { (self.start + count) % CAPACITY };
    }

    /// Takes bytes into the first room that is together.
    fn fill(&mut self, source: &mut dyn Source) -> Result<usize> {
        let at = (self.start + self.length) % CAPACITY;
        let within = at % PIECE;
        let room = self.room().min(PIECE - within);
        let piece = &mut self.pieces[at / PIECE];
        if piece.is_empty() {
            *piece = zeroes(PIECE)?;
        }
        let count = source.take(&mut piece[within..within + room])?;
        self.length += count;
        Ok(count)
    }
}

/// A thread that waits in `open` for the other side.
struct Opener {
    tid: u32,
    writes: bool,
    /// Whether the other side came meanwhile; then it may have gone again, and still counts.
    met: bool,
}

#[derive(Default)]
struct State {
    ring: Ring,
    readers: usize,
    writers: usize,
    openers: Vec<Opener>,
}

impl State {
    /// A thread that was met in `open` counts as a reader, though it has no end yet.
    fn readers(&self) -> usize {
        self.readers + self.openers.iter().filter(|one| one.met && !one.writes).count()
    }

    /// As [`readers`](Self::readers).
    fn writers(&self) -> usize {
        self.writers + self.openers.iter().filter(|one| one.met && one.writes).count()
    }

    /// Adds an end, and lets the threads that wait for it in `open` go on.
    fn join(&mut self, reads: bool, writes: bool) {
        self.readers += usize::from(reads);
        self.writers += usize::from(writes);
        for opener in &mut self.openers {
            opener.met |= if opener.writes { reads } else { writes };
        }
    }

    /// Drops bytes that have no reader any more.
    fn drain_unused(&mut self) {
        if self.readers() + self.writers() == 0 {
            self.ring = Ring::default();
        }
    }
}

/// A pipe.
#[derive(Default)]
pub struct Pipe {
    state: SpinMutex<State>,
    /// All waiters: there are few, and each looks again by itself.
    waiters: Waiters,
}

impl Pipe {
    /// An empty pipe with no ends.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes that can be read now.
    pub fn available(&self) -> usize {
        self.state.lock().ring.length
    }

    /// Reads the bytes that are there, at most `count`. No bytes: end of file, as no writer is
    /// left.
    ///
    /// # Errors
    /// [`Halt::Blocked`] when there is nothing yet, or [`Errno::EAGAIN`] if `nonblocking`; the
    /// sink's error when it took nothing.
    pub fn read(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Outcome<usize> {
        if count == 0 {
            return Ok(0);
        }
        let mut state = self.state.lock();
        if state.ring.length == 0 {
            return if state.writers() == 0 { Ok(0) } else { self.wait(who, nonblocking) };
        }
        let mut done = 0;
        let mut error = None;
        while done < count && state.ring.length > 0 {
            let bytes = state.ring.first(count - done);
            if let Err(errno) = sink.put(bytes) {
                error = Some(errno);
                break;
            }
            let taken = bytes.len();
            state.ring.consume(taken);
            done += taken;
        }
        drop(state);
        if done > 0 {
            self.waiters.wake();
        }
        Ok(moved(done, error)?)
    }

    /// Writes the rest of the source, by the table above.
    ///
    /// # Errors
    /// [`Errno::EPIPE`] without readers; [`Halt::Blocked`] when nothing may be put yet, or
    /// [`Errno::EAGAIN`] if `nonblocking`; [`Errno::ENOMEM`] and the source's error when nothing
    /// was put.
    pub fn write(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        source: &mut dyn Source,
    ) -> Outcome<usize> {
        let mut state = self.state.lock();
        if state.readers() == 0 {
            return Err(Errno::EPIPE.into());
        }
        let wanted = source.left();
        let least = if wanted <= ATOMIC { wanted } else { 1 };
        if state.ring.room() < least {
            return self.wait(who, nonblocking);
        }
        let mut done = 0;
        let mut error = None;
        while source.left() > 0 && state.ring.room() > 0 {
            match state.ring.fill(source) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(errno) => {
                    error = Some(errno);
                    break;
                }
            }
        }
        drop(state);
        if done > 0 {
            self.waiters.wake();
        }
        Ok(moved(done, error)?)
    }

    /// Called under the state's lock, so that no wake can come between the look and the
    /// registration.
    fn wait<T>(&self, who: &Caller<'_>, nonblocking: bool) -> Outcome<T> {
        if nonblocking {
            return Err(Errno::EAGAIN.into());
        }
        self.waiters.add(who.wake)?;
        Err(Halt::Blocked)
    }

    /// Registers a waiter for any change.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()> {
        self.waiters.add(who)
    }

    /// The events now at an end that reads, writes, or both.
    pub fn readiness(&self, reads: bool, writes: bool) -> PollEvents {
        let state = self.state.lock();
        let mut events = PollEvents::empty();
        if reads {
            events.set(PollEvents::IN | PollEvents::RDNORM, state.ring.length > 0);
            events.set(PollEvents::HUP, state.writers() == 0);
        }
        if writes {
            let room = state.ring.room() >= ATOMIC;
            events.set(PollEvents::OUT | PollEvents::WRNORM, room);
            events.set(PollEvents::ERR, state.readers() == 0);
        }
        events
    }

    /// A new end, without waiting for the other side.
    pub fn end(self: &Arc<Self>, reads: bool, writes: bool) -> End {
        self.state.lock().join(reads, writes);
        self.waiters.wake();
        End { pipe: self.clone(), reads, writes }
    }

    /// Opens an end by name: it waits for the other side, unless it is both.
    ///
    /// Waiters are noted by thread, as both sides must learn of each other though neither has an
    /// end yet. A thread that gives up calls [`forget`](Self::forget).
    ///
    /// # Errors
    /// [`Halt::Blocked`]; with `nonblocking`, [`Errno::ENXIO`] for a writer without reader;
    /// [`Errno::ENOMEM`].
    pub fn open(
        self: &Arc<Self>,
        who: &Caller<'_>,
        nonblocking: bool,
        reads: bool,
        writes: bool,
    ) -> Outcome<End> {
        let mut state = self.state.lock();
        let tid = who.tid;
        let met = state.openers.iter().any(|one| one.tid == tid && one.writes == writes && one.met);
        let there = if writes { state.readers > 0 } else { state.writers > 0 };
        let other = |one: &Opener| one.tid != tid && one.writes != writes;
        if (reads && writes) || met || there || state.openers.iter().any(other) {
            state.openers.retain(|one| one.tid != tid);
            state.join(reads, writes);
            drop(state);
            self.waiters.wake();
            return Ok(End { pipe: self.clone(), reads, writes });
        }
        if nonblocking && writes {
            return Err(Errno::ENXIO.into());
        }
        if nonblocking {
            drop(state);
            return Ok(self.end(reads, writes));
        }
        if !state.openers.iter().any(|one| one.tid == tid) {
            state.openers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            state.openers.push(Opener { tid, writes, met: false });
        }
        self.wait(who, false)
    }

    /// Thread `tid` does not wait in [`open`](Self::open) any more: a signal came, or it ended.
    pub fn forget(&self, tid: u32) {
        let mut state = self.state.lock();
        state.openers.retain(|one| one.tid != tid);
        state.drain_unused();
        drop(state);
        self.waiters.wake();
    }
}

/// One side of a pipe, which counts as a reader, a writer or both until it is dropped.
#[must_use = "when it is dropped, the other side sees the end of the pipe"]
pub struct End {
    pipe: Arc<Pipe>,
    reads: bool,
    writes: bool,
}

impl End {
    /// Its pipe.
    pub fn pipe(&self) -> &Arc<Pipe> {
        &self.pipe
    }

    /// The events now.
    pub fn readiness(&self) -> PollEvents {
        self.pipe.readiness(self.reads, self.writes)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let mut state = self.pipe.state.lock();
        state.readers -= usize::from(self.reads);
        state.writers -= usize::from(self.writes);
        state.drain_unused();
        drop(state);
        self.pipe.waiters.wake();
    }
}
