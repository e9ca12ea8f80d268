//! Messages go to a peer's queue, and come from one's own; with rights and names beside the bytes.

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::general::{CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN};
use linux_raw_sys::net as raw;

use super::address::Address;
use super::names::NAMES;
use super::queue::{Got, Message, Queue, Refused, Sender, Wish};
use super::rights::{RIGHTS_MAX, Rights};
use super::socket::{Socket, Style};
use crate::files::{Caller, Calls, Halt, Outcome, Sink, Source};
use crate::{Errno, Result};

/// Bytes of the largest message of a stream: larger writes become several.
const PIECE: usize = 32 << 10;
/// Bytes of the largest datagram of UDP.
const UDP_MOST: usize = 65_507;
/// Bytes of a peer's room that no packet may take.
const SPARE: usize = 32;

/// Bytes of a `cmsghdr`, and the step from one to the next.
const HEAD: usize = 16;
const STEP: usize = 8;

/// A message that a program sends, but for its bytes.
#[derive(Clone, Copy, Default)]
pub struct Outgoing<'a> {
    /// The bytes of the address that it goes to.
    pub to: Option<&'a [u8]>,
    /// The bytes of the messages beside the bytes (`msg_control`).
    pub control: &'a [u8],
    /// `MSG_` bits.
    pub flags: u32,
}

/// A message that a program receives, but for its bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Incoming {
    /// The result of the call.
    pub bytes: usize,
    /// `MSG_` bits.
    pub flags: u32,
    /// The sender's address; none has no bytes.
    pub address: Vec<u8>,
    /// For `msg_control`.
    pub control: Vec<u8>,
}

/// Rights and names beside the bytes.
#[derive(Default)]
pub(super) struct Extra {
    rights: Rights,
    sender: Option<Sender>,
}

/// Where a datagram goes: the address, and the socket there.
pub(super) struct Target {
    pub(super) socket: Option<Arc<Socket>>,
    pub(super) address: Address,
}

pub(super) fn sender_of(who: &Caller<'_>) -> Sender {
    Sender { pid: who.pid, uid: who.may.users.effective, gid: who.may.groups.effective }
}

impl Extra {
    /// Reads the messages beside the bytes.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if they are malformed or unknown, [`Errno::EBADF`],
    /// [`Errno::ETOOMANYREFS`] for too many descriptors, [`Errno::EPERM`] for another's name,
    /// [`Errno::ENOMEM`].
    pub(super) fn read(calls: &Calls<'_>, mut control: &[u8]) -> Result<Self> {
        let mut extra = Self::default();
        while let Some(head) = control.first_chunk::<HEAD>() {
            let [length @ .., _, _, _, _, _, _, _, _] = head;
            let length = usize::from_ne_bytes(*length);
            let word = |at: usize| {
                u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            let data = control.get(HEAD..length).ok_or(Errno::EINVAL)?;
            match (word(8), word(12)) {
                (raw::SOL_SOCKET, raw::SCM_RIGHTS) => extra.add_rights(calls, data)?,
                (raw::SOL_SOCKET, raw::SCM_CREDENTIALS) => {
                    extra.sender = Some(claimed(calls.who, data)?);
                }
                (raw::SOL_SOCKET, _) => return Err(Errno::EINVAL),
                _ => {}
            }
            control = control.get(length.next_multiple_of(STEP)..).unwrap_or(&[]);
        }
        Ok(extra)
    }

    fn add_rights(&mut self, calls: &Calls<'_>, data: &[u8]) -> Result<()> {
        let count = data.len() / 4;
        if self.rights.files().len() + count > RIGHTS_MAX {
            return Err(Errno::EINVAL);
        }
        let mut files = Vec::new();
        files.try_reserve_exact(count + self.rights.files().len()).map_err(|_| Errno::ENOMEM)?;
        files.extend(self.rights.files().iter().cloned());
        for number in data.chunks_exact(4) {
            let number = u32::from_ne_bytes([number[0], number[1], number[2], number[3]]);
            files.push(calls.open_file(number)?);
        }
        self.rights = Rights::new(files);
        Ok(())
    }
}

/// The process, user and group that a message claims to be from.
fn claimed(who: &Caller<'_>, data: &[u8]) -> Result<Sender> {
    if data.len() != 12 {
        return Err(Errno::EINVAL);
    }
    let [pid, uid, gid] = [0, 4, 8]
        .map(|at| u32::from_ne_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]));
    let is_one =
        |ids: &crate::credentials::Ids, id: u32| [ids.real, ids.effective, ids.saved].contains(&id);
    let may = who.may;
    let is_so = (pid == who.pid || may.can(CAP_SYS_ADMIN))
        && (is_one(&may.users, uid) || may.can(CAP_SETUID))
        && (is_one(&may.groups, gid) || may.can(CAP_SETGID));
    if is_so { Ok(Sender { pid, uid, gid }) } else { Err(Errno::EPERM) }
}

/// One header and its data.
fn add_control(to: &mut Vec<u8>, kind: u32, data: &[u8]) -> Result<()> {
    let length = HEAD + data.len();
    to.try_reserve(length + 2 * STEP).map_err(|_| Errno::ENOMEM)?;
    to.resize(to.len().next_multiple_of(STEP), 0);
    to.extend_from_slice(&length.to_ne_bytes());
    to.extend_from_slice(&raw::SOL_SOCKET.to_ne_bytes());
    to.extend_from_slice(&kind.to_ne_bytes());
    to.extend_from_slice(data);
    Ok(())
}

impl Incoming {
    /// Gives the caller descriptors for what came, as many as there is room for: `room` bytes.
    pub(super) fn add_rights(
        &mut self,
        calls: &Calls<'_>,
        rights: &Rights,
        room: usize,
        is_private: bool,
    ) -> Result<()> {
        let files = rights.files();
        let used = self.control.len().next_multiple_of(STEP) + HEAD;
        let fits = (room.saturating_sub(used) / 4).min(files.len());
        let mut numbers = Vec::new();
        for file in &files[..fits] {
            let Ok(number) = calls.table.add(file.clone(), is_private, 0) else { break };
            numbers.put(&number.to_ne_bytes())?;
        }
        if numbers.len() < 4 * files.len() {
            self.flags |= raw::MSG_CTRUNC;
        }
        if numbers.is_empty() {
            Ok(())
        } else {
            add_control(&mut self.control, raw::SCM_RIGHTS, &numbers)
        }
    }

    /// Tells who sent it.
    pub(super) fn add_sender(&mut self, sender: Sender, room: usize) -> Result<()> {
        if room < HEAD + 12 {
            self.flags |= raw::MSG_CTRUNC;
            return Ok(());
        }
        let mut data = [0; 12];
        for (place, word) in data.chunks_exact_mut(4).zip([sender.pid, sender.uid, sender.gid]) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        add_control(&mut self.control, raw::SCM_CREDENTIALS, &data)
    }
}

impl Socket {
    /// Sends what the source has left, to `target` or to the peer.
    ///
    /// # Errors
    /// [`Halt::Blocked`], or [`Errno::EAGAIN`]; [`Errno::EPIPE`] when the peer reads no more;
    /// [`Errno::ENOTCONN`], [`Errno::EDESTADDRREQ`], [`Errno::EISCONN`], [`Errno::EMSGSIZE`],
    /// [`Errno::ECONNREFUSED`], [`Errno::ECONNRESET`], [`Errno::EPERM`] for a peer that hears
    /// another; the source's.
    pub(super) fn put(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        target: Option<Target>,
        extra: Extra,
        source: &mut dyn Source,
    ) -> Outcome<usize> {
        self.inbox.take_error()?;
        if self.state.lock().is_mute {
            return Err(Errno::EPIPE.into());
        }
        if self.style == Style::Stream {
            if target.is_some() && !self.is_ip() {
                let is_connected = self.outbox().is_some();
                return Err(if is_connected { Errno::EISCONN } else { Errno::EOPNOTSUPP }.into());
            }
            let to = self.outbox();
            let to = to.ok_or(if self.is_ip() { Errno::EPIPE } else { Errno::ENOTCONN })?;
            return self.put_stream(who, nonblocking, &to, extra, source);
        }
        let (to, from) = self.direction(target)?;
        if source.left() > self.longest() {
            return Err(Errno::EMSGSIZE.into());
        }
        let mut bytes = crate::files::zeroes(source.left())?;
        if source.take(&mut bytes)? < bytes.len() {
            return Err(Errno::EFAULT.into());
        }
        let sender = extra.sender.unwrap_or_else(|| sender_of(who));
        let message = Message { bytes, from, sender, rights: extra.rights };
        match to {
            Some(to) => self.put_packet(who, nonblocking, &to, message),
            None => Ok(message.bytes.len()),
        }
    }

    /// Bytes of the longest packet.
    fn longest(&self) -> usize {
        let most = self.out_bytes().unwrap_or(super::queue::LIMIT) - SPARE;
        if self.is_ip() { most.min(UDP_MOST) } else { most }
    }

    fn put_stream(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        to: &Queue,
        mut extra: Extra,
        source: &mut dyn Source,
    ) -> Outcome<usize> {
        let mut room = to.room().map_err(|_| Errno::EPIPE)?;
        while room == 0 {
            wait(who, nonblocking, to)?;
            room = to.room().map_err(|_| Errno::EPIPE)?;
        }
        let sender = extra.sender.unwrap_or_else(|| sender_of(who));
        extra.rights.check(to)?;
        let mut done = 0;
        while room > 0 && source.left() > 0 {
            let mut bytes = match crate::files::zeroes(source.left().min(room).min(PIECE)) {
                Err(errno) if done == 0 => return Err(errno.into()),
                Err(_) => break,
                Ok(bytes) => bytes,
            };
            let count = match source.take(&mut bytes) {
                Err(errno) if done == 0 => return Err(errno.into()),
                Err(_) | Ok(0) => break,
                Ok(count) => count,
            };
            bytes.truncate(count);
            let rights = core::mem::take(&mut extra.rights);
            let message = Message { bytes, from: Address::None, sender, rights };
            match to.push(message) {
                Ok(()) => done += count,
                Err((Refused::Gone, _)) if done == 0 => return Err(Errno::EPIPE.into()),
                Err((Refused::NoMemory, _)) if done == 0 => return Err(Errno::ENOMEM.into()),
                Err((Refused::Full, _)) if done == 0 => return Err(Errno::EAGAIN.into()),
                Err(_) => break,
            }
            room = to.room().unwrap_or(0);
        }
        Ok(done)
    }

    fn put_packet(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        to: &Queue,
        mut message: Message,
    ) -> Outcome<usize> {
        let count = message.bytes.len();
        message.rights.check(to)?;
        loop {
            let (reason, refused) = match to.push(message) {
                Ok(()) => return Ok(count),
                Err(refused) => refused,
            };
            match reason {
                // A datagram of UDP that finds no room is lost.
                Refused::Full if self.is_ip() => return Ok(count),
                Refused::Full => wait(who, nonblocking, to)?,
                Refused::Gone if self.style == Style::Packets => return Err(Errno::EPIPE.into()),
                Refused::Gone => return Err(Errno::ECONNREFUSED.into()),
                Refused::NoMemory => return Err(Errno::ENOMEM.into()),
            }
            message = refused;
        }
    }

    /// The queue that a packet goes to, if any hears it, and the address that it comes from.
    fn direction(&self, target: Option<Target>) -> Result<(Option<Arc<Queue>>, Address)> {
        let state = self.state.lock();
        let (local, peer) = (state.local.clone(), state.peer.clone());
        drop(state);
        let target = target.filter(|_| self.style == Style::Datagrams);
        let target = match (target, peer) {
            (Some(target), _) => target,
            (None, Some(peer)) if peer.to.is_some() => return Ok((peer.to, local)),
            (None, Some(peer)) => {
                let socket = NAMES.find(self.style, &peer.address);
                if socket.is_none() {
                    // It is told as if an answer had come, by the next call.
                    self.inbox.fail(Errno::ECONNREFUSED);
                }
                Target { socket, address: peer.address }
            }
            (None, None) if self.is_ip() => return Err(Errno::EDESTADDRREQ),
            (None, None) => return Err(Errno::ENOTCONN),
        };
        let from = local.seen_from(&target.address);
        let heard = target.socket.filter(|socket| {
            let state = socket.state.lock();
            state.peer.as_ref().is_none_or(|peer| peer.address == from)
        });
        match heard {
            None if !self.is_ip() => Err(Errno::EPERM),
            heard => Ok((heard.map(|socket| socket.inbox.clone()), from)),
        }
    }

    /// Receives at most `count` bytes.
    ///
    /// # Errors
    /// [`Halt::Blocked`], or [`Errno::EAGAIN`]; [`Errno::ENOTCONN`] or [`Errno::EINVAL`] if it is
    /// not connected; [`Errno::ECONNRESET`], [`Errno::ECONNREFUSED`]; the sink's.
    pub(super) fn take(
        &self,
        who: &Caller<'_>,
        nonblocking: bool,
        count: usize,
        flags: u32,
        sink: &mut dyn Sink,
    ) -> Outcome<Got> {
        if self.has_connections() && self.state.lock().peer.is_none() {
            return Err(if self.is_ip() { Errno::ENOTCONN } else { Errno::EINVAL }.into());
        }
        let wish = Wish {
            count,
            is_packet: self.style != Style::Stream,
            peeks: flags & raw::MSG_PEEK != 0,
            by_sender: self.options.lock().tells_sender,
        };
        let mut is_noted = false;
        loop {
            if let Some(got) = self.inbox.read(wish, sink)? {
                return Ok(got);
            }
            self.inbox.take_error()?;
            let look = self.inbox.look();
            if look.messages == 0 && (look.ended || look.deaf) {
                let (from, sender) = (Address::None, Sender::default());
                return Ok(Got { bytes: 0, length: 0, from, sender, rights: Rights::default() });
            }
            if look.messages == 0 && is_noted {
                return Err(Halt::Blocked);
            }
            if nonblocking {
                return Err(Errno::EAGAIN.into());
            }
            // A message that comes before this is found in the second look.
            self.inbox.readers.add(who.wake)?;
            is_noted = true;
        }
    }
}

/// Waits for room in `to`, unless there is some by now.
fn wait(who: &Caller<'_>, nonblocking: bool, to: &Queue) -> Outcome<()> {
    if nonblocking {
        return Err(Errno::EAGAIN.into());
    }
    to.writers.add(who.wake)?;
    if to.room() == Ok(0) { Err(Halt::Blocked) } else { Ok(()) }
}
