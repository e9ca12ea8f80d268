//! The messages that have come to a socket and were not read yet.
//!
//! ```text
//!   push ──► | message | message | … |──► read     a stream reads across messages, others one each
//!             used: all bytes, and COST for each message; a push goes in while used < limit
//! ```
//!
//! | flag | set when | a read of an empty queue | a push |
//! |---|---|---|---|
//! | `ended` | the writer has shut down or gone | end of file | refused |
//! | `deaf` | the reader has shut down or gone | end of file | refused |
//!
//! **Lock**: one, right of that of [`Socket`](super::Socket); a program's memory is touched under
//! it when bytes are read, as with pipes. Rights are never dropped under it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use spin::mutex::SpinMutex;

use super::address::Address;
use super::rights::Rights;
use crate::files::Sink;
use crate::{Errno, Result, Waiters};

/// Bytes that a socket holds at first (`net.core.wmem_default`).
pub(super) const LIMIT: usize = 212_992;

/// Bytes that count for each message itself.
const COST: usize = 256;

/// A process and its user and group, as a message or a connection notes them (`ucred`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// The process; 0 is unknown.
    pub pid: u32,
    /// The effective user.
    pub uid: u32,
    /// The effective group.
    pub gid: u32,
}

/// A message.
pub(super) struct Message {
    pub(super) bytes: Vec<u8>,
    pub(super) from: Address,
    pub(super) sender: Sender,
    pub(super) rights: Rights,
}

/// A read.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    pub(super) count: usize,
    /// The bytes of one message, and not of all.
    pub(super) is_packet: bool,
    /// The message stays.
    pub(super) peeks: bool,
    /// Messages of several senders are not read at once.
    pub(super) by_sender: bool,
}

/// The result of a read.
pub(super) struct Got {
    pub(super) bytes: usize,
    /// Bytes of the message, if it is one.
    pub(super) length: usize,
    pub(super) from: Address,
    pub(super) sender: Sender,
    pub(super) rights: Rights,
}

/// The reason why a message was not pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// There is no room.
    Full,
    /// It will never be read.
    Gone,
    /// [`Errno::ENOMEM`].
    NoMemory,
}

/// The state of a queue.
#[derive(Clone, Copy, Default)]
pub(super) struct Look {
    /// Bytes that a read would have.
    pub(super) bytes: usize,
    /// Bytes of the first message.
    pub(super) first: usize,
    pub(super) messages: usize,
    pub(super) ended: bool,
    pub(super) deaf: bool,
    pub(super) has_error: bool,
    /// Whether at most a quarter is used: below, a writer is told that it may write.
    pub(super) has_room: bool,
}

struct State {
    messages: VecDeque<Message>,
    /// Bytes of the first message that were read.
    done: usize,
    used: usize,
    limit: usize,
    ended: bool,
    deaf: bool,
    error: Option<Errno>,
}

impl State {
    fn has_room(&self) -> bool {
        self.used <= self.limit / 4
    }

    /// Takes `bytes` bytes of the first message, and the message if that was all.
    fn advance(&mut self, bytes: usize, all: bool) -> Option<Message> {
        self.done += bytes;
        self.used -= bytes;
        let length = self.messages.front().map_or(0, |message| message.bytes.len());
        if !all && self.done < length {
            return None;
        }
        self.used -= length - self.done + COST;
        self.done = 0;
        self.messages.pop_front()
    }
}

/// Such messages.
pub(super) struct Queue {
    state: SpinMutex<State>,
    /// Woken by all news for the reader.
    pub(super) readers: Waiters,
    /// Woken when there is room again, or never will be.
    pub(super) writers: Waiters,
}

impl Queue {
    pub(super) fn new() -> Self {
        let state = State {
            messages: VecDeque::new(),
            done: 0,
            used: 0,
            limit: LIMIT,
            ended: false,
            deaf: false,
            error: None,
        };
        Self { state: SpinMutex::new(state), readers: Waiters::new(), writers: Waiters::new() }
    }

    pub(super) fn look(&self) -> Look {
        let state = self.state.lock();
        Look {
            bytes: state.used - state.messages.len() * COST,
            first: state.messages.front().map_or(0, |message| message.bytes.len()),
            messages: state.messages.len(),
            ended: state.ended,
            deaf: state.deaf,
            has_error: state.error.is_some(),
            has_room: state.has_room(),
        }
    }

    /// How many bytes go in before a push is refused; 0: it would be refused now.
    pub(super) fn room(&self) -> core::result::Result<usize, Refused> {
        let state = self.state.lock();
        if state.ended || state.deaf {
            return Err(Refused::Gone);
        }
        Ok(state.limit.saturating_sub(state.used))
    }

    /// Sets how many bytes it holds.
    pub(super) fn set_limit(&self, limit: usize) {
        self.state.lock().limit = limit;
        self.writers.wake();
    }

    pub(super) fn limit(&self) -> usize {
        self.state.lock().limit
    }

    /// Adds a message, which comes back if it was refused.
    pub(super) fn push(&self, message: Message) -> core::result::Result<(), (Refused, Message)> {
        let mut state = self.state.lock();
        if state.ended || state.deaf {
            return Err((Refused::Gone, message));
        }
        if state.used >= state.limit {
            return Err((Refused::Full, message));
        }
        if state.messages.try_reserve(1).is_err() {
            return Err((Refused::NoMemory, message));
        }
        state.used += message.bytes.len() + COST;
        state.messages.push_back(message);
        drop(state);
        self.readers.wake();
        Ok(())
    }

    /// Reads; `None` when there is no message.
    ///
    /// # Errors
    /// The sink's, when it took nothing: a packet is lost then; [`Errno::ENOMEM`].
    pub(super) fn read(&self, wish: Wish, sink: &mut dyn Sink) -> Result<Option<Got>> {
        // Messages that are done with are dropped when the lock is free.
        let mut spent = Vec::new();
        let mut state = self.state.lock();
        let had_room = state.has_room();
        let Some(first) = state.messages.front() else { return Ok(None) };
        let mut got = Got {
            bytes: 0,
            length: first.bytes.len(),
            from: first.from.clone(),
            sender: first.sender,
            rights: Rights::default(),
        };
        let failed = match wish.is_packet {
            true => read_packet(&mut state, wish, sink, &mut got, &mut spent),
            false => read_stream(&mut state, wish, sink, &mut got, &mut spent),
        };
        let wakes = !had_room && state.has_room();
        drop(state);
        drop(spent);
        if wakes {
            self.writers.wake();
        }
        match failed {
            Err(errno) if got.bytes == 0 => Err(errno),
            _ => Ok(Some(got)),
        }
    }

    /// No more messages come.
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.wake_all();
    }

    /// No more are wanted. Those that are there can still be read.
    pub(super) fn deafen(&self) {
        self.state.lock().deaf = true;
        self.wake_all();
    }

    /// The reader has gone: messages are dropped. Whether there were any.
    pub(super) fn close(&self) -> bool {
        let mut state = self.state.lock();
        state.deaf = true;
        let messages = core::mem::take(&mut state.messages);
        state.used = 0;
        drop(state);
        self.wake_all();
        !messages.is_empty()
    }

    /// The reader's next call, or look at its state, has this error.
    pub(super) fn fail(&self, errno: Errno) {
        self.state.lock().error = Some(errno);
        self.wake_all();
    }

    /// The error, which is told once.
    pub(super) fn take_error(&self) -> Result<()> {
        self.state.lock().error.take().map_or(Ok(()), Err)
    }

    /// Does `act` with the rights of each message.
    pub(super) fn each_rights(&self, mut act: impl FnMut(&Rights) -> Result<()>) -> Result<()> {
        self.state.lock().messages.iter().try_for_each(|message| act(&message.rights))
    }

    pub(super) fn wake_all(&self) {
        self.readers.wake();
        self.writers.wake();
    }
}

/// Takes the rights of the message at `at`, unless there are some already.
fn take_rights(state: &mut State, at: usize, wish: Wish, got: &mut Got) -> Result<()> {
    let rights = &mut state.messages[at].rights;
    if got.rights.files().is_empty() {
        got.rights = if wish.peeks { rights.again()? } else { core::mem::take(rights) };
    }
    Ok(())
}

fn read_packet(
    state: &mut State,
    wish: Wish,
    sink: &mut dyn Sink,
    got: &mut Got,
    spent: &mut Vec<Message>,
) -> Result<()> {
    spent.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    take_rights(state, 0, wish, got)?;
    let bytes = &state.messages[0].bytes;
    let count = bytes.len().min(wish.count);
    let put = if count > 0 { sink.put(&bytes[..count]) } else { Ok(()) };
    if !wish.peeks {
        spent.extend(state.advance(count, true));
    }
    put?;
    got.bytes = count;
    Ok(())
}

/// Reads until the wish is met, or a message that carried rights ends.
fn read_stream(
    state: &mut State,
    wish: Wish,
    sink: &mut dyn Sink,
    got: &mut Got,
    spent: &mut Vec<Message>,
) -> Result<()> {
    let (mut at, mut from) = (0, state.done);
    while got.bytes < wish.count && got.rights.files().is_empty() {
        let Some(message) = state.messages.get(at) else { break };
        if wish.by_sender && message.sender != got.sender {
            break;
        }
        let count = (message.bytes.len() - from).min(wish.count - got.bytes);
        spent.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        sink.put(&message.bytes[from..from + count])?;
        got.bytes += count;
        take_rights(state, at, wish, got)?;
        if wish.peeks {
            (at, from) = (at + 1, 0);
        } else {
            spent.extend(state.advance(count, false));
            from = state.done;
        }
    }
    Ok(())
}
