//! The parts of the Linux ABI that need no machine, so that they are tested on any host.
//!
//! The kernel in `os/kernel/` adds the rest: memory, traps, threads. Everything here is safe code,
//! takes bytes and gives values. It never waits: a call that would have to says so, and is made
//! again.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod credentials;
mod errno;
pub mod exec;
pub mod ext4;
pub mod files;
pub mod groups;
pub mod query;
pub mod signal;
pub mod sockets;
pub mod text;
mod wait;
pub mod watch;

pub use errno::{Errno, Result};
pub use wait::{Waiters, Wake};
