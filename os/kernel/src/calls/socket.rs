//! Calls on sockets: addresses, options and messages to and from a program's memory. The work
//! itself is in [`quire_linux::sockets`].

use alloc::vec::Vec;

use linux_raw_sys::net as abi;
use quire_linux::files::{Calls, Source};
use quire_linux::sockets::{ADDRESS_MAX, Incoming, Outgoing};
use quire_linux::{Errno, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::files::{Bytes, answer, move_all};
use super::pieces::Pieces;
use crate::memory::user;
use crate::task::tree::with_calls;
use crate::task::{Answer, Resume, Stop, Thread};

/// Most bytes beside the bytes of one message (`net.core.optmem_max`).
const CONTROL_MAX: usize = 20_480;
/// Most bytes of an option.
const OPTION_MAX: usize = 4096;
/// Most messages of one call.
const MESSAGES_MAX: usize = 1024;
/// Of `recvmmsg`: only the first message is waited for (linux/socket.h).
const WAIT_FOR_ONE: u32 = 0x1_0000;

/// `struct msghdr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Head {
    name: usize,
    name_bytes: u32,
    hole: u32,
    pieces: usize,
    piece_count: usize,
    control: usize,
    control_bytes: usize,
    flags: u32,
    end: u32,
}

/// Bytes of a `mmsghdr`, and where its count is.
const ONE_OF_MANY: (usize, usize) = (size_of::<Head>() + 8, size_of::<Head>());

/// Bytes of a program, at most `most`.
fn bytes_at(address: usize, count: usize, most: usize, error: Errno) -> Result<Vec<u8>> {
    if count > most {
        return Err(error);
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(count, 0);
    user::read_bytes(address as u64, &mut bytes)?;
    Ok(bytes)
}

fn address_at(address: usize, count: usize) -> Result<Vec<u8>> {
    bytes_at(address, count as u32 as usize, ADDRESS_MAX, Errno::EINVAL)
}

/// Writes as many bytes as there is room for; the room, an int at `count`, becomes the length.
fn put_sized(bytes: &[u8], to: usize, count: usize) -> Result<()> {
    let room = usize::try_from(user::read::<i32>(count as u64)?).map_err(|_| Errno::EINVAL)?;
    user::write_bytes(to as u64, &bytes[..room.min(bytes.len())])?;
    user::write(count as u64, &(bytes.len() as u32))
}

pub(super) fn socket(thread: &mut Thread, [family, style, protocol, ..]: [usize; 6]) -> Answer {
    let [family, style, protocol] = [family, style, protocol].map(|word| word as u32);
    Ok(with_calls(thread, |calls| calls.socket(family, style, protocol))? as usize)
}

pub(super) fn socketpair(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [family, style, protocol, out, ..] = args;
    with_calls(thread, |calls| {
        let ends = calls.socketpair(family as u32, style as u32, protocol as u32)?;
        let told = user::write(out as u64, &ends);
        if told.is_err() {
            // Another thread may have closed them already.
            let _ = ends.map(|end| calls.close(end));
        }
        told
    })?;
    Ok(0)
}

pub(super) fn bind(thread: &mut Thread, [fd, address, count, ..]: [usize; 6]) -> Answer {
    let address = address_at(address, count)?;
    with_calls(thread, |calls| calls.bind(fd as u32, &address))?;
    Ok(0)
}

pub(super) fn listen(thread: &mut Thread, [fd, backlog, ..]: [usize; 6]) -> Answer {
    with_calls(thread, |calls| calls.listen(fd as u32, backlog as u32))?;
    Ok(0)
}

pub(super) fn connect(thread: &mut Thread, [fd, address, count, ..]: [usize; 6]) -> Answer {
    let address = address_at(address, count)?;
    answer(with_calls(thread, |calls| calls.connect(fd as u32, &address)).map(|()| 0))
}

pub(super) fn accept(thread: &mut Thread, [fd, address, count, ..]: [usize; 6]) -> Answer {
    accept4(thread, [fd, address, count, 0, 0, 0])
}

pub(super) fn accept4(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [fd, address, count, flags, ..] = args;
    let accepted = with_calls(thread, |calls| {
        let (number, peer) = calls.accept4(fd as u32, flags as u32)?;
        if address != 0
            && let Err(errno) = put_sized(&peer, address, count)
        {
            // Another thread may have closed it already.
            let _ = calls.close(number);
            return Err(errno.into());
        }
        Ok(number as usize)
    });
    answer(accepted)
}

pub(super) fn getsockname(thread: &mut Thread, [fd, address, count, ..]: [usize; 6]) -> Answer {
    let name = with_calls(thread, |calls| calls.getsockname(fd as u32))?;
    put_sized(&name, address, count)?;
    Ok(0)
}

pub(super) fn getpeername(thread: &mut Thread, [fd, address, count, ..]: [usize; 6]) -> Answer {
    let name = with_calls(thread, |calls| calls.getpeername(fd as u32))?;
    put_sized(&name, address, count)?;
    Ok(0)
}

pub(super) fn shutdown(thread: &mut Thread, [fd, how, ..]: [usize; 6]) -> Answer {
    with_calls(thread, |calls| calls.shutdown(fd as u32, how as u32))?;
    Ok(0)
}

pub(super) fn getsockopt(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [fd, level, name, value, count, _] = args;
    let room = user::read::<i32>(count as u64)?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let mut bytes =
        with_calls(thread, |calls| calls.getsockopt(fd as u32, level as u32, name as u32))?;
    bytes.truncate(room);
    user::write_bytes(value as u64, &bytes)?;
    user::write(count as u64, &(bytes.len() as u32))?;
    Ok(0)
}

pub(super) fn setsockopt(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [fd, level, name, value, count, _] = args;
    let count = usize::try_from(count as i32).map_err(|_| Errno::EINVAL)?;
    let value = bytes_at(value, count.min(OPTION_MAX), OPTION_MAX, Errno::EINVAL)?;
    with_calls(thread, |calls| calls.setsockopt(fd as u32, level as u32, name as u32, &value))?;
    Ok(0)
}

fn is_never(_: &Calls<'_>, _: u32) -> Result<bool> {
    Ok(false)
}

fn is_always(_: &Calls<'_>, _: u32) -> Result<bool> {
    Ok(true)
}

/// Sends one message. Rights and names go with the first of them.
fn send(thread: &mut Thread, fd: usize, pieces: Pieces, what: Outgoing<'_>) -> Answer {
    let waits = what.flags & abi::MSG_DONTWAIT == 0;
    let all = Bytes {
        fd: fd as u32,
        pieces,
        all_of: if waits { |calls, fd| calls.must_go_on(fd) } else { is_never },
        writes: true,
        is_quiet: what.flags & abi::MSG_NOSIGNAL != 0,
    };
    move_all(thread, all, |calls, done, from| {
        let control = if done > 0 { &[] } else { what.control };
        calls.send(fd as u32, Outgoing { control, ..what }, from)
    })
}

pub(super) fn sendto(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [fd, from, count, flags, to, to_bytes] = args;
    let pieces = Pieces::one(from, count)?;
    let to = if to != 0 { Some(address_at(to, to_bytes)?) } else { None };
    let what = Outgoing { to: to.as_deref(), control: &[], flags: flags as u32 };
    send(thread, fd, pieces, what)
}

fn send_message(thread: &mut Thread, fd: usize, message: usize, flags: u32) -> Answer {
    let head: Head = user::read(message as u64)?;
    let to = match head.name {
        0 => None,
        _ if head.name_bytes == 0 => None,
        name => Some(address_at(name, head.name_bytes as usize)?),
    };
    let control = bytes_at(head.control, head.control_bytes, CONTROL_MAX, Errno::ENOBUFS)?;
    let pieces = pieces_of(&head)?;
    send(thread, fd, pieces, Outgoing { to: to.as_deref(), control: &control, flags })
}

fn pieces_of(head: &Head) -> Result<Pieces> {
    Pieces::array(head.pieces, head.piece_count).map_err(|errno| match errno {
        Errno::EINVAL if head.piece_count > 1024 => Errno::EMSGSIZE,
        other => other,
    })
}

pub(super) fn sendmsg(thread: &mut Thread, [fd, message, flags, ..]: [usize; 6]) -> Answer {
    send_message(thread, fd, message, flags as u32)
}

/// Receives one message.
fn receive(
    thread: &mut Thread,
    fd: usize,
    pieces: Pieces,
    room: usize,
    flags: u32,
) -> core::result::Result<(usize, Incoming), Stop> {
    let wants_all = flags & (abi::MSG_WAITALL | abi::MSG_PEEK | abi::MSG_DONTWAIT);
    let all = Bytes {
        fd: fd as u32,
        pieces,
        all_of: if wants_all == abi::MSG_WAITALL { is_always } else { is_never },
        writes: false,
        is_quiet: true,
    };
    let mut beside = Incoming::default();
    let count = move_all(thread, all, |calls, _, to| {
        let incoming = calls.receive(fd as u32, to.left(), room, flags, to)?;
        let count = incoming.bytes;
        if beside.control.is_empty() {
            beside = incoming;
        }
        Ok(count)
    })?;
    Ok((count, beside))
}

pub(super) fn recvfrom(thread: &mut Thread, args: [usize; 6]) -> Answer {
    let [fd, to, count, flags, name, name_bytes] = args;
    let pieces = Pieces::one(to, count)?;
    let (count, beside) = receive(thread, fd, pieces, 0, flags as u32)?;
    if name != 0 {
        put_sized(&beside.address, name, name_bytes)?;
    }
    Ok(count)
}

fn receive_message(thread: &mut Thread, fd: usize, message: usize, flags: u32) -> Answer {
    let mut head: Head = user::read(message as u64)?;
    let pieces = pieces_of(&head)?;
    let (count, beside) = receive(thread, fd, pieces, head.control_bytes, flags)?;
    if head.name != 0 {
        let room = (head.name_bytes as usize).min(beside.address.len());
        user::write_bytes(head.name as u64, &beside.address[..room])?;
        head.name_bytes = beside.address.len() as u32;
    }
    let room = head.control_bytes.min(beside.control.len());
    user::write_bytes(head.control as u64, &beside.control[..room])?;
    head.control_bytes = room;
    head.flags = beside.flags | flags & abi::MSG_CMSG_CLOEXEC;
    user::write(message as u64, &head)?;
    Ok(count)
}

pub(super) fn recvmsg(thread: &mut Thread, [fd, message, flags, ..]: [usize; 6]) -> Answer {
    receive_message(thread, fd, message, flags as u32)
}

/// One message of a call with many.
type One = fn(&mut Thread, usize, usize, u32) -> Answer;

/// Moves each of an array of messages by `one`; how many were moved. Only the first is waited for,
/// and an error is told if no message was moved.
fn each(thread: &mut Thread, [fd, array, count, flags, ..]: [usize; 6], one: One) -> Answer {
    let mut flags = flags as u32 & !WAIT_FOR_ONE;
    let count = (count as u32 as usize).min(MESSAGES_MAX);
    for at in 0..count {
        let message = array + at * ONE_OF_MANY.0;
        match one(thread, fd, message, flags) {
            Ok(bytes) => user::write((message + ONE_OF_MANY.1) as u64, &(bytes as u32))?,
            Err(_) if at > 0 => return Ok(at),
            Err(stop) => return Err(stop),
        }
        flags |= abi::MSG_DONTWAIT;
        thread.resume = Resume::Fresh;
    }
    Ok(count)
}

pub(super) fn sendmmsg(thread: &mut Thread, args: [usize; 6]) -> Answer {
    each(thread, args, send_message)
}

pub(super) fn recvmmsg(thread: &mut Thread, args: [usize; 6]) -> Answer {
    each(thread, args, receive_message)
}
