//! Options of sockets.
//!
//! Some count (`SO_PASSCRED`, time limits, sizes, `IPV6_V6ONLY`) or tell a state; the others are
//! numbers that programs set and read again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use linux_raw_sys::net as raw;

use super::queue::{LIMIT, Sender};
use super::socket::{Socket, Style};
use crate::{Errno, Result};

/// The least and the most bytes that a socket is made to hold.
const SIZES: (usize, usize) = (4608, LIMIT * 2);

const IPPROTO_IP: u32 = raw::IPPROTO_IP as u32;
const IPPROTO_IPV6: u32 = raw::IPPROTO_IPV6 as u32;

/// Numbers that are kept: level, name, and the value at first.
const KEPT: [(u32, u32, u32); 22] = [
    (raw::SOL_SOCKET, raw::SO_REUSEADDR, 0),
    (raw::SOL_SOCKET, raw::SO_REUSEPORT, 0),
    (raw::SOL_SOCKET, raw::SO_KEEPALIVE, 0),
    (raw::SOL_SOCKET, raw::SO_BROADCAST, 0),
    (raw::SOL_SOCKET, raw::SO_OOBINLINE, 0),
    (raw::SOL_SOCKET, raw::SO_DONTROUTE, 0),
    (raw::SOL_SOCKET, raw::SO_PRIORITY, 0),
    (raw::SOL_SOCKET, raw::SO_RCVLOWAT, 1),
    (raw::SOL_SOCKET, raw::SO_INCOMING_CPU, 0),
    (raw::SOL_TCP, raw::TCP_NODELAY, 0),
    (raw::SOL_TCP, raw::TCP_CORK, 0),
    (raw::SOL_TCP, raw::TCP_KEEPIDLE, 7200),
    (raw::SOL_TCP, raw::TCP_KEEPINTVL, 75),
    (raw::SOL_TCP, raw::TCP_KEEPCNT, 9),
    (raw::SOL_TCP, raw::TCP_DEFER_ACCEPT, 0),
    (raw::SOL_TCP, raw::TCP_QUICKACK, 1),
    (raw::SOL_TCP, raw::TCP_USER_TIMEOUT, 0),
    (raw::SOL_TCP, raw::TCP_MAXSEG, 65_483),
    (raw::SOL_TCP, raw::TCP_SYNCNT, 6),
    (IPPROTO_IP, raw::IP_TOS, 0),
    (IPPROTO_IP, raw::IP_TTL, 64),
    (IPPROTO_IPV6, raw::IPV6_TCLASS, 0),
];

/// The options of a socket.
#[derive(Default)]
pub(super) struct Options {
    /// Each message that is received tells its sender.
    pub(super) tells_sender: bool,
    /// A socket of version 6 does not hear version 4.
    pub(super) version_6_only: bool,
    /// Nanoseconds that a read and a write wait at most.
    pub(super) patience: [Option<u64>; 2],
    /// Bytes that the peer is to hold.
    out_bytes: Option<usize>,
    linger: [u32; 2],
    kept: BTreeMap<(u32, u32), u32>,
}

impl Socket {
    /// The value of an option.
    ///
    /// # Errors
    /// [`Errno::ENOPROTOOPT`], [`Errno::ENOMEM`].
    pub(super) fn option(&self, level: u32, name: u32) -> Result<Vec<u8>> {
        let options = self.options.lock();
        let flag = |on: bool| bytes(&[u32::from(on)]);
        match (level, name) {
            (raw::SOL_SOCKET, raw::SO_TYPE) => bytes(&[self.style.number()]),
            (raw::SOL_SOCKET, raw::SO_DOMAIN) => bytes(&[self.family.number()]),
            (raw::SOL_SOCKET, raw::SO_PROTOCOL) => bytes(&[self.protocol()]),
            (raw::SOL_SOCKET, raw::SO_ERROR) => {
                bytes(&[self.inbox.take_error().map_or_else(|errno| errno.number().into(), |()| 0)])
            }
            (raw::SOL_SOCKET, raw::SO_ACCEPTCONN) => flag(self.state.lock().backlog.is_some()),
            (raw::SOL_SOCKET, raw::SO_SNDBUF) => {
                bytes(&[options.out_bytes.unwrap_or(LIMIT) as u32])
            }
            (raw::SOL_SOCKET, raw::SO_RCVBUF) => bytes(&[self.inbox.limit() as u32]),
            (raw::SOL_SOCKET, raw::SO_PASSCRED) => flag(options.tells_sender),
            (raw::SOL_SOCKET, raw::SO_LINGER) => bytes(&options.linger),
            (raw::SOL_SOCKET, raw::SO_PEERCRED) => bytes(&self.peer_sender()),
            (raw::SOL_SOCKET, raw::SO_RCVTIMEO) => timeval(options.patience[0]),
            (raw::SOL_SOCKET, raw::SO_SNDTIMEO) => timeval(options.patience[1]),
            (IPPROTO_IPV6, raw::IPV6_V6ONLY) => flag(options.version_6_only),
            _ => {
                let first = self.first_value(level, name)?;
                bytes(&[options.kept.get(&(level, name)).copied().unwrap_or(first)])
            }
        }
    }

    /// Sets an option.
    ///
    /// # Errors
    /// [`Errno::ENOPROTOOPT`]; [`Errno::EINVAL`] for too few bytes; [`Errno::EDOM`] for a time that
    /// is none.
    pub(super) fn set_option(&self, level: u32, name: u32, value: &[u8]) -> Result<()> {
        let word = |at: usize| {
            let bytes = value.get(at..).and_then(<[u8]>::first_chunk).ok_or(Errno::EINVAL)?;
            Ok(u32::from_ne_bytes(*bytes))
        };
        let first = word(0)?;
        let size = (first as usize).saturating_mul(2).clamp(SIZES.0, SIZES.1);
        match (level, name) {
            (raw::SOL_SOCKET, raw::SO_SNDBUF | raw::SO_SNDBUFFORCE) => {
                self.options.lock().out_bytes = Some(size);
                if let Some(to) = self.outbox() {
                    to.set_limit(size);
                }
            }
            (raw::SOL_SOCKET, raw::SO_RCVBUF | raw::SO_RCVBUFFORCE) => self.inbox.set_limit(size),
            (raw::SOL_SOCKET, raw::SO_PASSCRED) => self.options.lock().tells_sender = first != 0,
            (raw::SOL_SOCKET, raw::SO_LINGER) => self.options.lock().linger = [first, word(4)?],
            (raw::SOL_SOCKET, raw::SO_RCVTIMEO | raw::SO_SNDTIMEO) => {
                let limit = duration(value)?;
                self.options.lock().patience[usize::from(name == raw::SO_SNDTIMEO)] = limit;
            }
            (IPPROTO_IPV6, raw::IPV6_V6ONLY) if self.is_ip() => {
                self.options.lock().version_6_only = first != 0;
            }
            _ => {
                self.first_value(level, name)?;
                self.options.lock().kept.insert((level, name), first);
            }
        }
        Ok(())
    }

    fn first_value(&self, level: u32, name: u32) -> Result<u32> {
        let is_here = match level {
            raw::SOL_SOCKET => true,
            raw::SOL_TCP => self.is_ip() && self.style == Style::Stream,
            _ => self.is_ip(),
        };
        if !is_here {
            let is_unix = !self.is_ip();
            return Err(if is_unix { Errno::EOPNOTSUPP } else { Errno::ENOPROTOOPT });
        }
        let mut all = KEPT.iter().filter(|one| (one.0, one.1) == (level, name));
        all.next().map(|one| one.2).ok_or(Errno::ENOPROTOOPT)
    }

    fn protocol(&self) -> u32 {
        match (self.is_ip(), self.style) {
            (true, Style::Stream) => raw::IPPROTO_TCP as u32,
            (true, _) => raw::IPPROTO_UDP as u32,
            (false, _) => 0,
        }
    }

    fn peer_sender(&self) -> [u32; 3] {
        let state = self.state.lock();
        let known = state.peer.as_ref().map(|peer| peer.sender);
        let known = known.or_else(|| state.backlog.as_ref().map(|backlog| backlog.sender));
        let nothing = Sender { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let sender = known.filter(|_| !self.is_ip()).unwrap_or(nothing);
        [sender.pid, sender.uid, sender.gid]
    }

    /// The number of bytes that a peer is to hold.
    pub(super) fn out_bytes(&self) -> Option<usize> {
        self.options.lock().out_bytes
    }
}

impl Style {
    /// The style with Linux's number (`SOCK_`).
    ///
    /// # Errors
    /// [`Errno::ESOCKTNOSUPPORT`], [`Errno::EINVAL`].
    pub(super) fn of(number: u32) -> Result<Self> {
        match number {
            raw::SOCK_STREAM => Ok(Self::Stream),
            raw::SOCK_DGRAM => Ok(Self::Datagrams),
            raw::SOCK_SEQPACKET => Ok(Self::Packets),
            raw::SOCK_RAW | raw::SOCK_RDM | 6 | 10 => Err(Errno::ESOCKTNOSUPPORT),
            _ => Err(Errno::EINVAL),
        }
    }

    fn number(self) -> u32 {
        match self {
            Self::Stream => raw::SOCK_STREAM,
            Self::Datagrams => raw::SOCK_DGRAM,
            Self::Packets => raw::SOCK_SEQPACKET,
        }
    }
}

fn bytes(words: &[u32]) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    all.try_reserve_exact(4 * words.len()).map_err(|_| Errno::ENOMEM)?;
    all.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    Ok(all)
}

fn timeval(ns: Option<u64>) -> Result<Vec<u8>> {
    let ns = ns.unwrap_or(0);
    let mut all = Vec::new();
    all.try_reserve_exact(16).map_err(|_| Errno::ENOMEM)?;
    all.extend_from_slice(&(ns / 1_000_000_000).to_ne_bytes());
    all.extend_from_slice(&(ns % 1_000_000_000 / 1000).to_ne_bytes());
    Ok(all)
}

/// The nanoseconds of a `timeval`; none of them: for ever.
fn duration(value: &[u8]) -> Result<Option<u64>> {
    let part = |at: usize| {
        let bytes = value.get(at..).and_then(<[u8]>::first_chunk).ok_or(Errno::EINVAL)?;
        Ok(i64::from_ne_bytes(*bytes))
    };
    let (seconds, micros) = (part(0)?, part(8)?);
    if !(0..1_000_000).contains(&micros) {
        return Err(Errno::EDOM);
    }
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let ns = seconds.saturating_mul(1_000_000_000).saturating_add(micros as u64 * 1000);
    Ok((ns > 0).then_some(ns))
}
