//! Names that are in no tree of files: abstract ones, and ports.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::any::Any;

use spin::mutex::SpinMutex;

use super::address::{ANY, Address, is_here, is_version_4};
use super::socket::{Socket, Style};
use crate::credentials::Credentials;
use crate::files::{Kind, Object, PollEvents};
use crate::{Errno, Result, Wake};

/// The first port that is given out by itself (`net.ipv4.ip_local_port_range`), and how many are.
const FREE_PORTS: (u16, u16) = (32_768, 28_232);

/// The first port that is not root's.
const USER_PORTS: u16 = 1024;

struct Taken {
    /// A socket that is gone has lost its name.
    all: BTreeMap<(Style, Address), Weak<Socket>>,
    /// Names that were given out.
    given: u32,
}

/// The names of this machine.
pub(super) static NAMES: Names = Names(SpinMutex::new(Taken { all: BTreeMap::new(), given: 0 }));

/// Such names.
pub(super) struct Names(SpinMutex<Taken>);

impl Names {
    /// Gives `socket` the name, or a free one where it says none, or no port. The name that it has
    /// now.
    ///
    /// # Errors
    /// [`Errno::EADDRINUSE`], [`Errno::EADDRNOTAVAIL`] for another machine, [`Errno::EACCES`] for
    /// root's ports.
    pub(super) fn take(
        &self,
        socket: &Arc<Socket>,
        name: &Address,
        may: &Credentials,
    ) -> Result<Address> {
        check(name, may)?;
        let mut taken = self.0.lock();
        taken.all.retain(|_, socket| socket.strong_count() > 0);
        let style = socket.style();
        let is_free = |taken: &Taken, name: &Address| {
            let mut others = taken.all.iter().filter(|((kind, _), _)| *kind == style);
            others.all(|((_, other), by)| !overlap(name, other, socket, by))
        };
        let found = match name {
            Address::None => free(&mut taken, is_free, |at| {
                let digits: [u8; 5] = core::array::from_fn(|digit| {
                    b"0123456789abcdef"[(at >> (16 - 4 * digit) & 15) as usize]
                });
                Address::Abstract(Arc::from(&digits[..]))
            })?,
            Address::Port { ip, port: 0 } => free(&mut taken, is_free, |at| Address::Port {
                ip: *ip,
                port: FREE_PORTS.0 + (at % u32::from(FREE_PORTS.1)) as u16,
            })?,
            name if is_free(&taken, name) => name.clone(),
            _ => return Err(Errno::EADDRINUSE),
        };
        taken.all.insert((style, found.clone()), Arc::downgrade(socket));
        Ok(found)
    }

    /// The socket of `style` that a message to `name` comes to.
    pub(super) fn find(&self, style: Style, name: &Address) -> Option<Arc<Socket>> {
        let taken = self.0.lock();
        let at = |name: Address| taken.all.get(&(style, name)).and_then(Weak::upgrade);
        let Address::Port { ip, port } = *name else { return at(name.clone()) };
        let any = if is_version_4(ip) { &ANY[..] } else { &ANY[1..] };
        at(name.clone()).or_else(|| {
            any.iter().find_map(|any| {
                at(Address::Port { ip: *any, port })
                    .filter(|socket| *any == ANY[0] || socket.hears(ip))
            })
        })
    }
}

/// The first free name of those that `make` makes.
fn free(
    taken: &mut Taken,
    is_free: impl Fn(&Taken, &Address) -> bool,
    make: impl Fn(u32) -> Address,
) -> Result<Address> {
    for _ in 0..FREE_PORTS.1 {
        taken.given = taken.given.wrapping_add(1);
        let name = make(taken.given);
        if is_free(taken, &name) {
            return Ok(name);
        }
    }
    Err(Errno::EADDRINUSE)
}

fn check(name: &Address, may: &Credentials) -> Result<()> {
    let Address::Port { ip, port } = *name else { return Ok(()) };
    if !ANY.contains(&ip) && !is_here(ip) {
        return Err(Errno::EADDRNOTAVAIL);
    }
    let is_roots = (1..USER_PORTS).contains(&port);
    if is_roots && !may.can(linux_raw_sys::general::CAP_NET_BIND_SERVICE) {
        return Err(Errno::EACCES);
    }
    Ok(())
}

/// Whether a message to one name of the two may come to the other.
fn overlap(name: &Address, other: &Address, socket: &Socket, by: &Weak<Socket>) -> bool {
    let (Address::Port { ip, port }, Address::Port { ip: there, port: taken }) = (name, other)
    else {
        return name == other;
    };
    let hears = |any: u128, ip: u128, socket: &Socket| match any == ANY[0] {
        true => is_version_4(ip),
        false => any == ANY[1] && socket.hears(ip),
    };
    port == taken
        && (ip == there
            || hears(*ip, *there, socket)
            || by.upgrade().is_some_and(|by| hears(*there, *ip, &by)))
}

/// The name of a socket in the tree of files.
pub(super) struct Named(pub(super) Weak<Socket>);

impl Object for Named {
    fn name(&self) -> &'static str {
        "socket"
    }

    fn kind(&self) -> Kind {
        Kind::Socket
    }

    fn readiness(&self) -> PollEvents {
        PollEvents::empty()
    }

    fn wait_on(&self, _: &Arc<dyn Wake>) -> Result<()> {
        Ok(())
    }
}

/// The socket with this name, if it has not gone.
///
/// # Errors
/// [`Errno::ECONNREFUSED`], also where the file is no socket's name.
pub(super) fn named(object: &Arc<dyn Object>) -> Result<Arc<Socket>> {
    let any: &dyn Any = &**object;
    let named: &Named = any.downcast_ref().ok_or(Errno::ECONNREFUSED)?;
    named.0.upgrade().ok_or(Errno::ECONNREFUSED)
}
