//! The system calls on sockets. Addresses and options are bytes here, as programs have them.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general::{O_CLOEXEC, O_NONBLOCK, O_RDWR};
use linux_raw_sys::net as raw;

use super::address::{ANY, Address, Family};
use super::message::{Extra, Incoming, Outgoing, Target, sender_of};
use super::names::{NAMES, Named, named};
use super::queue::Queue;
use super::socket::{Backlog, Peer, Socket, State, Style, of};
use crate::files::{Body, Calls, Description, Halt, Outcome, Sink, Source};
use crate::{Errno, Result};

/// The bits of a socket's type that say its style.
const STYLE: u32 = 0xf;

/// The most connections that wait to be accepted (`net.core.somaxconn`).
const BACKLOG_MAX: usize = 4096;

/// The right to write to a file.
const WRITE: u32 = 2;

impl Calls<'_> {
    /// `socket`: its descriptor.
    ///
    /// # Errors
    /// [`Errno::EAFNOSUPPORT`], [`Errno::EPROTONOSUPPORT`], [`Errno::ESOCKTNOSUPPORT`],
    /// [`Errno::EINVAL`] for unknown flags, [`Errno::EMFILE`], [`Errno::ENOMEM`].
    pub fn socket(&self, family: u32, style: u32, protocol: u32) -> Result<u32> {
        let (family, known) = kind(family, style, protocol)?;
        self.table.check_room()?;
        let open = self.opened(Arc::new(Socket::new(family, known)), style & O_NONBLOCK);
        self.table.add(open, style & O_CLOEXEC != 0, 0)
    }

    /// `socketpair`: descriptors of two that are connected.
    ///
    /// # Errors
    /// As [`socket`](Self::socket); [`Errno::EOPNOTSUPP`] for IP.
    pub fn socketpair(&self, family: u32, style: u32, protocol: u32) -> Result<[u32; 2]> {
        let (family, known) = kind(family, style, protocol)?;
        if family != Family::Unix {
            return Err(Errno::EOPNOTSUPP);
        }
        let ends = [(); 2].map(|()| Arc::new(Socket::new(family, known)));
        Socket::join([&*ends[0], &*ends[1]], [sender_of(self.who); 2]);
        let ends = ends.map(|end| self.opened(end, style & O_NONBLOCK));
        self.table.add_two(ends, style & O_CLOEXEC != 0)
    }

    fn opened(&self, socket: Arc<Socket>, status: u32) -> Arc<Description> {
        let node = self.tree.make(Body::Object(socket), 0o777, self.who.now);
        self.who.own(&node);
        Arc::new(Description::new(node, None, O_RDWR | status, None))
    }

    fn open_socket(&self, number: u32) -> Result<(Arc<Description>, Arc<Socket>)> {
        let open = self.table.get(number)?;
        let socket = of(&open)?;
        Ok((open, socket))
    }

    /// `bind`.
    ///
    /// # Errors
    /// [`Errno::ENOTSOCK`], [`Errno::EINVAL`] if it has a name; [`Errno::EADDRINUSE`],
    /// [`Errno::EADDRNOTAVAIL`], [`Errno::EACCES`], those of [`Address::decode`] and of paths.
    pub fn bind(&self, number: u32, address: &[u8]) -> Result<()> {
        let (_, socket) = self.open_socket(number)?;
        let name = match Address::decode(socket.family, address)? {
            // Linux takes an unspecified family for version 4, at all addresses.
            Address::None if socket.is_ip() => return Err(Errno::EAFNOSUPPORT),
            name => name,
        };
        self.name(&socket, name)
    }

    fn name(&self, socket: &Arc<Socket>, name: Address) -> Result<()> {
        if socket.state.lock().local != Address::None {
            return Err(Errno::EINVAL);
        }
        let name = match name {
            Address::Path(path) => {
                self.name_socket(&path, Arc::new(Named(Arc::downgrade(socket))))?;
                Address::Path(path)
            }
            name => NAMES.take(socket, &name, self.who.may)?,
        };
        socket.state.lock().local = name;
        Ok(())
    }

    /// Gives a socket of IP a port, if it has none.
    fn name_by_itself(&self, socket: &Arc<Socket>) -> Result<()> {
        if !socket.is_ip() || socket.state.lock().local != Address::None {
            return Ok(());
        }
        let ip = ANY[usize::from(socket.family == Family::Inet6)];
        self.name(socket, Address::Port { ip, port: 0 })
    }

    /// `listen`.
    ///
    /// # Errors
    /// [`Errno::ENOTSOCK`], [`Errno::EOPNOTSUPP`] for datagrams, [`Errno::EINVAL`] if it is
    /// connected or has no name.
    pub fn listen(&self, number: u32, backlog: u32) -> Result<()> {
        let (_, socket) = self.open_socket(number)?;
        if !socket.has_connections() {
            return Err(Errno::EOPNOTSUPP);
        }
        self.name_by_itself(&socket)?;
        let mut state = socket.state.lock();
        if state.peer.is_some() || state.local == Address::None {
            return Err(Errno::EINVAL);
        }
        let sender = sender_of(self.who);
        // One more than it says may wait, as on Linux.
        let most = (backlog as usize).min(BACKLOG_MAX) + 1;
        let waiting = state.backlog.take().map_or_else(VecDeque::new, |old| old.waiting);
        state.backlog = Some(Backlog { waiting, most, sender });
        drop(state);
        socket.inbox.wake_all();
        Ok(())
    }

    /// `connect`.
    ///
    /// # Errors
    /// [`Halt::Blocked`] while too many wait to be accepted, or [`Errno::EAGAIN`];
    /// [`Errno::ECONNREFUSED`], [`Errno::EISCONN`], [`Errno::EPROTOTYPE`], [`Errno::ENETUNREACH`],
    /// [`Errno::EPERM`]; those of addresses and paths.
    pub fn connect(&self, number: u32, address: &[u8]) -> Outcome<()> {
        let (open, socket) = self.open_socket(number)?;
        let address = Address::decode(socket.family, address)?;
        if !socket.has_connections() {
            return Ok(self.connect_datagrams(&socket, address)?);
        }
        let address = address.reached()?;
        let target = self.find_socket(&socket, &address)?.ok_or(Errno::ECONNREFUSED)?;
        self.name_by_itself(&socket)?;
        let far = Socket::new(target.family, target.style);
        let local = socket.state.lock().local.seen_from(&address);
        begin(&socket, &far, &target, &address)?;
        let sender = sender_of(self.who);
        let peer = Peer { to: Some(socket.inbox.clone()), address: local.clone(), sender };
        far.options.lock().tells_sender = target.options.lock().tells_sender;
        let connected = State { local: address, peer: Some(peer), backlog: None, is_mute: false };
        if let Err(halt) = self.admit(&target, Arc::new(far), connected, open.is_nonblocking()) {
            socket.state.lock().peer = None;
            return Err(halt);
        }
        socket.state.lock().local = local;
        socket.inbox.wake_all();
        Ok(())
    }

    /// Lets `far` wait at `target` to be accepted; only then is it `connected`.
    fn admit(
        &self,
        target: &Socket,
        far: Arc<Socket>,
        connected: State,
        nonblocking: bool,
    ) -> Outcome<()> {
        let mut state = target.state.lock();
        let backlog = state.backlog.as_mut().ok_or(Errno::ECONNREFUSED)?;
        if backlog.waiting.len() >= backlog.most {
            if nonblocking {
                return Err(Errno::EAGAIN.into());
            }
            target.inbox.writers.add(self.who.wake)?;
            return Err(Halt::Blocked);
        }
        backlog.waiting.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        *far.state.lock() = connected;
        backlog.waiting.push_back(far);
        drop(state);
        target.inbox.readers.wake();
        Ok(())
    }

    fn connect_datagrams(&self, socket: &Arc<Socket>, address: Address) -> Result<()> {
        if address == Address::None {
            socket.state.lock().peer = None;
            return Ok(());
        }
        let address = address.reached()?;
        let target = self.find_socket(socket, &address)?;
        self.name_by_itself(socket)?;
        let local = socket.state.lock().local.seen_from(&address);
        let is_heard = |target: &Socket| {
            target.state.lock().peer.as_ref().is_none_or(|peer| peer.address == local)
        };
        let to = match target {
            _ if socket.is_ip() => None,
            Some(target) if !is_heard(&target) => return Err(Errno::EPERM),
            Some(target) => Some(target.inbox.clone()),
            None => return Err(Errno::ECONNREFUSED),
        };
        let mut state = socket.state.lock();
        state.local = local;
        state.peer = Some(Peer { to, address, sender: sender_of(self.who) });
        drop(state);
        socket.inbox.wake_all();
        Ok(())
    }

    /// The socket at `address`, for `socket`. For a port, it may be that there is none.
    fn find_socket(&self, socket: &Socket, address: &Address) -> Result<Option<Arc<Socket>>> {
        let Address::Path(path) = address else {
            return match NAMES.find(socket.style, address) {
                None if !socket.is_ip() => Err(Errno::ECONNREFUSED),
                found => Ok(found),
            };
        };
        let spot = self.find(linux_raw_sys::general::AT_FDCWD, path)?;
        let node = spot.existing()?;
        self.who.check(node, WRITE)?;
        let Body::Object(object) = node.body() else { return Err(Errno::ECONNREFUSED) };
        let found = named(object)?;
        if found.style != socket.style {
            return Err(Errno::EPROTOTYPE);
        }
        Ok(Some(found))
    }

    /// `accept4`: the descriptor, and the peer's address.
    ///
    /// # Errors
    /// [`Halt::Blocked`], or [`Errno::EAGAIN`]; [`Errno::EINVAL`] if it does not listen or for
    /// unknown flags, [`Errno::EOPNOTSUPP`] for datagrams, [`Errno::EMFILE`], [`Errno::ENOMEM`].
    pub fn accept4(&self, number: u32, flags: u32) -> Outcome<(u32, Vec<u8>)> {
        if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
            return Err(Errno::EINVAL.into());
        }
        let (open, socket) = self.open_socket(number)?;
        if !socket.has_connections() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.table.check_room()?;
        let mut state = socket.state.lock();
        let backlog = state.backlog.as_mut().ok_or(Errno::EINVAL)?;
        let Some(one) = backlog.waiting.pop_front() else {
            if open.is_nonblocking() {
                return Err(Errno::EAGAIN.into());
            }
            socket.inbox.readers.add(self.who.wake)?;
            return Err(Halt::Blocked);
        };
        drop(state);
        socket.inbox.writers.wake();
        let address = peer_address(&one).unwrap_or(Address::None).encode(one.family)?;
        let open = self.opened(one, flags & O_NONBLOCK);
        Ok((self.table.add(open, flags & O_CLOEXEC != 0, 0)?, address))
    }

    /// `getsockname`.
    ///
    /// # Errors
    /// [`Errno::ENOTSOCK`], [`Errno::ENOMEM`].
    pub fn getsockname(&self, number: u32) -> Result<Vec<u8>> {
        let (_, socket) = self.open_socket(number)?;
        let local = socket.state.lock().local.clone();
        local.encode(socket.family)
    }

    /// `getpeername`.
    ///
    /// # Errors
    /// [`Errno::ENOTSOCK`], [`Errno::ENOTCONN`], [`Errno::ENOMEM`].
    pub fn getpeername(&self, number: u32) -> Result<Vec<u8>> {
        let (_, socket) = self.open_socket(number)?;
        peer_address(&socket).ok_or(Errno::ENOTCONN)?.encode(socket.family)
    }

    /// `shutdown`.
    ///
    /// # Errors
    /// [`Errno::ENOTSOCK`], [`Errno::EINVAL`], [`Errno::ENOTCONN`].
    pub fn shutdown(&self, number: u32, how: u32) -> Result<()> {
        let (_, socket) = self.open_socket(number)?;
        let (reads, writes) = match how {
            raw::SHUT_RD => (true, false),
            raw::SHUT_WR => (false, true),
            raw::SHUT_RDWR => (true, true),
            _ => return Err(Errno::EINVAL),
        };
        let mut state = socket.state.lock();
        if state.peer.is_none()
            && state.backlog.is_none()
            && (socket.is_ip() || socket.has_connections())
        {
            return Err(Errno::ENOTCONN);
        }
        state.is_mute |= writes;
        let to = state.peer.as_ref().and_then(|peer| peer.to.clone());
        drop(state);
        if reads {
            socket.inbox.deafen();
        }
        match to.filter(|_| writes && socket.has_connections()) {
            Some(to) => to.end(),
            None => socket.inbox.wake_all(),
        }
        Ok(())
    }

    /// `sendto`, `sendmsg`, `send`: how many bytes went. A short count from a stream that may wait
    /// means that the thread is to go on with the rest.
    ///
    /// # Errors
    /// [`Errno::ENOTSOCK`], [`Errno::EOPNOTSUPP`] for urgent bytes,
    /// [`Errno::ETOOMANYREFS`] for descriptors that lead to the receiver; those of addresses,
    /// paths, messages beside the bytes, and of writes.
    pub fn send(&self, number: u32, what: Outgoing<'_>, source: &mut dyn Source) -> Outcome<usize> {
        let (open, socket) = self.open_socket(number)?;
        if what.flags & raw::MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let extra = match socket.is_ip() {
            true => Extra::default(),
            false => Extra::read(self, what.control)?,
        };
        let target = what.to.map(|to| self.target(&socket, to)).transpose()?;
        let nonblocking = what.flags & raw::MSG_DONTWAIT != 0 || open.is_nonblocking();
        socket.put(self.who, nonblocking, target, extra, source)
    }

    fn target(&self, socket: &Arc<Socket>, to: &[u8]) -> Result<Target> {
        let address = Address::decode(socket.family, to)?.reached()?;
        if socket.style != Style::Datagrams {
            return Ok(Target { socket: None, address });
        }
        self.name_by_itself(socket)?;
        Ok(Target { socket: self.find_socket(socket, &address)?, address })
    }

    /// `recvfrom`, `recvmsg`, `recv`: at most `count` bytes, and at most `room` beside them.
    ///
    /// # Errors
    /// [`Errno::ENOTSOCK`], [`Errno::EOPNOTSUPP`] or [`Errno::EINVAL`] for urgent bytes; those of
    /// reads.
    pub fn receive(
        &self,
        number: u32,
        count: usize,
        room: usize,
        flags: u32,
        sink: &mut dyn Sink,
    ) -> Outcome<Incoming> {
        let (open, socket) = self.open_socket(number)?;
        if flags & raw::MSG_ERRQUEUE != 0 {
            return Err(Errno::EAGAIN.into());
        }
        if flags & raw::MSG_OOB != 0 {
            return Err(if socket.is_ip() { Errno::EINVAL } else { Errno::EOPNOTSUPP }.into());
        }
        let nonblocking = flags & raw::MSG_DONTWAIT != 0 || open.is_nonblocking();
        let got = socket.take(self.who, nonblocking, count, flags, sink)?;
        let mut incoming = Incoming { bytes: got.bytes, ..Incoming::default() };
        if socket.style != Style::Stream {
            let is_cut = got.length > got.bytes;
            incoming.flags |= if is_cut { raw::MSG_TRUNC } else { 0 };
            incoming.bytes = if flags & raw::MSG_TRUNC != 0 { got.length } else { got.bytes };
        }
        if socket.options.lock().tells_sender {
            incoming.add_sender(got.sender, room)?;
        }
        if !got.rights.files().is_empty() {
            let is_private = flags & raw::MSG_CMSG_CLOEXEC != 0;
            incoming.add_rights(self, &got.rights, room, is_private)?;
        }
        let from = match socket.has_connections() {
            true => peer_address(&socket).filter(|_| !socket.is_ip()).unwrap_or(Address::None),
            false => got.from,
        };
        if from != Address::None {
            incoming.address = from.encode(socket.family)?;
        }
        Ok(incoming)
    }

    /// `getsockopt`: the value's bytes.
    ///
    /// # Errors
    /// [`Errno::ENOTSOCK`], [`Errno::ENOPROTOOPT`], [`Errno::EOPNOTSUPP`], [`Errno::ENOMEM`].
    pub fn getsockopt(&self, number: u32, level: u32, name: u32) -> Result<Vec<u8>> {
        self.open_socket(number)?.1.option(level, name)
    }

    /// `setsockopt`.
    ///
    /// # Errors
    /// As [`getsockopt`](Self::getsockopt); [`Errno::EINVAL`], [`Errno::EDOM`].
    pub fn setsockopt(&self, number: u32, level: u32, name: u32, value: &[u8]) -> Result<()> {
        self.open_socket(number)?.1.set_option(level, name, value)
    }
}

fn peer_address(socket: &Socket) -> Option<Address> {
    socket.state.lock().peer.as_ref().map(|peer| peer.address.clone())
}

/// Notes at `socket` that it will be connected to `far`, which waits at `target`.
fn begin(socket: &Socket, far: &Socket, target: &Socket, address: &Address) -> Result<()> {
    let sender = target.state.lock().backlog.as_ref().map(|backlog| backlog.sender);
    let sender = sender.ok_or(Errno::ECONNREFUSED)?;
    if let Some(bytes) = socket.out_bytes() {
        far.inbox.set_limit(bytes);
    }
    let mut state = socket.state.lock();
    if state.backlog.is_some() {
        return Err(if socket.is_ip() { Errno::EISCONN } else { Errno::EINVAL });
    }
    if state.peer.is_some() {
        return Err(Errno::EISCONN);
    }
    let to: Option<Arc<Queue>> = Some(far.inbox.clone());
    state.peer = Some(Peer { to, address: address.clone(), sender });
    Ok(())
}

/// The family and the style that a program asks for.
fn kind(family: u32, style: u32, protocol: u32) -> Result<(Family, Style)> {
    if style & !(STYLE | O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let family = Family::of(family)?;
    let style = Style::of(style & STYLE)?;
    let own = match (family, style) {
        (Family::Unix, _) => raw::AF_UNIX,
        (_, Style::Stream) => raw::IPPROTO_TCP as u32,
        (_, Style::Datagrams) => raw::IPPROTO_UDP as u32,
        (_, Style::Packets) => return Err(Errno::ESOCKTNOSUPPORT),
    };
    if protocol != 0 && protocol != own {
        return Err(Errno::EPROTONOSUPPORT);
    }
    Ok((family, style))
}
