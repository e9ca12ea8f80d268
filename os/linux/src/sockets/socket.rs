//! A socket: a queue of its own, a name, and the queue of its peer.
//!
//! ```text
//!   fresh ──listen──► listening: connections wait here for `accept`
//!     └───connect───► connected: writes go to the peer's queue
//! ```
//!
//! A pair that is connected: each has the other's queue as its peer. The socket that goes closes
//! its own queue, and ends the peer's.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

use spin::mutex::SpinMutex;

use super::address::{Address, Family, is_version_4};
use super::options::Options;
use super::queue::{Look, Queue, Sender};
use crate::files::{Body, Caller, Description, Kind, Object, Outcome, PollEvents, Sink, Source};
use crate::{Errno, Result, Wake};

/// The shape of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Style {
    /// Bytes, in order (`SOCK_STREAM`).
    Stream,
    /// Messages to anywhere (`SOCK_DGRAM`).
    Datagrams,
    /// Messages, in order, to a peer (`SOCK_SEQPACKET`).
    Packets,
}

/// The other end.
#[derive(Clone)]
pub(super) struct Peer {
    /// Its queue; datagrams of IP look for it each time.
    pub(super) to: Option<Arc<Queue>>,
    pub(super) address: Address,
    pub(super) sender: Sender,
}

/// Connections that were not accepted yet.
pub(super) struct Backlog {
    pub(super) waiting: VecDeque<Arc<Socket>>,
    pub(super) most: usize,
    /// The process that called `listen`.
    pub(super) sender: Sender,
}

pub(super) struct State {
    pub(super) local: Address,
    pub(super) peer: Option<Peer>,
    pub(super) backlog: Option<Backlog>,
    /// It writes no more (`shutdown`).
    pub(super) is_mute: bool,
}

/// A socket.
pub struct Socket {
    pub(super) family: Family,
    pub(super) style: Style,
    pub(super) inbox: Arc<Queue>,
    pub(super) state: SpinMutex<State>,
    pub(super) options: SpinMutex<Options>,
}

impl Socket {
    /// A socket that is not connected, and has no name.
    pub(super) fn new(family: Family, style: Style) -> Self {
        let state = State { local: Address::None, peer: None, backlog: None, is_mute: false };
        Self {
            family,
            style,
            inbox: Arc::new(Queue::new()),
            state: SpinMutex::new(state),
            options: SpinMutex::new(Options::default()),
        }
    }

    /// Connects both ends of a new pair.
    pub(super) fn join(ends: [&Self; 2], senders: [Sender; 2]) {
        for (at, end) in ends.iter().enumerate() {
            let other = ends[1 - at];
            let to = Some(other.inbox.clone());
            let address = other.state.lock().local.clone();
            end.state.lock().peer = Some(Peer { to, address, sender: senders[1 - at] });
        }
    }

    pub(super) fn style(&self) -> Style {
        self.style
    }

    /// Whether it is named by IP.
    pub(super) fn is_ip(&self) -> bool {
        self.family != Family::Unix
    }

    pub(super) fn has_connections(&self) -> bool {
        self.style != Style::Datagrams
    }

    /// Whether a socket at all addresses hears messages to `ip`.
    pub(super) fn hears(&self, ip: u128) -> bool {
        match self.family {
            Family::Inet => is_version_4(ip),
            _ => !is_version_4(ip) || !self.options.lock().version_6_only,
        }
    }

    /// Whether it reads from `queue`.
    pub(super) fn is_at(&self, queue: *const Queue) -> bool {
        core::ptr::eq(Arc::as_ptr(&self.inbox), queue)
    }

    /// The sockets that live as long as this one: those in its messages, and those that wait.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub(super) fn held(&self) -> Result<Vec<Arc<Self>>> {
        let mut held = Vec::new();
        let mut add = |socket| {
            held.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            held.push(socket);
            Ok(())
        };
        self.inbox.each_rights(|rights| {
            rights.files().iter().filter_map(|file| of(file).ok()).try_for_each(&mut add)
        })?;
        if let Some(backlog) = &self.state.lock().backlog {
            backlog.waiting.iter().cloned().try_for_each(&mut add)?;
        }
        Ok(held)
    }

    /// The queue it writes to, if it is connected to one.
    pub(super) fn outbox(&self) -> Option<Arc<Queue>> {
        self.state.lock().peer.as_ref().and_then(|peer| peer.to.clone())
    }

    fn connected(&self, own: Look, to: Look) -> PollEvents {
        let mut events = PollEvents::empty();
        let is_deaf = to.deaf && !self.is_ip();
        let (read_end, write_end) = (own.ended || own.deaf, to.ended || is_deaf);
        events.set(PollEvents::OUT | PollEvents::WRNORM, to.has_room || to.deaf || to.ended);
        if self.has_connections() {
            events.set(PollEvents::IN | PollEvents::RDNORM | PollEvents::RDHUP, read_end);
            events.set(PollEvents::HUP, read_end && write_end);
        }
        events
    }
}

/// The socket that is open.
///
/// # Errors
/// [`Errno::ENOTSOCK`].
pub(super) fn of(open: &Description) -> Result<Arc<Socket>> {
    let Body::Object(object) = open.node().body() else { return Err(Errno::ENOTSOCK) };
    let any: Arc<dyn Any + Send + Sync> = object.clone();
    any.downcast().map_err(|_| Errno::ENOTSOCK)
}

impl Object for Socket {
    fn name(&self) -> &'static str {
        "socket"
    }

    fn kind(&self) -> Kind {
        Kind::Socket
    }

    fn is_stream(&self) -> bool {
        self.style == Style::Stream
    }

    fn patience(&self, writes: bool) -> Option<u64> {
        self.options.lock().patience[usize::from(writes)]
    }

    fn available(&self) -> Option<usize> {
        let look = self.inbox.look();
        Some(if self.style == Style::Stream { look.bytes } else { look.first })
    }

    fn read(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        count: usize,
        sink: &mut dyn Sink,
    ) -> Outcome<usize> {
        if count == 0 && self.style == Style::Stream {
            return Ok(0);
        }
        Ok(self.take(who, nonblocking, count, 0, sink)?.bytes)
    }

    fn write(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        source: &mut dyn Source,
    ) -> Outcome<usize> {
        self.put(who, nonblocking, None, Default::default(), source)
    }

    fn readiness(&self) -> PollEvents {
        let own = self.inbox.look();
        let state = self.state.lock();
        let mut events = PollEvents::empty();
        let waiting = state.backlog.as_ref().map(|backlog| !backlog.waiting.is_empty());
        let to = state.peer.as_ref().and_then(|peer| peer.to.clone());
        let is_connected = state.peer.is_some();
        drop(state);
        let is_ready = own.messages > 0 || waiting == Some(true);
        events.set(PollEvents::IN | PollEvents::RDNORM, is_ready);
        events.set(PollEvents::ERR, own.has_error);
        match (to, waiting) {
            (_, Some(_)) => {}
            (Some(to), None) => events |= self.connected(own, to.look()),
            (None, None) if self.has_connections() && !is_connected => {
                events |= PollEvents::OUT | PollEvents::WRNORM | PollEvents::HUP;
            }
            (None, None) => events |= PollEvents::OUT | PollEvents::WRNORM,
        }
        events
    }

    fn wait_on(&self, who: &Arc<dyn Wake>) -> Result<()> {
        self.inbox.readers.add(who)?;
        self.outbox().map_or(Ok(()), |to| to.writers.add(who))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let had_messages = self.inbox.close();
        let has_connections = self.has_connections();
        let state = self.state.get_mut();
        let waiting = state.backlog.take().map(|backlog| backlog.waiting);
        for one in waiting.iter().flatten() {
            // No process has seen this end: the other one was connected to nothing.
            if let Some(to) = one.outbox() {
                to.fail(Errno::ECONNRESET);
            }
        }
        if !has_connections {
            return;
        }
        if let Some(to) = state.peer.take().and_then(|peer| peer.to) {
            if had_messages {
                to.fail(Errno::ECONNRESET);
            }
            to.end();
        }
    }
}
