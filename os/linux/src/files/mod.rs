//! Files: names, contents, pipes, the terminal, descriptors, and the system calls on them.
//!
//! **Owns** everything that has a name or a descriptor. **Key types**: [`Tree`] (all names),
//! [`Node`] (the object of a name), [`Description`] (an open file), [`Table`] (a process's
//! descriptors), [`Calls`] (the system calls, each a method with its name).
//!
//! ```text
//!   Calls ──number──► Table ──► Description ──► Node ──► Data ──► Pages   a regular file
//!     │                          offset, flags   ▲  ├──► Entries     a directory in memory
//!     └──path──► Tree, Here ─────────────────────┘  ├──► Pipe, Device ──► Console
//!                                                   ├──► Directory, Generated: the kernel's
//!                                                   └──► Directory, Stored: a disk's
//! ```
//!
//! **Waiting**: nothing blocks. Pipes and the terminal register the caller's [`Wake`](crate::Wake)
//! and return [`Halt::Blocked`]; then nothing was done, and the call is made again. `O_NONBLOCK`'s
//! EAGAIN is [`Halt::Failed`]. A page that lies on a disk and is not in memory gives
//! [`Errno::BLOCKED`](crate::Errno::BLOCKED) in the same manner, from any call on a path or a file:
//! no signal interrupts that wait.
//!
//! **Locks**, all of them spin locks, from left to right; no code takes one that is further left:
//!
//! ```text
//!   Table, Here │ Description's offset │ Tree's mounts │ Tree's covers │ Tree's changes │
//!   Entries │ Node's notes, Data, Pipe │ Console │ Waiters │ Screen
//! ```
//!
//! A table's lock is held for nothing else. Of the others, a program's memory is touched under the
//! offset and under a pipe's lock only, neither of which a page fault needs; so the locks of memory
//! are to the right of all of these. Generated files are rendered and looked up with no lock held.
//!
//! **Never**: waits, knows processes, touches memory that was not passed in.

mod block;
mod call;
mod change;
mod console;
mod cpio;
mod data;
mod device;
mod dir;
mod dirent;
mod epoll;
mod event;
mod generated;
mod node;
mod object;
mod open;
mod ops;
mod path;
mod pipe;
mod poll;
mod stat;
mod stored;
mod table;
mod termios;
mod tree;

pub(crate) use call::zeroes;

#[cfg(test)]
pub(crate) mod tests;

pub use block::Block;
pub use call::{Caller, Halt, Outcome, Sink, Source, Time};
pub use change::Rename;
pub use console::{Console, Keys, Screen, WindowSize};
pub use cpio::Unpacked;
pub use data::{Data, LENGTH_MAX, MakePages, PIECE, Pages, Reserved, read_to, write_from};
pub use device::{Device, Devices, Number, Random};
pub use dir::Entries;
pub use epoll::{Epoll, Event};
pub use event::Events;
pub use generated::{Directory, Entry, Generated, Jump, Tell, Text, What};
pub use node::{Body, Kind, Meta, Node};
pub use object::Object;
pub use open::{Description, Place};
pub use ops::{Calls, Here, SetTime};
pub use path::{Last, NAME_MAX, PATH_MAX, Spot, path_of};
pub use pipe::{ATOMIC, CAPACITY, End, Pipe};
pub use poll::{PollEvents, readiness, wait_on};
pub use stat::{About, Stat, Statfs, Statx, joined, split};
pub use stored::Stored;
pub use table::{LIMIT, LIMIT_MAX, Table};
pub use termios::Termios;
pub use tree::{MEMORY, Mount, PIPES, Tree};
