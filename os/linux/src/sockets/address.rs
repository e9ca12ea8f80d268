//! Addresses of sockets, and the bytes in which programs have them.
//!
//! ```text
//!   sockaddr_un    | family 2 | path, NUL          a name in the tree of files
//!                  | family 2 | NUL, any bytes     an abstract one: its length counts
//!   sockaddr_in    | family 2 | port 2, big-endian | address 4 | 8 zeroes
//!   sockaddr_in6   | family 2 | port 2, big-endian | flow 4 | address 16 | scope 4
//! ```
//!
//! Addresses of both versions of IP are one kind here: version 4 is `::ffff:a.b.c.d`, so that a
//! socket of version 6 hears both.

use alloc::sync::Arc;
use alloc::vec::Vec;

use linux_raw_sys::net as raw;

use crate::{Errno, Result};

/// Most bytes of an address that a program gives.
pub const ADDRESS_MAX: usize = 128;

/// The highest 96 bits of an address of version 4.
const MAPPED: u128 = 0xffff << 32;
/// All addresses of version 4, and of both versions.
pub(super) const ANY: [u128; 2] = [MAPPED, 0];
const LOOPBACK: [u128; 2] = [MAPPED | 0x7f00_0001, 1];

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Names of files, and abstract ones.
    Unix,
    /// IP, version 4.
    Inet,
    /// IP, version 6, which hears version 4 as well.
    Inet6,
}

impl Family {
    /// The family with Linux's number.
    ///
    /// # Errors
    /// [`Errno::EAFNOSUPPORT`].
    pub fn of(number: u32) -> Result<Self> {
        match number {
            raw::AF_UNIX => Ok(Self::Unix),
            raw::AF_INET => Ok(Self::Inet),
            raw::AF_INET6 => Ok(Self::Inet6),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    /// Linux's number.
    pub fn number(self) -> u32 {
        match self {
            Self::Unix => raw::AF_UNIX,
            Self::Inet => raw::AF_INET,
            Self::Inet6 => raw::AF_INET6,
        }
    }
}

/// The address of a socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// None.
    None,
    /// A path, as the program gave it.
    Path(Arc<[u8]>),
    /// A name that is in no tree.
    Abstract(Arc<[u8]>),
    /// An address of IP; version 4 is mapped.
    Port {
        /// The machine.
        ip: u128,
        /// The port.
        port: u16,
    },
}

impl Address {
    /// The address in `bytes`, for a socket of `family`. `AF_UNSPEC` is no address.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for too few or too many bytes, [`Errno::EAFNOSUPPORT`] for another family.
    pub fn decode(family: Family, bytes: &[u8]) -> Result<Self> {
        let [low, high, rest @ ..] = bytes else { return Err(Errno::EINVAL) };
        let found = u32::from(u16::from_ne_bytes([*low, *high]));
        if found == raw::AF_UNSPEC && family != Family::Unix {
            return Ok(Self::None);
        }
        if found != family.number() {
            let is_unix = family == Family::Unix;
            return Err(if is_unix { Errno::EINVAL } else { Errno::EAFNOSUPPORT });
        }
        match family {
            Family::Unix => Self::decode_unix(rest),
            Family::Inet => {
                let [a, b, ip @ ..] = rest.first_chunk::<14>().ok_or(Errno::EINVAL)?;
                let ip = ip.first_chunk().map_or(0, |ip| u32::from_be_bytes(*ip));
                Ok(Self::Port { ip: MAPPED | u128::from(ip), port: u16::from_be_bytes([*a, *b]) })
            }
            Family::Inet6 => {
                let [a, b, _, _, _, _, ip @ ..] = rest.first_chunk::<22>().ok_or(Errno::EINVAL)?;
                Ok(Self::Port { ip: u128::from_be_bytes(*ip), port: u16::from_be_bytes([*a, *b]) })
            }
        }
    }

    fn decode_unix(name: &[u8]) -> Result<Self> {
        if name.len() > raw::UNIX_PATH_MAX as usize {
            return Err(Errno::EINVAL);
        }
        Ok(match name {
            [] => Self::None,
            [0, rest @ ..] => Self::Abstract(Arc::from(rest)),
            path => {
                let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
                Self::Path(Arc::from(&path[..end]))
            }
        })
    }

    /// Its bytes, as a socket of `family` shows them.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn encode(&self, family: Family) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(ADDRESS_MAX).map_err(|_| Errno::ENOMEM)?;
        bytes.extend_from_slice(&(family.number() as u16).to_ne_bytes());
        match (self, family) {
            (Self::Path(path), _) => {
                bytes.extend_from_slice(path);
                bytes.push(0);
            }
            (Self::Abstract(name), _) => {
                bytes.push(0);
                bytes.extend_from_slice(name);
            }
            (_, Family::Unix) => {}
            (_, Family::Inet) => {
                bytes.extend_from_slice(&self.port().to_be_bytes());
                bytes.extend_from_slice(&(self.ip() as u32).to_be_bytes());
                bytes.extend_from_slice(&[0; 8]);
            }
            (_, Family::Inet6) => {
                bytes.extend_from_slice(&self.port().to_be_bytes());
                bytes.extend_from_slice(&[0; 4]);
                bytes.extend_from_slice(&self.ip().to_be_bytes());
                bytes.extend_from_slice(&[0; 4]);
            }
        }
        Ok(bytes)
    }

    fn ip(&self) -> u128 {
        if let Self::Port { ip, .. } = self { *ip } else { 0 }
    }

    fn port(&self) -> u16 {
        if let Self::Port { port, .. } = self { *port } else { 0 }
    }

    /// The address that a connection to this one has: this machine, where it says "any".
    ///
    /// # Errors
    /// [`Errno::ENETUNREACH`] for other machines.
    pub(super) fn reached(self) -> Result<Self> {
        let Self::Port { ip, port } = self else { return Ok(self) };
        match ANY.iter().position(|any| *any == ip) {
            Some(version) => Ok(Self::Port { ip: LOOPBACK[version], port }),
            None if is_here(ip) => Ok(self),
            None => Err(Errno::ENETUNREACH),
        }
    }

    /// The address that a peer at `other` sees: the peer's machine, where this one says "any".
    pub(super) fn seen_from(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Port { ip, port }, Self::Port { ip: there, .. }) if ANY.contains(ip) => {
                Self::Port { ip: *there, port: *port }
            }
            _ => self.clone(),
        }
    }
}

/// Whether `ip` is this machine: all networks are its own.
pub(super) fn is_here(ip: u128) -> bool {
    ip == LOOPBACK[1] || ip >> 24 == (MAPPED | 0x7f00_0000) >> 24
}

/// Whether `ip` is of version 4.
pub(super) fn is_version_4(ip: u128) -> bool {
    ip >> 32 == MAPPED >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        let port = |ip| Address::Port { ip, port: 6379 };
        let cases = [
            (Family::Unix, Address::None, 2),
            (Family::Unix, Address::Path(Arc::from(&b"/run/x"[..])), 9),
            (Family::Unix, Address::Abstract(Arc::from(&b"a\0b"[..])), 6),
            (Family::Inet, port(LOOPBACK[0]), 16),
            (Family::Inet6, port(LOOPBACK[0]), 28),
            (Family::Inet6, port(LOOPBACK[1]), 28),
        ];
        for (family, address, length) in cases {
            let bytes = address.encode(family).unwrap();
            assert_eq!(bytes.len(), length);
            assert_eq!(Address::decode(family, &bytes), Ok(address));
        }
    }

    #[test]
    fn addresses_of_other_families_and_lengths_are_refused() {
        let inet = Address::Port { ip: LOOPBACK[0], port: 1 }.encode(Family::Inet).unwrap();
        assert_eq!(Address::decode(Family::Inet, &inet[..15]), Err(Errno::EINVAL));
        assert_eq!(Address::decode(Family::Inet6, &inet), Err(Errno::EAFNOSUPPORT));
        assert_eq!(Address::decode(Family::Unix, &inet), Err(Errno::EINVAL));
        assert_eq!(Address::decode(Family::Unix, &[1, 0].repeat(60)), Err(Errno::EINVAL));
    }

    #[test]
    fn only_this_machine_is_reached() {
        let at = |ip| Address::Port { ip, port: 1 };
        assert_eq!(at(ANY[0]).reached(), Ok(at(LOOPBACK[0])));
        assert_eq!(at(ANY[1]).reached(), Ok(at(LOOPBACK[1])));
        assert_eq!(at(MAPPED | 0x7f01_0203).reached(), Ok(at(MAPPED | 0x7f01_0203)));
        assert_eq!(at(MAPPED | 0x0a00_0001).reached(), Err(Errno::ENETUNREACH));
    }
}
