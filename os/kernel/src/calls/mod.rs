//! Linux's system calls: decode, ask the rooms to the left, encode.
//!
//! **Owns** nothing. A call is a function of a thread and six registers that returns a number, or
//! the reason it has none ([`Stop`]). **Never** waits: a call that must is left, and made again
//! from the start. **Next room**: `run`.

mod advice;
mod cached;
mod attributes;
mod epoll;
mod exec;
mod files;
mod futex;
mod guard;
mod handle;
mod identity;
mod limit;
mod load;
mod lock;
mod map_file;
mod memory;
mod misc;
mod names;
mod node;
mod other;
mod pieces;
mod poll;
mod present;
mod process;
mod remap;
mod schedule;
mod semaphore;
mod shm;
mod shown;
pub(crate) mod signal;
mod socket;
mod splice;
mod swap;
mod table;
mod time;
mod timer;
mod told;
mod watch;

pub(crate) use exec::first;
use table::is_restarted;
pub(crate) use table::make;
pub(crate) use told::again;
