//! Sockets: one core of queues, and families of addresses as policies over it.
//!
//! **Owns** the sockets and the names that are in no tree of files. **Key types**: [`Socket`] (an
//! object with a descriptor), [`Address`], [`Family`]. The system calls are methods of
//! [`Calls`](crate::files::Calls), as those on files.
//!
//! ```text
//!   Calls ──number──► Description ──► Socket ──► its Queue      messages that came to it
//!     │                                  └─peer─► another Queue  of the socket it is connected to
//!     └── Address ──► Names, or the tree of files ──► Socket
//! ```
//!
//! IP reaches this machine only, and so needs no packets, no timers and no checksums: a connection
//! of TCP is a pair of queues as one of `AF_UNIX` is, and a datagram of UDP is a message. A network
//! stack would be larger than all of this room, would copy each byte once more, and would have to
//! be driven by a clock. The families differ in few things: how a name is found and shown; whether
//! descriptors travel; and how it is told that nothing listens.
//!
//! **Waiting**: nothing blocks, as in [`files`](crate::files). **Locks**: `Names`, then a socket's
//! state, then a queue; no two of a kind at once. **Never**: touches a program's memory under any
//! lock but that of the queue that is read.

mod address;
mod calls;
mod message;
mod names;
mod options;
mod queue;
mod rights;
mod socket;

#[cfg(test)]
mod tests;

pub use address::{ADDRESS_MAX, Address, Family};
pub use message::{Incoming, Outgoing};
pub use queue::Sender;
pub use rights::{RIGHTS_MAX, Rights};
pub use socket::{Socket, Style};
